//! Several guards as one: the set is held as long as enough of them are.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, mem};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::core::tenure::Ended;
use crate::engine::{Engine, Hold};
use crate::error::{Error, Result};
use crate::guards::guard::{Guard, while_held};
use crate::mutex::Mutex;
use crate::wakers::guarding;

/// The shortest time for which a call waits for the other servers after a majority has answered. A holder releases the
/// lock on all servers at once. So a waiter that was granted the lock on one server waits as long for the others.
pub(crate) const STRAGGLERS: Duration = Duration::from_millis(5);

/// How long a call waits for the other servers after enough of them have answered: as long as these answers took.
pub(crate) fn grace(took: Duration) -> Duration {
    took.max(STRAGGLERS)
}

/// The guards of one hold.
pub(crate) struct GuardSet {
    guards: Mutex<Vec<Guard>>,
    holds: watch::Sender<Arc<[Hold]>>,
    pub(crate) view: View,
}

impl GuardSet {
    /// The hold lasts as long as `needed` of the guards are valid.
    pub(crate) fn new(guards: Vec<Guard>, needed: usize) -> Self {
        let (holds, parts) = watch::channel(guards.iter().map(Guard::hold).collect());
        Self { guards: Mutex::new(guards), holds, view: View { parts, needed } }
    }

    /// Whether a part of this client has not ended.
    pub(crate) fn has_part_of(&self, engine: &Engine) -> bool {
        let is_of = |part: &Guard| {
            part.engine().is_of_same_client(engine) && part.hold().outcome().is_none()
        };
        self.guards.lock().iter().any(is_of)
    }

    /// Adds a part, in place of those that have ended. If too few leases still run, the hold is lost for good, and the part is
    /// released.
    ///
    /// Nobody can look at the parts while this decides. So whoever has seen the hold as lost never sees it valid again.
    ///
    /// A part whose lease is over stays until its loss is known: its guard, dropped before, would end it as released.
    pub(crate) fn join(&self, guard: Guard) {
        let mut guards = self.guards.lock();
        let has_joined = self.holds.send_if_modified(|holds| {
            // Another thread may release the parts meanwhile: too few may be left, although their leases still ran.
            let runs = !shortest(holds, self.view.needed, Hold::rest_of_lease).is_zero();
            let left = holds.iter().filter(|hold| hold.outcome().is_none()).cloned();
            let joined: Vec<_> = left.chain([guard.hold()]).collect();
            let is_held = runs && joined.len() >= self.view.needed;
            if is_held {
                *holds = joined.into();
            }
            is_held
        });
        if has_joined {
            let parts = mem::take(&mut *guards).into_iter();
            let (left, ended) = parts.partition(|part| part.hold().outcome().is_none());
            *guards = left;
            guards.push(guard);
            drop(guards);
            drop::<Vec<Guard>>(ended);
        }
    }

    /// Releases all of them at once.
    pub(crate) async fn unlock(&self) -> Result<()> {
        self.leave(Guard::unlock).await
    }

    /// Runs `work`, and then releases all of them: see [`Guard::finish`]. Drops `work` if the hold is lost first.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        while_held(self.view.until_lost(), work, self.leave(Guard::finish)).await
    }

    async fn leave<F: Future<Output = Result<()>>>(
        &self,
        leave: impl FnMut(Guard) -> F,
    ) -> Result<()> {
        let guards = mem::take(&mut *self.guards.lock());
        agreed(&mut guards.into_iter().map(leave).collect(), &self.view).await
    }

    /// Extends each lease to at least `lease` from now, all at once. If too few leases still run, it extends
    /// none: a longer lease would only delay the next holder.
    pub(crate) async fn extend(&self, lease: Duration) -> Result<()> {
        if self.view.rest_of_lease().is_zero() {
            return Err(self.view.lost());
        }
        let asked = Instant::now();
        let mut extended = self.guards.lock().iter().map(|guard| guard.extending(lease)).collect();
        agreed(&mut extended, &self.view).await?;
        // A guard whose answer is not read keeps its old deadline.
        let rest = extended.collect::<Vec<_>>();
        let _ = timeout(grace(asked.elapsed()), rest).await;
        Ok(())
    }
}

/// A view of several holds that does not keep them.
#[derive(Clone)]
pub(crate) struct View {
    parts: watch::Receiver<Arc<[Hold]>>,
    needed: usize,
}

impl View {
    pub(crate) fn parts(&self) -> Arc<[Hold]> {
        Arc::clone(&self.parts.borrow())
    }

    pub(crate) fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// For how long enough of the holds stay ours.
    pub(crate) fn remaining(&self) -> Duration {
        shortest(&self.parts.borrow(), self.needed, Hold::remaining)
    }

    /// How long enough of the holds last before they are lost. They may be suspended earlier.
    pub(crate) fn rest_of_lease(&self) -> Duration {
        shortest(&self.parts.borrow(), self.needed, Hold::rest_of_lease)
    }

    pub(crate) fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        let (mut parts, needed) = (self.parts.clone(), self.needed);
        async move {
            loop {
                let holds = Arc::clone(&parts.borrow_and_update());
                let others_join = async {
                    if guarding(pin!(parts.changed())).await.is_err() {
                        pending().await // the set is gone, so no other part joins
                    }
                };
                let ended = tokio::select! {
                    ended = ended(&holds, needed) => ended,
                    () = others_join => continue,
                };
                // Another part may have joined before the last one of these was lost. Nobody sees that loss before the join:
                // a join decides with the list locked.
                if Arc::ptr_eq(&holds, &parts.borrow()) {
                    return ended;
                }
            }
        }
    }

    /// The error of a call that finds too few of them: it names the first that is not ours any more.
    pub(crate) fn lost(&self) -> Error {
        let parts = self.parts();
        let lost = parts.iter().find(|part| !part.is_valid());
        let named = lost.or_else(|| parts.first()).map(Hold::name);
        Error::lost(named.unwrap_or_default())
    }

    /// Waits until they have ended. The error says that they were lost.
    pub(crate) fn until_lost(&self) -> impl Future<Output = Error> + Send + 'static {
        let (ended, view) = (self.ended(), self.clone());
        async move {
            ended.await;
            view.lost()
        }
    }

    pub(crate) fn described(&self, mut described: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        described
            .field("parts", &self.parts())
            .field("needed", &self.needed)
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// The shortest of these times among the `needed` holds with the longest.
fn shortest(holds: &[Hold], needed: usize, time: impl Fn(&Hold) -> Duration) -> Duration {
    let mut times: Vec<_> = holds.iter().map(time).collect();
    times.sort_unstable_by(|a, b| b.cmp(a));
    times.get(needed - 1).copied().unwrap_or(Duration::ZERO)
}

/// How the holds end, once fewer than so many are left.
fn ended(holds: &[Hold], needed: usize) -> impl Future<Output = Ended> + Send + 'static {
    let mut ends: FuturesUnordered<_> = holds.iter().map(Hold::ended).collect();
    let mut spare = ends.len() - needed;
    async move {
        // The parts are released together, but lost one by one.
        let mut end = ends.next().await;
        while let Some(ended) = end {
            match (ended, spare) {
                (Ended::Lost, 0) => return Ended::Lost,
                (Ended::Lost, _) => spare -= 1,
                (Ended::Released, _) => break,
            }
            end = ends.next().await;
        }
        // A part was released. Other parts may have been lost before.
        let ended = std::iter::from_fn(|| ends.next().now_or_never().flatten());
        let lost = ended.filter(|ended| *ended == Ended::Lost).count();
        if lost > spare { Ended::Lost } else { Ended::Released }
    }
}

/// Returns as soon as enough of these requests have succeeded, and leaves the others in `asked`. If too few succeed,
/// the error is a loss if any request reports one.
async fn agreed<F>(asked: &mut FuturesUnordered<F>, view: &View) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let (mut agreed, mut worst) = (0, None);
    while let Some(said) = asked.next().await {
        match said {
            Ok(()) => agreed += 1,
            Err(lost @ Error::Lost { .. }) => worst = Some(lost),
            Err(error) => worst = worst.or(Some(error)),
        }
        if agreed >= view.needed {
            return Ok(());
        }
    }
    Err(worst.unwrap_or_else(|| view.lost()))
}
