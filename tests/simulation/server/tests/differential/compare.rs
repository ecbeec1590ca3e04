//! When two answers are the same.
//!
//! They are, if they are equal. One thing only is tolerated: where a script reads the time in microseconds, the real
//! server reads its clock a little later than the simulated one was told. So the two numbers differ, and so does what
//! a step calculates from them, by no more than the step took.

use parklock_simulated_server::{Content, Entry};

use crate::frame::Frame;
use crate::packed;

/// From before a step to after it, by the real server's clock in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub begin: u64,
    pub end: u64,
}

/// The time is larger than this, and so is what a step calculates from it: a command counts on or back, and a script
/// that takes a stamp for milliseconds subtracts the time of day from it.
const LEAST_STAMP: u64 = 1_000_000_000_000_000;
/// From here on, Lua's numbers skip some integers. Around it, each number has to be the same.
const INEXACT: u64 = 1 << 53;
const NEAR: u64 = 1 << 20;

impl Window {
    /// Whether the numbers differ only because each server knows its own time of this step.
    fn explains(self, real: u64, simulated: u64) -> bool {
        simulated >= LEAST_STAMP
            && simulated.abs_diff(INEXACT) > NEAR
            && real.abs_diff(simulated) <= self.end - self.begin
    }
}

/// How two answers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    Equal,
    /// Equal, but for stamps in microseconds and what is calculated from them.
    Stamped,
    Different,
}

/// Both are stamps of one of these steps, or calculated from them.
fn are_stamps(windows: &[Window], real: u64, simulated: u64) -> bool {
    windows.iter().any(|window| window.explains(real, simulated))
}

pub fn texts(windows: &[Window], real: &[u8], simulated: &[u8]) -> Likeness {
    if real == simulated {
        return Likeness::Equal;
    }
    if let Some((real, simulated)) = packed::numbers(real).zip(packed::numbers(simulated)) {
        return numbers(windows, &real, &simulated);
    }
    let (real, simulated) = (without_hashes(real), without_hashes(simulated));
    let (mut real, mut simulated) = (runs(&real), runs(&simulated));
    loop {
        match (real.next(), simulated.next()) {
            (None, None) => return Likeness::Stamped,
            (Some(real), Some(simulated)) if real == simulated => {}
            (Some(real), Some(simulated)) => {
                let stamp = |run: &[u8]| std::str::from_utf8(run).ok()?.parse().ok();
                let stamps = stamp(real).zip(stamp(simulated));
                if !stamps.is_some_and(|(real, simulated)| are_stamps(windows, real, simulated)) {
                    return Likeness::Different;
                }
            }
            _ => return Likeness::Different,
        }
    }
}

fn numbers(windows: &[Window], real: &[f64], simulated: &[f64]) -> Likeness {
    let text = |numbers: &[f64]| format!("{numbers:?}").into_bytes();
    texts(windows, &text(real), &text(simulated))
}

/// The text without the hashes of its proofs. A proof is about the number of its grant, which is a stamp: so if the stamps differ,
/// the hashes have nothing in common.
fn without_hashes(text: &[u8]) -> Vec<u8> {
    const HASH: usize = 20;
    let mut words = text.split(|byte| *byte == b' ').map(|word| {
        let proof = word.iter().position(|byte| *byte == b'@').map(|at| &word[at + 1..]);
        let is_proof = proof.is_some_and(|proof| {
            proof.len() >= HASH && proof.iter().all(|byte| byte.is_ascii_hexdigit())
        });
        if is_proof { &word[..word.len() - HASH] } else { word }
    });
    let first = words.next().unwrap_or_default().to_vec();
    words.fold(first, |mut text, word| {
        text.push(b' ');
        text.extend_from_slice(word);
        text
    })
}

/// The text in pieces of digits alone and of none.
fn runs(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.chunk_by(|left, right| left.is_ascii_digit() == right.is_ascii_digit())
}

pub fn frames(windows: &[Window], real: &[Frame], simulated: &[Frame]) -> Likeness {
    if real.len() != simulated.len() {
        return Likeness::Different;
    }
    let pairs = real.iter().zip(simulated);
    pairs.map(|(real, simulated)| frame(windows, real, simulated)).max().unwrap_or(Likeness::Equal)
}

fn frame(windows: &[Window], real: &Frame, simulated: &Frame) -> Likeness {
    if real.kind != simulated.kind {
        return Likeness::Different;
    }
    texts(windows, &real.text, &simulated.text).max(frames(windows, &real.items, &simulated.items))
}

/// The keys of both sides, each in order.
pub fn key_spaces(windows: &[Window], real: &[Entry], simulated: &[Entry]) -> Likeness {
    if real.len() != simulated.len() {
        return Likeness::Different;
    }
    real.iter()
        .zip(simulated)
        .map(|(real, simulated)| entries(windows, real, simulated))
        .max()
        .unwrap_or(Likeness::Equal)
}

pub fn entries(windows: &[Window], real: &Entry, simulated: &Entry) -> Likeness {
    if (real.database, &real.key) != (simulated.database, &simulated.key) {
        return Likeness::Different;
    }
    let ttl =
        texts(windows, real.pttl.to_string().as_bytes(), simulated.pttl.to_string().as_bytes());
    let content = contents(windows, &real.content, &simulated.content);
    ttl.max(content)
}

fn contents(windows: &[Window], real: &Content, simulated: &Content) -> Likeness {
    let all = |pairs: &mut dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>| {
        pairs
            .map(|(real, simulated)| texts(windows, real, simulated))
            .max()
            .unwrap_or(Likeness::Equal)
    };
    match (real, simulated) {
        (Content::Text(real), Content::Text(simulated)) => texts(windows, real, simulated),
        (Content::List(real), Content::List(simulated)) if real.len() == simulated.len() => {
            all(&mut real.iter().zip(simulated))
        }
        (Content::Hash(real), Content::Hash(simulated)) if real.len() == simulated.len() => {
            let pairs = real.iter().zip(simulated);
            all(&mut pairs
                .flat_map(|(real, simulated)| [(&real.0, &simulated.0), (&real.1, &simulated.1)]))
        }
        (Content::Zset(real), Content::Zset(simulated)) if real.len() == simulated.len() => {
            let pairs = real.iter().zip(simulated);
            let scores = pairs.clone().map(|(real, simulated)| score(windows, real.1, simulated.1));
            let scores = scores.max().unwrap_or(Likeness::Equal);
            scores.max(all(&mut pairs.map(|(real, simulated)| (&real.0, &simulated.0))))
        }
        _ => Likeness::Different,
    }
}

fn score(windows: &[Window], real: f64, simulated: f64) -> Likeness {
    if real == simulated {
        return Likeness::Equal;
    }
    // Readers stand in line a second time, so far below zero: see lua/line/line.lua.
    let below = if real < 0.0 { (1u64 << 53) as f64 } else { 0.0 };
    let stamps = are_stamps(windows, (real + below) as u64, (simulated + below) as u64);
    if stamps { Likeness::Stamped } else { Likeness::Different }
}
