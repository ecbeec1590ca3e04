//! What versions of Redisson do differently. The tests know it, and docs/from-redisson.md tells users.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

impl Version {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map_while(|number| number.parse().ok());
        Some(Self(numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)))
    }
}

/// What Java answers if its Redisson does not have a method yet.
pub(crate) const NOT_THERE: &str = "NoSuchMethodException";

pub(crate) const FENCED_LOCKS: Version = Version(3, 19, 0);

/// Several permits of an expirable semaphore at once, their number, and how many there are of them.
pub(crate) const MANY_PERMITS: Version = Version(3, 23, 4);

/// A read lock counts as locked while its reader writes, too.
pub(crate) const READS_WITHIN_A_WRITE: Version = Version(3, 24, 1);

/// Beside a Redisson before this, `Config::plain_channels`: each of its JVMs asks one server at its start whether channels
/// belong to slots, and believes the right answer only if that server happens to have slot 0.
pub(crate) const CHANNELS_OF_SLOTS: Version = Version(3, 29, 0);

/// Before this, it has never heard of them.
pub(crate) const ASKS_FOR_CHANNELS: Version = Version(3, 22, 0);

/// Behind sentinels, this version does not listen any more after the primary has died. Older and newer ones do.
pub(crate) const FORGETS_CHANNELS: Version = Version(3, 27, 2);

/// A thread in the queue of a fair lock looks when the holder's lease is over. Before, it may park without an end.
pub(crate) const FAIR_THREADS_LOOK: Version = Version(3, 32, 0);

/// The unlock of a read or write lock that is gone, and that nobody has taken since, is refused.
pub(crate) const GONE_IS_REFUSED: Version = Version(3, 52, 0);

/// Semaphores with a TTL, and the lease of a permit.
pub(crate) const LEASES_OF_PERMITS: Version = Version(3, 52, 0);

/// It deletes the note of a release when it has been answered. Before, the note stays for up to twenty seconds.
pub(crate) const CLEARS_AWAY: Version = Version(4, 0, 0);

pub(crate) const RELEASE_IF_EXISTS: Version = Version(4, 0, 0);

/// The watchdog renews the readers of its own client alone.
pub(crate) const OWN_READERS: Version = Version(4, 4, 0);
