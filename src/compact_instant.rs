//! A time in half the space of an [`Instant`]. Each tenure keeps several times, and a client may have a hundred
//! thousand tenures.

use std::num::NonZeroU64;
use std::ops::Add;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

/// Earlier than any instant that this client compares. An earlier instant would be turned into this one. It lies thirty years
/// back, since the first user may be a test whose paused clock is hours ahead of the next test's. Not every platform's clock
/// goes back that far.
static EPOCH: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    let hours = [24 * 365 * 30, 1].map(|hours| Duration::from_secs(3600 * hours));
    hours.into_iter().find_map(|time| now.checked_sub(time)).unwrap_or(now)
});

/// A time on this machine's monotonic clock, in nanoseconds. It is never zero, so an `Option` of it takes no more space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CompactInstant(NonZeroU64);

impl CompactInstant {
    pub(crate) fn now() -> Self {
        Instant::now().into()
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    pub(crate) fn instant(self) -> Instant {
        *EPOCH + Duration::from_nanos(self.0.get())
    }
}

impl From<Instant> for CompactInstant {
    fn from(instant: Instant) -> Self {
        let since = instant.saturating_duration_since(*EPOCH);
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }
}

impl Add<Duration> for CompactInstant {
    type Output = Self;

    /// The last time that fits, if the sum does not.
    fn add(self, time: Duration) -> Self {
        let nanos = time.as_secs().saturating_mul(1_000_000_000);
        Self(self.0.saturating_add(nanos).saturating_add(u64::from(time.subsec_nanos())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_instant_it_was_made_of() {
        let now = Instant::now();
        let later = now + Duration::from_nanos(1);
        assert_eq!(CompactInstant::from(now).instant(), now);
        assert!(CompactInstant::from(now) < CompactInstant::from(later));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_far_ahead_at_the_first_use_does_not_matter() {
        let start = Instant::now();
        let _first_use = CompactInstant::now();
        let before = start - Duration::from_secs(3600 * 24);
        assert_eq!(CompactInstant::from(before).instant(), before);
    }

    #[test]
    fn it_is_added_to_and_compared_like_an_instant() {
        let (now, while_) = (Instant::now(), Duration::new(2, 3));
        let moment = CompactInstant::from(now);
        assert_eq!((moment + while_).instant(), now + while_);
        assert_eq!((moment + while_).saturating_duration_since(moment), while_);
        assert_eq!(moment.saturating_duration_since(moment + while_), Duration::ZERO);
        assert!(moment + Duration::MAX > moment + while_);
    }
}
