//! The fair lock: first come, first served, for all callers of all clients. A release grants it to the next waiter in
//! the same step.

use crate::common;

use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use common::fixture::{
    A_WHILE, LONG, SOON, channel, client, client_with, comes_in, got_nothing, is_pending, key,
    lock_keys, quick, scripts,
};
use common::site::only_on_one_server;
use common::{Admin, Proxy, Server, Site, Watch, Worker, WorkerSide, eventually, judged, timeout};
use futures_util::poll;
use parklock::{Client, Config, Ended, Error, Guard, Layout, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const QUEUE: &str = "lock_queue:{a}";

/// How long a silent waiter keeps its place, unless a test says otherwise.
const CLAIM: Duration = Duration::from_secs(1);

/// No lease, place or park ends by itself while a test runs: what happens was told.
pub(crate) fn patient() -> Config {
    let long = LONG * 4;
    let config = Config::default().watchdog_timeout(long).waiter_ttl(LONG).max_park(LONG);
    config.response_timeout(Duration::from_secs(2))
}

/// As [`patient`], but what a message has granted is confirmed within two seconds.
fn confirming() -> Config {
    patient().waiter_ttl(Duration::from_secs(6))
}

pub(crate) async fn queue(admin: &Admin) -> Vec<String> {
    admin.cmd(&["ZRANGE", QUEUE, "0", "-1"]).await
}

pub(crate) async fn queued(admin: &Admin, waiters: usize) {
    let all = async || queue(admin).await.len() == waiters;
    eventually(SOON, &format!("{waiters} stand in the queue"), all).await;
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("it comes soon")
}

pub(crate) fn waiting(client: &Client) -> JoinHandle<Result<Guard>> {
    let lock = client.fair_lock("a");
    tokio::spawn(async move { lock.lock().await })
}

/// A waiter that stands in the queue behind those that stand there already, and listens.
pub(crate) async fn next_in_queue(client: &Client, admin: &Admin) -> JoinHandle<Result<Guard>> {
    let before = queue(admin).await.len();
    let waiter = waiting(client);
    queued(admin, before + 1).await;
    listened_to(admin).await;
    waiter
}

async fn listened_to(admin: &Admin) {
    let heard = async || admin.subscribers(&channel("a")).await > 0;
    eventually(SOON, "somebody listens", heard).await;
    sleep(A_WHILE).await; // it looks once more when it does
}

pub(crate) async fn granted(waiter: JoinHandle<Result<Guard>>) -> Guard {
    soon(waiter).await.expect("no panic").expect("the lock")
}

/// What concerns the client of this owner field alone.
fn own_channel(field: &str) -> String {
    let (client, _) = field.split_once(':').expect("<client>:<number>");
    format!("{}:{client}", channel("a"))
}

/// The proof of a grant with this number, as the server would make it for this waiter.
async fn proof(admin: &Admin, field: &str, number: u64) -> String {
    let secret = secret(admin, field).await;
    let hash = "return redis.sha1hex(ARGV[1])";
    let text = format!("{secret} {field}={number}");
    let hash: String = admin.cmd(&["EVAL", hash, "0", &text]).await;
    format!("{}{}", &secret[secret.len() - 8..], &hash[..20])
}

/// The secret of the last sign of life of this owner field's client.
async fn secret(admin: &Admin, field: &str) -> String {
    let (client, _) = field.split_once(':').expect("<client>:<number>");
    let life: String = admin.cmd(&["HGET", "lock_notes:{a}", &format!("life:{client}")]).await;
    life.split(' ').nth(1).expect("the secret").to_owned()
}

/// Every key goes by itself, but for the counter of the tokens.
async fn nothing_is_eternal(admin: &Admin) {
    for key in lock_keys(admin).await {
        assert_ne!(admin.pttl(&key).await, -1, "{key} never expires");
    }
}

pub(crate) async fn is_clean(admin: &Admin) {
    let clean = async || lock_keys(admin).await.is_empty();
    eventually(SOON, "nothing is left", clean).await;
}

/// A future that is polled only when we say so.
pub(crate) type ByHand = Pin<Box<dyn Future<Output = Result<Guard>> + Send>>;

/// Stands in the queue, listens, and is not polled any more.
async fn stuck(client: &Client, admin: &Admin) -> ByHand {
    let lock = client.fair_lock("a");
    let mut waiter: ByHand = Box::pin(async move { lock.lock().await });
    let before = queue(admin).await.len();
    let looks = scripts(admin).await;
    let second_look = async {
        let looked = async || {
            queue(admin).await.len() == before + 1
                && admin.subscribers(&channel("a")).await > 0
                && scripts(admin).await >= looks + 2
        };
        eventually(SOON, "it stands in the queue and listens", looked).await;
        sleep(A_WHILE).await;
    };
    tokio::select! {
        _ = &mut waiter => panic!("nobody gave it the lock"),
        () = second_look => {}
    }
    waiter
}

// --- Workers --------------------------------------------------------------------------------------------------------

/// Each order is one turn: it tells when it holds the lock, and gives it back at the next order.
#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_takes_turns() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let (url, number) = (boss.variable("URL"), boss.variable("NUMBER"));
    // What it reports does not go through a proxy.
    let admin = Admin::connect(&boss.variable("SERVER")).await;
    let client = comes_in(&url, Config::default()).await;
    boss.tell("ready");
    while let Some(order) = boss.order().await {
        let guard = client.fair_lock("a").lock().await.expect("its turn comes");
        admin.cmd::<()>(&["RPUSH", "order", &number]).await;
        admin.cmd::<()>(&["RPUSH", "tokens", &guard.token().to_string()]).await;
        if order == "keep" {
            boss.tell("held");
            boss.order().await;
        }
        guard.unlock().await.expect("it was ours");
        boss.tell("done");
    }
}

async fn workers(server: &Site, count: usize) -> Vec<Worker> {
    workers_at(server, &vec![server.url(); count]).await
}

/// A worker for each of these addresses of the server.
async fn workers_at(server: &Site, urls: &[String]) -> Vec<Worker> {
    let direct = server.url();
    let start = |(number, url): (usize, &String)| {
        let number = number.to_string();
        let variables = [("URL", url.as_str()), ("SERVER", &direct), ("NUMBER", &number)];
        Worker::start("fair_lock::worker_that_takes_turns", &variables)
    };
    let mut workers: Vec<_> = urls.iter().enumerate().map(start).collect();
    for worker in &mut workers {
        assert_eq!(worker.hear().await, "ready");
    }
    workers
}

/// What the kernel says of each thread of a process.
fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    let stat = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("stat")).ok()
    };
    tasks.filter_map(stat).collect()
}

async fn numbers(admin: &Admin, list: &str) -> Vec<u64> {
    admin.cmd(&["LRANGE", list, "0", "-1"]).await
}

pub(crate) fn grow_strictly(tokens: &[u64]) -> bool {
    tokens.windows(2).all(|pair| pair[0] < pair[1])
}

// --- The order ------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn eight_processes_are_served_in_the_order_in_which_they_came() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client(&server).await);
    let mut workers = workers(&server, 8).await;
    let mut expected = Vec::new();
    for round in [[0, 1, 2, 3, 4, 5, 6, 7], [5, 2, 7, 0, 6, 1, 4, 3], [7, 6, 5, 4, 3, 2, 1, 0]] {
        let guard = ours.fair_lock("a").lock().await.unwrap();
        for (place, worker) in round.into_iter().enumerate() {
            workers[worker].order("go").await;
            queued(&admin, place + 1).await;
            expected.push(worker as u64);
        }
        guard.unlock().await.unwrap();
        for worker in &mut workers {
            assert_eq!(worker.hear().await, "done");
        }
    }
    assert_eq!(numbers(&admin, "order").await, expected);
    let tokens = numbers(&admin, "tokens").await;
    assert!(grow_strictly(&tokens), "{tokens:?}");
}

#[tokio::test]
async fn tasks_of_one_client_and_of_another_are_one_queue() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let clients = [client(&server).await, client(&server).await];
    let first = clients[0].fair_lock("a").lock().await.unwrap();
    let (mut tokens, mut waiters) = (vec![first.token().get()], Vec::new());
    for place in 0..30 {
        // Not simply in turn: some come in twos and threes from one client.
        waiters.push(next_in_queue(&clients[place * place % 5 % 2], &admin).await);
    }
    let places = queue(&admin).await;
    first.unlock().await.unwrap();
    for (place, waiter) in waiters.into_iter().enumerate() {
        let guard = granted(waiter).await;
        // A caller that got the lock from the caller right ahead of it stands in the queue until its client releases it.
        assert!(queue(&admin).await.ends_with(&places[place + 1..]), "somebody came out of turn");
        tokens.push(guard.token().get());
        guard.unlock().await.unwrap();
    }
    assert!(grow_strictly(&tokens), "{tokens:?}");
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_try_does_not_overtake_waiters_and_leaves_no_trace() {
    let server = Site::start().await;
    let (admin, ours, theirs) =
        (server.admin().await, client_with(&server, patient()).await, client(&server).await);
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let keys = admin.keys().await;
    let before = scripts(&admin).await;

    assert!(theirs.fair_lock("a").try_lock().await.unwrap().is_none());

    sleep(A_WHILE).await;
    assert_eq!(scripts(&admin).await, before + 1, "one question is enough");
    assert_eq!(admin.keys().await, keys);
    let waiter = stuck(&ours, &admin).await;
    guard.unlock().await.unwrap();
    assert!(theirs.fair_lock("a").try_lock().await.unwrap().is_none(), "it is the waiter's turn");
    soon(waiter).await.unwrap().unlock().await.unwrap();
    assert!(theirs.fair_lock("a").try_lock().await.unwrap().is_some());
}

// --- The grant that a release sends ---------------------------------------------------------------------------------

/// Nobody asks again: the release grants the lock, and a holder confirms the grant if it holds for long enough.
#[tokio::test]
async fn the_next_holder_has_the_lock_without_asking() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_acquires();
    proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
    let claim = Duration::from_secs(15);
    let ours = client_with(&server, patient()).await;
    let theirs = comes_in(proxy.url(), patient().waiter_ttl(claim)).await;
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let looks = scripts(&admin).await;
    let waiter = next_in_queue(&theirs, &admin).await;
    let looked = async || scripts(&admin).await >= looks + 2;
    eventually(SOON, "it has looked again", looked).await;
    let before = scripts(&admin).await;
    let (asked, confirmed) = (proxy.script("acquire").count(), proxy.script("renew").count());

    guard.unlock().await.unwrap();
    let next = granted(waiter).await;
    let since = Instant::now();

    sleep(A_WHILE).await;
    if since.elapsed() < claim / 6 {
        assert_eq!((asked.fired(), confirmed.fired()), (0, 0), "it believes the message");
        assert_eq!(scripts(&admin).await - before, 1, "the release");
    }
    assert!(next.is_valid() && next.remaining() <= claim);
    nothing_is_eternal(&admin).await;
    soon(confirmed.happened()).await;
    eventually(SOON, "it has the whole lease", async || next.remaining() > LONG).await;
    assert_eq!((asked.fired(), confirmed.fired()), (0, 1));
    assert!(until(&admin).await - now(&admin).await > i64::try_from(LONG.as_millis()).unwrap());
}

/// From the moment of the grant, not only when it was confirmed.
#[tokio::test]
async fn a_grant_by_message_has_a_ttl_at_once() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let (ours, theirs) =
        (client_with(&server, patient()).await, client_with(&server, patient()).await);
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let _waiter = stuck(&theirs, &admin).await;

    guard.unlock().await.unwrap();

    assert_eq!(queue(&admin).await, Vec::<String>::new(), "it was let in");
    nothing_is_eternal(&admin).await;
}

#[tokio::test]
async fn a_grant_that_nobody_takes_up_goes_to_the_next() {
    judged(async || {
        let server = Site::start().await;
        let (admin, ours, theirs) =
            (server.admin().await, client(&server).await, client(&server).await);
        let guard = ours.fair_lock("a").lock().await.unwrap();
        let mut stuck = stuck(&theirs, &admin).await;
        let next = waiting(&ours);
        queued(&admin, 2).await;

        let started = Watch::start();
        guard.unlock().await.unwrap();
        let next = granted(next).await;

        assert!(started.passed() < 3 * CLAIM, "{:?}", started.passed());
        assert!(is_pending(&mut stuck).await, "two hold it at once");
        assert!(next.is_valid());
        let earlier = next.token();
        next.unlock().await.unwrap();
        let last = soon(stuck).await.unwrap();
        assert!(last.token() > earlier);
    })
    .await;
}

#[tokio::test]
async fn a_process_that_sleeps_through_its_grant_does_not_believe_it_when_it_wakes() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client(&server).await);
    let mut workers = workers(&server, 1).await;
    let guard = ours.fair_lock("a").lock().await.unwrap();
    workers[0].order("keep").await;
    queued(&admin, 1).await;
    listened_to(&admin).await;
    let next = waiting(&ours);
    queued(&admin, 2).await;

    workers[0].stop_process();
    let asleep = async || threads(workers[0].pid()).iter().all(|stat| stat.contains(") T "));
    eventually(SOON, "every thread of it sleeps", asleep).await;
    guard.unlock().await.unwrap();
    let next = granted(next).await;
    workers[0].continue_process();

    sleep(CLAIM).await;
    assert_eq!(numbers(&admin, "order").await, Vec::<u64>::new(), "two hold it at once");
    assert!(next.is_valid());
    next.unlock().await.unwrap();
    assert_eq!(workers[0].hear().await, "held");
    assert_eq!(workers[0].ask("go on").await, "done");
}

#[tokio::test]
async fn a_grant_that_comes_too_late_is_not_believed() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client(&server).await);
    let proxy = Proxy::before(&server).await;
    proxy.name_acquires();
    let theirs = comes_in(proxy.url(), Config::default()).await;
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let mut late = next_in_queue(&theirs, &admin).await;
    let next = waiting(&ours);
    queued(&admin, 2).await;

    let messages = proxy.messages().hold_reply();
    let asked = proxy.script("acquire").hold_request(); // it cannot look either
    asked.happened().await;
    guard.unlock().await.unwrap();
    messages.happened().await;
    let next = granted(next).await;
    messages.lift();

    assert!(is_pending(&mut late).await, "two hold it at once");
    assert!(next.is_valid());
    asked.lift();
    assert!(is_pending(&mut late).await, "two hold it at once");
    next.unlock().await.unwrap();
    granted(late).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_lost_message_costs_no_more_than_a_sign_of_life() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client(&server).await);
    let proxy = Proxy::before(&server).await;
    let claim = Duration::from_secs(6);
    let config = Config::default().waiter_ttl(claim);
    let theirs = comes_in(proxy.url(), config).await;
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let waiter = next_in_queue(&theirs, &admin).await;
    let lost = proxy.messages().swallow_reply();

    let started = Watch::start();
    guard.unlock().await.unwrap();
    lost.happened().await;
    let next = granted(waiter).await;

    assert!(started.passed() < claim * 5 / 6, "{:?}", started.passed());
    assert!(next.is_valid());
}

/// The request that got no answer may have been granted the lock, so the waiter no longer waits under that owner field.
#[tokio::test]
async fn an_acquire_without_an_answer_gives_up_its_place() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client(&server).await);
    let proxy = Proxy::before(&server).await;
    proxy.name_acquires();
    let theirs = comes_in(proxy.url(), Config::default()).await;
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let lost = proxy.script("acquire").nth(1).cut_after();
    let waiter = waiting(&theirs);
    lost.happened().await;
    let first = queue(&admin).await;

    let another = async || {
        let now = queue(&admin).await;
        now.len() == 1 && first.first() != now.first()
    };
    eventually(SOON, "it stands there under another name", another).await;
    guard.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

/// One lost answer is no outage: later answers count.
#[tokio::test]
async fn a_waiter_whose_answer_was_lost_once_still_runs_out_of_time() {
    judged(async || {
        let server = Site::start().await;
        let ours = client(&server).await;
        let proxy = Proxy::before(&server).await;
        proxy.name_acquires();
        let theirs = comes_in(proxy.url(), Config::default()).await;
        let _guard = ours.fair_lock("a").lock().await.unwrap();
        let lost = proxy.script("acquire").nth(1).cut_after();
        let outcome = theirs.fair_lock("a").try_lock_for(Duration::from_secs(2)).await;
        lost.happened().await;
        assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    })
    .await;
}

/// Each lost answer is a new place, but all of them are one outage.
#[tokio::test]
async fn a_waiter_without_answers_gives_up_after_ride_out() {
    let server = Site::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_acquires();
    let config = quick().ride_out(Duration::from_secs(2));
    let theirs = comes_in(proxy.url(), config).await;
    let _lost = proxy.script("acquire").cut_after();
    let outcome = soon(theirs.fair_lock("a").lock()).await;
    assert!(
        matches!(outcome, Err(Error::Unavailable { .. } | Error::Indeterminate { .. })),
        "{outcome:?}"
    );
}

/// Messages are believed, but not those that no script of ours can have sent.
#[tokio::test]
async fn a_message_that_makes_no_sense_is_no_grant() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let mut waiter = next_in_queue(&theirs, &admin).await;
    let field = queue(&admin).await.remove(0);
    for channel in [channel("a"), own_channel(&field)] {
        for word in [
            "",
            "?",
            "!",
            "=",
            "=@",
            "=1",
            "=1@",
            "=@1",
            "=-1@0",
            "=x@y",
            "=1@4294967295",
            "=1@4294967296",
        ] {
            assert!(admin.publish(&channel, &format!("somebody {field}{word}")).await > 0);
        }
        for number in [u64::MAX, 1 << 53, (1 << 53) - 1].repeat(5) {
            // Proved with the secret of its last sign of life: with a number that can be, it would be believed.
            let proof = proof(&admin, &field, number).await;
            let word = format!("somebody {field}={number}@{proof}");
            assert!(admin.publish(&channel, &word).await > 0);
            sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(is_pending(&mut waiter).await, "somebody else holds it");
    guard.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

/// A plain lock of that name is a hash.
#[tokio::test]
async fn a_plain_lock_of_that_name_is_a_conflict() {
    let (server, ours) = common::fixture::server_and_client().await;
    let plain = ours.lock("a").lock().await.unwrap();
    let asked = soon(ours.fair_lock("a").lock()).await;
    assert!(matches!(asked, Err(Error::Conflict { .. })), "{asked:?}");
    plain.unlock().await.unwrap();
    let fair = ours.fair_lock("a").lock().await.unwrap();
    let asked = soon(ours.lock("a").lock()).await;
    assert!(matches!(asked, Err(Error::Conflict { .. })), "{asked:?}");
    fair.unlock().await.unwrap();
    is_clean(&server.admin().await).await;
}

/// The caller was granted the lock before it went, and once more by a request that runs after that grant was given
/// back.
#[tokio::test]
async fn a_sign_of_life_that_runs_after_its_caller_has_gone_keeps_nobody_out() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client(&server).await);
    let proxy = Proxy::before(&server).await;
    proxy.name_acquires();
    let config = Config::default().response_timeout(Duration::from_millis(500));
    let theirs = comes_in(proxy.url(), config).await;
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let waiter = next_in_queue(&theirs, &admin).await;

    let ghost = proxy.script("acquire").nth(1).hold_request();
    ghost.happened().await;
    guard.unlock().await.unwrap();
    queued(&admin, 0).await; // it was let in
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    is_clean(&admin).await; // given back, on another connection
    let before = scripts(&admin).await;
    ghost.lift();

    let ran = async || scripts(&admin).await > before;
    eventually(SOON, "the old request runs", ran).await;
    is_clean(&admin).await; // long before a lease is over
}

// --- Callers that go
// --------------------------------------------------------------------------------------------------

/// The first of them is given the lock for as long as its last sign of life lasts. The others are asked together, and have
/// as long again. To these two times come the pauses between two looks, and one pause that is taken for a stall: three
/// times and a third. One after the other they would cost eight times.
#[tokio::test]
async fn eight_waiters_that_are_killed_cost_less_than_a_waiter_ttl_each() {
    judged(async || {
        const DEAD: u32 = 8;
        let server = Site::start().await;
        let (admin, ours) = (server.admin().await, client(&server).await);
        let mut workers = workers(&server, DEAD as usize).await;
        let guard = ours.fair_lock("a").lock().await.unwrap();
        for (place, worker) in workers.iter_mut().enumerate() {
            worker.order("go").await;
            queued(&admin, place + 1).await;
        }
        let next = waiting(&ours);
        queued(&admin, workers.len() + 1).await;
        for worker in &mut workers {
            worker.kill9();
        }

        let started = Watch::start();
        guard.unlock().await.unwrap();
        let next = granted(next).await;

        let took = started.passed();
        println!("{DEAD} dead waiters cost {took:?}");
        assert!(took < (DEAD - 2) * CLAIM, "{took:?}");
        assert_eq!(numbers(&admin, "order").await, Vec::<u64>::new());
        next.unlock().await.unwrap();
        is_clean(&admin).await;
    })
    .await;
}

#[tokio::test]
async fn a_dead_head_is_skipped_before_its_turn() {
    judged(async || {
        let server = Site::start().await;
        let (admin, ours) = (server.admin().await, client(&server).await);
        let mut workers = workers(&server, 1).await;
        let guard = ours.fair_lock("a").lock().await.unwrap();
        workers[0].order("go").await;
        queued(&admin, 1).await;
        let next = waiting(&ours);
        queued(&admin, 2).await;
        workers[0].kill9();
        queued(&admin, 1).await;

        let started = Watch::start();
        guard.unlock().await.unwrap();
        granted(next).await.unlock().await.unwrap();
        assert!(started.passed() < CLAIM, "{:?}", started.passed());
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_waiter_leaves_the_line_at_once() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let ours = client_with(&server, patient()).await;
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let cancelled = next_in_queue(&ours, &admin).await;
    let next = next_in_queue(&ours, &admin).await;

    cancelled.abort();
    queued(&admin, 1).await;
    let limit = Duration::from_secs(1);
    got_nothing(ours.fair_lock("a").try_lock_for(limit).await);
    queued(&admin, 1).await;

    guard.unlock().await.unwrap();
    granted(next).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

/// A waiter is granted the lock and goes without reading the grant. That lets in the next waiter, not the end of a
/// place.
#[tokio::test]
async fn a_waiter_that_gives_up_its_grant_lets_the_next_one_in() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let ours = client_with(&server, patient()).await;
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let stuck = stuck(&ours, &admin).await;
    let mut next = next_in_queue(&ours, &admin).await;
    guard.unlock().await.unwrap();
    queued(&admin, 1).await;
    assert!(is_pending(&mut next).await, "it is the other one's turn");

    drop(stuck);

    granted(next).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_first_attempt_leaves_nothing() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client_with(&server, patient()).await);
    let lock = ours.fair_lock("a");
    for _ in 0..50 {
        let mut attempt = pin!(lock.lock());
        assert!(poll!(attempt.as_mut()).is_pending());
    }
    is_clean(&admin).await;
    let guard = soon(lock.lock()).await.unwrap();
    for _ in 0..50 {
        let mut attempt = pin!(lock.lock());
        assert!(poll!(attempt.as_mut()).is_pending());
    }
    queued(&admin, 0).await;
    sleep(A_WHILE).await;
    queued(&admin, 0).await;
    guard.unlock().await.unwrap();
    is_clean(&admin).await;
}

// --- Leases and ends ------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_fixed_lease_ends_and_the_next_is_let_in() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client(&server).await);
    let lock = ours.fair_lock("a");
    let lease = Duration::from_millis(1500);
    let guard = lock.clone().lease(lease).lock().await.unwrap();
    let next = waiting(&ours);
    queued(&admin, 1).await;
    assert_eq!(soon(guard.ended()).await, Ended::Lost);
    granted(next).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

/// Fixed leases are as long as the callers asked for, also in a grant by message: shorter or longer than a sign of
/// life lasts.
#[tokio::test]
async fn a_lease_that_a_message_began_is_as_long_as_any() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client_with(&server, confirming()).await);
    for lease in [Duration::from_millis(300), LONG * 2] {
        let guard = soon(ours.fair_lock("a").lock()).await.unwrap();
        let lock = ours.fair_lock("a").lease(lease);
        let waiter = tokio::spawn(async move { lock.lock().await });
        queued(&admin, 1).await;
        listened_to(&admin).await;
        guard.unlock().await.unwrap();
        let leased = granted(waiter).await;
        assert!(leased.remaining() <= lease, "{:?}", leased.remaining());
        let most = i64::try_from(lease.as_millis()).unwrap();
        let written =
            async || (most / 2..=most).contains(&(until(&admin).await - now(&admin).await));
        if lease > LONG {
            eventually(SOON, "it is confirmed", written).await;
            assert!(leased.remaining() > lease / 2);
            leased.unlock().await.unwrap();
        } else {
            assert!(until(&admin).await - now(&admin).await <= most);
            assert_eq!(soon(leased.ended()).await, Ended::Lost);
        }
    }
}

/// When the holder's lease is over, by the server's clock, in ms.
async fn until(admin: &Admin) -> i64 {
    let words = ["ZRANGE", &key("a"), "0", "+inf", "BYSCORE", "WITHSCORES"];
    let held: Vec<(String, f64)> = admin.cmd(&words).await;
    held.first().map_or(0, |(_, score)| *score as i64)
}

async fn now(admin: &Admin) -> i64 {
    let (seconds, micros): (i64, i64) = admin.cmd(&["TIME"]).await;
    seconds * 1000 + micros / 1000
}

/// The key of the holders goes with the last lease; what else is known of them may stay, since others wait.
#[tokio::test]
async fn a_lease_that_ran_out_with_its_key_keeps_nobody_out() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client_with(&server, patient()).await);
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let next = next_in_queue(&ours, &admin).await;
    std::mem::forget(guard);
    assert_eq!(admin.cmd::<u32>(&["DEL", &key("a")]).await, 1); // as if it had expired

    let guard = soon(ours.fair_lock("a").try_lock()).await.unwrap();
    assert!(guard.is_none(), "somebody waits for it");
    granted(next).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

/// Eight waiters get the lock in order, although none of them gives it back.
#[tokio::test]
async fn eight_leases_that_run_out_are_granted_in_order() {
    judged(async || {
        let server = Site::start().await;
        let (admin, ours) = (server.admin().await, client(&server).await);
        let first = ours.fair_lock("a").lock().await.unwrap();
        let mut waiters = Vec::new();
        for place in 0..8 {
            let lock = ours.fair_lock("a").lease(Duration::from_millis(400));
            waiters.push(tokio::spawn(async move { lock.lock().await }));
            queued(&admin, place + 1).await;
        }
        first.unlock().await.unwrap();
        let mut tokens = Vec::new();
        for waiter in waiters {
            let guard = granted(waiter).await;
            tokens.push(guard.token().get());
            std::mem::forget(guard);
        }
        assert!(grow_strictly(&tokens), "{tokens:?}");
    })
    .await;
}

#[tokio::test]
async fn a_watched_lease_that_a_message_began_is_renewed() {
    judged(async || {
        let server = Site::start().await;
        let admin = server.admin().await;
        let config = Config::default()
            .watchdog_timeout(Duration::from_secs(6))
            .waiter_ttl(Duration::from_secs(3));
        let ours = client_with(&server, config).await;
        let guard = ours.fair_lock("a").lock().await.unwrap();
        let waiter = next_in_queue(&ours, &admin).await;
        guard.unlock().await.unwrap();
        let held = granted(waiter).await;
        let ended = timeout(Duration::from_secs(8), held.ended()).await;
        assert!(ended.is_err(), "{ended:?}");
        held.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_client_that_closes_leaves_the_queue_and_what_it_holds() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let (ours, theirs) =
        (client_with(&server, patient()).await, client_with(&server, patient()).await);
    let guard = theirs.fair_lock("a").lock().await.unwrap();
    let sent_away = next_in_queue(&theirs, &admin).await;
    let next = next_in_queue(&ours, &admin).await;

    soon(theirs.close()).await;

    assert!(matches!(sent_away.await.unwrap(), Err(Error::Closed)));
    assert_eq!(soon(guard.ended()).await, Ended::Lost);
    granted(next).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

/// The holder has had to wait, so its client still listens. Any client may use force, its own too.
#[tokio::test]
async fn a_holder_is_told_at_once_that_force_was_used() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let (ours, theirs) =
        (client_with(&server, patient()).await, client_with(&server, patient()).await);
    for by in [&ours, &theirs] {
        let first = ours.fair_lock("a").lock().await.unwrap();
        let holder = next_in_queue(&ours, &admin).await;
        first.unlock().await.unwrap();
        let holder = granted(holder).await;
        let next = next_in_queue(&theirs, &admin).await;

        assert!(by.fair_lock("a").force_unlock().await.unwrap());

        assert_eq!(soon(holder.ended()).await, Ended::Lost);
        assert!(matches!(holder.unlock().await, Err(Error::Lost { .. })));
        granted(next).await.unlock().await.unwrap();
        assert!(!by.fair_lock("a").force_unlock().await.unwrap());
    }
}

// --- The server -----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn waiters_outlive_the_loss_of_scripts_and_connections() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client(&server).await);
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(next_in_queue(&ours, &admin).await);
    }
    let mut waiters = waiters.into_iter();
    let mut next = async || granted(waiters.next().expect("three of them")).await;
    admin.script_flush().await;
    soon(guard.unlock()).await.unwrap();
    let guard = next().await;
    assert!(admin.client_kill("pubsub").await > 0);
    soon(guard.unlock()).await.unwrap();
    let guard = next().await;
    assert!(admin.client_kill("normal").await > 0);
    soon(guard.unlock()).await.unwrap();
    next().await.unlock().await.unwrap();
    is_clean(&admin).await;
}

#[tokio::test]
async fn waiters_outlive_a_restart_of_the_server() {
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client(&server).await);
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let before = guard.token();
    let waiters = [next_in_queue(&ours, &admin).await, next_in_queue(&ours, &admin).await];
    server.restart().await;
    let admin = server.admin().await;
    let mut last = before;
    // In any order: the server has forgotten which one was first.
    for waiter in futures_util::future::join_all(waiters.map(|waiter| async {
        let guard = granted(waiter).await;
        let token = guard.token();
        guard.unlock().await.unwrap();
        token
    }))
    .await
    {
        assert!(waiter > before && waiter != last);
        last = waiter;
    }
    drop(guard);
    is_clean(&admin).await;
}

#[tokio::test]
async fn with_a_full_memory_it_is_renewed_given_back_and_granted_on() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let ours = client_with(&server, confirming()).await;
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let next = next_in_queue(&ours, &admin).await;
    admin.config_set("maxmemory", "1").await;

    guard.extend(LONG * 8).await.unwrap();
    soon(guard.unlock()).await.unwrap();
    let next = granted(next).await;
    let confirmed = async || next.remaining() > LONG * 2;
    eventually(SOON, "it is confirmed", confirmed).await;

    let refused = ours.fair_lock("b").try_lock().await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    next.unlock().await.unwrap();
    admin.config_set("maxmemory", "0").await;
    is_clean(&admin).await;
}

/// A newcomer is refused. A waiter in the line shows signs of life, and stays there.
#[tokio::test]
async fn with_a_full_memory_waiters_keep_their_places() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let ours = client_with(&server, Config::default().max_park(LONG)).await;
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let first = next_in_queue(&ours, &admin).await;
    let second = next_in_queue(&ours, &admin).await;
    let before = queue(&admin).await;
    admin.config_set("maxmemory", "1").await;

    // Longer than a place lasts without a sign of life.
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(queue(&admin).await, before);
    soon(guard.unlock()).await.unwrap();
    soon(granted(first).await.unlock()).await.unwrap();
    soon(granted(second).await.unlock()).await.unwrap();
    admin.config_set("maxmemory", "0").await;
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_replica_is_not_believed() {
    if only_on_one_server("elsewhere, whoever demotes a primary makes another one") {
        return;
    }
    let server = Site::start().await;
    let (admin, ours) = (server.admin().await, client(&server).await);
    let guard = ours.fair_lock("a").lock().await.unwrap();
    admin.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;

    let lock = ours.fair_lock("a");
    let asked = soon(lock.try_lock()).await;
    assert!(matches!(asked, Err(Error::Unavailable { .. })), "{asked:?}");
    let asked = soon(lock.is_locked()).await;
    assert!(matches!(asked, Err(Error::Unavailable { .. })), "{asked:?}");
    let extended = soon(guard.extend(LONG)).await;
    assert!(!matches!(extended, Ok(()) | Err(Error::Lost { .. })), "{extended:?}");
    assert!(guard.is_valid());

    admin.cmd::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    soon(guard.unlock()).await.unwrap();
    is_clean(&admin).await;
}

// --- A server that stands still -------------------------------------------------------------------------------------

/// Eight clients wait. Then the server stands still for longer than a place lasts. The release is sent while it does, so
/// that it is among the first things that the server finds when it goes on, with the waiters' signs of life behind it.
/// `begin` returns when the server answers nobody any more, and `end` has it go on.
async fn the_order_is_kept_over<S>(
    server: Site,
    claim: Duration,
    begin: impl AsyncFn(&Site, Duration) -> S,
    end: impl AsyncFn(&Site, S),
    rounds: usize,
) {
    let ours = client_with(&server, patient()).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(client_with(&server, Config::default().waiter_ttl(claim)).await);
    }
    let stall = claim + Duration::from_millis(50);
    for round in 0..rounds {
        let admin = server.admin().await;
        let guard = ours.fair_lock("a").lock().await.expect("it is free");
        let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
        for (at, client) in clients.iter().enumerate() {
            let (lock, served) = (client.fair_lock("a"), served.clone());
            tokio::spawn(async move {
                let guard = lock.lock().await.expect("its turn comes");
                served.send(at).expect("the test looks");
                guard.unlock().await.expect("it was ours");
            });
            queued(&admin, at + 1).await;
            // Their signs of life are spread evenly, so that a stall begins between two of them.
            sleep(claim / 3 / 8).await;
        }
        drop(served);
        listened_to(&admin).await;
        let stalled = begin(&server, stall).await;
        let goes_on = async {
            sleep(stall).await;
            end(&server, stalled).await;
        };
        tokio::join!(goes_on, async { guard.unlock().await.expect("it is still ours") });
        let mut seen = Vec::new();
        while let Some(at) = soon(order.recv()).await {
            seen.push(at);
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7], "round {round}");
    }
}

/// B3: silence during a stall says nothing about the silent clients.
#[tokio::test]
async fn a_paused_server_serves_in_the_same_order_when_it_goes_on() {
    judged(async || {
        let pause = async |server: &Site, _| server.pause();
        let resume = async |server: &Site, ()| server.resume();
        the_order_is_kept_over(Site::start().await, CLAIM * 3, pause, resume, 3).await;
    })
    .await;
}

/// B3.
#[tokio::test]
async fn a_script_that_takes_long_does_not_change_the_order() {
    judged(async || {
        // When this returns, the call waits at the server, before all that is sent from then on.
        let busy = async |server: &Site, stall: Duration| {
            let text =
            "local function ms() local t = redis.call('time') return t[1] * 1000 + t[2] / 1000 end
            local start = ms() while ms() < start + tonumber(ARGV[1]) do end return 1";
            let mut called = TcpStream::connect(server.address()).await.expect("it is there");
            // The server has to know this connection. It might run the release before it accepts a new one.
            let mut answer = [0; 7];
            called.write_all(b"PING\r\n").await.expect("it takes it");
            called.read_exact(&mut answer).await.expect("it answers");
            let ms = stall.as_millis().to_string();
            let words =
                ["EVAL", text, "0", &ms].map(|word| format!("${}\r\n{word}\r\n", word.len()));
            let call = format!("*4\r\n{}", words.concat());
            called.write_all(call.as_bytes()).await.expect("it takes it");
            called
        };
        let is_done = async |_: &Site, mut called: TcpStream| {
            let mut answer = [0; 4];
            called.read_exact(&mut answer).await.expect("it answers");
            assert_eq!(&answer, b":1\r\n");
        };
        the_order_is_kept_over(Site::start().await, CLAIM * 3, busy, is_done, 2).await;
    })
    .await;
}

/// B3: it comes back with its data. Some waiters had a request in flight, and ask again under another owner field. A
/// place lasts for longer here: a client may pause for a second before it connects again.
#[tokio::test]
async fn a_server_that_restarts_with_its_data_serves_in_the_same_order() {
    judged(async || {
        let stop = async |server: &Site, _| server.stop().await;
        let start = async |server: &Site, ()| server.start_again().await;
        if only_on_one_server("it writes to a disk") {
            return;
        }
        let server = Site::One(Server::builder().append_only().start().await);
        the_order_is_kept_over(server, CLAIM * 6, stop, start, 2).await;
    })
    .await;
}

/// A client that dies during a stall is out two claim times later at the latest.
#[tokio::test]
async fn a_waiter_that_dies_in_a_stall_costs_the_others_at_most_two_waiter_ttls() {
    judged(async || {
        let server = Site::start().await;
        let (admin, ours) = (server.admin().await, client_with(&server, patient()).await);
        let proxy = Proxy::before(&server).await;
        let dying = comes_in(proxy.url(), Config::default()).await;
        let guard = ours.fair_lock("a").lock().await.unwrap();
        let _dead = next_in_queue(&dying, &admin).await;
        let waiter = next_in_queue(&client(&server).await, &admin).await;
        server.pause();
        let _cut_off = proxy.blackhole(None);
        sleep(CLAIM + CLAIM / 20).await;
        server.resume();
        let resumed = Watch::start();
        guard.unlock().await.unwrap();
        granted(waiter).await.unlock().await.unwrap();
        let waited = resumed.passed();
        assert!(waited < CLAIM * 2 + CLAIM / 2, "{waited:?}");
    })
    .await;
}

/// Eight processes stand in line. While the second one holds the lock, two of those behind it lose their connections,
/// three in a row are killed, and the server stands still for longer than a place lasts.
#[tokio::test]
async fn eight_processes_keep_their_order_over_a_stall_two_reconnects_and_three_deaths() {
    judged(async || {
        const KILLED: [usize; 3] = [2, 3, 4];
        const RECONNECTED: [usize; 2] = [5, 6];
        let server = Site::start().await;
        let (admin, ours) = (server.admin().await, client_with(&server, patient()).await);
        let proxy = Proxy::before(&server).await;
        let mut urls = vec![server.url(); 8];
        RECONNECTED.iter().for_each(|at| urls[*at] = proxy.url());
        let mut workers = workers_at(&server, &urls).await;
        let guard = ours.fair_lock("a").lock().await.unwrap();
        for (at, worker) in workers.iter_mut().enumerate() {
            worker.order(if at == 1 { "keep" } else { "go" }).await;
            queued(&admin, at + 1).await;
        }
        guard.unlock().await.unwrap();
        assert_eq!(workers[0].hear().await, "done");
        assert_eq!(workers[1].hear().await, "held");
        // What a message has granted lasts for as long as a place does, until the holder has confirmed it.
        let confirmed = async || admin.pttl(&key("a")).await > 2 * CLAIM.as_millis() as i64;
        eventually(SOON, "its holder has confirmed it", confirmed).await;

        let connections = proxy.connections(None);
        assert_eq!(proxy.reset(None).await, connections);
        let back = async || proxy.connections(None) == connections;
        eventually(SOON, "the two have connected again", back).await;
        KILLED.iter().for_each(|at| workers[*at].kill9());
        server.pause();
        sleep(CLAIM + CLAIM / 2).await;
        server.resume();

        let released = Watch::start();
        assert_eq!(workers[1].ask("go on").await, "done");
        for worker in &mut workers[5..8] {
            assert_eq!(worker.hear().await, "done");
        }
        let took = released.passed();
        println!("a stall, two reconnects and three dead waiters cost {took:?}");
        assert!(took < 3 * CLAIM, "the dead cost a place each: {took:?}");
        assert_eq!(numbers(&admin, "order").await, [0, 1, 5, 6, 7]);
        let tokens = numbers(&admin, "tokens").await;
        assert!(grow_strictly(&tokens), "{tokens:?}");
        admin.cmd::<i64>(&["DEL", "order"]).await;
        admin.cmd::<i64>(&["DEL", "tokens"]).await;
        is_clean(&admin).await;
    })
    .await;
}

// --- Forged messages ------------------------------------------------------------------------------------------------

/// B7: a user that may publish, but not read the keys, can guess the owner field and count the signs of life. That
/// grants nothing.
#[tokio::test]
async fn a_forged_message_grants_nothing() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let (ours, theirs) = (client(&server).await, client_with(&server, patient()).await);
    let guard = ours.fair_lock("a").lock().await.unwrap();
    let mut waiter = next_in_queue(&theirs, &admin).await;
    let field = queue(&admin).await.remove(0);
    let number = guard.token().get() / 1024 + 1;
    // Each message makes it ask once more, so that a constant guess is right some time.
    let channels = [channel("a"), own_channel(&field)];
    for channel in channels.iter().cycle().take(20) {
        let word = format!("somebody {field}={number}@{:028}", 10);
        assert!(admin.publish(channel, &word).await > 0);
        sleep(Duration::from_millis(5)).await;
    }
    assert!(is_pending(&mut waiter).await, "it believes a message that no script sent");
    guard.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    is_clean(&admin).await;
}

// In Redisson's layout, the queue and the deadlines are Redisson's.

const REDISSONS_QUEUE: &str = "redisson_lock_queue:{a}";
const REDISSONS_DEADLINES: &str = "redisson_lock_timeout:{a}";

/// The names of threads of Java, and how long Redisson waits for each of them.
const JAVA: [&str; 2] =
    ["5fd1c2d4-8b1e-4c4f-9d4e-2f4b7f0b6a01:7", "5fd1c2d4-8b1e-4c4f-9d4e-2f4b7f0b6a01:8"];
const THEIR_WAIT: f64 = 300_000.0;

/// What a waiter of ours is waited for after a sign of life: `waiter_ttl`, and what clocks may differ.
const OURS: f64 = 6000.0;

/// Redisson's fair lock, held by a thread of Java for a minute, and a client that wants it.
struct JavaHolds {
    _server: Site,
    admin: Admin,
    client: Client,
}

impl JavaHolds {
    async fn begin() -> Self {
        let server = Site::start().await;
        let admin = server.admin().await;
        admin.cmd::<()>(&["HSET", "a", "5fd1c2d4-8b1e-4c4f-9d4e-2f4b7f0b6a01:1", "1"]).await;
        admin.cmd::<()>(&["PEXPIRE", "a", "60000"]).await;
        let config = Config::default().layout(Layout::Redisson);
        let client = comes_in(server.url(), config).await;
        Self { _server: server, admin, client }
    }

    /// A thread of Java stands last in the queue. Redisson counts its wait from the deadline of whoever stands before it.
    async fn java_comes(&self, field: &str) {
        let text = "local last, from = redis.call('lindex', KEYS[1], -1), redis.call('time')
            if last then from = redis.call('zscore', KEYS[2], last)
            else from = from[1] * 1000 + from[2] / 1000 + redis.call('pttl', 'a') end
            redis.call('zadd', KEYS[2], string.format('%.0f', from + ARGV[2]), ARGV[1])
            redis.call('rpush', KEYS[1], ARGV[1])";
        self.java_runs(text, field).await;
    }

    /// The thread of Java at the head leaves for the lock, and takes its wait off all deadlines.
    async fn java_goes(&self, field: &str) {
        let text = "redis.call('lpop', KEYS[1])
            redis.call('zrem', KEYS[2], ARGV[1])
            for _, field in ipairs(redis.call('zrange', KEYS[2], 0, -1)) do
                redis.call('zincrby', KEYS[2], -ARGV[2], field)
            end";
        self.java_runs(text, field).await;
    }

    async fn java_runs(&self, text: &str, field: &str) {
        let wait = THEIR_WAIT.to_string();
        let words = ["EVAL", text, "2", REDISSONS_QUEUE, REDISSONS_DEADLINES, field, &wait];
        self.admin.cmd::<()>(&words).await;
    }

    /// So many tasks of ours wait at last.
    async fn ours_come(&self, tasks: usize) -> Vec<JoinHandle<Result<Guard>>> {
        let (before, lock) = (self.waiters().await.len(), self.client.fair_lock("a"));
        let come = |_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await })
        };
        let waiting = (0..tasks).map(come).collect();
        let all = async || self.waiters().await.len() == before + tasks;
        eventually(SOON, "they stand in the queue", all).await;
        waiting
    }

    async fn waiters(&self) -> Vec<String> {
        self.admin.cmd(&["LRANGE", REDISSONS_QUEUE, "0", "-1"]).await
    }

    /// The server's clock in ms.
    async fn now(&self) -> f64 {
        let (seconds, micros): (f64, f64) = self.admin.cmd(&["TIME"]).await;
        seconds * 1000.0 + micros / 1000.0
    }
}

/// C3: however many stand in the queue. A script that searches the queue, or reads all of it, would take longer the
/// more callers wait. If the machine does not run the test for a second, the waiters lose their places and search. Then
/// the test measures again.
#[tokio::test]
async fn in_redissons_layout_a_sign_of_life_costs_the_same_however_many_wait() {
    let scene = JavaHolds::begin().await;
    let waiting = scene.ours_come(100).await;
    let costs_little = async || {
        sleep(CLAIM).await;
        scene.admin.reset_stats().await;
        sleep(CLAIM).await;
        let calls = async |command| scene.admin.command_calls(command).await as f64;
        let (signs, mut searches) = (calls("evalsha").await, 0.0);
        for command in ["lpos", "lrange", "lrem", "pexpire"] {
            searches += calls(command).await;
        }
        let looks = (calls("lindex").await + calls("zscore").await) / signs;
        println!("{signs} signs of life, {looks} looks for each, {searches} searches");
        signs > 100.0 && searches == 0.0 && looks < 6.5
    };
    eventually(3 * SOON, "a sign of life costs little", costs_little).await;
    waiting.iter().for_each(JoinHandle::abort);
}

/// A waiter of ours allows for what a thread of Java ahead of it may subtract. This thread goes without subtracting.
#[tokio::test]
async fn in_redissons_layout_a_dead_head_is_kept_for_no_longer_than_a_live_one_could_need() {
    let scene = JavaHolds::begin().await;
    scene.java_comes(JAVA[0]).await;
    let waiting = scene.ours_come(1).await;
    let ours = scene.waiters().await.pop().expect("a waiter");
    waiting.iter().for_each(JoinHandle::abort);
    eventually(SOON, "it has left", async || scene.waiters().await.len() == 1).await;
    let deadline = (scene.now().await + THEIR_WAIT + OURS).to_string();
    scene.admin.cmd::<()>(&["RPUSH", REDISSONS_QUEUE, &ours]).await;
    scene.admin.cmd::<()>(&["ZADD", REDISSONS_DEADLINES, &deadline, &ours]).await;

    scene.admin.cmd::<()>(&["LPOP", REDISSONS_QUEUE]).await;
    scene.admin.cmd::<()>(&["ZREM", REDISSONS_DEADLINES, JAVA[0]]).await;
    assert!(scene.client.fair_lock("a").try_lock().await.unwrap().is_none());

    let kept: f64 = scene.admin.cmd(&["ZSCORE", REDISSONS_DEADLINES, &ours]).await;
    let kept = kept - scene.now().await;
    assert!(kept <= 65_000.0, "{kept} ms");
}

/// Far from the head too: a deadline that is too short costs a waiter its place, and one that is too long makes the others
/// wait for the dead.
#[tokio::test]
async fn in_redissons_layout_deadlines_follow_the_threads_of_java_before_and_after_them() {
    judged(async || {
        let scene = JavaHolds::begin().await;
        let [first, last] = JAVA;
        scene.java_comes(first).await;
        let waiting = scene.ours_come(80).await;
        scene.java_comes(last).await;
        for may_take_off in [THEIR_WAIT, 0.0] {
            // Several signs of life.
            sleep(CLAIM * 2).await;
            // In this order: a sign of life between the two would leave more than it may.
            let waiters = scene.waiters().await;
            let deadlines: Vec<(String, f64)> =
                scene.admin.cmd(&["ZRANGE", REDISSONS_DEADLINES, "0", "-1", "WITHSCORES"]).await;
            let left = {
                let now = scene.now().await;
                move |field: &str| {
                    deadlines.iter().find(|(of, _)| of == field).expect("a deadline").1 - now
                }
            };
            let ours: Vec<&String> =
                waiters.iter().filter(|field| !JAVA.contains(&&***field)).collect();
            assert_eq!(ours.len(), 80);
            for (place, field) in ours.iter().enumerate() {
                let left = left(field) - may_take_off;
                // Before version 7.2 the clock goes on within a script. A server that stands still between its two looks at
                // the clock allows for so much more; a thread of Java that is counted wrongly, for minutes.
                assert!(left > OURS / 2.0 && left < OURS * 2.0, "{left} at {place}");
            }
            let after = left(last) - left(ours[79]);
            assert!((after - THEIR_WAIT).abs() < 1.0, "{after} after the last of ours");
            if may_take_off > 0.0 {
                scene.java_goes(first).await;
            }
        }
        waiting.iter().for_each(JoinHandle::abort);
    })
    .await;
}

/// The thread of Java at the head came before the holder: its deadline does not count from the end of the lease.
#[tokio::test]
async fn in_redissons_layout_a_head_that_waits_for_an_hour_costs_nobody_behind_it_its_place() {
    const AN_HOUR: f64 = 3_600_000.0;
    let scene = JavaHolds::begin().await;
    let deadline = (scene.now().await + AN_HOUR).to_string();
    scene.admin.cmd::<()>(&["RPUSH", REDISSONS_QUEUE, JAVA[0]]).await;
    scene.admin.cmd::<()>(&["ZADD", REDISSONS_DEADLINES, &deadline, JAVA[0]]).await;
    let waiting = scene.ours_come(1).await;
    let ours = scene.waiters().await.pop().expect("a waiter");
    let deadline: f64 = scene.admin.cmd(&["ZSCORE", REDISSONS_DEADLINES, &ours]).await;
    assert!(deadline - AN_HOUR > scene.now().await, "it lives when the thread gives up");
    waiting.iter().for_each(JoinHandle::abort);
}

/// Another program's value stands where Redisson has the queue or the deadlines.
#[tokio::test]
async fn in_redissons_layout_a_queue_of_another_type_leaves_the_lock_as_it_is() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let client = comes_in(server.url(), Config::default().layout(Layout::Redisson)).await;
    let (lock, is_conflict) =
        (client.fair_lock("a"), |error| matches!(error, Error::Conflict { .. }));
    for key in [REDISSONS_QUEUE, REDISSONS_DEADLINES] {
        let guard = lock.lock().await.unwrap();
        admin.cmd::<()>(&["SET", key, "theirs"]).await;
        assert!(lock.force_unlock().await.is_err_and(is_conflict));
        assert!(admin.cmd::<bool>(&["EXISTS", "a"]).await, "it is held");
        guard.unlock().await.unwrap();
        assert!(lock.try_lock().await.is_err_and(is_conflict));
        assert_eq!(lock_keys(&admin).await, [key]);
        assert_eq!(admin.cmd::<String>(&["GETDEL", key]).await, "theirs");
    }
}
