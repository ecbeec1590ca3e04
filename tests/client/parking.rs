//! Waiters park: a thousand of them cost the server no more than their few clients do.

use crate::common;

use std::time::{Duration, Instant};

use common::fixture::{LONG, SOON, client, client_with, parked, scripts, settled};
use common::{Server, eventually, timeout};
use parklock::{Client, Config, Guard};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

const CLIENTS: usize = 4;
const WAITERS: usize = 250;

/// Several clients, each with many waiters. A waiter shows its guard, and keeps it until the test takes it.
struct Crowd {
    _clients: Vec<Client>,
    _waiters: JoinSet<()>,
    guards: mpsc::UnboundedReceiver<Guard>,
}

impl Crowd {
    /// Comes when all of its contenders listen and have looked twice.
    async fn gather(server: &Server, config: Config) -> Self {
        let (winner, guards) = mpsc::unbounded_channel();
        let (mut clients, mut waiters) = (Vec::new(), JoinSet::new());
        for _ in 0..CLIENTS {
            let client = client_with(server, config.clone()).await;
            for _ in 0..WAITERS {
                let (lock, winner) = (client.lock("a"), winner.clone());
                waiters.spawn(async move {
                    let guard = lock.lock().await.expect("it is free at some time");
                    winner.send(guard).expect("the test looks");
                });
            }
            clients.push(client);
        }
        let admin = server.admin().await;
        parked(&admin, "a", CLIENTS).await;
        let looked = async || scripts(&admin).await > 2 * CLIENTS as u64;
        eventually(SOON, "each client has looked twice", looked).await;
        Self { _clients: clients, _waiters: waiters, guards }
    }

    async fn next_guard(&mut self) -> Guard {
        timeout(SOON, self.guards.recv()).await.expect("in time").expect("a waiter is left")
    }
}

/// Signs of life are minutes apart: whatever is sent while a test runs is no sign of life.
fn silent() -> Config {
    Config::default().watchdog_timeout(LONG).waiter_ttl(LONG / 2).max_park(LONG)
}

/// A lock held by somebody who sends nothing.
async fn held(server: &Server) -> (Client, Guard) {
    let client = client(server).await;
    let guard = client.lock("a").lease(LONG).lock().await.expect("it is free");
    (client, guard)
}

#[tokio::test]
async fn a_thousand_parked_waiters_send_one_request_per_client_and_max_park() {
    let (server, max_park) = (Server::start().await, Duration::from_secs(1));
    let (_client, _guard) = held(&server).await;
    let _crowd = Crowd::gather(&server, silent().max_park(max_park)).await;
    let admin = server.admin().await;
    assert_eq!(admin.command_calls("subscribe").await, CLIENTS as u64);

    let (start, before) = (Instant::now(), scripts(&admin).await);
    sleep(max_park * 4).await;
    let looks = async || scripts(&admin).await - before;
    let looked = looks().await;
    let parks = start.elapsed().as_secs_f64() / max_park.as_secs_f64();

    let most = CLIENTS as f64 * (parks + 1.0);
    assert!(looked as f64 <= most, "{looked} looks in {parks} parks");
    eventually(SOON, "parked waiters look", async || looks().await >= CLIENTS as u64).await;
    assert_eq!(admin.command_calls("subscribe").await, CLIENTS as u64);
}

#[tokio::test]
async fn a_parked_waiter_does_not_ask_before_max_park_or_the_ttl_is_over() {
    let server = Server::start().await;
    let (_client, _guard) = held(&server).await;
    let _crowd = Crowd::gather(&server, silent()).await;
    let admin = server.admin().await;
    let before = settled(&admin).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(scripts(&admin).await, before);
}

#[tokio::test]
async fn one_release_costs_one_script_and_one_message() {
    let server = Server::start().await;
    let (_client, guard) = held(&server).await;
    let mut crowd = Crowd::gather(&server, silent()).await;
    let admin = server.admin().await;
    let before = settled(&admin).await;

    guard.unlock().await.unwrap();
    let _next = crowd.next_guard().await;

    let sent = settled(&admin).await - before;
    assert_eq!(sent, 1, "scripts for one release");
    assert!(admin.command_calls("publish").await <= 2, "a grant, and somebody comes near");
}

/// Passes the lock through the crowd; how many scripts that took, once all is quiet again.
async fn scripts_of_turns(turns: u64, pause: Duration) -> u64 {
    let server = Server::start().await;
    let (_client, mut guard) = held(&server).await;
    let mut crowd = Crowd::gather(&server, silent()).await;
    let admin = server.admin().await;
    let before = settled(&admin).await;
    for _ in 0..turns {
        guard.unlock().await.expect("it is ours");
        guard = crowd.next_guard().await;
        sleep(pause).await; // so that no attempt is saved by coming late
    }
    settled(&admin).await - before
}

/// A turn is one request, which gives the lock back and lines up again. The rest is for clients that come near the
/// front with an old sign of life.
fn at_most(turns: u64) -> u64 {
    turns * 2 + turns.div_ceil(20)
}

#[tokio::test]
async fn a_lock_that_goes_through_a_crowd_costs_two_scripts_a_turn() {
    let (turns, pause) = (100, Duration::from_millis(5));
    let sent = scripts_of_turns(turns, pause).await;
    assert!(sent <= at_most(turns), "{sent} scripts for {turns} turns");
}

#[tokio::test]
async fn a_client_that_already_listens_asks_once_for_its_next_waiter() {
    let (turns, pause) = (6, Duration::from_millis(500));
    let sent = scripts_of_turns(turns, pause).await;
    assert!(sent <= at_most(turns), "{sent} scripts for {turns} turns");
}

/// Services have ten thousand callers that wait. What a caller needs only while it asks lies in a box that is gone while it
/// waits.
#[tokio::test]
async fn the_future_of_a_caller_has_no_room_for_a_request() {
    const SMALL: usize = 640; // with the feature `metrics`, each has some 60 more
    let server = Server::start().await;
    let client = client(&server).await;
    let (lock, rw, permits) = (client.lock("a"), client.rw_lock("b"), client.semaphore("c", 1));
    let waiting = [
        size_of_val(&lock.lock()),
        size_of_val(&rw.read()),
        size_of_val(&rw.write()),
        size_of_val(&permits.acquire()),
    ];
    assert!(waiting.iter().all(|size| *size < SMALL), "{waiting:?}");
    let leaving = size_of_val(&lock.lock().await.unwrap().unlock());
    assert!(leaving < SMALL, "{leaving}");
}
