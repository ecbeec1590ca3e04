//! The semaphore: a number of permits, each with a lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Hold, Patience};
use crate::error::{Error, Result};
use crate::guards::Guard;
use crate::kinds::{ALL, Kind};
use crate::locks::handle::Handle;

/// A number of permits, shared by all processes that share the server.
///
/// Each permit has a lease, which the watchdog renews while its [`Guard`] lives. If the holder dies, the permit becomes
/// free when its lease expires. All clients wait in one line, first come, first served, whether they ask for one permit
/// or for many: as with `tokio::sync::Semaphore`, small requests do not overtake a large one. In the line, one
/// caller stands for all callers of its client that ask for the same number of permits. Once that caller has its permits,
/// the client's next caller joins the line at its end, so that every client has its turn. A caller with a lease of its own
/// has a place of its own.
///
/// The number given to [`Client::semaphore`](crate::Client::semaphore) is the initial number of permits. It applies
/// from the first acquire until no caller holds a permit or waits. Meanwhile, a caller whose handle has another number
/// gets an [`Error::Conflict`], since two parts of a program disagree. A number set with
/// [`set_permits`](Self::set_permits) takes precedence: it applies to every handle in every process, whatever number
/// the handle was made with. It applies until it is set again, or until no caller has used the semaphore for thirty
/// days.
///
/// # In Redisson's layout
/// In [`Layout::Redisson`](crate::Layout::Redisson) there is no queue between clients. Within a client there is one: a
/// caller that waits for many permits delays the later callers of its client. The first acquire sets the number of
/// permits, as Redisson's `trySetPermits` does, and the number stays. A handle with another number follows the number
/// in Redis, without a conflict. Redisson's key has no TTL, so you must delete a semaphore by hand when nobody needs it
/// any more. Delete its leases with it: `lock_permits:{name}` and `lock_notes:{name}`, or `{name}:timeout` for an
/// expirable semaphore. Otherwise, if Java sets the semaphore again, the permits that parklock's clients held are added to
/// it once more when their leases end.
///
/// - [`Client::semaphore`](crate::Client::semaphore) is Redisson's `RSemaphore`. Java's permits have no owners: the
///   permits of a dead process are lost, and Redis does not know the total number of permits. parklock's permits have
///   leases, in separate keys. When a process has died and its leases have expired, its permits become free as soon as
///   another parklock client asks.
/// - [`Redisson::expirable_semaphore`](crate::Redisson::expirable_semaphore) is Redisson's `RPermitExpirableSemaphore`.
///   Both sides know all leases and remove each other's expired permits. Java measures leases by the clocks of its own
///   machines: if such a clock is ahead of the server's by more than the rest of a lease, Java takes away a permit that
///   is still held. Each permit is a member of a set, so the server needs some time to grant many thousands at once.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let uploads = client.semaphore("doc:uploads", 4);
/// let permit = uploads.acquire().await?;
/// let three = uploads.acquire_many(3).await?;
/// assert!(uploads.try_acquire().await?.is_none());
/// permit.unlock().await?;
/// drop(three); // released in the background
/// # client.close().await;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until it is asked for a permit"]
pub struct Semaphore {
    handle: Handle,
    permits: u32,
}

impl Semaphore {
    pub(crate) fn new(engine: Arc<Engine>, kind: Kind, name: String) -> Self {
        let (handle, permits) = (Handle::new(engine, kind, name), kind.capacity());
        let handle = match checked(permits) {
            Ok(()) => handle,
            Err(error) => handle.failing(error),
        };
        Self { handle, permits }
    }

    /// Holds permits for a fixed time, between 10 ms and 24 h, instead of renewing them: see
    /// [`Lock::lease`](crate::Lock::lease).
    pub fn lease(self, lease: Duration) -> Self {
        Self { handle: self.handle.lease(lease), ..self }
    }

    /// Waits for a permit.
    ///
    /// # Cancel safety
    /// Same as [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Errors
    /// Same as [`Lock::lock`](crate::Lock::lock). [`Error::Conflict`] also if others use the name with another number
    /// of permits and nobody has set one. [`Error::InvalidPermits`] if the number of the handle is not between 1 and
    /// 2^30 - 1, or if the semaphore has fewer permits than the call asks for, even if that becomes true while the call
    /// waits.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn acquire(&self) -> Result<Guard> {
        self.acquire_many(1).await
    }

    /// Waits for `permits` permits at once, under one guard.
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// Same as [`acquire`](Self::acquire), and [`Error::InvalidPermits`] if `permits` is zero.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn acquire_many(&self, permits: u32) -> Result<Guard> {
        self.check(permits)?;
        self.handle.acquire_many(permits, Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// Takes a permit if one is free and no caller waits for one, in one attempt. Returns `None` otherwise.
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock`](crate::Lock::try_lock) and [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.try_acquire_many(1).await
    }

    /// Takes `permits` permits at once, in one attempt: see [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// Same as [`try_acquire`](Self::try_acquire) and [`acquire_many`](Self::acquire_many).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Guard>> {
        self.check(permits)?;
        self.handle.acquire_many(permits, Patience::None).await
    }

    /// Waits for a permit, but not longer than `limit`. Returns `None` if there was none in time.
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock_for`](crate::Lock::try_lock_for) and [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_acquire_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.try_acquire_many_for(1, limit).await
    }

    /// Waits for `permits` permits at once, but not longer than `limit`: see
    /// [`try_acquire_for`](Self::try_acquire_for).
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// Same as [`try_acquire_for`](Self::try_acquire_for) and [`acquire_many`](Self::acquire_many).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_acquire_many_for(
        &self,
        permits: u32,
        limit: Duration,
    ) -> Result<Option<Guard>> {
        self.check(permits)?;
        self.handle.acquire_many(permits, Patience::limited(limit)).await
    }

    /// Takes a permit, runs `work`, and releases the permit: see [`Lock::run`](crate::Lock::run).
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the permit in the background.
    ///
    /// # Errors
    /// Same as [`acquire`](Self::acquire), and [`Error::Lost`] if the permit was lost before the work was done.
    ///
    /// # Panics
    /// Same as [`Lock::run`](crate::Lock::run).
    pub async fn run<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.acquire().await?.run(work).await
    }

    /// How many permits are free, as of the server's answer.
    ///
    /// [`try_acquire`](Self::try_acquire) may fail even if this is positive: callers that already wait go first.
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// Same as [`Lock::is_locked`](crate::Lock::is_locked). [`Error::InvalidPermits`] if the number of the handle is not
    /// between 1 and 2^30 - 1.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn available_permits(&self) -> Result<u32> {
        let status = self.handle.status().await?;
        Ok(u32::try_from(status.capacity - status.used).unwrap_or(0))
    }

    /// Sets the number of permits for all handles in all processes, also for this one. You may call it at any time.
    ///
    /// If more permits are held than the new number, no holder loses one: the server grants none until enough permits were
    /// released. Set to 1 while four of five permits are held, the semaphore has
    /// [`available_permits`](Self::available_permits) 0 until all four are back, and then 1. In
    /// [`Layout::Redisson`](crate::Layout::Redisson), Redisson's key has -3 meanwhile.
    ///
    /// A larger number lets waiting callers in at once. The others keep waiting. A caller that waits for more permits
    /// than there are now gets an [`Error::InvalidPermits`].
    ///
    /// The number applies until it is set again. Redis forgets it if nobody has used the
    /// semaphore (held, acquired, released, asked) for thirty days: so nothing stays in Redis forever, and a job that runs
    /// once a month still finds it. After that, the numbers of the handles apply again. Redis also forgets it when the
    /// name is used for another kind while nobody holds a permit or waits.
    ///
    /// In [`Layout::Redisson`](crate::Layout::Redisson) Redis never forgets it. For an `RSemaphore`, Redisson stores
    /// only the number of free permits. So this call adds the difference between the new number and the old one to the
    /// free permits. The old number is the one that a parklock client set within the last day; if none did, it is this
    /// handle's. So if several clients set the same number within a day, only the first changes it. A call after that
    /// day, through a handle of another number, adds the difference again. If Java changes the number in between, both
    /// changes add up.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let uploads = client.semaphore("doc:resized", 2);
    /// uploads.set_permits(3).await?;
    /// assert_eq!(uploads.available_permits().await?, 3);
    /// let all = uploads.acquire_many(3).await?; // the number that was set applies to every handle
    /// all.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped before Redis has answered, the number may or may not have changed. Call it again to
    /// be sure.
    ///
    /// # Errors
    /// [`Error::InvalidPermits`] if the number, or that of the handle, is zero or more than 2^30 - 1. [`Error::Conflict`]
    /// if the name is used for another kind. Otherwise as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn set_permits(&self, permits: u32) -> Result<()> {
        checked(permits)?;
        self.handle.resize(permits, false).await.map(drop)
    }

    /// Sets the number of permits, as [`set_permits`](Self::set_permits) does, but only if no number is set. Returns
    /// whether it did.
    ///
    /// Call it at each start of a program whose number an operator may have changed: it never changes a number. A number
    /// is set if a client has set it and Redis has not forgotten it. Also while callers hold permits or wait, the number
    /// by which they do so stays. In [`Layout::Redisson`](crate::Layout::Redisson) it does what Redisson's
    /// `trySetPermits` does: there the first acquire sets a number too.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let uploads = client.semaphore("doc:set-once", 2);
    /// uploads.set_permits_if_unset(3).await?;
    /// assert!(!uploads.set_permits_if_unset(9).await?);
    /// assert_eq!(uploads.available_permits().await?, 3);
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped before Redis has answered, the number may or may not have been set. A second call then
    /// returns `false` if it was.
    ///
    /// # Errors
    /// Same as [`set_permits`](Self::set_permits).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn set_permits_if_unset(&self, permits: u32) -> Result<bool> {
        checked(permits)?;
        self.handle.resize(permits, true).await
    }

    /// Takes all permits away from their holders, as [`Lock::force_unlock`](crate::Lock::force_unlock) does. Returns
    /// whether there were any. In [`Layout::Redisson`](crate::Layout::Redisson) it takes only permits that have a
    /// lease, and their holders learn of it at their next renewal.
    ///
    /// # Cancel safety
    /// If the future is dropped before Redis has answered, the permits may or may not have been taken away.
    ///
    /// # Errors
    /// Same as [`available_permits`](Self::available_permits).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn force_unlock(&self) -> Result<bool> {
        self.handle.force_unlock().await
    }

    /// Refuses a call that asks for no permits, or for more than a semaphore can have. The server checks whether this
    /// semaphore has that many, since another client may have set the number.
    fn check(&self, permits: u32) -> Result<()> {
        match permits {
            0 => Err(Error::InvalidPermits { asked: 0, of: self.permits }),
            _ => checked(permits),
        }
    }
}

fn checked(permits: u32) -> Result<()> {
    match permits {
        1..ALL => Ok(()),
        _ => Err(Error::InvalidPermits { asked: permits, of: ALL - 1 }),
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut described = f.debug_struct("Semaphore");
        described.field("permits", &self.permits);
        self.handle.described(described)
    }
}
