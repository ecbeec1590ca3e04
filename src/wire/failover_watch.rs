//! The failover watch: keeps the address of a primary up to date while a connection lives. Each new connection asks for
//! the address itself. `sentinels.rs` decides which sentinel to believe.
//!
//! It listens to one sentinel. `SENTINEL FAILOVER` makes another server the primary, while the old one calls itself
//! primary for ten seconds more and keeps answering: only the message reports the change in time. A message only makes
//! the watch ask. The watch also asks now and then without a message, since messages get lost.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value, cmd};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::wire::address::Hello;
use crate::wire::destination::Destination;
use crate::wire::fault::Fault;
use crate::wire::link::{Duty, Generations, Link, LinkTask};
use crate::wire::sentinels::Sentinels;

/// When to ask if nothing happens, plus or minus a third.
const AT_LEAST: Duration = Duration::from_secs(30);

/// When to ask once more after a message: sentinels do not all learn of a failover at the same moment.
const AGAIN: Duration = Duration::from_secs(1);

/// The pause between two questions.
const APART: Duration = Duration::from_millis(100);

/// Every sentinel sends this when it has heard of a failover.
const SWITCHED: &str = "+switch-master";

/// The sentinel that leads a failover sends this when it knows the new primary. It sends the other message only when
/// all replicas follow the new primary, which may take minutes.
const PROMOTED: &str = "+failover-state-reconf-slaves";

/// The task that keeps the address up to date.
pub(crate) struct FailoverWatch {
    sentinels: Arc<Sentinels>,
    task: LinkTask<Ear>,
    link: Link,
}

impl FailoverWatch {
    pub(crate) fn new(sentinels: &Arc<Sentinels>) -> Self {
        let ear = Arc::new(Ear(Arc::clone(sentinels)));
        let destination = Destination::Sentinel(Arc::clone(sentinels));
        let (task, link) = LinkTask::new(destination, ear, Generations::default());
        Self { sentinels: Arc::clone(sentinels), task, link }
    }

    /// Keeps the address up to date until `stop`. Links to a former primary notice by themselves that the address has
    /// changed.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { sentinels, task, link } = self;
        let listening = task.run(stop.clone());
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
        // If there is no address, the links that need it report why.
        let _ = sentinels.primary_now().await;
        if sentinels.is_behind()
            && let Ok(live) = link.live()
        {
            link.suspect(live.generation);
        }
        sleep(APART).await;
    }
}

/// The duty of the link to a sentinel.
struct Ear(Arc<Sentinels>);

impl Duty for Ear {
    const NAME: &'static str = "sentinel";

    async fn greet(&self, conn: &mut MultiplexedConnection, _: u64) -> Result<(), Fault> {
        let hello = conn.send_packed_command(&cmd("HELLO")).await.map_err(Fault::connecting)?;
        Hello::read(Some(&hello))?.is_sentinel()?;
        conn.subscribe(SWITCHED).await.map_err(Fault::connecting)?;
        match conn.subscribe(PROMOTED).await.map_err(Fault::answering) {
            // A user that may not hear of it goes without it.
            Ok(()) | Err(Fault::Permission(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    async fn heartbeat(&self, conn: &mut MultiplexedConnection) -> Result<(), Fault> {
        conn.send_packed_command(&cmd("PING")).await.map(drop).map_err(Fault::answering)
    }

    /// Earlier messages were missed.
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
        // "<service> <old address> <new address>", or "master <service> <old address>".
        let mut words = message.split(|byte| *byte == b' ').take(2);
        if words.any(|word| word == self.0.service().as_bytes()) {
            self.0.doubted.notify_one();
        }
    }

    fn down(&self) {}
}
