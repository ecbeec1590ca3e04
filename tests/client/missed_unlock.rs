//! A release that nobody hears is not missed, whenever it comes and wherever its message is lost.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::fixture::{
    LONG, SOON, channel, client, client_with, comes_in, key, lock_keys, parked, scripts, settled,
};
use common::proxy::Rule;
use common::rights::untold;
use common::{Admin, Class, Proxy, Server, Site, Watch, eventually, judged, timeout};
use parklock::{Client, Config, Ended, Error, Guard, HandOff};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// A server, and a client behind a proxy that would sleep through every test if it missed a release.
async fn sleepy() -> (Site, Proxy, Client) {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    let sleepy = comes_in(proxy.url(), sleeper()).await;
    (server, proxy, sleepy)
}

async fn held(client: &Client, name: &str) -> Guard {
    client.lock(name).lease(LONG).lock().await.expect("it is free")
}

fn wait(client: &Client, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let lock = client.lock(name);
    tokio::spawn(async move { lock.lock().await })
}

async fn granted(waiter: JoinHandle<Result<Guard, Error>>) -> Guard {
    let guard = timeout(SOON, waiter).await.expect("the release is not missed");
    guard.expect("no panic").expect("it is free")
}

#[tokio::test]
async fn a_release_between_the_failed_attempt_and_the_acknowledged_subscription() {
    let (server, proxy, sleepy) = sleepy().await;
    let holder = client(&server).await;
    for (kind, hold) in [("request", Rule::hold_request as fn(_) -> _), ("ack", Rule::hold_reply)] {
        for round in 0..5 {
            let name = format!("{kind}{round}");
            let guard = held(&holder, &name).await;
            let late = hold(proxy.command("SUBSCRIBE").about(&channel(&name)));
            let waiter = wait(&sleepy, &name);
            late.happened().await;

            guard.unlock().await.unwrap();
            late.lift();

            granted(waiter).await.unlock().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_release_while_the_waiters_look_again_is_on_its_way() {
    let (server, proxy, sleepy) = sleepy().await;
    proxy.name_acquires();
    let guard = held(&client(&server).await, "a").await;
    let late = proxy.script("wait").nth(2).hold_reply();
    let waiter = wait(&sleepy, "a");
    late.happened().await; // the server has said "held"

    guard.unlock().await.unwrap();
    late.lift();

    granted(waiter).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_release_while_the_subscriber_has_no_connection() {
    let (server, proxy, sleepy) = sleepy().await;
    let guard = held(&client(&server).await, "a").await;
    let waiter = wait(&sleepy, "a");
    let admin = server.admin().await;
    parked(&admin, "a", 1).await;

    proxy.refuse().await;
    assert_eq!(proxy.reset(Class::Subscriber).await, 1);
    parked(&admin, "a", 0).await;
    guard.unlock().await.unwrap();
    proxy.accept_again().await;

    granted(waiter).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_release_whose_message_vanishes_is_noticed_with_the_next_sign_of_life() {
    let (server, proxy, _) = sleepy().await;
    let light_sleeper = comes_in(proxy.url(), impatient()).await;
    let vanishes = proxy.messages().swallow_reply();
    let guard = held(&client(&server).await, "a").await;
    let waiter = wait(&light_sleeper, "a");
    parked(&server.admin().await, "a", 1).await;

    guard.unlock().await.unwrap();

    vanishes.happened().await;
    granted(waiter).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_release_whose_wake_up_goes_to_a_waiter_that_has_gone() {
    let (server, _proxy, sleepy) = sleepy().await;
    let (admin, holder) = (server.admin().await, client(&server).await);
    for steps in 0..40 {
        let name = format!("after {steps} steps");
        let guard = held(&holder, &name).await;
        let gone = wait(&sleepy, &name);
        parked(&admin, &name, 1).await;
        let next = wait(&sleepy, &name);

        let goes = async move {
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            gone.abort();
        };
        tokio::join!(async { guard.unlock().await.unwrap() }, goes);

        granted(next).await.unlock().await.unwrap();
    }
}

// Without a channel, behind a client that died at the head of the line.

const LINE: &str = "lock_queue:{a}";

const NOTES: &str = "lock_notes:{a}";

/// A client that died while it stood first in the line. Its line outlives every test.
async fn somebody_died_in_line(admin: &Admin) {
    admin.cmd::<i64>(&["ZADD", LINE, "1", "dead:1"]).await;
    admin.cmd::<i64>(&["HSET", NOTES, "dead:1", "1 1000", "life:dead", "1 1 1 1000"]).await;
    for key in [LINE, NOTES] {
        admin.cmd::<i64>(&["PEXPIRE", key, &LONG.as_millis().to_string()]).await;
    }
}

async fn is_free(admin: &Admin) -> bool {
    !admin.cmd::<bool>(&["EXISTS", &key("a")]).await
}

/// A client whose user may not subscribe.
async fn forbidden_to_listen(server: &Site, config: Config) -> Client {
    let rules = ["on", ">sesame", "~*", "+@all", "resetchannels"];
    let admin = server.admin().await;
    admin.cmd::<()>(&[&["ACL", "SETUSER", "deaf"][..], &rules].concat()).await;
    let url = server.url().replace("://", "://deaf:sesame@");
    comes_in(url, config).await
}

/// A client that shows no sign of life by itself while a test runs.
fn sleeper() -> Config {
    Config::default().watchdog_timeout(LONG).max_park(LONG).waiter_ttl(LONG / 4)
}

/// A client that has to show signs of life, and that waits at most a second for a sign of a silent client.
fn impatient() -> Config {
    sleeper().waiter_ttl(Duration::from_secs(1))
}

#[tokio::test]
async fn a_client_that_may_not_listen_does_not_wait_for_the_dead() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let deaf = forbidden_to_listen(&server, impatient()).await;
    for limited in [false, true] {
        somebody_died_in_line(&admin).await;
        assert!(is_free(&admin).await);
        let guard = if limited {
            let tried = deaf.lock("a").try_lock_for(SOON).await;
            tried.expect("an answer").expect("the lock is free")
        } else {
            granted(wait(&deaf, "a")).await
        };
        guard.unlock().await.unwrap();
        assert!(!admin.cmd::<bool>(&["EXISTS", LINE]).await, "the dead client has left the line");
    }
}

#[tokio::test]
async fn a_client_whose_subscription_is_not_acknowledged_does_not_wait_for_the_dead() {
    let (server, proxy, _) = sleepy().await;
    let sleepy = comes_in(proxy.url(), impatient()).await;
    let admin = server.admin().await;
    somebody_died_in_line(&admin).await;
    let never = proxy.command("SUBSCRIBE").about(&channel("a")).hold_request();
    let waiter = wait(&sleepy, "a");
    never.happened().await;
    assert!(is_free(&admin).await || waiter.is_finished());
    granted(waiter).await.unlock().await.unwrap();
}

/// The budget of this client is spent after each turn, so that each turn offers the lock to the line.
#[tokio::test]
async fn the_callers_of_a_client_that_may_not_listen_do_not_give_their_lock_to_the_dead() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let at_once = HandOff { max_consecutive: 0, max_time: LONG };
    let deaf = forbidden_to_listen(&server, impatient().hand_off(at_once)).await;
    let first = held(&deaf, "a").await;
    somebody_died_in_line(&admin).await;
    let waiters: Vec<_> = (0..20).map(|_| wait(&deaf, "a")).collect();
    first.unlock().await.unwrap();
    for waiter in waiters {
        granted(waiter).await.unlock().await.unwrap();
    }
    assert!(!admin.cmd::<bool>(&["EXISTS", LINE]).await, "the dead client has left the line");
}

#[tokio::test]
async fn a_release_while_the_subscriber_stays_without_a_connection() {
    let (server, proxy, _) = sleepy().await;
    let sleepy = comes_in(proxy.url(), impatient()).await;
    let guard = held(&client(&server).await, "a").await;
    let waiter = wait(&sleepy, "a");
    let admin = server.admin().await;
    parked(&admin, "a", 1).await;
    let looked = async || scripts(&admin).await >= 3;
    eventually(SOON, "it has looked again and parks", looked).await;
    somebody_died_in_line(&admin).await;

    proxy.refuse().await;
    assert_eq!(proxy.reset(Class::Subscriber).await, 1);
    parked(&admin, "a", 0).await;
    guard.unlock().await.unwrap();

    granted(waiter).await.unlock().await.unwrap();
}

// A lock that went without a release.

/// How a holder learns that its lock has gone.
#[derive(Debug, Clone, Copy)]
enum LearnsBy {
    Extending,
    Nesting,
    Unnesting,
    Unlocking,
}

#[tokio::test]
async fn a_holder_that_learns_of_its_loss_tells_the_waiters() {
    let server = Server::start().await;
    let admin = server.admin().await;
    // If the server told it first, the nested call would wait for the lock, which the waiter has by then.
    let holder = comes_in(untold(&server).await, sleeper()).await;
    let sleepy = client_with(&server, sleeper()).await;
    let ways = [LearnsBy::Extending, LearnsBy::Nesting, LearnsBy::Unnesting, LearnsBy::Unlocking];
    for (way, forgets) in ways.into_iter().flat_map(|way| [(way, "DEL"), (way, "FLUSHDB")]) {
        let lock = holder.reentrant_lock("a");
        let guard = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        let waiter = wait(&sleepy, "a");
        let in_line = async || admin.cmd::<usize>(&["ZCARD", LINE]).await == 1;
        eventually(SOON, "it stands in line", in_line).await;
        settled(&admin).await;
        match forgets {
            "DEL" => admin.cmd::<i64>(&["DEL", &key("a")]).await,
            _ => admin.cmd::<String>(&["FLUSHDB"]).await.len() as i64,
        };

        let lost = match way {
            LearnsBy::Extending => guard.extend(LONG).await,
            LearnsBy::Nesting => lock.lock().await.map(drop),
            LearnsBy::Unnesting => inner.unlock().await,
            LearnsBy::Unlocking => {
                drop(inner);
                guard.unlock().await
            }
        };

        assert!(matches!(lost, Err(Error::Lost { .. })), "{way:?} after {forgets}: {lost:?}");
        let next = timeout(SOON, waiter).await;
        let next = next.unwrap_or_else(|_| panic!("told by {way:?} after {forgets}"));
        next.expect("no panic").expect("it is free").unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_renewal_that_finds_nothing_tells_the_waiters() {
    let server = Site::start().await;
    let admin = server.admin().await;
    // Renewed within four seconds. A waiter that is told of nothing sleeps for twelve.
    let lease = Duration::from_secs(12);
    let holder = client_with(&server, Config::default().watchdog_timeout(lease)).await;
    let guard = holder.lock("a").lock().await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..3 {
        let sleepy = client_with(&server, sleeper()).await;
        waiters.spawn(async move {
            let guard = sleepy.lock("a").lock().await.expect("it is free");
            guard.unlock().await.expect("it is ours");
        });
    }
    let in_line = async || admin.cmd::<usize>(&["ZCARD", LINE]).await == 3;
    eventually(SOON, "they stand in line", in_line).await;

    let deleted = Watch::start();
    admin.cmd::<i64>(&["DEL", &key("a"), LINE]).await;

    assert_eq!(timeout(SOON, guard.ended()).await.expect("it is told"), Ended::Lost);
    timeout(SOON, waiters.join_all()).await.expect("all are told");
    assert!(deleted.passed() < lease * 2 / 3, "after {:?}", deleted.passed());
}

// Of another database.

/// Channels belong to the whole server, keys to a database.
#[tokio::test]
async fn a_lock_of_the_same_name_in_another_database_wakes_nobody() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_acquires();
    let of = async |url: String, database: u8| {
        let url = format!("{url}/{database}");
        comes_in(url, sleeper()).await
    };
    let (holder, sleepy) = (of(server.url(), 3).await, of(proxy.url(), 3).await);
    let guard = held(&holder, "a").await;
    let looks = proxy.script("acquire").count();
    let waiter = wait(&sleepy, "a");
    in_line_of(&server, 3).await;
    settled(&admin).await;
    let before = looks.fired();

    for database in [0, 4] {
        let (one, other) = (of(server.url(), database).await, of(server.url(), database).await);
        let mut theirs = held(&one, "a").await;
        for turn in 0..10 {
            let waiting = wait([&other, &one][turn % 2], "a");
            in_line_of(&server, database).await;
            theirs.unlock().await.unwrap();
            theirs = granted(waiting).await;
        }
        theirs.unlock().await.unwrap();
    }

    assert_eq!(looks.fired(), before, "it looked though its own lock was not released");
    guard.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
}

/// Waits until somebody stands in the line of the lock in this database.
async fn in_line_of(server: &Site, database: u8) {
    let admin = Admin::connect(&format!("{}/{database}", server.url())).await;
    let waits = async || admin.cmd::<usize>(&["ZCARD", LINE]).await == 1;
    eventually(SOON, "somebody stands in line", waits).await;
}

// While connections break.

/// A release that finds no connection is repeated after pauses of up to a second and a half. A connection may last for
/// less than that, so a release must not sleep through one.
#[tokio::test]
async fn a_release_goes_out_as_soon_as_there_is_a_connection_again() {
    judged(async || {
        let (server, proxy, sleepy) = sleepy().await;
        let admin = server.admin().await;
        let mut guards = Vec::new();
        for lock in 0..20 {
            guards.push(held(&sleepy, &lock.to_string()).await);
        }
        proxy.refuse().await;
        proxy.reset(None).await;
        let unlocks: Vec<_> =
            guards.into_iter().map(|guard| tokio::spawn(guard.unlock())).collect();
        sleep(Duration::from_secs(3)).await; // by now their pauses are as long as they get

        proxy.accept_again().await;
        let probe = sleepy.lock("probe");
        eventually(SOON, "it is connected", async || probe.is_locked().await.is_ok()).await;

        let released = async || lock_keys(&admin).await.is_empty();
        eventually(Duration::from_millis(500), "all are released at once", released).await;
        for unlock in unlocks {
            unlock.await.unwrap().unwrap();
        }
    })
    .await;
}

/// Kills the subscriber links often, and all others now and then.
async fn break_connections(admin: &Admin, until: Instant) {
    for tick in 0.. {
        if Instant::now() >= until {
            return;
        }
        admin.client_kill("pubsub").await;
        if tick % 5 == 0 {
            admin.client_kill("normal").await;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_lease_while_connections_break() {
    judged(async || {
        let server = Site::start().await;
        let admin = server.admin().await;
        // Much longer than a busy machine takes to connect again. The scene KilledLinks of the simulation has the exact bound.
        let lease = Duration::from_secs(12);
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let client = client_with(&server, Config::default().watchdog_timeout(lease)).await;
            for _ in 0..8 {
                let (lock, over) = (client.lock("a"), Arc::clone(&over));
                tasks.spawn(async move {
                    let (mut longest, mut turns) = (Duration::ZERO, 0_u64);
                    while !over.load(Ordering::SeqCst) {
                        let asked = Instant::now();
                        let guard = lock.lock().await.expect("its turn comes");
                        longest = longest.max(asked.elapsed());
                        turns += 1;
                        // What became of a release that was cut is not the question here.
                        let _ = guard.unlock().await;
                    }
                    (longest, turns)
                });
            }
        }
        break_connections(&admin, Instant::now() + Duration::from_secs(5)).await;
        over.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        while let Some(done) = timeout(SOON, tasks.join_next()).await.expect("all come to an end") {
            all.push(done.expect("no panic"));
        }
        let turns: u64 = all.iter().map(|(_, turns)| turns).sum();
        let longest = all.iter().map(|(longest, _)| *longest).max().expect("there are tasks");
        eprintln!("{turns} turns, the longest wait was {longest:?}");
        // Every holder lives and gives back: only a release, or a waiter, that is left alone waits for a lease.
        assert!(longest < lease / 2, "somebody waited for {longest:?}");
    })
    .await;
}
