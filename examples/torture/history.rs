//! The run as a history that another checker judges: `tests/witness`.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::common::child::{self, Child};
use crate::judge::{Claim, Epochs, Operation, operation};
use crate::settings::{self, Kind, SEVERAL, bare};
use crate::verdict::Tally;

/// How that begins which the other checker could not judge.
pub const UNDECIDED: &str = "the witness could not judge";

/// Between two looks at whether it has answered.
const LOOK: Duration = Duration::from_millis(10);

/// What was held, what was asked for besides, and what Redis forgot. An acquire that was refused earlier says nothing here: what was
/// held then may be missing.
pub fn of(
    claims: &[Claim],
    mut calls: Vec<Operation>,
    epochs: &Epochs,
    from: u64,
) -> Vec<Operation> {
    for call in calls.iter_mut().filter(|call| call.called < from && call.operation == "acquire") {
        "unknown".clone_into(&mut call.outcome);
    }
    let granted = claims.iter().map(|claim| Operation::granted(claim, kind(&claim.lock)));
    let ended = claims.iter().filter_map(|claim| {
        Operation::ended(claim, kind(&claim.lock), claim.owner.contains(SEVERAL))
    });
    let forgotten = epochs.0.iter().map(Operation::forgotten);
    calls.into_iter().chain(granted).chain(ended).chain(forgotten).collect()
}

pub fn kind(lock: &str) -> &'static str {
    match settings::kind_of(bare(lock)) {
        Some(Kind::Rw) => "rw",
        Some(Kind::Permits(_)) => "semaphore",
        None if bare(lock).starts_with("latch ") => "latch",
        Some(Kind::Fair | Kind::Fenced) | None => "lock",
    }
}

/// The other checker, which judges a piece while the next one is played.
#[derive(Debug)]
pub struct Witness {
    program: PathBuf,
    /// Where the histories are, and the pages about those that are illegal.
    folder: PathBuf,
    pieces: usize,
    asked: Option<(PathBuf, Child)>,
}

impl Witness {
    pub fn new(program: PathBuf, folder: PathBuf) -> Self {
        Self { program, folder, pieces: 0, asked: None }
    }

    /// Asks about a piece, once it has answered about the one before. A call of unknown outcome may take effect until `felt`
    /// nanoseconds after its return.
    pub fn judge(&mut self, told: Vec<Operation>, felt: u64, tally: &mut Tally) {
        self.hear(tally);
        self.pieces += 1;
        let history = self.folder.join(format!("history-{}.tsv", self.pieces));
        operation::write(&history, told).expect("a writable file");
        let mut command = child::command("nice");
        command.arg(&self.program).args(["-felt", &format!("{felt}ns")]);
        command.arg("-pages").arg(&self.folder).arg(&history);
        self.asked = Some((history, Child::start(command)));
    }

    fn hear(&mut self, tally: &mut Tally) {
        let Some((history, mut child)) = self.asked.take() else { return };
        let ended = loop {
            match child.ended() {
                Some(ended) => break ended,
                None => thread::sleep(LOOK),
            }
        };
        match ended.code() {
            Some(0) => {
                tally.add("pieces that the witness found legal", 1);
                let _ = fs::remove_file(history);
            }
            Some(1) => tally.wrong(format!("the witness found it illegal: {}", history.display())),
            _ => tally.wrong(format!("{UNDECIDED}: {}", history.display())),
        }
    }

    pub fn close(mut self, tally: &mut Tally) {
        self.hear(tally);
    }
}
