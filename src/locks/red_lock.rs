//! A lock on a majority of independent servers.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::{Call, Keepers};
use crate::error::{Error, Result, said};
use crate::guards::{Guard, GuardSet, RedGuard, RedHold, STRAGGLERS, grace};
use crate::locks::lock::Lock;
use crate::locks::retry::Retry;
use crate::pause::in_time;

/// How long a call waits in one line before it joins the next one too. If all calls stood in all lines at once, each
/// server would grant its lock to a different call, and no call would have a majority. So they queue at one server, and
/// usually the head of that line can take the others. A call needs another line only if that server stays held, for
/// example because its holder died with a minority.
const LINES_APART: Duration = Duration::from_millis(250);

/// The same for a call that keeps a part: others wait for that part.
const LINES_APART_FOR_A_KEEPER: Duration = Duration::from_millis(20);

/// How long a call waits for held servers before it asks all others again.
const LOOK_ROUND: Duration = Duration::from_secs(5);

/// One lock on several independent servers. A caller has it if it holds it on a majority of the servers.
///
/// It survives the complete loss of any minority of the servers. The algorithm is Redlock (redis.io, *Distributed locks
/// with Redis*), with these differences:
/// - A waiting call parks as a [`Lock`] does instead of retrying. It queues at one server. Once it holds the lock there,
///   it asks all other servers. If that server stays held, for example because its holder died with a minority, the call
///   joins the line of another held server every 250 ms, or every 20 ms while it keeps its locks on some servers. (In a
///   [`try_lock_for`](Self::try_lock_for) of less than 2 s, an eighth of its limit takes the place of the 250 ms.) It
///   joins no further line once every possible majority includes a server at which it waits.
/// - The clones of a handle remember the first server in the list that their last holder had, and queue there. A new handle
///   begins at the first server in the list. So keep a handle instead of making one for each call.
/// - While a call waits for a server, it keeps its locks on earlier servers of the list, and releases those on later ones.
///   So two calls never block each other forever.
/// - Each of these locks is a *part* of the whole. The watchdog renews each part separately, and each part is lost
///   separately. While a majority is left, the holder takes missing parts again, as often as it renews the others. So
///   servers may restart empty one after the other. This happens on the runtime of the call, and not for a fixed lease or
///   with [`Config::max_hold`](crate::Config::max_hold).
///
/// Redlock grants a lock for its lease, less the time that it took to collect the majority, less clock drift, and only
/// if some time is left. Here, a part counts only while more than half of its lease is left. A call that had to wait
/// extends the parts that it kept meanwhile. It releases the parts that it cannot extend, and takes them again.
///
/// It is not fair: a newcomer may overtake callers that wait. A caller whose future is not polled keeps the parts that it
/// has so far, until it is polled again or dropped.
///
/// # When not to use it
/// - **To survive a restart of one server**, a primary with replicas and a plain [`Lock`] is simpler. The cost: a
///   failover now and then forgets a lock.
/// - **Where two holders at once do damage**, you need a fencing token that the protected resource checks. This lock
///   has none, since each server counts separately. A single server's [`Lock`] has one, and then needs no majority
///   (Martin Kleppmann, *How to do distributed locking*, 2016).
/// - The servers must be **independent**: not replicas of each other, not shards of one cluster, not one machine. A
///   server that loses its data must stay offline for longer than the longest lease; otherwise it can grant the same
///   lock twice. Or persist everything on disk (`appendonly yes`, `appendfsync always`).
/// - A process may start while one server is down, if it makes that client with
///   [`Client::connect_lazy`](crate::Client::connect_lazy).
/// - Each hold costs at least two requests to *every* server, and is as slow as a majority of them.
///
/// Use an odd number of servers, three or five: four servers are no safer than three.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// # let (one, two, three) = (url.clone(), url.clone(), url);
/// use parklock::{Client, RedLock};
///
/// // Three servers that are independent of each other.
/// let mut locks = Vec::new();
/// for (number, url) in [one, two, three].into_iter().enumerate() {
/// #   let name = format!("doc:red:{number}"); // the examples have one server for all
/// #   /*
///     let name = "orders:42";
/// #   */
///     locks.push(Client::connect(url).await?.lock(name));
/// }
/// let guard = RedLock::new(locks).lock().await?;
/// // ... the critical section ...
/// guard.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until it is locked"]
pub struct RedLock {
    locks: Arc<[Lock]>,
    /// The lowest server that the last winner among the clones of this handle had. Their calls queue there first.
    first: Arc<AtomicUsize>,
}

/// The answers of all servers that were asked once.
#[derive(Default)]
struct Round {
    won: BTreeMap<usize, Guard>,
    /// Another caller holds these.
    held: Vec<usize>,
    /// The errors of servers that failed or did not answer.
    failed: Vec<Error>,
}

impl Round {
    fn heard(&mut self, at: usize, answer: Result<Option<Guard>>) {
        match answer {
            Ok(Some(guard)) => drop(self.won.insert(at, guard)),
            Ok(None) => self.held.push(at),
            Err(error) => self.failed.push(error),
        }
    }
}

impl RedLock {
    /// One lock made of locks of several clients, each of a different server.
    ///
    /// All callers that compete for it must name the same servers in the same order. The first call reports an invalid
    /// list.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Self {
        Self {
            locks: locks.into_iter().map(|lock| lock.kept_by(Keepers::None)).collect(),
            first: Arc::default(),
        }
    }

    /// Holds the lock for a fixed time, between 10 ms and 24 h, instead of renewing it: see [`Lock::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        let locks = self.locks.iter().map(|lock| lock.clone().lease(lease)).collect();
        Self { locks, ..self }
    }

    /// Waits for the lock.
    ///
    /// # Cancel safety
    /// As for [`Lock::lock`]: the clients release in the background the locks that the call already has.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Indeterminate`] if no majority of the servers answered for
    /// [`Config::ride_out`](crate::Config::ride_out). [`Error::InvalidLocks`] if the list has no lock, or two locks of
    /// one client. Otherwise as for [`Lock::lock`], if so many servers report an error that no majority is left, or if
    /// a server at which the call waits reports one.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn lock(&self) -> Result<RedGuard> {
        self.wait(&mut Retry::default(), LINES_APART).await
    }

    /// `apart`: see [`LINES_APART`].
    async fn wait(&self, retry: &mut Retry, apart: Duration) -> Result<RedGuard> {
        self.check()?;
        let (_calls, mut won) = (self.calls(), BTreeMap::new());
        loop {
            won = match self.judge(self.ask_all(won).await) {
                Judged::Won(guard) => return Ok(guard),
                Judged::Held(held, mut kept) => {
                    retry.is_held();
                    let (mut won, silent) = self.park(self.lines(&held), &mut kept, apart).await?;
                    kept.append(&mut won);
                    self.refresh(&mut kept).await;
                    match silent {
                        None => retry.answered(),
                        Some(error) => retry.failed(error, self.ride_out()).await?,
                    }
                    kept
                }
                Judged::Failed(error) => {
                    retry.failed(error, self.ride_out()).await?;
                    BTreeMap::new()
                }
            };
        }
    }

    /// Takes the lock if a majority of the servers grants it at once. Returns `None` if other callers hold so many
    /// servers that no majority is left.
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Indeterminate`] if too few servers answered to decide. Otherwise as for
    /// [`lock`](Self::lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_lock(&self) -> Result<Option<RedGuard>> {
        self.check()?;
        let _calls = self.calls();
        match self.judge(self.ask_all(BTreeMap::new()).await) {
            Judged::Won(guard) => Ok(Some(guard)),
            Judged::Held(..) => Ok(None),
            Judged::Failed(error) => Err(error),
        }
    }

    /// Waits for the lock, but not longer than `limit`. Returns `None` if no majority was free in time. A limit of zero
    /// is [`try_lock`](Self::try_lock).
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    ///
    /// # Errors
    /// Same as [`lock`](Self::lock). If too few servers answered within the limit to decide, the same as
    /// [`try_lock`](Self::try_lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<RedGuard>> {
        if limit.is_zero() {
            return self.try_lock().await;
        }
        let mut retry = Retry::default();
        match timeout(limit, self.wait(&mut retry, LINES_APART.min(limit / 8))).await {
            Ok(guard) => guard.map(Some),
            Err(_) => retry.out_of_time(limit),
        }
    }

    /// Runs `work` while the lock is held, and then unlocks. If the lock is lost first, drops `work`: see
    /// [`Lock::run`].
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// use parklock::{Client, RedLock};
    ///
    /// # let mut locks = Vec::new();
    /// # for number in 0..3 { // the examples have one server for all
    /// #     locks.push(Client::connect(&url).await?.lock(format!("doc:red_run:{number}")));
    /// # }
    /// // `locks`: one of each of three independent servers.
    /// let sent = RedLock::new(locks).run(|hold| async move {
    ///     (1..=3).take_while(|_| hold.is_valid()).count() // mails, for example: a mail more does no harm
    /// }).await?;
    /// assert_eq!(sent, 3);
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock in the background.
    ///
    /// # Errors
    /// Same as [`lock`](Self::lock), and [`Error::Lost`] if the majority was lost before the work was done.
    ///
    /// # Panics
    /// Same as [`Lock::run`].
    pub async fn run<T, F>(&self, work: impl FnOnce(RedHold) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        self.lock().await?.run(work).await
    }

    /// Whether a majority of the servers reports that the lock is held.
    ///
    /// # Cancel safety
    /// The call changes nothing; its future may be dropped at any time.
    ///
    /// # Errors
    /// If too few servers answered to decide, the error of one that did not, as for [`Lock::is_locked`].
    /// [`Error::InvalidLocks`] as for [`lock`](Self::lock).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn is_locked(&self) -> Result<bool> {
        self.check()?;
        let said = join_all(self.locks.iter().map(Lock::is_locked)).await;
        let yes = said.iter().filter(|said| matches!(said, Ok(true))).count();
        let no = said.iter().filter(|said| matches!(said, Ok(false))).count();
        match (yes >= self.majority(), self.locks.len() - no < self.majority()) {
            (true, _) => Ok(true),
            (false, true) => Ok(false),
            (false, false) => Err(worst(said.into_iter().filter_map(Result::err))),
        }
    }

    /// Takes the lock away from its holders on all servers: see [`Lock::force_unlock`]. Returns whether it was held on
    /// any server.
    ///
    /// # Cancel safety
    /// If the future is dropped before all servers have answered, the lock may have been taken away on any of them.
    /// Call it again to be sure.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if fewer than a majority of the servers answered. Otherwise as for
    /// [`Lock::force_unlock`].
    ///
    /// # Panics
    /// Outside a Tokio runtime with time enabled.
    pub async fn force_unlock(&self) -> Result<bool> {
        self.check()?;
        let said = join_all(self.locks.iter().map(Lock::force_unlock)).await;
        if said.iter().filter(|said| said.is_ok()).count() < self.majority() {
            return Err(worst(said.into_iter().filter_map(Result::err)));
        }
        Ok(said.into_iter().any(|said| matches!(said, Ok(true))))
    }

    fn majority(&self) -> usize {
        self.locks.len() / 2 + 1
    }

    fn check(&self) -> Result<()> {
        let twice = |(at, lock): (usize, &Lock)| {
            let engine = &lock.handle.engine;
            self.locks[..at].iter().any(|before| before.handle.engine.is_of_same_client(engine))
        };
        match self.locks.len() {
            0 => Err(Error::InvalidLocks { reason: "it needs at least one lock" }),
            _ if self.locks.iter().enumerate().any(twice) => {
                Err(Error::InvalidLocks { reason: "two locks of a RedLock are of the same client" })
            }
            _ => Ok(()),
        }
    }

    /// Counts the call at each client until it ends. While it waits at one server, it owes nothing to the others.
    fn calls(&self) -> Vec<Call<'_>> {
        self.locks.iter().map(|lock| lock.handle.engine.calls.begin()).collect()
    }

    fn ride_out(&self) -> Duration {
        self.locks.iter().map(|lock| lock.handle.ride_out()).max().unwrap_or_default()
    }

    /// Asks all servers on which we do not hold the lock yet, once and at the same time. A server that does not answer
    /// costs a small part of the lease, and almost nothing if a majority has answered.
    async fn ask_all(&self, won: BTreeMap<usize, Guard>) -> Round {
        let started = Instant::now();
        let mut until = (won.len() >= self.majority()).then(|| started + STRAGGLERS);
        let open: Vec<_> = (0..self.locks.len()).filter(|at| !won.contains_key(at)).collect();
        let asked = open.into_iter().map(|at| async move { (at, ask(&self.locks[at]).await) });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut round = Round { won, ..Round::default() };
        while let Some((at, answer)) = in_time(until, asked.next()).await.flatten() {
            round.heard(at, answer);
            if self.is_decided(&round, asked.len()) && until.is_none() {
                until = Some(Instant::now() + grace(started.elapsed()));
            }
        }
        // The requests that are dropped now may have run.
        let missing = iter::repeat_with(|| Error::cut_off(started.elapsed()));
        round.failed.extend(missing.take(asked.len()));
        round
    }

    /// Whether the missing answers cannot change the outcome. A silent server may be down. So the lock counts as held, or as
    /// out of reach, only when a majority has said so.
    fn is_decided(&self, Round { won, held, failed }: &Round, open: usize) -> bool {
        let is_known = won.len() + held.len() >= self.majority()
            || self.locks.len() - failed.len() < self.majority();
        won.len() >= self.majority() || won.len() + open < self.majority() && is_known
    }

    fn judge(&self, round: Round) -> Judged {
        let Round { mut won, held, failed } = round;
        won.retain(|at, guard| self.is_fresh(*at, guard));
        if won.len() >= self.majority() {
            self.first.store(*won.keys().next().expect("a majority"), Ordering::Relaxed);
            let parts = Arc::new(GuardSet::new(won.into_values().collect(), self.majority()));
            // A part that is taken late would outlast a limit that began with the hold.
            let has_no_end = self.locks.iter().all(|lock| lock.handle.is_renewed_without_end());
            let retaking = has_no_end.then(|| {
                let retaking = retake(Arc::clone(&self.locks), Arc::downgrade(&parts));
                AbortOnDropHandle::new(tokio::spawn(retaking))
            });
            return Judged::Won(RedGuard::new(parts, retaking));
        }
        let reachable = self.locks.len() - failed.len() >= self.majority();
        if reachable && !held.is_empty() {
            Judged::Held(held, won)
        } else {
            Judged::Failed(worst(failed.into_iter()))
        }
    }

    /// Whether a part counts: more than half of its lease is left. A part that was granted in this round has far more
    /// left, since a round takes a small part of the lease.
    fn is_fresh(&self, at: usize, guard: &Guard) -> bool {
        guard.rest_of_lease() > self.locks[at].handle.whole_lease() / 2
    }

    /// The held servers at which a call queues, in the order in which it joins their lines.
    ///
    /// While `blocking` servers are held, no majority is possible. So if a majority becomes free, it includes one of any
    /// `blocking` servers that were held.
    fn lines(&self, held: &[usize]) -> Vec<usize> {
        let blocking = self.locks.len() - self.majority() + 1;
        let first = self.first.load(Ordering::Relaxed);
        let mut lines = held.to_vec();
        lines.sort_unstable_by_key(|at| (*at < first, *at));
        lines.truncate(blocking);
        lines
    }

    /// Joins one line after the other, until a server grants its lock. Also takes the locks that the servers of the other
    /// joined lines grant soon after. Returns them, and the last error if no server has answered.
    async fn park(
        &self,
        lines: Vec<usize>,
        kept: &mut BTreeMap<usize, Guard>,
        apart: Duration,
    ) -> Result<(BTreeMap<usize, Guard>, Option<Error>)> {
        let wait = |at: usize| async move { (at, self.locks[at].try_lock_for(LOOK_ROUND).await) };
        let (mut lines, mut parked) = (lines.into_iter(), FuturesUnordered::new());
        let (mut join_at, mut joins) = (Instant::now(), false);
        let (mut won, mut until) = (BTreeMap::new(), None);
        let (mut silent, mut has_answer) = (None, false);
        loop {
            if won.is_empty()
                && (joins || parked.is_empty())
                && let Some(at) = lines.next()
            {
                // No caller keeps a part behind a server whose line it has joined: so callers never wait in a circle.
                drop(kept.split_off(&at));
                parked.push(wait(at));
                let apart =
                    if kept.is_empty() { apart } else { apart.min(LINES_APART_FOR_A_KEEPER) };
                (join_at, joins) = (Instant::now() + apart, false);
            }
            let answered = tokio::select! {
                // Take a grant that is ready first: joining a line may release a part that makes a majority with this
                // grant.
                biased;
                answered = in_time(until, parked.next()) => answered.flatten(),
                () = sleep_until(join_at), if won.is_empty() && lines.len() > 0 => {
                    joins = true;
                    continue;
                }
            };
            match answered {
                None => return Ok((won, silent.filter(|_| !has_answer))),
                Some((at, Ok(Some(guard)))) => {
                    won.insert(at, guard);
                    until.get_or_insert_with(|| Instant::now() + STRAGGLERS);
                    if kept.len() + won.len() >= self.majority() {
                        return Ok((won, None));
                    }
                    has_answer = true;
                }
                // A permanent error: waiting longer does not help.
                Some((_, Err(error))) if !error.is_transient() => return Err(error),
                // The next round asks the others.
                Some((_, Ok(None))) => has_answer = true,
                Some((_, Err(error))) => silent = Some(error),
            }
        }
    }

    /// Extends the parts that were kept while the call waited to a whole lease. If that fails for a part, the call
    /// releases the part, and asks for it again in the next round.
    async fn refresh(&self, kept: &mut BTreeMap<usize, Guard>) {
        let extended = kept.iter().map(|(at, guard)| async move {
            let handle = &self.locks[*at].handle;
            let lease = handle.whole_lease();
            // A part that the watchdog renews need not be extended while half of its lease is left.
            let enough = if handle.fixed_lease().is_none() { lease / 2 } else { lease * 9 / 10 };
            let is_whole = guard.rest_of_lease() > enough;
            let extend = timeout(handle.attempt_limit(), guard.extend(lease));
            (is_whole || matches!(extend.await, Ok(Ok(())))).then_some(*at)
        });
        let fresh: Vec<_> = join_all(extended).await.into_iter().flatten().collect();
        kept.retain(|at, _| fresh.contains(at));
    }
}

/// The result of a round.
enum Judged {
    Won(RedGuard),
    /// Other callers hold too many servers: which ones, and the parts that this call has.
    Held(Vec<usize>, BTreeMap<usize, Guard>),
    /// Too few servers answered.
    Failed(Error),
}

async fn ask(lock: &Lock) -> Result<Option<Guard>> {
    let limit = lock.handle.attempt_limit();
    timeout(limit, lock.try_lock()).await.unwrap_or_else(|_| Err(Error::cut_off(limit)))
}

/// Takes missing parts, as often as the watchdog renews the others, until the hold has ended.
///
/// Without this, a hold that outlives a restart of each server would be lost, though a majority has it all the time
/// (redsync#147).
async fn retake(locks: Arc<[Lock]>, parts: Weak<GuardSet>) {
    let pace = locks.iter().map(|lock| lock.handle.whole_lease() / 3).min().unwrap_or_default();
    loop {
        sleep(pace).await;
        let missing = |parts: Arc<GuardSet>| {
            let missing = locks.iter().filter(|lock| !parts.has_part_of(&lock.handle.engine));
            missing.map(ask).collect::<FuturesUnordered<_>>()
        };
        let held = parts.upgrade().filter(|parts| !parts.view.rest_of_lease().is_zero());
        let Some(mut asked) = held.map(missing) else { return };
        while let Some(answer) = asked.next().await {
            if let (Ok(Some(guard)), Some(parts)) = (answer, parts.upgrade()) {
                parts.join(guard);
            }
        }
    }
}

/// One error for the errors of several servers: a permanent one if there is any, or else one after which a request may
/// have run.
fn worst(failed: impl Iterator<Item = Error>) -> Error {
    let mildness = |error: &Error| match error {
        Error::Unavailable { .. } => 2,
        Error::Indeterminate { .. } => 1,
        _ => 0,
    };
    failed.min_by_key(mildness).unwrap_or_else(|| Error::Unavailable {
        source: said("a majority of the servers granted the lock too late"),
    })
}

impl fmt::Debug for RedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedLock").field("locks", &self.locks).finish()
    }
}
