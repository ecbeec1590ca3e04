//! The client of a worker, which is closed and replaced from time to time while its tasks are at work.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use parklock::{Client, Config, Error};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::common::clock;
use crate::pulse::patiently;
use crate::settings::{self, Topology};
use crate::worker::{Orders, record};

/// Longer than any response timeout of the run.
const CLOSING: Duration = Duration::from_secs(5);

/// How long every other client keeps a plain lock that nobody holds.
const IDLE: Duration = Duration::from_millis(400);

/// A client, and since when it has been closed: its guards are told so then.
#[derive(Debug)]
pub struct Seat {
    pub id: u64,
    pub client: Client,
    pub topology: Topology,
    /// It may keep what it has given back.
    pub keeps: bool,
    closed: OnceLock<u64>,
}

impl Seat {
    pub fn closed(&self) -> Option<u64> {
        self.closed.get().copied()
    }

    async fn close(&self) {
        let closed = *self.closed.get_or_init(clock::now);
        // A holder that is killed before it has looked cannot say that its claim ended now.
        record::line(&format!("z\t{}\t{closed}", self.id));
        if patiently(CLOSING, self.client.close()).await.is_none() {
            record::violation("close() did not come back");
        }
    }
}

#[derive(Debug)]
pub struct Desk {
    url: String,
    config: Config,
    topology: Topology,
    seat: Mutex<Option<Arc<Seat>>>,
}

impl Desk {
    pub fn new(orders: &Orders) -> Self {
        let config = settings::config(orders.topology, orders.namespace.as_deref());
        let (url, topology) = (orders.url.clone(), orders.topology);
        Self { url, config, topology, seat: Mutex::default() }
    }

    /// The client of the moment.
    pub fn seat(&self) -> Option<Arc<Seat>> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, seat: Option<Arc<Seat>>) -> Option<Arc<Seat>> {
        std::mem::replace(&mut *self.seat.lock().unwrap_or_else(PoisonError::into_inner), seat)
    }

    /// Connects, however long that takes; `false` if it was stopped first.
    pub async fn open(&self, stop: &CancellationToken) -> bool {
        let connected = stop.run_until_cancelled(self.connect()).await;
        let Some((client, keeps)) = connected else { return false };
        let (id, closed) = (record::next_id(), OnceLock::new());
        self.set(Some(Arc::new(Seat { id, client, topology: self.topology, keeps, closed })));
        true
    }

    /// Takes a new client first, and closes the old one while others still use it.
    pub async fn replace(&self, stop: &CancellationToken) {
        let old = self.seat();
        if self.open(stop).await
            && let Some(old) = old
        {
            old.close().await;
            record::reached("client closed at work");
        }
    }

    pub async fn close(&self) {
        if let Some(seat) = self.set(None) {
            seat.close().await;
        }
    }

    async fn connect(&self) -> (Client, bool) {
        // Redisson asks nobody to give up a lock.
        let may_keep = self.topology != Topology::Redisson;
        let keep = if may_keep && fastrand::bool() { IDLE } else { Duration::ZERO };
        loop {
            match Client::connect_with(&self.url, self.config.clone().keep(keep)).await {
                Ok(client) => return (client, !keep.is_zero()),
                Err(Error::Unavailable { .. }) => record::reached("connect: Unavailable"),
                Err(error) => record::violation(&format!("connect: {error:?}")),
            }
            sleep(Duration::from_millis(30)).await;
        }
    }
}
