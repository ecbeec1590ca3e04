//! Callers that were notified, or should act by now, and whose futures are not polled. This task skips one that waits for
//! the permit, and cancels one that has it, unless it blocks no other caller. `lookout.rs` lists the entries to look at;
//! `queue.rs` and `contest.rs` say which callers are silent.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::coop::consume_budget;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::core::queue::{LOOKS, Look};
use crate::engine::entry::{Alarms, Entry};
use crate::engine::shared::{Engine, Shared};
use crate::log;

/// The shortest pause between two looks: a busy runtime takes some time to poll a caller.
const SHORTEST: Duration = Duration::from_millis(5);

/// Looks until the client is gone. It does not keep the client alive.
pub(crate) async fn look_out(engine: Weak<Shared>, stop: CancellationToken) {
    stop.run_until_cancelled(look(engine)).await;
    // The end of this task closes the client. But a client that has no handle left may still owe releases, and its
    // watchdog still gives back what is idle.
    stop.cancelled().await;
}

async fn look(engine: Weak<Shared>) {
    let mut alarms = Alarms::default();
    loop {
        let Some((lookout, pause)) = Engine::of(&engine)
            .map(|engine| (Arc::clone(engine.table.lookout()), engine.rhythm.idle.pickup / LOOKS))
        else {
            return;
        };
        lookout.sleep(alarms.next()).await;
        for entry in alarms.ring(Instant::now()) {
            entry.end_alarm();
        }
        let entries = lookout.next(pause.max(SHORTEST)).await;
        let Some(engine) = Engine::of(&engine) else { return };
        let now = Instant::now();
        for entry in entries.iter().filter_map(Weak::upgrade) {
            // A busy client asks for thousands of locks between two looks.
            consume_budget().await;
            // Before the look: a caller that is notified from now on is for the next one.
            entry.with(|lock| lock.is_on_lookout = false);
            if engine.look_at(&entry, now) {
                entry.look_out();
            } else {
                entry.set_alarm(&mut alarms);
            }
        }
    }
}

impl Engine {
    /// Checks whether each notified caller of an entry has come. A caller that does not come is skipped or cancelled,
    /// so that it blocks no other. Returns whether to look again.
    fn look_at(&self, entry: &Arc<Entry>, now: Instant) -> bool {
        let Some(visit) = self.table.visit_again(entry) else { return false };
        let called = entry.look_for_called();
        if called == Look::Silent {
            log::debug!(name = ?entry.keys.name(), "a caller is skipped: its turn has come, but it is not polled");
            // If they were the last callers, nobody takes a tenure that was left for them.
            visit.look_after();
        }
        let is_late = match entry.look_for_contender(now) {
            (Look::Silent, Some(work)) => {
                visit.cancel(work);
                true
            }
            // It keeps its place. But it does not ask, so another contender has to ask for those far from the front.
            (Look::Silent, None) => {
                self.table.passes_over(entry);
                // It is looked at again: it may be granted the lock, or stand in the way, later.
                true
            }
            (contender, _) => contender == Look::Late,
        };
        called != Look::Well || is_late
    }
}
