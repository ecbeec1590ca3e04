//! Several locks at once.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};

use crate::engine::{Call, Keepers, Patience};
use crate::error::{Error, Result};
use crate::guards::{Guard, MultiGuard, MultiHold};
use crate::locks::handle::Handle;
use crate::locks::lock::Lock;
use crate::locks::retry::Retry;
use crate::pause::in_time;

/// A script that takes more locks would block the server's other clients for too long.
const MOST: usize = 1_000;

/// How often a caller retries at once when another of its locks was taken meanwhile. After that, it pauses.
const CALM: u32 = 2;

/// The longest pause of a caller that backs off.
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// Several locks that are held together: all of them or none.
///
/// One guard holds them all. Each is the [`Lock`] of its name, and excludes every other caller that locks that name,
/// alone or with others. The order in which you name them does not matter. A lock that is named twice counts once, with
/// the lease that was named first. A name may be there in one kind only. There may be at most 1,000 locks.
///
/// # Locks of one client
/// One script takes all of them on the server. So no other caller ever sees only a part of them held, and callers
/// cannot deadlock. A caller that finds one of them held waits for that one, as for a [`Lock`], and **holds nothing
/// meanwhile**. Once it holds that lock, it asks for all others in one request. If one of those is held, it releases the
/// lock and waits for that one.
///
/// The cost is fairness: callers that want one name can overtake a caller that wants many contended names again and
/// again. Name few locks, or use one lock for everything.
///
/// # Locks of several clients or kinds
/// This applies to [`MultiLock::new`] over several servers, to lists with [fair](crate::Client::fair_lock) or
/// [fenced](crate::Redisson::fenced_lock) locks, and to every list in a Redis Cluster. No script on one server can take
/// a lock on another. So a caller takes these locks one after the other, in the order of their names, and while it
/// waits for one it **holds the locks before it**. All callers take them in the same order, so they cannot deadlock.
/// This requires one thing of you: if a name is on the list for several servers, every caller must list these servers
/// in the same order. If the caller cannot get one of the locks, it releases all of them. A caller whose future is not
/// polled keeps what it has so far, until it is polled again or dropped.
///
/// Two clients of one server do not know of each other: a list that has the same name through both waits for itself.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let accounts = client.multi_lock(["doc:multi:alice", "doc:multi:bob"]);
/// let guard = accounts.lock().await?;
/// // ... move the money; tokens()[0] is the token of alice ...
/// assert_eq!(guard.tokens().len(), 2);
/// guard.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until it is locked"]
pub struct MultiLock {
    /// Distinct, in the order in which the user named them.
    locks: Arc<[Lock]>,
    /// The same locks, ordered by name and namespace, and then by position in the list.
    order: Arc<[usize]>,
    /// A name is there in two kinds. In Redisson's layout these have the same key, so the caller would wait for itself.
    is_of_two_kinds: bool,
}

/// The guards in the sorted order, or the index of a lock that is held.
type Answer = Result<Vec<Guard>, usize>;

impl MultiLock {
    /// Locks of any clients, which may be of different servers. The first call reports an invalid list.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// # let (here, there) = (url.clone(), url);
    /// use parklock::{Client, MultiLock};
    ///
    /// let (here, there) = (Client::connect(here).await?, Client::connect(there).await?);
    /// let both = MultiLock::new([here.lock("doc:multi:here"), there.lock("doc:multi:there")]);
    /// let guard = both.lock().await?;
    /// guard.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Self {
        let mut distinct: Vec<Lock> = Vec::new();
        let mut named: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        let mut is_of_two_kinds = false;
        for lock in locks {
            let (name, namespace) = lock.handle.full_name();
            let name = (name.into_owned(), namespace.map(str::to_owned));
            let namesakes = named.entry(name).or_default();
            let mut others = namesakes.iter().map(|at| &distinct[*at].handle);
            if !others.clone().any(|other| other.is_same(&lock.handle)) {
                is_of_two_kinds |= others.any(|other| other.is_of_same_client(&lock.handle));
                namesakes.push(distinct.len());
                distinct.push(lock.kept_by(Keepers::Others));
            }
        }
        let order = named.into_values().flatten().collect();
        Self { locks: distinct.into(), order, is_of_two_kinds }
    }

    /// Holds the locks for a fixed time, between 10 ms and 24 h, instead of renewing them: see [`Lock::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        Self { locks: self.locks.iter().map(|lock| lock.clone().lease(lease)).collect(), ..self }
    }

    /// Waits for all of the locks.
    ///
    /// # Cancel safety
    /// As for [`Lock::lock`]: the client releases in the background the locks that the call already has.
    ///
    /// # Errors
    /// Same as [`Lock::lock`], for whichever lock fails; the call then holds none of them. [`Error::InvalidLocks`] if
    /// the list has no lock, or more than 1,000, or one name in two kinds.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn lock(&self) -> Result<MultiGuard> {
        self.acquire(Limit::none()).await?.ok_or(Error::Closed)
    }

    /// Takes the locks if all of them are free. Returns `None` if any of them is held, or is free but a waiter ahead
    /// may still take it, or if another call of this client is asking Redis for one of them at this moment. For locks of one client this takes one request, or none if another caller of this client has
    /// one of the locks. If a client that has one of them may keep it idle ([`Config::keep`](crate::Config::keep)), the
    /// call asks a second time, up to 50 ms later.
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    ///
    /// # Errors
    /// Same as [`Lock::try_lock`], for whichever lock fails; the call then holds none of them. [`Error::Lost`] if it has lost one
    /// of them while it asked for another. [`Error::InvalidLocks`] as for [`lock`](Self::lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>> {
        self.check()?;
        let (_calls, locks) = (self.calls(), self.sorted());
        if self.is_one_step() {
            loop {
                if let Some(answer) = together(&locks, None, Patience::None).await? {
                    return Ok(answer.ok().map(|held| self.guard(held)));
                }
            }
        }
        let mut held = Vec::with_capacity(locks.len());
        for lock in locks {
            match lock.try_lock().await? {
                Some(guard) => held.push(guard),
                None => return Ok(None),
            }
        }
        match held.iter().find(|guard| is_lost(guard)) {
            Some(lost) => Err(lost.hold().lost()),
            None => Ok(Some(self.guard(held))),
        }
    }

    /// Waits for all of the locks, but not longer than `limit`. Returns `None` if they were not free in time. A limit
    /// of zero is [`try_lock`](Self::try_lock).
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    ///
    /// # Errors
    /// Same as [`lock`](Self::lock). If Redis did not answer within the limit: [`Error::Indeterminate`] if a request
    /// may have run (the client cleans up after it), and [`Error::Unavailable`] otherwise.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<MultiGuard>> {
        if limit.is_zero() {
            return self.try_lock().await;
        }
        self.acquire(Limit::of(limit)).await
    }

    /// Runs `work` while all of the locks are held, and then unlocks. If one of them is lost first, drops `work`: see
    /// [`Lock::run`].
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let accounts = client.multi_lock(["doc:multi:carol", "doc:multi:dave"]);
    /// accounts.run(|hold| async move {
    ///     let [carol, dave] = hold.tokens()[..] else { unreachable!("one token for each name") };
    ///     println!("write to carol under {carol}, and to dave under {dave}");
    /// }).await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the locks in the background.
    ///
    /// # Errors
    /// Same as [`lock`](Self::lock), and [`Error::Lost`] if any of them was lost before the work was done.
    ///
    /// # Panics
    /// Same as [`Lock::run`].
    pub async fn run<T, F>(&self, work: impl FnOnce(MultiHold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.lock().await?.run(work).await
    }

    /// Whether any of the locks is held, so that they cannot be taken now.
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// Same as [`Lock::is_locked`], unless one of the locks that did answer is held. Before any I/O, the same as
    /// [`lock`](Self::lock) if the list, a name or a lease is invalid.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn is_locked(&self) -> Result<bool> {
        self.check()?;
        any(join_all(self.locks.iter().map(Lock::is_locked)).await)
    }

    /// Takes all locks away from their holders: see [`Lock::force_unlock`]. Returns whether any of them was held.
    ///
    /// # Cancel safety
    /// If the future is dropped before Redis has answered, any of the locks may have been taken away. Call it again to
    /// be sure.
    ///
    /// # Errors
    /// Same as [`Lock::force_unlock`], if one of the locks could not be taken away. The others still were. Before any
    /// I/O, the same as [`lock`](Self::lock) if the list, a name or a lease is invalid.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn force_unlock(&self) -> Result<bool> {
        self.check()?;
        let gone = join_all(self.locks.iter().map(Lock::force_unlock)).await;
        let gone = gone.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(gone.contains(&true))
    }

    fn check(&self) -> Result<()> {
        match self.locks.len() {
            0 => Err(Error::InvalidLocks { reason: "it needs at least one lock" }),
            _ if self.is_of_two_kinds => {
                Err(Error::InvalidLocks { reason: "a name is on the list in two kinds" })
            }
            1..=MOST => self.locks.iter().try_for_each(|lock| lock.handle.check()),
            _ => Err(Error::InvalidLocks { reason: "a MultiLock holds at most 1,000 locks" }),
        }
    }

    /// Whether one script can take all of the locks.
    fn is_one_step(&self) -> bool {
        let engine = &self.locks[0].handle.engine;
        let mut handles = self.locks.iter().map(|lock| &lock.handle);
        handles
            .all(|handle| handle.is_taken_with_others() && handle.engine.is_of_same_client(engine))
    }

    /// Counts the call at each client until it ends. Between two attempts, it neither waits nor owes anything there.
    fn calls(&self) -> Vec<Call<'_>> {
        let locks = if self.is_one_step() { &self.locks[..1] } else { &self.locks };
        locks.iter().map(|lock| lock.handle.engine.calls.begin()).collect()
    }

    fn sorted(&self) -> Vec<&Lock> {
        self.order.iter().map(|at| &self.locks[*at]).collect()
    }

    /// The guard of these locks, given in the sorted order.
    fn guard(&self, held: Vec<Guard>) -> MultiGuard {
        let mut named: Vec<_> = self.order.iter().zip(held).collect();
        named.sort_unstable_by_key(|(at, _)| **at);
        MultiGuard::new(named.into_iter().map(|(_, guard)| guard).collect())
    }

    async fn acquire(&self, limit: Limit) -> Result<Option<MultiGuard>> {
        self.check()?;
        let _calls = self.calls();
        let held = if self.is_one_step() {
            self.in_one_step(limit).await
        } else {
            self.one_after_the_other(limit).await
        };
        Ok(held?.map(|held| self.guard(held)))
    }

    /// Waits for the lock that is held by another caller, and then asks for all others at once.
    async fn in_one_step(&self, limit: Limit) -> Result<Option<Vec<Guard>>> {
        let (locks, mut retry) = (self.sorted(), Retry::default());
        let (mut first, mut misses) = (None, 0);
        loop {
            let Some(answer) =
                in_time(limit.until, together(&locks, first.take(), Patience::Endless)).await
            else {
                return retry.out_of_time(limit.whole);
            };
            match answer {
                // The caller was not polled in time, so the client has released what it had.
                Ok(None) => {}
                Ok(Some(Ok(held))) => return Ok(Some(held)),
                Ok(Some(Err(busy))) => {
                    retry.is_held();
                    step_aside(&mut misses, limit).await;
                    let Some(guard) = limit.taken(locks[busy]).await? else { return Ok(None) };
                    retry.answered();
                    first = Some((busy, guard));
                }
                Err(error) => {
                    let pause = retry.failed(error, locks[0].handle.ride_out());
                    match in_time(limit.until, pause).await {
                        Some(waited) => waited?,
                        None => return retry.out_of_time(limit.whole),
                    }
                }
            }
        }
    }

    /// Takes the locks in order. While it waits for one, it holds the locks before it.
    async fn one_after_the_other(&self, limit: Limit) -> Result<Option<Vec<Guard>>> {
        let (locks, mut misses) = (self.sorted(), 0);
        'again: loop {
            let mut held: Vec<Guard> = Vec::with_capacity(locks.len());
            for lock in &locks {
                let next = tokio::select! {
                    guard = limit.lock(lock) => guard?,
                    () = kept(&locks, &held) => {
                        drop(held);
                        step_aside(&mut misses, limit).await;
                        continue 'again;
                    }
                };
                let Some(guard) = next else { return Ok(None) };
                held.push(guard);
            }
            let refreshed = in_time(limit.until, refreshed(&locks, &held)).await;
            match refreshed.unwrap_or_else(|| Err(Error::unanswered(limit.whole))) {
                Ok(()) if !held.iter().any(is_lost) => return Ok(Some(held)),
                Ok(()) | Err(Error::Lost { .. }) => drop(held),
                Err(error) => return Err(error),
            }
            step_aside(&mut misses, limit).await;
        }
    }
}

/// Until when a caller waits.
#[derive(Clone, Copy)]
struct Limit {
    whole: Duration,
    until: Option<Instant>,
}

impl Limit {
    fn none() -> Self {
        Self { whole: Duration::MAX, until: None }
    }

    fn of(whole: Duration) -> Self {
        Self { whole, until: Instant::now().checked_add(whole) }
    }

    /// How long to wait from now on, or `None` if the time is over.
    fn patience(self) -> Option<Patience> {
        let Some(until) = self.until else { return Some(Patience::Endless) };
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(Patience::For(left))
    }

    /// Waits for one lock until the limit is over.
    async fn lock(self, lock: &Lock) -> Result<Option<Guard>> {
        let Some(patience) = self.patience() else { return Ok(None) };
        lock.handle.acquire(None, patience).await
    }

    /// Same as [`lock`](Self::lock), for a lock that the server has just reported as held.
    async fn taken(self, lock: &Lock) -> Result<Option<Guard>> {
        let Some(patience) = self.patience() else { return Ok(None) };
        lock.handle.acquire_taken(patience).await
    }
}

/// Asks for all locks except the one that the caller already holds. If somebody else holds one of them, the caller
/// releases its own. Returns `None` if the caller was not polled in time: then the client has released the caller's
/// lock.
async fn together(
    locks: &[&Lock],
    first: Option<(usize, Guard)>,
    patience: Patience,
) -> Result<Option<Answer>> {
    let is_held = |at: &usize| first.as_ref().is_some_and(|(held, _)| held == at);
    let others: Vec<_> = (0..locks.len()).filter(|at| !is_held(at)).collect();
    let asked: Vec<_> = others.iter().map(|at| &locks[*at].handle).collect();
    let answer = Handle::acquire_all(&asked, patience, first).await?;
    let Some((answer, first)) = answer else { return Ok(None) };
    let mut held = match answer {
        Ok(held) => held,
        Err(busy) => return Ok(Some(Err(others[busy]))),
    };
    let Some((at, guard)) = first else { return Ok(Some(Ok(held))) };
    if let (Some(lease), false) = (locks[at].handle.fixed_lease(), held.is_empty()) {
        match guard.extend(lease).await {
            Err(Error::Lost { .. }) => return Ok(Some(Err(at))),
            extended => extended?,
        }
    }
    held.insert(at, guard);
    // A guard may have been lost before the other locks were granted.
    let lost = held.iter().position(is_lost);
    Ok(Some(lost.map_or(Ok(held), Err)))
}

/// Whether it was lost. A guard that is suspended is not valid, but nobody else has its lock yet. Without this difference, a caller
/// whose client does not hear itself would release what it was granted and ask again, for ever.
fn is_lost(guard: &Guard) -> bool {
    guard.rest_of_lease().is_zero()
}

/// Extends the held locks while the caller waits for another; returns when one of them is lost.
async fn kept(locks: &[&Lock], held: &[Guard]) {
    let mut ends: FuturesUnordered<_> = held.iter().map(Guard::ended).collect();
    let kept = locks
        .iter()
        .zip(held)
        .filter_map(|(lock, guard)| Some((lock.handle.fixed_lease()?, guard)));
    let kept = kept.map(|(lease, guard)| async move {
        loop {
            sleep(lease / 3).await;
            // If this fails because the lock is lost, `ends` reports the loss.
            let _ = guard.extend(lease).await;
        }
    });
    tokio::select! {
        Some(_) = ends.next() => {}
        _ = async { join_all::<_>(kept).await; pending::<()>().await } => {}
    }
}

/// Extends the locks that were held while the caller waited for another, each to its whole lease. The caller may have
/// waited for long, so it does not give them up because one answer is missing.
async fn refreshed(locks: &[&Lock], held: &[Guard]) -> Result<()> {
    let Some((_, earlier)) = held.split_last() else { return Ok(()) };
    let extended = locks.iter().zip(earlier).filter_map(|(lock, guard)| {
        let lease = lock.handle.fixed_lease()?;
        Some(guard.extend_surely(lease))
    });
    try_join_all(extended).await.map(drop)
}

/// Pauses, so that other callers can continue. Without the pause, two callers that each have the lock that the other
/// wants next could chase each other forever.
async fn step_aside(misses: &mut u32, limit: Limit) {
    *misses += 1;
    if let Some(times @ 1..) = misses.checked_sub(CALM) {
        let most = LONGEST_PAUSE.min(Duration::from_millis(1 << times.min(10)));
        in_time(limit.until, sleep(most.mul_f64(fastrand::f64()))).await;
    }
}

/// `true` if any answer is `true`; otherwise the first error.
fn any(said: Vec<Result<bool>>) -> Result<bool> {
    if said.iter().any(|said| matches!(said, Ok(true))) {
        return Ok(true);
    }
    said.into_iter().find(Result::is_err).unwrap_or(Ok(false))
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock").field("locks", &self.locks).finish()
    }
}
