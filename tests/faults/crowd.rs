//! Many callers that want the same lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parklock::{Client, Lock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::common::{Admin, Class, Server, eventually, judged, timeout};
use crate::scene::{LONG, Scene};
use crate::{SOON, as_user, channel, connect, patient, scripts_run, somebody_waits};

/// Callers of one lock, each of whom takes it once, and never two at a time.
struct Crowd {
    callers: JoinSet<()>,
    started: Arc<AtomicUsize>,
}

impl Crowd {
    fn of(lock: &Lock, size: usize) -> Self {
        let (mut callers, started) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        let inside = Arc::new(AtomicUsize::new(0));
        for _ in 0..size {
            let (lock, started, inside) = (lock.clone(), Arc::clone(&started), Arc::clone(&inside));
            callers.spawn(async move {
                started.fetch_add(1, Ordering::SeqCst);
                let guard = lock.lock().await.expect("its turn comes");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.unlock().await.expect("it is ours");
            });
        }
        Self { callers, started }
    }

    async fn waits(&self) {
        let all = async || self.started.load(Ordering::SeqCst) == self.callers.len();
        eventually(SOON, "all callers have come", all).await;
    }

    async fn served(mut self) {
        let all = async {
            while let Some(served) = self.callers.join_next().await {
                served.expect("no panic");
            }
        };
        timeout(SOON * 3, all).await.expect("everybody is served");
    }
}

/// F80: a thousand callers of one client want the same lock.
#[tokio::test]
async fn a_crowd_in_one_client_is_one_contender() {
    let server = Server::start().await;
    // Nobody looks again, or shows a sign of life, while the test counts.
    let quiet = patient().watchdog_timeout(2 * LONG).max_park(LONG).waiter_ttl(LONG);
    let [holder, client] =
        [connect(&server.url(), patient()).await, connect(&server.url(), quiet).await];
    let (guard, admin) = (holder.lock("a").lock().await.unwrap(), server.admin().await);
    admin.reset_stats().await;
    let crowd = Crowd::of(&client.lock("a"), 1000);
    crowd.waits().await;
    somebody_waits(&admin, "a").await;
    let asked = async || scripts_run(&admin).await >= 2;
    eventually(SOON, "the contender has asked, listened and asked again", asked).await;
    assert!(scripts_run(&admin).await <= 3, "and nobody else has");

    guard.unlock().await.unwrap();
    crowd.served().await;

    // A try and a release a turn, at the most; and one connection that listens, once.
    let scripts = scripts_run(&admin).await;
    assert!(scripts <= 2 * 1000 + 20, "{scripts}");
    assert_eq!(admin.command_calls("subscribe").await, 1);
    eprintln!("1000 turns of one client: {scripts} scripts");
}

/// F80: a thousand callers of ten clients want the same lock.
#[tokio::test]
async fn a_crowd_in_ten_clients_is_ten_contenders() {
    judged(async || {
        let server = Server::start().await;
        let holder = connect(&server.url(), patient()).await;
        let (guard, admin) = (holder.lock("a").lock().await.unwrap(), server.admin().await);
        admin.reset_stats().await;
        let mut crowds = Vec::new();
        for _ in 0..10 {
            let client = connect(&server.url(), patient()).await;
            crowds.push((Crowd::of(&client.lock("a"), 100), client));
        }
        for (crowd, _) in &crowds {
            crowd.waits().await;
        }
        let ten = async || admin.subscribers(&channel("a")).await == 10;
        eventually(SOON, "each client listens once", ten).await;

        guard.unlock().await.unwrap();
        for (crowd, client) in crowds {
            crowd.served().await;
            drop(client);
        }

        // A release and a try of each client for each turn, at the most.
        let scripts = scripts_run(&admin).await;
        assert!(scripts <= 11 * 1000 + 200, "{scripts}");
        eprintln!("1000 turns of ten clients: {scripts} scripts");
    })
    .await;
}

/// How many callers of a fair lock wait in one client.
const FAIR: usize = 1000;

/// A client with a crowd of callers of the fair lock `a`, which another client holds. None of them has to show a sign of life while
/// a test runs.
async fn fair_crowd(url: &str, admin: &Admin) -> (Client, JoinSet<()>) {
    let signs = patient().watchdog_timeout(2 * LONG).max_park(LONG);
    let client = connect(url, signs.response_timeout(LONG / 4).waiter_ttl(LONG)).await;
    let mut callers = JoinSet::new();
    for _ in 0..FAIR {
        let lock = client.fair_lock("a");
        callers.spawn(async move { drop(lock.lock().await.expect("its turn comes")) });
    }
    let all = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == FAIR;
    eventually(LONG, "all of them wait", all).await;
    (client, callers)
}

/// How many requests there were since the statistics were reset, if these are no more than so many, and so many in a second.
async fn are_at_most(admin: &Admin, began: Instant, at_once: u64, each_second: f64) {
    let (scripts, took) = (scripts_run(admin).await, began.elapsed());
    eprintln!("{scripts} requests of {FAIR} callers in {took:?}");
    let most = at_once + (took.as_secs_f64() * each_second) as u64;
    assert!(scripts <= most, "{scripts} requests of {FAIR} callers in {took:?}");
}

/// Messages to all, and channels that come and go, concern every caller of a fair lock.
#[tokio::test]
async fn what_concerns_a_crowd_of_a_fair_lock_makes_its_callers_ask_one_after_the_other() {
    let scene = Scene::new().await;
    let theirs = scene.other().await.fair_lock("a").lock().await.unwrap();
    let (_client, _callers) = fair_crowd(&scene.proxy.url(), &scene.admin).await;
    for comes_and_goes in [false, true] {
        sleep(Duration::from_millis(1500)).await;
        scene.admin.reset_stats().await;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) {
            if comes_and_goes {
                scene.proxy.reset(Class::Subscriber).await;
            }
            for _ in 0..10 {
                scene.admin.publish(&channel("a"), "eve").await;
                sleep(Duration::from_millis(10)).await;
            }
        }
        are_at_most(&scene.admin, began, 400, 1_000.).await;
    }
    theirs.unlock().await.unwrap();
}

/// No message reaches these callers, so they ask from time to time.
#[tokio::test]
async fn a_crowd_of_a_fair_lock_that_hears_nothing_asks_the_more_seldom_the_further_back_it_is() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let theirs = connect(&server.url(), patient()).await.fair_lock("a").lock().await.unwrap();
    let rules = ["~*", "resetchannels", "+@all", "-subscribe"];
    let user = [&["ACL", "SETUSER", "deaf", "on", ">pass"][..], &rules].concat();
    admin.cmd::<()>(&user).await;
    let (_client, _callers) = fair_crowd(&as_user(&server, "deaf", "pass"), &admin).await;
    sleep(Duration::from_millis(1500)).await;
    admin.reset_stats().await;
    let began = Instant::now();
    sleep(Duration::from_secs(3)).await;
    are_at_most(&admin, began, 200, 1_000.).await;
    theirs.unlock().await.unwrap();
}
