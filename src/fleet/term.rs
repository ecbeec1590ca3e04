//! One term: the time from an election to the loss or the end of the leadership.

use std::fmt;
use std::time::Duration;

use tokio::pin;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::engine::Hold;
use crate::token::FencingToken;

/// What a leader can ask about its term. It does not keep the leadership: the [`Leadership`](crate::Leadership) does.
///
/// A term that is over stays over, even if the lock could be renewed after all.
#[derive(Clone)]
pub struct Term {
    hold: Hold,
    /// How long before the end of the lease the term is over.
    margin: Duration,
    /// It is over, whoever saw it first.
    over: CancellationToken,
}

impl Term {
    pub(crate) fn new(hold: Hold, margin: Duration) -> Self {
        Self { hold, margin, over: CancellationToken::new() }
    }

    /// The number of this term, greater than those of all terms before it. Send it along with what you write, so that the
    /// resource can refuse a former leader: see [`FencingToken`].
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// Whether the term goes on, as far as clocks can tell: see [`Guard::is_valid`](crate::Guard::is_valid). It turns
    /// `false` by [`Election::margin`](crate::Election::margin) earlier than a guard would.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the term lasts if no renewal is confirmed from now on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.over.is_cancelled() {
            return Duration::ZERO;
        }
        let left = self.hold.remaining().saturating_sub(self.margin);
        if left.is_zero() {
            self.end();
        }
        left
    }

    /// Resolves when the term is over: the leader has stepped down, or the lock is lost, or could not be renewed until
    /// [`Election::margin`](crate::Election::margin) before the end of its lease. The future must be polled in a Tokio
    /// runtime.
    ///
    /// # Cancel safety
    /// It may be dropped and called again at any time.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let term = self.clone();
        async move {
            let gone = term.hold.ended();
            pin!(gone);
            loop {
                let left = term.remaining();
                if left.is_zero() {
                    return;
                }
                // A renewal moves the end: so after the time has passed, it looks again.
                tokio::select! {
                    _ = &mut gone => term.end(),
                    () = term.over.cancelled() => {}
                    () = sleep(left) => {}
                }
            }
        }
    }

    pub(crate) fn end(&self) {
        self.over.cancel();
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("name", &self.hold.name())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish()
    }
}
