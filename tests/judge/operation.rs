//! A run as a history for a checker that is not ours: `tests/witness/README.md` has the format.

use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::path::Path;

use crate::judge::claim::Claim;
use crate::judge::epochs::Break;

/// What a client asked of a name, or what befell it. All times are those of a [`Claim`].
#[derive(Debug, Clone)]
pub struct Operation {
    /// The client, or who else did it.
    pub process: String,
    pub called: u64,
    /// When its caller had its answer, or gave up. `None`: nobody knows.
    pub returned: Option<u64>,
    pub name: String,
    pub kind: &'static str,
    pub operation: String,
    pub argument: String,
    pub outcome: String,
    pub token: Option<u64>,
    /// Of a release: by when the client itself knew of it, if that was later than the call.
    pub left: Option<u64>,
}

impl Operation {
    pub fn granted(claim: &Claim, kind: &'static str) -> Self {
        Self {
            process: process(&claim.worker, claim.seat),
            called: claim.called,
            returned: Some(claim.acquired),
            name: claim.lock.clone(),
            kind,
            operation: "acquire".to_owned(),
            argument: argument((claim.part, claim.of), &claim.owner),
            outcome: "granted".to_owned(),
            // A `RedLock` has none.
            token: Some(claim.token).filter(|token| *token > 0),
            left: None,
        }
    }

    /// When its holder believed in it no more. Nobody knows when Redis had it no more, unless a release was answered. A guard of
    /// several locks does not say which of them was lost.
    pub fn ended(claim: &Claim, kind: &'static str, is_one_of_several: bool) -> Option<Self> {
        // A client that is closed may give back what a caller is just told that it has.
        let ended = claim.ended?.max(claim.called);
        let lost = claim.lost_at.filter(|at| *at < claim.deadline && !is_one_of_several);
        let (operation, returned, outcome) = match (lost, claim.given_back) {
            (Some(at), _) => ("lose", at.max(ended), "ok"),
            (None, Some(at)) => ("release", at, "ok"),
            (None, None) => ("release", ended, "unknown"),
        };
        Some(Self {
            called: ended,
            returned: Some(returned),
            operation: operation.to_owned(),
            outcome: outcome.to_owned(),
            left: claim.left.filter(|left| *left > ended),
            ..Self::granted(claim, kind)
        })
    }

    pub fn forgotten(one: &Break) -> Self {
        let operation = if one.is_failover() { "replace" } else { "forget" };
        Self::of_a_server(operation, one.lock.clone(), one.from, one.to)
    }

    /// What befell a name, or all.
    pub fn of_a_server(operation: &str, name: Option<String>, from: u64, to: u64) -> Self {
        Self {
            process: "server".to_owned(),
            called: from,
            returned: Some(to),
            name: name.unwrap_or_else(|| "*".to_owned()),
            kind: "-",
            operation: operation.to_owned(),
            argument: "-".to_owned(),
            outcome: "ok".to_owned(),
            token: None,
            left: None,
        }
    }
}

/// One client of one worker.
pub fn process(worker: &str, seat: u64) -> String {
    format!("{worker}/{seat}")
}

/// How much of how much somebody asks for.
pub fn argument((part, of): (u64, u64), owner: &str) -> String {
    format!("{part}/{of} {owner}")
}

/// In the order of their calls.
pub fn write(path: &Path, mut operations: Vec<Operation>) -> Result<()> {
    operations.sort_by_key(|operation| operation.called);
    let mut file = BufWriter::new(File::create(path)?);
    operations.iter().try_for_each(|operation| writeln!(file, "{operation}"))?;
    file.flush()
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, called, name, kind, operation, argument, outcome, .. } = self;
        let returned = self.returned.map_or("open".to_owned(), |at| at.to_string());
        let token = self.token.map_or("-".to_owned(), |token| token.to_string());
        let left = self.left.map_or_else(String::new, |left| format!("\t{left}"));
        write!(
            f,
            "{process}\t{called}\t{returned}\t{name}\t{kind}\t{operation}\t{argument}\t{outcome}\t{token}{left}"
        )
    }
}
