//! What a client holds and waits for, as its user can see it.

use std::time::Duration;

use crate::token::FencingToken;

/// What a client holds and waits for at this moment: the answer of [`Client::holds`](crate::Client::holds), which has an
/// example.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Holds {
    /// What the client holds, ordered by name, and the older grant of a name first.
    pub held: Vec<Held>,
    /// What callers of the client ask or wait for, ordered by name.
    pub awaited: Vec<Awaited>,
}

/// Something that a client holds: see [`Holds`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Held {
    /// The name that the user gave.
    pub name: String,
    /// The kind, by the same word as in the metrics: `lock`, `fair`, `read`, `write`, `semaphore`, `fenced` or `expirable`.
    pub kind: &'static str,
    /// How many guards hold it: several if an owner has nested, or if readers of this client share a read. 0: the client has it
    /// for its next caller, since it keeps it ([`Config::keep`](crate::Config::keep)), or hands it over at this moment.
    pub guards: u32,
    /// How many permits of a semaphore; 1 for every other kind.
    pub permits: u32,
    /// How long the holder has had it, the first one of readers that share it. Without a guard: how long nobody has had it.
    pub held_for: Duration,
    /// How long it may be believed without a renewal. Zero: it is about to be lost, and its guards are not valid.
    pub remaining: Duration,
    /// The token of its holder, the last one of readers that share it. `None` without a guard.
    pub token: Option<FencingToken>,
    /// The task that asked for it. `None` without a guard, and if it was asked for outside a task, as in `block_on`.
    pub asked_by: Option<tokio::task::Id>,
}

/// Something that callers of a client ask or wait for: see [`Holds`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Awaited {
    /// The name that the user gave.
    pub name: String,
    /// The kind: see [`Held::kind`]. Also `latch` and `condition`, which nobody holds.
    pub kind: &'static str,
    /// How many callers.
    pub callers: usize,
    /// How long the first one of them has waited.
    pub waiting_for: Duration,
}
