//! The path of the scripts to the servers: for each lock, the connection to its server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::config::Config;
use crate::error::Error;
use crate::keys::Keys;
use crate::kinds::Kind;
use crate::wire::cluster::{Cluster, Servers};
use crate::wire::connection::{CommonArgs, Connection, Way};
use crate::wire::destination::Destination;
use crate::wire::fault::Fault;
use crate::wire::link::Link;
use crate::wire::node::Node;
use crate::wire::shard::{CommandDuty, Quorum, ServerClock, Shard, ShardTasks, Shortage};
use crate::wire::tracking::OnChange;

/// How often a caller looks whether a node has its slot by now. The guide limits how often it asks.
const LOOKS_APART: Duration = Duration::from_millis(500);

/// The path of all scripts to the servers.
#[derive(Clone)]
pub(crate) struct Commands {
    pub(super) servers: Servers,
    common: Arc<CommonArgs>,
    changes: watch::Receiver<()>,
}

impl Commands {
    /// All locks lie on one server.
    pub(crate) fn new(
        destination: Destination,
        common: CommonArgs,
        config: &Config,
        on_change: OnChange,
    ) -> (Self, ShardTasks) {
        let (changes, seen) = watch::channel(());
        let (expected, lost) = (destination.expected(), Arc::<Notify>::default());
        let clock = ServerClock::default();
        let session = common.session.clone();
        let duty =
            CommandDuty::new(common.layout, clock, expected, changes, lost, on_change, session);
        let (shard, task) = Shard::new((None, destination), duty, Quorum::of(config));
        let servers = Servers::One(Arc::new(shard));
        (Self { servers, common: Arc::new(common), changes: seen }, task)
    }

    /// The locks are in the slots of a cluster.
    pub(crate) fn in_cluster(cluster: Arc<Cluster>, common: CommonArgs) -> Self {
        let changes = cluster.changes.subscribe();
        Self { servers: Servers::Cluster(cluster), common: Arc::new(common), changes }
    }

    /// How many locks, at most this many, one script may handle: in a cluster, the next lock may be at another server.
    pub(crate) fn together(&self, most: usize) -> usize {
        match self.servers {
            Servers::One(_) => most,
            Servers::Cluster(_) => 1,
        }
    }

    /// Whether acquires do not gather, and each release goes alone. In a cluster, the next lock may be at another server.
    /// With acknowledgements, acquires share a pipe in any case (`acks.rs`), and releases take two different links.
    pub(crate) fn is_scattered(&self) -> bool {
        match &self.servers {
            Servers::One(shard) => shard.acks.is_some(),
            Servers::Cluster(_) => true,
        }
    }

    /// The connection for requests about this lock, or why there is none.
    pub(crate) fn connection(&self, keys: &Keys) -> Result<Connection<'_>, Fault> {
        self.connection_by(Way::Plain, keys)
    }

    /// Same as [`connection`](Self::connection), but if replicas have to acknowledge, for requests that count only when
    /// replicas have their writes. A caller that passes a latch holds nothing that could be lost.
    pub(crate) fn acknowledged(&self, keys: &Keys) -> Result<Connection<'_>, Fault> {
        self.connection_by(Way::of(keys, true), keys)
    }

    /// Same as [`acknowledged`](Self::acknowledged), for changes that count although nobody holds them: an order to a
    /// latch, too.
    pub(crate) fn changing(&self, keys: &Keys) -> Result<Connection<'_>, Fault> {
        self.connection_by(Way::Acks { waits: true }, keys)
    }

    /// The number of the primary that acquires of this lock go to. `None`: not known yet.
    pub(crate) fn primary(&self, keys: &Keys) -> Option<u64> {
        let shard = self.servers.shard(keys).ok()?;
        Way::of(keys, true).reign(&shard).number()
    }

    /// Same as [`connection`](Self::connection), for requests that have to run after those that were
    /// [`acknowledged`](Self::acknowledged), and that wait for no replica.
    pub(crate) fn behind_acknowledged(&self, keys: &Keys) -> Result<Connection<'_>, Fault> {
        self.connection_by(Way::of(keys, false), keys)
    }

    fn connection_by(&self, way: Way, keys: &Keys) -> Result<Connection<'_>, Fault> {
        Connection::new(self.servers.shard(keys)?, way, &self.servers, &self.common)
    }

    /// Ends the session of this client, which holds nothing and never will again.
    pub(crate) async fn end_session(&self) {
        if let (Some(session), Servers::One(shard)) = (&self.common.session, &self.servers)
            && let Ok(live) = shard.link.live()
        {
            session.ends(&live.socket).await;
        }
    }

    /// Since when too few replicas of this lock's server acknowledge, if they do not.
    pub(crate) fn shortage(&self, keys: &Keys) -> Option<Shortage> {
        self.servers.shard(keys).ok()?.acks.as_ref()?.shortage()
    }

    /// Records a number that the server of this lock has granted. Returns whether it can be the number of a grant: it is not far
    /// ahead of the server's clock.
    pub(crate) fn granted(&self, keys: &Keys, number: u64) -> bool {
        let shard = self.servers.shard(keys);
        shard.is_ok_and(|shard| shard.reign.clock.granted(number, Instant::now()))
    }

    /// Whether the server tells this client when the key of this lock's holder changes.
    pub(crate) fn tracks(&self, keys: &Keys) -> bool {
        keys.row.is_tracked() && self.servers.shard(keys).is_ok_and(|shard| shard.tracking.is_on())
    }

    /// The node of a cluster that has this lock, if it is known.
    pub(crate) fn node(&self, keys: &Keys) -> Option<Node> {
        self.servers.shard(keys).ok()?.node.clone()
    }

    /// Whether this node of a cluster, or the only server, is connected.
    pub(crate) fn is_connected(&self, node: Option<&Node>) -> bool {
        match (&self.servers, node) {
            (Servers::One(shard), None) => shard.links().all(|link| link.live().is_ok()),
            (Servers::Cluster(cluster), Some(node)) => {
                cluster.links().iter().any(|(named, socket)| named == node && socket.is_some())
            }
            _ => false,
        }
    }

    /// Waits until the client has tried to connect to the server of this lock. The client connects to a server of a
    /// cluster when it first needs it.
    pub(crate) async fn tried(&self, keys: &Keys) {
        let Servers::Cluster(_) = &self.servers else { return };
        let Ok(shard) = self.servers.shard(keys) else { return };
        for link in shard.links() {
            link.tried().await;
        }
    }

    /// Waits until all connections to the server of this lock exist, or an attempt to connect has just failed.
    pub(crate) async fn tried_now(&self, keys: &Keys) {
        let Ok(shard) = self.servers.shard(keys) else { return };
        for link in shard.links() {
            link.tried_now().await;
            if link.live().is_err() {
                return;
            }
        }
    }

    /// Since when the server of this lock has answered nothing, if a connection is missing.
    pub(crate) fn down_since(&self, keys: &Keys) -> Option<Instant> {
        self.servers.shard(keys).ok()?.links().filter_map(Link::down_since).min()
    }

    /// Waits until there is a connection to the server of this lock, or never will be again. In a cluster, the lock may
    /// meanwhile move to another server.
    pub(crate) async fn up(&self, keys: &Keys) {
        let Servers::Cluster(cluster) = &self.servers else {
            if let Ok(shard) = self.servers.shard(keys) {
                shard.up().await;
            }
            return;
        };
        let mut map = cluster.map();
        loop {
            map.mark_unchanged();
            let up = async {
                match cluster.owner(keys.slot.expect("in a cluster every name has a slot")) {
                    Ok(shard) => {
                        shard.up().await;
                        true
                    }
                    // Each look has the guide ask for the map. Otherwise, if somebody serves the slot after the guide has asked, the
                    // guide would learn it a minute later.
                    Err(_) => {
                        sleep(LOOKS_APART).await;
                        false
                    }
                }
            };
            tokio::select! {
                is_up = up => if is_up { return },
                changed = map.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Signals that a request that failed may succeed now: there is a new connection, or a slot of a cluster has another
    /// primary, to which there may be a connection already.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.clone()
    }

    /// Turns a fault into the error of a call about this lock. If a key has another type, asks the server for the type.
    pub(crate) async fn explained(&self, fault: Fault, keys: &Keys) -> Error {
        if matches!(fault, Fault::WrongType)
            && let Some((key, kind)) = self.stranger(keys).await
        {
            return Error::Conflict { key, kind, asked: keys.called() };
        }
        match fault.into_error(&keys.lock().to_string()) {
            Error::Conflict { key, kind, .. } => {
                Error::Conflict { key, kind: Kind::called(&kind), asked: keys.called() }
            }
            Error::Unset { .. } => Error::Unset { name: keys.name().into_owned() },
            error => error,
        }
    }

    /// The same for the fault in an answer.
    pub(crate) async fn explain<T>(
        &self,
        answer: Result<T, Fault>,
        keys: &Keys,
    ) -> Result<T, Error> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(fault) => Err(self.explained(fault, keys).await),
        }
    }

    /// The key of this name that has another type, and that type.
    async fn stranger(&self, keys: &Keys) -> Option<(String, String)> {
        for (key, expected) in keys.types() {
            let key = key.to_string();
            let found = self.connection(keys).ok()?.type_of(&key).await;
            if let Some(kind) = found.filter(|kind| kind != expected && kind != "none") {
                return Some((key, kind));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::timeout;

    use super::*;
    use crate::config::Layout;
    use crate::keys::Space;
    use crate::wire::cluster::tests::cluster;

    /// Nothing else tells the guide that somebody waits for the slot: it would ask for the next map a minute later.
    #[tokio::test(start_paused = true)]
    async fn a_caller_that_waits_for_a_slot_that_no_node_has_makes_the_guide_ask_again_and_again() {
        const SECOND: Duration = Duration::from_secs(1);
        let cluster = Arc::new(cluster());
        let common = CommonArgs::new("us".to_owned(), Layout::Native, SECOND, SECOND * 20, None);
        let commands = Commands::in_cluster(Arc::clone(&cluster), common);
        let name = "a".to_owned();
        let keys = Keys::in_space(Space::Cluster(0), "", Layout::Native, Kind::Lock, name).unwrap();
        let mut up = pin!(commands.up(&keys));
        for _ in 0..3 {
            tokio::select! {
                () = &mut up => panic!("no node has the slot"),
                asked = timeout(SECOND, cluster.stale.notified()) => asked.expect("it asks"),
            }
        }
    }
}
