//! What the command line says.

use std::path::PathBuf;

use crate::clock::SECOND;
use crate::plan::Overrides;
use crate::scene::Scene;

pub const HELP: &str = "\
The whole library under simulation: clients, network, server and time are made up, the library and its scripts are real.

  simulate                          a campaign of fresh seeds for three minutes
  simulate --seeds 500 [--from S]   so many seeds; drawn, if no first one is named
  simulate --minutes 3              as many fresh seeds as fit
  simulate --campaign DIR           the same, but goes on where the last run of this campaign stopped, and counts them together
  simulate --seed N [--trace]       replays one seed; a violation is cut down to its shortest history
  simulate --speed                  how fast it is: virtual minutes per minute of one core

  --clients N --callers M --names K --length SECONDS --faults 0,3,5|none   instead of what the seed says
  --eavesdropper                    someone without a key listens and publishes in each world, not in a third of them
  --scene NAME                      plays this scene in every seed: see src/scene.rs; Cluster, Sentinel and Replicas are
                                    random work on several servers
  --history DIR                     writes a history of each seed for tests/witness, in parklock's own layout alone
  --steps DIR                       works on one plain lock in each seed, and writes its steps for tests/specification/Trace.tla
  --first                           ends a campaign with its first violation
  --every                           prints every violation of a campaign, not the first of each rule
  --no-shrink                       does not cut a failure down";

#[derive(Debug, Clone)]
pub enum Mode {
    Help,
    /// In this process: what a campaign starts for each seed.
    One {
        seed: u64,
        traced: bool,
    },
    Replay {
        seed: u64,
        traced: bool,
    },
    Campaign {
        from: Option<u64>,
        seeds: Option<u64>,
        minutes: f64,
    },
    Speed,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub mode: Mode,
    pub set: Overrides,
    /// The words that set something, for the processes of a campaign.
    pub words: Vec<String>,
    pub first: bool,
    pub every: bool,
    pub shrinks: bool,
    pub history: Option<PathBuf>,
    pub steps: Option<PathBuf>,
    /// The folder of a campaign that takes several runs.
    pub campaign: Option<PathBuf>,
}

impl Options {
    pub fn read(words: &[String]) -> Result<Self, String> {
        let (mut set, mut passed) = (Overrides::default(), Vec::new());
        let (mut seed, mut one, mut seeds, mut from, mut minutes) = (None, None, None, None, None);
        let (mut traced, mut first, mut every, mut shrinks) = (false, false, false, true);
        let (mut speed, mut help, mut history, mut campaign) = (false, false, None, None);
        let mut steps = None;
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let mut value = || rest.next().cloned().ok_or_else(|| format!("{word} wants a value"));
            match word.as_str() {
                "--help" | "-h" => help = true,
                "--trace" => traced = true,
                "--first" => first = true,
                "--every" => every = true,
                "--no-shrink" => shrinks = false,
                "--speed" => speed = true,
                "--seed" => seed = Some(number(&value()?)?),
                "--one" => one = Some(number(&value()?)?),
                "--seeds" => seeds = Some(number(&value()?)?),
                "--from" => from = Some(number(&value()?)?),
                "--minutes" => {
                    minutes = Some(value()?.parse::<f64>().map_err(|wrong| wrong.to_string())?)
                }
                "--campaign" => campaign = Some(PathBuf::from(value()?)),
                "--eavesdropper" => {
                    set.is_overheard = true;
                    passed.push(word.clone());
                }
                "--bare" => {
                    set.bare = true;
                    passed.push(word.clone());
                }
                "--history" => {
                    let path = value()?;
                    history = Some(PathBuf::from(&path));
                    passed.extend([word.clone(), path]);
                }
                "--steps" => {
                    let path = value()?;
                    steps = Some(PathBuf::from(&path));
                    set.in_steps = true;
                    passed.extend([word.clone(), path]);
                }
                word => {
                    let value = value()?;
                    set_by_hand(&mut set, word, &value)?;
                    passed.extend([word.to_owned(), value]);
                }
            }
        }
        let mode = match (help, speed, one, seed) {
            (true, ..) => Mode::Help,
            (_, true, ..) => Mode::Speed,
            (_, _, Some(seed), _) => Mode::One { seed, traced },
            (_, _, _, Some(seed)) => Mode::Replay { seed, traced },
            _ => Mode::Campaign { from, seeds, minutes: minutes.unwrap_or(3.0) },
        };
        Ok(Self { mode, set, words: passed, first, every, shrinks, history, steps, campaign })
    }
}

fn set_by_hand(set: &mut Overrides, word: &str, value: &str) -> Result<(), String> {
    match word {
        "--clients" => set.clients = Some(number(value)? as usize),
        "--callers" => set.callers = Some(number(value)? as usize),
        "--names" => set.names = Some(number(value)? as usize),
        "--length" => set.length = Some(number(value)? * SECOND),
        "--faults" => {
            let numbers = value.split(',').filter(|word| !["", "none"].contains(word)).map(number);
            let kept: Result<Vec<u64>, String> = numbers.collect();
            set.faults = Some(kept?.into_iter().map(|at| at as usize).collect());
        }
        "--scene" => set.scene = Some(Scene::named(value)?),
        _ => return Err(format!("{word} is not known")),
    }
    Ok(())
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word} is not a number"))
}
