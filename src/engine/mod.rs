//! The engine: waiting, ownership, renewal and release, for all kinds alike.
//!
//! | what happens | where |
//! |---|---|
//! | `lock().await` | `caller.rs`: it queues in its client (`queue.rs`), asks (`caller/ask.rs`), waits (`caller/contend.rs` drives, `waiting.rs` decides what it does and how long it parks) |
//! | an acquire gets no answer | `caller/ask.rs` rides it out, and asks again under a new owner field (`Entry::ask`); `pending_acquire.rs` leaves a ghost; a nested hold: `holding.rs` |
//! | a message arrives | `listener.rs` finds whom it concerns |
//! | the lock is passed on within the client | `tenure/hand_over.rs`, within the budget of `hand_off_budget.rs`; side by side: `side_by_side.rs` |
//! | an idle lock is kept for the next caller | `keep.rs` and `tried.rs` say whether; `tenure/hand_over.rs` |
//! | a lock is renewed, or lost | `watchdog.rs` renews many plain locks in one request, as `tenure/renewal.rs` says; when: `rhythm.rs`, `watchdog_timetable.rs`, `wheel.rs`; `tenure/loss.rs` ends it and tells the guards |
//! | readers of one client join a read | `caller/pick_up.rs`, `side_by_side.rs`; `Tenure::join` in `tenure/hand_over.rs` |
//! | a holder nests, extends | `holding.rs`; the hold count: `tenure/count_job.rs` |
//! | a holder unlocks, a guard is dropped | `unlock.rs` |
//! | a caller is dropped | `pending_acquire.rs` sees it; `ghost.rs` says who releases what it may be granted |
//! | a latch is changed, a condition notified | `orders.rs` repeats the request until it is answered |
//! | a release is repeated | `unanswered_release.rs` hands it to `releaser.rs`; `job.rs` |
//! | a future is not polled | `lookout.rs` says whom to look at; `unpolled.rs` skips or cancels |
//! | the client closes | `close.rs`, `debts.rs` |

mod acquire_all;
mod backlog;
mod caller;
mod close;
mod compact_instant;
mod condition;
mod connect;
mod contest;
mod core;
mod debts;
mod describe;
mod entry;
mod gate;
mod ghost;
mod grant;
mod hand_off_budget;
mod hold;
mod holding;
mod job;
mod keep;
mod known;
mod lifetime;
mod listener;
mod lookout;
mod mark_calls;
mod options;
mod orders;
mod outbox;
mod owned;
mod owner_holds;
mod pending_acquire;
mod queue;
mod releaser;
mod releases_under_way;
mod rhythm;
mod secrets;
mod side_by_side;
mod tenure;
mod tried;
mod unanswered_release;
mod unlock;
mod unpolled;
mod waiting;
mod watchdog;
mod watchdog_timetable;
mod wheel;

pub(crate) use acquire_all::{AllOrNone, acquire_all};
pub(crate) use caller::Caller;
pub use condition::Woken;
pub(crate) use condition::{Notice, wait_at};
pub(crate) use core::{Engine, RETRY_PAUSE};
pub use grant::Ended;
pub(crate) use grant::Lease;
pub use hold::Hold;
pub(crate) use options::{AcquireOptions, Patience};
