//! The ways in which a test waits for what happens in the background, and what it may say about time.
//!
//! A busy machine runs a test's process or its servers only now and then. Time in which they do not run says nothing about the
//! library. So every limit here is counted in ticks beside the test, and a tick that comes late counts as little more than one
//! that comes in time: a process that stands still, or gets a tenth of a processor, has as many ticks left as before.

use std::fmt::Arguments;
use std::io::Write;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// The pause between two looks.
const STEP: Duration = Duration::from_millis(3);

/// The pause between two ticks, and what one counts as at most.
const TICK: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_millis(15);

/// A test that does not run for so long in all, and for an eighth of its time, may fail for that reason alone.
const A_STALL: Duration = Duration::from_millis(500);

/// The same if it does not run for so long at a time, however long it takes: a short lease may be over.
const A_LONG_GAP: Duration = Duration::from_secs(1);

/// How often a test is judged before it is left out.
const TRIES: usize = 5;

/// Looks again and again until it `holds`; panics with `what` when it does not within that time.
pub async fn eventually(within: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = timeout(within, async {
        while !holds().await {
            sleep(STEP).await;
        }
    });
    assert!(held.await.is_ok(), "not within {within:?}: {what}");
}

/// What was waited for has not come within its limit.
#[derive(Debug, PartialEq, Eq)]
pub struct Elapsed;

/// As that of Tokio, but the limit does not run while the test does not.
pub async fn timeout<F: IntoFuture>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    // This polls the future only when it has been woken: some tests are about callers that are not polled.
    let mut only = FuturesUnordered::from_iter([future.into_future()]);
    tokio::select! {
        biased;
        Some(output) = only.next() => Ok(output),
        () = is_over(limit) => Err(Elapsed),
    }
}

async fn is_over(limit: Duration) {
    let mut left = limit;
    while !left.is_zero() {
        let began = Instant::now();
        sleep(left.min(TICK)).await;
        left = left.saturating_sub(began.elapsed().min(MOST));
    }
}

/// Ticks beside a test, and measures for how long the test did not run.
#[derive(Debug)]
pub struct Watch {
    began: Instant,
    ticks: Arc<Mutex<Ticks>>,
    /// The task that ticks. A thread ends with the watch.
    ticking: Option<AbortHandle>,
}

#[derive(Debug)]
struct Ticks {
    last: Instant,
    stalled: Duration,
    longest: Duration,
}

impl Ticks {
    fn tick(&mut self) {
        *self = Self { stalled: self.stalled(), longest: self.longest(), last: Instant::now() };
    }

    /// By how much the tick is late that has not come yet.
    fn gap(&self) -> Duration {
        self.last.elapsed().saturating_sub(MOST)
    }

    fn stalled(&self) -> Duration {
        self.stalled + self.gap()
    }

    fn longest(&self) -> Duration {
        self.longest.max(self.gap())
    }
}

impl Watch {
    /// Ticks on the runtime of the test. What keeps that busy counts as a stall, even if it is the test itself.
    pub fn start() -> Self {
        let mut watch = Self::new();
        let ticks = Arc::clone(&watch.ticks);
        let ticking = tokio::spawn(async move {
            loop {
                sleep(TICK).await;
                locked(&ticks).tick();
            }
        });
        watch.ticking = Some(ticking.abort_handle());
        watch
    }

    /// Ticks on a thread of its own: for how long the machine ran nothing of this process.
    pub fn apart() -> Self {
        let watch = Self::new();
        let ticks = Arc::downgrade(&watch.ticks);
        thread::spawn(move || {
            while let Some(ticks) = ticks.upgrade() {
                locked(&ticks).tick();
                drop(ticks);
                thread::sleep(TICK);
            }
        });
        watch
    }

    fn new() -> Self {
        let began = Instant::now();
        let (stalled, longest) = (Duration::ZERO, Duration::ZERO);
        let ticks = Arc::new(Mutex::new(Ticks { last: began, stalled, longest }));
        Self { began, ticks, ticking: None }
    }

    /// How long the test did not run since this began.
    pub fn stalled(&self) -> Duration {
        locked(&self.ticks).stalled()
    }

    /// The longest of these stalls.
    fn longest(&self) -> Duration {
        locked(&self.ticks).longest()
    }

    /// The time since this began, with all stalls: for what may not come too early.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// How long the test has run since this began: for what may not come too late.
    pub fn passed(&self) -> Duration {
        let stalled = self.stalled();
        self.began.elapsed().saturating_sub(stalled)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ticking.iter().for_each(AbortHandle::abort);
    }
}

fn locked(ticks: &Mutex<Ticks>) -> MutexGuard<'_, Ticks> {
    ticks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test of which a failure says nothing if the test did not run for [`A_STALL`] in all, or for [`A_LONG_GAP`] at a time: a lease
/// may have run out meanwhile, or an answer may have come too late. Then this runs it again. If the machine never runs it, the test is not judged.
pub async fn judged(test: impl AsyncFn()) {
    judge(Watch::start, test).await;
}

/// The same, for a test that keeps its runtime busy: the ticks of [`judged`] would be late for that alone, and the test would never be
/// judged.
pub async fn judged_beside_its_load(test: impl AsyncFn()) {
    judge(Watch::apart, test).await;
}

async fn judge(start: impl Fn() -> Watch, test: impl AsyncFn()) {
    for _ in 0..TRIES {
        let watch = start();
        let Err(panic) = AssertUnwindSafe(test()).catch_unwind().await else { return };
        let (stalled, longest) = (watch.stalled(), watch.longest());
        if stalled < A_STALL.max(watch.elapsed() / 8) && longest < A_LONG_GAP {
            resume_unwind(panic);
        }
        tell(format_args!(
            "judged again: of {:?}, it did not run for {stalled:?}, of that {longest:?} at a time",
            watch.elapsed()
        ));
    }
    tell(format_args!("LEFT OUT: the machine did not run it"));
}

/// Past the runner of the tests, which keeps what a passing test prints.
fn tell(what: Arguments<'_>) {
    let test = thread::current();
    let _ = writeln!(std::io::stderr(), "{}: {what}", test.name().unwrap_or("a test"));
}
