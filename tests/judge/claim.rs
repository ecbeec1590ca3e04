//! One guard's time, as a run recorded it.

use crate::judge::history::Hold;

/// All times are in nanoseconds of one clock, which all processes of the run share.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// The process, and which of its lives.
    pub worker: String,
    pub lock: String,
    pub owner: String,
    /// 0 if it has none, such as a `RedLock` and a plain lock of Redisson.
    pub token: u64,
    pub called: u64,
    pub acquired: u64,
    /// When the request was sent with which Redis first confirmed it, at the latest.
    pub confirmed: u64,
    /// When the last such request was sent, at the earliest.
    pub last_confirmed: u64,
    pub deadline: u64,
    pub ended: Option<u64>,
    /// When the loss was noticed, if it was lost.
    pub lost_at: Option<u64>,
    pub by_kill: bool,
    /// By when its client knew that it has ended, and refused nobody for it any more. `None`: when it ended.
    pub left: Option<u64>,
    /// When the call that gave it back was told that Redis has it no more.
    pub given_back: Option<u64>,
    /// How much it has, of how much there is.
    pub part: u64,
    pub of: u64,
    /// Whose client granted it.
    pub seat: u64,
}

impl Claim {
    /// As the checker takes it, in one of its epochs.
    pub fn hold(&self, epoch: usize) -> Hold {
        let Self { lock, owner, token, acquired, ended, .. } = self;
        let hold = Hold::new(&format!("{lock}@{epoch}"), owner, *token, *acquired);
        ended.map_or(hold.clone(), |ended| hold.until(ended))
    }
}
