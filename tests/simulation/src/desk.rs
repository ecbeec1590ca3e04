//! The client of a process, which may be closed and replaced while its callers are at work.

use std::sync::{Arc, Mutex, PoisonError};

use parklock::Client;
use tokio::time::{Instant, sleep};

use crate::board;
use crate::caller::Home;
use crate::clock::{self, MILLI};
use crate::plan::{millis, nanos};
use crate::wire::Dialling;

/// A client, by its number among all of the world's.
pub struct Seat {
    pub id: u64,
    pub client: Client,
}

/// The name of a seat's client in Redis: as a UUID of version 8, by which the scripts tell us from Redisson.
pub fn client_id(seat: u64) -> String {
    format!("{seat:08x}-0000-8000-8000-{seat:012x}")
}

/// The part of its name by which it is found again: a client that keeps locks changes another part.
pub fn mark_of(seat: u64) -> String {
    format!("-{seat:012x}")
}

pub struct Desk {
    pub home: Arc<Home>,
    dialling: Dialling,
    seat: Mutex<Option<Arc<Seat>>>,
}

impl Desk {
    pub fn new(home: Arc<Home>, dialling: Dialling) -> Self {
        Self { home, dialling, seat: Mutex::default() }
    }

    /// The client of the moment.
    pub fn seat(&self) -> Option<Arc<Seat>> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connects, however long that takes.
    pub async fn open(&self) -> Arc<Seat> {
        self.take_over().await.0
    }

    /// Same as [`open`](Self::open). Also returns the client whose place the new one has taken.
    async fn take_over(&self) -> (Arc<Seat>, Option<Arc<Seat>>) {
        loop {
            let id = board::with(|board| board.next_id());
            let config = self.home.setup().config.clone();
            let (dial, url) = (self.dialling.dial(), self.home.plan.topology.url());
            let connecting = Client::connect_over(dial, &url, Some(client_id(id)), config);
            match connecting.await {
                Ok(client) => {
                    board::with(|board| {
                        board.seats.insert(id, self.home.process);
                        if self.home.setup().session.is_some() {
                            board.unheard.insert(id, clock::now());
                        }
                    });
                    let seat = Arc::new(Seat { id, client });
                    let mut place = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
                    let before = place.replace(Arc::clone(&seat));
                    return (seat, before);
                }
                Err(error) => {
                    let calm = board::with(|board| board.calm_since(clock::now()));
                    board::reached("connecting failed");
                    if calm {
                        board::wrong("an error without a cause", format!("connecting: {error:?}"));
                    }
                }
            }
            sleep(millis(30)).await;
        }
    }

    /// Takes a new client first, and closes the old one while others still use it.
    pub async fn replace(&self) {
        // Another one may have taken the place while this one connected.
        if let Some(old) = self.take_over().await.1 {
            self.close(&old).await;
            board::reached("client closed at work");
        }
    }

    /// Closes a client, and holds it to what `close` promises.
    pub async fn close(&self, seat: &Seat) {
        let (process, started) = (self.home.process, Instant::now());
        let paused = || board::with(|board| board.paused.get(&process).copied().unwrap_or(0));
        let before = paused();
        board::with(|board| board.close(seat.id));
        seat.client.close().await;
        let took = nanos(started.elapsed()).saturating_sub(paused() - before);
        let limit = nanos(self.home.setup().response) + 20 * MILLI;
        if took > limit {
            let what = format!("it took {} ms of {}", took / MILLI, limit / MILLI);
            board::wrong("close outlived its limit", what);
        }
        board::with(|board| board.closed(process, seat.id));
    }

    pub async fn leave(&self) {
        let seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(seat) = seat {
            self.close(&seat).await;
        }
    }
}
