//! One holder's time in a tenure.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core::tenure::Ended;
use crate::engine::entry::tenure::At;
use crate::engine::entry::{OwnerHolds, Tenure};
use crate::error::Error;
use crate::owner::OwnerId;
use crate::token::FencingToken;

/// A view of a hold, for the work that runs under a lock: see [`Lock::run`](crate::Lock::run).
///
/// It does not keep the lock: the guard does. A clone is a view of the same hold. After the hold has ended,
/// [`is_valid`](Self::is_valid) is `false`, and [`token`](Self::token) is still the token of that hold.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let paid = client.lock("doc:hold").run(|hold| async move {
///     let mut paid = 0;
///     while paid < 3 && hold.is_valid() {
///         paid += 1; // ... with hold.token(), so that the resource can reject a late write ...
///     }
///     paid
/// }).await?;
/// assert_eq!(paid, 3);
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Hold {
    pub(crate) tenure: Arc<Tenure>,
    /// How often the tenure was handed over before this hold.
    pub(crate) hand_over: u16,
    /// What this hold shares with the other holds of its owner, if the owner may nest.
    pub(crate) owner_holds: Option<Arc<OwnerHolds>>,
}

impl Hold {
    /// The hold of a caller. One that is no owner shares nothing with other holds.
    pub(crate) fn new(tenure: Arc<Tenure>, hand_over: u16, owner: Option<OwnerId>) -> Self {
        let owner_holds = owner.and_then(|_| tenure.owner_holds(hand_over));
        Self::of_owner(tenure, hand_over, owner_holds)
    }

    pub(crate) fn of_owner(
        tenure: Arc<Tenure>,
        hand_over: u16,
        owner_holds: Option<Arc<OwnerHolds>>,
    ) -> Self {
        Self { tenure, hand_over, owner_holds }
    }

    /// The current form of this hold. It moves to another tenure if another guard of its owner has waited for a
    /// condition.
    pub(crate) fn now(&self) -> Cow<'_, Self> {
        match self.owner_holds.as_ref().map(|owner_holds| owner_holds.at()) {
            Some(At::Moved((tenure, hand_over))) => {
                Cow::Owned(Self::of_owner(tenure, hand_over, self.owner_holds.clone()))
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// Whether both are the same hold of the same tenure. A client may hand one tenure to the same owner again.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tenure, &other.tenure) && self.hand_over == other.hand_over
    }

    /// Same as [`Guard::token`](crate::Guard::token).
    #[must_use]
    pub fn token(&self) -> FencingToken {
        let now = self.now();
        now.tenure.token(now.hand_over)
    }

    /// Same as [`Guard::is_valid`](crate::Guard::is_valid).
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Same as [`Guard::remaining`](crate::Guard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.remaining_before(Duration::ZERO)
    }

    /// How long it can be believed until so much earlier than its end, or a third of its session's patience earlier.
    pub(crate) fn remaining_before(&self, margin: Duration) -> Duration {
        let now = self.now();
        now.tenure.remaining_before(now.hand_over, margin)
    }

    /// How long it lasts before it is lost. It may be suspended earlier.
    pub(crate) fn rest_of_lease(&self) -> Duration {
        let now = self.now();
        now.tenure.rest_of_lease(now.hand_over)
    }

    /// Same as [`Guard::ended`](crate::Guard::ended).
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and `ended` called again.
    ///
    /// # Panics
    /// Same as [`Guard::ended`](crate::Guard::ended).
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        let hold = self.clone();
        async move {
            loop {
                let now = hold.now().into_owned();
                let ended = Arc::clone(&now.tenure).end(now.hand_over).await;
                let Some(owner_holds) = &hold.owner_holds else { return ended };
                // While another guard of the owner waits for a condition, this hold has not ended.
                owner_holds.is_back().await;
                if matches!(owner_holds.at(), At::Lost) {
                    // The other guard has released the tenure for all of them, and did not get the lock back.
                    return Ended::Lost;
                }
                if hold.now().is(&now) {
                    return ended;
                }
            }
        }
    }

    /// How the hold ended, if it has ended.
    pub(crate) fn outcome(&self) -> Option<Ended> {
        self.tenure.ended(self.hand_over)
    }

    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.tenure.keys.name()
    }

    /// The error of a call that finds it lost.
    pub(crate) fn lost(&self) -> Error {
        Error::lost(self.name())
    }

    /// How often its owner has locked the lock and not yet unlocked it.
    pub(crate) fn count(&self) -> u32 {
        let now = self.now();
        now.tenure.with(|tenure| tenure.count_of(now.hand_over))
    }

    pub(crate) fn described(&self, mut described: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        described
            .field("name", &self.name())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.described(f.debug_struct("Hold"))
    }
}
