//! The holds of one owner, which move together from one tenure to the next. (For readers that join a read, see
//! `side_by_side.rs`.)
//!
//! An owner that has locked a lock several times has a guard for each hold. When one of them waits for a condition, the
//! tenure ends for all of them, and another tenure begins after the wait. So the guards of an owner share a value that
//! names their current tenure.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::engine::entry::Tenure;
use crate::error::Result;
use crate::mutex::Mutex;
use crate::wakers::until;

/// What the holds of one owner share: the tenure that they are in now, and their hold number in it.
#[derive(Default)]
pub(crate) struct OwnerHolds {
    state: Mutex<At>,
    changed: Notify,
}

/// Where the holds are.
#[derive(Clone, Default)]
pub(crate) enum At {
    /// In the tenure in which they began.
    #[default]
    First,
    /// In no tenure: one of them waits for a condition. The number is that of the other remaining holds. It can be
    /// negative briefly: a guard that is dropped at that moment is subtracted before the others are added.
    Away(i64),
    /// In this tenure, since the last wait.
    Moved(There),
    /// The wait failed, and they have lost the lock.
    Lost,
}

/// A tenure, and their hold number in it.
type There = (Arc<Tenure>, u16);

impl OwnerHolds {
    pub(crate) fn at(&self) -> At {
        self.state.lock().clone()
    }

    /// One of them is about to wait. From now on a hold that ends is counted here, if its tenure has ended. `may_leave`
    /// gets the tenure to which they have moved, if they have, and can refuse. Returns `None` if another one already waits, or its
    /// wait has failed.
    pub(crate) fn go_away(
        &self,
        may_leave: impl FnOnce(Option<&There>) -> Result<()>,
    ) -> Option<Result<()>> {
        let mut state = self.state.lock();
        let left = match &*state {
            At::First => may_leave(None),
            At::Moved(there) => may_leave(Some(there)),
            At::Away(_) | At::Lost => return None,
        };
        if left.is_ok() {
            *state = At::Away(0);
        }
        Some(left)
    }

    /// The tenure has ended, and had this many other holds.
    pub(crate) fn others(&self, holds: u32) {
        if let At::Away(others) = &mut *self.state.lock() {
            *others += i64::from(holds);
        }
    }

    /// One of the others has ended while one waits. Returns `false` if none waits.
    pub(crate) fn leave_away(&self) -> bool {
        match &mut *self.state.lock() {
            At::Away(others) => {
                *others -= 1;
                true
            }
            _ => false,
        }
    }

    /// The wait is over. `there` gets the number of other holds, and returns the new tenure of all of them. Nobody sees
    /// them in between.
    pub(crate) fn come_back(&self, there: impl FnOnce(u32) -> There) {
        let mut state = self.state.lock();
        if let At::Away(others) = *state {
            *state = At::Moved(there(u32::try_from(others).unwrap_or(0)));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The wait failed.
    pub(crate) fn stay_away(&self) {
        let mut state = self.state.lock();
        if matches!(*state, At::Away(_)) {
            *state = At::Lost;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until none of them waits for a condition.
    pub(crate) async fn is_back(&self) {
        until(&self.changed, || !matches!(*self.state.lock(), At::Away(_))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::entry::tenure::tests::begun;
    use crate::error::Error;

    fn there(hand_over: u16) -> There {
        (begun().1.tenure, hand_over)
    }

    fn goes_away(owner_holds: &OwnerHolds) -> bool {
        owner_holds.go_away(|_| Ok(())).is_some_and(|left| left.is_ok())
    }

    #[test]
    fn the_others_come_back_unless_they_have_ended_meanwhile() {
        let owner_holds = OwnerHolds::default();
        assert!(!owner_holds.leave_away());
        assert!(goes_away(&owner_holds) && !goes_away(&owner_holds));
        // A guard is dropped before the holds of the tenure are counted.
        assert!(owner_holds.leave_away());
        owner_holds.others(3);
        assert!(owner_holds.leave_away());
        owner_holds.come_back(|others| {
            assert_eq!(others, 1);
            there(7)
        });
        assert!(matches!(owner_holds.at(), At::Moved((_, 7))) && !owner_holds.leave_away());
        let refused = owner_holds.go_away(|_| Err(Error::Closed));
        assert!(refused.is_some_and(|left| left.is_err()), "it is refused");
        assert!(matches!(owner_holds.at(), At::Moved((_, 7))));
        let is_told = |there: Option<&There>| there.map(drop).ok_or(Error::Closed);
        let left = owner_holds.go_away(is_told);
        assert!(left.is_some_and(|left| left.is_ok()), "it is told where they are");
    }

    #[test]
    fn after_a_wait_in_vain_they_are_lost() {
        let owner_holds = OwnerHolds::default();
        assert!(goes_away(&owner_holds));
        owner_holds.stay_away();
        owner_holds.come_back(|_| there(0));
        assert!(matches!(owner_holds.at(), At::Lost) && !goes_away(&owner_holds));
    }

    #[tokio::test]
    async fn a_hold_waits_until_the_others_are_back() {
        let owner_holds = Arc::new(OwnerHolds::default());
        assert!(goes_away(&owner_holds));
        let seen = Arc::clone(&owner_holds);
        let waits = tokio::spawn(async move { seen.is_back().await });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        owner_holds.come_back(|_| there(0));
        waits.await.unwrap();
    }
}
