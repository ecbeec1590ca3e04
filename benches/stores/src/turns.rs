//! The clients of one process take turns on one name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::Barrier;
use tokio::task::{JoinSet, yield_now};

use crate::contenders::Contender;
use crate::counter::Counter;
use crate::share::Share;

/// What all clients share.
#[derive(Debug)]
struct Room {
    start: Barrier,
    timed: Duration,
    counter: Counter,
}

/// For this long. A client that is still waiting at the end has its turn later: it counts as one of this time.
pub async fn take(
    contenders: Vec<Box<dyn Contender>>,
    counter: Counter,
    timed: Duration,
) -> Result<Vec<Share>> {
    let room = Arc::new(Room { start: Barrier::new(contenders.len()), timed, counter });
    let mut clients = JoinSet::new();
    for contender in contenders {
        clients.spawn(turns(contender, Arc::clone(&room)));
    }
    let mut shares = Vec::new();
    while let Some(done) = clients.join_next().await {
        shares.push(done??);
    }
    Ok(shares)
}

async fn turns(mut contender: Box<dyn Contender>, room: Arc<Room>) -> Result<Share> {
    let mut share = Share::default();
    room.start.wait().await;
    let end = Instant::now() + room.timed;
    while Instant::now() < end {
        let asked = Instant::now();
        contender.lock().await?;
        let waited = asked.elapsed();
        let number = room.counter.read()?;
        // Every so often the others get a chance to come in, if the lock lets them.
        if number.is_multiple_of(16) {
            yield_now().await;
        }
        room.counter.write(number + 1)?;
        contender.unlock().await?;
        share.add(waited);
    }
    Ok(share)
}
