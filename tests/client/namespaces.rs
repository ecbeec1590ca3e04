//! Applications that share a server, each in its own namespace.

use crate::common;
use crate::everything::{Way, everything};

use std::time::Duration;

use common::fixture::{SOON, client_with, is_pending, quick};
use common::{Server, Site, judged, timeout};
use parklock::{Config, MultiLock};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Every command of every client and every script, from now until somebody sends this word.
async fn monitored(server: &Server, until: &'static str) -> JoinHandle<Vec<String>> {
    let mut monitor = BufReader::new(TcpStream::connect(server.address()).await.expect("it is up"));
    monitor.write_all(b"MONITOR\r\n").await.expect("it listens");
    let mut lines = monitor.lines();
    assert_eq!(lines.next_line().await.expect("an answer").as_deref(), Some("+OK"));
    tokio::spawn(async move {
        let mut seen = Vec::new();
        loop {
            let line = lines.next_line().await.expect("it is up").expect("it does not close");
            if line.contains(until) {
                return seen;
            }
            seen.push(line);
        }
    })
}

/// The keys and channels of parklock in a command: where they begin, and what is before them.
fn places(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_in_a_word = |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let places = line.match_indices("lock").map(|(at, _)| line.split_at(at));
    places.filter(move |(before, place)| {
        !is_in_a_word(before) && (place.starts_with("lock:") || place.starts_with("lock_"))
    })
}

#[tokio::test]
async fn every_key_and_every_channel_begins_with_the_namespace() {
    judged(async || {
        let server = Server::builder().set("notify-keyspace-events", "").start().await;
        let admin = server.admin().await;
        let seen = monitored(&server, "that is all of it").await;
        everything(&server.url(), Way::NATIVE.within("billing"), &admin).await;
        let config = quick().namespace("billing").describe("program").keep(Duration::from_secs(1));
        let keeper = client_with(&server, config).await;
        for _ in 0..3 {
            keeper
                .lock("kept")
                .lock()
                .await
                .expect("it is free")
                .unlock()
                .await
                .expect("it is ours");
        }
        keeper.close().await;
        admin.cmd::<String>(&["ECHO", "that is all of it"]).await;

        // The texts of scripts have examples of keys in their comments.
        let seen = timeout(SOON, seen).await.expect("in time").expect("no panic");
        let is_text = |line: &&String| line.contains("\"SCRIPT\"") || line.contains("\"EVAL\"");
        let mut all = 0;
        for line in seen.iter().filter(|line| !is_text(line)) {
            for (before, place) in places(line) {
                assert!(before.ends_with("billing:"), "{place} in {line}");
                // A release names what all channels begin with.
                let (_, rest) = place.split_once(':').expect("a colon");
                let is_whole = ["{", "grants", "\""].iter().any(|next| rest.starts_with(next));
                assert!(is_whole, "{place} in {line}");
                all += 1;
            }
        }
        assert!(all > 1_000, "it saw {all}");
    })
    .await;
}

#[tokio::test]
async fn clients_in_different_namespaces_do_not_meet() {
    let server = Site::start().await;
    let mut holders = Vec::new();
    for namespace in [None, Some("billing"), Some("billing:eu"), Some("lock"), Some("*")] {
        let config = || namespace.into_iter().fold(Config::default(), Config::namespace);
        let (ours, theirs) =
            (client_with(&server, config()).await, client_with(&server, config()).await);
        let guards = [
            ours.lock("a").try_lock().await,
            ours.fair_lock("b").try_lock().await,
            ours.semaphore("c", 1).try_acquire().await,
            ours.lock("x".repeat(1024)).try_lock().await,
        ];
        let guards = guards.map(|guard| guard.expect("an answer").expect("nobody meets us"));
        let waiting = theirs.lock("a");
        let mut waiter = Box::pin(async move { waiting.lock().await });
        assert!(is_pending(&mut waiter).await, "its own namespace holds it");
        holders.push((guards, waiter, (ours, theirs)));
    }
    for (guards, waiter, _clients) in holders {
        for guard in guards {
            guard.unlock().await.expect("it is ours");
        }
        let granted = timeout(SOON, waiter).await.expect("in time").expect("it is free");
        granted.unlock().await.expect("it is ours");
    }
}

/// Two callers that name the same locks of two namespaces in different orders do not wait for each other.
#[tokio::test]
async fn locks_of_one_name_in_two_namespaces_have_an_order() {
    let server = Site::start().await;
    let client =
        async |namespace| client_with(&server, Config::default().namespace(namespace)).await;
    let (a, b) = (client("a").await, client("b").await);
    let there = MultiLock::new([a.lock("n"), b.lock("n")]);
    let back = MultiLock::new([b.lock("n"), a.lock("n")]);
    for _ in 0..50 {
        let take = async |locks: &MultiLock| {
            let held = locks.lock().await.expect("they come free");
            assert_eq!(held.tokens().len(), 2);
            held.unlock().await.expect("they are ours");
        };
        let both = timeout(SOON, async { tokio::join!(take(&there), take(&back)) }).await;
        both.expect("they do not wait for each other");
    }
}
