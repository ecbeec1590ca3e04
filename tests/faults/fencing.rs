//! Tokens grow whatever happens to their counter, and keep a late writer out.

use std::time::Duration;

use parklock::{Client, Error, FencingToken, Guard, HandOff, Layout, WriteGuard};

use crate::common::{Proxy, Server, Worker, WorkerSide, timeout};
use crate::{COUNTER, SOON, a_turn, brief, connect, is_stopped, key, patient, state_of};

/// F51: the server comes back without its data, so without its counter.
#[tokio::test]
async fn tokens_grow_though_the_server_lost_everything() {
    let server = Server::start().await;
    let (witness, newcomer) = (connect(&server.url(), patient()).await, server.url());
    let before = a_turn(&witness.lock("a")).await;

    server.restart().await;
    let lost = server.admin().await.keys().await;
    assert!(lost.is_empty(), "{lost:?}");

    let after = a_turn(&witness.lock("a")).await;
    let newcomer = connect(&newcomer, patient()).await;
    let last = a_turn(&newcomer.lock("a")).await;
    assert!(before < after && after < last, "{before} {after} {last}");
}

/// F51: the counter is evicted, rolled back by an old dump, or overwritten by a stranger.
#[tokio::test]
async fn tokens_grow_though_the_counter_was_tampered_with() {
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let mut last = a_turn(&client.lock("a")).await;
    let beyond_exact = (1_u64 << 53).to_string();
    for value in ["", "5", "-5", "0", "garbage", "1.5", &beyond_exact, "9223372036854775807"] {
        if value.is_empty() {
            assert_eq!(admin.cmd::<u32>(&["DEL", COUNTER]).await, 1);
        } else {
            admin.cmd::<()>(&["SET", COUNTER, value]).await;
        }
        let tampered: Option<String> = admin.cmd(&["GET", COUNTER]).await;
        assert_eq!(tampered.unwrap_or_default(), value);

        let next = a_turn(&client.lock("a")).await;
        assert!(next > last, "{next} after {last}, with {value:?} in between");
        last = next;

        let counter: u64 = admin.cmd(&["GET", COUNTER]).await;
        assert!(counter < 1 << 53, "{counter}: scripts cannot count further exactly");
    }
}

/// F51: the counter is lost again and again, while the client learns the server's time from slow answers: first
/// requests are slow, so that the server's time seems late, and then answers are slow, so that it seems early.
#[tokio::test]
async fn tokens_grow_over_a_lost_counter_though_the_servers_time_seems_to_step_back() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let (slow, less_slow) = (Duration::from_millis(400), Duration::from_millis(360));
    let there = proxy.command("TIME").delay_request(slow, Duration::ZERO);
    let (client, admin) = (connect(&proxy.url(), patient()).await, server.admin().await);
    there.happened().await;
    // Less, so that it is taken for the better answer.
    let back = proxy.command("TIME").delay_reply(less_slow, Duration::ZERO);
    there.lift();

    let mut last = a_turn(&client.lock("a")).await;
    while back.fired() < 4 {
        assert_eq!(admin.cmd::<u32>(&["DEL", COUNTER]).await, 1);
        let next = a_turn(&client.lock("a")).await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

/// F51: the counter's key holds something else: the error names the counter, and not the lock.
#[tokio::test]
async fn a_counter_of_another_type_is_a_conflict_that_names_it() {
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    admin.cmd::<()>(&["RPUSH", COUNTER, "x"]).await;
    assert_eq!(admin.cmd::<String>(&["TYPE", COUNTER]).await, "list");

    let refused = timeout(SOON, client.lock("a").lock()).await;

    match refused.expect("an answer at once").unwrap_err() {
        Error::Conflict { key, kind, .. } => assert_eq!((&*key, &*kind), (COUNTER, "list")),
        other => panic!("{other}"),
    }
    assert_eq!(admin.cmd::<String>(&["TYPE", COUNTER]).await, "list", "it is left as it is");
    assert_eq!(admin.pttl(&key("a")).await, -2, "no half-made lock is left");
}

/// A resource that checks tokens: it remembers the greatest that it has seen, and refuses smaller ones.
#[derive(Debug, Default)]
struct Ledger {
    greatest: u64,
    entries: Vec<String>,
}

impl Ledger {
    /// Whether the entry was taken.
    fn write(&mut self, token: u64, entry: &str) -> bool {
        if token < self.greatest {
            return false;
        }
        self.greatest = token;
        self.entries.push(entry.to_owned());
        true
    }
}

/// Sends its writes without looking first, as a request that was ready to go when its process was stopped.
#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_writes_when_told() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client = connect(&boss.variable("URL"), brief()).await;
    let guard = client.lock("ledger").lock().await.unwrap();
    boss.tell("holding");
    while let Some(entry) = boss.order().await {
        boss.tell(&format!("{} {entry}", guard.token()));
    }
}

/// F52: a holder is stopped past its lease and writes when it wakes.
#[tokio::test]
async fn a_stale_holder_is_kept_out_by_a_store_that_checks_tokens() {
    let (server, mut ledger) = (Server::start().await, Ledger::default());
    let mut worker =
        Worker::start("fencing::worker_that_writes_when_told", &[("URL", &server.url())]);
    assert_eq!(worker.hear().await, "holding");
    let write = |said: &str, ledger: &mut Ledger| {
        let (token, entry) = said.split_once(' ').unwrap();
        ledger.write(token.parse().unwrap(), entry)
    };
    assert!(write(&worker.ask("early").await, &mut ledger));

    worker.stop_process();
    is_stopped(worker.pid()).await;
    worker.order("late").await;
    let client = connect(&server.url(), patient()).await;
    let guard = client.lock("ledger").lock().await.unwrap();
    assert_eq!(state_of(worker.pid()), Some('T'), "it sleeps through its lease");
    assert!(ledger.write(guard.token().get(), "theirs"));
    worker.continue_process();
    let late = worker.hear().await;
    assert!(late.ends_with(" late"), "the write goes out all the same: {late}");

    assert!(!write(&late, &mut ledger));
    assert!(ledger.write(guard.token().get(), "theirs again"));
    assert_eq!(ledger.entries, ["early", "theirs", "theirs again"]);
    guard.unlock().await.unwrap();
}

/// A resource that several may use at once, if none of them writes alone: it compares them with writers only.
#[derive(Debug, Default)]
struct SharedLedger {
    write: u64,
    read: u64,
}

impl SharedLedger {
    /// Whether the reader, or the holder of some of the permits, is in time.
    fn read(&mut self, token: FencingToken) -> bool {
        self.read = self.read.max(token.get());
        token.get() >= self.write
    }

    /// Whether the writer, or the holder of all permits, is in time.
    fn write(&mut self, token: FencingToken) -> bool {
        let is_in_time = token.get() >= self.write.max(self.read);
        self.write = self.write.max(token.get());
        is_in_time
    }
}

/// Holds alone, or beside others.
async fn hold(client: &Client, kind: &str, is_alone: bool) -> Guard {
    let (rw, permits) = (client.rw_lock("a"), client.semaphore("b", 3));
    let held = match (kind, is_alone) {
        ("rw", false) => rw.read().await,
        ("rw", true) => rw.write().await.map(WriteGuard::into_guard),
        (_, false) => permits.acquire().await,
        (_, true) => permits.acquire_many(3).await,
    };
    held.expect("there is room")
}

/// The tokens of readers and of permits are in no order, but they lie between those of the exclusive holders before and
/// after them.
#[tokio::test]
async fn a_token_of_a_shared_hold_is_a_floor_against_exclusive_holds() {
    let server = Server::start().await;
    for layout in [Layout::Native, Layout::Redisson] {
        for kind in ["rw", "permits"] {
            let hand_off = HandOff { max_consecutive: 256, max_time: Duration::MAX };
            let config = || patient().layout(layout).hand_off(hand_off);
            let (a, b) =
                (connect(&server.url(), config()).await, connect(&server.url(), config()).await);
            let (mut ledger, mut naive) = (SharedLedger::default(), Ledger::default());
            let before = hold(&a, kind, true).await;
            assert!(ledger.write(before.token()));
            let late_writer = before.token();
            before.unlock().await.expect("it is ours");

            // The third joins the first, or is handed what the first gives back.
            let (first, second) = (hold(&a, kind, false).await, hold(&b, kind, false).await);
            let (first, third) = if kind == "rw" {
                (Some(first), hold(&a, kind, false).await)
            } else {
                let (left, third) = tokio::join!(first.unlock(), hold(&a, kind, false));
                left.expect("it is ours");
                (None, third)
            };
            let tokens = [second.token(), third.token()];
            assert!(tokens.iter().all(|token| *token > late_writer), "{layout:?} {kind}");
            assert!(tokens.iter().all(|token| ledger.read(*token)), "{layout:?} {kind}");
            if kind == "rw" {
                let is_refused = !tokens.map(|token| naive.write(token.get(), "read"))[1];
                assert!(is_refused, "{layout:?}: a valid reader comes with a smaller token");
            }
            assert!(!ledger.write(late_writer), "{layout:?} {kind}: others read already");
            for guard in first.into_iter().chain([second, third]) {
                guard.unlock().await.expect("it is ours");
            }

            let after = hold(&b, kind, true).await;
            assert!(ledger.write(after.token()), "{layout:?} {kind}");
            assert!(tokens.iter().all(|token| !ledger.read(*token)), "{layout:?} {kind}: too late");
            after.unlock().await.expect("it is ours");
            for client in [a, b] {
                client.close().await;
            }
            server.admin().await.cmd::<()>(&["FLUSHALL"]).await;
        }
    }
}

/// F53: an owner enters again.
#[tokio::test]
async fn a_nested_hold_has_the_token_of_the_outer_one() {
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let lock = client.reentrant_lock("a");
    let outer = lock.lock().await.unwrap();
    let granted: String = admin.cmd(&["GET", COUNTER]).await;
    let inner = lock.try_lock().await.unwrap().unwrap();
    let deepest = lock.try_lock_for(SOON).await.unwrap().unwrap();
    let counts: Vec<_> = admin.hgetall(&key("a")).await.into_values().collect();
    assert_eq!((outer.hold_count(), counts), (3, vec!["3".to_owned()]));

    assert_eq!([inner.token(), deepest.token()], [outer.token(); 2]);
    assert_eq!(admin.cmd::<String>(&["GET", COUNTER]).await, granted, "no number was drawn");

    for guard in [outer, inner, deepest] {
        guard.unlock().await.unwrap();
    }
    let next = lock.lock().await.unwrap();
    assert!(admin.cmd::<String>(&["GET", COUNTER]).await > granted);
    next.unlock().await.unwrap();
}

/// The script in the page about tokens refuses a late writer whose token differs in the last digit only, as it does after a hand-off.
#[tokio::test]
async fn the_lua_in_the_page_about_tokens_refuses_a_late_writer() {
    let page = include_str!("../../docs/loss.md");
    let (_, script) = page.split_once("```lua\n").expect("a script");
    let script = script.split("```").next().expect("its end");
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let late = a_turn(&client.lock("a")).await;
    let next = (late.get() + 1).to_string();
    let write = async |token: &str| admin.cmd::<u8>(&["EVAL", script, "1", "row", token]).await;
    assert_eq!(write(&next).await, 1);
    assert_eq!(write(&late.to_string()).await, 0, "it is late");
    assert_eq!(write(&next).await, 1, "the holder writes again");
    assert_eq!(write("7").await, 0, "a shorter text is a smaller number");
}
