//! Grants that count only when replicas have them: replicas that stand still, lag, leave, or are promoted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parklock::{Client, Config, Ended, Error, Layout, Replicas, WriteGuard};
use tokio::time::sleep;

use crate::common::cluster::slot;
use crate::common::fixture::comes_in;
use crate::common::sentinels::{follow, primary_and_replicas};
use crate::common::{Class, Cluster, Proxy, Server, Watch, eventually, judged, timeout};
use crate::kinds::each_is_taken_and_waited_for;
use crate::scene::*;

/// How long replicas have to acknowledge. A live replica takes far less, on a slow machine too.
const ACK: Duration = Duration::from_millis(1_500);

/// The same where a test sits many of them out.
const BRIEF_ACK: Duration = Duration::from_millis(600);

/// A wait for a replica is longer than anything else that a test does meanwhile.
const NO_WAIT: Duration = Duration::from_secs(1);

/// How long a call asks again that is to fail.
const BRIEFLY: Duration = Duration::from_millis(400);

/// A server that says late that replicas are missing is still heard.
fn acked(replicas: impl Into<Replicas>) -> Config {
    patient().replicas(replicas).ack_timeout(ACK).response_timeout(LONG / 12)
}

/// The holders of a lock, on any server.
async fn holders(server: &Server, name: &str) -> usize {
    server.admin().await.hgetall(&key(name)).await.len()
}

async fn is_clean(server: &Server) {
    let admin = server.admin().await;
    let clean = async || admin.keys().await.iter().all(|key| key == COUNTER);
    eventually(SOON, "nothing is left", clean).await;
}

#[tokio::test]
async fn a_grant_is_on_every_replica_when_it_is_given_out() {
    let servers = primary_and_replicas(2, Server::builder).await;
    let url = servers[0].url();
    let (plain, client) = tokio::join!(client(&url, patient()), client(&url, acked(2)));
    let admin = servers[0].admin().await;
    admin.reset_stats().await;
    plain.lock("plain").lock().await.expect("it is free").unlock().await.expect("it is ours");
    assert_eq!(admin.command_calls("wait").await, 0);
    for number in 0..50 {
        let name = format!("a{number}");
        let guard = client.lock(&name).lock().await.expect("it is free");
        assert_eq!(holders(&servers[1], &name).await + holders(&servers[2], &name).await, 2);
        guard.unlock().await.expect("it is ours");
    }
    // A replica that had no processor in time is asked again.
    let waits = admin.command_calls("wait").await;
    assert!((50..60).contains(&waits), "{waits} waits for 50 grants");
    is_clean(&servers[0]).await;
}

/// The primary says which replicas there are. One that comes has to acknowledge from then on, and one that has left does not.
#[tokio::test]
async fn all_connected_replicas_have_a_grant_when_it_is_given_out() {
    let mut servers = vec![Server::start().await];
    let client = client(&servers[0].url(), acked(Replicas::Connected)).await;
    let lock = client.lock("a");
    let taken = async || soon(lock.lock()).await.expect("it is granted");
    taken().await.unlock().await.expect("the primary decides alone");

    for replicas in 1..=2 {
        let replica = Server::builder().replica_at(servers[0].address()).start().await;
        servers.push(replica);
        follow(&servers[0], replicas).await;
        let guard = taken().await;
        for replica in &servers[1..] {
            assert_eq!(holders(replica, "a").await, 1, "of {replicas} replicas");
        }
        guard.unlock().await.expect("it is ours");
    }

    servers[2].pause();
    is_unavailable(lock.try_lock().await, "1 of 2 replicas");
    for left in [1, 0] {
        drop(servers.pop());
        let guard = taken().await;
        for replica in &servers[1..] {
            assert_eq!(holders(replica, "a").await, 1, "of {left} replicas");
        }
        guard.unlock().await.expect("it is ours");
    }
    is_clean(&servers[0]).await;
}

/// Many at once share the waits.
#[tokio::test]
async fn requests_that_come_together_wait_together() {
    let servers = primary_and_replicas(1, Server::builder).await;
    let client = client(&servers[0].url(), acked(1)).await;
    let admin = servers[0].admin().await;
    admin.reset_stats().await;
    let taken = (0..500).map(|number| {
        let lock = client.lock(format!("a{number}"));
        async move { lock.lock().await.expect("it is free") }
    });
    let guards = soon(futures_util::future::join_all(taken)).await;
    let waits = admin.command_calls("wait").await;
    assert!((1..=100).contains(&waits), "{waits} waits for 500 grants");
    let replica = servers[1].admin().await;
    assert_eq!(replica.keys().await.len(), 501, "all of them, and the counter");
    drop(guards);
    is_clean(&servers[0]).await;
}

/// 13: replicas stand still. What they do not acknowledge is given back, and nothing else waits for them.
#[tokio::test]
async fn what_replicas_do_not_have_is_given_back_and_holds_up_nobody() {
    judged(async || {
        let servers = primary_and_replicas(2, Server::builder).await;
        let client = client(&servers[0].url(), acked(2)).await;
        let held = client.lock("held").lock().await.expect("it is free");
        servers[2].pause();

        let started = Watch::start();
        let tried = tokio::spawn({
            let lock = client.lock("a");
            async move { lock.try_lock().await }
        });
        let taken = async || holders(&servers[0], "a").await > 0;
        eventually(SOON, "the primary has granted it", taken).await;
        let others = Watch::start();
        assert!(client.lock("held").is_locked().await.expect("it is answered"));
        held.unlock().await.expect("no replica is asked");
        assert!(others.passed() < NO_WAIT, "they waited {:?}", others.passed());
        is_unavailable(tried.await.expect("no panic"), "1 of 2 replicas");
        let (took, passed) = (started.elapsed(), started.passed());
        assert!(took >= ACK && passed < ACK * 3, "{took:?}");
        is_clean(&servers[0]).await;

        // A call that waits rides it out.
        let waits = waiting(client.lock("a"));
        sleep(ACK + ACK / 2).await;
        assert!(!waits.is_finished());
        servers[2].resume();
        let guard = granted(waits).await;
        assert_eq!(holders(&servers[2], "a").await, 1);
        guard.unlock().await.expect("it is ours");
        is_clean(&servers[0]).await;
    })
    .await;
}

/// The server may notice the end of a `WAIT` up to 100 ms late. By then the client must not have given up the connection.
#[tokio::test]
async fn with_the_shortest_times_a_missing_replica_ends_no_connection() {
    judged(async || {
        let servers = primary_and_replicas(1, Server::builder).await;
        let shortest = Config::default().watchdog_timeout(Duration::from_millis(500)).replicas(1);
        let (admin, client) = (servers[0].admin().await, client(&servers[0].url(), shortest).await);
        let acknowledged = async || match client.lock("a").try_lock().await {
            Ok(Some(guard)) => guard.unlock().await.is_ok(),
            _ => false,
        };
        eventually(SOON, "the replica acknowledges in so short a time", acknowledged).await;
        let connections = async || admin.info("stats", "total_connections_received").await;
        let before = connections().await;
        servers[1].pause();
        for _ in 0..20 {
            is_unavailable(client.lock("a").try_lock().await, "0 of 1 replicas");
        }
        assert_eq!(connections().await, before);
    })
    .await;
}

/// A caller that is parked behind a holder hears nothing of replicas. Before it gives up for a shortage that another call has
/// seen, it looks whether that goes on.
#[tokio::test]
async fn a_shortage_that_is_over_does_not_end_a_parked_caller() {
    judged(async || {
        let servers = primary_and_replicas(1, Server::builder).await;
        let (url, admin) = (servers[0].url(), servers[0].admin().await);
        let ride_out = BRIEF_ACK * 6;
        let rarely = acked(1).ack_timeout(BRIEF_ACK).ride_out(ride_out).waiter_ttl(LONG / 2);
        let (holder, client) = tokio::join!(client(&url, patient()), client(&url, rarely));
        let held = holder.lock("a").lock().await.expect("it is free");
        servers[1].pause();
        let (began, waits) = (Watch::start(), waiting(client.lock("a")));
        let stands = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == 1;
        eventually(SOON, "it stands in line", stands).await;
        // Once it hears messages, it asks again. The second of these shares the answer or comes after it.
        for _ in 0..2 {
            is_unavailable(client.lock("b").try_lock().await, "0 of 1 replicas");
        }
        servers[1].resume();
        follow(&servers[0], 1).await;
        // What was seen would count for longer than that.
        sleep((ride_out + BRIEF_ACK / 2).saturating_sub(began.elapsed())).await;
        assert!(!waits.is_finished(), "the replica is there");
        held.unlock().await.expect("it was ours");
        granted(waits).await.unlock().await.expect("it is ours");
    })
    .await;
}

/// The same for every kind, and for several locks in one step.
#[tokio::test]
async fn no_kind_is_granted_that_replicas_do_not_have() {
    let servers = primary_and_replicas(1, Server::builder).await;
    let brief = patient().replicas(1).ack_timeout(Duration::from_millis(50));
    let client = client(&servers[0].url(), brief.ride_out(BRIEFLY)).await;
    servers[1].pause();
    let few = "0 of 1 replicas";
    is_unavailable(client.lock("lock").try_lock().await, few);
    is_unavailable(client.lock("lock").lock().await, few);
    is_unavailable(client.fair_lock("fair").try_lock().await, few);
    is_unavailable(client.fair_lock("fair").lock().await, few);
    is_unavailable(client.rw_lock("rw").read().await, few);
    is_unavailable(client.rw_lock("rw").try_write().await, few);
    is_unavailable(client.semaphore("permits", 2).try_acquire().await, few);
    is_unavailable(client.semaphore("permits", 2).acquire().await, few);
    is_unavailable(client.multi_lock(["m1", "m2"]).try_lock().await, few);
    is_unavailable(client.reentrant_lock("again").lock().await, few);
    is_clean(&servers[0]).await;
}

/// Nobody holds what these calls change. If a failover forgot it, nobody would do it again.
#[tokio::test]
async fn no_change_is_reported_that_replicas_do_not_have() {
    let servers = primary_and_replicas(1, Server::builder).await;
    let url = servers[0].url();
    let brief = patient().replicas(1).ack_timeout(Duration::from_millis(50)).ride_out(BRIEFLY);
    let unhurried = patient().replicas(1).response_timeout(LONG / 4).ack_timeout(LONG / 8);
    let (client, unhurried) = tokio::join!(client(&url, brief), client(&url, unhurried));
    let (latch, condition) = (client.count_down_latch("latch"), client.condition("condition"));
    let (semaphore, lock) = (client.semaphore("permits", 2), client.lock("lock"));
    assert!(unhurried.count_down_latch("latch").set(2).await.expect("it is acknowledged"));
    let guard = unhurried.lock("lock").lock().await.expect("it is free");
    servers[1].pause();
    let few = "0 of 1 replicas";
    is_unavailable(client.count_down_latch("other").set(1).await, few);
    is_unavailable(latch.count_down().await, few);
    is_unavailable(condition.notify_one().await, few);
    is_unavailable(condition.notify_all().await, few);
    is_unavailable(semaphore.set_permits(3).await, few);
    is_unavailable(lock.force_unlock().await, few);
    // What is asked changes nothing.
    assert_eq!(latch.count().await.expect("it is answered"), Some(1));
    soon(client.count_down_latch("none").wait_for(A_WHILE)).await.expect_err("it is not set");

    servers[1].resume();
    follow(&servers[0], 1).await;
    let (latch, lock) = (unhurried.count_down_latch("latch"), unhurried.lock("lock"));
    let condition = unhurried.condition("condition");
    let semaphore = unhurried.semaphore("permits", 2);
    assert_eq!(latch.count_down().await.expect("it is acknowledged"), 0);
    soon(latch.wait()).await.expect("it is open");
    assert!(latch.delete().await.expect("it is acknowledged"));
    condition.notify_one().await.expect("it is acknowledged");
    semaphore.set_permits(3).await.expect("it is acknowledged");
    assert!(!lock.force_unlock().await.expect("it is answered"), "it was done the first time");
    drop(guard);
}

#[tokio::test]
async fn a_lock_of_redissons_that_is_taken_away_is_acknowledged() {
    let servers = primary_and_replicas(1, Server::builder).await;
    let config = patient().layout(Layout::Redisson).replicas(1);
    let brief = config.clone().ack_timeout(Duration::from_millis(50)).ride_out(BRIEFLY);
    let unhurried = config.response_timeout(LONG / 4).ack_timeout(LONG / 8);
    let url = servers[0].url();
    let (client, unhurried) = tokio::join!(client(&url, brief), client(&url, unhurried));
    let _guard = unhurried.lock("lock").lock().await.expect("it is free");
    servers[1].pause();
    is_unavailable(client.lock("lock").force_unlock().await, "0 of 1 replicas");
    servers[1].resume();
}

/// If a failover forgot the claim, another process would run the job in the same interval.
#[tokio::test]
async fn a_claimed_interval_is_acknowledged() {
    let servers = primary_and_replicas(1, Server::builder).await;
    let client = client(&servers[0].url(), acked(1)).await;
    let admin = servers[0].admin().await;
    // A replica that has only just come may not acknowledge in time. This call waits until it does.
    client.lock("before").lock().await.expect("it is acknowledged").unlock().await.expect("ours");
    admin.reset_stats().await;
    let job = client.every("job", LONG);
    let ran = job.run_if_due(async |_| admin.command_calls("wait").await).await;
    let waits = ran.expect("it is answered").expect("it is due");
    assert!(waits >= 2, "{waits} waits for a grant and a claim");
}

/// Every kind works, in both layouts, for two clients that wait for each other.
#[tokio::test]
async fn every_kind_is_taken_and_waited_for_with_acknowledgements() {
    let servers = primary_and_replicas(2, Server::builder).await;
    for layout in [Layout::Native, Layout::Redisson] {
        let config = acked(2).layout(layout);
        let url = servers[0].url();
        let (ours, theirs) = tokio::join!(client(&url, config.clone()), client(&url, config));
        let names = ["lock", "fair", "rw", "semaphore", "reentrant"].map(String::from);
        soon(each_is_taken_and_waited_for((&ours, &theirs), &names, "latch")).await;
        servers[0].admin().await.cmd::<()>(&["FLUSHALL"]).await;
    }
}

/// A waiter that a message lets in does not believe it before replicas have it.
#[tokio::test]
async fn a_grant_by_message_waits_for_replicas_too() {
    judged(async || {
        let servers = primary_and_replicas(1, Server::builder).await;
        let url = servers[0].url();
        let (ours, theirs) = tokio::join!(client(&url, acked(1)), client(&url, acked(1)));
        let guard = ours.lock("a").lock().await.expect("it is free");
        let waiter = waiting(theirs.lock("a"));
        let admin = servers[0].admin().await;
        let stands = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await > 0;
        eventually(SOON, "it stands in line", stands).await;
        sleep(A_WHILE).await;
        servers[1].pause();
        let first = guard.token();
        timeout(NO_WAIT, guard.unlock()).await.expect("no replica is asked").expect("it is ours");
        sleep(ACK * 2).await;
        assert!(!waiter.is_finished(), "no replica has it");
        servers[1].resume();
        let next = granted(waiter).await;
        assert!(next.token() > first);
        assert_eq!(holders(&servers[1], "a").await, 1);
        next.unlock().await.expect("it is ours");
        is_clean(&servers[0]).await;
    })
    .await;
}

/// A renewal that no replica has moves no deadline: a replica that is promoted would have the older deadline.
#[tokio::test]
async fn a_hold_that_is_not_acknowledged_again_ends_with_its_lease() {
    judged(async || {
        let servers = primary_and_replicas(1, Server::builder).await;
        let config = Config::default().watchdog_timeout(Duration::from_secs(3)).replicas(1);
        let config = config.response_timeout(Duration::from_millis(700));
        let client =
            client(&servers[0].url(), config.ack_timeout(Duration::from_millis(200))).await;
        let guard = client.lock("a").lock().await.expect("it is free");
        is_renewed(&guard).await;
        servers[1].pause();
        is_unavailable(guard.extend(LONG).await, "0 of 1 replicas");
        let (began, believed) = (Watch::start(), guard.remaining());
        let ended = soon(guard.ended()).await;
        assert_eq!(ended, Ended::Lost);
        assert!(began.elapsed() + A_WHILE >= believed, "it was good until then");
        assert!(began.passed() < believed + A_WHILE * 20, "and not for longer");
        drop(guard);

        // One that comes back in time has it renewed.
        servers[1].resume();
        let guard = soon(client.lock("b").lock()).await.expect("it is free");
        servers[1].pause();
        sleep(Duration::from_millis(1_200)).await;
        servers[1].resume();
        is_renewed(&guard).await;
        guard.unlock().await.expect("it is ours");
        is_clean(&servers[0]).await;
    })
    .await;
}

/// On a new connection, Redis counts only the replicas that have what this connection has written. A renewal that writes nothing
/// would be acknowledged by replicas that have never heard of the hold.
#[tokio::test]
async fn each_renewal_reaches_replicas_also_if_the_lease_is_long_enough() {
    judged(async || {
        let servers = primary_and_replicas(1, Server::builder).await;
        let replica = servers[1].admin().await;
        for layout in [Layout::Native, Layout::Redisson] {
            let client =
                client(&servers[0].url(), acked(1).ack_timeout(BRIEF_ACK).layout(layout)).await;
            let lock = client.lock("lock").lock().await;
            let fair = client.fair_lock("fair").lock().await;
            let read = client.rw_lock("read").read().await;
            let write = client.rw_lock("write").write().await.map(WriteGuard::into_guard);
            let permit = client.semaphore("permits", 2).acquire().await;
            let expirable = client.redisson().expirable_semaphore("expirable", 2).acquire().await;
            for guard in
                [lock, fair, read, write, permit, expirable].map(|taken| taken.expect("it is free"))
            {
                servers[1].pause();
                is_unavailable(guard.extend(LONG * 2).await, "0 of 1 replicas");
                servers[1].resume();
                follow(&servers[0], 1).await;
                replica.reset_stats().await;
                // On a busy machine not in so short a time, and then it is asked again.
                let acknowledged = async || guard.extend(A_WHILE).await.is_ok();
                eventually(SOON, "it is acknowledged", acknowledged).await;
                let mut writes = 0;
                for command in ["pexpireat", "hset", "zadd"] {
                    writes += replica.command_calls(command).await;
                }
                assert!(writes > 0, "{guard:?} in {layout:?}");
                guard.unlock().await.expect("it is ours");
            }
        }
    })
    .await;
}

/// A call that is dropped while it waits for a replica leaves nothing.
#[tokio::test]
async fn a_call_that_is_dropped_while_it_waits_for_a_replica_leaves_nothing() {
    let servers = primary_and_replicas(1, Server::builder).await;
    let client = client(&servers[0].url(), acked(1)).await;
    servers[1].pause();
    for number in 0..5 {
        let lock = client.lock(format!("a{number}"));
        assert!(timeout(ACK / 4, lock.lock()).await.is_err());
    }
    is_clean(&servers[0]).await;
    let started = Watch::start();
    client.close().await;
    assert!(started.passed() < LONG / 12, "nothing is owed any more: no answer is waited for");
}

/// F16: what a failover would forget was never given out.
#[tokio::test]
async fn a_grant_that_a_failover_would_forget_is_never_given_out() {
    let primary = Server::start().await;
    let link = Proxy::before(&primary).await;
    let replica = Server::builder().replica_of(link.port()).start().await;
    follow(&primary, 1).await;
    let client = client(&primary.url(), acked(1)).await;
    let cut = link.blackhole(Class::Replica);
    is_unavailable(client.lock("a").try_lock().await, "0 of 1 replicas");
    cut.happened().await;
    assert_eq!(holders(&replica, "a").await, 0);
}

/// A zombie: a replica is promoted, and the old primary never learns of that. Two groups of clients take turns on
/// the same lock, each at its own primary. Returns how often a claim began while one of the other group was valid.
async fn overlaps_of_two_primaries(replicas: u32) -> usize {
    let servers = primary_and_replicas(1, Server::builder).await;
    let config = || {
        let config = Config::default().watchdog_timeout(Duration::from_secs(2)).replicas(replicas);
        config.response_timeout(Duration::from_millis(400)).ride_out(Duration::from_millis(300))
    };
    let (inside, overlaps) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let [before_taken, after_taken] = [0, 0].map(|none| Arc::new(AtomicUsize::new(none)));
    let turns = |client: Client, taken: &Arc<AtomicUsize>| {
        let taken = Arc::clone(taken);
        let (inside, overlaps, stop) =
            (Arc::clone(&inside), Arc::clone(&overlaps), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::Relaxed) {
                let Ok(Some(guard)) = client.lock("a").try_lock_for(BRIEFLY).await else {
                    continue;
                };
                taken.fetch_add(1, Ordering::Relaxed);
                if inside.fetch_add(1, Ordering::SeqCst) > 0 {
                    overlaps.fetch_add(1, Ordering::SeqCst);
                }
                sleep(Duration::from_millis(3)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(guard.unlock().await);
            }
        }
    };
    let before = tokio::spawn(turns(client(&servers[0].url(), config()).await, &before_taken));
    let begun = async || before_taken.load(Ordering::Relaxed) > 20;
    eventually(SOON, "it takes turns", begun).await;
    servers[1].admin().await.cmd::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    // The promoted one has no replica of its own.
    let promoted = client(&servers[1].url(), config().replicas(0)).await;
    let after = tokio::spawn(turns(promoted, &after_taken));
    sleep(Duration::from_secs(4)).await;
    let begun = async || after_taken.load(Ordering::Relaxed) > 10;
    eventually(SOON, "the other takes turns too", begun).await;
    stop.store(true, Ordering::Relaxed);
    before.await.expect("no panic");
    after.await.expect("no panic");
    overlaps.load(Ordering::SeqCst)
}

/// 10: with all replicas, a primary that was replaced grants nothing any more. Without them it does.
#[tokio::test]
async fn a_primary_that_was_replaced_grants_nothing_that_counts() {
    let (with, without) = tokio::join!(overlaps_of_two_primaries(1), overlaps_of_two_primaries(0));
    assert_eq!(with, 0);
    assert!(without > 0, "the test sees an overlap where there is one");
}

/// A user without the right to call WAIT gets no acknowledgement, and one that may not ask for INFO does not know how many it needs.
/// A request on one connection learns of it, and no other request needs to.
#[tokio::test]
async fn a_user_that_may_not_wait_or_count_is_told_so_at_once() {
    let servers = primary_and_replicas(1, Server::builder).await;
    let admin = servers[0].admin().await;
    let refused = [("-wait", Replicas::Count(1)), ("-info", Replicas::Connected)];
    for (right, replicas) in refused {
        let user = ["ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all", right];
        admin.cmd::<()>(&user).await;
        let url = format!("redis://app:pw@{}", servers[0].address());
        let config = acked(replicas).start_timeout(LONG);
        assert_err!(Client::connect_with(&url, config).await, Error::Permission { .. });
        comes_in(&url, Config::default()).await.close().await;
    }

    // A user that loses the right later may have been granted the lock: it is given back.
    admin.cmd::<()>(&["ACL", "SETUSER", "app", "+@all"]).await;
    let url = format!("redis://app:pw@{}", servers[0].address());
    let client = client(&url, acked(Replicas::Connected)).await;
    admin.cmd::<()>(&["ACL", "SETUSER", "app", "-info"]).await;
    is_unavailable(client.lock("a").try_lock().await, "info");
    is_clean(&servers[0]).await;
}

/// In a cluster each primary has replicas of its own, and a link for what they acknowledge. Both links serve a slot
/// that is open.
#[tokio::test]
async fn in_a_cluster_each_primary_has_replicas_of_its_own() {
    judged(async || {
        let cluster = Cluster::with_replicas().await;
        let url = cluster.url();
        let config = Config::default().watchdog_timeout(Duration::from_secs(6)).replicas(1);
        let config = config
            .response_timeout(Duration::from_millis(1500))
            .ack_timeout(BRIEF_ACK)
            .max_park(LONG);
        let (ours, theirs) = tokio::join!(client(&url, config.clone()), client(&url, config));
        let latch = &cluster.names_at(0, "latch:", 1)[0];
        let names = cluster.names_at(0, "kind:", 5);
        soon(each_is_taken_and_waited_for((&ours, &theirs), &names, latch)).await;

        let open = &cluster.names_at(0, "open:", 1)[0];
        let guard = ours.lock(open).lock().await.expect("it is free");
        assert_eq!(holders(&cluster.nodes[0], open).await, 1);
        cluster.open(slot(open), 0, 1).await;
        is_renewed(&guard).await;
        soon(guard.unlock()).await.expect("it is ours");

        // The replica of the first node falls silent: nothing is granted there, and all goes on elsewhere.
        cluster.nodes[3].pause();
        let [here, there] = [0, 1].map(|at| cluster.names_at(at, "short:", 1).remove(0));
        is_unavailable(ours.lock(&here).try_lock().await, "0 of 1 replicas");
        let elsewhere = ours.lock(&there).try_lock().await.expect("it has its replica");
        elsewhere.expect("it is free").unlock().await.expect("it is ours");
        let primary = cluster.admin(0).await;
        let given_back = async || primary.hgetall(&key(&here)).await.is_empty();
        eventually(SOON, "it is given back", given_back).await;
    })
    .await;
}
