//! Callers of one client on several runtimes. What a caller does for others goes on when its own runtime does not run.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use common::fixture::{
    A_WHILE, LONG, SOON, client, client_with, comes_in, key, parked, quick, scripts,
};
use common::rights::{rules, user};
use common::sentinels::primary_and_replicas;
use common::{Admin, Proxy, Server, Watch, eventually, judged, timeout};
use futures_util::future::{BoxFuture, join_all, poll_fn};
use futures_util::task::AtomicWaker;
use parklock::{Client, Config, Error, Guard, HandOff, Layout, MultiLock, Result};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How a runtime stops: its only thread does something else, or nobody drives it between two `block_on`.
#[derive(Debug, Clone, Copy)]
enum Way {
    Blocked,
    NotDriven,
}

const WAYS: [Way; 2] = [Way::Blocked, Way::NotDriven];

/// A call on a `current_thread` runtime of its own, which the test stops.
struct Stopped<T> {
    brake: Arc<Brake>,
    goes_on: mpsc::Sender<()>,
    thread: thread::JoinHandle<T>,
}

#[derive(Default)]
struct Brake {
    is_on: AtomicBool,
    call: AtomicWaker,
    has_stopped: Notify,
}

impl<T: Send + 'static> Stopped<T> {
    fn starts(way: Way, call: impl Future<Output = T> + Send + 'static) -> Self {
        let (brake, (goes_on, over)) = (Arc::<Brake>::default(), mpsc::channel());
        let seen = Arc::clone(&brake);
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let mut call = Box::pin(call);
            let rests = || {
                seen.has_stopped.notify_one();
                // An error: the test is over.
                let _ = over.recv();
            };
            let ended = runtime.block_on(poll_fn(|context| {
                seen.call.register(context.waker());
                match (call.as_mut().poll(context), way) {
                    (Poll::Ready(ended), _) => return Poll::Ready(Some(ended)),
                    (Poll::Pending, _) if !seen.is_on.swap(false, Ordering::SeqCst) => {}
                    (Poll::Pending, Way::Blocked) => rests(),
                    (Poll::Pending, Way::NotDriven) => return Poll::Ready(None),
                }
                Poll::Pending
            }));
            ended.unwrap_or_else(|| {
                rests();
                runtime.block_on(call)
            })
        });
        Self { brake, goes_on, thread }
    }

    /// Stops its runtime where the call waits now.
    async fn stops(&self) {
        self.will_stop();
        self.brake.call.wake();
        self.has_stopped().await;
    }

    /// Its runtime stops where the call next waits.
    fn will_stop(&self) {
        self.brake.is_on.store(true, Ordering::SeqCst);
    }

    async fn has_stopped(&self) {
        timeout(SOON, self.brake.has_stopped.notified()).await.expect("the runtime is stopped");
    }

    /// The end of the call. Its runtime goes on.
    async fn ends(self) -> T {
        self.goes_on.send(()).expect("it waits for this");
        let thread = tokio::task::spawn_blocking(|| self.thread.join().expect("no panic"));
        timeout(SOON, thread).await.expect("it is polled").expect("no panic")
    }
}

type Asked = BoxFuture<'static, Result<Guard>>;
type Lock = fn(Client, String) -> Asked;

/// Each way to wait, and what keeps its callers waiting.
const LOCKS: [(&str, Lock, Lock); 5] = [
    ("lock", lock, lock),
    ("fair", fair, fair),
    ("read", read, write),
    ("write", write, write),
    ("permit", permit, permit),
];

fn lock(client: Client, name: String) -> Asked {
    Box::pin(async move { client.lock(name).lock().await })
}

fn fair(client: Client, name: String) -> Asked {
    Box::pin(async move { client.fair_lock(name).lock().await })
}

fn read(client: Client, name: String) -> Asked {
    Box::pin(async move { client.rw_lock(name).read().await })
}

fn write(client: Client, name: String) -> Asked {
    Box::pin(async move { client.rw_lock(name).write().await.map(|guard| guard.into_guard()) })
}

fn permit(client: Client, name: String) -> Asked {
    Box::pin(async move { client.semaphore(name, 1).acquire().await })
}

async fn comes(what: &str, call: impl Future<Output = Result<Guard>>) -> Guard {
    let came = timeout(SOON, call).await;
    came.unwrap_or_else(|_| panic!("{what}: stopped by a runtime that does not run")).expect(what)
}

/// A caller on the runtime of its client has the lock although that one's runtime stands still, and then that one has it.
async fn both_come(
    what: &str,
    second: impl Future<Output = Result<Guard>>,
    stopped: Stopped<Result<Guard>>,
) {
    comes(what, second).await.unlock().await.expect("it is ours");
    comes(what, stopped.ends()).await.unlock().await.expect("it is ours");
}

fn spawned(call: Asked) -> impl Future<Output = Result<Guard>> {
    let call: JoinHandle<_> = tokio::spawn(call);
    async move { call.await.expect("no panic") }
}

/// The contender waits for the end of the holder's lease. A lease that ends sends no message.
#[tokio::test]
async fn a_parked_caller_whose_runtime_does_not_run_stops_nobody() {
    judged(async || each_parked_caller_stops_nobody(quick()).await).await;
}

/// In its layout no line skips a client that shows no signs of life.
#[tokio::test]
async fn a_parked_caller_of_redissons_whose_runtime_does_not_run_stops_nobody() {
    judged(async || each_parked_caller_stops_nobody(quick().layout(Layout::Redisson)).await).await;
}

async fn each_parked_caller_stops_nobody(config: Config) {
    let server = Server::start().await;
    let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
    let dies = comes_in(proxy.url(), config.clone()).await;
    let ours = client_with(&server, config).await;
    let scenes = join_all(LOCKS.into_iter().flat_map(|(kind, asks, keeps)| {
        WAYS.map(|way| {
            let name = format!("{kind}-{way:?}");
            let (admin, dies, ours) = (&admin, dies.clone(), ours.clone());
            async move {
                let held = keeps(dies, name.clone()).await.expect("it is free");
                let stopped = Stopped::starts(way, asks(ours.clone(), name.clone()));
                // Each layout has channels of its own.
                let channels = async || admin.channels().await;
                let listens =
                    async || channels().await.iter().any(|channel| channel.contains(&name));
                eventually(SOON, "it listens", listens).await;
                sleep(A_WHILE).await;
                stopped.stops().await;
                (held, stopped, spawned(asks(ours, name.clone())), name)
            }
        })
    }));
    let scenes = scenes.await;
    let _silent = proxy.blackhole(None);
    let ends = scenes.into_iter().map(|(held, stopped, second, name)| async move {
        both_come(&name, second, stopped).await;
        drop(held);
    });
    join_all(ends).await;
}

/// A latch that opens is told to the client once, for all of its waiters.
#[tokio::test]
async fn a_waiter_for_a_latch_on_a_runtime_that_does_not_run_stops_nobody() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    for way in WAYS {
        let name = format!("{way:?}");
        let waits = |client: &Client| {
            let latch = client.count_down_latch(&*name);
            async move { latch.wait().await }
        };
        theirs.count_down_latch(&*name).set(1).await.expect("it is new");
        let stopped = Stopped::starts(way, waits(&ours));
        parked(&admin, &name, 1).await;
        sleep(A_WHILE).await;
        stopped.stops().await;
        let second = tokio::spawn(waits(&ours));
        theirs.count_down_latch(&*name).count_down().await.expect("the server answers");
        let opened = timeout(SOON, second).await.expect("stopped by a runtime that does not run");
        opened.expect("no panic").expect("it is open");
        stopped.ends().await.expect("it is open");
    }
}

#[tokio::test]
async fn a_multi_lock_that_waits_on_a_runtime_that_does_not_run_stops_nobody() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    for way in WAYS {
        let (name, free) = (format!("{way:?}"), format!("{way:?}, free"));
        let held = lock(theirs.clone(), name.clone()).await.expect("it is free");
        let both = MultiLock::new([ours.lock(&*name), ours.lock(&*free)]);
        let stopped = Stopped::starts(way, async move { both.lock().await });
        parked(&admin, &name, 1).await;
        sleep(A_WHILE).await;
        stopped.stops().await;
        let second = spawned(lock(ours.clone(), name.clone()));
        held.unlock().await.expect("it is ours");
        comes(&name, second).await.unlock().await.expect("it is ours");
        stopped.ends().await.expect("both are free").unlock().await.expect("they are ours");
    }
}

/// A caller that does not wait says only for so long that the lock is held.
#[tokio::test]
async fn a_try_is_not_refused_for_a_caller_whose_runtime_does_not_run() {
    /// The lease of a holder that is dead, and two `pickup_timeout`.
    const LEASE: Duration = Duration::from_secs(3);
    const PICKED_UP: Duration = Duration::from_millis(500);
    judged(async || {
        let server = Server::start().await;
        let admin = server.admin().await;
        let ours = client_with(&server, quick().pickup_timeout(PICKED_UP / 2)).await;
        for way in WAYS {
            let (name, watch) = (format!("{way:?}"), Watch::start());
            let key = key(&name);
            admin.cmd::<()>(&["HSET", &key, "dead:1", "1"]).await;
            admin.cmd::<()>(&["PEXPIRE", &key, &LEASE.as_millis().to_string()]).await;
            let stopped = Stopped::starts(way, lock(ours.clone(), name.clone()));
            parked(&admin, &name, 1).await;
            sleep(A_WHILE).await;
            stopped.stops().await;
            let tried = async || {
                let tried = ours.lock(&name).try_lock().await.expect("the server answers");
                tried.is_some()
            };
            eventually(SOON, "a try has the lock", tried).await;
            let took = watch.passed();
            assert!(took < LEASE + PICKED_UP * 2, "{way:?}: {took:?}");
            both_come(&name, lock(ours.clone(), name.clone()), stopped).await;
        }
    })
    .await;
}

/// The contender pauses between two requests that the server refuses.
#[tokio::test]
async fn a_caller_that_rides_out_a_fault_on_a_runtime_that_does_not_run_stops_nobody() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let ours = client_with(&server, Config::default().ride_out(LONG)).await;
    for way in WAYS {
        admin.config_set("maxmemory", "1").await;
        let refused = scripts(&admin).await;
        let stopped = Stopped::starts(way, lock(ours.clone(), "a".to_owned()));
        let asked = async || scripts(&admin).await > refused + 1;
        eventually(SOON, "it was refused", asked).await;
        stopped.stops().await;
        let second = spawned(lock(ours.clone(), "a".to_owned()));
        admin.config_set("maxmemory", "0").await;
        both_come("it pauses", second, stopped).await;
    }
}

/// The contender pauses until another client has given a kept lock back.
#[tokio::test]
async fn a_try_that_pauses_on_a_runtime_that_does_not_run_stops_nobody() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let admin = server.admin().await;
    proxy.name_script("tries", include_str!("../../lua/line/acquire_all.lua"));
    proxy.name_script("tries", include_str!("../../lua/line/acquire.lua"));
    proxy.name_script("tries", include_str!("../../lua/line/take.lua"));
    let keeps = client_with(&server, Config::default().keep(LONG)).await;
    let ours = comes_in(proxy.url(), Config::default()).await;
    type Tries = fn(Client) -> BoxFuture<'static, Result<bool>>;
    let tries: [(&str, Tries); 2] = [
        ("a lock", |client| {
            Box::pin(async move { Ok(client.lock("b").try_lock().await?.is_some()) })
        }),
        ("several", |client| {
            Box::pin(
                async move { Ok(client.multi_lock(["a", "b", "c"]).try_lock().await?.is_some()) },
            )
        }),
    ];
    for (what, tries) in tries {
        for way in WAYS {
            let kept = async || {
                keeps.lock("b").lock().await.expect("free").unlock().await.expect("it is ours");
                admin.cmd::<u64>(&["EXISTS", &key("b")]).await == 1
            };
            eventually(SOON, "it is kept", kept).await;
            let answer = proxy.script("tries").nth(1).hold_reply();
            let stopped = Stopped::starts(way, tries(ours.clone()));
            answer.happened().await;
            stopped.will_stop();
            answer.lift();
            stopped.has_stopped().await;
            comes(what, lock(ours.clone(), "b".to_owned()))
                .await
                .unlock()
                .await
                .expect("it is ours");
            stopped.ends().await.expect("the server answers");
        }
    }
}

/// The caller has no connection, and waits for one.
#[tokio::test]
async fn a_caller_that_waits_for_a_connection_on_a_runtime_that_does_not_run_stops_nobody() {
    type Asks = fn(Client) -> BoxFuture<'static, Result<()>>;
    let asks: [(&str, Asks); 3] = [
        ("a lock", |client| Box::pin(async move { client.lock("a").lock().await?.unlock().await })),
        ("a try", |client| Box::pin(async move { client.lock("a").try_lock().await.map(drop) })),
        ("a try of several", |client| {
            Box::pin(async move { client.multi_lock(["a", "b"]).try_lock().await.map(drop) })
        }),
    ];
    let server = Server::start().await;
    for (what, asks) in asks {
        for way in WAYS {
            let proxy = Proxy::before(&server).await;
            let patient = Config::default().watchdog_timeout(LONG).response_timeout(LONG / 4);
            let ours = comes_in(proxy.url(), patient).await;
            let connects = proxy.command("HELLO").hold_reply();
            proxy.reset(None).await;
            connects.happened().await;
            let stopped = Stopped::starts(way, asks(ours.clone()));
            stopped.stops().await;
            let second = spawned(lock(ours.clone(), "a".to_owned()));
            connects.lift();
            comes(what, second).await.unlock().await.expect("it is ours");
            stopped.ends().await.expect("the server answers");
            // What was dropped is given back before the proxy goes.
            ours.close().await;
        }
    }
}

/// A client of Redisson's that has offered its lock to others pauses before it asks again.
#[tokio::test]
async fn a_caller_that_lets_others_go_first_on_a_runtime_that_does_not_run_stops_nobody() {
    let server = Server::start().await;
    let each_asks = HandOff { max_consecutive: 0, ..HandOff::default() };
    for way in WAYS {
        let proxy = Proxy::before(&server).await;
        proxy.name_script("release", include_str!("../../lua/redisson/lock/release.lua"));
        let config = Config::default().layout(Layout::Redisson).hand_off(each_asks);
        let ours = comes_in(proxy.url(), config).await;
        let held = lock(ours.clone(), "a".to_owned()).await.expect("it is free");
        let stopped = Stopped::starts(way, lock(ours.clone(), "a".to_owned()));
        sleep(A_WHILE).await;
        let offered = proxy.script("release").nth(1).hold_reply();
        let unlocked = tokio::spawn(held.unlock());
        offered.happened().await;
        stopped.will_stop();
        offered.lift();
        stopped.has_stopped().await;
        unlocked.await.expect("no panic").expect("it is ours");
        both_come("it pauses", lock(ours.clone(), "a".to_owned()), stopped).await;
    }
}

/// A call that does not wait finds the lock held, perhaps by its own client, which has not been able to give it back. What
/// replicas acknowledge has a connection of its own, so the release cannot go ahead of the request.
#[tokio::test]
async fn a_try_that_waits_for_a_release_on_a_runtime_that_does_not_run_stops_nobody() {
    type Tries = fn(Client) -> BoxFuture<'static, Result<()>>;
    let tries: [(&str, Tries); 2] = [
        ("a lock", |client| Box::pin(async move { client.lock("a").try_lock().await.map(drop) })),
        ("several", |client| {
            Box::pin(async move { client.multi_lock(["a", "b"]).try_lock().await.map(drop) })
        }),
    ];
    let servers = primary_and_replicas(1, Server::builder).await;
    for (what, tries) in tries {
        for way in WAYS {
            let proxy = Proxy::before(&servers[0]).await;
            proxy.name_acquires();
            proxy.name_script("acquire", include_str!("../../lua/line/acquire_all.lua"));
            proxy.name_script("release", include_str!("../../lua/line/release.lua"));
            let ours = comes_in(proxy.url(), Config::default().replicas(1)).await;
            let held = lock(ours.clone(), "a".to_owned()).await.expect("it is free");
            let lost = proxy.script("release").nth(1).cut_before();
            let repeated = proxy.script("release").nth(2).hold_request();
            drop(held);
            lost.happened().await;
            repeated.happened().await;
            let refused = proxy.script("acquire").nth(1).hold_reply();
            let stopped = Stopped::starts(way, tries(ours.clone()));
            refused.happened().await;
            stopped.will_stop();
            refused.lift();
            stopped.has_stopped().await;
            let second = spawned(lock(ours.clone(), "a".to_owned()));
            repeated.lift();
            comes(what, second).await.unlock().await.expect("it is ours");
            // What it has waited for may have taken longer than one answer.
            let ended = stopped.ends().await;
            assert!(matches!(ended, Ok(()) | Err(Error::Unavailable { .. })), "{ended:?}");
            // What was dropped is given back before the proxy goes.
            ours.close().await;
        }
    }
}

/// The addresses of a host are looked up on the threads for blocking work of the client's runtime.
#[tokio::test]
async fn calls_end_in_time_while_no_thread_can_look_up_the_host() {
    const RIDE_OUT: Duration = Duration::from_millis(300);
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let url = format!("redis://localhost:{}", proxy.port());
    let config = quick().ride_out(RIDE_OUT);
    let (goes_on, over) = mpsc::channel::<()>();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let ours = runtime.spawn(comes_in(url, config)).await.expect("no panic");
    let held = lock(ours.clone(), "held".to_owned()).await.expect("it is free");
    let (begins, begun) = tokio::sync::oneshot::channel();
    runtime.spawn_blocking(move || {
        let _ = begins.send(());
        // An error: the test is over.
        let _ = over.recv();
    });
    begun.await.expect("it blocks the only thread");
    proxy.reset(None).await;
    // A request may still be on its way when the client notices that its connection is over.
    let notices =
        async || matches!(ours.lock("b").try_lock().await, Err(Error::Unavailable { .. }));
    eventually(SOON, "the client notices", notices).await;

    for _ in 0..3 {
        let began = Watch::start();
        let (waits, tries) = (ours.lock("a"), ours.lock("b"));
        let (waits, tries) = tokio::join!(timeout(SOON, waits.lock()), tries.try_lock());
        let waits = waits.expect("it does not wait for that thread");
        assert!(matches!(waits, Err(Error::Unavailable { .. })), "{waits:?}");
        assert!(matches!(tries, Err(Error::Unavailable { .. })), "{tries:?}");
        assert!(began.passed() < SOON / 4, "{:?}", began.passed());
    }
    timeout(SOON, held.ended()).await.expect("the lease ends without that thread");
    goes_on.send(()).expect("it waits for this");
    let again = async || ours.lock("a").try_lock().await.is_ok();
    eventually(SOON, "the client is connected again", again).await;
    runtime.shutdown_background();
}

/// The contender hears no message, so it asks again and again.
#[tokio::test]
async fn a_caller_that_may_not_subscribe_and_whose_runtime_does_not_run_stops_nobody() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let mut rules = rules("docs/operations.md");
    rules.retain(|rule| rule != "+subscribe");
    let ours = comes_in(user(&server, &rules).await, Config::default()).await;
    let theirs = client_with(&server, Config::default()).await;
    for way in WAYS {
        let held = theirs.lock("a").lock().await.expect("it is free");
        let stopped = Stopped::starts(way, lock(ours.clone(), "a".to_owned()));
        stands(&admin, 1).await;
        sleep(A_WHILE).await;
        stopped.stops().await;
        let second = spawned(lock(ours.clone(), "a".to_owned()));
        held.unlock().await.expect("it is ours");
        both_come("it is deaf", second, stopped).await;
    }
}

async fn stands(admin: &Admin, waiters: usize) {
    let all = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == waiters;
    eventually(SOON, &format!("{waiters} wait"), all).await;
}

/// Callers far from the front of a fair lock, one of which asks for all of them. Everybody before them dies.
#[tokio::test]
async fn callers_that_ask_for_others_on_runtimes_that_do_not_run_stop_nobody() {
    judged(async || {
        let server = Server::start().await;
        for way in WAYS {
            let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
            let dies = comes_in(proxy.url(), quick()).await;
            let _held = fair(dies.clone(), "a".to_owned()).await.expect("it is free");
            let near: Vec<_> =
                (1..=4).map(|_| tokio::spawn(fair(dies.clone(), "a".to_owned()))).collect();
            stands(&admin, 4).await;
            let ours = client_with(&server, quick()).await;
            let mut stopped = Vec::new();
            for far in 1..=3 {
                stopped.push(Stopped::starts(way, fair(ours.clone(), "a".to_owned())));
                stands(&admin, 4 + far).await;
            }
            let second = spawned(fair(ours.clone(), "a".to_owned()));
            stands(&admin, 8).await;
            sleep(A_WHILE).await;
            for stopped in &stopped {
                stopped.stops().await;
            }
            let _silent = proxy.blackhole(None);
            comes("it asks for all", second).await.unlock().await.expect("it is ours");
            for stopped in stopped {
                comes("it asks for all", stopped.ends()).await.unlock().await.expect("it is ours");
            }
            near.iter().for_each(JoinHandle::abort);
        }
    })
    .await;
}

/// The limit for an answer passes on the runtime of the caller. The lease is much longer than the test.
#[tokio::test]
async fn a_request_without_an_answer_on_a_runtime_that_does_not_run_stops_nobody() {
    let server = Server::start().await;
    for way in WAYS {
        let proxy = Proxy::before(&server).await;
        proxy.name_acquires();
        let ours = comes_in(proxy.url(), Config::default()).await;
        let answer = proxy.script("acquire").nth(1).hold_reply();
        let stopped = Stopped::starts(way, lock(ours.clone(), "a".to_owned()));
        answer.happened().await;
        stopped.stops().await;
        both_come("no answer", lock(ours.clone(), "a".to_owned()), stopped).await;
    }
}

/// The notified waiter of a condition does not run: the next one is woken.
#[tokio::test]
async fn a_notification_does_not_stay_at_a_runtime_that_does_not_run() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let ours = client(&server).await;
    let waits = |client: Client| async move {
        let guard = client.lock("a").lock().await?;
        guard.wait(&client.condition("ready")).await
    };
    for way in WAYS {
        let stopped = Stopped::starts(way, waits(ours.clone()));
        let lines = async |waiters: usize| {
            let keys = admin.keys().await;
            let line = keys.iter().find(|key| key.contains("queue") && key.contains("ready"));
            match line {
                Some(line) => admin.cmd::<usize>(&["ZCARD", line]).await == waiters,
                None => false,
            }
        };
        eventually(SOON, "it waits", async || lines(1).await).await;
        let free = async || admin.cmd::<u64>(&["EXISTS", "lock:{a}"]).await == 0;
        eventually(SOON, "it has given the lock back", free).await;
        stopped.stops().await;
        let second = spawned(Box::pin(waits(ours.clone())));
        eventually(SOON, "both wait", async || lines(2).await).await;
        ours.condition("ready").notify_one().await.expect("it is answered");
        comes("a notification", second).await.unlock().await.expect("it is ours");
        ours.condition("ready").notify_all().await.expect("it is answered");
        comes("the first waiter", stopped.ends()).await.unlock().await.expect("it is ours");
    }
}

/// Nobody renews a fixed lease, so nothing can warn its holder before its runtime runs again.
#[tokio::test]
async fn a_fixed_lease_that_ends_while_its_runtime_is_blocked_is_lost_and_the_waiter_comes_in() {
    let server = Server::start().await;
    let (url, theirs) = (server.url(), client(&server).await);
    let (holds, is_held) = tokio::sync::oneshot::channel();
    let (goes_on, over) = mpsc::channel::<()>();
    let blocked = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let lock = comes_in(url, Config::default()).await.lock("a").lease(A_WHILE * 5);
            let guard = lock.lock().await.expect("it is free");
            holds.send(guard.token()).expect("the test goes on");
            over.recv().expect("the test goes on");
            assert!(!guard.is_valid());
            guard.unlock().await
        })
    });
    let token = is_held.await.expect("it takes the lock");
    let guard = comes("the end of the lease", theirs.lock("a").lock()).await;
    assert!(guard.token() > token);
    goes_on.send(()).expect("it is still blocked");
    let ended = tokio::task::spawn_blocking(|| blocked.join()).await.expect("it ends");
    let ended = ended.expect("no panic");
    assert!(matches!(&ended, Err(Error::Lost { name }) if name == "a"), "{ended:?}");
    assert!(guard.is_valid());
    guard.unlock().await.expect("it is ours");
}
