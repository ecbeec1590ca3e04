//! The client of a worker, which is closed and replaced from time to time while its tasks are at work.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use parklock::{Client, Config, Error};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::common::clock;
use crate::judge::operation;
use crate::pulse::patiently;
use crate::settings::{self, GRACE, LEASE, SESSION_LEASE, Topology};
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
    /// What it holds ends with it.
    pub in_session: bool,
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
    worker: String,
    url: String,
    config: Config,
    topology: Topology,
    seat: Mutex<Option<Arc<Seat>>>,
}

impl Desk {
    pub fn new(orders: &Orders) -> Self {
        let config = settings::config(orders.topology, orders.namespace.as_deref());
        let (worker, url) = (orders.name.clone(), orders.url.clone());
        Self { worker, url, config, topology: orders.topology, seat: Mutex::default() }
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
        let id = record::next_id();
        // Redisson asks nobody to give up a lock.
        let keeps = self.topology != Topology::Redisson && fastrand::bool();
        let in_session = self.topology == Topology::Sessions && fastrand::bool();
        let config = self.config.clone().keep(if keeps { IDLE } else { Duration::ZERO });
        // Its connections have this name.
        let name = || operation::process(&self.worker, id);
        let config = match in_session {
            // Its calls give up as soon as those of the others when no server answers.
            true => {
                let config = config.watchdog_timeout(SESSION_LEASE).ride_out(LEASE);
                config.session(GRACE).describe(name())
            }
            false => config,
        };
        let connected = stop.run_until_cancelled(self.connect(config)).await;
        let Some(client) = connected else { return false };
        let (topology, closed) = (self.topology, OnceLock::new());
        self.set(Some(Arc::new(Seat { id, client, topology, keeps, in_session, closed })));
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

    async fn connect(&self, config: Config) -> Client {
        loop {
            match Client::connect_with(&self.url, config.clone()).await {
                Ok(client) => return client,
                Err(Error::Unavailable { .. }) => record::reached("connect: Unavailable"),
                Err(error) => record::violation(&format!("connect: {error:?}")),
            }
            sleep(Duration::from_millis(30)).await;
        }
    }
}
