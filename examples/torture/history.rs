//! The run as a history that another checker judges: `tests/witness`.

use std::path::Path;

use crate::judge::{Claim, Epochs, Operation, operation};
use crate::settings::{FAMILY, Kind, SEVERAL, bare};

/// What was held, what was asked for besides, and what Redis forgot.
pub fn write(path: &Path, claims: &[Claim], calls: &[Operation], epochs: &Epochs) {
    let granted = claims.iter().map(|claim| Operation::granted(claim, kind(&claim.lock)));
    let ended = claims.iter().filter_map(|claim| {
        Operation::ended(claim, kind(&claim.lock), claim.owner.contains(SEVERAL))
    });
    let forgotten = epochs.0.iter().map(Operation::forgotten);
    let operations: Vec<_> =
        calls.iter().cloned().chain(granted).chain(ended).chain(forgotten).collect();
    println!("{} operations are in {}", operations.len(), path.display());
    operation::write(path, operations).expect("a writable file");
}

pub fn kind(lock: &str) -> &'static str {
    let known = FAMILY.iter().find(|(name, _)| *name == bare(lock));
    match known.map(|(_, kind)| kind) {
        Some(Kind::Rw) => "rw",
        Some(Kind::Permits(_)) => "semaphore",
        None if bare(lock).starts_with("latch ") => "latch",
        Some(Kind::Fair) | None => "lock",
    }
}
