//! A time in half the space of an [`Instant`]. Each tenure keeps several times, and a client may have a hundred
//! thousand tenures.

use std::num::NonZeroU64;
use std::ops::Add;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// A time that several tasks read and write; none at first.
#[derive(Debug, Default)]
pub(crate) struct SharedInstant(AtomicU64);

impl SharedInstant {
    pub(crate) fn get(&self) -> Option<CompactInstant> {
        NonZeroU64::new(self.0.load(Ordering::SeqCst)).map(CompactInstant)
    }

    /// Sets it, if it has none. Returns the time that it has then.
    pub(crate) fn get_or_set(&self, time: CompactInstant) -> CompactInstant {
        let set = self.0.compare_exchange(0, time.0.get(), Ordering::SeqCst, Ordering::SeqCst);
        set.err().and_then(NonZeroU64::new).map_or(time, CompactInstant)
    }

    pub(crate) fn set(&self, time: CompactInstant) {
        self.0.store(time.0.get(), Ordering::SeqCst);
    }

    /// Sets it, unless it has a later one.
    pub(crate) fn advance(&self, time: CompactInstant) {
        self.0.fetch_max(time.0.get(), Ordering::SeqCst);
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::SeqCst);
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

    #[test]
    fn it_is_added_to_and_compared_like_an_instant() {
        let (now, while_) = (Instant::now(), Duration::new(2, 3));
        let moment = CompactInstant::from(now);
        assert_eq!((moment + while_).instant(), now + while_);
        assert_eq!((moment + while_).saturating_duration_since(moment), while_);
        assert_eq!(moment.saturating_duration_since(moment + while_), Duration::ZERO);
        assert!(moment + Duration::MAX > moment + while_);
    }

    #[test]
    fn a_shared_time_keeps_its_first_or_its_last() {
        let first = CompactInstant::now();
        let later = first + Duration::from_secs(1);
        let shared = SharedInstant::default();
        assert_eq!(shared.get(), None);
        assert_eq!((shared.get_or_set(first), shared.get_or_set(later)), (first, first));
        shared.advance(later);
        shared.advance(first);
        assert_eq!(shared.get(), Some(later));
        shared.clear();
        assert_eq!(shared.get(), None);
    }
}
