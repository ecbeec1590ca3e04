//! The fair lock: one queue in Redis, in which threads of Java and tasks of Rust stand in the order in which they came.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use parklock::{Config, Ended, Error, Guard, Layout, Lock, Result};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::common::fixture::{SOON, comes_in, is_pending};
use crate::common::{Watch, Worker, WorkerSide, eventually, judged, timeout};
use crate::peer::Thread;
use crate::scene::{AT_ONCE, FURTHER, QUICK, Scene, USUAL, WORK, client, granted, not_in_time};
use crate::version::FAIR_THREADS_LOOK;

const QUEUE: &str = "redisson_lock_queue:{a}";
const DEADLINES: &str = "redisson_lock_timeout:{a}";
const CHANNEL: &str = "redisson_lock__channel:{a}";

/// How long our own clients wait for a silent waiter of ours.
const CLAIM: Duration = Duration::from_secs(1);

/// How much longer Redisson's clients wait for it.
const SKEW: Duration = Duration::from_secs(5);

/// A `fairLockWaitTimeout` that a few turns exceed.
const SHORT_WAIT: Duration = Duration::from_secs(2);

/// How long Redisson waits for each waiter in its queue, in ms.
const FIVE_MINUTES: f64 = 300_000.0;

impl Scene {
    async fn fair_lock(&self) -> Lock {
        self.client().await.fair_lock("a")
    }

    /// Its waiters keep their places although this machine stands still for seconds.
    async fn patient_fair_lock(&self) -> Lock {
        let waiter_ttl = (CLAIM * 10).min(self.watchdog / 2);
        let config = Config::default().layout(Layout::Redisson).waiter_ttl(waiter_ttl);
        let config = config.watchdog_timeout(self.watchdog).ride_out(USUAL);
        comes_in(&self.server.url(), config).await.fair_lock("a")
    }

    async fn queue(&self) -> Vec<String> {
        self.admin.cmd(&["LRANGE", QUEUE, "0", "-1"]).await
    }

    async fn deadline(&self, field: &str) -> f64 {
        self.admin.cmd(&["ZSCORE", DEADLINES, field]).await
    }

    async fn deadlines(&self) -> Vec<(String, f64)> {
        self.admin.cmd(&["ZRANGE", DEADLINES, "0", "-1", "WITHSCORES"]).await
    }

    async fn queued(&self, waiters: usize) {
        let all = async || {
            let (queue, deadlines) = (self.queue().await.len(), self.deadlines().await.len());
            queue == waiters && deadlines == waiters
        };
        eventually(SOON, &format!("{waiters} stand in the queue"), all).await;
    }

    /// Waits until a newcomer stands last in the queue, and listens.
    async fn comes(&self, place: usize) {
        self.queued(place + 1).await;
        let last = self.queue().await.pop().expect("somebody");
        self.listened_to(&format!("{CHANNEL}:{last}"), 1).await;
    }

    /// A task of Rust that waits behind all others.
    async fn rust_comes(&self, lock: &Lock) -> Waiter {
        let (place, lock) = (self.queue().await.len(), lock.clone());
        let task = tokio::spawn(async move { lock.lock().await });
        self.comes(place).await;
        Waiter::Rust(task)
    }

    /// A thread of Java that waits behind all others.
    async fn java_comes(&self, thread: Thread) -> Waiter {
        let place = self.queue().await.len();
        thread.order("fairlock a").await;
        self.comes(place).await;
        Waiter::Java(thread)
    }

    /// The server's clock in ms.
    async fn now(&self) -> f64 {
        let (seconds, micros): (f64, f64) = self.admin.cmd(&["TIME"]).await;
        seconds * 1000.0 + micros / 1000.0
    }
}

enum Waiter {
    Rust(JoinHandle<Result<Guard>>),
    Java(Thread),
}

enum Holder {
    Rust(Guard),
    Java(Thread),
}

impl Waiter {
    async fn granted(self) -> Holder {
        match self {
            Self::Rust(task) => {
                Holder::Rust(granted(async { task.await.expect("no panic") }).await)
            }
            Self::Java(mut thread) => {
                timeout(AT_ONCE, thread.answer()).await.expect("the wake-up comes");
                Holder::Java(thread)
            }
        }
    }
}

impl Holder {
    async fn unlock(self) {
        match self {
            Self::Rust(guard) => guard.unlock().await.expect("it was ours"),
            Self::Java(mut thread) => drop(thread.ask("fairunlock a").await),
        }
    }
}

// --- Wake-ups -------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn each_side_waits_for_the_other_and_is_woken_by_its_release() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let lock = scene.fair_lock().await;
    for round in 0..10 {
        let guard = lock.lock().await.unwrap();
        let java = scene.java_comes(scene.thread(&format!("t{round}"))).await;
        guard.unlock().await.unwrap();
        let java = java.granted().await;
        let rust = scene.rust_comes(&lock).await;
        scene.nothing_is_eternal().await;
        java.unlock().await;
        rust.granted().await.unlock().await;
    }
    scene.is_clean().await;
}

/// A thread of Java nests a fair lock. A task of ours does not.
#[tokio::test]
async fn rust_waits_until_java_has_ended_all_of_its_nested_holds() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.fair_lock().await, scene.thread("java"));
    java.ask("fairlock a").await;
    java.ask("fairlock a").await;
    assert_eq!(scene.holds("a").await, [2]);
    let Waiter::Rust(mut waiter) = scene.rust_comes(&lock).await else { return };

    java.ask("fairunlock a").await;

    assert!(is_pending(&mut waiter).await);
    assert_eq!(scene.holds("a").await, [1], "ours has not touched the count");
    assert!(lock.try_lock().await.unwrap().is_none());
    java.ask("fairunlock a").await;
    Waiter::Rust(waiter).granted().await.unlock().await;
    scene.is_clean().await;
}

#[tokio::test]
async fn a_guard_that_is_dropped_wakes_java() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let guard = scene.fair_lock().await.lock().await.unwrap();
    let java = scene.java_comes(scene.thread("java")).await;
    drop(guard);
    java.granted().await.unlock().await;
}

/// Somebody deletes the lock. The release of its holder finds nothing.
#[tokio::test]
async fn a_release_of_a_lock_that_is_gone_wakes_java() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let guard = scene.fair_lock().await.lock().await.unwrap();
    let java = scene.java_comes(scene.thread("java")).await;
    scene.admin.cmd::<i64>(&["DEL", "a"]).await;
    let left = guard.unlock().await;
    assert!(matches!(left, Err(Error::Lost { .. })), "{left:?}");
    java.granted().await.unlock().await;
}

/// Two names that bring their own braces, and one that has none: keys and channels are Redisson's.
#[tokio::test]
async fn names_with_braces_are_the_same_lock_to_both() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    for name in ["b{a}", "{a}", "a b"] {
        let name = name.replace(' ', "%20");
        java.ask(&format!("fairlock {name}")).await;
        let lock = client.fair_lock(name.clone());
        let waiter = tokio::spawn(async move { lock.lock().await });
        let key = if name.contains('{') { name.clone() } else { format!("{{{name}}}") };
        let stands = async || {
            scene.admin.cmd::<usize>(&["LLEN", &format!("redisson_lock_queue:{key}")]).await == 1
        };
        eventually(SOON, "it stands in Redisson's queue", stands).await;
        java.ask(&format!("fairunlock {name}")).await;
        granted(async { waiter.await.unwrap() }).await.unlock().await.unwrap();
    }
}

// --- The order ------------------------------------------------------------------------------------------------------

/// Each waiter takes over as soon as the one before it leaves. Each time, Redisson takes five minutes off the
/// deadlines of all waiters behind. If a deadline did not allow for that, it would be over long before its turn.
#[tokio::test]
async fn threads_of_java_and_tasks_of_rust_are_served_in_one_order() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let locks = [scene.patient_fair_lock().await, scene.patient_fair_lock().await];
    let first = locks[0].lock().await.unwrap();
    let mut waiters = Vec::new();
    for place in 0..20_usize {
        // J R R J J R J R ..: each kind behind its own and behind the other.
        let is_java = [0, 3, 4, 6].contains(&(place % 8));
        waiters.push(match is_java {
            true => scene.java_comes(scene.thread(&format!("t{place}"))).await,
            false => scene.rust_comes(&locks[place % 2]).await,
        });
    }
    let places = scene.queue().await;
    scene.nothing_is_eternal().await;
    first.unlock().await.unwrap();
    for (place, waiter) in waiters.into_iter().enumerate() {
        let holder = waiter.granted().await;
        assert_eq!(scene.queue().await, places[place + 1..], "somebody came out of turn");
        holder.unlock().await;
    }
    scene.is_clean().await;
}

/// As Redisson's own test of leases: nobody gives it back.
#[tokio::test]
async fn leases_that_run_out_pass_the_lock_on_in_order() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let lock = scene.patient_fair_lock().await;
    let first = lock.lock().await.unwrap();
    let lock = lock.lease(Duration::from_secs(3));
    let mut waiters = Vec::new();
    for place in 0..5 {
        waiters.push(if place % 2 == 0 {
            let thread = scene.thread(&format!("t{place}"));
            thread.order("fairlock a 3000").await;
            scene.comes(place).await;
            Waiter::Java(thread)
        } else {
            scene.rust_comes(&lock).await
        });
    }
    let (places, mut holders) = (scene.queue().await, Vec::new());
    first.unlock().await.unwrap();
    for (place, waiter) in waiters.into_iter().enumerate() {
        holders.push(waiter.granted().await);
        assert_eq!(scene.queue().await, places[place + 1..], "somebody came out of turn");
    }
}

/// Redisson calls this timeout drift: each place in the queue costs at most five minutes, whichever side stands
/// there, and no live waiter is thrown out.
#[tokio::test]
async fn deadlines_neither_drift_away_nor_run_out() {
    judged(async || {
        let Some(scene) = Scene::begin(USUAL).await else { return };
        let lock = scene.fair_lock().await;
        let first = lock.lock().await.unwrap();
        let mut waiters = Vec::new();
        for place in 0..9 {
            waiters.push(match place {
                4 | 8 => scene.java_comes(scene.thread(&format!("t{place}"))).await,
                _ => scene.rust_comes(&lock).await,
            });
        }
        let mut holder = Holder::Rust(first);
        for waiter in waiters {
            check_deadlines(&scene).await;
            holder.unlock().await;
            holder = waiter.granted().await;
        }
        holder.unlock().await;
    })
    .await;
}

async fn check_deadlines(scene: &Scene) {
    // In this order: a sign of life between the two would leave more than it may.
    let (deadlines, now, mut java) = (scene.deadlines().await, scene.now().await, 0.0);
    let own = (CLAIM + SKEW).as_secs_f64() * 1000.0;
    for field in scene.queue().await {
        let (_, deadline) = deadlines.iter().find(|(of, _)| *of == field).expect("a deadline");
        let left = deadline - now;
        if is_of_java(&field) {
            java += 1.0;
            let most = java * (FIVE_MINUTES + own) + 30_000.0;
            assert!(left > FIVE_MINUTES / 2.0 && left < most, "Java: {left} of {most}");
        } else {
            let most = java * (FIVE_MINUTES + own) + own;
            assert!(left > own / 2.0 && left <= most, "Rust: {left} of {most}");
        }
    }
}

/// Redisson's clients have random UUIDs.
fn is_of_java(field: &str) -> bool {
    field.as_bytes()[14] == b'4'
}

/// A `tryLock` of an hour takes an hour off the deadlines of those behind it.
#[tokio::test]
async fn a_long_wait_of_java_costs_nobody_its_place() {
    for stands_behind in [0, 1] {
        let Some(scene) = Scene::begin(USUAL).await else { return };
        let (lock, mut java) = (scene.fair_lock().await, scene.thread("java"));
        let mut holder = Holder::Rust(lock.lock().await.unwrap());
        let mut ahead = Vec::new();
        for _ in 0..stands_behind {
            ahead.push(scene.rust_comes(&lock).await);
        }
        java.order("fairtrylock a 3600000").await;
        scene.comes(stands_behind).await;
        let rust = scene.rust_comes(&lock).await;
        let last = scene.java_comes(scene.thread("last")).await;
        let places = scene.queue().await.split_off(stands_behind);
        for waiter in ahead {
            holder.unlock().await;
            holder = waiter.granted().await;
        }
        holder.unlock().await;
        assert_eq!(java.answer().await.result, "true");
        let deadline = scene.deadline(&places[1]).await;
        assert!(deadline > scene.now().await, "it lives, behind {stands_behind}");
        java.ask("fairunlock a").await;
        let rust = rust.granted().await;
        assert_eq!(scene.queue().await, places[2..]);
        rust.unlock().await;
        last.granted().await.unlock().await;
    }
}

/// Java waits two seconds for each that stands before it, and the ten of ours hold the lock for twelve.
#[tokio::test]
async fn a_thread_of_java_keeps_its_place_behind_tasks_of_rust_however_long_they_hold() {
    const WORK: Duration = Duration::from_millis(1200);
    let Some(scene) = Scene::begin_impatient(USUAL, SHORT_WAIT).await else { return };
    let lock = scene.patient_fair_lock().await;
    let (first, mut waiters) = (lock.lock().await.unwrap(), Vec::new());
    for place in 0..13 {
        waiters.push(match place {
            10 | 11 => scene.java_comes(scene.thread(&format!("t{place}"))).await,
            _ => scene.rust_comes(&lock).await,
        });
    }
    let (places, mut holder) = (scene.queue().await, Holder::Rust(first));
    for (place, waiter) in waiters.into_iter().enumerate() {
        // Java's own clients take off its deadline what they hold.
        if matches!(holder, Holder::Rust(_)) {
            sleep(WORK).await;
        }
        holder.unlock().await;
        holder = waiter.granted().await;
        assert_eq!(scene.queue().await, places[place + 1..], "somebody came out of turn");
    }
    holder.unlock().await;
    scene.is_clean().await;
}

/// The holder is renewed three times before it unlocks: nobody is thrown out for that.
#[tokio::test]
async fn a_thread_of_java_keeps_its_place_while_rust_renews() {
    judged(async || {
        let Some(scene) = Scene::begin_impatient(QUICK, SHORT_WAIT).await else { return };
        let lock = scene.patient_fair_lock().await;
        let first = lock.lock().await.unwrap();
        let java = scene.java_comes(scene.thread("java")).await;
        let rust = scene.rust_comes(&lock).await;
        let places = scene.queue().await;
        sleep(WORK).await;
        assert_eq!(scene.queue().await, places, "somebody was thrown out");
        first.unlock().await.unwrap();
        let java = java.granted().await;
        assert_eq!(scene.queue().await, places[1..]);
        java.unlock().await;
        rust.granted().await.unlock().await;
        scene.is_clean().await;
    })
    .await;
}

/// Our scripts add the lease of the holder to its deadline. If the holder unlocks early, they take the rest off
/// again.
#[tokio::test]
async fn a_jvm_that_was_killed_while_it_waited_costs_rust_its_wait_and_no_lease() {
    let Some(mut scene) = Scene::begin_impatient(USUAL, SHORT_WAIT).await else { return };
    let lock = scene.fair_lock().await;
    let first = lock.lock().await.unwrap();
    let second = scene.rust_comes(&lock).await;
    let _java = scene.java_comes(scene.thread("java")).await;
    let last = scene.rust_comes(&lock).await;
    scene.jvm.kill9().await;
    first.unlock().await.unwrap();
    let second = second.granted().await;
    second.unlock().await;
    let Waiter::Rust(last) = last else { return };
    let unlocked = Watch::start();
    let guard = timeout(SOON, last).await.expect("Java is not waited for").unwrap().unwrap();
    let took = unlocked.passed();
    println!("a dead Java waiter cost Rust {took:?}");
    assert!(took < SHORT_WAIT + CLAIM + SKEW + FURTHER, "{took:?}");
    guard.unlock().await.unwrap();
}

// --- Waiters that die
// -----------------------------------------------------------------------------------------------

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_locks_fairly() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let lock = client(&boss.variable("URL"), QUICK).await.fair_lock("a");
    boss.tell("ready");
    boss.order().await;
    let _guard = lock.lock().await.unwrap();
    boss.tell("granted");
    boss.order().await;
}

async fn worker(scene: &Scene) -> Worker {
    let url = scene.server.url();
    let mut worker = Worker::start("fair::worker_that_locks_fairly", &[("URL", &url)]);
    assert_eq!(worker.hear().await, "ready");
    worker
}

async fn rest_of_lease(scene: &Scene) -> Duration {
    let ttl = scene.admin.pttl("a").await;
    Duration::from_millis(u64::try_from(ttl).expect("it is held, with a TTL"))
}

#[tokio::test]
async fn java_follows_a_rust_holder_that_was_killed() {
    let Some(scene) = Scene::begin(QUICK).await else { return };
    let mut worker = worker(&scene).await;
    assert_eq!(worker.ask("go").await, "granted");
    let Waiter::Java(mut java) = scene.java_comes(scene.thread("java")).await else { return };
    worker.kill9();
    let (killed, rest) = (Watch::start(), rest_of_lease(&scene).await);
    if scene.has(FAIR_THREADS_LOOK) {
        java.answer().await;
        assert!(killed.passed() <= rest + FURTHER);
        java.ask("fairunlock a").await;
        return;
    }
    // If it has looked a millisecond too early, it waits for a message. The next of ours sends one.
    sleep(rest + FURTHER).await;
    let (lock, came) = (scene.fair_lock().await, Watch::start());
    let rust = tokio::spawn(async move { lock.lock().await });
    java.answer().await;
    assert!(came.passed() <= AT_ONCE);
    java.ask("fairunlock a").await;
    granted(async { rust.await.unwrap() }).await.unlock().await.unwrap();
}

#[tokio::test]
async fn rust_follows_a_jvm_that_was_killed_while_it_held() {
    let Some(mut scene) = Scene::begin(QUICK).await else { return };
    let lock = scene.fair_lock().await;
    scene.thread("java").ask("fairlock a").await;
    let waiter = scene.rust_comes(&lock).await;
    scene.jvm.kill9().await;
    let (killed, rest) = (Watch::start(), rest_of_lease(&scene).await);
    let Waiter::Rust(waiter) = waiter else { return };
    let guard = timeout(SOON, waiter).await.expect("the lease ends").unwrap().unwrap();
    assert!(killed.passed() <= rest + FURTHER);
    guard.unlock().await.unwrap();
    scene.is_clean().await;
}

/// Among ourselves a dead waiter costs what it costs in our own layout.
#[tokio::test]
async fn a_rust_waiter_that_was_killed_costs_rust_a_claim() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let lock = scene.fair_lock().await;
    let guard = lock.lock().await.unwrap();
    let mut worker = worker(&scene).await;
    worker.order("go").await;
    scene.comes(0).await;
    let next = scene.rust_comes(&lock).await;
    worker.kill9();
    let killed = Watch::start();
    guard.unlock().await.unwrap();
    let Waiter::Rust(next) = next else { return };
    let next = timeout(SOON, next).await.expect("the dead one is skipped").unwrap().unwrap();
    println!("a dead Rust waiter cost Rust {:?}", killed.elapsed());
    assert!(killed.passed() < CLAIM + FURTHER, "{:?}", killed.passed());
    next.unlock().await.unwrap();
}

/// One of ours that waits too throws it out, and tells Java.
#[tokio::test]
async fn a_rust_waiter_that_was_killed_costs_java_a_claim_if_rust_waits_too() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let lock = scene.fair_lock().await;
    let guard = lock.lock().await.unwrap();
    let mut worker = worker(&scene).await;
    worker.order("go").await;
    scene.comes(0).await;
    let Waiter::Java(mut java) = scene.java_comes(scene.thread("java")).await else { return };
    let rust = scene.rust_comes(&lock).await;
    worker.kill9();
    let killed = Watch::start();
    guard.unlock().await.unwrap();
    java.answer().await;
    let took = killed.passed();
    println!("a dead Rust waiter cost Java {took:?} with Rust behind it");
    assert!(took < CLAIM + FURTHER, "{took:?}");
    java.ask("fairunlock a").await;
    rust.granted().await.unlock().await;
}

/// Alone, Java looks when it believes the lease to be over, and then without a pause until the deadline is.
#[tokio::test]
async fn a_rust_waiter_that_was_killed_costs_java_alone_a_few_seconds() {
    let Some(scene) = Scene::begin(QUICK).await else { return };
    let guard = scene.fair_lock().await.lock().await.unwrap();
    let mut worker = worker(&scene).await;
    worker.order("go").await;
    scene.comes(0).await;
    let Waiter::Java(mut java) = scene.java_comes(scene.thread("java")).await else { return };
    worker.kill9();
    let killed = Watch::start();
    guard.unlock().await.unwrap();
    java.answer().await;
    let took = killed.passed();
    println!("a dead Rust waiter cost Java alone {took:?}");
    assert!(took < QUICK.max(CLAIM + SKEW) + FURTHER, "{took:?}");
    java.ask("fairunlock a").await;
}

// --- Waiters that give up
// -------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_waiter_that_is_cancelled_or_out_of_time_leaves_queue_and_deadlines() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.fair_lock().await, scene.thread("java"));
    java.ask("fairlock a").await;
    let Waiter::Rust(cancelled) = scene.rust_comes(&lock).await else { return };
    let next = scene.java_comes(scene.thread("next")).await;
    cancelled.abort();
    scene.queued(1).await;
    let (asked, limit) = (Watch::start(), Duration::from_secs(1));
    not_in_time(lock.try_lock_for(limit).await);
    assert!(asked.elapsed() >= limit && asked.passed() < limit + FURTHER);
    scene.queued(1).await;
    java.ask("fairunlock a").await;
    next.granted().await.unlock().await;
    scene.is_clean().await;
}

/// Java holds the lock, and nobody of ours stands before the second thread. So nothing moves its deadline but the first one.
#[tokio::test]
async fn a_thread_of_java_that_gives_up_takes_its_wait_off_the_deadlines_behind_it() {
    const LIMIT: Duration = Duration::from_secs(10);
    // On a busy machine, the limit may be over before the others have come.
    judged(async || {
        let Some(scene) = Scene::begin(USUAL).await else { return };
        let (mut java, mut impatient) = (scene.thread("java"), scene.thread("impatient"));
        java.ask("fairlock a").await;
        impatient.order(&format!("fairtrylock a {}", LIMIT.as_millis())).await;
        scene.comes(0).await;
        let next = scene.java_comes(scene.thread("next")).await;
        let rust = scene.rust_comes(&scene.patient_fair_lock().await).await;
        let places = scene.queue().await;
        let [before, ours] = [scene.deadline(&places[1]).await, scene.deadline(&places[2]).await];

        assert_eq!(impatient.answer().await.result, "false");

        assert_eq!(scene.queue().await, places[1..]);
        let taken_off = before - scene.deadline(&places[1]).await;
        assert_eq!(taken_off, LIMIT.as_secs_f64() * 1000.0);
        let follows = async || ours - scene.deadline(&places[2]).await > FIVE_MINUTES / 2.0;
        eventually(SOON, "ours allows for one thread less", follows).await;
        assert!(scene.deadline(&places[2]).await > scene.now().await + FIVE_MINUTES / 2.0);
        java.ask("fairunlock a").await;
        next.granted().await.unlock().await;
        rust.granted().await.unlock().await;
        scene.is_clean().await;
    })
    .await;
}

/// A waiter is told of its turn, and goes without looking. Java is told because it goes, and not because a time is
/// over.
#[tokio::test]
async fn a_head_that_goes_wakes_the_next() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.fair_lock().await, scene.thread("java"));
    java.ask("fairlock a").await;
    let waiting = lock.clone();
    let mut stuck: Pin<Box<dyn Future<Output = Result<Guard>>>> =
        Box::pin(async move { waiting.lock().await });
    tokio::select! {
        _ = &mut stuck => unreachable!("Java holds it"),
        () = scene.comes(0) => {}
    }
    let next = scene.java_comes(scene.thread("next")).await;
    java.ask("fairunlock a").await;
    assert_eq!(scene.holds("a").await.len(), 0, "it is nobody's");
    assert_eq!(scene.queue().await.len(), 2);

    drop(stuck);

    next.granted().await.unlock().await;
}

#[tokio::test]
async fn a_single_attempt_leaves_no_trace() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.fair_lock().await, scene.thread("java"));
    java.ask("fairlock a").await;
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(scene.admin.keys().await, ["a"]);
    java.ask("fairunlock a").await;
    let guard = lock.try_lock().await.unwrap().expect("it is free");
    assert_eq!(java.result("fairtrylock a").await, "false");
    assert_eq!(scene.keys().await, ["a", "lock:grants"]);
    guard.unlock().await.unwrap();
    assert_eq!(java.result("fairtrylock a").await, "true");
}

/// The server pauses while a waiter runs out of time.
#[tokio::test]
async fn a_waiter_that_runs_out_of_time_in_a_pause_leaves_the_queue_later() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.fair_lock().await, scene.thread("java"));
    java.ask("fairlock a").await;
    let waiting = lock.clone();
    let limit = Duration::from_secs(10);
    let waiter = tokio::spawn(async move { waiting.try_lock_for(limit).await });
    scene.comes(0).await;
    scene.admin.cmd::<()>(&["CLIENT", "PAUSE", "12000", "ALL"]).await;
    not_in_time(waiter.await.unwrap());
    scene.queued(0).await;
    java.ask("fairunlock a").await;
}

// --- Force, and other kinds -----------------------------------------------------------------------------------------

#[tokio::test]
async fn a_lock_that_rust_takes_by_force_goes_to_the_head() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.fair_lock().await, scene.thread("java"));
    java.ask("fairlock a").await;
    let next = scene.java_comes(scene.thread("next")).await;
    assert!(lock.force_unlock().await.unwrap());
    let holder = next.granted().await;
    // Before that, Redisson would have called it given back.
    assert_eq!(java.refusal("fairunlock a").await, "IllegalMonitorStateException");

    // A holder that had to wait still listens, and is told at once.
    let rust = scene.rust_comes(&lock).await;
    holder.unlock().await;
    let Holder::Rust(guard) = rust.granted().await else { return };
    assert!(scene.fair_lock().await.force_unlock().await.unwrap());
    assert_eq!(timeout(AT_ONCE, guard.ended()).await, Ok(Ended::Lost));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert!(!lock.is_locked().await.unwrap());
    assert!(!lock.force_unlock().await.unwrap());
}

#[tokio::test]
async fn a_lock_that_java_takes_by_force_goes_to_the_head() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.fair_lock().await, scene.thread("java"));
    let guard = lock.lock().await.unwrap();
    let waiter = scene.java_comes(scene.thread("waiter")).await;
    assert_eq!(java.result("fairforce a").await, "true");
    let holder = waiter.granted().await;
    // Long before its lease is over.
    assert_eq!(timeout(SOON, guard.ended()).await, Ok(Ended::Lost));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert!(lock.is_locked().await.unwrap());
    holder.unlock().await;
}

#[tokio::test]
async fn a_read_write_lock_of_that_name_is_a_conflict() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (lock, mut java) = (scene.fair_lock().await, scene.thread("java"));
    for kind in ["read", "write"] {
        java.ask(&format!("{kind}lock a")).await;
        let asked = timeout(SOON, lock.lock()).await.expect("an answer");
        assert!(matches!(asked, Err(Error::Conflict { .. })), "{asked:?}");
        let forced = lock.force_unlock().await;
        assert!(matches!(forced, Err(Error::Conflict { .. })), "{forced:?}");
        assert_eq!(scene.queue().await.len(), 0);
        java.ask(&format!("{kind}unlock a")).await;
    }
    scene.admin.cmd::<()>(&["SET", QUEUE, "text"]).await;
    let asked = lock.lock().await;
    assert!(matches!(asked, Err(Error::Conflict { .. })), "{asked:?}");
}
