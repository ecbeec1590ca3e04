//! A holder that dies, or sleeps, blocks the others for its lease and no longer.

use crate::common;

use std::time::{Duration, Instant};

use common::fixture::{SOON, comes_in, key, parked, quick};
use common::{Admin, Site, Watch, Worker, WorkerSide, judged, timeout};
use parklock::Guard;

/// What the next holder may take beyond the TTL.
const FURTHER: Duration = Duration::from_secs(3);

/// Locks, and says so; then answers whether it believes to hold the lock.
#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_locks() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client = comes_in(boss.variable("URL"), quick()).await;
    let guard = client.lock("a").lock().await.unwrap();
    boss.tell(&format!("granted {}", guard.token()));
    while let Some(order) = boss.order().await {
        boss.tell(&answer(&order, &guard));
    }
}

fn answer(question: &str, guard: &Guard) -> String {
    match question {
        "valid?" => guard.is_valid().to_string(),
        other => panic!("what is {other}?"),
    }
}

fn worker(server: &Site) -> Worker {
    Worker::start("crash::worker_that_locks", &[("URL", &server.url())])
}

async fn token(worker: &mut Worker) -> u64 {
    let told = timeout(SOON, worker.hear()).await.expect("the lock is granted");
    told.strip_prefix("granted ").expect("it says so").parse().expect("a token")
}

/// How much of the lease is left, and since when.
async fn rest_of_lease(admin: &Admin) -> (Instant, Duration) {
    let asked = Instant::now();
    let ttl = u64::try_from(admin.pttl(&key("a")).await).expect("it is held, with a TTL");
    (asked, Duration::from_millis(ttl))
}

/// The waiter gets the lock after the holder's lease is over, and soon after. Time in which the machine does not run the test does not
/// count.
async fn inherits(heir: &mut Worker, before: u64, (asked, rest): (Instant, Duration)) {
    let read = Watch::start();
    let token = token(heir).await;
    let (least, most) = (asked.elapsed(), read.passed());
    assert!(least + Duration::from_millis(5) >= rest, "{least:?} of {rest:?}: too early");
    assert!(most <= rest + FURTHER, "{most:?} instead of {rest:?}: too late");
    assert!(token > before);
}

#[tokio::test]
async fn a_killed_holder_frees_the_lock_within_its_lease() {
    judged(async || {
        let server = Site::start().await;
        let admin = server.admin().await;
        let mut holder = worker(&server);
        let first = token(&mut holder).await;
        let mut heir = worker(&server);
        parked(&admin, "a", 1).await;

        holder.kill9();

        let rest = rest_of_lease(&admin).await;
        inherits(&mut heir, first, rest).await;
    })
    .await;
}

#[tokio::test]
async fn a_holder_that_slept_through_its_lease_knows_it_when_it_wakes() {
    judged(async || {
        let server = Site::start().await;
        let admin = server.admin().await;
        let mut holder = worker(&server);
        let first = token(&mut holder).await;
        assert_eq!(holder.ask("valid?").await, "true");
        let mut heir = worker(&server);
        parked(&admin, "a", 1).await;

        holder.stop_process();
        inherits(&mut heir, first, rest_of_lease(&admin).await).await;
        holder.order("valid?").await;
        holder.continue_process();

        assert_eq!(holder.hear().await, "false");
        assert_eq!(heir.ask("valid?").await, "true");
        assert!(admin.pttl(&key("a")).await > 0, "the sleeper took nothing away");
    })
    .await;
}

#[tokio::test]
async fn a_killed_waiter_leaves_nothing_behind() {
    judged(async || {
        let server = Site::start().await;
        let admin = server.admin().await;
        let mut holder = worker(&server);
        token(&mut holder).await;
        let mut waiter = worker(&server);
        parked(&admin, "a", 1).await;

        waiter.kill9();

        parked(&admin, "a", 0).await;
        assert_eq!(admin.hgetall(&key("a")).await.len(), 1);
        assert_eq!(holder.ask("valid?").await, "true");
    })
    .await;
}
