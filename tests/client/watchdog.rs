//! The watchdog keeps locks, and tells holders of a loss.

use crate::common;

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use common::fixture::{
    LONG, SOON, channel, client, client_with, comes_in, key, lock_keys, parked, quick, settled,
};
use common::rights::untold;
use common::{Admin, Proxy, Server, Site, eventually, judged, judged_beside_its_load, timeout};
use parklock::{Client, Config, Ended, Error, Guard, Lock, Owner};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

/// A client that only its renewals tell of a loss, and a server of its own. Its lease outlasts the patience of [`told`].
async fn untold_client() -> (Server, Client) {
    let server = Server::start().await;
    let client = comes_in(untold(&server).await, Config::default()).await;
    (server, client)
}

async fn quick_client() -> (Site, Client) {
    let server = Site::start().await;
    let client = client_with(&server, quick()).await;
    (server, client)
}

async fn pttl(admin: &Admin, name: &str) -> Duration {
    let ttl = admin.pttl(&key(name)).await;
    Duration::from_millis(ttl.try_into().unwrap_or_else(|_| panic!("no TTL but {ttl}")))
}

/// That the guard does not count on more time than Redis gives it.
async fn believes_no_more_than_redis(guard: &Guard, admin: &Admin, name: &str) -> Duration {
    let (looked, believed) = (Instant::now(), guard.remaining());
    let ttl = pttl(admin, name).await;
    assert!(believed <= ttl + looked.elapsed(), "believed {believed:?}, left {ttl:?}");
    ttl
}

async fn told(lost: impl Future<Output = Ended>) -> Ended {
    timeout(SOON, lost).await.expect("the end is told")
}

#[tokio::test]
async fn a_lock_held_for_five_timeouts_is_never_lost_nor_near_it() {
    judged(async || {
        let (server, client) = quick_client().await;
        let (admin, start) = (server.admin().await, Instant::now());
        let guard = client.lock("a").lock().await.unwrap();
        let mut least = Duration::MAX;
        while start.elapsed() < Duration::from_secs(15) {
            assert!(guard.is_valid());
            least = least.min(believes_no_more_than_redis(&guard, &admin, "a").await);
            sleep(Duration::from_millis(20)).await;
        }
        assert!(least > Duration::from_millis(900), "only {least:?} were left");
        guard.unlock().await.unwrap();
    })
    .await;
}

/// The answer comes at once, and the future is not polled again for longer than `pickup_timeout`. By then the client
/// has given the lock back, so that the caller stops nobody, and the caller asks anew.
#[tokio::test]
async fn a_grant_that_is_taken_up_late_is_not_believed() {
    let server = Site::start().await;
    // A lease of half a minute: if the lock is free sooner, it was given back.
    let (admin, client) = (server.admin().await, client_with(&server, Config::default()).await);
    let lock = client.lock("a");
    let mut asking = Box::pin(lock.lock());
    let is_asked = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx).is_pending())).await;
    assert!(is_asked, "the request is on its way");
    let (granted, free) =
        (async || admin.pttl("lock:{a}").await > 0, async || admin.pttl("lock:{a}").await == -2);
    eventually(SOON, "it is granted", granted).await;
    eventually(SOON, "it is given back", free).await;
    let guard = asking.await.unwrap();
    assert!(guard.is_valid() && admin.pttl("lock:{a}").await > 0);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_slow_answer_does_not_lengthen_the_lease() {
    judged(async || {
        let server = Site::start().await;
        let proxy = Proxy::before(&server).await;
        let slow = Duration::from_millis(400);
        let client = comes_in(proxy.url(), quick()).await;
        let late = proxy.command("EVALSHA").delay_reply(slow, Duration::ZERO);
        let admin = server.admin().await;

        let guard = client.lock("a").lock().await.unwrap();
        believes_no_more_than_redis(&guard, &admin, "a").await;
        late.happened_times(2).await; // the second is a renewal
        sleep(slow).await;
        believes_no_more_than_redis(&guard, &admin, "a").await;
        guard.extend(Duration::from_secs(30)).await.unwrap();
        believes_no_more_than_redis(&guard, &admin, "a").await;
    })
    .await;
}

/// A hold that does not nest, two nested ones, and two nested reads.
#[tokio::test]
async fn nothing_is_renewed_after_its_unlock() {
    judged(async || {
        let (server, client) = quick_client().await;
        let admin = server.admin().await;
        let (lock, nested) = (client.lock("a"), client.reentrant_lock("b"));
        let reads = client.rw_lock("c").reentrant();
        let sent = async || admin.command_calls("evalsha").await;
        for kind in ["one hold", "nested holds", "nested reads"] {
            let holds = match kind {
                "one hold" => vec![lock.lock().await.unwrap()],
                "nested holds" => vec![nested.lock().await.unwrap(), nested.lock().await.unwrap()],
                _ => vec![reads.read().await.unwrap(), reads.read().await.unwrap()],
            };
            let before = sent().await;
            eventually(SOON, "it is renewed", async || sent().await > before).await;
            for guard in holds {
                guard.unlock().await.unwrap();
            }
            let before = sent().await;

            sleep(Duration::from_millis(2_500)).await;

            assert_eq!(sent().await, before, "{kind}");
            assert!(lock_keys(&admin).await.is_empty(), "{kind}");
        }
    })
    .await;
}

/// Each task takes the lock right after another one of its client has given it back.
#[tokio::test]
async fn a_hold_is_renewed_although_many_tasks_tried_and_unlocked_before_it() {
    const TASKS: usize = 16;
    judged_beside_its_load(async || {
        let (server, client) = quick_client().await;
        let (admin, began, kept) =
            (server.admin().await, Instant::now(), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (lock, kept) = (client.lock("a"), Arc::clone(&kept));
            tasks.spawn(async move {
                while !kept.load(Ordering::SeqCst) {
                    if let Some(guard) = lock.try_lock().await.unwrap() {
                        if began.elapsed() > Duration::from_secs(2) {
                            kept.store(true, Ordering::SeqCst);
                            return Some(guard);
                        }
                        assert!(guard.is_valid());
                        guard.unlock().await.unwrap();
                    }
                    yield_now().await;
                }
                None
            });
        }
        let mut last: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(last.len(), 1);
        let guard = last.remove(0);

        sleep(Duration::from_secs(9)).await; // three timeouts

        assert!(guard.is_valid());
        believes_no_more_than_redis(&guard, &admin, "a").await;
        guard.unlock().await.unwrap();
    })
    .await;
}

/// The scenario `testLockReentrantRenew` of Redisson.
#[tokio::test]
async fn a_hold_is_renewed_after_another_owner_has_ended_its_nested_holds() {
    judged(async || {
        let (server, client) = quick_client().await;
        let (admin, lock) = (server.admin().await, client.reentrant_lock("a"));
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        inner.unlock().await.unwrap();
        outer.unlock().await.unwrap();
        let guard = lock.owned_by(&Owner::new()).lock().await.unwrap();

        sleep(Duration::from_secs(9)).await; // three timeouts

        assert!(guard.is_valid());
        believes_no_more_than_redis(&guard, &admin, "a").await;
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_was_deleted_is_lost_at_the_next_renewal() {
    let (server, client) = untold_client().await;
    let guard = client.lock("a").lock().await.unwrap();
    server.admin().await.cmd::<i64>(&["DEL", &key("a")]).await;

    assert_eq!(told(guard.ended()).await, Ended::Lost);

    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert!(matches!(guard.extend(SOON).await, Err(Error::Lost { .. })));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert!(client.lock("a").try_lock().await.unwrap().is_some(), "the client goes on");
}

/// The holder's field is gone, but the key exists: a renewal has to check the field.
#[tokio::test]
async fn a_lock_that_went_to_another_holder_is_lost_at_the_next_renewal_which_adds_nothing() {
    let (server, client) = untold_client().await;
    let robbed = client.lock("a").lock().await.unwrap();
    let (admin, lease) = (server.admin().await, Duration::from_secs(20)); // less than a renewal asks for
    // In one step: a renewal would find no key in between.
    let goes_on = "redis.call('del', KEYS[1]) redis.call('hset', KEYS[1], 'somebody:1', 1) redis.call('pexpire', KEYS[1], ARGV[1])";
    let ms = lease.as_millis().to_string();
    admin.cmd::<()>(&["EVAL", goes_on, "1", &key("a"), &ms]).await;
    let granted = Instant::now();

    assert_eq!(told(robbed.ended()).await, Ended::Lost);

    let (elapsed, ttl) = (granted.elapsed(), admin.pttl(&key("a")).await);
    assert!(i128::from(ttl) <= lease.saturating_sub(elapsed).as_millis() as i128 + 1, "{ttl} ms");
}

/// A guard whose client still listens to the channel, for it had to wait.
async fn guard_that_waited(server: &Site, lock: Lock) -> Guard {
    let first = client(server).await.lock("a").lock().await.expect("it is free");
    let waiter = tokio::spawn(async move { lock.lock().await });
    parked(&server.admin().await, "a", 1).await;
    first.unlock().await.expect("it is ours");
    timeout(SOON, waiter).await.expect("in time").expect("no panic").expect("it is free")
}

/// The same, with renewals that are far away.
async fn guard_that_listens(server: &Site, lease: Option<Duration>) -> Guard {
    let patient = Config::default().watchdog_timeout(LONG).subscription_linger(LONG);
    let lock = client_with(server, patient).await.lock("a");
    guard_that_waited(server, lease.into_iter().fold(lock, Lock::lease)).await
}

#[tokio::test]
async fn a_lock_taken_away_by_another_client_is_lost_at_its_message() {
    let server = Site::start().await;
    let guard = guard_that_listens(&server, None).await;
    assert!(client(&server).await.lock("a").force_unlock().await.unwrap());
    assert_eq!(told(guard.ended()).await, Ended::Lost);
}

#[tokio::test]
async fn a_lock_that_its_own_client_takes_away_is_lost_at_once_and_goes_to_the_waiter() {
    let server = Site::start().await;
    let client = client_with(&server, Config::default().watchdog_timeout(LONG * 10)).await;
    let lock = client.lock("a");
    let held = lock.lock().await.unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    // What has the server watch the lock comes soon after the grant, and would find the loss.
    settled(&server.admin().await).await;
    assert!(lock.force_unlock().await.unwrap());
    assert_eq!(told(held.ended()).await, Ended::Lost);
    let next = timeout(SOON, waiter).await.expect("it is free").unwrap().unwrap();
    assert!(next.token() > held.token());
}

#[tokio::test]
async fn a_fixed_lease_taken_away_by_another_client_is_lost_at_its_message() {
    let server = Site::start().await;
    let guard = guard_that_listens(&server, Some(LONG)).await;
    assert!(client(&server).await.lock("a").force_unlock().await.unwrap());
    assert_eq!(told(guard.ended()).await, Ended::Lost);
}

/// The holder hears the message, and its first question to the server gets no answer.
#[tokio::test]
async fn a_fixed_lease_taken_away_is_lost_soon_although_the_answer_to_the_check_is_lost() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
    let patient =
        Config::default().watchdog_timeout(Duration::from_secs(30)).subscription_linger(LONG);
    let lock = comes_in(proxy.url(), patient).await.lock("a").lease(LONG);
    let guard = guard_that_waited(&server, lock).await;
    let confirmed = async || guard.remaining() > LONG / 2;
    eventually(SOON, "the grant by message is confirmed", confirmed).await;
    let check = proxy.script("renew").first(1).cut_before();

    assert!(client(&server).await.lock("a").force_unlock().await.unwrap());

    assert_eq!(told(guard.ended()).await, Ended::Lost);
    assert_eq!(check.fired(), 1);
}

#[tokio::test]
async fn a_message_that_is_not_true_takes_nothing_away() {
    let server = Site::start().await;
    let (guard, admin) = (guard_that_listens(&server, None).await, server.admin().await);
    let sent = admin.command_calls("evalsha").await;
    for message in ["", "somebody", "0", "\r\n"] {
        assert_eq!(admin.publish(&channel("a"), message).await, 1);
    }
    let looked = async || admin.command_calls("evalsha").await > sent;
    eventually(SOON, "the holder looks", looked).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn messages_do_not_lengthen_a_fixed_lease() {
    judged(async || {
        let server = Site::start().await;
        let guard = guard_that_listens(&server, Some(Duration::from_secs(1))).await;
        let (admin, start) = (server.admin().await, Instant::now());
        while guard.is_valid() && start.elapsed() < SOON {
            admin.publish(&channel("a"), "somebody").await;
            sleep(Duration::from_millis(5)).await;
        }
        assert!(
            start.elapsed() < Duration::from_secs(3),
            "still valid after {:?}",
            start.elapsed()
        );
    })
    .await;
}

#[tokio::test]
async fn messages_do_not_multiply_the_renewals() {
    judged(async || {
        let server = Site::start().await;
        let proxy = Proxy::before(&server).await;
        proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
        let config = quick().subscription_linger(SOON * 6);
        let ours = comes_in(proxy.url(), config).await;
        let guard = guard_that_waited(&server, ours.lock("a")).await;
        let slow = proxy.script("renew").delay_reply(Duration::from_millis(20), Duration::ZERO);
        let admin = server.admin().await;
        for _ in 0..200 {
            admin.publish(&channel("a"), "somebody").await;
            sleep(Duration::from_millis(5)).await;
        }
        slow.lift();
        sleep(Duration::from_millis(1_500)).await; // until those that were asked for are done

        let renewals = proxy.script("renew").count();
        sleep(Duration::from_secs(4)).await;

        assert!(renewals.fired() <= 8, "{} renewals in four periods", renewals.fired());
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn nothing_is_renewed_beyond_max_hold() {
    judged(async || {
        let server = Site::start().await;
        let client = client_with(&server, quick().max_hold(Duration::from_secs(3))).await;
        let (granted, guard) = (Instant::now(), client.lock("a").lock().await.unwrap());
        assert_eq!(told(guard.ended()).await, Ended::Lost);
        assert!(granted.elapsed() >= Duration::from_secs(3), "lost after {:?}", granted.elapsed());
        assert!(client.lock("a").try_lock_for(SOON).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn max_hold_ends_a_holder_that_nests_again_and_again() {
    judged(async || {
        let server = Site::start().await;
        let limit = Duration::from_secs(1);
        let client =
            client_with(&server, Config::default().watchdog_timeout(limit).max_hold(limit)).await;
        let lock = client.reentrant_lock("a");
        let (granted, guard) = (Instant::now(), lock.lock().await.unwrap());
        let nests = async {
            loop {
                // Once the lock is lost, this says so, or takes it anew.
                let nested = lock.lock().await;
                sleep(Duration::from_millis(20)).await;
                drop(nested);
            }
        };
        let ended = tokio::select! {
            ended = told(guard.ended()) => ended,
            () = nests => unreachable!("it goes on for ever"),
        };
        assert_eq!(ended, Ended::Lost);
        assert!(granted.elapsed() >= limit, "lost after {:?}", granted.elapsed());
    })
    .await;
}

#[tokio::test]
async fn a_fixed_lease_is_not_renewed_and_lost_at_its_deadline() {
    let (server, client) = quick_client().await;
    let (lease, asked) = (Duration::from_millis(500), Instant::now());
    let guard = client.lock("a").lease(lease).lock().await.unwrap();
    assert!(guard.remaining() < lease);

    assert_eq!(told(guard.ended()).await, Ended::Lost);

    assert!(asked.elapsed() >= Duration::from_millis(490), "told after {:?}", asked.elapsed());
    assert!(!guard.is_valid());
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    let admin = server.admin().await;
    eventually(SOON, "it is gone", async || lock_keys(&admin).await.is_empty()).await;
}

#[tokio::test]
async fn a_guard_is_invalid_at_its_deadline_though_no_task_could_run() {
    judged(async || {
        let (_server, client) = quick_client().await;
        let guard = client.lock("a").lease(Duration::from_millis(200)).lock().await.unwrap();
        assert!(guard.is_valid());
        std::thread::sleep(Duration::from_millis(200)); // the only thread of this runtime
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    })
    .await;
}

#[tokio::test]
async fn extending_makes_a_lease_longer_and_never_shorter() {
    judged(async || {
        let (server, client) = quick_client().await;
        let admin = server.admin().await;
        let fixed = client.lock("a").lease(Duration::from_secs(1)).lock().await.unwrap();
        let watched = client.lock("b").lock().await.unwrap();
        for guard in [&fixed, &watched] {
            guard.extend(Duration::from_secs(60)).await.unwrap();
            guard.extend(Duration::from_millis(10)).await.unwrap();
        }
        sleep(Duration::from_millis(1_500)).await; // the first deadline, and a renewal
        for (guard, name) in [(&fixed, "a"), (&watched, "b")] {
            assert!(guard.remaining() > Duration::from_secs(50), "{name}: {:?}", guard.remaining());
            assert!(
                believes_no_more_than_redis(guard, &admin, name).await > Duration::from_secs(50)
            );
        }
        fixed.unlock().await.unwrap();
        watched.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_fixed_lease_is_renewed_from_the_first_nested_hold_that_asks_for_it() {
    judged(async || {
        let (_server, client) = quick_client().await;
        let lock = client.reentrant_lock("a");
        let outer = lock.clone().lease(Duration::from_secs(1)).lock().await.unwrap();
        lock.lock().await.unwrap().unlock().await.unwrap();
        sleep(Duration::from_millis(4_500)).await; // the fixed lease, and the timeout as well
        assert!(outer.is_valid());
        outer.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_hold_that_is_given_back_ends_as_released() {
    let (_server, client) = quick_client().await;
    let guard = client.lock("a").lock().await.unwrap();
    let (early, late) = (guard.ended(), guard.ended());
    let early = tokio::spawn(early);
    guard.unlock().await.unwrap();
    assert_eq!(told(async { early.await.unwrap() }).await, Ended::Released);
    assert_eq!(told(late).await, Ended::Released);
}

/// Says that it was dropped.
struct Witness(Arc<AtomicBool>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn run_drops_its_work_when_the_lock_is_lost() {
    let (server, client) = quick_client().await;
    let (lock, dropped) = (client.lock("a"), Arc::new(AtomicBool::new(false)));
    let witness = Witness(Arc::clone(&dropped));
    let work = lock.run(|hold| async move {
        let _witness = witness;
        assert!(hold.is_valid());
        server.admin().await.cmd::<i64>(&["DEL", &key("a")]).await;
        pending::<()>().await;
    });
    let done = timeout(SOON, work).await.unwrap();
    assert!(matches!(done, Err(Error::Lost { .. })), "{done:?}");
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn run_gives_the_lock_back_and_returns_the_output_of_the_work() {
    let (server, client) = quick_client().await;
    let token = client.lock("a").run(async |hold| hold.token()).await.unwrap();
    assert!(lock_keys(&server.admin().await).await.is_empty());
    assert!(client.reentrant_lock("a").run(async |hold| hold.token()).await.unwrap() > token);
}
