//! Several guards as one: the set is held as long as enough of them are.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, timeout};

use crate::engine::{Ended, Hold};
use crate::error::{Error, Result};
use crate::guards::guard::{Guard, while_held};

/// The shortest time for which a call waits for the other servers after a majority has answered. A holder releases the
/// lock on all servers at once. So a waiter that was granted the lock on one server waits as long for the others.
pub(crate) const STRAGGLERS: Duration = Duration::from_millis(5);

/// How long a call waits for the other servers after enough of them have answered: as long as these answers took.
pub(crate) fn grace(took: Duration) -> Duration {
    took.max(STRAGGLERS)
}

/// The guards of one hold.
pub(crate) struct GuardSet {
    guards: Vec<Guard>,
    pub(crate) view: View,
}

impl GuardSet {
    /// The hold lasts as long as `needed` of the guards are valid.
    pub(crate) fn new(guards: Vec<Guard>, needed: usize) -> Self {
        let view = View { parts: guards.iter().map(Guard::hold).collect(), needed };
        Self { guards, view }
    }

    /// Releases all of them at once.
    pub(crate) async fn unlock(self) -> Result<()> {
        let mut released = self.guards.into_iter().map(Guard::unlock).collect();
        agreed(&mut released, &self.view).await
    }

    /// Runs `work`, and then releases all of them: see [`Guard::finish`]. Drops `work` if the hold is lost first.
    pub(crate) async fn run<T>(self, work: impl Future<Output = T>) -> Result<T> {
        let lost = self.view.until_lost();
        let finish = async {
            let mut released = self.guards.into_iter().map(Guard::finish).collect();
            agreed(&mut released, &self.view).await
        };
        while_held(lost, work, finish).await
    }

    /// Extends each lease to at least `lease` from now, all at once. If too few guards are still valid, it extends
    /// none: a longer lease would only delay the next holder.
    pub(crate) async fn extend(&self, lease: Duration) -> Result<()> {
        if !self.view.is_valid() {
            return Err(self.view.lost());
        }
        let asked = Instant::now();
        let mut extended = self.guards.iter().map(|guard| guard.extend(lease)).collect();
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
    pub(crate) parts: Arc<[Hold]>,
    needed: usize,
}

impl View {
    pub(crate) fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// For how long enough of the holds stay ours.
    pub(crate) fn remaining(&self) -> Duration {
        let mut remaining: Vec<_> = self.parts.iter().map(Hold::remaining).collect();
        remaining.sort_unstable_by(|a, b| b.cmp(a));
        remaining.get(self.needed - 1).copied().unwrap_or(Duration::ZERO)
    }

    pub(crate) fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        let mut ends: FuturesUnordered<_> = self.parts.iter().map(Hold::ended).collect();
        let mut spare = ends.len() - self.needed;
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

    /// The error of a call that finds too few of them: it names the first that is not ours any more.
    pub(crate) fn lost(&self) -> Error {
        let lost = self.parts.iter().find(|part| !part.is_valid());
        let named = lost.or_else(|| self.parts.first()).map(Hold::name);
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
            .field("parts", &self.parts)
            .field("needed", &self.needed)
            .field("remaining", &self.remaining())
            .finish()
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
