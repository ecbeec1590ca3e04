//! The servers of a cluster, as one client knows them: which server has which slot, and a shard for each server that
//! was used.
//!
//! 1. A shard is made when one of its slots is first needed, and kept until its node has been out of the map for a
//!    while.
//! 2. The client does not check the map before a request. The node that receives the request says whether the map is
//!    right, and its answer changes one slot at once.
//! 3. Whatever casts doubt on the map wakes the guide (`guide.rs`), which asks for a new one.
//! 4. All keys and channels of one name lie in one slot, and each slot has its own counter of tokens (`slot.rs`). The numbers
//!    of all connections come from one counter, so an answer of one node never settles the ghost of another.
//! 5. While a slot moves key by key, the server refuses a script with several keys with `TRYAGAIN`. A renewal has one key. A
//!    release is repeated with the lock's key alone (`lua/line/plain_release_alone.lua`), and then notifies all waiters, since
//!    it cannot see the line. An acquire waits until the slot has moved. A script that fails half-way counts as one without
//!    an answer.

mod map;
mod redirect;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::cmd;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Layout};
use crate::error::said;
use crate::keys::Keys;
use crate::log;
use crate::mutex::Mutex;
use crate::slot::Slot;
use crate::wire::address::{Addresses, Expected};
use crate::wire::destination::Destination;
use crate::wire::fault::{self, Fault, Redirect};
use crate::wire::link::Link;
use crate::wire::node::Node;
use crate::wire::replies::strange;
use crate::wire::shard::{CommandDuty, NO_CLUSTER, Quorum, ServerClock, Shard};
use crate::wire::socket::Socket;
use crate::wire::tracking::{Changed, OnChange};

pub(crate) use map::SlotMap;
pub(crate) use redirect::{MOST_HOPS, next_hop};

/// A node without a slot for this long has left. Two nodes may disagree about a slot for seconds.
const LEFT: Duration = Duration::from_secs(30);

/// Runs the tasks that a client needs later.
pub(crate) struct Crew {
    /// Runs a task on the runtime of the client, whichever task calls it.
    pub(crate) spawn: Box<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>,
    pub(crate) stop: CancellationToken,
}

/// The servers that store the locks.
#[derive(Clone)]
pub(crate) enum Servers {
    One(Arc<Shard>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// The server that has this lock.
    pub(crate) fn shard(&self, keys: &Keys) -> Result<Arc<Shard>, Fault> {
        self.shard_of(keys.slot)
    }

    /// The server that has this slot of a cluster, or the only one.
    pub(crate) fn shard_of(&self, slot: Option<Slot>) -> Result<Arc<Shard>, Fault> {
        match (self, slot) {
            (Self::One(shard), _) => Ok(Arc::clone(shard)),
            (Self::Cluster(cluster), Some(slot)) => cluster.owner(slot),
            (Self::Cluster(_), None) => unreachable!("in a cluster every name has a slot"),
        }
    }
}

/// The servers of a cluster.
pub(crate) struct Cluster {
    pub(crate) addresses: Addresses,
    layout: Layout,
    plain_channels: bool,
    quorum: Option<Quorum>,
    /// How long a redirected request waits for the connection to its new node: as long as for an answer.
    pub(crate) response_timeout: Duration,
    crew: Crew,
    on_change: OnChange,
    /// See [`Commands::changes`](crate::wire::commands::Commands::changes).
    pub(crate) changes: watch::Sender<()>,
    /// See [`ServerClock::with`].
    beyond: Arc<AtomicU64>,
    map: watch::Sender<Arc<SlotMap>>,
    /// The map may be wrong.
    pub(crate) stale: Arc<Notify>,
    /// A slot was found that nobody serves.
    is_unserved: AtomicBool,
    shards: Mutex<BTreeMap<Node, Member>>,
}

struct Member {
    shard: Arc<Shard>,
    stop: CancellationToken,
    /// Since when its node has no slot.
    unused: Option<Instant>,
}

impl Cluster {
    pub(crate) fn new(
        addresses: Addresses,
        config: &Config,
        crew: Crew,
        on_change: OnChange,
    ) -> Self {
        Self {
            addresses,
            layout: config.layout,
            plain_channels: config.plain_channels && config.layout == Layout::Redisson,
            quorum: Quorum::of(config),
            response_timeout: config.response(),
            crew,
            on_change,
            changes: watch::Sender::default(),
            beyond: Arc::default(),
            map: watch::Sender::default(),
            stale: Arc::default(),
            is_unserved: AtomicBool::new(false),
            shards: Mutex::default(),
        }
    }

    /// The map, now and whenever it changes.
    pub(crate) fn map(&self) -> watch::Receiver<Arc<SlotMap>> {
        self.map.subscribe()
    }

    /// What each of its nodes is expected to be.
    pub(crate) fn expected(&self) -> Expected {
        Expected::Node { plain_channels: self.plain_channels }
    }

    /// Runs a task. The task ends when the token is cancelled, which happens when the client ends.
    pub(crate) fn run<T: Future<Output = ()> + Send + 'static>(
        &self,
        task: impl FnOnce(CancellationToken) -> T,
    ) {
        (self.crew.spawn)(Box::pin(task(self.crew.stop.clone())));
    }

    /// The shard that has this slot.
    pub(crate) fn owner(&self, slot: Slot) -> Result<Arc<Shard>, Fault> {
        let node = self.map.borrow().owner(slot).cloned();
        match node {
            Some(node) => Ok(self.shard(&node)),
            None => {
                self.unserved();
                Err(self.nobody_has(slot))
            }
        }
    }

    fn nobody_has(&self, slot: Slot) -> Fault {
        if self.map.borrow().is_empty() {
            let seeds = self.addresses.seeds.iter().map(|seed| self.addresses.of(seed).to_string());
            let seeds = seeds.collect::<Vec<_>>().join(", ");
            return Fault::NotSent(said(format!("no node of the cluster has answered: {seeds}")));
        }
        let number = slot.number();
        let text = format!("CLUSTERDOWN no node has the slot {number}");
        Fault::Redirected(Redirect::Down, said(text))
    }

    /// The shard of this node; makes it if necessary.
    pub(crate) fn shard(&self, node: &Node) -> Arc<Shard> {
        if let Some(member) = self.shards.lock().get_mut(node) {
            member.unused = None;
            return Arc::clone(&member.shard);
        }
        let clock = ServerClock::with(Arc::clone(&self.beyond));
        let (changes, lost) = (self.changes.clone(), Arc::clone(&self.stale));
        let on_change = self.on_change_at(node.clone());
        let expected = self.expected();
        let duty = CommandDuty::new(self.layout, clock, expected, changes, lost, on_change, None);
        let destination = Destination::Fixed(Arc::new(self.addresses.of(node)));
        let at = (Some(node.clone()), destination);
        let (shard, task) = Shard::new(at, duty, self.quorum);
        let shard = Arc::new(shard);
        let stop = self.crew.stop.child_token();
        let member = Member { shard: Arc::clone(&shard), stop: stop.clone(), unused: None };
        match self.shards.lock().entry(node.clone()) {
            std::collections::btree_map::Entry::Occupied(other) => {
                return Arc::clone(&other.get().shard);
            }
            std::collections::btree_map::Entry::Vacant(place) => _ = place.insert(member),
        }
        (self.crew.spawn)(Box::pin(task.run(stop)));
        shard
    }

    /// What a node may have lost concerns its own locks, and those whose node is unknown. If every holder looked, a node that is
    /// lost often would use up what the holders at other nodes may be told of (`core/tenure.rs`). A lock whose slot has
    /// moved away meanwhile is looked at with its next renewal.
    fn on_change_at(&self, node: Node) -> OnChange {
        let (on_change, map) = (Arc::clone(&self.on_change), self.map());
        Arc::new(move |changed| match changed {
            Changed::Key(_) => on_change(changed),
            Changed::All(_) => {
                let map = Arc::clone(&map.borrow());
                let owner = |keys: &Keys| keys.slot.and_then(|slot| map.owner(slot));
                on_change(Changed::All(&|keys| owner(keys).is_none_or(|owner| *owner == node)));
            }
        })
    }

    /// A node reported that `node` has the slot.
    pub(crate) fn moved(&self, slot: Slot, node: Node) {
        // The requests that were on their way when a slot moved all say so.
        if self.map.borrow().owner(slot) == Some(&node) {
            return;
        }
        log::debug!(slot = slot.number(), %node, "the slot has moved");
        self.change(|map| map.with(slot, node));
        self.stale.notify_one();
    }

    /// No node has a slot, or the node that has it reports that the cluster is down.
    pub(crate) fn unserved(&self) {
        self.is_unserved.store(true, Ordering::Relaxed);
        self.stale.notify_one();
    }

    /// Adopts a new map.
    pub(crate) fn adopt(&self, map: SlotMap) {
        self.change(|_| map);
        self.end_unused();
    }

    fn change(&self, change: impl FnOnce(&SlotMap) -> SlotMap) {
        let has_changed = self.map.send_if_modified(|map| {
            let newer = change(map);
            let (left, gained) = (map.left_for(&newer), newer.left_for(map));
            if left.is_empty() && gained.is_empty() {
                return false;
            }
            // Do this before any request goes to the next server.
            let (shards, now) = (self.shards.lock(), Instant::now());
            left.into_iter().filter_map(|node| shards.get(node)).for_each(|member| {
                member.shard.reign.clock.hand_on(now);
            });
            let gained = gained.into_iter().filter_map(|node| shards.get(node));
            // A node that has become a primary may have been refused before.
            gained.for_each(|member| member.shard.links().for_each(Link::try_now));
            drop(shards);
            *map = Arc::new(newer);
            true
        });
        if has_changed {
            self.changes.send_replace(());
        }
    }

    /// Ends the links to nodes that have left, except those that a request still uses: without its link, it would be told that
    /// the client is closed, and leave no ghost.
    fn end_unused(&self) {
        let (map, now) = (Arc::clone(&self.map.borrow()), Instant::now());
        let used = map.nodes();
        let mut ended = Vec::new();
        self.shards.lock().retain(|node, member| {
            if used.contains(&node) {
                member.unused = None;
                return true;
            }
            let since = *member.unused.get_or_insert(now);
            // A request gets the shard under this lock. So no other one can come if the map alone has it.
            if now < since + LEFT || Arc::strong_count(&member.shard) > 1 {
                return true;
            }
            ended.push(member.stop.clone());
            false
        });
        ended.iter().for_each(CancellationToken::cancel);
    }

    /// The nodes that this client has used, each with its live connection.
    pub(crate) fn links(&self) -> Vec<(Node, Option<Socket>)> {
        let live = |member: &Member| member.shard.link.live().ok().map(|live| live.socket);
        self.shards.lock().iter().map(|(node, member)| (node.clone(), live(member))).collect()
    }

    /// Whether a server with slots, which this client has used, cannot be reached.
    pub(crate) fn is_troubled(&self) -> bool {
        let map = Arc::clone(&self.map.borrow());
        let used = map.nodes();
        self.shards
            .lock()
            .iter()
            .any(|(node, member)| used.contains(&node) && member.shard.link.live().is_err())
    }

    /// Whether the map may be wrong in a way that no server will correct. The call forgets that a slot was found that
    /// nobody serves.
    pub(crate) fn takes_doubt(&self) -> bool {
        self.is_unserved.swap(false, Ordering::Relaxed) || self.is_troubled()
    }

    /// Asks a node for the map, over a separate connection, for as long as a connection may take or as the caller says.
    pub(crate) async fn ask_stranger(
        &self,
        node: &Node,
        limit: Option<Duration>,
    ) -> Result<SlotMap, Fault> {
        let address = self.addresses.of(node);
        let longest = address.connect_timeout();
        let limit = limit.map_or(longest, |limit| limit.min(longest));
        let asked = async {
            let dialled = address.connect_for_once().await?;
            ask_for_map(&dialled.socket, node).await
        };
        Fault::unless_in(limit, node, asked).await
    }
}

/// Asks a node for the map.
pub(crate) async fn ask_for_map(socket: &Socket, node: &Node) -> Result<SlotMap, Fault> {
    let answer = socket.ask(cmd("CLUSTER").arg("SLOTS")).await;
    match answer.map_err(Fault::answering)? {
        redis::Value::ServerError(error) if fault::says(&error, NO_CLUSTER) => Err(Fault::Config(
            format!("{node} is not a node of a cluster: connect to it as redis:// or rediss://"),
        )),
        redis::Value::ServerError(error) => Err(fault::entry(&error)),
        answer => {
            let map = SlotMap::read(&answer, node)?;
            if map.nodes().is_empty() { Err(strange(&"a cluster without slots")) } else { Ok(map) }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use futures_util::FutureExt;

    use super::*;

    pub(crate) fn cluster() -> Cluster {
        let config = Config::default();
        let addresses = Addresses::new(&["redis://127.0.0.1:7000".to_owned()], &config).unwrap();
        let crew = Crew { spawn: Box::new(drop), stop: CancellationToken::new() };
        Cluster::new(addresses, &config, crew, Arc::new(|_| ()))
    }

    #[test]
    fn another_primary_of_a_slot_is_a_change_though_no_connection_is_new() {
        let (cluster, slot) = (cluster(), Slot::new(5).unwrap());
        let mut changes = cluster.changes.subscribe();
        let mut is_change = |port| {
            cluster.moved(slot, Node::new("127.0.0.1", port));
            let has_changed = changes.has_changed().unwrap();
            changes.mark_unchanged();
            has_changed
        };
        assert!(is_change(7000));
        assert!(!is_change(7000), "it has the slot already");
        assert!(is_change(7001));
    }

    #[test]
    fn a_move_that_is_known_casts_no_doubt_on_the_map() {
        let (cluster, slot) = (cluster(), Slot::new(5).unwrap());
        let is_doubted = || {
            cluster.moved(slot, Node::new("127.0.0.1", 7000));
            cluster.stale.notified().now_or_never().is_some()
        };
        assert!(is_doubted());
        assert!(!is_doubted());
    }

    /// A long request would be told that the client is closed, though it may have run.
    #[tokio::test(start_paused = true)]
    async fn a_node_that_has_left_keeps_its_links_until_the_last_request_there_is_answered() {
        let (cluster, node) = (cluster(), Node::new("127.0.0.1", 7000));
        let nobody_is_left = || {
            cluster.adopt(SlotMap::default());
            cluster.shards.lock().is_empty()
        };
        let asked = cluster.shard(&node);
        assert!(!nobody_is_left());
        tokio::time::advance(LEFT).await;
        assert!(!nobody_is_left(), "somebody waits for an answer");
        drop(asked);
        assert!(nobody_is_left());
    }
}
