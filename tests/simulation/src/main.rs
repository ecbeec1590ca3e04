//! The deterministic simulation of the whole runtime.
//!
//! Several clients of the real library, a simulated server that runs the real scripts, virtual time, and a world of
//! faults that a seed stands for. One seed is one history, byte for byte. `./scripts/simulate --help` says how.

mod board;
mod buffer;
mod caller;
mod campaign;
mod chaos;
mod clock;
mod desk;
mod diary;
mod eavesdropper;
mod events;
mod fleet;
#[path = "../../common/forger.rs"]
mod forger;
mod frames;
mod ghosts;
mod held;
mod history;
#[path = "../../judge/mod.rs"]
mod judge;
mod keyspace;
mod net;
mod options;
mod plan;
mod plays;
mod process;
mod replicas;
mod report;
mod scene;
mod sessions;
mod shrink;
mod slots;
mod station;
mod steps;
mod trace;
mod verdict;
mod watch;
mod wire;
mod work;
mod world;

use std::process::ExitCode;

use options::{Mode, Options};
use plan::Plan;
use world::World;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::read(&words) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    match options.mode {
        Mode::Help => println!("{}", options::HELP),
        Mode::One { seed, traced } => play(seed, traced, &options),
        Mode::Replay { seed, traced } => return campaign::replay(seed, traced, &options),
        Mode::Campaign { from, seeds, minutes } => {
            return campaign::run(from, seeds, minutes, &options);
        }
        Mode::Speed => return campaign::speed(),
    }
    ExitCode::SUCCESS
}

/// Lives through one seed, in this process, and says what came of it.
fn play(seed: u64, traced: bool, options: &Options) {
    if traced {
        trace::keep();
    }
    events::listen(traced);
    let plan = Plan::draw(seed, &options.set);
    trace::line(|| format!("{plan:#?}"));
    if options.steps.is_some() {
        steps::keep(&plan.names[0]);
    }
    let mut world = World::new(plan);
    let lived = world.run();
    let history = options.history.as_ref().map(|path| path.join(format!("{seed}.tsv")));
    if let Some(folder) = &options.steps {
        steps::write(folder, seed);
    }
    let wrongs = verdict::pronounce(&world.plan, history.as_deref());
    report::print(lived, &world, &wrongs);
    if traced {
        trace::lines().iter().for_each(|line| println!("log\t{line}"));
    }
    // Runtimes end here, and with them guards that were never given back: nobody is to hear their last words.
    std::process::exit(0);
}
