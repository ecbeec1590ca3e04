//! W6 and W11 in a worker: callers of one client that wait for what another process holds, and then get through.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout_at};

use super::Wire;
use super::protocol::{Herd, Order, Reply, Through, name};
use super::room::Room;
use crate::measure::clock::now_ns;
use crate::variants::{Contender, Kind};

/// One in so many callers lets others run while it is inside: so a caller too many shows.
const OPENED_EACH: usize = 64;

pub async fn run<C: Contender>(job: Herd, wire: &mut Wire) -> Result<()> {
    let client = C::connect(&job.setup).await?;
    wire.ready().await?;
    wire.go().await?;
    let mut herd = JoinSet::new();
    let rooms = gather(&client, &job, &mut herd).await;
    wire.say(&Reply::Parked).await?;
    match wire.next().await? {
        Some(Order::Finish { limit_ms }) => {
            let end = Instant::now() + Duration::from_millis(limit_ms);
            let mut through = through(&mut herd, end).await?;
            herd.shutdown().await;
            through.overfull = rooms.iter().map(|room| room.overfull()).sum();
            wire.say(&Reply::Through(through)).await
        }
        other => bail!("told a herd {other:?}"),
    }
}

/// One caller's turn.
struct Turn {
    /// Which of the callers it is, and which of them came in before it.
    number: usize,
    place: usize,
    came_in_ns: u64,
    gave_back_ns: u64,
}

/// Every caller asks before the next one is made: a future that has been polled once stands in its place.
async fn gather<C: Contender>(
    client: &C,
    job: &Herd,
    herd: &mut JoinSet<Result<Turn>>,
) -> Vec<Arc<Room>> {
    let came_in = Arc::new(AtomicUsize::new(0));
    let rooms: Vec<_> = (0..job.names).map(|_| Arc::new(Room::of(&job.kinds))).collect();
    for number in 0..job.callers {
        let kind = job.kinds[number % job.kinds.len()];
        let caller = Caller {
            client: client.clone(),
            handle: client.handle(kind, &name(number % job.names)),
            kind,
            number,
            room: rooms[number % job.names].clone(),
            came_in: came_in.clone(),
        };
        let mut turn = Box::pin(caller.turn());
        let at_once = poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await;
        match at_once {
            Poll::Pending => herd.spawn(turn),
            Poll::Ready(done) => herd.spawn(async move { done }),
        };
        if number.is_multiple_of(OPENED_EACH) {
            yield_now().await;
        }
    }
    rooms
}

struct Caller<C: Contender> {
    client: C,
    handle: C::Handle,
    kind: Kind,
    number: usize,
    room: Arc<Room>,
    came_in: Arc<AtomicUsize>,
}

impl<C: Contender> Caller<C> {
    /// What lies in memory while it waits is measured, so that it is the wait and little else: an `async fn` would keep
    /// its arguments twice, and what comes after the wait is in a box that is made then.
    #[expect(clippy::manual_async_fn, reason = "it would keep its arguments twice")]
    fn turn(self) -> impl Future<Output = Result<Turn>> + Send {
        async move {
            let guard = self.client.acquire(&self.handle).await?;
            Box::pin(self.inside(guard)).await
        }
    }

    async fn inside(self, guard: C::Guard) -> Result<Turn> {
        self.room.enter(self.kind);
        let place = self.came_in.fetch_add(1, Relaxed);
        let came_in_ns = now_ns();
        if self.number.is_multiple_of(OPENED_EACH) {
            yield_now().await;
        }
        self.room.leave(self.kind);
        self.client.release(guard).await?;
        Ok(Turn { number: self.number, place, came_in_ns, gave_back_ns: now_ns() })
    }
}

/// Until all had their turn, or the time is over.
async fn through(herd: &mut JoinSet<Result<Turn>>, end: Instant) -> Result<Through> {
    let mut turns = Vec::with_capacity(herd.len());
    let mut through = Through::default();
    while let Ok(Some(ended)) = timeout_at(end, herd.join_next()).await {
        match ended? {
            Ok(turn) => turns.push(turn),
            Err(error) => {
                through.failed += 1;
                through.error.get_or_insert(format!("{error:#}"));
            }
        }
    }
    turns.sort_unstable_by_key(|turn| turn.place);
    through.served = turns.len();
    through.first_ns = turns.iter().map(|turn| turn.came_in_ns).min().unwrap_or(0);
    through.last_ns = turns.iter().map(|turn| turn.gave_back_ns).max().unwrap_or(0);
    through.overtaken = overtaken(turns.iter().map(|turn| turn.number));
    Ok(through)
}

/// How many came after one with a greater number.
fn overtaken(numbers: impl Iterator<Item = usize>) -> usize {
    let mut greatest = 0;
    let mut count = 0;
    for number in numbers {
        count += usize::from(number < greatest);
        greatest = greatest.max(number);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_comes_after_a_later_one_was_overtaken() {
        assert_eq!(overtaken([0, 1, 2, 3].into_iter()), 0);
        assert_eq!(overtaken([0, 3, 1, 2].into_iter()), 2);
        assert_eq!(overtaken([].into_iter()), 0);
    }
}
