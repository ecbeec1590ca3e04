//! Many clients on one name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::sync::Barrier;
use tokio::task::{JoinSet, yield_now};

use super::Plan;
use crate::contenders::{self, Contender, Terms};
use crate::report::Column;
use crate::rows::Row;

pub const COLUMNS: [Column; 5] = [
    Column::Rate("turns/s"),
    Column::Time("mean wait"),
    Column::Time("longest wait"),
    Column::Count("least turns"),
    Column::Count("most turns"),
];

/// What one client came to.
#[derive(Debug, Default)]
struct Share {
    turns: u64,
    waited: Duration,
    longest: Duration,
}

/// What all clients share.
#[derive(Debug)]
struct Room {
    start: Barrier,
    timed: Duration,
    /// Read and written back by two steps: if two are inside at once, a turn gets lost.
    counter: AtomicU64,
}

pub async fn run(row: Row, terms: Terms<'_>, plan: &Plan) -> Result<Vec<Option<f64>>> {
    let mut contenders = Vec::new();
    for _ in 0..plan.clients {
        contenders.push(contenders::open(row, terms).await?);
    }
    play(contenders, plan.timed).await
}

async fn play(contenders: Vec<Box<dyn Contender>>, timed: Duration) -> Result<Vec<Option<f64>>> {
    let (start, counter) = (Barrier::new(contenders.len()), AtomicU64::new(0));
    let room = Arc::new(Room { start, timed, counter });
    let mut clients = JoinSet::new();
    for contender in contenders {
        clients.spawn(turns(contender, Arc::clone(&room)));
    }
    let mut shares = Vec::new();
    while let Some(done) = clients.join_next().await {
        shares.push(done??);
    }
    sum_up(&shares, &room)
}

async fn turns(mut contender: Box<dyn Contender>, room: Arc<Room>) -> Result<Share> {
    let mut share = Share::default();
    room.start.wait().await;
    let end = Instant::now() + room.timed;
    while Instant::now() < end {
        let asked = Instant::now();
        contender.lock().await?;
        let waited = asked.elapsed();
        let number = room.counter.load(Ordering::Relaxed);
        // Every so often the others get a chance to come in, if the lock lets them.
        if number.is_multiple_of(16) {
            yield_now().await;
        }
        room.counter.store(number + 1, Ordering::Relaxed);
        contender.unlock().await?;
        share.turns += 1;
        share.waited += waited;
        share.longest = share.longest.max(waited);
    }
    Ok(share)
}

fn sum_up(shares: &[Share], room: &Room) -> Result<Vec<Option<f64>>> {
    let turns: u64 = shares.iter().map(|share| share.turns).sum();
    let counted = room.counter.load(Ordering::Relaxed);
    ensure!(turns == counted, "NO EXCLUSION: {turns} turns, {counted} counted");
    let waited: Duration = shares.iter().map(|share| share.waited).sum();
    let longest = shares.iter().map(|share| share.longest).max();
    let count = |turns: Option<u64>| turns.map(|turns| turns as f64);
    Ok(vec![
        // A client that is still waiting at the end has its turn later: it counts as one of this time.
        Some(turns as f64 / room.timed.as_secs_f64()),
        Some(waited.as_secs_f64() / turns.max(1) as f64),
        longest.map(|longest| longest.as_secs_f64()),
        count(shares.iter().map(|share| share.turns).min()),
        count(shares.iter().map(|share| share.turns).max()),
    ])
}

#[cfg(test)]
mod tests {
    use tokio::sync::{OwnedSemaphorePermit, Semaphore};

    use super::*;
    use crate::contenders::Pending;

    /// As many of these are in at once as the semaphore has permits.
    struct Permit(Arc<Semaphore>, Option<OwnedSemaphorePermit>);

    impl Contender for Permit {
        fn lock(&mut self) -> Pending<'_, ()> {
            Box::pin(async {
                self.1 = Some(Arc::clone(&self.0).acquire_owned().await?);
                Ok(())
            })
        }

        fn unlock(&mut self) -> Pending<'_, ()> {
            self.1 = None;
            Box::pin(async { Ok(()) })
        }
    }

    async fn four_with(permits: usize) -> Result<Vec<Option<f64>>> {
        let semaphore = Arc::new(Semaphore::new(permits));
        let contender = || Box::new(Permit(Arc::clone(&semaphore), None)) as Box<dyn Contender>;
        play((0..4).map(|_| contender()).collect(), Duration::from_millis(20)).await
    }

    #[tokio::test]
    async fn a_lock_that_lets_two_in_has_no_numbers() {
        let error = four_with(2).await.expect_err("two are in at once").to_string();
        assert!(error.starts_with("NO EXCLUSION"), "{error}");
    }

    #[tokio::test]
    async fn a_lock_that_excludes_has_them() {
        assert_eq!(four_with(1).await.expect("one at a time").len(), COLUMNS.len());
    }
}
