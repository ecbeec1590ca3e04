//! A Redis Cluster: three primaries with a replica each, whose slots move and who take each other's place.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parklock::Layout;
use tokio::time::sleep;

use crate::common::cluster::{home, slot_of};
use crate::common::{Admin, Cluster, Front, Proxy, Server, clock};
use crate::kept;
use crate::schedule::{ServerFault, Takes, Trial, Upheaval};
use crate::settings::{self, KEPT, LEASE};
use crate::stage::{self, Log, Span};
use crate::verdict::Break;

const PRIMARIES: usize = 3;

/// How long a node may be silent before the others count it as gone, in ms: so long that a busy machine makes no failover
/// that nobody asked for.
const PATIENT: &str = "15000";
/// While a failover is wanted: elections follow each other no faster than this allows.
const BRISK: &str = "1000";

/// Longer than anything takes that the nodes agree on among themselves.
const AGREED: Duration = Duration::from_secs(180);
/// A polite failover that takes longer is given up by the replica, and has to be asked for again.
const AGAIN: Duration = Duration::from_secs(6);
/// A slot stands open under the keeper for so much longer than a lease.
const OPEN: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(10);
/// The pause between two keys of a slot that moves key by key also where it could move in one piece.
const SLOWLY: Duration = Duration::from_millis(20);
/// By then most clients have learned of a change of the map, and draw no more numbers ahead of the clock. If the counter were
/// lost before, a token could fall: see docs/guarantees.md. On a starved machine one client learned of a change 1.8 s later.
const CHANGE_IS_FRESH: Duration = Duration::from_secs(5);

/// So many scripts more than at the last look before it was stopped: the looks themselves take a moment.
const ZOMBIE_RAN: u64 = 5;

/// The two nodes that have the same slots.
#[derive(Debug, Clone, Copy)]
struct Shard {
    primary: usize,
    replica: usize,
}

pub struct Nodes {
    cluster: Cluster,
    shards: [Shard; PRIMARIES],
    /// The slots that are not where they were at the start, and the shard that has them.
    moved: BTreeMap<usize, usize>,
    /// Whether grants count only when the replica has them: then no failover excuses anything.
    acknowledged: bool,
    /// When a slot last got another primary.
    changed: Option<Instant>,
    /// Whether the servers move slots in one piece.
    migrates_slots: bool,
    /// Whose turn it is, where any shard will do.
    turn: usize,
    /// How often nodes have refused a request for their slots, as far as nodes have told before they were killed.
    refusals: BTreeMap<String, u64>,
    pub log: Log,
}

impl Nodes {
    pub async fn set(acknowledged: bool) -> Self {
        let cluster = Cluster::with_replicas().await;
        let shard = |at| Shard { primary: at, replica: at + PRIMARIES };
        let migrates_slots = cluster.migrates_slots().await;
        let nodes = Self {
            cluster,
            shards: [0, 1, 2].map(shard),
            moved: BTreeMap::new(),
            acknowledged,
            changed: None,
            migrates_slots,
            turn: 0,
            refusals: BTreeMap::new(),
            log: Log::default(),
        };
        nodes.count_as_gone_after(PATIENT).await;
        nodes
    }

    pub fn url(&self) -> String {
        self.cluster.url()
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.cluster.addresses()
    }

    pub async fn proxy(&self, seed: u64) -> Proxy {
        Proxy::before_with(&self.cluster, seed).await
    }

    pub async fn keys(&self) -> Vec<String> {
        self.cluster.lock_keys().await
    }

    pub async fn channels(&self) -> Vec<String> {
        let mut all = BTreeSet::new();
        for node in &self.cluster.nodes {
            let admin = node.admin().await;
            all.extend(admin.channels().await);
            // Before version 7 channels belong to no slot.
            let ask = ["PUBSUB", "SHARDCHANNELS"];
            all.extend(admin.try_cmd::<Vec<String>>(&ask).await.unwrap_or_default());
        }
        all.into_iter().collect()
    }

    /// Whether it has happened. What befalls slots and primaries is counted where that is known.
    pub async fn suffer(&mut self, fault: ServerFault) -> bool {
        match fault {
            ServerFault::FlushScripts => {
                for shard in self.shards {
                    self.node(shard.primary).admin().await.script_flush().await;
                }
            }
            ServerFault::KillConnections(kind) => {
                for shard in self.shards {
                    self.node(shard.primary).admin().await.client_kill(kind).await;
                }
            }
            ServerFault::Pause(time) => {
                let node = self.next_primary();
                self.node(node).pause();
                sleep(time).await;
                self.node(node).resume();
            }
            ServerFault::ClientPause(time, what) => {
                let (node, millis) = (self.next_primary(), time.as_millis().to_string());
                let admin = self.node(node).admin().await;
                admin.cmd::<()>(&["CLIENT", "PAUSE", &millis, what]).await;
                sleep(time).await;
            }
            ServerFault::MemoryFull(time) => {
                let node = self.next_primary();
                let admin = self.node(node).admin().await;
                admin.config_set("maxmemory", "1").await;
                sleep(time).await;
                admin.config_set("maxmemory", "0").await;
            }
            ServerFault::FlushAll => {
                self.learned_of_change().await;
                let from = clock::now();
                for shard in self.shards {
                    self.node(shard.primary).admin().await.cmd::<()>(&["FLUSHALL"]).await;
                }
                self.log.breaks.push(Break::loose(None, from, clock::now()));
            }
            ServerFault::Del(lock) => return self.delete(lock).await,
            ServerFault::ForceUnlock(lock) => {
                let url = self.url();
                return stage::force_unlock(Layout::Native, &url, lock, &mut self.log).await;
            }
            ServerFault::Kept(trial) => {
                self.log.spared.store(true, Ordering::Relaxed);
                let reached = self.try_keeper(trial).await;
                self.log.spared.store(false, Ordering::Relaxed);
                return reached;
            }
            ServerFault::Upheaval(lock, upheaval) => self.heave(lock, upheaval).await,
            _ => unreachable!("that is for one server with a replica"),
        }
        true
    }

    async fn heave(&mut self, lock: &'static str, upheaval: Upheaval) {
        match upheaval {
            Upheaval::Move(pause) => self.move_slot(lock, pause).await,
            Upheaval::LeaveOpen(time) => self.leave_open(lock, time).await,
            Upheaval::FailOver(takes) => self.fail_over(self.shard_of(lock), takes).await,
            Upheaval::Kill(takes) => self.kill(self.shard_of(lock), takes).await,
            Upheaval::Zombie(takes, time) => {
                self.raise_zombie(self.shard_of(lock), takes, time).await;
            }
        }
    }

    fn node(&self, at: usize) -> &Server {
        &self.cluster.nodes[at]
    }

    fn next_primary(&mut self) -> usize {
        self.turn += 1;
        self.shards[self.turn % PRIMARIES].primary
    }

    /// Which shard has a slot.
    fn shard_with(&self, slot: usize) -> usize {
        self.moved.get(&slot).copied().unwrap_or_else(|| home(slot, PRIMARIES))
    }

    fn shard_of(&self, lock: &str) -> usize {
        self.shard_with(slot(lock))
    }

    /// A name has one slot in all namespaces.
    fn locks_where(&self, is_meant: impl Fn(usize) -> bool) -> Vec<String> {
        settings::labels(|name| is_meant(slot(name)))
    }

    /// The node that has a lock.
    async fn admin_of(&self, lock: &str) -> Admin {
        self.node(self.shards[self.shard_of(lock)].primary).admin().await
    }

    async fn delete(&mut self, lock: &'static str) -> bool {
        let admin = self.admin_of(lock).await;
        stage::delete(&admin, &settings::key(lock), lock, &mut self.log).await
    }

    /// Until the keeper's hold has outlived it, or, if it was deleted, until the keeper has noticed.
    async fn try_keeper(&mut self, trial: Trial) -> bool {
        for _ in 0..3 {
            let Some(owner) =
                kept::confirmed(&self.admin_of(KEPT).await, &settings::key(KEPT)).await
            else {
                continue;
            };
            match trial {
                Trial::Failover => self.fail_over(self.shard_of(KEPT), Takes::Politely).await,
                Trial::Move => self.move_slot(KEPT, LOOK).await,
                Trial::StandOpen => self.leave_open(KEPT, LEASE + OPEN).await,
                Trial::Del if !self.delete(KEPT).await => continue,
                Trial::Del => {}
                Trial::Restart => unreachable!("nodes keep nothing on disk"),
            }
            let admin = self.admin_of(KEPT).await;
            let reached = match trial {
                Trial::Del => kept::changed(&admin, &settings::key(KEPT), &owner).await,
                _ => kept::confirmed(&admin, &settings::key(KEPT))
                    .await
                    .is_some_and(|now| now == owner),
            };
            if reached {
                self.log.tally.add("server: tried the keeper", 1);
                return true;
            }
        }
        false
    }
}

/// Slots.
impl Nodes {
    /// To the next shard, or home if it is not there. What is not to move slowly moves in one piece where the servers can do that.
    async fn move_slot(&mut self, lock: &'static str, pause: Duration) {
        let (slot, from_shard, to_shard) = self.way(lock);
        let (source, target) = (self.shards[from_shard].primary, self.shards[to_shard].primary);
        let from = clock::now();
        if self.migrates_slots && pause < SLOWLY {
            self.cluster.migrate_slot(slot, source, target).await;
            self.has_moved(slot, to_shard, from).await;
            self.outlived("a slot that moved in one piece", from, |other| other == slot);
            self.log.tally.add("cluster: a slot moved in one piece", 1);
            return;
        }
        self.cluster.open(slot, source, target).await;
        self.move_keys(slot, (source, target), usize::MAX, pause).await;
        self.close(slot, to_shard, (source, target)).await;
        self.outlived("a slot that moved", from, |other| other == slot);
        self.log.tally.add("cluster: a slot moved", 1);
    }

    /// Half of the keys go over, and after a while the others. It is never taken back: a primary that keeps its slot after all
    /// makes anew what it has given away.
    async fn leave_open(&mut self, lock: &'static str, time: Duration) {
        let (slot, from_shard, to_shard) = self.way(lock);
        let (source, target) = (self.shards[from_shard].primary, self.shards[to_shard].primary);
        let from = clock::now();
        self.cluster.open(slot, source, target).await;
        let admin = self.node(source).admin().await;
        let ask = ["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()];
        let count: usize = admin.cmd(&ask).await;
        self.move_keys(slot, (source, target), count.div_ceil(2), Duration::ZERO).await;
        sleep(time).await;
        self.move_keys(slot, (source, target), usize::MAX, Duration::ZERO).await;
        self.close(slot, to_shard, (source, target)).await;
        self.outlived("a slot that stood open", from, |other| other == slot);
        self.log.tally.add("cluster: a slot was left open", 1);
        let is_long = u64::from(time > LEASE);
        self.log.tally.add("cluster: a slot was left open for longer than a lease", is_long);
    }

    /// A slot, the shard that has it, and another one.
    fn way(&self, lock: &str) -> (usize, usize, usize) {
        let (slot, from) = (slot(lock), self.shard_of(lock));
        let at_home = home(slot, PRIMARIES);
        (slot, from, if from == at_home { (from + 1) % PRIMARIES } else { at_home })
    }

    /// One after the other, so many at most. What of a lock is there comes in no order.
    async fn move_keys(
        &mut self,
        slot: usize,
        (source, target): (usize, usize),
        most: usize,
        pause: Duration,
    ) {
        let (admin, slot) = (self.node(source).admin().await, slot.to_string());
        let port = self.node(target).port().to_string();
        for _ in 0..most {
            let next: Vec<String> = admin.cmd(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).await;
            let Some(key) = next.first() else { return };
            // A key that has expired meanwhile is answered with NOKEY. One that is on both sides was made twice.
            let migrate = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
            match admin.try_cmd::<String>(&migrate).await {
                Ok(answer) if answer == "OK" => {
                    let what = match settings::bare(key).split('{').next().unwrap_or_default() {
                        "lock:grants:" => "cluster: moved a counter of tokens",
                        "lock:" => "cluster: moved a lock that was held",
                        "lock_queue:" => "cluster: moved a line with waiters",
                        "lock_notes:" => "cluster: moved the notes of a line",
                        _ => "cluster: moved another key",
                    };
                    self.log.tally.add(what, 1);
                }
                Ok(_) => {}
                Err(error) => return self.log.tally.wrong(format!("MIGRATE of {key}: {error}")),
            }
            sleep(pause).await;
        }
    }

    async fn close(&mut self, slot: usize, to: usize, (source, target): (usize, usize)) {
        let from = clock::now();
        self.cluster.close(slot, source, target).await;
        self.has_moved(slot, to, from).await;
    }

    async fn has_moved(&mut self, slot: usize, to: usize, since: u64) {
        if home(slot, PRIMARIES) == to {
            self.moved.remove(&slot);
        } else {
            self.moved.insert(slot, to);
        }
        self.changed = Some(Instant::now());
        self.settle(since).await;
    }
}

/// Failovers.
impl Nodes {
    /// Most clients know the primary of each slot by then. Before that no counter may be lost.
    async fn learned_of_change(&self) {
        if let Some(changed) = self.changed {
            sleep(CHANGE_IS_FRESH.saturating_sub(changed.elapsed())).await;
        }
    }

    async fn fail_over(&mut self, shard: usize, takes: Takes) {
        self.learned_of_change().await;
        self.count_as_gone_after(BRISK).await;
        let from = clock::now();
        self.deafen(shard, takes).await;
        self.take_over(shard, takes).await;
        self.has_one_primary(shard).await;
        let what = match takes {
            Takes::Politely => "a polite failover",
            Takes::ByForce(_) => "a failover by force",
            Takes::AtOnce(_) => "a takeover",
            Takes::WhenMissed => unreachable!("a primary that serves is not missed"),
        };
        let how = How { what, is_polite: takes == Takes::Politely };
        self.taken_over(shard, (from, clock::now()), how).await;
    }

    async fn kill(&mut self, shard: usize, takes: Takes) {
        self.learned_of_change().await;
        let Shard { primary, .. } = self.shards[shard];
        self.count_as_gone_after(BRISK).await;
        self.deafen(shard, takes).await;
        self.note_refusals(primary).await;
        let from = clock::now();
        self.node(primary).kill();
        // What is sent from here on runs at its successor, or nowhere.
        let to = clock::now();
        self.take_over(shard, takes).await;
        // It comes back empty, and takes itself for the primary until the others have told it.
        self.node(primary).start_again().await;
        self.has_one_primary(shard).await;
        let what = match takes {
            Takes::WhenMissed => "a killed primary that the cluster replaced by itself",
            _ => "a killed primary that its replica was told to replace",
        };
        self.taken_over(shard, (from, to), How { what, is_polite: false }).await;
    }

    /// Stops a primary, and wakes it when its replica has taken over.
    async fn raise_zombie(&mut self, shard: usize, takes: Takes, time: Duration) {
        self.learned_of_change().await;
        let Shard { primary, .. } = self.shards[shard];
        self.count_as_gone_after(BRISK).await;
        let from = clock::now();
        self.deafen(shard, takes).await;
        let admin = self.node(primary).admin().await;
        let before = admin.command_calls("evalsha").await;
        self.node(primary).pause();
        self.take_over(shard, takes).await;
        sleep(time).await;
        self.node(primary).resume();
        self.has_one_primary(shard).await;
        if admin.command_calls("evalsha").await > before + ZOMBIE_RAN {
            self.log.tally.add("cluster: a zombie ran what lay in its socket", 1);
        }
        let how = How { what: "a zombie primary", is_polite: false };
        self.taken_over(shard, (from, clock::now()), how).await;
    }

    /// Has the replica hear nothing for as long as that says: its primary refuses the name that it gives. What it is granted
    /// meanwhile the replica never learns.
    async fn deafen(&self, shard: usize, takes: Takes) {
        let (Takes::ByForce(time) | Takes::AtOnce(time)) = takes else { return };
        if time.is_zero() {
            return;
        }
        let Shard { primary, replica } = self.shards[shard];
        self.goes_by(replica, "nobody").await;
        self.node(primary).admin().await.client_kill("replica").await;
        sleep(time).await;
    }

    /// The user as which a node follows another one: the empty name is anybody's.
    async fn goes_by(&self, node: usize, name: &str) {
        let admin = self.node(node).admin().await;
        admin.config_set("masteruser", name).await;
        admin.config_set("masterauth", name).await;
    }

    /// Returns when the replica is a primary.
    async fn take_over(&mut self, shard: usize, takes: Takes) {
        let replica = self.shards[shard].replica;
        let admin = self.node(replica).admin().await;
        let words = match takes {
            Takes::Politely => vec!["CLUSTER", "FAILOVER"],
            Takes::ByForce(_) => vec!["CLUSTER", "FAILOVER", "FORCE"],
            Takes::AtOnce(_) => vec!["CLUSTER", "FAILOVER", "TAKEOVER"],
            // The cluster does it by itself.
            Takes::WhenMissed => vec!["PING"],
        };
        let (begun, mut asked) = (Instant::now(), None::<Instant>);
        while role(&admin).await.as_deref() != Some("master") {
            if asked.is_none_or(|at| at.elapsed() > AGAIN) {
                // One that has just become a primary refuses it.
                let _ = admin.try_cmd::<String>(&words).await;
                asked = Some(Instant::now());
            }
            if begun.elapsed() > AGREED {
                return self.log.tally.wrong(format!("node {replica} does not take over"));
            }
            sleep(LOOK / 10).await;
        }
    }

    /// Returns when one of the two knows that it is no primary. Usually it is the former one. But while nodes count others
    /// as gone early, that one may have taken over again, on a busy machine: `settle` finds that out.
    async fn has_one_primary(&mut self, shard: usize) {
        let Shard { primary, replica } = self.shards[shard];
        let (former, new) = (self.node(primary).admin().await, self.node(replica).admin().await);
        let begun = Instant::now();
        loop {
            let (former, new) = tokio::join!(role(&former), role(&new));
            if [former, new].iter().any(|role| role.as_deref() == Some("slave")) {
                return;
            }
            if begun.elapsed() > AGREED {
                return self.log.tally.wrong(format!("node {primary} does not give way"));
            }
            sleep(LOOK / 10).await;
        }
    }

    /// The replica of a shard is its primary now, and for a time between these two moments both may have been.
    async fn taken_over(&mut self, shard: usize, (from, to): (u64, u64), how: How) {
        let Shard { primary, replica } = self.shards[shard];
        self.shards[shard] = Shard { primary: replica, replica: primary };
        self.changed = Some(Instant::now());
        self.count_as_gone_after(PATIENT).await;
        self.goes_by(replica, "").await;
        if !how.is_polite {
            self.may_have_forgotten(shard, from, to);
        }
        self.log.tally.add(&format!("cluster: {}", how.what), 1);
        self.settle(from).await;
        let locks = self.locks_where(|slot| self.shard_with(slot) == shard);
        self.log.spans.push(Span { what: how.what, locks, from, to });
    }

    /// The primary of a shard has been replaced by one that may know less, unless nothing counts that it does not know.
    fn may_have_forgotten(&mut self, shard: usize, from: u64, to: u64) {
        if !self.acknowledged {
            let locks = self.locks_where(|slot| self.shard_with(slot) == shard);
            let breaks = locks.into_iter().map(|lock| Break::taken_over(&lock, from, to));
            self.log.breaks.extend(breaks);
        }
    }

    async fn count_as_gone_after(&self, millis: &str) {
        for node in &self.cluster.nodes {
            node.admin().await.config_set("cluster-node-timeout", millis).await;
        }
    }

    /// Waits until all nodes agree on who has which slot, and each replica has what its primary has. A failover since then
    /// that nobody asked for is one like any other.
    async fn settle(&mut self, since: u64) {
        let begun = Instant::now();
        loop {
            let mut settled = true;
            for shard in 0..PRIMARIES {
                let Shard { primary, replica } = self.shards[shard];
                match self.is_followed(primary, replica).await {
                    Some(followed) => settled &= followed,
                    None => {
                        self.may_have_forgotten(shard, since, clock::now());
                        self.shards[shard] = Shard { primary: replica, replica: primary };
                        self.log.tally.add("cluster: a failover that nobody asked for", 1);
                        settled = false;
                    }
                }
            }
            if settled && self.all_agree().await {
                return;
            }
            if begun.elapsed() > AGREED {
                return self.log.tally.wrong("the cluster does not settle".to_owned());
            }
            sleep(LOOK * 2).await;
        }
    }

    /// Whether the replica has what the primary has; none if they have changed places.
    async fn is_followed(&self, primary: usize, replica: usize) -> Option<bool> {
        let (leads, follows) = (self.node(primary).admin().await, self.node(replica).admin().await);
        let said = leads.info("replication", "master_repl_offset").await;
        let offset = |said: Option<String>| said.and_then(|text| text.parse::<u64>().ok());
        let (has, is_online) = (offset(said), leads.info("replication", "slave0").await);
        match (role(&leads).await.as_deref(), role(&follows).await.as_deref()) {
            (Some("slave"), Some("master")) => return None,
            (Some("master"), Some("slave")) => {}
            _ => return Some(false),
        }
        let knows = offset(follows.info("replication", "slave_repl_offset").await);
        let is_up = follows.info("replication", "master_link_status").await;
        Some(
            is_up.as_deref() == Some("up")
                && is_online.is_some_and(|line| line.contains("state=online"))
                && knows >= has,
        )
    }

    /// Whether every node knows the primary of each lock's slot, and counts none as gone.
    async fn all_agree(&self) -> bool {
        let slots: BTreeSet<_> = settings::names().map(slot).collect();
        for node in &self.cluster.nodes {
            let list: String = node.admin().await.cmd(&["CLUSTER", "NODES"]).await;
            let lines: Vec<Vec<&str>> =
                list.lines().map(|line| line.split(' ').collect()).collect();
            let is_well = |line: &Vec<&str>| !line[2].contains("fail");
            let owner = |slot| lines.iter().find(|line| line[8..].iter().any(has(slot)));
            let agrees = |slot: &usize| {
                let id = &self.cluster.ids[self.shards[self.shard_with(*slot)].primary];
                owner(*slot).is_some_and(|line| line[0] == id)
            };
            if !lines.iter().all(is_well) || !slots.iter().all(agrees) {
                return false;
            }
        }
        true
    }

    fn outlived(&mut self, what: &'static str, from: u64, is_meant: impl Fn(usize) -> bool) {
        let locks = self.locks_where(is_meant);
        self.log.spans.push(Span { what, locks, from, to: clock::now() });
    }
}

/// What the nodes have refused.
impl Nodes {
    /// Counts the refusals of a node that is about to forget them.
    async fn note_refusals(&mut self, node: usize) {
        let text: String = self.node(node).admin().await.cmd(&["INFO", "errorstats"]).await;
        for line in text.lines().filter_map(|line| line.strip_prefix("errorstat_")) {
            let Some((word, count)) = line.split_once(":count=") else { continue };
            let count = count.trim().parse::<u64>().expect("a number");
            *self.refusals.entry(word.to_owned()).or_default() += count;
        }
    }

    pub async fn count_refusals(&mut self) {
        for node in 0..self.cluster.nodes.len() {
            self.note_refusals(node).await;
        }
        for word in ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"] {
            let count = self.refusals.get(word).unwrap_or(&0);
            self.log.tally.add(&format!("refused: {word}"), *count);
        }
    }
}

/// What a failover was, and whether its primary has waited for its replica.
struct How {
    what: &'static str,
    is_polite: bool,
}

async fn role(admin: &Admin) -> Option<String> {
    admin.info("replication", "role").await
}

fn slot(lock: &str) -> usize {
    slot_of(&settings::key(lock))
}

/// Whether a word of a node's line is a range with this slot in it.
fn has(slot: usize) -> impl Fn(&&str) -> bool {
    move |range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().is_ok_and(|first: usize| first <= slot)
            && last.parse().is_ok_and(|last: usize| slot <= last)
    }
}
