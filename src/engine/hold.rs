//! One holder's time in a tenure.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::entry::Tenure;
use crate::engine::grant::Ended;
use crate::token::FencingToken;

/// What work under a lock can ask about its hold: see [`Lock::run`](crate::Lock::run).
///
/// It does not keep the lock: the guard does.
#[derive(Clone)]
pub struct Hold {
    pub(crate) tenure: Arc<Tenure>,
    /// How often the tenure was handed over before this hold.
    pub(crate) hand_over: u16,
    token: FencingToken,
}

impl Hold {
    pub(crate) fn new(tenure: Arc<Tenure>, hand_over: u16) -> Self {
        let token = tenure.token(hand_over);
        Self { tenure, hand_over, token }
    }

    /// As [`Guard::token`](crate::Guard::token).
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// As [`Guard::is_valid`](crate::Guard::is_valid).
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// As [`Guard::remaining`](crate::Guard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.tenure.remaining(self.hand_over)
    }

    /// As [`Guard::ended`](crate::Guard::ended).
    ///
    /// # Cancel safety
    /// It may be dropped and called again at any time.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        Arc::clone(&self.tenure).end(self.hand_over)
    }

    /// How the hold ended, if it has ended.
    pub(crate) fn outcome(&self) -> Option<Ended> {
        self.tenure.ended(self.hand_over)
    }

    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.tenure.keys.name()
    }

    /// How often its owner has locked the lock and not yet unlocked it.
    pub(crate) fn count(&self) -> u32 {
        self.tenure.count_of(self.hand_over)
    }

    pub(crate) fn described(&self, mut described: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        described
            .field("name", &self.name())
            .field("token", &self.token)
            .field("remaining", &self.remaining())
            .finish()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.described(f.debug_struct("Hold"))
    }
}
