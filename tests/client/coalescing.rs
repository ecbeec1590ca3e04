//! Requests that wait at the same moment travel together, and each has its own answer and its own fate.

use crate::common;

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use common::fixture::comes_in;
use common::rights::{as_user, untold};
use common::{Admin, Fault, Proxy, Server, eventually, judged, timeout};
use futures_util::future::{BoxFuture, join_all};
use parklock::{Client, Config, Error, Guard, Lock, Result};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// As long as a background effect may take on a machine that has other things to do. Leases are longer.
const SOON: Duration = Duration::from_secs(10);

/// Locks that are asked for at once. The first request is sent alone, and all others after it share one.
const MANY: usize = 20;

/// The numbers of keys in a call: of one acquire, and of the acquires and releases that share a request.
const ONE_ACQUIRE: &str = "\r\n$1\r\n4\r\n";
const ONE_RELEASE: &str = "\r\n$1\r\n4\r\n";
const OTHER_ACQUIRES: &str = "\r\n$2\r\n39\r\n";
const OTHER_RELEASES: &str = "\r\n$2\r\n58\r\n";

struct Stage {
    client: Client,
    admin: Admin,
    proxy: Proxy,
    server: Server,
}

impl Stage {
    async fn set() -> Self {
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        proxy.name_acquires();
        proxy.name_script("release", include_str!("../../lua/line/release.lua"));
        let client = comes_in(proxy.url(), config()).await;
        Self { client, admin: server.admin().await, proxy, server }
    }

    /// The same, for a client that the server does not tell that a lock has gone.
    async fn untold() -> Self {
        let stage = Self::set().await;
        untold(&stage.server).await;
        let client = comes_in(as_user(&stage.proxy.url()), config()).await;
        Self { client, ..stage }
    }

    fn locks(&self, names: usize) -> Vec<Lock> {
        (0..names).map(|number| self.client.lock(name(number))).collect()
    }

    /// Waits until nothing is left in the server but the token counter.
    async fn is_clean(&self) {
        let clean = async || self.held().await.is_empty() && self.admin.channels().await.is_empty();
        eventually(SOON, "nothing is left in redis", clean).await;
    }

    /// All keys but the token counter.
    async fn held(&self) -> Vec<String> {
        let mut keys = self.admin.keys().await;
        keys.retain(|key| key != "lock:grants");
        keys
    }
}

fn config() -> Config {
    Config::default().subscription_linger(Duration::from_millis(30))
}

fn name(number: usize) -> String {
    format!("name-{number:03}")
}

fn key(number: usize) -> String {
    format!("lock:{{{}}}", name(number))
}

/// Asks for all of them in one go: no other task runs before the last has asked.
fn all_at_once(locks: Vec<Lock>) -> Pin<Box<dyn Future<Output = Vec<Result<Guard>>> + Send>> {
    Box::pin(join_all(locks.into_iter().map(|lock| async move { lock.lock().await })))
}

async fn unlocked(guards: Vec<Guard>) -> Vec<Result<()>> {
    timeout(SOON, join_all(guards.into_iter().map(Guard::unlock))).await.expect("an answer")
}

fn all_ok<T>(results: Vec<Result<T>>) -> Vec<T> {
    results.into_iter().map(|result| result.expect("no fault")).collect()
}

#[tokio::test]
async fn a_lone_request_is_one_script_about_one_lock() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("a");
    let rule = |script, keys| stage.proxy.script(script).about(keys).count();
    let [acquires, releases] = [rule("acquire", ONE_ACQUIRE), rule("release", ONE_RELEASE)];
    stage.admin.reset_stats().await;
    for pair in 1..=10 {
        lock.lock().await.unwrap().unlock().await.unwrap();
        assert_eq!((acquires.fired(), releases.fired()), (pair, pair));
    }
    assert_eq!(stage.admin.command_calls("evalsha").await, 20);
}

/// Gathering would cost a request up to a round trip. The test compares the quickest of several requests, so that a
/// busy machine does no harm.
#[tokio::test]
async fn a_lone_request_waits_for_nobody() {
    judged(async || {
        const LATE: Duration = Duration::from_millis(60);
        let stage = Stage::set().await;
        let lock = stage.client.lock("a");
        let late = stage.proxy.command("EVALSHA").delay_reply(LATE, Duration::ZERO);
        let mut quickest = [Duration::MAX; 2];
        for _ in 0..8 {
            let started = Instant::now();
            let guard = lock.lock().await.unwrap();
            quickest[0] = quickest[0].min(started.elapsed());
            let started = Instant::now();
            guard.unlock().await.unwrap();
            quickest[1] = quickest[1].min(started.elapsed());
        }
        assert_eq!(late.fired(), 16);
        assert!(quickest.iter().all(|took| *took < LATE * 3 / 2), "{quickest:?}");
    })
    .await;
}

/// A kind, and how one of its locks is taken.
type Taken = (&'static str, fn(&Client, String) -> BoxFuture<'static, Result<Guard>>);

const WRITE: Taken = ("write", |client, name| {
    let lock = client.rw_lock(name);
    Box::pin(async move { lock.write().await.map(Into::into) })
});

const KINDS: [Taken; 5] = [
    ("plain", |client, name| {
        let lock = client.lock(name);
        Box::pin(async move { lock.lock().await })
    }),
    ("fair", |client, name| {
        let lock = client.fair_lock(name);
        Box::pin(async move { lock.lock().await })
    }),
    ("read", |client, name| {
        let lock = client.rw_lock(name);
        Box::pin(async move { lock.read().await })
    }),
    WRITE,
    ("permits", |client, name| {
        let semaphore = client.semaphore(name, 3);
        Box::pin(async move { semaphore.acquire_many(2).await })
    }),
];

#[tokio::test]
async fn two_hundred_tasks_share_a_few_scripts() {
    const TASKS: usize = 200;
    let stage = Stage::set().await;
    for (kind, take) in KINDS {
        stage.admin.reset_stats().await;
        let (mut takers, mut givers) = (JoinSet::new(), JoinSet::new());
        for number in 0..TASKS {
            takers.spawn(take(&stage.client, name(number)));
        }
        let guards = all_ok(takers.join_all().await);
        assert_eq!(stage.held().await.len(), TASKS);
        let acquires = stage.admin.command_calls("evalsha").await;
        for guard in guards {
            givers.spawn(guard.unlock());
        }
        all_ok(givers.join_all().await);
        let releases = stage.admin.command_calls("evalsha").await - acquires;
        eprintln!("{TASKS} of {kind}: {acquires} scripts to take, {releases} to give back");
        assert!(acquires <= 40 && releases <= 40, "{kind}: {acquires} and {releases}");
        stage.is_clean().await;
    }
}

/// Locks that others hold leave those beside them alone, and their callers wait as they would without them.
#[tokio::test]
async fn a_held_lock_is_waited_for_and_stops_nobody_beside_it() {
    let stage = Stage::set().await;
    let others = comes_in(stage.server.url(), config()).await;
    for (kind, take) in KINDS {
        // No reader comes in beside a writer.
        let hold = if kind == "read" { WRITE.1 } else { take };
        let mut held = Vec::new();
        for number in [2, 3, 11] {
            held.push(hold(&others, name(number)).await.expect("it is free"));
        }
        let mut takers = JoinSet::new();
        for number in 0..MANY {
            takers.spawn(take(&stage.client, name(number)));
        }
        let mut guards = Vec::new();
        while guards.len() < MANY - held.len() {
            let taken = timeout(SOON, takers.join_next()).await.expect("it is free");
            guards.push(taken.unwrap().unwrap().expect("no fault"));
        }
        assert_eq!(takers.len(), held.len(), "{kind}: the others wait");
        all_ok(unlocked(held).await);
        guards.extend(all_ok(timeout(SOON, takers.join_all()).await.expect("they are free")));
        all_ok(unlocked(guards).await);
        stage.is_clean().await;
    }
}

#[tokio::test]
async fn a_refused_request_leaves_those_beside_it_alone() {
    let stage = Stage::set().await;
    let strangers = [key(3), key(11)];
    for key in &strangers {
        stage.admin.cmd::<String>(&["SET", key, "a stranger's"]).await;
    }
    let together = stage.proxy.script("acquire").about(OTHER_ACQUIRES).count();

    let taken = timeout(SOON, all_at_once(stage.locks(MANY))).await.expect("an answer for each");

    assert_eq!(together.fired(), 1);
    let mut guards = Vec::new();
    for (number, guard) in taken.into_iter().enumerate() {
        match guard {
            Err(Error::Conflict { key: told, kind, .. }) => {
                assert_eq!((told, kind.as_str()), (key(number), "string"));
                assert!(strangers.contains(&key(number)));
            }
            guard => guards.push(guard.unwrap()),
        }
    }
    assert_eq!(guards.len(), MANY - strangers.len());
    all_ok(unlocked(guards).await);
    for key in &strangers {
        assert_eq!(stage.admin.cmd::<String>(&["GET", key]).await, "a stranger's");
    }
    assert_eq!(stage.held().await, strangers);
}

#[tokio::test]
async fn a_release_of_something_that_is_gone_leaves_those_beside_it_alone() {
    let stage = Stage::untold().await;
    let guards = all_ok(all_at_once(stage.locks(MANY)).await);
    stage.admin.cmd::<u32>(&["DEL", &key(3)]).await;
    stage.admin.cmd::<u32>(&["DEL", &key(11)]).await;
    stage.admin.cmd::<String>(&["SET", &key(11), "a stranger's"]).await;
    let together = stage.proxy.script("release").about(OTHER_RELEASES).count();
    for (number, released) in unlocked(guards).await.into_iter().enumerate() {
        match released {
            Err(Error::Lost { .. }) => assert!([3, 11].contains(&number)),
            released => released.unwrap(),
        }
    }
    assert_eq!(together.fired(), 1);
    assert_eq!(stage.held().await, [key(11)]);
}

#[tokio::test]
async fn a_lost_answer_is_resolved_for_each_that_waited_for_it() {
    for before in [true, false] {
        let stage = Stage::set().await;
        let rule = stage.proxy.script("acquire").about(OTHER_ACQUIRES).nth(1);
        let cut = if before { rule.cut_before() } else { rule.cut_after() };

        let taken = timeout(SOON, all_at_once(stage.locks(MANY))).await;

        assert_eq!(cut.fired(), 1);
        let guards = all_ok(taken.expect("they try again"));
        for (number, guard) in guards.iter().enumerate() {
            assert!(guard.is_valid());
            let fields = stage.admin.hgetall(&key(number)).await;
            assert_eq!(fields.len(), 1, "{fields:?}");
            guard.extend(Duration::from_secs(60)).await.expect("and it is this one's");
        }
        all_ok(unlocked(guards).await);
        stage.is_clean().await;
    }
}

#[tokio::test]
async fn a_lost_answer_to_a_single_attempt_is_said_to_be_unknown_and_leaves_nothing() {
    let stage = Stage::set().await;
    let cut = stage.proxy.script("acquire").about(OTHER_ACQUIRES).nth(1).cut_after();
    let locks = stage.locks(MANY);
    let tried = timeout(SOON, join_all(locks.iter().map(Lock::try_lock))).await.expect("an answer");
    assert_eq!(cut.fired(), 1);
    // How many were in the call whose answer was lost, is the scheduler's choice.
    let (unknown, others): (Vec<_>, Vec<_>) =
        tried.into_iter().partition(|tried| matches!(tried, Err(Error::Indeterminate { .. })));
    assert!(unknown.len() > 1, "{} unknown", unknown.len());
    assert!(others.iter().all(|tried| matches!(tried, Ok(Some(_)))), "{others:?}");
    drop(others);
    stage.is_clean().await;
}

#[tokio::test]
async fn a_lost_answer_to_releases_leaves_nothing() {
    for before in [true, false] {
        let stage = Stage::set().await;
        let guards = all_ok(all_at_once(stage.locks(MANY)).await);
        let rule = stage.proxy.script("release").about(OTHER_RELEASES).nth(1);
        let cut = if before { rule.cut_before() } else { rule.cut_after() };
        let released = unlocked(guards).await;
        assert_eq!(cut.fired(), 1);
        all_ok(released);
        stage.is_clean().await;
    }
}

#[tokio::test]
async fn callers_that_go_before_their_request_is_sent_leave_nothing() {
    let stage = Stage::set().await;
    let together = stage.proxy.script("acquire").about(OTHER_ACQUIRES).count();
    let mut callers = all_at_once(stage.locks(MANY));
    // They have queued for the next flight; the task that flies it has not run yet.
    assert!(callers.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(callers);
    stage.client.lock("a").lock().await.unwrap().unlock().await.unwrap();
    stage.is_clean().await;
    assert_eq!(together.fired(), 0);
}

/// Three stay, the others go while their shared request is at the given stage.
async fn some_go(hold: impl FnOnce(common::proxy::Rule) -> Fault) {
    let stage = Stage::set().await;
    let held = hold(stage.proxy.script("acquire").about(OTHER_ACQUIRES).nth(1));
    let callers = stage.locks(MANY).into_iter().map(|lock| async move { lock.lock().await });
    // All are polled before any other task runs.
    let mut callers: Vec<_> = callers.map(Box::pin).collect();
    for caller in &mut callers {
        assert!(caller.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    held.happened().await;
    callers.truncate(3);
    held.lift();
    let guards =
        all_ok(timeout(SOON, join_all(callers)).await.expect("the remaining callers are served"));
    let three = async || stage.held().await == [key(0), key(1), key(2)];
    eventually(SOON, "the grants of the others are given back", three).await;
    all_ok(unlocked(guards).await);
    stage.is_clean().await;
    drop(stage.server);
}

#[tokio::test]
async fn callers_that_go_while_their_request_is_on_its_way_leave_nothing() {
    some_go(|rule| rule.hold_request()).await;
}

#[tokio::test]
async fn callers_that_go_while_their_answer_is_on_its_way_leave_nothing() {
    some_go(|rule| rule.hold_reply()).await;
}

/// H1: a lock that was granted to callers that have gone does not refuse the next call.
#[tokio::test]
async fn a_lock_whose_caller_has_gone_is_not_in_the_way_of_the_next_try() {
    // Of fair locks, so many are asked for by their callers themselves. Further ones gather, and each goes alone.
    const STRAIGHT: usize = 64;
    let stage = Stage::set().await;
    let locks: Vec<_> =
        (0..STRAIGHT + 6).map(|number| stage.client.fair_lock(name(number))).collect();
    let held = stage.proxy.command("EVALSHA").nth(1).hold_reply();
    let mut callers = Box::pin(join_all(locks.iter().map(|lock| lock.lock())));
    assert!(callers.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let all_are_held = async || {
        let held = stage.held().await;
        (0..locks.len()).all(|number| held.contains(&key(number)))
    };
    eventually(SOON, "all are granted", all_are_held).await;
    drop(callers);

    let tries = join_all(locks[STRAIGHT..].iter().map(|lock| lock.try_lock()));
    let lifts = async {
        // So that the calls come before the answers.
        sleep(Duration::from_millis(100)).await;
        held.lift();
    };
    let (tried, ()) = timeout(SOON, async { tokio::join!(tries, lifts) }).await.expect("in time");
    for tried in tried {
        assert!(matches!(tried, Ok(Some(_))), "{tried:?}");
    }
    stage.is_clean().await;
}
