//! One client process: a runtime whose clock the world turns.
//!
//! 1. Between two steps nothing of it runs; within a step its clock stands still and it runs until nothing is ready.
//! 2. A pause is steps that do not happen, and then one leap.
//! 3. A crash is a runtime that is dropped after its connections: no `Drop` gets a last word out.

use std::time::Duration;

use tokio::runtime::{Builder, RngSeed, Runtime};
use tokio::task::yield_now;
use tokio::time::advance;

use crate::clock;

/// The speed of a clock that does not drift, in parts in a million.
pub const TRUE: u64 = 1_000_000;

pub struct Process {
    runtime: Option<Runtime>,
    born: u64,
    /// How fast its clock goes, in parts of a million.
    pub rate: u64,
    /// Its own clock, since it was born.
    local: u64,
    /// When it was last stepped.
    pub stepped: u64,
    /// The state of its thread's random numbers: all processes of the world share one thread.
    random: u64,
    pub paused_until: u64,
}

impl Process {
    pub fn new(seed: u64, rate: u64) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()))
            .build()
            .expect("a runtime takes no more than memory");
        let born = clock::now();
        let (local, random) = (0, seed ^ 0x9e37_79b9_7f4a_7c15);
        Self { runtime: Some(runtime), born, rate, local, stepped: born, random, paused_until: 0 }
    }

    pub fn is_alive(&self) -> bool {
        self.runtime.is_some()
    }

    pub fn is_paused(&self) -> bool {
        clock::now() < self.paused_until
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            drop(runtime.spawn(task));
        }
    }

    pub fn tasks(&self) -> usize {
        self.runtime.as_ref().map_or(0, |runtime| runtime.metrics().num_alive_tasks())
    }

    /// Runs until nothing is ready, and then lets `look` see it at its own time.
    pub fn step(&mut self, look: impl FnOnce()) {
        let Some(runtime) = &self.runtime else { return };
        let local = self.local_time(clock::now());
        let ahead = Duration::from_nanos(local - self.local);
        (self.local, self.stepped) = (local, clock::now());
        fastrand::seed(self.random);
        let metrics = runtime.metrics();
        runtime.block_on(async {
            advance(ahead).await;
            // `advance` lets the timers that are due fire; a yield runs what is ready, and fires what has become due.
            while metrics.worker_local_queue_depth(0) + metrics.global_queue_depth() > 0 {
                yield_now().await;
            }
            look();
        });
        self.random = fastrand::get_seed();
    }

    fn local_time(&self, now: u64) -> u64 {
        let since = u128::from(now - self.born);
        (since * u128::from(self.rate) / u128::from(TRUE)) as u64
    }

    /// Ends it as `kill -9` does. Its connections must be dead by now.
    pub fn crash(&mut self) {
        self.runtime = None;
    }
}

/// So much time of a clock that goes this fast, in the world's.
pub fn in_world(local: Duration, rate: u64) -> u64 {
    (local.as_nanos() * u128::from(TRUE) / u128::from(rate)) as u64
}
