//! What a client says that it holds and waits for.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::fixture::{LONG, SOON, client, client_with, comes_in, server_and_client};
use common::{Proxy, Server, Site, eventually, timeout};
use parklock::{Awaited, Client, Config, Held, Owner};
use tokio::time::sleep;

/// Waits until so many callers wait for all names together, and returns what there is then.
async fn awaited(client: &Client, callers: usize) -> Vec<Awaited> {
    let all = || client.holds().awaited.iter().map(|awaited| awaited.callers).sum::<usize>();
    eventually(SOON, &format!("{callers} callers wait"), async || all() == callers).await;
    client.holds().awaited
}

fn only(held: Vec<Held>) -> Held {
    assert_eq!(held.len(), 1, "{held:?}");
    held.into_iter().next().expect("it is one")
}

/// What is held, in short.
fn names(client: &Client) -> Vec<(String, &'static str, u32, u32)> {
    let held = client.holds().held.into_iter();
    held.map(|held| (held.name, held.kind, held.guards, held.permits)).collect()
}

#[tokio::test]
async fn a_client_says_what_it_holds_and_since_when() {
    let (_server, client) = server_and_client().await;
    assert!(client.holds().held.is_empty() && client.holds().awaited.is_empty());
    let guard = client.lock("a").lock().await.unwrap();
    let pause = Duration::from_millis(50);
    sleep(pause).await;

    let held = only(client.holds().held);
    assert_eq!((&*held.name, held.kind, held.guards, held.permits), ("a", "lock", 1, 1));
    assert_eq!(held.token, Some(guard.token()));
    assert!(held.held_for >= pause && held.held_for < SOON, "{held:?}");
    assert!(
        held.remaining > held.held_for && held.remaining <= Duration::from_secs(30),
        "{held:?}"
    );

    guard.unlock().await.unwrap();
    assert!(client.holds().held.is_empty(), "it is released");
}

#[tokio::test]
async fn a_held_lock_names_the_task_that_asked_for_it() {
    let (_server, client) = server_and_client().await;
    let here = client.lock("here").lock().await.unwrap(); // the test is no task: `block_on` has it
    assert_eq!(only(client.holds().held).asked_by, None);
    here.unlock().await.unwrap();

    let lock = client.lock("there");
    let task = tokio::spawn(async move { (tokio::task::id(), lock.lock().await.unwrap()) });
    let (id, _guard) = task.await.unwrap();
    assert_eq!(only(client.holds().held).asked_by, Some(id));
}

#[tokio::test]
async fn every_kind_is_listed_by_name_with_what_it_holds() {
    let (_server, client) = server_and_client().await;
    let rw = client.rw_lock("d");
    let again = client.reentrant_lock("e").owned_by(&Owner::new());
    let _semaphore = client.semaphore("b", 5).acquire_many(3).await.unwrap();
    let _fair = client.fair_lock("a").lock().await.unwrap();
    let _write = client.rw_lock("c").write().await.unwrap();
    let _reads = [rw.read().await.unwrap(), rw.read().await.unwrap()];
    let _nested = [again.lock().await.unwrap(), again.lock().await.unwrap()];
    let expected = [
        ("a", "fair", 1, 1),
        ("b", "semaphore", 1, 3),
        ("c", "write", 1, 1),
        ("d", "read", 2, 1),
        ("e", "lock", 2, 1),
    ];
    let expected =
        expected.map(|(name, kind, guards, permits)| (name.into(), kind, guards, permits));
    assert_eq!(names(&client), expected);
}

#[tokio::test]
async fn a_client_says_how_many_callers_wait_and_since_when_the_first_one_does() {
    let server = Server::start().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let _theirs = theirs.lock("a").lock().await.unwrap();
    let _fair = theirs.fair_lock("f").lock().await.unwrap();
    let wait = |name| {
        let (lock, fair) = (ours.lock(name), ours.fair_lock(name));
        tokio::spawn(async move { if name == "a" { lock.lock().await } else { fair.lock().await } })
    };
    let first = wait("a");
    awaited(&ours, 1).await;
    let pause = Duration::from_millis(50);
    sleep(pause).await;
    let came = Instant::now();
    let others = [wait("a"), wait("a"), wait("f"), wait("f")];

    let waits = awaited(&ours, 5).await;
    let counted = waits.iter().map(|waits| (&*waits.name, waits.kind, waits.callers));
    assert_eq!(counted.collect::<Vec<_>>(), [("a", "lock", 3), ("f", "fair", 2)]);
    assert!(waits[0].waiting_for >= pause && waits[1].waiting_for < SOON, "{waits:?}");
    assert!(ours.holds().held.is_empty(), "others hold them");

    // The first caller goes. Whoever asks after that has come later.
    first.abort();
    let since = awaited(&ours, 4).await[0].waiting_for;
    assert!(since <= came.elapsed(), "{since:?}");
    others.iter().for_each(|other| other.abort());
    awaited(&ours, 0).await;
}

/// While this runtime does not run, no task of the client can notice that a lease is over.
#[tokio::test]
async fn a_lease_that_is_over_has_no_time_left_and_is_soon_gone() {
    let (_server, client) = server_and_client().await;
    let lease = Duration::from_millis(300);
    let guard = client.lock("a").lease(lease).lock().await.unwrap();
    assert!(only(client.holds().held).remaining < lease);
    std::thread::sleep(lease);
    assert!(only(client.holds().held).remaining.is_zero() && !guard.is_valid());
    guard.ended().await;
    eventually(SOON, "it is lost", async || client.holds().held.is_empty()).await;
}

/// While it waits for the answer as well: an outage is when a user looks.
#[tokio::test]
async fn a_caller_whose_request_is_not_answered_is_listed() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    let client = comes_in(proxy.url(), Config::default()).await;
    let _held_up = proxy.everything().hold_request();
    let lock = client.lock("a");
    let asks = tokio::spawn(async move { lock.try_lock().await });
    let waits = awaited(&client, 1).await;
    assert_eq!((&*waits[0].name, waits[0].kind), ("a", "lock"));
    asks.abort();
    awaited(&client, 0).await;
}

#[tokio::test]
async fn who_waits_for_a_latch_or_a_condition_is_listed_and_holds_nothing() {
    let (_server, client) = server_and_client().await;
    let latch = client.count_down_latch("l");
    latch.set(1).await.unwrap();
    let passes = {
        let latch = latch.clone();
        tokio::spawn(async move { latch.wait().await })
    };
    let (lock, condition) = (client.lock("a"), client.condition("c"));
    let stands = tokio::spawn(async move { lock.lock().await?.wait(&condition).await });
    let kinds = || client.holds().awaited.iter().map(|waits| waits.kind).collect::<Vec<_>>();
    eventually(SOON, "both wait", async || kinds() == ["condition", "latch"]).await;
    eventually(SOON, "the lock is away", async || client.holds().held.is_empty()).await;

    latch.count_down().await.unwrap();
    passes.await.unwrap().unwrap();
    stands.abort();
}

#[tokio::test]
async fn a_lock_that_the_client_keeps_is_held_by_no_guard() {
    let server = Server::start().await;
    let client = client_with(&server, Config::default().keep(LONG)).await;
    let lock = client.lock("a");
    eventually(SOON, "it is kept", async || {
        lock.lock().await.unwrap().unlock().await.unwrap();
        !client.holds().held.is_empty()
    })
    .await;
    let kept = only(client.holds().held);
    assert_eq!((kept.guards, kept.token, kept.asked_by), (0, None, None));
}

/// A snapshot takes several locks of the client: it must be in nobody's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_all_the_time_stops_nobody() {
    let (_server, client) = server_and_client().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (seen, stop) = (client.clone(), is_over.clone());
    let looks = std::thread::spawn(move || {
        let mut looks = 0;
        while !stop.load(Ordering::Relaxed) {
            looks += 1;
            assert!(seen.holds().held.iter().filter(|held| held.name == "a").count() <= 1);
        }
        looks
    });
    let turns = (0..8).map(|caller| {
        let (lock, fair, semaphore) =
            (client.lock("a"), client.fair_lock("f"), client.semaphore("s", 2));
        tokio::spawn(async move {
            for turn in 0..40 {
                match (caller + turn) % 3 {
                    0 => lock.lock().await.unwrap().unlock().await.unwrap(),
                    1 => fair.lock().await.unwrap().unlock().await.unwrap(),
                    _ => drop(semaphore.acquire().await.unwrap()),
                }
            }
        })
    });
    for turns in turns.collect::<Vec<_>>() {
        timeout(SOON, turns).await.expect("nobody is stopped").unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(looks.join().expect("no panic") > 0);
    eventually(SOON, "nothing is left", async || client.holds().held.is_empty()).await;
}
