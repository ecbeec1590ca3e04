//! Several locks at once, all or none: F48, F49, and what holds for every exclusive lock.

use crate::common;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use common::fixture::{
    A_WHILE, LONG, SOON, channel, client, client_with, comes_in, key, lock_keys, parked, quick,
    scripts, server_and_client,
};
use common::site::left_out_in_a_cluster;
use common::{Admin, Proxy, Server, Site, eventually, judged, timeout};
use parklock::{Client, Config, Ended, Error, Layout, MultiGuard, MultiLock};
use redis::Value;
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::sleep;

const ABC: [&str; 3] = ["a", "b", "c"];

/// Why a test is about one server.
const EACH_ALONE: &str = "no script takes locks of several slots: a caller takes one after the other, and gives back what it has";

/// The script as the server has it.
const ACQUIRE_ALL: &str = concat!(
    include_str!("../../lua/lock/draw.lua"),
    include_str!("../../lua/line/clock.lua"),
    include_str!("../../lua/line/keeper.lua"),
    include_str!("../../lua/line/plain.lua"),
    include_str!("../../lua/line/proof.lua"),
    include_str!("../../lua/line/line.lua"),
    include_str!("../../lua/line/heard.lua"),
    include_str!("../../lua/line/acquire_all.lua"),
    include_str!("../../lua/lock/take_all.lua"),
);

fn wait(lock: &MultiLock) -> JoinHandle<Result<MultiGuard, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

/// It is somebody else's for as long as we look. On a busy machine that may be too short for an answer.
async fn is_not_to_be_had(multi: &MultiLock) {
    match in_time(multi.try_lock_for(A_WHILE)).await {
        Ok(None) | Err(Error::Unavailable { .. } | Error::Indeterminate { .. }) => {}
        other => panic!("{other:?}"),
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(SOON, work).await.expect("it takes less")
}

async fn is_free(admin: &Admin) {
    let free = async || lock_keys(admin).await.is_empty();
    eventually(SOON, "nothing is held or waited for", free).await;
}

/// Nobody holds the lock, however often the test looks for a while.
async fn stays_free(client: &Client, name: &str) {
    let lock = client.lock(name);
    let looked = timeout(A_WHILE, async { while !lock.is_locked().await.expect("an answer") {} });
    assert!(looked.await.is_err(), "{name} was held");
}

#[tokio::test]
async fn a_multi_lock_excludes_every_lock_of_its_names() {
    let (server, one) = server_and_client().await;
    let (other, admin) = (client(&server).await, server.admin().await);

    let guard = one.multi_lock(ABC).lock().await.unwrap();
    assert!(guard.is_valid());
    assert_eq!(lock_keys(&admin).await.len(), 3);
    for name in ABC {
        for client in [&one, &other] {
            assert!(client.lock(name).try_lock().await.unwrap().is_none());
            assert!(client.reentrant_lock(name).try_lock().await.unwrap().is_none());
            assert!(client.multi_lock([name, "z"]).try_lock().await.unwrap().is_none());
        }
    }
    let waiting = wait(&other.multi_lock(["c", "d"]));
    parked(&admin, "c", 1).await;
    guard.unlock().await.unwrap();
    // The lease is thirty seconds: what comes sooner was told.
    in_time(waiting).await.unwrap().unwrap().unlock().await.unwrap();
    is_free(&admin).await;
}

#[tokio::test]
async fn one_held_lock_keeps_a_multi_lock_out_and_the_multi_lock_takes_nothing() {
    if left_out_in_a_cluster(EACH_ALONE) {
        return;
    }
    let (server, one) = server_and_client().await;
    let (other, admin) = (client(&server).await, server.admin().await);
    for holder in [&one, &other] {
        let held = holder.lock("b").lock().await.unwrap();
        let multi = one.multi_lock(ABC);
        assert!(multi.try_lock().await.unwrap().is_none());
        assert_eq!(lock_keys(&admin).await, [key("b")], "nothing was taken, nobody lined up");
        assert!(multi.is_locked().await.unwrap());
        held.unlock().await.unwrap();
        assert!(!multi.is_locked().await.unwrap());
        in_time(multi.lock()).await.unwrap().unlock().await.unwrap();
    }
    is_free(&admin).await;
}

/// If another caller of the same client holds the lock or waits for it, a caller does not ask the server.
#[tokio::test]
async fn an_attempt_that_its_own_client_can_answer_needs_no_request() {
    if left_out_in_a_cluster(EACH_ALONE) {
        return;
    }
    let (server, client) = server_and_client().await;
    let admin = server.admin().await;
    let guard = client.multi_lock(ABC).lock().await.unwrap();
    let before = scripts(&admin).await;
    assert!(client.multi_lock(["x", "c"]).try_lock().await.unwrap().is_none());
    assert_eq!(scripts(&admin).await, before);
    guard.unlock().await.unwrap();
    let before = scripts(&admin).await;
    let guard = client.multi_lock(ABC).lock().await.unwrap();
    assert_eq!(scripts(&admin).await, before + 1, "free locks cost one round trip");
    drop(guard);
}

/// Counters that are right only if nobody else touches them meanwhile, and the last token of each.
#[derive(Default)]
struct Counters(Mutex<BTreeMap<String, (u64, u64)>>);

impl Counters {
    fn read(&self, name: &str) -> (u64, u64) {
        self.0.lock().expect("no panic under it").get(name).copied().unwrap_or_default()
    }

    /// Counts each name up by one, as slowly as others could come in between.
    async fn count(&self, turns: &[(String, u64)]) {
        let seen: Vec<_> = turns.iter().map(|(name, _)| self.read(name)).collect();
        match fastrand::u8(0..3) {
            0 => yield_now().await,
            1 => sleep(Duration::from_micros(fastrand::u64(0..500))).await,
            _ => {}
        }
        let mut counters = self.0.lock().expect("no panic under it");
        for ((name, token), (count, last)) in turns.iter().zip(seen) {
            assert!(*token > last, "the tokens of {name} grow: {token} after {last}");
            counters.insert(name.clone(), (count + 1, *token));
        }
    }
}

/// Dining philosophers: overlapping names in every order, alone and together, of several clients and tasks.
/// Nobody dies: a grant by message lasts longer than a busy machine stands still.
fn alive() -> Config {
    Config::default().watchdog_timeout(LONG).waiter_ttl(LONG / 4)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_overlapping_names_take_turns_and_never_two_at_once() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    const TURNS: usize = 40;
    let server = Site::start().await;
    let (counters, turns) = (Arc::new(Counters::default()), Arc::new(AtomicU64::new(0)));
    let mut guests = JoinSet::new();
    for number in 0..3 {
        let client = client_with(&server, alive()).await;
        for task in 0..4 {
            let (client, counters, turns) =
                (client.clone(), Arc::clone(&counters), Arc::clone(&turns));
            guests.spawn(async move {
                for _ in 0..TURNS {
                    let mut names = NAMES;
                    fastrand::shuffle(&mut names);
                    let names = &names[..fastrand::usize(1..=3)];
                    turns.fetch_add(names.len() as u64, Ordering::Relaxed);
                    if let ([name], true) = (names, fastrand::bool()) {
                        let guard = client.lock(*name).lock().await.unwrap();
                        counters.count(&[((*name).to_owned(), guard.token().get())]).await;
                        guard.unlock().await.unwrap();
                        continue;
                    }
                    let multi = client.multi_lock(names.iter().copied());
                    let multi = if task == 0 { multi.lease(SOON) } else { multi };
                    let guard = multi.lock().await.unwrap();
                    let named = names.iter().map(|name| (*name).to_owned());
                    let tokens = guard.tokens().into_iter().map(|token| token.get());
                    counters.count(&named.zip(tokens).collect::<Vec<_>>()).await;
                    assert!(guard.is_valid());
                    if number == 0 { drop(guard) } else { guard.unlock().await.unwrap() }
                }
            });
        }
    }
    timeout(LONG, guests.join_all()).await.expect("callers do not block each other");
    let counted: u64 = NAMES.iter().map(|name| counters.read(name).0).sum();
    assert_eq!(counted, turns.load(Ordering::Relaxed));
    is_free(&server.admin().await).await;
}

#[tokio::test]
async fn two_callers_that_name_them_in_opposite_orders_both_go_on() {
    const ROUNDS: u64 = 1_000;
    let server = Site::start().await;
    let (total, mut rivals) = (Arc::new(AtomicU64::new(0)), Vec::new());
    for names in [["a", "b"], ["b", "a"]] {
        let (multi, total) =
            (client_with(&server, alive()).await.multi_lock(names), Arc::clone(&total));
        rivals.push(tokio::spawn(async move {
            let mut won = 0;
            while total.load(Ordering::SeqCst) < ROUNDS {
                let guard = multi.lock().await.unwrap();
                let seen = total.load(Ordering::SeqCst);
                yield_now().await;
                total.store(seen + 1, Ordering::SeqCst);
                won += 1;
                guard.unlock().await.unwrap();
            }
            won
        }));
    }
    let mut won = Vec::new();
    for rival in rivals {
        won.push(timeout(LONG, rival).await.expect("callers do not block each other").unwrap());
    }
    assert_eq!(won.iter().sum::<u64>(), total.load(Ordering::SeqCst), "never two at once");
    assert!(won.iter().all(|won| *won >= ROUNDS / 20), "both go on: {won:?}");
}

/// The scenario `testWaitAndLeaseTimeouts` of Redisson. All ask for the first lock first, so whoever gets that one gets all.
#[tokio::test]
async fn of_ten_clients_that_try_at_once_exactly_one_gets_all_locks() {
    let (server, mut clients) = (Site::start().await, Vec::new());
    for _ in 0..10 {
        // An answer is never given up because the machine is busy.
        clients.push(client_with(&server, alive().response_timeout(SOON)).await);
    }
    let admin = server.admin().await;
    for _ in 0..20 {
        fastrand::shuffle(&mut clients);
        let together = Arc::new(Barrier::new(clients.len()));
        let mut tries = JoinSet::new();
        for client in &clients {
            let (multi, together) = (client.multi_lock(ABC), Arc::clone(&together));
            tries.spawn(async move {
                together.wait().await;
                multi.try_lock().await.unwrap()
            });
        }
        let mut won: Vec<_> = in_time(tries.join_all()).await.into_iter().flatten().collect();
        assert_eq!(won.len(), 1);
        let winner = won.remove(0);
        assert!(winner.is_valid());
        assert_eq!(lock_keys(&admin).await, ABC.map(key), "the losers left nothing");
        winner.unlock().await.unwrap();
    }
    is_free(&admin).await;
}

#[tokio::test]
async fn a_waiter_holds_nothing() {
    if left_out_in_a_cluster(EACH_ALONE) {
        return;
    }
    let (server, one) = server_and_client().await;
    let (other, admin) = (client(&server).await, server.admin().await);
    let (b, c) = (other.lock("b").lock().await.unwrap(), other.lock("c").lock().await.unwrap());

    let waiting = wait(&one.multi_lock(ABC));
    parked(&admin, "b", 1).await;
    stays_free(&other, "a").await;

    // What it waited for is not enough: it is given back, and the next one is waited for.
    b.unlock().await.unwrap();
    parked(&admin, "c", 1).await;
    eventually(SOON, "b is given back", async || !other.lock("b").is_locked().await.unwrap()).await;
    stays_free(&other, "a").await;
    stays_free(&other, "b").await;

    c.unlock().await.unwrap();
    in_time(waiting).await.unwrap().unwrap().unlock().await.unwrap();
    is_free(&admin).await;
}

/// Puts somebody in the line of `b`, as a client that counts as alive for so long from now.
async fn stands_in_line(admin: &Admin, place: &str, field: &str, lives_for: i64) {
    let (seconds, micros): (i64, i64) = admin.cmd(&["TIME"]).await;
    let ends = seconds * 1000 + micros / 1000 + lives_for;
    let (life, client) = (format!("{ends} 1 1 1000"), field.rsplit_once(':').expect("a number").0);
    admin.cmd::<i64>(&["ZADD", "lock_queue:{b}", place, field]).await;
    let notes = ["HSET", "lock_notes:{b}", field, "1 1000", &format!("life:{client}"), &life];
    admin.cmd::<i64>(&notes).await;
    for key in ["lock_queue:{b}", "lock_notes:{b}"] {
        admin.cmd::<i64>(&["PEXPIRE", key, "600000"]).await;
    }
}

/// A free lock for which somebody alive waits is not taken, though the head of the line has fallen silent.
#[tokio::test]
async fn a_multi_lock_does_not_overtake_waiters_in_line() {
    if left_out_in_a_cluster(EACH_ALONE) {
        return;
    }
    let (server, one) = server_and_client().await;
    let admin = server.admin().await;
    stands_in_line(&admin, "1", "silent:1", -1).await;
    stands_in_line(&admin, "2", "alive:1", 2_000).await;
    let reply = admin.try_cmd::<Value>(&call(&["a", "b"], "x").as_words()).await.unwrap();
    assert_eq!(reply, Value::Array(vec![Value::Int(2), Value::Int(2), Value::Int(0)]));
    assert_eq!(lock_keys(&admin).await, ["lock_notes:{b}", "lock_queue:{b}"]);
    assert!(one.multi_lock(["a", "b"]).try_lock().await.unwrap().is_none());

    // A waiter is let in when the waiters before it had their time and did not come.
    in_time(one.multi_lock(["a", "b"]).lock()).await.unwrap().unlock().await.unwrap();
    is_free(&admin).await;
}

/// A call of the script, by hand.
struct Call(Vec<String>);

impl Call {
    fn as_words(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }
}

fn call(names: &[&str], field: &str) -> Call {
    let mut words = vec!["EVAL".into(), ACQUIRE_ALL.into(), (1 + names.len() * 3).to_string()];
    words.push("lock:grants".into());
    for name in names {
        words.extend([
            key(name),
            format!("lock_queue:{{{name}}}"),
            format!("lock_notes:{{{name}}}"),
        ]);
    }
    words.extend(["1", "somebody", "20000"].map(String::from));
    for name in names {
        words.extend([format!("{field}-{name}:1"), "60000".into(), channel(name)]);
    }
    Call(words)
}

#[tokio::test]
async fn the_script_is_harmless_when_it_runs_twice() {
    if left_out_in_a_cluster(EACH_ALONE) {
        return;
    }
    let server = Site::start().await;
    let admin = server.admin().await;
    let run = async |names: &[&str], field: &str| {
        let reply: Value = admin.cmd(&call(names, field).as_words()).await;
        let Value::Array(items) = reply else { panic!("{reply:?}") };
        match items.as_slice() {
            [Value::Int(code), Value::Int(which), _] => (*code, *which),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(run(&ABC, "x").await, (1, 0));
    admin.cmd::<i64>(&["PEXPIRE", &key("a"), "500000"]).await;
    assert_eq!(run(&ABC, "x").await, (1, 0), "it finds its own work");
    for name in ABC {
        assert_eq!(
            admin.hgetall(&key(name)).await,
            BTreeMap::from([(format!("x-{name}:1"), "1".into())])
        );
        assert!(admin.pttl(&key(name)).await > 50_000);
    }
    assert!(admin.pttl(&key("a")).await > 400_000, "a TTL is never shortened");

    // One of them is another's meanwhile: a late duplicate takes none of them.
    for name in ABC {
        admin.cmd::<i64>(&["DEL", &key(name)]).await;
    }
    // And a caller that was granted a lock does not stand in its line any more.
    stands_in_line(&admin, "1", "y-b:1", 60_000).await;
    assert_eq!(run(&["b"], "y").await, (1, 0));
    assert_eq!(run(&ABC, "x").await, (0, 2));
    assert_eq!(lock_keys(&admin).await, [key("b")]);
}

/// If anything goes wrong on the way, the script undoes what it has done.
#[tokio::test]
async fn a_refusal_in_the_middle_takes_none() {
    if left_out_in_a_cluster(EACH_ALONE) {
        return;
    }
    let (server, client) = server_and_client().await;
    let admin = server.admin().await;
    admin.cmd::<i64>(&["RPUSH", &key("b"), "no lock"]).await;
    for told in [
        client.multi_lock(ABC).try_lock().await.map(drop),
        in_time(client.multi_lock(ABC).lock()).await.map(drop),
    ] {
        let Err(Error::Conflict { key: at, kind, .. }) = told else { panic!("{told:?}") };
        assert_eq!((at, kind.as_str()), (key("b"), "list"));
    }
    assert_eq!(lock_keys(&admin).await, [key("b")]);

    admin.cmd::<i64>(&["DEL", &key("b")]).await;
    // An expiry that cannot be set: the third field cannot be kept, and the first two go with it.
    let mut words = call(&ABC, "x");
    let lease = words.0.len() - 2;
    words.0[lease] = "60000.5".into();
    let reply: Value = admin.cmd(&words.as_words()).await;
    let Value::Array(items) = &reply else { panic!("{reply:?}") };
    assert_eq!(items[..2], [Value::Int(-1), Value::Int(3)], "{items:?}");
    is_free(&admin).await;
}

/// F49: nobody knows whether the locks were granted, so the client gives all of them back.
#[tokio::test]
async fn a_lost_reply_gives_all_of_them_back() {
    if left_out_in_a_cluster(EACH_ALONE) {
        return;
    }
    let server = Site::start().await;
    let (proxy, admin) = (Proxy::before(&server).await, server.admin().await);
    proxy.name_script("acquire_all", include_str!("../../lua/line/acquire_all.lua"));
    let config = Config::default().watchdog_timeout(LONG).response_timeout(SOON);
    let client = comes_in(proxy.url(), config).await;
    let multi = client.multi_lock(ABC);

    let lost = proxy.script("acquire_all").first(1).cut_after();
    let told = in_time(multi.try_lock()).await;
    assert!(matches!(told, Err(Error::Indeterminate { .. })), "{told:?}");
    lost.happened().await;
    is_free(&admin).await;

    // A caller that may wait asks again.
    let lost = proxy.script("acquire_all").first(1).cut_after();
    let guard = in_time(multi.lock()).await.unwrap();
    lost.happened().await;
    assert_eq!(lock_keys(&admin).await.len(), 3);
    guard.unlock().await.unwrap();

    // Nobody waits for the reply any more.
    let held = proxy.script("acquire_all").first(1).hold_reply();
    let waiting = wait(&multi);
    held.happened().await;
    assert_eq!(lock_keys(&admin).await.len(), 3);
    waiting.abort();
    held.lift();
    is_free(&admin).await;

    // The request itself arrives when it is over.
    let held = proxy.script("acquire_all").first(1).hold_request();
    let waiting = wait(&multi);
    held.happened().await;
    waiting.abort();
    let _ = waiting.await;
    held.lift();
    is_free(&admin).await;
}

/// Polls a future this many times, each time after it was woken, and then drops it. Returns its output if it was done
/// by then.
async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(move |context| match left {
        0 => Poll::Ready(None),
        _ => {
            left -= 1;
            let output = future.as_mut().poll(context).map(Some);
            if left == 0 && output.is_pending() { Poll::Ready(None) } else { output }
        }
    })
    .await
}

/// Drops a call after each number of polls, until it is done before that.
async fn dropped_at_each_poll<T>(
    server: &Site,
    clients: &[&Client],
    what: &str,
    mut call: impl AsyncFnMut() -> T,
) {
    let admin = server.admin().await;
    for polls in 0.. {
        let done = polled(polls, call()).await;
        let is_done = done.is_some();
        drop(done);
        for client in clients {
            let guard = client.multi_lock(ABC).try_lock_for(SOON).await.expect("an answer");
            let guard = guard.unwrap_or_else(|| panic!("{what}, {polls} polls: still held"));
            guard.unlock().await.expect("they are ours");
        }
        is_free(&admin).await;
        if is_done {
            assert!(polls > 1, "{what} never waited");
            return;
        }
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_at_any_poll_leaves_nothing() {
    let (server, ours) = server_and_client().await;
    let theirs = client(&server).await;
    let (both, multi) = ([&theirs, &ours], ours.multi_lock(ABC));
    let dropped = async |what: &str, call: &mut dyn FnMut() -> Boxed| {
        dropped_at_each_poll(&server, &both, what, async || call().await).await;
    };
    let free = multi.clone();
    dropped("lock", &mut || boxed(free.clone(), None)).await;
    let leased = multi.clone().lease(LONG);
    dropped("lease", &mut || boxed(leased.clone(), None)).await;
    for holder in both {
        for name in ABC {
            let (holder, multi) = (holder.clone(), multi.clone());
            dropped("wait", &mut || boxed(multi.clone(), Some((holder.clone(), name)))).await;
        }
    }
    let in_order = MultiLock::new([ours.lock("c"), theirs.lock("a"), ours.lock("b")]);
    dropped("in order", &mut || boxed(in_order.clone(), None)).await;
    let holder = theirs.clone();
    dropped("in order, wait", &mut || boxed(in_order.clone(), Some((holder.clone(), "b")))).await;
}

type Boxed = std::pin::Pin<Box<dyn Future<Output = MultiGuard>>>;

/// Locks them, perhaps while somebody holds one for some milliseconds.
fn boxed(multi: MultiLock, held: Option<(Client, &'static str)>) -> Boxed {
    Box::pin(async move {
        if let Some((holder, name)) = held {
            let held = holder.lock(name).lock().await.expect("it is free");
            tokio::spawn(async move {
                sleep(Duration::from_millis(3)).await;
                held.unlock().await.expect("it is held");
            });
        }
        multi.lock().await.expect("the locks")
    })
}

#[tokio::test]
async fn an_unlock_that_is_dropped_at_any_poll_still_gives_them_back() {
    let (server, ours) = server_and_client().await;
    let multi = ours.multi_lock(ABC);
    let unlock = async || multi.lock().await.unwrap().unlock().await.unwrap();
    dropped_at_each_poll(&server, &[&ours], "unlock", unlock).await;
}

#[tokio::test]
async fn the_loss_of_one_lock_is_the_loss_of_all_and_ends_the_work() {
    let server = Site::start().await;
    let (client, admin) = (client(&server).await, server.admin().await);
    for name in ABC {
        let (began, started) = tokio::sync::oneshot::channel();
        let multi = client.multi_lock(ABC);
        let working = tokio::spawn(async move {
            let work = |hold: parklock::MultiHold| async move {
                began.send(hold).unwrap();
                std::future::pending::<()>().await;
            };
            multi.run(work).await
        });
        let hold = started.await.unwrap();
        assert!(hold.is_valid());
        admin.cmd::<i64>(&["DEL", &key(name)]).await;
        assert!(matches!(in_time(working).await.unwrap(), Err(Error::Lost { .. })));
        assert_eq!(in_time(hold.ended()).await, Ended::Lost);
        assert!(!hold.is_valid());
        is_free(&admin).await;
    }
    let guard = client.multi_lock(ABC).lock().await.unwrap();
    admin.cmd::<i64>(&["DEL", &key("b")]).await;
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    is_free(&admin).await;
}

#[tokio::test]
async fn a_given_back_guard_was_released_and_not_lost() {
    let (server, client) = server_and_client().await;
    let guard = client.multi_lock(ABC).lock().await.unwrap();
    let lost = guard.ended();
    drop(guard);
    assert_eq!(in_time(lost).await, Ended::Released);
    let done = client.multi_lock(ABC).run(|hold| async move { hold.tokens().len() }).await.unwrap();
    assert_eq!(done, 3);
    is_free(&server.admin().await).await;
}

#[tokio::test]
async fn the_watchdog_keeps_all_of_them() {
    judged(async || {
        let server = Site::start().await;
        let watched = Config::default().watchdog_timeout(Duration::from_secs(6));
        let (one, other) = (client_with(&server, watched).await, client(&server).await);
        let guard = one.multi_lock(ABC).lock().await.unwrap();
        sleep(Duration::from_secs(8)).await; // longer than the lease
        assert!(guard.is_valid());
        assert!(other.multi_lock(ABC).try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
    })
    .await;
}

/// In Redisson's layout both kinds have one key, so the caller would wait for itself.
#[tokio::test]
async fn one_name_in_two_kinds_is_refused() {
    let server = Site::start().await;
    for layout in [Layout::Native, Layout::Redisson] {
        let client = client_with(&server, Config::default().layout(layout)).await;
        let both = MultiLock::new([client.lock("a"), client.lock("b"), client.fair_lock("a")]);
        let refused = in_time(both.lock()).await.map(drop);
        assert!(matches!(refused, Err(Error::InvalidLocks { .. })), "{layout:?}: {refused:?}");
        assert!(!client.lock("a").is_locked().await.unwrap());
    }
}

/// Redisson's read-write lock is a hash too. It is no holder that will go away.
#[tokio::test]
async fn a_name_of_another_kind_is_a_conflict_as_for_a_lock_alone() {
    if left_out_in_a_cluster(EACH_ALONE) {
        return;
    }
    let server = Site::start().await;
    let ours = client_with(&server, Config::default().layout(Layout::Redisson)).await;
    let reading = ours.rw_lock("b").read().await.unwrap();

    let tried = in_time(ours.multi_lock(ABC).try_lock()).await;
    assert!(matches!(tried, Err(Error::Conflict { .. })), "{tried:?}");
    assert!(!ours.lock("a").is_locked().await.unwrap());
    reading.unlock().await.unwrap();
}

#[tokio::test]
async fn force_unlock_frees_all_locks_of_a_multi_lock() {
    let server = Site::start().await;
    let (one, other) = (client_with(&server, quick()).await, client(&server).await);
    let guard = one.multi_lock(ABC).lock().await.unwrap();
    assert!(other.multi_lock(ABC).force_unlock().await.unwrap());
    assert!(lock_keys(&server.admin().await).await.is_empty());
    assert!(!other.multi_lock(ABC).force_unlock().await.unwrap());
    assert_eq!(in_time(guard.ended()).await, Ended::Lost);
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn a_fixed_lease_ends_and_can_be_made_longer() {
    judged(async || {
        let (server, client) = server_and_client().await;
        let multi = client.multi_lock(ABC).lease(Duration::from_secs(1));
        let guard = multi.lock().await.unwrap();
        assert!(guard.remaining() < Duration::from_secs(1));
        guard.extend(Duration::from_secs(60)).await.unwrap();
        assert!(guard.remaining() > Duration::from_secs(50));
        guard.unlock().await.unwrap();

        let guard = multi.lock().await.unwrap();
        assert_eq!(in_time(guard.ended()).await, Ended::Lost);
        assert!(matches!(guard.extend(Duration::from_secs(60)).await, Err(Error::Lost { .. })));
        is_free(&server.admin().await).await;
    })
    .await;
}

/// The lock that was waited for first has as much time left as the others.
#[tokio::test]
async fn the_first_lock_has_its_whole_lease_however_late_the_others_are_granted() {
    judged(async || {
        if left_out_in_a_cluster(EACH_ALONE) {
            return;
        }
        const LEASE: Duration = Duration::from_secs(4);
        let server = Site::start().await;
        let proxy = Proxy::before(&server).await;
        proxy.name_script("acquire_all", include_str!("../../lua/line/acquire_all.lua"));
        let client = comes_in(proxy.url(), Config::default()).await;
        let holder = common::fixture::client(&server).await;
        let held = holder.lock("b").lock().await.unwrap();
        let waiting = wait(&client.multi_lock(ABC).lease(LEASE));
        parked(&server.admin().await, "b", 1).await;
        // The request for the others takes a while on its way, after b has become ours.
        let late = proxy.script("acquire_all").first(1).delay_request(LEASE / 4, Duration::ZERO);
        held.unlock().await.unwrap();
        let guard = in_time(waiting).await.unwrap().unwrap();
        late.happened().await;
        let ttls = [key("a"), key("b"), key("c")];
        for key in ttls {
            let ttl = server.admin().await.pttl(&key).await;
            assert!(ttl > 3_300, "{key}: {ttl}");
        }
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_attempt_leaves_no_trace_and_neither_does_a_time_out() {
    let server = Site::start().await;
    let config = Config::default().subscription_linger(Duration::from_millis(20));
    let (one, other) = (client_with(&server, config).await, client(&server).await);
    let admin = server.admin().await;
    let held = other.lock("b").lock().await.unwrap();
    let multi = one.multi_lock(ABC);
    assert!(multi.try_lock().await.unwrap().is_none());
    assert!(admin.channels().await.is_empty());
    assert!(multi.try_lock_for(Duration::ZERO).await.unwrap().is_none());
    is_not_to_be_had(&multi).await;
    let clean = async || lock_keys(&admin).await == [key("b")] && admin.channels().await.is_empty();
    eventually(SOON, "no place in line and no channel is left", clean).await;
    held.unlock().await.unwrap();
    in_time(multi.try_lock_for(LONG)).await.unwrap().expect("it is free").unlock().await.unwrap();
    is_free(&admin).await;
}

/// If the time is over and no server has answered, nobody knows whether the locks are held.
#[tokio::test]
async fn a_multi_lock_does_not_take_a_dead_server_for_another_holder() {
    let server = Site::start().await;
    let config = quick().response_timeout(Duration::from_millis(500));
    let patient = client_with(&server, config.clone().ride_out(LONG)).await;
    let impatient = client_with(&server, config.ride_out(Duration::from_secs(1))).await;
    server.kill();
    let told = in_time(patient.multi_lock(ABC).try_lock_for(Duration::from_secs(1))).await;
    let unknown =
        |error: &Error| matches!(error, Error::Unavailable { .. } | Error::Indeterminate { .. });
    assert!(told.as_ref().is_err_and(unknown), "{told:?}");
    let told = in_time(impatient.multi_lock(ABC).lock()).await;
    assert!(told.as_ref().is_err_and(unknown), "{told:?}");

    server.start_again().await;
    in_time(patient.multi_lock(ABC).lock()).await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn a_list_that_cannot_be_locked_is_refused_before_any_request() {
    let (server, client) = server_and_client().await;
    let (admin, none) = (server.admin().await, Vec::<String>::new());
    let before = scripts(&admin).await;
    let told = client.multi_lock(none).lock().await;
    assert!(matches!(told, Err(Error::InvalidLocks { .. })), "{told:?}");
    let told = client.multi_lock((0..1001).map(|n| n.to_string())).try_lock().await;
    assert!(matches!(told, Err(Error::InvalidLocks { .. })), "{told:?}");
    let told = client.multi_lock(["a", ""]).is_locked().await;
    assert!(matches!(told, Err(Error::InvalidName { .. })), "{told:?}");
    let told = client.multi_lock(ABC).lease(Duration::from_millis(1)).lock().await;
    assert!(matches!(told, Err(Error::InvalidLease { .. })), "{told:?}");
    assert_eq!(scripts(&admin).await, before);

    let most = client.multi_lock((0..1000).map(|n| n.to_string()));
    let guard = most.lock().await.unwrap();
    assert_eq!(lock_keys(&admin).await.len(), 1000);
    guard.unlock().await.unwrap();
    is_free(&admin).await;
}

#[tokio::test]
async fn a_name_counts_once_and_its_token_stands_where_it_was_named() {
    let (server, client) = server_and_client().await;
    let guard = client.multi_lock(["b", "a", "b", "c", "a"]).lock().await.unwrap();
    assert_eq!(lock_keys(&server.admin().await).await.len(), 3);
    let tokens = guard.tokens();
    assert_eq!(tokens.len(), 3);
    guard.unlock().await.unwrap();
    // They are drawn in the order of the names.
    assert!(tokens[1] < tokens[0] && tokens[0] < tokens[2], "{tokens:?}");
    for (name, token) in ["b", "a", "c"].into_iter().zip(tokens) {
        let guard = client.lock(name).lock().await.unwrap();
        assert!(guard.token() > token);
        guard.unlock().await.unwrap();
    }
}

/// F48: names may contain any character.
#[tokio::test]
async fn names_with_braces_and_percent_signs_are_names() {
    let (server, one) = server_and_client().await;
    let other = client(&server).await;
    let names = ["{a}", "a", "a}b{", "%7Ba%7D", "%", "{", "}", "{}", "ü \n"];
    let guard = one.multi_lock(names).lock().await.unwrap();
    assert_eq!(lock_keys(&server.admin().await).await.len(), names.len());
    for name in names {
        assert!(other.lock(name).try_lock().await.unwrap().is_none(), "{name:?}");
    }
    guard.unlock().await.unwrap();
    is_free(&server.admin().await).await;
}

#[tokio::test]
async fn a_closed_client_loses_all_and_sends_its_waiters_away() {
    let (server, one) = server_and_client().await;
    let (other, admin) = (client(&server).await, server.admin().await);
    let guard = one.multi_lock(ABC).lock().await.unwrap();
    let held = other.lock("z").lock().await.unwrap();
    let waiting = wait(&one.multi_lock(["y", "z"]));
    parked(&admin, "z", 1).await;
    one.close().await;
    assert_eq!(in_time(guard.ended()).await, Ended::Lost);
    assert!(matches!(in_time(waiting).await.unwrap(), Err(Error::Closed)));
    assert!(matches!(one.multi_lock(ABC).lock().await, Err(Error::Closed)));
    assert!(matches!(one.multi_lock(ABC).try_lock().await, Err(Error::Closed)));
    assert_eq!(lock_keys(&admin).await, [key("z")], "the held locks are given back");
    drop((guard, held));
}

/// Two servers that know nothing of each other.
struct Two {
    servers: [Server; 2],
    admins: [Admin; 2],
}

impl Two {
    async fn set() -> Self {
        let servers = [Server::start().await, Server::start().await];
        let admins = [servers[0].admin().await, servers[1].admin().await];
        Self { servers, admins }
    }

    /// `a`, `c` and `z` on the first, `b` and `c` on the second.
    async fn lock(&self, config: &Config) -> MultiLock {
        let here = client_with(&self.servers[0], config.clone()).await;
        let there = client_with(&self.servers[1], config.clone()).await;
        // Nobody names them in the same order, but for the servers of one name.
        let mut locks = [here.lock("a"), there.lock("b"), here.lock("z")];
        fastrand::shuffle(&mut locks);
        MultiLock::new(locks.into_iter().chain([here.lock("c"), there.lock("c")]))
    }

    async fn is_free(&self) {
        is_free(&self.admins[0]).await;
        is_free(&self.admins[1]).await;
    }
}

#[tokio::test]
async fn locks_of_several_servers_are_held_together() {
    let two = Two::set().await;
    let (one, other) = (two.lock(&Config::default()).await, two.lock(&Config::default()).await);
    let guard = one.lock().await.unwrap();
    assert_eq!(guard.tokens().len(), 5);
    for (admin, held) in two.admins.iter().zip([3, 2]) {
        assert_eq!(lock_keys(admin).await.len(), held);
    }
    assert!(other.try_lock().await.unwrap().is_none());
    is_not_to_be_had(&other).await;
    let waiting = wait(&other);
    parked(&two.admins[0], "a", 1).await;
    guard.unlock().await.unwrap();
    in_time(waiting).await.unwrap().unwrap().unlock().await.unwrap();
    two.is_free().await;
}

#[tokio::test]
async fn many_take_turns_on_several_servers_and_never_two_at_once() {
    const TURNS: u64 = 25;
    let two = Two::set().await;
    let total = Arc::new(AtomicU64::new(0));
    let mut workers = Vec::new();
    for _ in 0..4 {
        let (lock, total) = (two.lock(&alive()).await, Arc::clone(&total));
        workers.push(tokio::spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.lock().await.unwrap();
                let seen = total.load(Ordering::SeqCst);
                yield_now().await;
                total.store(seen + 1, Ordering::SeqCst);
                guard.unlock().await.unwrap();
            }
        }));
    }
    for worker in workers {
        timeout(SOON * 6, worker).await.expect("callers do not block each other").unwrap();
    }
    assert_eq!(total.load(Ordering::SeqCst), 4 * TURNS);
    two.is_free().await;
}

/// F49: one of the servers is down, before and meanwhile.
#[tokio::test]
async fn without_one_of_the_servers_nothing_is_held_on_the_others() {
    let two = Two::set().await;
    let moment = Duration::from_millis(500);
    let config = Config::default().response_timeout(moment).ride_out(moment * 2).max_park(moment);
    let lock = two.lock(&config).await;
    let blocker = client(&two.servers[1]).await.lock("b").lock().await.unwrap();
    let waiting = wait(&lock);
    parked(&two.admins[1], "b", 1).await;
    assert_eq!(lock_keys(&two.admins[0]).await, [key("a")], "the request before it is held");
    two.servers[1].kill();

    let unknown =
        |error: &Error| matches!(error, Error::Unavailable { .. } | Error::Indeterminate { .. });
    let told = in_time(waiting).await.unwrap();
    assert!(told.as_ref().is_err_and(unknown), "{told:?}");
    is_free(&two.admins[0]).await;
    // "Somebody is there" is an answer as long as our own lock is on its way back.
    let refused = async || match lock.try_lock().await {
        Ok(told) => told.is_some_and(|guard| panic!("{guard:?}")),
        Err(error) => unknown(&error),
    };
    eventually(SOON, "an attempt is told", refused).await;
    let told = in_time(lock.lock()).await;
    assert!(told.as_ref().is_err_and(unknown), "{told:?}");
    is_free(&two.admins[0]).await;
    drop(blocker);
}

/// A lock that is held while the call waits for another server may be lost meanwhile: then the call begins anew.
#[tokio::test]
async fn a_lock_that_is_lost_while_the_call_waits_for_another_is_taken_again() {
    let two = Two::set().await;
    let blocker = client(&two.servers[1]).await.lock("b").lock().await.unwrap();
    let waiting = wait(&two.lock(&Config::default()).await);
    parked(&two.admins[1], "b", 1).await;
    let before = two.admins[0].hgetall(&key("a")).await;
    two.admins[0].cmd::<i64>(&["DEL", &key("a")]).await;
    let again = async || {
        let now = two.admins[0].hgetall(&key("a")).await;
        !now.is_empty() && now != before
    };
    eventually(SOON, "it is taken again", again).await;
    parked(&two.admins[1], "b", 1).await;
    blocker.unlock().await.unwrap();
    let guard = in_time(waiting).await.unwrap().unwrap();
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    two.is_free().await;
}

/// The lock that was taken first has as much time left as the last one.
#[tokio::test]
async fn a_lease_is_whole_however_slow_the_other_server_was() {
    judged(async || {
        const LEASE: Duration = Duration::from_secs(4);
        let two = Two::set().await;
        let slow = Proxy::before(&two.servers[1]).await;
        slow.name_acquires();
        let here = client(&two.servers[0]).await;
        let there = comes_in(slow.url(), Config::default()).await;
        let late = slow.script("acquire").first(1).delay_request(LEASE / 4, Duration::ZERO);
        let multi = MultiLock::new([here.lock("a"), there.lock("b")]).lease(LEASE);
        let guard = in_time(multi.lock()).await.unwrap();
        late.happened().await;
        let ttl = two.admins[0].pttl(&key("a")).await;
        assert!(ttl > 3_300, "{ttl}");
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A lock that is lost while the attempt asks another server is not part of a grant.
#[tokio::test]
async fn an_attempt_that_loses_one_of_its_locks_meanwhile_fails() {
    let two = Two::set().await;
    let slow = Proxy::before(&two.servers[1]).await;
    slow.name_acquires();
    let here = client_with(&two.servers[0], quick()).await;
    let there = comes_in(slow.url(), Config::default().watchdog_timeout(LONG)).await;
    let held_back = slow.script("acquire").nth(1).hold_request();
    let multi = MultiLock::new([here.lock("a"), there.lock("b")]);
    let attempt = tokio::spawn(async move { multi.try_lock().await });
    in_time(held_back.happened()).await;
    two.admins[0].cmd::<i64>(&["DEL", &key("a")]).await;
    eventually(SOON, "the loss is known", async || here.holds().held.is_empty()).await;
    held_back.lift();
    let answer = in_time(attempt).await.unwrap();
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
    two.is_free().await;
}

/// A fixed lease does not run out while another server is waited for, and is whole in the end.
#[tokio::test]
async fn a_lease_is_kept_while_another_server_is_waited_for() {
    judged(async || {
        const LEASE: Duration = Duration::from_secs(4);
        let two = Two::set().await;
        let lock = two.lock(&Config::default()).await.lease(LEASE);
        let blocker = client(&two.servers[1]).await.lock("b").lock().await.unwrap();
        let waiting = wait(&lock);
        parked(&two.admins[1], "b", 1).await;
        let before = two.admins[0].hgetall(&key("a")).await;
        sleep(LEASE * 3 / 2).await;
        assert_eq!(two.admins[0].hgetall(&key("a")).await, before, "it has been ours all the time");
        blocker.unlock().await.unwrap();
        let guard = in_time(waiting).await.unwrap().unwrap();
        assert!(guard.remaining() > LEASE / 2, "{:?}", guard.remaining());
        guard.unlock().await.unwrap();
        two.is_free().await;
    })
    .await;
}

/// The last lock is granted, and then the connection breaks: the caller may have waited for long, and keeps what it has.
#[tokio::test]
async fn a_call_in_order_rides_out_a_connection_that_breaks_after_the_last_lock() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
    let (one, other) = (
        comes_in(proxy.url(), Config::default()).await,
        comes_in(proxy.url(), Config::default()).await,
    );
    let multi = MultiLock::new([one.lock("a"), other.lock("b")]).lease(SOON * 3);
    let lost = proxy.script("renew").first(2).cut_after();
    let guard = in_time(multi.lock()).await.unwrap();
    assert_eq!(lost.fired(), 2);
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

/// Kinds of which no script takes several are taken one after the other.
#[tokio::test]
async fn other_kinds_of_locks_are_held_together_too() {
    let (server, one) = server_and_client().await;
    let admin = server.admin().await;
    let both = MultiLock::new([one.fair_lock("f"), one.lock("a")]);
    let held = client(&server).await.fair_lock("f").lock().await.unwrap();
    assert!(both.try_lock().await.unwrap().is_none());
    let waiting = wait(&both);
    eventually(SOON, "it waits", async || admin.subscribers(&channel("f")).await == 1).await;
    held.unlock().await.unwrap();
    in_time(waiting).await.unwrap().unwrap().unlock().await.unwrap();
    is_free(&admin).await;
}

/// P9: the call stops nobody at any of its locks, and the client gives back what it was granted.
#[tokio::test]
async fn a_call_that_is_not_polled_stops_nobody() {
    judged(async || {
        let server = Site::start().await;
        let config = Config::default().waiter_ttl(Duration::from_millis(200));
        let (ours, theirs) =
            (comes_in(server.url(), config.clone()).await, comes_in(server.url(), config).await);
        for held in [false, true] {
            let guard = match held {
                true => Some(in_time(theirs.lock("b").lock()).await.unwrap()),
                false => None,
            };
            let multi = ours.multi_lock(ABC);
            let mut asleep = Box::pin(multi.lock());
            let polled = poll_fn(|cx| Poll::Ready(asleep.as_mut().poll(cx).is_pending())).await;
            assert!(polled, "it has asked");
            sleep(A_WHILE).await;
            drop(guard);
            for client in [&ours, &theirs] {
                for name in ABC {
                    in_time(client.lock(name).lock()).await.unwrap().unlock().await.unwrap();
                }
            }
            in_time(asleep).await.unwrap().unlock().await.unwrap();
        }
        is_free(&server.admin().await).await;
    })
    .await;
}

/// The call has waited for one of its locks. It is no longer polled while its request for the others is in flight.
#[tokio::test]
async fn a_call_that_is_not_polled_keeps_no_lock_that_it_has_waited_for() {
    judged(async || {
        let server = Server::start().await;
        let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
        proxy.name_script("all", include_str!("../../lua/line/acquire_all.lua"));
        let config = Config::default().waiter_ttl(Duration::from_millis(200));
        let (ours, theirs) =
            (comes_in(proxy.url(), config.clone()).await, comes_in(server.url(), config).await);
        let guard = in_time(theirs.lock("b").lock()).await.unwrap();
        let multi = ours.multi_lock(ABC);
        let request = proxy.script("all").nth(2).hold_request();
        let mut asleep = Box::pin(multi.lock());
        let is_on_its_way = async {
            tokio::select! {
                _ = &mut asleep => panic!("its request is kept on its way"),
                () = request.happened() => {}
            }
        };
        let frees = async {
            parked(&admin, "b", 1).await;
            guard.unlock().await.unwrap();
        };
        tokio::join!(in_time(is_on_its_way), frees);
        request.lift();
        for name in ABC {
            in_time(theirs.lock(name).lock()).await.unwrap().unlock().await.unwrap();
        }
        in_time(asleep).await.unwrap().unlock().await.unwrap();
        is_free(&admin).await;
    })
    .await;
}
