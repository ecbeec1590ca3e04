//! The engine: waiting, ownership, renewal and release, for all kinds alike.
//!
//! | folder | what it is |
//! |---|---|
//! | `caller/` | a caller, from `lock().await` to its hold |
//! | `entry/` | one lock within the client: who waits for it, who is inside; what a user sees of that: `entry/holds.rs` |
//! | `entry/tenure/` | one grant by Redis: its holders, its lease, its end, and when it needs attention |
//! | `holding/` | a holder, from its hold to the unlock: it nests, extends, waits for a condition |
//! | `releaser/` | the task that gives back in the background |
//! | files | what all share: `shared.rs`; the begin and end of a client: `connect.rs`, `close.rs`; messages: `listener.rs`; the task that renews: `watchdog.rs`; the one that looks for callers that are not polled: `unpolled.rs`; latches, conditions and marks: `orders.rs`; whether an idle lock may be kept: `keep.rs`; words that folders share: `grant.rs`, `calls.rs`, `ghost.rs`, `debts.rs`, `owned.rs` |
//!
//! | what happens | where |
//! |---|---|
//! | `lock().await` | `caller.rs`: it queues in its client (`core/queue.rs`), asks (`caller/ask.rs`), waits (`caller/contend.rs` drives, `core/waiting.rs` decides what it does and how long it parks) |
//! | an acquire gets no answer, or replicas do not acknowledge it | `caller/ask.rs` rides it out, and asks again under a new owner field (`Entry::ask`). `caller/attempt.rs` leaves a ghost. If it was a nested hold: `holding.rs` |
//! | a waiter shows a sign of life | when: `core/waiting.rs`; sent: `caller/ask.rs`; its secret: `wire/proof.rs`. The server's half is `lua/line/acquire.lua` |
//! | a message arrives | `listener.rs` finds whom it concerns; `wire/proof.rs` checks a grant. A message to all clients, or of Redisson, makes every contender on its channel ask: `hear_of_all` there |
//! | a message is lost | `Waiting::next` in `core/waiting.rs` limits each park: `max_park`, `DEAF`, `ENDLESS`. In `entry/table.rs`, one far contender asks for all |
//! | the lock is handed over within the client | `entry/tenure/hand_over.rs`, within the budget of `core/budget.rs`; side by side: `core/side_by_side.rs` |
//! | an idle lock is kept for the next caller | `keep.rs` says whether it may be; `left_with_permit` in `entry/tenure/hand_over.rs` decides when the holder leaves; `releaser/outbox.rs` gives it back when another client wants it |
//! | a lock is renewed, or lost | `watchdog.rs` renews many locks in one request, as `entry/tenure/renewal.rs` says; when: `core/rhythm.rs`, `entry/tenure/timetable.rs`, `core/wheel.rs`; `entry/tenure/ending.rs` ends it and tells the guards |
//! | readers of one client join a read | who joins: `caller/pick_up.rs`; which read: `core/side_by_side.rs`; `Tenure::join` in `entry/tenure/hand_over.rs` |
//! | a waiting writer stops readers from joining | rule 4 of `core/side_by_side.rs`; `Tenure::join`. The server's half is `readers_first()` in `lua/line/line.lua` |
//! | a holder nests, extends | `holding.rs`; the hold count: `entry/tenure/count_job.rs` |
//! | a holder unlocks, a guard is dropped | `holding/unlock.rs` |
//! | the log says that a server fails | `outages.rs`: the watchdog and `caller/ask.rs` report to it |
//! | a leader or an interval is marked | `orders.rs` |
//! | a holder waits for a condition | `holding/condition.rs` |
//! | a caller is dropped | its request goes on without it, and `Job::for_orphan` in `releaser/job.rs` releases what that is granted; `Visit::look_after` in `entry/visit.rs` gives back what nobody waits for any more |
//! | several locks are taken in one step | `caller/acquire_all.rs` |
//! | a latch is changed, a condition notified | `orders.rs` repeats the request until it is answered |
//! | a release is sent, alone or with others, and repeated | `releaser/job_requests.rs`; `releaser.rs`, `releaser/job.rs` |
//! | a future is not polled, a caller's runtime does not run | `entry/lookout.rs` and `entry/alarms.rs` say whom to look at; `core/queue.rs` finds a caller in the queue silent, `core/contest.rs` a contender, whose work `entry/contest.rs` polls; `unpolled.rs` skips or cancels |
//! | the client drains, closes | `close.rs`, `calls.rs`, `debts.rs` |

mod caller;
mod calls;
mod close;
mod connect;
mod debts;
mod entry;
mod ghost;
mod grant;
mod holding;
mod keep;
mod listener;
mod orders;
mod outages;
mod owned;
mod releaser;
mod shared;
mod unpolled;
mod watchdog;

pub(crate) use caller::{AcquireOptions, Caller, Keepers, Past, Patience, acquire_all};
pub(crate) use calls::Call;
pub use entry::{Awaited, Held, Hold, Holds};
pub(crate) use grant::{Lease, Wish};
pub use holding::Woken;
pub(crate) use holding::{Notice, wait_at};
pub(crate) use shared::{Engine, RETRY_PAUSE};
