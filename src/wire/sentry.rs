//! The sentry: keeps the address of a primary up to date, between the connections that ask for it themselves.
//!
//! It listens to one sentinel. `SENTINEL FAILOVER` makes another server the primary while the old one, which calls itself
//! primary for ten seconds more, goes on answering: only the message says so in time. A message only makes it
//! ask, and so does time, since messages get lost.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value, cmd};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::wire::fault::Fault;
use crate::wire::hello::Hello;
use crate::wire::link::{Duty, Generations, Keeper, Link};
use crate::wire::place::Place;
use crate::wire::sentinels::Sentinels;

/// When to ask if nothing happens, give or take a third.
const AT_LEAST: Duration = Duration::from_secs(30);

/// When to ask once more after a message: not all sentinels hear of a failover in the same moment.
const AGAIN: Duration = Duration::from_secs(1);

/// Between two questions.
const APART: Duration = Duration::from_millis(100);

const SWITCHED: &str = "+switch-master";

/// The task that keeps the address.
pub(crate) struct Sentry {
    sentinels: Arc<Sentinels>,
    keeper: Keeper<Ear>,
    link: Link,
}

impl Sentry {
    pub(crate) fn new(sentinels: &Arc<Sentinels>) -> Self {
        let ear = Arc::new(Ear(Arc::clone(sentinels)));
        let place = Place::Sentinel(Arc::clone(sentinels));
        let (keeper, link) = Keeper::new(place, ear, Generations::default());
        Self { sentinels: Arc::clone(sentinels), keeper, link }
    }

    /// Keeps the address until `stop`. The links that lead elsewhere find out by themselves.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { sentinels, keeper, link } = self;
        let listening = keeper.run(stop.clone());
        tokio::join!(listening, stop.run_until_cancelled(watch(&sentinels, &link)));
    }
}

async fn watch(sentinels: &Sentinels, link: &Link) {
    let mut next = AT_LEAST;
    loop {
        next = tokio::select! {
            () = sentinels.doubted.notified() => AGAIN,
            () = sleep(next.mul_f64(2.0 / 3.0 + fastrand::f64() * 2.0 / 3.0)) => AT_LEAST,
        };
        // Why there is none, the links say that need it.
        let _ = sentinels.primary_now().await;
        if sentinels.is_behind()
            && let Ok(live) = link.live()
        {
            link.suspect(live.generation);
        }
        sleep(APART).await;
    }
}

/// What is done on the link to a sentinel.
struct Ear(Arc<Sentinels>);

impl Duty for Ear {
    const NAME: &'static str = "sentinel";

    async fn greet(&self, conn: &mut MultiplexedConnection, _: u64) -> Result<(), Fault> {
        let hello = conn.send_packed_command(&cmd("HELLO")).await.map_err(Fault::connecting)?;
        Hello::read(Some(&hello))?.is_sentinel()?;
        conn.subscribe(SWITCHED).await.map_err(Fault::connecting)
    }

    async fn heartbeat(&self, conn: &mut MultiplexedConnection) -> Result<(), Fault> {
        conn.send_packed_command(&cmd("PING")).await.map(drop).map_err(Fault::answering)
    }

    /// What was said before nobody has heard.
    fn up(&self, _: u64) {
        self.0.doubted.notify_one();
    }

    async fn work(&self, _: MultiplexedConnection) -> Fault {
        std::future::pending().await
    }

    fn hear(&self, _: u64, push: PushInfo) {
        let (PushKind::Message, [_, Value::BulkString(message)]) = (push.kind, &*push.data) else {
            return;
        };
        let service = message.split(|byte| *byte == b' ').next().unwrap_or_default();
        if service == self.0.service().as_bytes() {
            self.0.doubted.notify_one();
        }
    }

    fn down(&self) {}
}
