//! H3: a fault of a server is a story of a few lines, whatever is held: it begins, it goes on, it is over. Each loss has its line.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use parklock::{Client, Config, Error, Guard};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::Level;

use crate::common::{Server, Site, Watched, eventually, judged, timeout};
use crate::log::Log;
use crate::{A_WHILE, SOON, connect};

/// The lines that say that a fault goes on are at least so far apart.
const APART: Duration = Duration::from_secs(5);

const LEASE: Duration = Duration::from_secs(9);

fn config() -> Config {
    let answer = Duration::from_millis(500);
    Config::default().watchdog_timeout(LEASE).response_timeout(answer).ride_out(SOON * 3)
}

async fn hold(client: &Client, count: usize) -> Vec<Guard> {
    let take =
        |n| async move { client.lock(format!("lock {n}")).lock().await.expect("it is free") };
    stream::iter(0..count).map(take).buffer_unordered(256).collect().await
}

/// Fifty held locks, and twenty callers that wait for the first of them.
async fn crowd(client: &Client) -> (Vec<Guard>, JoinSet<parklock::Result<Guard>>) {
    let guards = hold(client, 50).await;
    let mut waiting = JoinSet::new();
    for lock in (0..20).map(|_| client.lock("lock 0")) {
        waiting.spawn(async move { lock.lock().await });
    }
    let all =
        async || client.holds().awaited.iter().map(|waits| waits.callers).sum::<usize>() == 20;
    eventually(SOON, "all of them wait", all).await;
    (guards, waiting)
}

/// What the log says from now on is about what the test does. On a busy machine, a node may take a second to be connected: that is a
/// story of its own, which ends first.
async fn begins_here(log: &Log) {
    let is_over =
        async || log.lines_with("the client tries again") == log.lines_with("the outage is over");
    eventually(SOON, "the client has connected", is_over).await;
    drop(log.taken());
}

/// The warnings of one story that has lasted for so long: it begins, it goes on, it is over.
fn story(lasted: Duration) -> usize {
    2 + (lasted.as_secs_f64() / APART.as_secs_f64()) as usize
}

fn loud(log: &Log) -> Vec<String> {
    let text = log.text();
    let lines = text.lines().filter(|line| line.contains(" WARN ") || line.contains("ERROR "));
    lines.map(str::to_owned).collect()
}

fn count(lines: &[String], words: &[&str]) -> usize {
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

/// No line shows how the library stores something.
fn is_plain(lines: &[String]) {
    for internal in ["Some(", "None", "NotSent(", "Unanswered(", "Said(", "AtServer", "Refused("] {
        assert_eq!(count(lines, &[internal]), 0, "{internal}: {lines:#?}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_for_a_while_is_two_lines_with_counts_and_nothing_is_lost() {
    judged(async || {
        let (log, _listening) = Log::of(Level::WARN);
        let server = Server::start().await;
        let client = connect(&server.url(), config()).await;
        let (guards, _waiting) = crowd(&client).await;
        begins_here(&log).await;
        let began = Instant::now();
        server.pause();
        eventually(SOON, "it warns", async || log.lines_with("not renewed") > 0).await;
        server.resume();
        eventually(SOON, "it is over", async || log.lines_with("the outage is over") > 0).await;
        let lines = loud(&log);
        assert!(lines.len() <= story(began.elapsed()), "{lines:#?}");
        assert_eq!(
            count(&lines, &["not renewed", "locks=", "waiting=20", "fault="]),
            1,
            "{lines:#?}"
        );
        assert_eq!(count(&lines, &["the outage is over", "after=", "lost=0"]), 1, "{lines:#?}");
        is_plain(&lines);
        eprintln!("{}", lines.join("\n"));
        assert!(guards.iter().all(Guard::is_valid), "{lines:#?}");
    })
    .await;
}

#[tokio::test]
async fn each_lock_that_is_lost_has_its_line_and_the_story_says_how_many() {
    let (log, _listening) = Log::of(Level::WARN);
    let server = Server::start().await;
    let client = connect(&server.url(), config()).await;
    let (guards, _waiting) = crowd(&client).await;
    begins_here(&log).await;
    let began = Instant::now();
    server.pause();
    join_all(guards.iter().map(Guard::ended)).await;
    eventually(SOON, "it counts", async || log.lines_with("lost=50") > 0).await;
    server.resume();
    let over = async || log.lines_with("the outage is over") > 0;
    eventually(SOON, "it is over", over).await;
    let lines = loud(&log);
    let (errors, warnings): (Vec<_>, Vec<_>) =
        lines.iter().cloned().partition(|line| line.contains("ERROR "));
    let named: BTreeSet<_> =
        (0..50).filter(|n| count(&errors, &[&format!("\"lock {n}\"")]) == 1).collect();
    assert_eq!((named.len(), errors.len()), (50, 50), "{errors:#?}");
    // One more: all locks have ended, and the server still hangs.
    assert!(warnings.len() <= story(began.elapsed()) + 1, "{warnings:#?}");
    assert_eq!(
        count(&warnings, &["the outage is over", "lost=50", "names=", "lock "]),
        1,
        "{warnings:#?}"
    );
    is_plain(&lines);
    eprintln!("{}\n(50 such errors)\n{}", errors[0], warnings.join("\n"));
}

/// While too few replicas acknowledge, the server answers all the time. Only a grant says that this is over.
#[tokio::test]
async fn a_replica_that_is_missing_is_one_story_that_ends_with_a_grant() {
    let (log, _listening) = Log::of(Level::WARN);
    let server = Server::start().await;
    let config = config().replicas(1).ack_timeout(A_WHILE);
    let client = connect(&server.url(), config).await;
    let began = Instant::now();
    let waits = tokio::spawn({
        let lock = client.lock("a");
        async move { lock.lock().await }
    });
    let begins = async || log.lines_with("no request for a lock has succeeded") > 0;
    eventually(SOON, "it warns", begins).await;
    assert!(matches!(client.lock("b").try_lock().await, Err(Error::Unavailable { .. })));
    assert_eq!(log.lines_with("the outage is over"), 0, "{}", log.text());
    let _replica = Server::builder().replica_of(server.port()).start().await;
    let held = timeout(SOON, waits).await.expect("in time").expect("no panic").expect("a replica");
    eventually(SOON, "it is over", async || log.lines_with("the outage is over") > 0).await;
    let lines = loud(&log);
    assert_eq!(count(&lines, &["no request for a lock", "waiting=", "fault="]), 1, "{lines:#?}");
    assert_eq!(count(&lines, &["the outage is over", "after="]), 1, "{lines:#?}");
    assert!(lines.len() <= story(began.elapsed()), "{lines:#?}");
    is_plain(&lines);
    drop(held);
}

/// A redisson issue of this kind: a line for each lock and attempt.
#[tokio::test]
async fn ten_thousand_locks_warn_no_more_often_than_one() {
    let (log, _listening) = Log::of(Level::WARN);
    let server = Server::start().await;
    // A busy machine does not renew so many in half a second.
    let config = config().watchdog_timeout(LEASE * 4).response_timeout(Duration::from_secs(2));
    let client = connect(&server.url(), config).await;
    let guards = hold(&client, 10_000).await;
    begins_here(&log).await;
    let began = Instant::now();
    server.pause();
    eventually(SOON, "it warns", async || log.lines_with("not renewed") > 0).await;
    sleep(LEASE / 4).await;
    server.resume();
    eventually(SOON, "it is over", async || log.lines_with("the outage is over") > 0).await;
    let lines = loud(&log);
    let warnings = count(&lines, &[" WARN "]);
    assert!(warnings <= story(began.elapsed()), "{warnings}: {:#?}", &lines[..lines.len().min(20)]);
    drop(guards);
}

#[tokio::test]
async fn a_cluster_that_hangs_is_one_story_for_each_of_its_nodes() {
    let (log, _listening) = Log::of(Level::WARN);
    let site = Site::cluster().await;
    let client = connect(&site.url(), config()).await;
    let guards = hold(&client, 300).await;
    begins_here(&log).await;
    let began = Instant::now();
    site.pause();
    sleep(LEASE / 2).await;
    site.resume();
    let over = async || log.lines_with("the outage is over") >= site.primaries().len();
    eventually(SOON, "it is over", over).await;
    let lines = loud(&log);
    // One more: nobody has a map of the cluster.
    let most = story(began.elapsed()) * site.primaries().len() + 1;
    assert!(count(&lines, &[" WARN "]) <= most, "{lines:#?}");
    assert_eq!(count(&lines, &["not renewed", "server=127.0.0.1:"]), 3, "{lines:#?}");
    is_plain(&lines);
    drop(guards);
}

#[tokio::test]
async fn a_server_that_is_gone_is_a_warning_though_nothing_is_held() {
    let (log, _listening) = Log::of(Level::WARN);
    let server = Server::start().await;
    let client = connect(&server.url(), config()).await;
    begins_here(&log).await;
    let began = Instant::now();
    server.kill();
    let mut waiting = JoinSet::new();
    for lock in (0..20).map(|n| client.lock(format!("waiting {n}"))) {
        waiting.spawn(async move { lock.lock().await });
    }
    let refused = async || {
        assert!(client.lock("a").try_lock().await.is_err());
        log.lines_with("no request for a lock has succeeded") > 0
    };
    eventually(SOON, "it warns", refused).await;
    eventually(SOON, "it counts those that wait", async || log.lines_with("waiting=20") > 0).await;
    server.start_again().await;
    let back = async || matches!(client.lock("a").try_lock().await, Ok(Some(_)));
    eventually(SOON, "it is back", back).await;
    let lines = loud(&log);
    assert_eq!(count(&lines, &["no request for a lock has succeeded"]), 1, "{lines:#?}");
    assert_eq!(count(&lines, &["the outage is over", "after=", "requests="]), 1, "{lines:#?}");
    assert!(lines.len() <= story(began.elapsed()), "{lines:#?}");
    is_plain(&lines);
}

/// The sentinels go on answering, and still name the primary that is gone, since nobody can take over.
#[tokio::test]
async fn a_primary_that_nobody_replaces_is_one_story_behind_sentinels() {
    let (log, _listening) = Log::of(Level::WARN);
    let watched = Watched::with_replicas(0).await;
    let client = connect(&watched.url(), config()).await;
    let guards = hold(&client, 50).await;
    begins_here(&log).await;
    let began = Instant::now();
    watched.servers[0].kill();
    join_all(guards.iter().map(Guard::ended)).await;
    eventually(SOON, "it counts", async || log.lines_with("lost=50") > 0).await;
    watched.servers[0].start_again().await;
    // Nobody asks for a lock any more.
    eventually(SOON, "it is over", async || log.lines_with("the outage is over") > 0).await;
    let (errors, warnings): (Vec<_>, Vec<_>) =
        loud(&log).into_iter().partition(|line| line.contains("ERROR "));
    assert_eq!(count(&errors, &["lock "]), 50, "{errors:#?}");
    assert_eq!(errors.len(), 50, "{errors:#?}");
    assert!(warnings.len() <= story(began.elapsed()) + 1, "{warnings:#?}");
    assert_eq!(count(&warnings, &["the outage is over", "lost=50"]), 1, "{warnings:#?}");
    is_plain(&warnings);
    eprintln!("{}", warnings.join("\n"));
}
