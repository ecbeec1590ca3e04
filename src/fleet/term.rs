//! One term: the time from an election to the loss or the end of the leadership.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::engine::Hold;
use crate::token::FencingToken;
use crate::wakers::guarding;

/// A view of a leader's term. It does not keep the leadership: the [`Leadership`](crate::Leadership) does.
///
/// A term that is over stays over, even if the lock could still be renewed.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let election = client.election("doc:term");
/// let leadership = election.campaign().await?;
/// let term = leadership.term(); // for the code that does the work
/// assert!(term.is_leader());
/// leadership.step_down().await?;
/// assert!(!term.is_leader());
///
/// let next = election.campaign().await?;
/// assert!(next.token() > term.token());
/// # next.step_down().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Term {
    pub(crate) hold: Hold,
    /// How long before the end of the lease the term ends.
    pub(crate) margin: Duration,
    /// Cancelled when the term is over, by whichever observer sees it first.
    over: CancellationToken,
}

impl Term {
    pub(crate) fn new(hold: Hold, margin: Duration) -> Self {
        Self { hold, margin, over: CancellationToken::new() }
    }

    /// The fencing token of this term, greater than those of all earlier terms. Send it with everything that you write,
    /// so that the resource can reject a former leader: see [`FencingToken`].
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// Whether the term is still running, as far as clocks can tell: see [`Guard::is_valid`](crate::Guard::is_valid).
    /// It turns `false` earlier than a guard would, by [`Election::margin`](crate::Election::margin).
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
        let left = self.hold.remaining_before(self.margin);
        if left.is_zero() {
            self.end();
        }
        left
    }

    /// Resolves when the term is over: the leader has stepped down, the lock is lost, or the lock could not be renewed
    /// until [`Election::margin`](crate::Election::margin) before its lease expires. The future must be polled in a
    /// Tokio runtime.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and `ended` called again.
    ///
    /// # Panics
    /// If the future is polled outside a Tokio runtime with time enabled before the term is over.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let term = self.clone();
        async move {
            let mut gone = pin!(term.hold.ended());
            loop {
                let left = term.remaining();
                if left.is_zero() {
                    return;
                }
                // A renewal moves the end: so after that time, check again.
                tokio::select! {
                    _ = &mut gone => term.end(),
                    () = async { guarding(pin!(term.over.cancelled())).await } => {}
                    () = sleep(left) => {}
                }
            }
        }
    }

    pub(crate) fn end(&self) {
        self.over.cancel();
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
