//! A primary behind Sentinel: real sentinels, which find it dead, replace it while it lives, are behind, or are gone.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use parklock::{Client, Config, Error};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::common::fixture::{comes_in, refusal};
use crate::common::sentinels::{FAILOVER, SERVICE};
use crate::common::{Admin, Server, Watched, eventually, judged};
use crate::kinds::each_is_taken_and_waited_for;
use crate::scene::*;

/// Longer than any failover takes, and renewed several times in a test.
fn outliving() -> Config {
    let config = Config::default().watchdog_timeout(Duration::from_secs(12)).max_park(LONG);
    config.response_timeout(Duration::from_millis(500)).ride_out(LONG)
}

async fn two(watched: &Watched, config: Config) -> (Client, Client) {
    let url = watched.url();
    tokio::join!(client(&url, config.clone()), client(&url, config))
}

fn names(begin: &str) -> Vec<String> {
    ["lock", "fair", "rw", "semaphore", "reentrant"].map(|kind| format!("{begin}{kind}")).to_vec()
}

/// Waits until somebody stands in the line of this name.
async fn stands_in_line(admin: &Admin, name: &str) {
    let line = format!("lock_queue:{{{name}}}");
    let stands = async || admin.cmd::<usize>(&["ZCARD", &line]).await > 0;
    eventually(SOON, "somebody stands in line", stands).await;
}

/// Those clients that are not of the test, the replication, or the sentinels.
async fn is_left(server: &Server) -> bool {
    let clients = server.admin().await.clients().await;
    !clients.iter().any(|client| client.contains("lib-name=parklock") || is_ours(client))
}

/// Version 7.0 does not know the names of libraries: what a client of ours did last tells it.
fn is_ours(client: &str) -> bool {
    ["cmd=time ", "cmd=hello ", "cmd=evalsha ", "cmd=subscribe "]
        .iter()
        .any(|cmd| client.contains(cmd))
        && !client.contains("name=sentinel")
}

/// Every kind is taken, waited for and given back, before a failover and after it.
#[tokio::test]
async fn every_kind_behind_sentinels_goes_on_over_a_failover() {
    let watched = Watched::start().await;
    let (ours, theirs) = two(&watched, outliving()).await;
    each_is_taken_and_waited_for((&ours, &theirs), &names("before:"), "before:latch").await;
    watched.fail_over().await;
    let new = watched.switched_from(0).await;
    // Until the clients have left the primary before, each of them may get the same lock, one from each primary.
    let left = async || is_left(&watched.servers[0]).await;
    eventually(SOON, "the clients leave the one before", left).await;
    each_is_taken_and_waited_for((&ours, &theirs), &names("after:"), "after:latch").await;
    let keys = watched.servers[new].admin().await.keys().await;
    let left = |key: &&String| !key.ends_with(":requests") && *key != COUNTER;
    assert_eq!(keys.iter().filter(left).count(), 0, "{keys:?}");
}

/// The primary is killed: holders keep what they have, waiters are let in, newcomers ride it out.
#[tokio::test]
async fn a_primary_that_is_killed_is_replaced_and_holders_and_waiters_go_on() {
    let watched = Watched::start().await;
    // How soon the sentinels agree depends on the machine, too.
    let config = outliving().watchdog_timeout(LONG).ride_out(FAILOVER);
    let (ours, theirs) = two(&watched, config).await;
    let mut guards = Vec::new();
    for name in ["a", "b"] {
        guards.push(ours.lock(name).lock().await.expect("it is free"));
    }
    let waiters: Vec<_> = ["a", "b"].iter().map(|name| waiting(theirs.lock(*name))).collect();
    for name in ["a", "b"] {
        stands_in_line(&watched.servers[0].admin().await, name).await;
    }
    for replica in &watched.servers[1..] {
        replicated(&watched.servers[0], replica).await;
    }
    watched.servers[0].kill();
    watched.notices_the_dead().await;

    let newcomer = waiting(ours.lock("c"));
    assert_eq!(watched.switched_from(0).await, 1);
    granted(newcomer).await.unlock().await.expect("it is ours");
    all_go_on(guards, waiters).await;
}

/// 10: a primary that a failover replaced calls itself primary, and takes writes, for ten seconds more. The clients leave it
/// when the sentinels say so.
#[tokio::test]
async fn a_healthy_primary_that_was_replaced_is_left_at_once() {
    judged(async || {
        for _ in 0..5 {
            if a_healthy_primary_is_left().await {
                return;
            }
        }
        panic!("in each of five runs the old primary was told before all sentinels agreed");
    })
    .await;
}

/// Whether the clients have left before the primary itself was told. A sentinel that is starved hears of the failover late.
async fn a_healthy_primary_is_left() -> bool {
    let watched = Watched::start().await;
    let (ours, theirs) = two(&watched, outliving()).await;
    let turns = |client: Client| async move {
        let (lock, started, mut last) = (client.lock("turns"), Instant::now(), None);
        while started.elapsed() < Duration::from_secs(6) {
            let guard = lock.lock().await.expect("it is free soon");
            assert!(last < Some(guard.token()), "tokens grow for who has seen both");
            last = Some(guard.token());
            drop(guard.unlock().await);
        }
    };
    let held = ours.lock("held").lock().await.expect("it is free");
    let waiter = waiting(theirs.lock("held"));
    stands_in_line(&watched.servers[0].admin().await, "held").await;
    let load = [ours.clone(), theirs.clone()].map(|client| tokio::spawn(turns(client)));
    sleep(Duration::from_secs(1)).await;
    watched.fail_over().await;
    let new = watched.switched_from(0).await;

    let left = async || is_left(&watched.servers[0]).await;
    eventually(Duration::from_secs(3), "the clients leave the one before", left).await;
    let role = watched.servers[0].admin().await.info("replication", "role").await;
    for load in load {
        soon(load).await.expect("no panic");
    }
    held.unlock().await.expect("it was replicated long before");
    granted(waiter).await.unlock().await.expect("it is ours");
    assert!(scripts_run_on(&watched.servers[new]).await > 0);
    role.as_deref() == Some("master")
}

/// The sentinel that leads a failover still describes the old primary, though with the new epoch, until all replicas
/// follow the new primary. One replica does not answer.
#[tokio::test]
async fn a_primary_that_the_leading_sentinel_still_describes_is_left_at_once() {
    judged(async || {
        let watched = Watched::with_replicas(2).await;
        let [old, new, silent] = [0, 1, 2].map(|at| &watched.servers[at]);
        watched.set("failover-timeout", "60000").await;
        let leader = Admin::connect(&watched.sentinels[0].url()).await;
        silent.admin().await.cmd::<()>(&["CONFIG", "SET", "replica-priority", "0"]).await;
        let is_known = async || {
            let replicas: Vec<Vec<String>> = leader.cmd(&["SENTINEL", "REPLICAS", SERVICE]).await;
            let has = |replica: &Vec<String>, field: [&str; 2]| {
                replica.chunks(2).any(|pair| pair == field)
            };
            let port = silent.port().to_string();
            replicas
                .iter()
                .any(|one| has(one, ["port", &port]) && has(one, ["slave-priority", "0"]))
        };
        eventually(LONG, "it is never promoted", is_known).await;
        let url = watched.url();
        let clients: Vec<_> =
            futures_util::future::join_all((0..8).map(|_| client(&url, outliving()))).await;

        // After it has connected, each client asks once more. Some listen to the leader, which ends the failover much later.
        sleep(Duration::from_secs(3)).await;
        silent.pause();
        watched.fail_over().await;
        let gives_two = async || {
            let described: Vec<String> = leader.cmd(&["SENTINEL", "MASTER", SERVICE]).await;
            let given: [String; 2] =
                leader.cmd(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).await;
            described.contains(&old.port().to_string()) && given[1] == new.port().to_string()
        };
        eventually(LONG, "the leader gives two addresses", gives_two).await;
        let left = async || is_left(old).await;
        eventually(Duration::from_secs(3), "the clients leave the one before", left).await;
        assert!(gives_two().await, "the failover has not ended");
        silent.resume();
        for client in clients {
            client.lock("a").lock().await.expect("it is free").unlock().await.expect("it is ours");
        }
    })
    .await;
}

async fn scripts_run_on(server: &Server) -> u64 {
    server.admin().await.command_calls("evalsha").await
}

/// A sentinel that was cut off still names the old primary. It answers first, and the client does not believe it.
#[tokio::test]
async fn a_sentinel_that_is_behind_is_not_believed() {
    let watched = Watched::start().await;
    let stale = format!(
        "sentinel monitor {SERVICE} 127.0.0.1 {} 2\nsentinel down-after-milliseconds {SERVICE} 500",
        watched.servers[0].port()
    );
    watched.servers[0].kill();
    assert_eq!(watched.replaces(0).await, 1);
    // It begins when the primary that it is to watch has gone, and so hears of nobody.
    let stale = Server::builder().sentinel(stale).start().await;
    let mut sentinels = vec![&stale];
    sentinels.extend(&watched.sentinels);
    let client = soon(client(&watched.url_of(&sentinels), outliving())).await;
    let guard = soon(client.lock("a").lock()).await.expect("it is free");
    is_held_once(&watched.servers[1].admin().await, "a").await;

    // The others fall silent: what was heard of them still counts.
    watched.sentinels.iter().for_each(Server::kill);
    watched.servers[1].admin().await.client_kill("normal").await;
    soon(guard.unlock()).await.expect("it is ours");

    // One that has never heard of them has only the one that is behind.
    let url = watched.url_of(&[&stale]);
    let quick = Config::default().connect_timeout(Duration::from_secs(1));
    assert_err!(Client::connect_with(url, quick).await, Error::Unavailable { .. });
}

/// One dead sentinel makes no difference. If all are dead, no new client connects, and a connected client continues.
#[tokio::test]
async fn a_client_goes_on_without_sentinels_and_none_begins_without() {
    let watched = Watched::start().await;
    watched.sentinels[0].kill();
    let client = client(&watched.url(), outliving()).await;
    let guard = client.lock("a").lock().await.expect("it is free");
    watched.sentinels.iter().for_each(Server::kill);

    let error = Client::connect(watched.url()).await.expect_err("there is none");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("no sentinel"), "{error}");

    let admin = watched.servers[0].admin().await;
    // On a busy machine, the client may be about to connect again.
    let are_cut =
        async || admin.client_kill("normal").await + admin.client_kill("pubsub").await >= 2;
    eventually(SOON, "both connections are cut", are_cut).await;
    soon(guard.unlock()).await.expect("it is ours");
    let guard = soon(client.lock("a").lock()).await.expect("it is free");
    guard.unlock().await.expect("it is ours");

    // They come back, and a failover is heard of again.
    futures_util::future::join_all(watched.sentinels.iter().map(Server::start_again)).await;
    watched.settled(1).await;
    watched.fail_over().await;
    assert_eq!(watched.switched_from(0).await, 1);
    let left = async || is_left(&watched.servers[0]).await;
    // Not by the primary before, which is told after ten seconds.
    eventually(Duration::from_secs(8), "the client hears of it", left).await;
    let guard = soon(client.lock("a").lock()).await.expect("it is free");
    is_held_once(&watched.servers[1].admin().await, "a").await;
    guard.unlock().await.expect("it is ours");
}

/// A URL that does not fit says what is wrong with it.
#[tokio::test]
async fn a_service_or_a_url_that_does_not_fit_is_named() {
    let watched = Watched::start().await;
    let refused = async |url: String, words: &str| {
        let error = refusal(&url).await;
        assert!(matches!(error, Error::Config { .. }), "{url}: {error}");
        assert!(error.to_string().contains(words), "{url}: {error}");
    };
    refused(watched.url().replace(SERVICE, "nobody"), "unknown service").await;
    let sentinel = watched.sentinels[0].address();
    refused(watched.sentinels[0].url(), "write redis-sentinel://").await;
    refused(format!("redis://{sentinel}/3"), "write redis-sentinel://").await;
    let server = watched.servers[0].address();
    refused(format!("redis-sentinel://{server}/{SERVICE}"), "is not a sentinel").await;
    refused(format!("redis-sentinel://{sentinel}"), "no service").await;
}

/// The sentinels and the servers have users of their own. The client uses the database of the URL.
#[tokio::test]
async fn sentinels_have_credentials_of_their_own() {
    let setup = || Server::builder().set("requirepass", "pw").set("masterauth", "pw");
    let lines =
        format!("sentinel auth-pass {SERVICE} pw\nrequirepass other\nsentinel sentinel-pass other");
    let server = setup().start().await;
    let monitor = format!("sentinel monitor {SERVICE} 127.0.0.1 {} 1\n{lines}", server.port());
    let sentinel = Server::builder().sentinel(monitor).start().await;
    let url = |user: &str, options: &str| {
        format!("redis-sentinel://{user}{}/{SERVICE}/3{options}", sentinel.address())
    };
    let client = client(&url(":pw@", "?sentinelPassword=other"), patient()).await;
    let guard = client.lock("a").lock().await.expect("it is free");
    let admin = Admin::connect(&format!("redis://:pw@{}/3", server.address())).await;
    is_held_once(&admin, "a").await;
    guard.unlock().await.expect("it is ours");
    // A user that may do no more than README says, and listens too.
    let sentinels = Admin::connect(&format!("redis://:other@{}", sentinel.address())).await;
    let words = "ACL SETUSER watcher on >look resetchannels &+switch-master \
                 &+failover-state-reconf-slaves -@all \
                 +sentinel|master +sentinel|get-master-addr-by-name +sentinel|sentinels \
                 +sentinel|myid +hello +ping +subscribe";
    sentinels.cmd::<()>(&words.split_whitespace().collect::<Vec<_>>()).await;
    let options = "?sentinelUsername=watcher&sentinelPassword=look";
    let other = comes_in(url(":pw@", options), patient()).await;
    let listens = async || {
        let clients = sentinels.clients().await;
        clients.iter().any(|line| line.contains("user=watcher") && line.contains(" sub=2 "))
    };
    eventually(SOON, "it listens", listens).await;
    other.close().await;

    for (user, options) in
        [(":pw@", ""), (":pw@", "?sentinelPassword=no"), ("", "?sentinelPassword=other")]
    {
        let error = refusal(url(user, options)).await;
        assert!(matches!(error, Error::Permission { .. }), "{user}{options}: {error}");
    }
}

/// When somebody believed that it held the lock.
type Claims = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// Takes turns until it is dropped.
async fn take_turns(client: Client, claims: Claims) {
    loop {
        let limit = Duration::from_millis(200);
        let Ok(Some(guard)) = client.lock("a").try_lock_for(limit).await else { continue };
        let from = Instant::now();
        sleep(Duration::from_millis(2)).await;
        // In this order: it may not run for a while between the two.
        let to = Instant::now();
        if guard.is_valid() {
            claims.lock().expect("no panic under it").push((from, to));
        }
        drop(guard.unlock().await);
    }
}

/// How long it was from the first moment to the last at which two believed that they held it, while a primary that lives is
/// replaced. `None`: no two ever did.
async fn overlap_over_a_failover(replicas: u32) -> Option<Duration> {
    let watched = Watched::start().await;
    let config = || {
        let config = Config::default().watchdog_timeout(Duration::from_secs(3)).replicas(replicas);
        config.response_timeout(Duration::from_millis(500)).ride_out(Duration::from_secs(1))
    };
    let (claims, mut rivals, started) = (Claims::default(), JoinSet::new(), Instant::now());
    for _ in 0..3 {
        rivals.spawn(take_turns(client(&watched.url(), config()).await, Arc::clone(&claims)));
    }
    let taken_since = |since: Instant| {
        claims.lock().expect("no panic under it").iter().any(|(from, _)| *from > since)
    };
    eventually(SOON, "somebody has a turn", async || taken_since(started)).await;
    watched.fail_over().await;
    watched.switched_from(0).await;
    let left = async || is_left(&watched.servers[0]).await;
    eventually(SOON, "the clients leave the one before", left).await;
    // With replicas, not before the one before follows the new one, after ten seconds.
    let switched = Instant::now();
    eventually(LONG, "somebody has a turn again", async || taken_since(switched)).await;
    sleep(Duration::from_secs(2)).await;
    rivals.shutdown().await;

    let mut claims = claims.lock().expect("no panic under it").clone();
    claims.sort();
    let (mut overlaps, mut last) = (Vec::new(), started);
    for (from, to) in claims {
        if from < last {
            overlaps.push(from);
        }
        last = last.max(to);
    }
    overlaps.first().zip(overlaps.last()).map(|(first, last)| *last - *first)
}

/// 10: two primaries grant, from the promotion to the message of the sentinels. With all replicas, the old primary
/// grants nothing that counts.
#[tokio::test]
async fn claims_overlap_for_a_moment_over_a_failover_and_never_with_all_replicas() {
    let (without, with) = tokio::join!(overlap_over_a_failover(0), overlap_over_a_failover(1));
    // Most often there is none: all of them hear of it at once.
    let is_brief = without.is_none_or(|moment| moment < Duration::from_secs(2));
    assert!(is_brief, "two held it for {without:?}");
    assert_eq!(with, None);
}
