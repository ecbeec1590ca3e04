//! A side that never stops asking does not keep the other from its turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parklock::Lock;
use tokio::task::JoinSet;

use crate::common::fixture::SOON;
use crate::scene::{Scene, USUAL};

/// How many tasks of one Rust client, or threads of one JVM, keep the lock busy.
const CROWD: usize = 16;

const TURNS: usize = 30;

/// Tasks that take the lock again and again, handing it from one to the next.
struct Crowd {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    tasks: JoinSet<u64>,
}

impl Crowd {
    fn gather(lock: &Lock) -> Self {
        let (stop, turns) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut tasks = JoinSet::new();
        for _ in 0..CROWD {
            tasks.spawn(hammer(lock.clone(), Arc::clone(&stop), Arc::clone(&turns)));
        }
        Self { stop, turns, tasks }
    }

    fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// How many turns each task has had.
    async fn disperse(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await
    }
}

async fn hammer(lock: Lock, stop: Arc<AtomicBool>, turns: Arc<AtomicU64>) -> u64 {
    let mut mine = 0;
    while !stop.load(Ordering::Relaxed) {
        let guard = lock.lock().await.expect("it is granted");
        tokio::task::yield_now().await;
        guard.unlock().await.expect("it was ours");
        turns.fetch_add(1, Ordering::Relaxed);
        mine += 1;
    }
    mine
}

fn report(who: &str, mut waits: Vec<Duration>) {
    waits.sort();
    let (middle, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("{who} waited {middle:?}, at the most {longest:?}");
    assert!(longest < SOON, "{who} waited {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_gets_its_turns_while_rust_hands_the_lock_around() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    let crowd = Crowd::gather(&client.lock("a"));
    let mut waits = Vec::new();
    for _ in 0..TURNS {
        let before = crowd.turns();
        while crowd.turns() == before {
            tokio::task::yield_now().await; // the crowd is at it
        }
        waits.push(java.ask("lock a").await.took);
        java.ask("unlock a").await;
    }
    let turns = crowd.disperse().await;
    println!("{turns:?} turns of Rust beside {TURNS} of Java");
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
    report("Java", waits);
    scene.nothing_is_eternal().await;
}

#[tokio::test]
async fn rust_gets_its_turns_while_threads_of_java_do_not_stop() {
    let Some(scene) = Scene::begin(USUAL).await else { return };
    let lock = scene.client().await.lock("a");
    let threads: Vec<_> = (0..CROWD).map(|n| scene.thread(&format!("t{n}"))).collect();
    for thread in &threads {
        thread.order("increment a counter 1000000").await;
    }
    scene.awaited_by("a", 1).await;
    let mut waits = Vec::new();
    for _ in 0..TURNS {
        let asked = Instant::now();
        let guard = lock.lock().await.unwrap();
        waits.push(asked.elapsed());
        guard.unlock().await.unwrap();
    }
    report("Rust", waits);
    let counted: u64 = scene.admin.cmd(&["GET", "counter"]).await;
    assert!(counted > 0, "nobody was in the way");
}
