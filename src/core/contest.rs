//! The place for the work of the one contender of a lock: whether it was polled since it was woken. `engine/entry/contest.rs` polls
//! the work that lies here, and says why it lies here.

use std::task::Waker;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::queue::{LOOKS, Look};

/// The place for the work of the one contender of a lock.
pub(crate) struct Contest<W> {
    number: u64,
    /// The work, if there is any; taken out while it is polled.
    work: Option<W>,
    /// The caller that polls it.
    caller: Option<Waker>,
    /// When that caller came.
    came: Option<CompactInstant>,
    /// Whether the work was woken, and not polled since.
    woken: bool,
    /// Until when the work sleeps, if it has said so.
    asleep: Option<CompactInstant>,
    /// How many polls are in progress. A poll that has passed the permit on may end after the next work is polled.
    polls: u32,
    looks: u32,
    /// Whether these looks found the work woken. Looks at work that waits for an answer say nothing about its caller.
    found_woken: bool,
}

impl<W> Default for Contest<W> {
    fn default() -> Self {
        Self {
            number: 0,
            work: None,
            caller: None,
            came: None,
            woken: false,
            asleep: None,
            polls: 0,
            looks: 0,
            found_woken: false,
        }
    }
}

/// The state of a caller's work.
pub(crate) enum Progress<W> {
    /// The work has not been polled yet. Its caller came at this time.
    New(W, CompactInstant),
    /// The work has this number.
    Begun(u64),
    Over,
}

impl<W> Contest<W> {
    /// When the caller came whose work is here, if there is work, or a poll of it.
    pub(crate) fn came(&self) -> Option<CompactInstant> {
        self.came.filter(|_| self.work.is_some() || self.polls > 0)
    }

    /// Takes the work out for a poll by this caller. Its number is `None` if it was never here.
    pub(crate) fn take_out(
        &mut self,
        progress: &mut Progress<W>,
        caller: &mut Option<Waker>,
    ) -> Option<(Option<u64>, W)> {
        let taken = match std::mem::replace(progress, Progress::Over) {
            Progress::New(work, came) => {
                self.came = Some(came);
                (None, work)
            }
            Progress::Begun(number) => (Some(number), self.take(number)?),
            Progress::Over => return None,
        };
        std::mem::swap(&mut self.caller, caller);
        self.polls += 1;
        // Clear the mark before the poll: a wake-up during the poll is for the next one.
        self.woken = false;
        Some(taken)
    }

    fn take(&mut self, number: u64) -> Option<W> {
        if self.number == number { self.work.take() } else { None }
    }

    /// A poll is over, in which the work was done, or has panicked. Returns the waker of its caller, to be dropped: it keeps the memory of
    /// a whole task, and the entry stays as long as somebody holds the lock.
    #[must_use]
    pub(crate) fn end_poll(&mut self) -> Option<Waker> {
        self.polls -= 1;
        self.caller_that_left()
    }

    fn caller_that_left(&mut self) -> Option<Waker> {
        if self.polls == 0 && self.work.is_none() { self.caller.take() } else { None }
    }

    /// A poll is over, and the work is pending.
    ///
    /// No other caller's work can be here: pending work has the permit, or an entry that no other caller uses. The caller that had
    /// the permit before has dropped its own work.
    pub(crate) fn put_back(&mut self, number: Option<u64>, work: W) -> u64 {
        self.polls -= 1;
        debug_assert!(self.work.is_none(), "two contend for one entry");
        self.number = number.unwrap_or(self.number + 1);
        (self.work, self.looks, self.found_woken) = (Some(work), 0, false);
        self.number
    }

    /// A caller has left. Returns its work, if that is not over, and its waker, to be dropped. The drop of the work passes the permit
    /// on.
    #[must_use]
    pub(crate) fn end(&mut self, progress: &mut Progress<W>) -> (Option<W>, Option<Waker>) {
        let work = match std::mem::replace(progress, Progress::Over) {
            Progress::New(work, _) => Some(work),
            Progress::Begun(number) => self.take(number),
            Progress::Over => None,
        };
        (work, self.caller_that_left())
    }

    /// There is an event for the work. Returns the caller to wake.
    #[must_use]
    pub(crate) fn wake(&mut self) -> Option<Waker> {
        self.woken = true;
        self.caller.take()
    }

    /// The work sleeps until this time, or until an event; `None`: no longer.
    pub(crate) fn sleeps_until(&mut self, until: Option<Instant>) {
        self.asleep = until.map(CompactInstant::from);
    }

    /// When the lookout has to look at work that sleeps and was not woken.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        let is_here = !self.woken && self.work.is_some();
        self.asleep.filter(|_| is_here).map(CompactInstant::instant)
    }

    /// Whether the work was woken, and not polled since.
    pub(crate) fn is_late(&self) -> bool {
        self.woken && self.work.is_some()
    }

    fn sleeps(&self, now: Instant) -> bool {
        self.asleep.is_some_and(|until| until > now.into())
    }

    /// Checks whether the work was polled since it was woken. Returns the caller to wake, if the work should have been polled
    /// by now.
    pub(crate) fn look(&mut self, now: Instant) -> (Look, Option<Waker>) {
        if self.work.is_none() {
            // If this look falls into a poll, so may the wake-up, and the poll puts the work back. So the next look
            // decides. Without a poll, the work is done.
            let is_polled = self.woken && self.polls > 0;
            return (if is_polled { Look::Late } else { Look::Well }, None);
        }
        if !self.woken && self.sleeps(now) {
            return (Look::Well, None);
        }
        // Each poll restarts the count, and so does the wake-up: from then on the caller has all its looks.
        if self.found_woken != self.woken {
            (self.looks, self.found_woken) = (0, self.woken);
        }
        self.looks = self.looks.saturating_add(1);
        if self.woken {
            return (if self.looks < LOOKS { Look::Late } else { Look::Silent }, None);
        }
        let has_overslept = self.asleep.is_some();
        if has_overslept || self.looks >= LOOKS {
            self.looks = 0;
            return (Look::Late, self.wake());
        }
        (Look::Late, None)
    }

    /// Takes out work that was just found silent, unless it was polled since. The caller has to drop it.
    pub(crate) fn take_silent(&mut self) -> Option<W> {
        if self.looks < LOOKS { None } else { self.work.take() }
    }
}
