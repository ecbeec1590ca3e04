//! A condition: who waits is notified, in order, though others die, give up, or hear no answer.

use crate::common;

use std::future::ready;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use common::fixture::{A_WHILE, LONG, SOON, client, client_with, comes_in, lock_keys};
use common::{Admin, Cluster, Proxy, Server, Site, eventually, judged, timeout};
use futures_util::FutureExt;
use parklock::{Client, Config, Ended, Error, Guard, HandOff, Layout, Owner, Result, Woken};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const LINE: &str = "lock_queue:{c}";
/// The requests that the server has carried out.
const RECORD: &str = "lock_notes:{c}:requests";

/// No lease, place or park ends by itself while a test runs: what happens was told.
fn patient() -> Config {
    let config = Config::default().watchdog_timeout(LONG * 4).waiter_ttl(LONG).max_park(LONG);
    config.response_timeout(Duration::from_secs(2))
}

/// How long a sign of life lasts where somebody dies: longer than a busy machine stands still.
const LIFE: Duration = Duration::from_secs(3);

/// Leases of minutes, so that what a dead process had goes on only by the rules of a line.
fn mortal() -> Config {
    Config::default()
        .watchdog_timeout(LONG)
        .waiter_ttl(LIFE)
        .response_timeout(Duration::from_secs(2))
}

async fn lined_up(admin: &Admin, waiters: usize) {
    let all = async || admin.cmd::<usize>(&["ZCARD", LINE]).await == waiters;
    eventually(SOON, &format!("{waiters} wait for the condition"), all).await;
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("it comes soon")
}

/// A waiter that stands in line behind those that stand there already, has given the lock back, and listens.
async fn next_in_line(client: &Client, admin: &Admin) -> JoinHandle<Result<Guard>> {
    let before: usize = admin.cmd(&["ZCARD", LINE]).await;
    let (lock, condition) = (client.lock("a"), client.condition("c"));
    let waiter = tokio::spawn(async move { lock.lock().await?.wait(&condition).await });
    lined_up(admin, before + 1).await;
    let between = soon(client.lock("a").lock()).await.expect("the lock");
    between.unlock().await.expect("it is ours");
    sleep(A_WHILE).await; // it looks once more when its channel is live
    waiter
}

async fn comes_back(waiter: JoinHandle<Result<Guard>>) -> Guard {
    soon(waiter).await.expect("no panic").expect("the lock")
}

/// Two wait, and the first one is notified and has the lock. The second one still waits.
async fn one_of_two_notified(client: &Client, admin: &Admin) -> (Guard, JoinHandle<Result<Guard>>) {
    let first = next_in_line(client, admin).await;
    let second = next_in_line(client, admin).await;
    client.condition("c").notify_one().await.expect("an answer");
    (comes_back(first).await, second)
}

async fn all_come_back(waiters: Vec<JoinHandle<Result<Guard>>>) {
    let each = waiters.into_iter().map(async |waiter| {
        let guard = comes_back(waiter).await;
        assert!(guard.is_valid());
        guard.unlock().await.expect("it is ours");
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn each_notification_wakes_the_waiter_that_came_first() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let (a, b) = (client_with(&server, patient()).await, client_with(&server, patient()).await);
    let mut waiters = Vec::new();
    for client in [&a, &b, &b, &a] {
        waiters.push(next_in_line(client, &admin).await);
    }
    for left in (0..4).rev() {
        a.condition("c").notify_one().await.unwrap();
        let waiter = waiters.remove(0);
        comes_back(waiter).await.unlock().await.unwrap();
        sleep(A_WHILE).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "one each");
        lined_up(&admin, left).await;
    }
}

#[tokio::test]
async fn all_that_wait_are_woken_together_and_get_the_lock_one_after_the_other() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let (a, b) = (client_with(&server, patient()).await, client_with(&server, patient()).await);
    let mut waiters = Vec::new();
    for _ in 0..10 {
        waiters.push(next_in_line(&a, &admin).await);
        waiters.push(next_in_line(&b, &admin).await);
    }
    let held = a.lock("a").lock().await.unwrap();
    b.condition("c").notify_all().await.unwrap();
    sleep(A_WHILE).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "the lock is held");
    held.unlock().await.unwrap();
    all_come_back(waiters).await;
    lined_up(&admin, 0).await;
}

#[tokio::test]
async fn a_notification_that_nobody_waits_for_is_forgotten() {
    let server = Site::start().await;
    let client = client(&server).await;
    let condition = client.condition("c");
    condition.notify_one().await.unwrap();
    condition.notify_all().await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();
    let limit = Duration::from_millis(50);
    let (guard, woken) = soon(guard.wait_for(&condition, limit)).await.unwrap();
    assert_eq!(woken, Woken::TimedOut);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_guard_waits_while_there_is_a_reason_and_no_longer_than_its_limit() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let condition = client.condition("c");
    let (left, limit) = (AtomicU32::new(2), Duration::from_millis(50));

    // Nobody notifies it: it looks once before the wait, and once after it.
    let writing = client.rw_lock("b").write().await.unwrap();
    let always = async || {
        left.fetch_add(1, SeqCst);
        Ok::<_, Error>(true)
    };
    let (writing, woken) = soon(writing.wait_while_for(&condition, limit, always)).await.unwrap();
    assert_eq!((woken, left.swap(2, SeqCst)), (Woken::TimedOut, 4));
    assert!(writing.is_valid());
    let (_writing, woken) =
        soon(writing.wait_while_for(&condition, limit, async || Ok::<_, Error>(false)))
            .await
            .unwrap();
    assert_eq!(woken, Woken::Notified, "it need not wait");

    // The reason ends with the second notification.
    let guard = client.lock("a").lock().await.unwrap();
    let waits = async || Ok::<_, Error>(left.load(SeqCst) > 0);
    let notifies = async {
        for _ in 0..2 {
            lined_up(&admin, 1).await;
            let guard = client.lock("a").lock().await.unwrap();
            left.fetch_sub(1, SeqCst);
            condition.notify_one().await.unwrap();
            lined_up(&admin, 0).await;
            guard.unlock().await.unwrap();
        }
    };
    let waited = guard.wait_while_for(&condition, LONG, waits);
    let (waited, ()) = soon(async { tokio::join!(waited, notifies) }).await;
    let (guard, woken) = waited.unwrap();
    assert_eq!(woken, Woken::Notified);
    guard.unlock().await.unwrap();

    // An error of the check gives the lock back.
    let guard = client.lock("a").lock().await.unwrap();
    let fails = soon(guard.wait_while_for(&condition, LONG, async || Err(Error::Closed))).await;
    assert!(matches!(fails, Err(Error::Closed)));
    soon(client.lock("a").lock()).await.unwrap().unlock().await.unwrap();
}

/// Nobody can notify a waiter of another server, and a name of one server has no slot in a cluster.
#[tokio::test]
async fn the_condition_of_another_client_is_refused() {
    let (here, there, cluster) =
        (Server::start().await, Server::start().await, Cluster::start().await);
    let clients =
        [client(&here).await, client(&there).await, comes_in(cluster.url(), patient()).await];
    for holder in &clients {
        for other in clients.iter().filter(|other| !std::ptr::eq(*other, holder)) {
            let (lock, condition) = (holder.lock("a"), other.condition("c"));
            let lock = async || soon(lock.lock()).await.unwrap();
            let limit = Duration::from_millis(50);
            let write = soon(holder.rw_lock("b").write()).await.unwrap();
            for refused in [
                soon(lock().await.wait(&condition)).await.map(drop),
                soon(lock().await.wait_for(&condition, limit)).await.map(drop),
                soon(lock().await.wait_while(&condition, || ready(Ok::<_, Error>(true))))
                    .await
                    .map(drop),
                soon(write.wait(&condition)).await.map(drop),
            ] {
                assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_notification_whose_answer_is_lost_wakes_one() {
    let server = Site::start().await;
    let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
    proxy.name_script("notify", include_str!("../../lua/condition/notify.lua"));
    let waits = client_with(&server, patient()).await;
    let notifies = comes_in(proxy.url(), patient()).await;
    let first = next_in_line(&waits, &admin).await;
    let second = next_in_line(&waits, &admin).await;
    let (asked, lost) = (proxy.script("notify").count(), proxy.script("notify").nth(1).cut_after());
    soon(notifies.condition("c").notify_one()).await.unwrap();
    assert_eq!((asked.fired(), lost.fired()), (2, 1), "it was asked again");
    comes_back(first).await.unlock().await.unwrap();
    sleep(A_WHILE).await;
    assert!(!second.is_finished());
    lined_up(&admin, 1).await;
    second.abort();
}

/// The drop of the guard still gives the lock back.
#[tokio::test]
async fn an_unlock_that_is_dropped_has_used_its_notification_up() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let (guard, second) = one_of_two_notified(&client, &admin).await;
    assert!(guard.unlock().now_or_never().is_none(), "it waits for the answer");
    soon(client.lock("a").lock()).await.unwrap().unlock().await.unwrap();
    sleep(A_WHILE).await;
    assert!(!second.is_finished());
    lined_up(&admin, 1).await;
    second.abort();
}

#[tokio::test]
async fn a_notification_for_a_dead_waiter_goes_to_the_next_one() {
    let server = Site::start().await;
    let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
    let (dies, lives) =
        (comes_in(proxy.url(), mortal()).await, client_with(&server, mortal()).await);
    let dead = next_in_line(&dies, &admin).await;
    let next = next_in_line(&lives, &admin).await;
    // Nothing of it reaches the server any more, and nobody tells the server so.
    let _silent = proxy.blackhole(None);
    lives.condition("c").notify_one().await.unwrap();
    comes_back(next).await.unlock().await.unwrap();
    assert!(!dead.is_finished());
    dead.abort();
}

/// The waiter dies while it waits for the lock, which the notifier still holds.
#[tokio::test]
async fn a_notification_of_a_waiter_that_dies_before_it_has_the_lock_goes_to_the_next_one() {
    judged(async || {
        let server = Site::start().await;
        let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
        let (dies, lives) =
            (comes_in(proxy.url(), mortal()).await, client_with(&server, mortal()).await);
        let dead = next_in_line(&dies, &admin).await;
        let next = next_in_line(&lives, &admin).await;
        let held = lives.lock("a").lock().await.unwrap();
        lives.condition("c").notify_one().await.unwrap();
        lined_up(&admin, 1).await;
        // Longer than a sign of life lasts: it keeps its notification alive by itself.
        sleep(LIFE * 3 / 2).await;
        assert!(!next.is_finished());
        lined_up(&admin, 1).await;
        let _silent = proxy.blackhole(None);
        held.unlock().await.unwrap();
        comes_back(next).await.unlock().await.unwrap();
        dead.abort();
    })
    .await;
}

/// The waiter still wakes when it is polled: it may have missed the notification.
#[tokio::test]
async fn a_notification_that_a_waiter_does_not_read_goes_to_the_next_one() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let config = patient().pickup_timeout(Duration::from_millis(200));
    let (ours, theirs) =
        (client_with(&server, config).await, client_with(&server, patient()).await);
    let condition = ours.condition("c");
    let mut asleep = Box::pin(ours.lock("a").lock().await.unwrap().wait(&condition));
    let mut next = None;
    let both_wait = async {
        lined_up(&admin, 1).await;
        next = Some(next_in_line(&theirs, &admin).await);
    };
    tokio::select! {
        _ = &mut asleep => panic!("nobody has notified it"),
        () = both_wait => {}
    }
    theirs.condition("c").notify_one().await.unwrap();
    comes_back(next.expect("it waits")).await.unlock().await.unwrap();
    soon(asleep).await.unwrap().unlock().await.unwrap();
}

/// The client has cancelled what the waiter does, so that it owes nothing for it.
#[tokio::test]
async fn a_client_that_drains_serves_a_waiter_that_has_not_read_its_notification() {
    let server = Site::start().await;
    let (admin, theirs) = (server.admin().await, client_with(&server, patient()).await);
    let config = patient().pickup_timeout(Duration::from_millis(200));
    let ours = client_with(&server, config).await;
    let condition = ours.condition("c");
    let mut asleep = Box::pin(ours.lock("a").lock().await.unwrap().wait(&condition));
    let released = async || admin.cmd::<i64>(&["EXISTS", "lock:{a}"]).await == 0;
    tokio::select! {
        _ = &mut asleep => panic!("nobody has notified it"),
        () = eventually(SOON, "it waits", released) => {}
    }
    theirs.condition("c").notify_one().await.unwrap();
    let drains = tokio::spawn({
        let ours = ours.clone();
        async move { ours.drain(LONG).await }
    });
    let is_cancelled = async || ours.holds().awaited.is_empty();
    eventually(SOON, "it is cancelled", is_cancelled).await;
    sleep(A_WHILE).await;
    assert!(!drains.is_finished());
    soon(asleep).await.unwrap().unlock().await.unwrap();
    assert!(soon(drains).await.unwrap());
}

#[tokio::test]
async fn a_waiter_that_gives_the_lock_back_has_used_up_its_notification() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let (guard, second) = one_of_two_notified(&client, &admin).await;
    guard.unlock().await.unwrap();
    let gone = async || admin.cmd::<i64>(&["EXISTS", "lock:{c}"]).await == 0;
    eventually(SOON, "the notification is used up", gone).await;
    sleep(A_WHILE).await;
    assert!(!second.is_finished(), "it went to nobody else");
    second.abort();
}

/// The notified waiter holds the lock again, and dies. The next waiter has to do its work.
#[tokio::test]
async fn a_notification_of_a_holder_that_dies_goes_to_the_next_one() {
    judged(async || {
        let server = Site::start().await;
        let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
        let config = || Config::default().watchdog_timeout(Duration::from_secs(8)).waiter_ttl(LIFE);
        let (dies, lives) =
            (comes_in(proxy.url(), config()).await, client_with(&server, config()).await);
        let dead = next_in_line(&dies, &admin).await;
        let next = next_in_line(&lives, &admin).await;
        lives.condition("c").notify_one().await.unwrap();
        let guard = comes_back(dead).await;
        sleep(LIFE * 3 / 2).await;
        lined_up(&admin, 1).await;
        let _silent = proxy.blackhole(None);
        comes_back(next).await.unlock().await.unwrap();
        drop(guard);
    })
    .await;
}

/// As after a failover that has lost the waiter's place: a waiter that may have missed a notification asks by itself.
#[tokio::test]
async fn a_waiter_that_is_no_longer_in_line_asks_by_itself() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let client = client_with(&server, patient()).await;
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(next_in_line(&client, &admin).await);
    }
    admin.cmd::<()>(&["DEL", LINE]).await;
    admin.cmd::<()>(&["DEL", "lock_notes:{c}"]).await;
    // They ask when they listen again.
    admin.client_kill("pubsub").await;
    // In any order: each of them keeps the lock until the test asks for it.
    all_come_back(waiters).await;
    lined_up(&admin, 0).await;
}

#[tokio::test]
async fn a_re_entrant_owner_has_as_many_holds_after_the_wait() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let (owner, condition) = (Owner::new(), client.condition("c"));
    let lock = client.reentrant_lock("a").owned_by(&owner);
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let third = lock.lock().await.unwrap();
    let (ended, token) = (tokio::spawn(outer.ended()), outer.token());
    let waiter = {
        let condition = condition.clone();
        tokio::spawn(async move { inner.wait(&condition).await })
    };
    lined_up(&admin, 1).await;
    let between = soon(client.lock("a").lock()).await.unwrap();
    assert!(!outer.is_valid() && !third.is_valid());
    // One of the three ends meanwhile, and is not taken again.
    soon(third.unlock()).await.unwrap();
    condition.notify_one().await.unwrap();
    let token_between = between.token();
    between.unlock().await.unwrap();
    let inner = comes_back(waiter).await;
    assert!(outer.is_valid() && inner.is_valid() && !ended.is_finished());
    assert_eq!((outer.hold_count(), inner.hold_count()), (2, 2));
    assert_eq!(outer.token(), inner.token());
    assert!(token < token_between && token_between < outer.token());
    let told = async || admin.hgetall("lock:{a}").await.values().eq(["2"]);
    eventually(SOON, "redis knows of both holds", told).await;

    // Another hold within, and another wait, of the outer guard this time.
    let again = soon(lock.lock()).await.unwrap();
    assert_eq!(again.hold_count(), 3);
    let waiter = {
        let condition = condition.clone();
        tokio::spawn(async move { outer.wait(&condition).await })
    };
    lined_up(&admin, 1).await;
    condition.notify_all().await.unwrap();
    let outer = comes_back(waiter).await;
    assert_eq!([&outer, &inner, &again].map(Guard::hold_count), [3; 3]);
    drop(inner);
    again.unlock().await.unwrap();
    assert!(client.lock("a").try_lock().await.unwrap().is_none() && !ended.is_finished());
    outer.unlock().await.unwrap();
    assert_eq!(soon(ended).await.unwrap(), Ended::Released);
    soon(client.lock("a").lock()).await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn the_other_holds_of_an_owner_are_lost_if_its_wait_is_dropped() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let condition = client.condition("c");
    let waiter = tokio::spawn(async move { inner.wait(&condition).await });
    lined_up(&admin, 1).await;
    // It stands in line before it releases the lock. Dropped in between, it would release its own hold alone.
    soon(client.lock("a").lock()).await.unwrap().unlock().await.unwrap();
    waiter.abort();
    assert_eq!(soon(outer.ended()).await, Ended::Lost);
    assert!(!outer.is_valid());
    assert!(matches!(soon(outer.unlock()).await, Err(Error::Lost { .. })));
    lined_up(&admin, 0).await;
}

/// While a nested call is under way, another guard of its owner gives the lock up, waits, and gets it again.
#[tokio::test]
async fn a_nested_call_finds_the_lock_that_its_owner_has_brought_back() {
    let server = Site::start().await;
    let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
    proxy.name_counts();
    let client = comes_in(proxy.url(), patient()).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let outer = lock.lock().await.unwrap();
    let (token, condition) = (outer.token(), client.condition("c"));
    let mut waits = Box::pin(async move { outer.wait(&condition).await });
    assert!(waits.as_mut().now_or_never().is_none(), "its request is on its way");

    let held = proxy.script("count").nth(1).hold_reply();
    let mut nests = Box::pin(lock.lock());
    assert!(nests.as_mut().now_or_never().is_none(), "its request is on its way");
    held.happened().await;
    let waits = tokio::spawn(waits);
    lined_up(&admin, 1).await;
    soon(client.lock("a").lock()).await.unwrap().unlock().await.unwrap();
    client.condition("c").notify_one().await.unwrap();
    held.lift();
    let outer = comes_back(waits).await;
    assert!(outer.token() > token);
    let inner = soon(nests).await.unwrap();
    assert_eq!((outer.hold_count(), inner.token()), (2, outer.token()));
}

/// The first guard returns just before the second one would release the lock, which has another tenure by then.
#[tokio::test]
async fn a_guard_waits_although_another_guard_of_its_owner_has_just_brought_the_lock_back() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let (first, second) = (client.condition("c"), client.condition("d"));
    let waiter = {
        let first = first.clone();
        tokio::spawn(async move { inner.wait(&first).await })
    };
    lined_up(&admin, 1).await;
    soon(client.lock("a").lock()).await.unwrap().unlock().await.unwrap();

    let mut waits = {
        let second = second.clone();
        Box::pin(async move { outer.wait(&second).await })
    };
    assert!(waits.as_mut().now_or_never().is_none(), "its request is on its way");
    first.notify_one().await.unwrap();
    let inner = comes_back(waiter).await;
    assert!(inner.is_valid());
    let waits = tokio::spawn(waits);

    let between = soon(client.lock("a").lock()).await.unwrap();
    assert!(!inner.is_valid() && !waits.is_finished(), "the second one waits now");
    second.notify_one().await.unwrap();
    between.unlock().await.unwrap();
    let outer = comes_back(waits).await;
    assert_eq!((outer.hold_count(), inner.hold_count()), (2, 2));
    inner.unlock().await.unwrap();
    assert!(client.lock("a").try_lock().await.unwrap().is_none());
    outer.unlock().await.unwrap();
    soon(client.lock("a").lock()).await.unwrap().unlock().await.unwrap();
}

/// The first guard has released the lock of both. The second one is notified before it is polled again, and only then finds
/// that it has no lock to release.
#[tokio::test]
async fn a_guard_that_cannot_release_its_lock_gives_its_notification_back() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let (ours, theirs) =
        (client_with(&server, patient()).await, client_with(&server, patient()).await);
    let lock = ours.reentrant_lock("a").owned_by(&Owner::new());
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let (condition, other) = (ours.condition("c"), ours.condition("d"));
    let away = tokio::spawn(async move { outer.wait(&other).await });
    soon(ours.lock("a").lock()).await.unwrap().unlock().await.unwrap();

    // The client listens from here on.
    let first = next_in_line(&ours, &admin).await;
    let mut waits = Box::pin(inner.wait(&condition));
    assert!(waits.as_mut().now_or_never().is_none(), "its request is on its way");
    lined_up(&admin, 2).await;
    let last = next_in_line(&ours, &admin).await;
    for _ in 0..3 {
        theirs.condition("c").notify_one().await.unwrap();
    }
    // Messages come in order: if the last one has come, so has that for the guard.
    all_come_back(vec![first, last]).await;
    assert!(matches!(soon(waits).await, Err(Error::Lost { .. })));
    let gone = async || admin.cmd::<i64>(&["EXISTS", "lock:{c}"]).await == 0;
    eventually(SOON, "the notification is given back", gone).await;
    away.abort();
}

/// The tenure goes on, with another holder.
#[tokio::test]
async fn an_extension_is_refused_when_another_guard_of_the_owner_has_released_the_lock_meanwhile() {
    let server = Site::start().await;
    let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
    proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
    let hand_off = HandOff { max_time: LONG, ..HandOff::default() };
    let client = comes_in(proxy.url(), patient().hand_off(hand_off)).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let (token, condition) = (inner.token(), client.condition("c"));

    // The request to line up goes before the extension, so its answer does too.
    let mut waits = Box::pin(async move { outer.wait(&condition).await });
    assert!(waits.as_mut().now_or_never().is_none(), "its request is on its way");
    let mut extends = Box::pin(inner.extend(LONG));
    let held = proxy.script("renew").nth(1).hold_reply();
    assert!(extends.as_mut().now_or_never().is_none(), "its request is on its way");
    held.happened().await;
    let plain = client.lock("a");
    let mut next = Box::pin(plain.lock());
    assert!(next.as_mut().now_or_never().is_none(), "it is in the queue");
    let waits = tokio::spawn(waits);
    let next = soon(next).await.unwrap();
    assert_eq!(next.token().get(), token.get() + 1, "it has the same tenure");
    assert_eq!((next.hold_count(), inner.hold_count()), (1, 0));
    held.lift();
    assert!(matches!(soon(extends).await, Err(Error::Lost { .. })));
    assert!(next.is_valid());
    lined_up(&admin, 1).await;
    waits.abort();
}

#[tokio::test]
async fn work_that_waits_within_a_run_goes_on() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let condition = client.condition("c");
    let work = {
        let (lock, condition) = (lock.clone(), condition.clone());
        tokio::spawn(async move {
            let nested = lock.clone();
            let work = async move |hold: parklock::Hold| {
                let token = hold.token();
                nested.lock().await?.wait(&condition).await?.unlock().await?;
                Ok::<_, Error>(hold.is_valid() && hold.token() > token)
            };
            lock.run(work).await
        })
    };
    lined_up(&admin, 1).await;
    condition.notify_one().await.unwrap();
    assert!(soon(work).await.unwrap().unwrap().unwrap());
    soon(client.lock("a").lock()).await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn a_writer_waits_and_writes_again() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let (rw, condition) = (client.rw_lock("a"), client.condition("c"));
    let writing = rw.write().await.unwrap();
    let waiter = {
        let condition = condition.clone();
        tokio::spawn(async move { writing.wait(&condition).await })
    };
    lined_up(&admin, 1).await;
    let reading = soon(rw.read()).await.unwrap();
    condition.notify_one().await.unwrap();
    sleep(A_WHILE).await;
    assert!(!waiter.is_finished(), "somebody reads");
    reading.unlock().await.unwrap();
    let writing = soon(waiter).await.unwrap().unwrap();
    assert!(rw.try_read().await.unwrap().is_none());
    // It waits once more, and then no longer.
    let waiter = {
        let (condition, mut looks) = (condition.clone(), 0);
        let is_to_wait = move || {
            looks += 1;
            ready(Ok::<_, Error>(looks == 1))
        };
        tokio::spawn(async move { writing.wait_while(&condition, is_to_wait).await })
    };
    lined_up(&admin, 1).await;
    condition.notify_one().await.unwrap();
    let writing = soon(waiter).await.unwrap().unwrap();
    assert!(rw.try_read().await.unwrap().is_none());
    writing.downgrade().await.unwrap().unlock().await.unwrap();
    // Who reads is not alone, and has nothing to wait for.
    let reading = rw.read().await.unwrap();
    assert!(matches!(reading.wait(&condition).await, Err(Error::Unsupported { .. })));
    drop(soon(rw.write()).await.unwrap());
}

/// An owner that writes may wait if it has given its reads back. A read that it still holds would remain, so the wait
/// is refused.
#[tokio::test]
async fn an_owner_that_has_read_within_its_write_waits_when_no_read_is_left() {
    let server = Site::start().await;
    let client = client_with(&server, patient()).await;
    let (rw, condition) = (client.rw_lock("a").reentrant(), client.condition("c"));
    let writing = rw.write().await.unwrap();
    rw.read().await.unwrap().unlock().await.unwrap();
    rw.try_read().await.unwrap().expect("its owner writes").unlock().await.unwrap();

    let (writing, woken) = soon(writing.wait_for(&condition, A_WHILE)).await.unwrap();

    assert_eq!(woken, Woken::TimedOut);
    let [one, other] = [rw.read().await.unwrap(), rw.read().await.unwrap()];
    one.unlock().await.unwrap();
    let waits = writing.wait_for(&condition, A_WHILE).await;
    assert!(matches!(waits, Err(Error::Unsupported { .. })));
    assert!(other.is_valid());
    other.unlock().await.unwrap();
}

#[tokio::test]
async fn a_condition_and_another_kind_of_one_name_are_a_conflict() {
    let server = Site::start().await;
    let client = client(&server).await;
    let guard = client.lock("c").lock().await.unwrap();
    assert!(matches!(client.condition("c").notify_one().await, Err(Error::Conflict { .. })));
    assert!(matches!(guard.wait(&client.condition("c")).await, Err(Error::Conflict { .. })));
    let waiter = next_in_line(&client, &server.admin().await).await;
    assert!(matches!(client.lock("c").try_lock().await, Err(Error::Conflict { .. })));
    assert!(matches!(client.fair_lock("c").try_lock().await, Err(Error::Conflict { .. })));
    assert!(matches!(client.semaphore("c", 3).try_acquire().await, Err(Error::Conflict { .. })));
    assert!(!waiter.is_finished());
    client.condition("c").notify_one().await.unwrap();
    comes_back(waiter).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_sorted_set_of_another_program_is_a_conflict_and_left_alone() {
    let server = Site::start().await;
    let (client, admin) = (client(&server).await, server.admin().await);
    admin.cmd::<u32>(&["ZADD", "lock:{c}", "1", "one", "2", "two"]).await;
    let is_conflict = |error: Error| matches!(error, Error::Conflict { .. });
    let condition = client.condition("c");
    assert!(condition.notify_one().await.is_err_and(is_conflict));
    assert!(condition.notify_all().await.is_err_and(is_conflict));
    let guard = client.lock("a").lock().await.unwrap();
    assert!(guard.wait(&condition).await.is_err_and(is_conflict));
    assert_eq!(admin.cmd::<u32>(&["ZCARD", "lock:{c}"]).await, 2);
}

#[tokio::test]
async fn a_line_of_another_type_is_a_conflict_and_no_request_to_it_is_recorded() {
    let server = Site::start().await;
    let (client, admin) = (client(&server).await, server.admin().await);
    admin.cmd::<()>(&["SET", LINE, "theirs"]).await;
    let is_conflict = |error: Error| matches!(error, Error::Conflict { .. });
    assert!(client.condition("c").notify_one().await.is_err_and(is_conflict));
    assert!(client.condition("c").notify_all().await.is_err_and(is_conflict));
    assert_eq!(lock_keys(&admin).await, [LINE]);
}

/// A task asks for a plain lock of the condition's name, and is cancelled before it hears of the conflict. Its client then
/// gives back what it may have got.
#[tokio::test]
async fn a_cancelled_request_for_a_lock_of_its_name_wakes_no_waiter() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let waiter = next_in_line(&client, &admin).await;
    let mistaken = client_with(&server, patient()).await;
    assert!(mistaken.lock("c").lock().now_or_never().is_none());
    mistaken.close().await;
    lined_up(&admin, 1).await;
    assert!(!admin.cmd::<bool>(&["EXISTS", "lock:{c}"]).await, "nobody has a lock of that name");
    client.condition("c").notify_one().await.unwrap();
    comes_back(waiter).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_latch_does_not_take_the_name_of_a_condition_that_somebody_waits_for() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let waiter = next_in_line(&client, &admin).await;
    let latch = client.count_down_latch("c");
    let is_conflict = |error: Error| error.to_string().contains("holds a condition");
    assert!(latch.set(1).await.is_err_and(is_conflict));
    assert!(latch.count_down().await.is_err_and(is_conflict));
    assert!(latch.wait().await.is_err_and(is_conflict));
    assert!(latch.count().await.is_err_and(is_conflict));
    assert!(latch.delete().await.is_err_and(is_conflict));
    lined_up(&admin, 1).await;
    client.condition("c").notify_one().await.unwrap();
    comes_back(waiter).await.unlock().await.unwrap();
}

/// The server still remembers the requests to a latch that is gone. They are no waiters.
#[tokio::test]
async fn a_condition_with_the_name_of_a_deleted_latch_forgets_none_of_its_requests() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client_with(&server, patient()).await);
    let requests = async || admin.cmd::<Vec<String>>(&["ZRANGE", RECORD, "0", "-1"]).await;
    let latch = client.count_down_latch("c");
    assert!(latch.set(1).await.unwrap());
    assert!(matches!(client.condition("c").notify_one().await, Err(Error::Conflict { .. })));
    assert!(latch.delete().await.unwrap());
    let before = requests().await;
    let waiter = next_in_line(&client, &admin).await;
    client.condition("c").notify_one().await.unwrap();
    comes_back(waiter).await.unlock().await.unwrap();
    let after = requests().await;
    assert!(
        !before.is_empty() && before.iter().all(|request| after.contains(request)),
        "{after:?}"
    );
}

#[tokio::test]
async fn redisson_has_no_conditions() {
    let server = Site::start().await;
    let client = client_with(&server, Config::default().layout(Layout::Redisson)).await;
    let condition = client.condition("c");
    assert!(matches!(condition.notify_one().await, Err(Error::Unsupported { .. })));
    assert!(matches!(condition.notify_all().await, Err(Error::Unsupported { .. })));
    let guard = client.lock("a").lock().await.unwrap();
    assert!(matches!(guard.wait(&condition).await, Err(Error::Unsupported { .. })));
    soon(client.lock("a").lock()).await.unwrap().unlock().await.unwrap();
    let locks = lock_keys(&server.admin().await).await;
    assert!(locks.is_empty(), "{locks:?}");
}

/// Producers and consumers of several clients take turns, and each item is taken once.
#[tokio::test]
async fn a_bounded_buffer_loses_nothing() {
    const ROOM: usize = 2;
    const ITEMS: usize = 40;
    let server = Site::start().await;
    let store = common::connect(&server.store_of("buffer")).await;
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..4 {
        let (client, mut store) = (client_with(&server, patient()).await, store.clone());
        let lock = client.lock("a");
        let (not_full, not_empty) = (client.condition("not-full"), client.condition("not-empty"));
        tasks.spawn(async move {
            let mut taken = Vec::new();
            for item in 0..ITEMS / 2 {
                let mut guard = lock.lock().await.unwrap();
                loop {
                    let len: usize = ask(&mut store, &["LLEN", "buffer"]).await;
                    let waits = if worker < 2 { len >= ROOM } else { len == 0 };
                    if !waits {
                        break;
                    }
                    let condition = if worker < 2 { &not_full } else { &not_empty };
                    guard = guard.wait(condition).await.unwrap();
                }
                if worker < 2 {
                    let item = format!("{worker}-{item}");
                    let _: usize = ask(&mut store, &["RPUSH", "buffer", &item]).await;
                    not_empty.notify_one().await.unwrap();
                } else {
                    taken.push(ask::<String>(&mut store, &["LPOP", "buffer"]).await);
                    not_full.notify_one().await.unwrap();
                }
                guard.unlock().await.unwrap();
            }
            taken
        });
    }
    let mut taken = soon(async { tasks.join_all().await.concat() }).await;
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), ITEMS);
}

async fn ask<T: redis::FromRedisValue>(
    store: &mut redis::aio::MultiplexedConnection,
    words: &[&str],
) -> T {
    let (command, rest) = words.split_first().expect("a command");
    redis::cmd(command).arg(rest).query_async(store).await.expect("the store answers")
}
