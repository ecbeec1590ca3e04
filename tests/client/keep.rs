//! A client keeps a lock idle that its last holder gave back, until another client wants it.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::fixture::{client_with, comes_in, key, parked, scripts};
use common::{Admin, Proxy, Site, eventually, judged, timeout};
use parklock::{Client, Config, Error, Guard, Lock, MultiLock};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// As long as a background effect may take on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(10);

/// Longer than any test: what happens meanwhile happens for another reason.
const LONG: Duration = Duration::from_secs(3600);

/// A client of this config keeps locks for longer than any test takes, holds them for as long, and tells the keeper once:
/// its next sign of life comes after the test.
fn keeping() -> Config {
    let config = Config::default().keep(LONG).watchdog_timeout(LONG).waiter_ttl(LONG / 6);
    config.response_timeout(Duration::from_secs(2))
}

async fn taken(lock: &Lock) -> Guard {
    timeout(SOON, lock.lock()).await.expect("it is free soon").expect("it is free")
}

async fn is_held(admin: &Admin, name: &str) -> bool {
    admin.cmd::<i64>(&["EXISTS", &key(name)]).await == 1
}

async fn is_free_soon(admin: &Admin, name: &str) {
    eventually(SOON, "the lock is given back", async || !is_held(admin, name).await).await;
}

/// Locks and unlocks until the client keeps the lock, so that a turn costs no request: its channels have to be live before it
/// asks, and it has to have heard so.
async fn until_kept(admin: &Admin, lock: &Lock, name: &str) {
    eventually(SOON, "the client keeps the lock", async || {
        let before = scripts(admin).await;
        taken(lock).await.unlock().await.expect("it is ours");
        is_held(admin, name).await && scripts(admin).await == before
    })
    .await;
}

/// A keeper that keeps the lock `a`, another client, and the test's view of the server.
async fn kept(site: &Site) -> (Client, Lock, Client, Admin) {
    let admin = site.admin().await;
    let (keeper, other) = (client_with(site, keeping()).await, client_with(site, keeping()).await);
    let lock = keeper.lock("a");
    until_kept(&admin, &lock, "a").await;
    (keeper, lock, other, admin)
}

#[tokio::test]
async fn a_kept_lock_is_taken_without_a_request_and_its_tokens_grow() {
    let site = Site::start().await;
    let (_keeper, lock, _other, admin) = kept(&site).await;
    let mut last = taken(&lock).await.token();
    let before = scripts(&admin).await;
    for turn in 0..500 {
        let guard = if turn % 2 == 0 {
            taken(&lock).await
        } else {
            lock.try_lock().await.unwrap().expect("this client keeps it")
        };
        assert!(guard.is_valid() && guard.token() > last);
        last = guard.token();
        if turn % 3 == 0 {
            guard.unlock().await.unwrap();
        } else {
            drop(guard);
        }
    }
    assert_eq!(scripts(&admin).await, before);
    assert!(is_held(&admin, "a").await);
}

/// A token has ten bits for the turns of one grant.
#[tokio::test]
async fn after_1023_turns_the_client_asks_for_a_new_grant() {
    let site = Site::start().await;
    let (_keeper, lock, _other, admin) = kept(&site).await;
    let (before, mut last) = (scripts(&admin).await, 0);
    for _ in 0..2 * 1024 {
        let guard = taken(&lock).await;
        assert!(guard.token().get() > last);
        last = guard.token().get();
        guard.unlock().await.unwrap();
    }
    assert_eq!(scripts(&admin).await - before, 2);
}

#[tokio::test]
async fn another_client_that_waits_has_a_kept_lock_at_once() {
    let site = Site::start().await;
    let (_keeper, lock, other, _admin) = kept(&site).await;
    let theirs = other.lock("a");
    for _ in 0..10 {
        let token = {
            let guard = taken(&theirs).await;
            let token = guard.token();
            guard.unlock().await.unwrap();
            token
        };
        assert!(taken(&lock).await.token() > token);
    }
}

#[tokio::test]
async fn a_try_of_another_client_makes_the_keeper_give_the_lock_back() {
    let site = Site::start().await;
    let (keeper, lock, other, admin) = kept(&site).await;
    let held = taken(&lock).await;
    assert!(other.lock("a").try_lock().await.unwrap().is_none());
    held.unlock().await.unwrap();
    is_free_soon(&admin, "a").await; // the holder's client was told
    for name in ["a", "b"] {
        let lock = keeper.lock(name);
        until_kept(&admin, &lock, name).await;
    }
    // The keeper may be too slow for the second request of a call.
    let theirs = other.lock("a");
    eventually(SOON, "a try succeeds", async || theirs.try_lock().await.unwrap().is_some()).await;
    let both = MultiLock::new([other.lock("a"), other.lock("b")]);
    eventually(SOON, "both at once", async || both.try_lock().await.unwrap().is_some()).await;
}

/// The keeper takes the lock again before the other client asks a second time. If it kept the lock again, it would refuse
/// nearly each try.
#[tokio::test]
async fn a_keeper_that_takes_the_lock_again_and_again_does_not_refuse_each_try() {
    judged(async || {
        let site = Site::start().await;
        let (_keeper, lock, other, _admin) = kept(&site).await;
        let turns = tokio::spawn(async move {
            loop {
                taken(&lock).await.unlock().await.expect("it is ours");
                tokio::task::yield_now().await;
            }
        });
        let tried = other.lock("a");
        let mut granted = 0;
        for _ in 0..100 {
            // Otherwise the next call would come before the keeper has the lock again.
            sleep(Duration::from_millis(7)).await;
            granted += usize::from(tried.try_lock().await.expect("an answer").is_some());
        }
        // A keeper that kept the lock again would give it up for a moment after each try, so a few would succeed by chance.
        assert!(granted > 30, "the keeper has refused most tries: {granted} of 100 were granted");
        turns.abort();
    })
    .await;
}

#[tokio::test]
async fn a_holder_of_a_kept_lock_gives_it_to_a_client_that_came_meanwhile() {
    let site = Site::start().await;
    let (_keeper, lock, other, admin) = kept(&site).await;
    let guard = taken(&lock).await;
    let theirs = other.lock("a");
    let waits = tokio::spawn(async move { taken(&theirs).await });
    parked(&admin, "a", 2).await; // the keeper listens as well
    assert!(guard.is_valid() && !waits.is_finished());
    guard.unlock().await.unwrap();
    let theirs = timeout(SOON, waits).await.expect("its turn comes").unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    drop(theirs);
}

/// The callers of the keeper take turns and never leave the lock idle.
#[tokio::test]
async fn a_client_that_wants_the_lock_stops_the_turns_of_the_keeper() {
    let site = Site::start().await;
    let (_keeper, lock, other, _admin) = kept(&site).await;
    let (mut riders, turns) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..4 {
        let (lock, turns) = (lock.clone(), Arc::clone(&turns));
        riders.spawn(async move {
            loop {
                let guard = lock.lock().await.unwrap();
                tokio::task::yield_now().await;
                guard.unlock().await.unwrap();
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for _ in 0..10 {
        let seen = turns.load(Ordering::Relaxed);
        let more = async || turns.load(Ordering::Relaxed) > seen + 100;
        eventually(SOON, "the keeper's callers take turns", more).await;
        drop(taken(&other.lock("a")).await);
    }
}

#[tokio::test]
async fn a_kept_lock_is_given_back_when_its_time_is_over() {
    let site = Site::start().await;
    let (short, admin) = (Duration::from_millis(300), site.admin().await);
    let keeper = client_with(&site, keeping().keep(short)).await;
    let lock = keeper.lock("a");
    until_kept(&admin, &lock, "a").await;
    is_free_soon(&admin, "a").await;
    assert!(taken(&lock).await.is_valid());
}

/// Each turn starts the time of `keep` again: otherwise the client would give the lock back while its callers use it.
#[tokio::test]
async fn a_lock_that_is_used_again_and_again_stays_kept() {
    const KEEP: Duration = Duration::from_secs(2);
    let site = Site::start().await;
    let admin = site.admin().await;
    let keeper = client_with(&site, keeping().keep(KEEP)).await;
    let lock = keeper.lock("a");
    // If the machine stands still for too long, the client gives the lock back, as it should: then look again.
    let mut longest = KEEP;
    while longest >= KEEP / 2 {
        until_kept(&admin, &lock, "a").await;
        let before = scripts(&admin).await;
        longest = Duration::ZERO;
        for _ in 0..60 {
            let left = Instant::now();
            sleep(Duration::from_millis(50)).await;
            drop(taken(&lock).await);
            longest = longest.max(left.elapsed());
        }
        assert!(longest >= KEEP / 2 || scripts(&admin).await == before);
    }
}

#[tokio::test]
async fn a_closed_client_gives_back_what_it_keeps() {
    let site = Site::start().await;
    let (keeper, lock, _other, admin) = kept(&site).await;
    keeper.close().await;
    assert!(!is_held(&admin, "a").await);
    assert!(matches!(lock.lock().await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_dropped_client_gives_back_what_it_keeps() {
    let site = Site::start().await;
    let (keeper, lock, _other, admin) = kept(&site).await;
    drop((keeper, lock));
    is_free_soon(&admin, "a").await;
}

#[tokio::test]
async fn a_client_whose_channels_break_keeps_nothing() {
    let site = Site::start().await;
    let admin = site.admin().await;
    let proxy = Proxy::before(&site).await;
    let keeper = comes_in(proxy.url(), keeping()).await;
    let lock = keeper.lock("a");
    until_kept(&admin, &lock, "a").await;
    proxy.reset(common::Class::Subscriber).await;
    is_free_soon(&admin, "a").await;
    until_kept(&admin, &lock, "a").await;
}

#[tokio::test]
async fn a_client_that_does_not_hear_keeps_nothing() {
    let site = Site::start().await;
    let admin = site.admin().await;
    let proxy = Proxy::before(&site).await;
    let (plain, sharded) =
        (proxy.command("subscribe").hold_request(), proxy.command("ssubscribe").hold_request());
    let keeper = comes_in(proxy.url(), keeping()).await;
    let lock = keeper.lock("a");
    for _ in 0..5 {
        taken(&lock).await.unlock().await.unwrap();
        assert!(!is_held(&admin, "a").await);
    }
    plain.lift();
    sharded.lift();
    until_kept(&admin, &lock, "a").await;
}

/// The next holder would believe in a tenure that is gone.
#[tokio::test]
async fn a_kept_lock_that_was_taken_by_force_is_not_taken_up() {
    let site = Site::start().await;
    let (_keeper, lock, other, admin) = kept(&site).await;
    for forcer in [&lock, &other.lock("a")] {
        until_kept(&admin, &lock, "a").await;
        let before = taken(&lock).await.token();
        forcer.force_unlock().await.unwrap();
        is_free_soon(&admin, "a").await;
        eventually(SOON, "the client asks again", async || {
            let guard = taken(&lock).await;
            guard.token() > before && is_held(&admin, "a").await
        })
        .await;
    }
}

#[tokio::test]
async fn a_multi_lock_takes_locks_that_its_client_keeps() {
    if common::site::left_out_in_a_cluster("one script takes the locks of one server") {
        return;
    }
    let site = Site::start().await;
    let (keeper, lock, _other, admin) = kept(&site).await;
    let both = MultiLock::new([lock.clone(), keeper.lock("b")]);
    let guard = timeout(SOON, both.lock()).await.expect("nobody else has them").unwrap();
    guard.unlock().await.unwrap();
    is_free_soon(&admin, "b").await;
    until_kept(&admin, &lock, "a").await;
    assert!(both.try_lock().await.unwrap().is_some());
}

/// If the process died, nobody could take the lock until the long lease is over.
#[tokio::test]
async fn an_extended_lease_is_not_kept() {
    let site = Site::start().await;
    let (_keeper, lock, _other, admin) = kept(&site).await;
    let guard = taken(&lock).await;
    guard.extend(2 * LONG).await.unwrap();
    guard.unlock().await.unwrap();
    assert!(!is_held(&admin, "a").await);
}

#[tokio::test]
async fn a_multi_lock_keeps_nothing() {
    let site = Site::start().await;
    let (_keeper, lock, _other, admin) = kept(&site).await;
    let both = MultiLock::new([lock.clone()]);
    for _ in 0..3 {
        timeout(SOON, both.lock()).await.expect("it is free").unwrap().unlock().await.unwrap();
        assert!(!is_held(&admin, "a").await);
    }
}

#[tokio::test]
async fn a_fixed_lease_is_not_kept() {
    let site = Site::start().await;
    let (_keeper, lock, _other, admin) = kept(&site).await;
    let fixed = lock.clone().lease(Duration::from_secs(60));
    for _ in 0..3 {
        taken(&fixed).await.unlock().await.unwrap();
        assert!(!is_held(&admin, "a").await);
    }
}

#[tokio::test]
async fn an_election_is_not_kept() {
    let site = Site::start().await;
    let admin = site.admin().await;
    let keeper = client_with(&site, keeping()).await;
    let election = keeper.election("a");
    for _ in 0..3 {
        election.campaign().await.unwrap().step_down().await.unwrap();
        assert!(!is_held(&admin, "a").await);
        sleep(Duration::from_millis(20)).await; // channels, if there were any, would be live by now
    }
}

/// A holder that keeps nothing costs no message.
#[tokio::test]
async fn only_keepers_are_told_that_another_client_wants_the_lock() {
    let site = Site::start().await;
    let admin = site.admin().await;
    let config = || keeping().keep(Duration::ZERO);
    let (holder, other) = (client_with(&site, config()).await, client_with(&site, config()).await);
    let guard = taken(&holder.lock("a")).await;
    let before = admin.command_calls("publish").await + admin.command_calls("spublish").await;
    // On a busy machine the limit may be over before the answer, which is an error.
    let limited = other.lock("a").try_lock_for(Duration::from_millis(200)).await;
    assert!(!matches!(limited, Ok(Some(_))));
    assert!(other.lock("a").try_lock().await.unwrap().is_none());
    let after = admin.command_calls("publish").await + admin.command_calls("spublish").await;
    assert_eq!(after, before);
    drop(guard);
}

#[tokio::test]
async fn one_caller_at_a_time_is_inside_although_all_clients_keep() {
    let site = Site::start().await;
    let (inside, last, turns) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
    let (mut riders, mut clients) = (JoinSet::new(), Vec::new());
    for _ in 0..4 {
        let client = client_with(&site, keeping().keep(Duration::from_millis(20))).await;
        for number in 0..2 {
            let (lock, inside, last) = (client.lock("a"), Arc::clone(&inside), Arc::clone(&last));
            let turns = Arc::clone(&turns);
            riders.spawn(async move {
                for turn in 0..300 {
                    let guard = lock.lock().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    let token = guard.token().get();
                    assert!(last.swap(token, Ordering::SeqCst) < token);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().await.unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                    if turn % 50 == number {
                        sleep(Duration::from_millis(5)).await;
                    }
                }
            });
        }
        clients.push(client);
    }
    while let Some(rider) = riders.join_next().await {
        rider.unwrap();
    }
    assert_eq!(turns.load(Ordering::SeqCst), 4 * 2 * 300);
}
