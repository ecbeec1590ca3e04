//! A real cluster of one's own: three primaries, with a replica each if wanted, whose slots can be moved.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::admin::Admin;
use super::server::{Server, Setup};
use super::site::Front;
use super::wait::eventually;
use futures_util::future::join_all;

/// How many slots there are.
const SLOTS: usize = 16_384;

/// A cluster cannot be up in less than two seconds, whatever is done. On a machine that does much else it takes a minute.
const START: Duration = Duration::from_secs(120);

/// Longer than a machine stands still: no node is counted as dead because it does not run. In milliseconds.
const PATIENT: &str = "15000";

/// How soon a node counts as dead where a test is about that.
const BRISK: &str = "1000";

/// A cluster in which every slot is served. Nobody takes over unless a test wants it. Dropped, all of it is killed.
#[derive(Debug)]
pub struct Cluster {
    /// First the primaries, then the replica of each in the same order.
    pub nodes: Vec<Server>,
    /// What the nodes call each other.
    pub ids: Vec<String>,
    /// How many primaries there were at the start.
    primaries: usize,
}

impl Cluster {
    /// Three primaries.
    pub async fn start() -> Self {
        Self::start_as(3, 3, Server::builder).await
    }

    /// Three primaries, with a replica each.
    pub async fn with_replicas() -> Self {
        Self::start_as(6, 3, Server::builder).await
    }

    /// So many nodes, the first of them primaries, all of them set up like this.
    pub async fn start_as(size: usize, primaries: usize, setup: impl Fn() -> Setup) -> Self {
        let nodes = join_all((0..size).map(|_| setup().node().start())).await;
        let mut ids = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let admin = node.admin().await;
            ids.push(admin.cmd(&["CLUSTER", "MYID"]).await);
            let epoch = (at + 1).to_string();
            admin.cmd::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
            if at < primaries {
                let all = at * SLOTS / primaries..(at + 1) * SLOTS / primaries;
                let numbers: Vec<_> = all.map(|slot| slot.to_string()).collect();
                let mut words = vec!["CLUSTER", "ADDSLOTS"];
                words.extend(numbers.iter().map(String::as_str));
                admin.cmd::<()>(&words).await;
            }
        }
        let cluster = Self { nodes, ids, primaries };
        cluster.introduce().await;
        // Before there is a replica that could take over.
        cluster.count_as_dead_after(PATIENT).await;
        cluster.follow().await;
        cluster.settled().await;
        cluster
    }

    async fn introduce(&self) {
        let first = self.nodes[0].admin().await;
        for node in &self.nodes {
            let admin = node.admin().await;
            let mut asked = None::<Instant>;
            let known = async || {
                let list: String = admin.cmd(&["CLUSTER", "NODES"]).await;
                if list.lines().count() == self.nodes.len() && !list.contains("handshake") {
                    return true;
                }
                // A node that is too busy to answer within a second is forgotten again.
                if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(3)) {
                    asked = Some(Instant::now());
                    self.meet(&first).await;
                }
                false
            };
            eventually(START, "all nodes know each other", known).await;
        }
    }

    /// Has the first node meet all that it does not know.
    async fn meet(&self, first: &Admin) {
        let list: String = first.cmd(&["CLUSTER", "NODES"]).await;
        for (node, id) in self.nodes.iter().zip(&self.ids).skip(1) {
            if !list.contains(id) {
                let (address, port) = (node.address().ip().to_string(), node.port().to_string());
                first.cmd::<()>(&["CLUSTER", "MEET", &address, &port]).await;
            }
        }
    }

    /// Makes replicas of all but the first.
    async fn follow(&self) {
        for (replica, primary) in self.nodes.iter().skip(self.primaries).zip(&self.ids) {
            let admin = replica.admin().await;
            let follows =
                async || admin.try_cmd::<()>(&["CLUSTER", "REPLICATE", primary]).await.is_ok();
            eventually(START, "the replica takes its primary", follows).await;
        }
    }

    /// Waits until all nodes serve, and replicas have what their primaries have.
    pub async fn settled(&self) {
        for node in &self.nodes {
            let admin = node.admin().await;
            let is_served = async || {
                let info: String = admin.cmd(&["CLUSTER", "INFO"]).await;
                info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:16384")
            };
            eventually(START, "the cluster serves", is_served).await;
        }
        let followed = self.nodes.len() - self.primaries;
        for (at, primary) in self.nodes.iter().take(followed).enumerate() {
            let (admin, key) = (primary.admin().await, self.names_at(at, "probe:", 1).remove(0));
            let followed = async || {
                admin.cmd::<()>(&["SET", &key, "1"]).await;
                let replicas: i64 = admin.cmd(&["WAIT", "1", "100"]).await;
                admin.cmd::<()>(&["DEL", &key]).await;
                replicas == 1
            };
            eventually(START, "the replica follows", followed).await;
        }
    }

    pub fn url(&self) -> String {
        self.url_at(&self.addresses())
    }

    /// The URL with this node alone.
    pub fn url_of(&self, at: usize) -> String {
        format!("redis-cluster://{}", self.nodes[at].address())
    }

    pub async fn admin(&self, at: usize) -> Admin {
        self.nodes[at].admin().await
    }

    /// The node that had the slot of this name at the start.
    pub fn home(&self, name: &str) -> usize {
        home(slot(name), self.primaries)
    }

    /// Those that were primaries at the start.
    pub fn primaries(&self) -> &[Server] {
        &self.nodes[..self.primaries]
    }

    /// So many names that begin like this and lie on this node at the start.
    pub fn names_at(&self, at: usize, begin: &str, count: usize) -> Vec<String> {
        let names = (0..).map(|number| format!("{begin}{number}"));
        names.filter(|name| self.home(name) == at).take(count).collect()
    }

    /// Opens a slot: from now on its keys are at either of the two.
    pub async fn open(&self, slot: usize, from: usize, to: usize) {
        let (source, target) = (self.admin(from).await, self.admin(to).await);
        let slot = slot.to_string();
        let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]];
        target.cmd::<()>(&importing).await;
        let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]];
        source.cmd::<()>(&migrating).await;
    }

    /// Moves some keys of an open slot, all that there are if no more come; how many.
    pub async fn move_keys(&self, slot: usize, from: usize, to: usize, most: usize) -> usize {
        let source = self.admin(from).await;
        let (slot, most) = (slot.to_string(), most.to_string());
        let keys: Vec<String> = source.cmd(&["CLUSTER", "GETKEYSINSLOT", &slot, &most]).await;
        for key in &keys {
            self.move_key(key, from, to).await;
        }
        keys.len()
    }

    pub async fn move_key(&self, key: &str, from: usize, to: usize) {
        let (source, port) = (self.admin(from).await, self.nodes[to].port().to_string());
        // A key that has expired meanwhile is answered with NOKEY.
        let moved = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
        let _: String = source.cmd(&moved).await;
    }

    /// Says to all who has the slot now.
    pub async fn close(&self, slot: usize, from: usize, to: usize) {
        let slot = slot.to_string();
        let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]];
        self.admin(to).await.cmd::<()>(&words).await;
        self.admin(from).await.cmd::<()>(&words).await;
    }

    /// Moves a slot with all its keys.
    pub async fn move_slot(&self, slot: usize, from: usize, to: usize) {
        self.open(slot, from, to).await;
        while self.move_keys(slot, from, to, 10).await > 0 {}
        self.close(slot, from, to).await;
    }

    /// Whether the servers move slots in one piece, as Valkey does from version 9 on.
    pub async fn migrates_slots(&self) -> bool {
        let told = self.admin(0).await.try_cmd::<()>(&["CLUSTER", "MIGRATESLOTS"]).await;
        told.expect_err("which slots?").to_string().contains("cluster|migrateslots")
    }

    /// Has Valkey move a slot in one piece, and waits until both nodes say that it is over there.
    pub async fn migrate_slot(&self, slot: usize, from: usize, to: usize) {
        self.migrate_slots(slot..=slot, from, to).await;
    }

    /// The same for several slots. A primary that has none left becomes a replica.
    pub async fn migrate_slots(&self, slots: RangeInclusive<usize>, from: usize, to: usize) {
        let (source, slot) = (self.admin(from).await, *slots.end());
        let [first, last] = [slots.start(), slots.end()].map(usize::to_string);
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", &self.ids[to]];
        let (every, mut asked) = (Duration::from_secs(10), None);
        let moved = async || {
            if self.serves(to, slot).await && !self.serves(from, slot).await {
                return true;
            }
            // A node gives a move up when the other one is too slow. While a move goes on, it refuses another.
            if asked.is_none_or(|when: Instant| when.elapsed() > every) {
                let told = source.try_cmd::<()>(&words).await;
                assert!(asked.is_some() || told.is_ok(), "{words:?}: {told:?}");
                asked = Some(Instant::now());
            }
            false
        };
        eventually(START, "the slot has moved", moved).await;
    }

    /// Which node says that it is the primary of a slot.
    pub async fn owner(&self, slot: usize) -> Option<usize> {
        for (at, _) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up()) {
            if self.serves(at, slot).await {
                return Some(at);
            }
        }
        None
    }

    /// Whether this node says that it is the primary of a slot.
    async fn serves(&self, at: usize, slot: usize) -> bool {
        let list: String = self.admin(at).await.cmd(&["CLUSTER", "NODES"]).await;
        let own = list.lines().find(|line| line.contains("myself")).expect("itself");
        let is_primary = own.split(' ').nth(2).is_some_and(|flags| flags.contains("master"));
        let has = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse().is_ok_and(|first: usize| first <= slot)
                && last.parse().is_ok_and(|last: usize| slot <= last)
        };
        is_primary && own.split(' ').skip(8).any(has)
    }

    /// From now on, a node that says nothing for a second counts as dead: its replica takes over, if it has one.
    pub async fn notices_the_dead(&self) {
        self.count_as_dead_after(BRISK).await;
    }

    pub async fn count_as_dead_after(&self, millis: &str) {
        for node in self.nodes.iter().filter(|node| node.is_up()) {
            node.admin().await.config_set("cluster-node-timeout", millis).await;
        }
    }

    /// Has a replica take over, as `CLUSTER FAILOVER` with this word does it, and waits until it has.
    pub async fn fail_over(&self, replica: usize, word: Option<&str>) {
        // A replica that is elected too late asks for votes again after four times this.
        self.notices_the_dead().await;
        let admin = self.admin(replica).await;
        let words: Vec<_> = ["CLUSTER", "FAILOVER"].into_iter().chain(word).collect();
        let (every, mut asked) = (Duration::from_secs(6), None);
        let taken_over = async || {
            if admin.info("replication", "role").await.as_deref() == Some("master") {
                return true;
            }
            // A replica gives up what it was asked for when five seconds were not enough: on a busy machine they may not be.
            if asked.is_none_or(|when: Instant| when.elapsed() > every) {
                asked = admin.try_cmd::<()>(&words).await.is_ok().then(Instant::now);
            }
            false
        };
        eventually(START, "the replica takes over", taken_over).await;
        // Nobody else is to take over because the machine does not run a node for a second.
        self.count_as_dead_after(PATIENT).await;
    }

    /// Every key of all primaries that are up, but for the counters of the tokens.
    pub async fn lock_keys(&self) -> Vec<String> {
        let mut all = Vec::new();
        for node in self.nodes.iter().filter(|node| node.is_up()) {
            let admin = node.admin().await;
            if admin.info("replication", "role").await.as_deref() == Some("master") {
                all.extend(admin.keys().await);
            }
        }
        all.retain(|key| !key.starts_with("lock:grants"));
        all.sort();
        all.dedup();
        all
    }

    /// How often all nodes have been asked this, by clients: of `evalsha`, or `cluster|slots`.
    pub async fn command_calls(&self, command: &str) -> u64 {
        let mut calls = 0;
        for node in self.nodes.iter().filter(|node| node.is_up()) {
            calls += node.admin().await.command_calls(command).await;
        }
        calls
    }
}

/// All of its nodes: any of them may be a primary one day.
impl Front for Cluster {
    fn url(&self) -> String {
        self.url()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Server::address).collect()
    }

    fn url_at(&self, addresses: &[SocketAddr]) -> String {
        let hosts: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }
}

/// Which of so many primaries has a slot at the start.
pub fn home(slot: usize, primaries: usize) -> usize {
    (0..primaries).find(|at| slot < (at + 1) * SLOTS / primaries).expect("a primary")
}

/// The slot of a key: that of the tag in it, if there is one.
pub fn slot_of(key: &str) -> usize {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    slot(tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key))
}

/// The slot of a name without braces: CRC-16/XMODEM.
pub fn slot(name: &str) -> usize {
    let shift = |crc: u16, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
    let step = |crc: u16, byte: u8| (0..8).fold(crc ^ (u16::from(byte) << 8), shift);
    usize::from(name.bytes().fold(0, step)) % SLOTS
}

/// So many names that begin like this and lie in one slot, that of the first of them.
pub fn names_in_one_slot(begin: &str, count: usize) -> Vec<String> {
    let first = slot(&format!("{begin}0"));
    let names = (0..).map(|number| format!("{begin}{number}"));
    names.filter(|name| slot(name) == first).take(count).collect()
}
