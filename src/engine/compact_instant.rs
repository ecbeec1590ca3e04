//! A time in half the space of an [`Instant`]. Each tenure keeps several times, and a client may have a hundred
//! thousand tenures.

use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

/// Earlier than any instant that this client compares. An earlier instant would be turned into this one.
static EPOCH: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(Duration::from_secs(3600)).unwrap_or(now)
});

/// A time on this machine's monotonic clock, in nanoseconds. It is never zero, so an `Option` of it takes no more space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CompactInstant(NonZeroU64);

impl CompactInstant {
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
}
