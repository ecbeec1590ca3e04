//! Within a client a lock goes from caller to caller at memory speed, and Redis is asked before long.

use crate::common;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use common::fixture::{comes_in, scripts};
use common::rights::untold;
use common::{Admin, Proxy, Server, Site, eventually, judged, timeout};
use parklock::{
    Client, Config, Ended, Error, Guard, HandOff, Layout, Lock, Owner, ReentrantLock, Result,
};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::sleep;

/// As long as a background effect may take on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(10);

/// Longer than any test: what happens meanwhile happens for another reason.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// The turns that one grant by Redis has numbers for.
const TURNS: u64 = 1024;

const KEY: &str = "lock:{a}";
const CHANNEL: &str = "lock_channel:{a}";

/// Hands on so many times, however long that takes.
fn turns(max_consecutive: u32) -> Config {
    let hand_off = HandOff { max_consecutive, max_time: FOR_EVER };
    Config::default().hand_off(hand_off).subscription_linger(Duration::from_millis(30))
}

/// As [`turns`], with leases and claims that outlast every test.
fn patient(max_consecutive: u32) -> Config {
    turns(max_consecutive)
        .watchdog_timeout(FOR_EVER)
        .response_timeout(Duration::from_secs(2))
        .waiter_ttl(Duration::from_secs(600))
}

async fn connect(url: &str, config: Config) -> Client {
    comes_in(url, config).await
}

/// A proxy that knows the scripts of the clients that connect through it.
async fn proxy(server: &Site) -> Proxy {
    let proxy = Proxy::before(server).await;
    proxy.name_acquires();
    proxy.name_counts();
    proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
    proxy
}

/// A caller's future, polled by hand.
struct Caller(Pin<Box<dyn Future<Output = Result<Guard>> + Send>>);

impl Caller {
    /// A caller that has just queued behind a holder of the same client, which needs no I/O.
    fn queued(lock: &Lock) -> Self {
        let lock = lock.clone();
        Self::pending(async move { lock.lock().await })
    }

    fn nesting(lock: &ReentrantLock) -> Self {
        let lock = lock.clone();
        Self::pending(async move { lock.lock().await })
    }

    fn pending(future: impl Future<Output = Result<Guard>> + Send + 'static) -> Self {
        let mut caller = Self(Box::pin(future));
        assert!(!caller.is_ready(), "somebody else holds the lock");
        caller
    }

    /// Polls once. What it gets, if it gets anything, is dropped.
    fn is_ready(&mut self) -> bool {
        self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    async fn guard(self) -> Guard {
        self.answer().await.expect("it is its turn")
    }

    async fn answer(self) -> Result<Guard> {
        timeout(SOON, self.0).await.expect("its turn comes soon")
    }

    /// What the caller gets at its next poll, hence without I/O.
    fn at_once(mut self) -> Guard {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(guard) => guard.expect("it is its turn"),
            Poll::Pending => panic!("the lock has not been handed on"),
        }
    }

    fn spawn(self) -> JoinHandle<Result<Guard>> {
        tokio::spawn(self.0)
    }
}

async fn taken(lock: &Lock) -> Guard {
    let guard = timeout(SOON, lock.lock()).await.expect("it is free soon");
    guard.expect("it is free")
}

fn turn(guard: &Guard) -> u64 {
    guard.token().get() % TURNS
}

/// The holders of the lock as Redis knows them, with their counts.
async fn holders(admin: &Admin) -> Vec<(String, String)> {
    admin.hgetall(KEY).await.into_iter().collect()
}

async fn field(admin: &Admin) -> String {
    let mut holders = holders(admin).await;
    assert_eq!(holders.len(), 1, "{holders:?}");
    holders.remove(0).0
}

/// The keys of the server with their values, except for the token counter, and the channels.
async fn left(admin: &Admin) -> Vec<String> {
    let mut left = admin.channels().await;
    for key in admin.keys().await {
        match key.as_str() {
            "lock:grants" => {}
            KEY => left.push(format!("{:?}", holders(admin).await)),
            _ => left.push(key),
        }
    }
    left
}

/// Waits until nothing is left in the server.
async fn is_clean(admin: &Admin) {
    eventually(SOON, "nothing is left", async || left(admin).await.is_empty()).await;
}

/// Does work on many tasks that pass one lock around; each ends with the first error that `may_end` it.
struct Carousel {
    riders: JoinSet<Error>,
    turns: Arc<AtomicUsize>,
}

impl Carousel {
    fn of(
        lock: &Lock,
        riders: usize,
        goes_on: impl Fn(&Error) -> bool + Copy + Send + 'static,
    ) -> Self {
        let (mut all, turns) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..riders {
            let (lock, turns) = (lock.clone(), Arc::clone(&turns));
            all.spawn(async move {
                loop {
                    match a_turn(&lock).await {
                        Err(error) if !goes_on(&error) => return error,
                        _ => turns.fetch_add(1, Ordering::SeqCst),
                    };
                }
            });
        }
        Self { riders: all, turns }
    }

    /// Waits for so many more turns.
    async fn turns(&self, more: usize) {
        let until = self.turns.load(Ordering::SeqCst) + more;
        let turned = async || self.turns.load(Ordering::SeqCst) >= until;
        eventually(SOON, "the lock goes round", turned).await;
    }

    async fn errors(mut self) -> Vec<Error> {
        let mut errors = Vec::new();
        while let Some(error) = timeout(SOON, self.riders.join_next()).await.expect("all end") {
            errors.push(error.expect("no panic"));
        }
        errors
    }
}

async fn a_turn(lock: &Lock) -> Result<()> {
    let guard = lock.lock().await?;
    yield_now().await;
    guard.unlock().await
}

// Without Redis.

#[tokio::test]
async fn a_hand_over_costs_no_command_and_counts_the_token_up_by_one() {
    let server = Site::start().await;
    let (client, admin) = (connect(&server.url(), patient(1023)).await, server.admin().await);
    let lock = client.lock("a");
    let mut guard = taken(&lock).await;
    assert_eq!(turn(&guard), 0);
    let holder = field(&admin).await;
    admin.reset_stats().await;

    for number in 1..=1000 {
        let (next, token) = (Caller::queued(&lock), guard.token());
        guard.unlock().await.unwrap();
        yield_now().await; // for Tokio lets no task take so many turns in one go
        guard = next.at_once();
        assert!(guard.token() > token && guard.is_valid());
        assert_eq!(turn(&guard), number);
    }

    assert_eq!(scripts(&admin).await, 0);
    assert_eq!(admin.command_calls("publish").await, 0);
    assert_eq!(admin.command_calls("subscribe").await, 0);
    assert_eq!(field(&admin).await, holder);
    guard.unlock().await.unwrap();
    assert_eq!(scripts(&admin).await, 1, "the last one gives it back");
    assert!(holders(&admin).await.is_empty());
}

#[tokio::test]
async fn callers_are_handed_the_lock_in_the_order_in_which_they_came() {
    let server = Site::start().await;
    let client = connect(&server.url(), patient(1023)).await;
    let lock = client.lock("a");
    let first = taken(&lock).await;
    let mut queue: Vec<_> = (0..10).map(|_| Caller::queued(&lock)).collect();
    first.unlock().await.unwrap();
    for number in 1..=10 {
        let next = queue.remove(0);
        assert!(!queue.iter_mut().any(Caller::is_ready));
        let guard = next.at_once();
        assert_eq!(turn(&guard), number);
        drop(guard); // by drop as by unlock
    }
}

#[tokio::test]
async fn a_holder_that_has_handed_the_lock_on_has_released_it() {
    let server = Site::start().await;
    let (client, admin) = (connect(&server.url(), patient(1023)).await, server.admin().await);
    let lock = client.lock("a");
    let first = taken(&lock).await;
    let (told, lost) = (first.token(), first.ended());
    let (tell, hold) = oneshot::channel();
    let work = lock.clone();
    let running = Caller::pending(async move {
        work.run(|hold| async { tell.send(hold).expect("the test listens") }).await?;
        work.lock().await
    });
    let third = Caller::queued(&lock);
    first.unlock().await.unwrap();
    assert_eq!(timeout(SOON, lost).await.expect("at once"), Ended::Released);

    // It works, hands on to the third, and queues again.
    let fourth = running.spawn();
    let hold = hold.await.unwrap();
    let third = third.guard().await;
    assert!(hold.token() > told && third.token() > hold.token());
    assert!(!hold.is_valid() && hold.remaining().is_zero() && third.is_valid());
    assert_eq!(timeout(SOON, hold.ended()).await.expect("at once"), Ended::Released);

    // And now the tenure that they shared is lost.
    admin.cmd::<u32>(&["DEL", KEY]).await;
    assert!(matches!(third.extend(FOR_EVER).await, Err(Error::Lost { .. })));
    assert_eq!(third.ended().await, Ended::Lost);
    assert_eq!(hold.ended().await, Ended::Released);
    assert!(matches!(third.unlock().await, Err(Error::Lost { .. })));
    fourth.await.unwrap().unwrap().unlock().await.unwrap();
}

// The budget.

#[tokio::test]
async fn after_max_consecutive_hand_overs_an_exchange_makes_a_new_tenure() {
    let server = Site::start().await;
    let (proxy, admin) = (proxy(&server).await, server.admin().await);
    let client = connect(&proxy.url(), patient(3)).await;
    let lock = client.lock("a");
    let mut guard = taken(&lock).await;
    let (scripts, exchanges) = (proxy.command("EVALSHA").count(), proxy.script("exchange").count());
    for number in 1..=20 {
        let (next, before) = (Caller::queued(&lock), (guard.token(), field(&admin).await));
        guard.unlock().await.unwrap();
        guard = next.guard().await;
        assert_eq!(turn(&guard), number % 4);
        assert!(guard.token() > before.0);
        assert_eq!(field(&admin).await == before.1, number % 4 > 0, "turn {number}");
        assert_eq!(exchanges.fired() as u64, number / 4);
    }
    assert_eq!(scripts.fired(), 5, "and no other script");
    assert_eq!(admin.command_calls("publish").await, 0, "nobody else waits");
}

#[tokio::test]
async fn after_max_time_an_exchange_makes_a_new_tenure() {
    const TIME: Duration = Duration::from_millis(20);
    let server = Site::start().await;
    let proxy = proxy(&server).await;
    let hand_off = HandOff { max_consecutive: 1023, max_time: TIME };
    let client = connect(&proxy.url(), patient(0).hand_off(hand_off)).await;
    let lock = client.lock("a");
    let mut guard = taken(&lock).await;
    let (scripts, exchanges) = (proxy.command("EVALSHA").count(), proxy.script("exchange").count());
    for number in 1..=3 {
        let next = Caller::queued(&lock);
        sleep(TIME).await;
        guard.unlock().await.unwrap();
        guard = next.guard().await;
        assert_eq!(turn(&guard), 0);
        assert_eq!((scripts.fired(), exchanges.fired()), (number, number));
    }
}

#[tokio::test]
async fn without_a_budget_each_turn_asks_redis() {
    let server = Site::start().await;
    let proxy = proxy(&server).await;
    let client = connect(&proxy.url(), patient(0)).await;
    let lock = client.lock("a");
    let mut guard = taken(&lock).await;
    let (scripts, exchanges) = (proxy.command("EVALSHA").count(), proxy.script("exchange").count());
    for number in 1..=10 {
        let next = Caller::queued(&lock);
        guard.unlock().await.unwrap();
        guard = next.guard().await;
        assert_eq!(turn(&guard), 0);
        assert_eq!((scripts.fired(), exchanges.fired()), (number, number));
    }
}

#[tokio::test]
async fn an_exchanged_lock_goes_to_another_client_that_waits() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let client = connect(&server.url(), patient(0)).await;
    let other = connect(&server.url(), patient(0)).await;
    let (lock, others) = (client.lock("a"), other.lock("a"));
    let first = taken(&lock).await;
    let waiting = tokio::spawn(async move { others.lock().await });
    in_line(&admin, 1).await;
    let second = Caller::queued(&lock);
    first.unlock().await.unwrap();
    let second = second.spawn();
    let theirs = timeout(SOON, waiting).await.expect("it is called").unwrap().unwrap();
    in_line(&admin, 1).await;
    assert!(!second.is_finished());
    theirs.unlock().await.unwrap();
    second.await.unwrap().unwrap().unlock().await.unwrap();
    is_clean(&admin).await;
}

/// `max_waiters` is 1: a caller counts once, in the queue of its client and then in the line.
#[tokio::test]
async fn a_caller_that_moves_from_the_queue_into_the_line_counts_once_toward_max_waiters() {
    let server = Site::start().await;
    let (proxy, admin) = (proxy(&server).await, server.admin().await);
    let client = connect(&proxy.url(), patient(0).max_waiters(1)).await;
    let other = connect(&server.url(), patient(0)).await;
    let (lock, others, another) = (client.lock("a"), other.lock("a"), client.lock("b"));
    let (first, beside) = (taken(&lock).await, taken(&another).await);
    let waiting = tokio::spawn(async move { others.lock().await });
    in_line(&admin, 1).await;
    let second = Caller::queued(&lock);
    let late = proxy.script("exchange").hold_reply();
    first.unlock().await.unwrap();
    let second = second.spawn();
    late.happened().await; // the server has given the lock to the other client

    let too_many = tokio::spawn(async move { another.lock().await });
    sleep(Duration::from_millis(50)).await; // it asks nobody before it has a place
    late.lift();
    let theirs = timeout(SOON, waiting).await.expect("it is called").unwrap().unwrap();
    theirs.unlock().await.unwrap();
    let guard = timeout(SOON, second).await.expect("its turn comes").unwrap();
    guard.expect("it has waited all the time").unlock().await.unwrap();
    let too_many = timeout(SOON, too_many).await.expect("an answer at once").unwrap();
    assert!(matches!(too_many, Err(Error::TooManyWaiters { limit: 1 })), "{too_many:?}");
    beside.unlock().await.unwrap();
    is_clean(&admin).await;
}

async fn in_line(admin: &Admin, clients: usize) {
    let waits = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == clients;
    eventually(SOON, "others wait in line", waits).await;
}

// Lost in between. The server tells the client nothing, so the holder still believes when it unlocks.

#[tokio::test]
async fn a_lost_tenure_is_noticed_when_it_is_exchanged() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let client = connect(&untold(&server).await, patient(1)).await;
    for all in [false, true] {
        let lock = client.lock("a");
        let first = taken(&lock).await;
        let [second, third] = [(); 2].map(|()| Caller::queued(&lock));
        match all {
            true => admin.cmd::<String>(&["FLUSHALL"]).await,
            false => admin.cmd::<u32>(&["DEL", KEY]).await.to_string(),
        };
        first.unlock().await.unwrap();
        // It may still believe; a resource that compares tokens does not.
        let second = second.at_once();
        let token = second.token();
        second.unlock().await.unwrap();
        let third = third.guard().await;
        assert_eq!(turn(&third), 0);
        assert!(third.token() > token, "also if the counter is gone");
        assert_eq!(holders(&admin).await.len(), 1);
        third.unlock().await.unwrap();
        is_clean(&admin).await;
    }
}

#[tokio::test]
async fn a_lost_tenure_that_another_client_took_is_not_taken_back() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let url = untold(&server).await;
    let client = connect(&url, patient(0)).await;
    let other = connect(&url, patient(0)).await;
    let lock = client.lock("a");
    let first = taken(&lock).await;
    let second = Caller::queued(&lock);
    admin.cmd::<u32>(&["DEL", KEY]).await;
    let theirs = taken(&other.lock("a")).await;
    first.unlock().await.unwrap();
    let second = second.spawn();
    in_line(&admin, 1).await;
    assert!(!second.is_finished() && theirs.is_valid());
    theirs.extend(FOR_EVER).await.expect("nobody touched it");
    let token = theirs.token();
    theirs.unlock().await.unwrap();
    let second = timeout(SOON, second).await.expect("it is called").unwrap().unwrap();
    assert!(second.token() > token);
}

#[tokio::test]
async fn after_force_by_another_client_the_holder_checks_and_the_next_caller_contends() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let client = connect(&server.url(), patient(1023).subscription_linger(FOR_EVER)).await;
    let other = connect(&server.url(), patient(1023)).await;
    let (lock, others) = (client.lock("a"), taken(&other.lock("a")).await);
    // It has to listen, and so to have waited.
    let waits = lock.clone();
    let waiting = tokio::spawn(async move { waits.lock().await });
    in_line(&admin, 1).await;
    others.unlock().await.unwrap();
    let first = waiting.await.unwrap().unwrap();
    let second = Caller::queued(&lock);
    first.unlock().await.unwrap();
    let (second, third) = (second.at_once(), Caller::queued(&lock).spawn());
    assert_eq!(turn(&second), 1);

    assert!(other.lock("a").force_unlock().await.unwrap());

    let ended = timeout(SOON, second.ended()).await.expect("long before any renewal is due");
    assert_eq!(ended, Ended::Lost);
    let third = timeout(SOON, third).await.expect("the turn is free").unwrap().unwrap();
    assert_eq!(turn(&third), 0);
    assert!(third.token() > second.token());
    assert!(matches!(second.unlock().await, Err(Error::Lost { .. })));
    assert!(third.is_valid());
    third.unlock().await.unwrap();
}

#[tokio::test]
async fn an_operator_in_the_middle_of_hand_offs_stops_nobody() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let client = connect(&server.url(), turns(10)).await;
    let other = connect(&server.url(), turns(10)).await;
    let lost = |error: &Error| matches!(error, Error::Lost { .. });
    let carousels = [&client, &other].map(|client| Carousel::of(&client.lock("a"), 4, lost));
    for _ in 0..10 {
        other.lock("a").force_unlock().await.unwrap();
        for carousel in &carousels {
            carousel.turns(50).await;
        }
        admin.cmd::<String>(&["FLUSHALL"]).await;
        for carousel in &carousels {
            carousel.turns(50).await;
        }
    }
    for client in [client, other] {
        client.close().await;
    }
    for carousel in carousels {
        let errors = carousel.errors().await;
        assert!(errors.iter().all(|error| matches!(error, Error::Closed)), "{errors:?}");
    }
    is_clean(&admin).await;
}

// Those to whom it is handed.

#[tokio::test]
async fn a_receiver_that_is_dropped_passes_the_lock_to_the_next() {
    let server = Site::start().await;
    let (client, admin) = (connect(&server.url(), patient(1023)).await, server.admin().await);
    let lock = client.lock("a");
    let first = taken(&lock).await;
    let [gone, next] = [(); 2].map(|()| Caller::queued(&lock));
    admin.reset_stats().await;
    first.unlock().await.unwrap();
    drop(gone);
    let next = next.at_once();
    assert_eq!(turn(&next), 1);
    assert_eq!(scripts(&admin).await, 0);
    next.unlock().await.unwrap();
    is_clean(&admin).await;
}

#[tokio::test]
async fn a_tenure_that_the_last_queued_caller_drops_goes_back_at_once() {
    let server = Site::start().await;
    let admin = server.admin().await;
    let client = connect(&server.url(), patient(1023)).await;
    let other = connect(&server.url(), patient(1023)).await;
    let lock = client.lock("a");
    for gone in 1..=3 {
        let first = taken(&lock).await;
        let mut callers: Vec<_> = (0..gone).map(|_| Caller::queued(&lock)).collect();
        first.unlock().await.unwrap();
        while let Some(caller) = callers.pop() {
            assert!(!holders(&admin).await.is_empty(), "it is left for them");
            drop(caller);
        }
        taken(&other.lock("a")).await.unlock().await.unwrap();
        is_clean(&admin).await;
    }
}

#[tokio::test]
async fn a_receiver_that_is_dropped_during_its_exchange_leaves_nothing() {
    let server = Site::start().await;
    let (proxy, admin) = (proxy(&server).await, server.admin().await);
    let client = connect(&proxy.url(), patient(0)).await;
    let other = connect(&server.url(), patient(0)).await;
    for after in [false, true] {
        let lock = client.lock("a");
        let first = taken(&lock).await;
        let exchange = proxy.script("exchange");
        let held = if after { exchange.hold_reply() } else { exchange.hold_request() };
        let mut gone = Caller::queued(&lock);
        first.unlock().await.unwrap();
        assert!(!gone.is_ready());
        held.happened().await;
        drop(gone);
        held.lift();
        taken(&other.lock("a")).await.unlock().await.unwrap();
        is_clean(&admin).await;
    }
}

#[tokio::test]
async fn a_receiver_that_panics_passes_the_lock_to_the_next() {
    let server = Site::start().await;
    let (client, admin) = (connect(&server.url(), patient(1023)).await, server.admin().await);
    let lock = client.lock("a");
    let first = taken(&lock).await;
    let panics = lock.clone();
    let panics = Caller::pending(async move {
        let _guard = panics.lock().await;
        panic!("as intended")
    });
    let next = Caller::queued(&lock);
    admin.reset_stats().await;
    first.unlock().await.unwrap();
    assert!(panics.spawn().await.unwrap_err().is_panic());
    let next = next.at_once();
    assert_eq!(turn(&next), 2);
    assert_eq!(scripts(&admin).await, 0);
    next.unlock().await.unwrap();
    is_clean(&admin).await;
}

#[tokio::test]
async fn an_idle_tenure_goes_to_another_client_after_the_pickup_timeout() {
    const CLAIM: Duration = Duration::from_millis(100);
    let server = Site::start().await;
    let client = connect(&server.url(), patient(1023).waiter_ttl(CLAIM)).await;
    let other = connect(&server.url(), patient(1023)).await;
    let lock = client.lock("a");
    let first = taken(&lock).await;
    let asleep = Caller::queued(&lock);
    let handed_on = Instant::now();
    first.unlock().await.unwrap();

    let theirs = taken(&other.lock("a")).await;

    // The client looks four times. The first look may come at once.
    assert!(handed_on.elapsed() >= CLAIM * 3 / 4, "not before");
    let awake = asleep.spawn();
    in_line(&server.admin().await, 1).await;
    assert!(!awake.is_finished());
    let token = theirs.token();
    theirs.unlock().await.unwrap();
    let guard = timeout(SOON, awake).await.expect("it contends").unwrap().unwrap();
    assert!(guard.token() > token);
}

/// The watchdog checks an idle tenure even if it was waiting for a renewal's answer when the lock was handed on.
#[tokio::test]
async fn an_idle_tenure_is_noticed_while_a_renewal_is_on_its_way() {
    // A period between renewals is twice as long as we are ready to wait here.
    let (timeout, claim) = (SOON * 6, Duration::from_millis(100));
    let server = Site::start().await;
    let (proxy, admin) = (proxy(&server).await, server.admin().await);
    let config =
        patient(1023).watchdog_timeout(timeout).waiter_ttl(timeout / 4).pickup_timeout(claim);
    let client = connect(&proxy.url(), config.subscription_linger(FOR_EVER)).await;
    let other = connect(&server.url(), patient(1023)).await;
    let (lock, others) = (client.lock("a"), taken(&other.lock("a")).await);
    let waits = lock.clone();
    let waiting = tokio::spawn(async move { waits.lock().await });
    in_line(&admin, 1).await;
    others.unlock().await.unwrap();
    let first = waiting.await.unwrap().unwrap();

    // A stranger's word has the watchdog look at once.
    let renewal = proxy.script("renew").nth(1).hold_reply();
    admin.publish(CHANNEL, "a stranger").await;
    renewal.happened().await;
    let _asleep = Caller::queued(&lock);
    first.unlock().await.unwrap();
    renewal.lift();

    taken(&other.lock("a")).await.unlock().await.unwrap();
}

// Near the deadline, and with leases of their own.

#[tokio::test]
async fn a_tenure_near_its_deadline_is_not_handed_on() {
    judged(async || {
        const LEASE: Duration = Duration::from_secs(3);
        let server = Site::start().await;
        let proxy = proxy(&server).await;
        let client = connect(&proxy.url(), turns(1023).watchdog_timeout(LEASE)).await;
        let lock = client.lock("a");
        let renewals = proxy.script("renew").hold_request();
        let first = taken(&lock).await;
        let second = Caller::queued(&lock);
        let near = async || first.remaining() < LEASE / 3;
        eventually(SOON, "the deadline is near", near).await;
        renewals.happened().await;
        let token = first.token();
        drop(first);
        let second = second.spawn();
        renewals.lift();
        let second = timeout(SOON, second).await.expect("it contends").unwrap().unwrap();
        assert_eq!(turn(&second), 0);
        assert!(second.token() > token);
        assert!(second.remaining() > LEASE / 3);
    })
    .await;
}

#[tokio::test]
async fn to_and_from_a_fixed_lease_is_one_script_and_a_new_tenure() {
    const LONG: Duration = Duration::from_secs(7200);
    let server = Site::start().await;
    let (proxy, admin) = (proxy(&server).await, server.admin().await);
    let client = connect(&proxy.url(), patient(1023)).await;
    let (watched, fixed) = (client.lock("a"), client.lock("a").lease(LONG));
    let mut guard = taken(&watched).await;
    let (scripts, exchanges) = (proxy.command("EVALSHA").count(), proxy.script("exchange").count());
    for (number, (lock, is_long)) in
        [(&fixed, true), (&fixed, true), (&watched, false), (&fixed, true)].into_iter().enumerate()
    {
        let (next, before) = (Caller::queued(lock), (guard.token(), field(&admin).await));
        guard.unlock().await.unwrap();
        guard = next.guard().await;
        assert_eq!(turn(&guard), 0);
        assert!(guard.token() > before.0);
        assert_ne!(field(&admin).await, before.1);
        assert_eq!((scripts.fired(), exchanges.fired()), (number + 1, number + 1));
        let ttl = Duration::from_millis(admin.pttl(KEY).await.unsigned_abs());
        assert_eq!(ttl > FOR_EVER, is_long, "{ttl:?}");
        assert!(ttl > FOR_EVER / 2 && ttl <= LONG);
        assert!(guard.remaining() <= ttl && (guard.remaining() > FOR_EVER) == is_long);
    }
    guard.unlock().await.unwrap();
    is_clean(&admin).await;
}

#[tokio::test]
async fn an_idle_fixed_lease_goes_to_another_client_after_the_pickup_timeout() {
    let server = Site::start().await;
    let config = patient(1023).waiter_ttl(Duration::from_millis(50));
    let client = connect(&server.url(), config).await;
    let other = connect(&server.url(), patient(1023)).await;
    let lock = client.lock("a").lease(FOR_EVER);
    let first = taken(&lock).await;
    let _asleep = Caller::queued(&lock);
    first.unlock().await.unwrap();
    taken(&other.lock("a")).await.unlock().await.unwrap();
}

// Owners.

#[tokio::test]
async fn the_former_owner_does_not_enter_what_it_has_handed_on() {
    let server = Site::start().await;
    let (client, admin) = (connect(&server.url(), patient(1023)).await, server.admin().await);
    let lock = client.reentrant_lock("a");
    let [one, two] = [(); 2].map(|()| Owner::new()).map(|owner| lock.clone().owned_by(&owner));
    let first = one.lock().await.unwrap();
    let theirs = Caller::nesting(&two);
    first.unlock().await.unwrap();

    // Handed on and not yet taken up: it is not the first owner's any more.
    let mut again = Caller::nesting(&one);
    let theirs = theirs.at_once();
    assert!(!again.is_ready(), "nor when it was taken up");
    let nested = two.lock().await.unwrap();
    assert_eq!((theirs.hold_count(), nested.token()), (2, theirs.token()));
    nested.unlock().await.unwrap();
    let token = theirs.token();
    theirs.unlock().await.unwrap();
    let again = again.guard().await;
    assert!(again.token() > token);
    assert_eq!(again.hold_count(), 1);
    assert_eq!(holders(&admin).await[0].1, "1");
}

/// The hold count in Redis is that of the next holder, however the former holder's nested holds have ended.
#[tokio::test]
async fn the_next_holder_after_a_nested_one_has_one_hold() {
    let server = Site::start().await;
    let (client, admin) = (connect(&server.url(), patient(1023)).await, server.admin().await);
    let (owned, plain) = (client.reentrant_lock("a").owned_by(&Owner::new()), client.lock("a"));
    for unlocks in [true, false] {
        let [outer, inner] = [owned.lock().await.unwrap(), owned.lock().await.unwrap()];
        let heir = Caller::queued(&plain);
        assert_eq!(holders(&admin).await[0].1, "2");
        for guard in [inner, outer] {
            match unlocks {
                true => guard.unlock().await.unwrap(),
                false => drop(guard),
            }
        }
        let heir = heir.at_once();
        assert_eq!(heir.hold_count(), 1);
        let one = async || holders(&admin).await[0].1 == "1";
        eventually(SOON, "redis counts one hold", one).await;
        heir.unlock().await.unwrap();
    }
}

/// The same, while an earlier hold count is still in flight.
#[tokio::test]
async fn the_next_holder_has_one_hold_though_counts_were_on_their_way() {
    let server = Site::start().await;
    let (proxy, admin) = (proxy(&server).await, server.admin().await);
    let client = connect(&proxy.url(), patient(1023)).await;
    let (owned, plain) = (client.reentrant_lock("a").owned_by(&Owner::new()), client.lock("a"));
    let outer = owned.lock().await.unwrap();
    let [one, two] = [owned.lock().await.unwrap(), owned.lock().await.unwrap()];
    let heir = Caller::queued(&plain);

    let held = proxy.script("count").nth(1).hold_reply();
    let one = tokio::spawn(one.unlock()); // says "two"
    held.happened().await;
    let two = tokio::spawn(two.unlock()); // would say "one" after that
    while outer.hold_count() > 1 {
        yield_now().await;
    }
    outer.unlock().await.unwrap();
    let heir = heir.spawn();
    held.lift();
    let heir = timeout(SOON, heir).await.expect("it is handed on").unwrap().unwrap();
    for nested in [one, two] {
        nested.await.unwrap().unwrap();
    }

    assert_eq!(heir.hold_count(), 1);
    let counted = async || holders(&admin).await[0].1 == "1";
    eventually(SOON, "redis counts one hold", counted).await;
}

/// The same, while the former holder takes a nested hold.
#[tokio::test]
async fn the_next_holder_has_one_hold_though_another_was_being_taken() {
    let server = Site::start().await;
    let (proxy, admin) = (proxy(&server).await, server.admin().await);
    let client = connect(&proxy.url(), patient(1023)).await;
    let (owned, plain) = (client.reentrant_lock("a").owned_by(&Owner::new()), client.lock("a"));
    let outer = owned.lock().await.unwrap();
    let heir = Caller::queued(&plain);

    let held = proxy.script("count").nth(1).hold_reply();
    let nesting = Caller::nesting(&owned).spawn(); // says "two"
    held.happened().await;
    outer.unlock().await.unwrap();
    let heir = heir.at_once();
    held.lift();

    let counted = async || holders(&admin).await[0].1 == "1";
    eventually(SOON, "redis counts one hold", counted).await;
    assert_eq!(heir.hold_count(), 1);
    heir.unlock().await.unwrap();
    nesting.await.unwrap().unwrap().unlock().await.unwrap();
}

/// A nested hold asks for its lease once more, and for nothing beyond it.
#[tokio::test]
async fn nested_holds_do_not_pile_up_leases() {
    const LEASE: Duration = Duration::from_secs(60);
    let server = Site::start().await;
    let (client, admin) =
        (connect(&server.url(), turns(1023).watchdog_timeout(LEASE)).await, server.admin().await);
    let (owned, plain) = (client.reentrant_lock("a").owned_by(&Owner::new()), client.lock("a"));
    let outer = owned.lock().await.unwrap();
    for _ in 0..100 {
        owned.lock().await.unwrap().unlock().await.unwrap();
    }
    let ttl = Duration::from_millis(admin.pttl(KEY).await.unsigned_abs());
    assert!(ttl <= LEASE + LEASE / 10 && outer.remaining() <= LEASE, "{ttl:?} in redis");
    let heir = Caller::queued(&plain);
    outer.unlock().await.unwrap();
    assert_eq!(turn(&heir.guard().await), 1, "and it is handed on");
}

// Closing.

#[tokio::test]
async fn close_gives_back_an_idle_tenure() {
    let server = Site::start().await;
    let (client, admin) = (connect(&server.url(), patient(1023)).await, server.admin().await);
    let lock = client.lock("a");
    let first = taken(&lock).await;
    let asleep = Caller::queued(&lock);
    first.unlock().await.unwrap();
    timeout(SOON, client.close()).await.expect("it ends");
    assert!(holders(&admin).await.is_empty());
    assert!(matches!(asleep.answer().await, Err(Error::Closed)));
}

#[tokio::test]
async fn close_in_the_middle_of_hand_offs_leaves_nothing() {
    let server = Site::start().await;
    let admin = server.admin().await;
    for round in 0..20 {
        let client = connect(&server.url(), turns(5)).await;
        let carousel = Carousel::of(&client.lock("a"), 8, |_| false);
        carousel.turns(50 + round).await;
        timeout(SOON, client.close()).await.expect("it ends");
        for error in carousel.errors().await {
            assert!(matches!(error, Error::Closed | Error::Lost { .. }), "{error:?}");
        }
        let found = left(&admin).await;
        assert!(found.iter().all(|left| left == CHANNEL), "round {round}: {found:?}");
        is_clean(&admin).await;
    }
}

/// `close` gives back all locks, and their guards report a loss: also if the watchdog waits for an answer.
#[tokio::test]
async fn close_gives_back_what_was_being_renewed() {
    let server = Site::start().await;
    let (proxy, admin) = (proxy(&server).await, server.admin().await);
    let config = patient(1023).subscription_linger(FOR_EVER);
    let client = connect(&proxy.url(), config).await;
    let other = connect(&server.url(), patient(1023)).await;
    let (lock, others) = (client.lock("a"), taken(&other.lock("a")).await);
    let waits = lock.clone();
    let waiting = tokio::spawn(async move { waits.lock().await });
    in_line(&admin, 1).await;
    others.unlock().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();

    let late = proxy.script("renew").nth(1).delay_reply(Duration::from_millis(100), Duration::ZERO);
    admin.publish(CHANNEL, "stranger").await; // it names no holder: the watchdog looks at once
    late.happened().await;
    timeout(SOON, client.close()).await.expect("it ends");

    assert!(!guard.is_valid(), "its guard reports lost");
    let free = async || holders(&admin).await.is_empty();
    eventually(SOON, "it is given back", free).await;
}

/// A request that may take a lock is owned by something that gives it back: also while the client closes.
#[tokio::test]
async fn close_gives_back_what_was_being_taken() {
    let server = Site::start().await;
    let (proxy, admin) = (proxy(&server).await, server.admin().await);
    for script in ["acquire", "exchange"] {
        let client = connect(&proxy.url(), patient(0)).await;
        let lock = client.lock("a");
        let first = if script == "exchange" { Some(taken(&lock).await) } else { None };
        let late = Duration::from_millis(100);
        let late = proxy.script(script).nth(1).delay_reply(late, Duration::ZERO);
        let waits = lock.clone();
        let waiting = tokio::spawn(async move { waits.lock().await });
        if let Some(first) = first {
            yield_now().await;
            first.unlock().await.unwrap();
        }
        late.happened().await;
        timeout(SOON, client.close()).await.expect("it ends");
        assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)), "{script}");
        let free = async || holders(&admin).await.is_empty();
        eventually(SOON / 2, &format!("what the {script} took is given back"), free).await;
    }
}

/// A contender parks, and then goes. While the next callers are not polled, a caller that does not wait gets the lock. The
/// caller after that one goes on for the first contender, and knows from it that it may park.
#[tokio::test]
async fn a_tenure_that_may_not_be_handed_on_is_not_kept_while_the_next_caller_parks() {
    const PICKUP: Duration = Duration::from_secs(1);
    let server = Server::start().await;
    let admin = server.admin().await;
    let config = patient(0).layout(Layout::Redisson).max_park(FOR_EVER).pickup_timeout(PICKUP);
    let config = config.subscription_linger(FOR_EVER); // a channel that becomes live wakes its contender
    let (theirs, ours) = (
        connect(&untold(&server).await, config.clone()).await.lock("a"),
        connect(&server.url(), config).await.lock("a"),
    );
    let held = taken(&theirs).await;
    let contender = tokio::spawn({
        let lock = ours.clone();
        async move { lock.lock().await }
    });
    let listens = async || admin.subscribers("redisson_lock__channel:{a}").await > 0;
    eventually(SOON, "the contender listens", listens).await;
    sleep(Duration::from_millis(100)).await; // it looks once more when its channel is live
    let (_silent, mut next) = (Caller::queued(&ours), Caller::queued(&ours));

    // Nobody tells the contender of this, since nobody tells the holder.
    admin.cmd::<()>(&["DEL", "a"]).await;
    contender.abort();
    let guard = loop {
        match ours.try_lock().await.expect("an answer") {
            Some(guard) => break guard,
            None => sleep(Duration::from_millis(5)).await,
        }
    };
    assert!(!next.is_ready());
    guard.unlock().await.expect("it is ours");
    next.guard().await.unlock().await.expect("it is ours");
    drop(held);
}
