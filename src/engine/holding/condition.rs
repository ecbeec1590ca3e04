//! How a holder waits for a condition: it releases its lock, waits to be notified, and takes the lock again.
//!
//! 1. The waiter stands in the line of the condition before it releases the lock. Any caller that takes the lock after
//!    it finds it there, so no notification is lost in between. If the request to line up gets no answer, the lock is
//!    still held.
//! 2. A notification is a hold of the condition. The waiter keeps it until it has taken the lock again and released it,
//!    and then uses it up. If the waiter gives up, loses the lock, or dies before that, the notification goes to the
//!    next waiter.
//! 3. A waiter that is no longer in line, and was not notified, returns as if it had been. It may have missed a
//!    notification (`wake_unnotified()` in `lua/line/acquire.lua`).
//! 4. All holds of an owner end and begin again together (`owner_holds.rs`).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::try_join;
use tokio::time::Instant;

use crate::engine::caller::{AcquireOptions, Caller, Keepers, LinedUp, Past, Patience, stand_by};
use crate::engine::entry::Hold;
use crate::engine::entry::tenure::Left;
use crate::engine::grant::Holder;
use crate::engine::releaser::Job;
use crate::engine::shared::Engine;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::pause::in_time;

/// Why a wait for a [`Condition`](crate::Condition) ended. [`Guard::wait_for`](crate::Guard::wait_for) returns it, and
/// has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The waiter was notified, or may have been: a wait can also end spuriously. For
    /// [`Guard::wait_while_for`](crate::Guard::wait_while_for): `is_to_wait` has returned `false`.
    Notified,
    /// The limit was reached without a notification.
    TimedOut,
}

/// Releases the lock of this hold, waits for the condition, and takes the lock again.
///
/// # Cancel safety
/// If the future is dropped, the lock is released, or stays released. A notification goes to the next waiter.
pub(crate) async fn wait_at(
    engine: &Arc<Engine>,
    hold: Hold,
    former: Option<Notice>,
    condition: &Arc<Keys>,
    limit: Option<Duration>,
) -> Result<(Hold, Woken, Option<Notice>)> {
    let _call = engine.calls.begin();
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let (keys, holder) = (Arc::clone(&hold.tenure.keys), hold.tenure.holder());
    let mut waiter =
        Waiter { engine: Arc::clone(engine), hold, holder, state: State::Holds, former };
    waiter.check()?;
    let asked = condition.meters.asks(false);
    let notice = waiter.wait(condition, until).await;
    asked.came_to(notice.as_ref().map(Option::is_some));
    let notice = notice?;
    let woken = if notice.is_some() { Woken::Notified } else { Woken::TimedOut };
    let hold = reacquire(engine, &keys, waiter.holder).await?;
    Ok((waiter.has_again(hold), woken, notice))
}

/// Takes the lock again, without a time limit.
async fn reacquire(engine: &Arc<Engine>, keys: &Arc<Keys>, holder: Holder) -> Result<Hold> {
    let (wish, patience) = (holder.wish, Patience::Endless);
    let options = AcquireOptions { wish, patience, past: Past::Waited, keepers: Keepers::All };
    let asked = keys.meters.asks(false);
    let mut caller = Caller::new(engine, options);
    let acquired = Box::pin(caller.acquire(keys)).await;
    asked.came_to(acquired.as_ref().map(Option::is_some));
    acquired?.ok_or(Error::Closed)
}

/// A holder that waits.
struct Waiter {
    engine: Arc<Engine>,
    hold: Hold,
    /// What it asks for when it takes the lock again.
    holder: Holder,
    state: State,
    /// The notification that brought it here. It is used up when the lock is released.
    former: Option<Notice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has the lock.
    Holds,
    /// It has released the lock.
    Away,
    /// It has the lock again.
    Back,
}

impl Waiter {
    fn check(&self) -> Result<()> {
        let tenure = &self.hold.tenure;
        if !tenure.keys.row.has_conditions() {
            let reason =
                "only the guard of a lock, or of a lock held to write, can wait for a condition";
            return Err(Error::Unsupported { reason });
        }
        if !tenure.can_wait() {
            let reason = "its owner has another hold within this one, which would remain";
            return Err(Error::Unsupported { reason });
        }
        Ok(())
    }

    /// Waits until it is notified. Returns `None` if the time is over first.
    async fn wait(
        &mut self,
        condition: &Arc<Keys>,
        until: Option<Instant>,
    ) -> Result<Option<Notice>> {
        let lined_up = Arc::new(LinedUp::default());
        let engine = Arc::clone(&self.engine);
        // From its grant on, the notification is owned: the release of the lock may fail before anybody takes it.
        let notified = stand_by(&engine, condition, &lined_up)
            .map_ok(|hold| Notice { engine: Arc::clone(&engine), hold });
        let mut notified = Box::pin(notified);
        let ended = self.hold.ended();
        let early = tokio::select! {
            biased;
            _ = ended => return Err(self.hold.lost()),
            notice = &mut notified => Some(notice?),
            () = lined_up.wait() => None,
        };
        let notified = async {
            if early.is_some() {
                return Ok(early);
            }
            in_time(until, notified.map_ok(Some)).await.unwrap_or(Ok(None))
        };
        // The future of the line is polled while the release is in flight: a waiter has to show signs of life.
        let ((), notice) = try_join(pin!(self.give_back()), pin!(notified)).await?;
        Ok(notice)
    }

    /// Releases the lock, whatever its hold count. If Redis does not confirm that, the client continues in the
    /// background, and the waiter can wait meanwhile.
    async fn give_back(&mut self) -> Result<()> {
        self.go_away()?;
        let hold = &self.hold;
        self.state = State::Away;
        let (budget, idle) = (self.engine.budget, self.engine.rhythm.idle);
        let (holds, left) = hold.tenure.leave_with(hold.hand_over, u32::MAX, budget, idle);
        if !matches!(left, Left::Lost) {
            if let Some(owner_holds) = &hold.owner_holds {
                owner_holds.others(holds - 1);
            }
            if let Some(former) = self.former.take() {
                former.taken();
            }
        }
        match self.engine.left(hold, left, self.engine.config.riding_out()).await {
            Err(Error::Indeterminate { .. } | Error::Unavailable { .. }) => Ok(()),
            given_back => given_back,
        }
    }

    /// Announces the release to the other holds of the owner.
    fn go_away(&mut self) -> Result<()> {
        let Some(owner_holds) = self.hold.owner_holds.clone() else { return Ok(()) };
        let left = owner_holds.go_away(|moved| {
            // While this waiter lined up, another guard of the owner may have come back from a wait of its own, and have
            // brought this hold into another tenure. That is the tenure to release.
            if let Some((tenure, hand_over)) = moved {
                let there = Some(Arc::clone(&owner_holds));
                self.hold = Hold::of_owner(Arc::clone(tenure), *hand_over, there);
            }
            // The owner may have taken another hold since the first check.
            self.check()?;
            self.holder = self.hold.tenure.holder();
            Ok(())
        });
        left.unwrap_or_else(|| Err(self.hold.lost()))
    }

    /// The waiter has the lock again, with all other holds of its owner that have not ended meanwhile.
    fn has_again(mut self, hold: Hold) -> Hold {
        self.state = State::Back;
        let Some(owner_holds) = &self.hold.owner_holds else { return hold };
        let tenure = &hold.tenure;
        let mut others = 0;
        owner_holds.come_back(|there| {
            others = there;
            (Arc::clone(tenure), tenure.take_in(owner_holds, there))
        });
        if others > 0 {
            self.engine.outbox.put(Job::count(tenure));
        }
        Hold::of_owner(Arc::clone(tenure), hold.hand_over, Some(Arc::clone(owner_holds)))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        match self.state {
            State::Holds => self.engine.abandon(&self.hold),
            State::Away => {
                self.hold.owner_holds.iter().for_each(|owner_holds| owner_holds.stay_away())
            }
            State::Back => {}
        }
    }
}

/// A notification that was not used up yet. If it is dropped, the notification goes to the next waiter.
pub(crate) struct Notice {
    engine: Arc<Engine>,
    /// `None`: there is no notification, and the waiter was woken anyway.
    hold: Option<Hold>,
}

impl Notice {
    /// The waiter has had the lock, and releases it. If the client cannot report that to the server, another waiter is
    /// woken spuriously.
    pub(crate) fn taken(mut self) {
        let Some(hold) = self.hold.take() else { return };
        if let Left::Last(ending) =
            hold.tenure.leave(hold.hand_over, self.engine.budget, self.engine.rhythm.idle)
        {
            self.engine.outbox.timetable.leave(&ending);
            self.engine.outbox.put(Job::taken(ending));
        }
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        if let Some(hold) = &self.hold {
            self.engine.abandon(hold);
        }
    }
}
