//! A Redis Cluster of our own: real nodes on this machine, which can be moved, failed over, killed and replaced.

mod node;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

pub use node::Node;

/// How many slots there are.
const SLOTS: usize = 16_384;

const PRIMARIES: usize = 3;

/// Longer than anything takes that the nodes have to agree on.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);
/// Between two looks where a time is measured.
const CLOSE_LOOK: Duration = Duration::from_millis(2);
/// A node that is too busy to answer an introduction has forgotten it after this.
const AGAIN: Duration = Duration::from_secs(3);
/// A replica that could not take over within this has given it up.
const GIVEN_UP: Duration = Duration::from_secs(6);

/// A primary and its replica, which have the same slots.
#[derive(Debug)]
pub struct Shard {
    pub primary: Node,
    pub replica: Node,
}

/// Three of them. It ends with this value.
#[derive(Debug)]
pub struct Cluster {
    pub shards: Vec<Shard>,
}

impl Cluster {
    /// With as many nodes as a small one has in production: three primaries, a replica each. A node counts as gone when it
    /// was silent for so long.
    pub async fn start(silence: Duration) -> Result<Self> {
        let mut shards = Vec::new();
        for _ in 0..PRIMARIES {
            let (primary, replica) = (Node::start(silence).await?, Node::start(silence).await?);
            shards.push(Shard { primary, replica });
        }
        let cluster = Self { shards };
        cluster.form().await?;
        Ok(cluster)
    }

    async fn form(&self) -> Result<()> {
        for (at, node) in self.nodes().enumerate() {
            node.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]).await?;
        }
        for (at, shard) in self.shards.iter().enumerate() {
            let slots = (at * SLOTS / PRIMARIES)..((at + 1) * SLOTS / PRIMARIES);
            let numbers: Vec<String> = slots.map(|slot| slot.to_string()).collect();
            let words: Vec<&str> = ["CLUSTER", "ADDSLOTS"]
                .into_iter()
                .chain(numbers.iter().map(String::as_str))
                .collect();
            shard.primary.ask::<()>(&words).await?;
        }
        self.introduce().await?;
        for shard in &self.shards {
            shard.replica.follow(&shard.primary).await?;
        }
        self.settled().await
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.shards.iter().flat_map(|shard| [&shard.primary, &shard.replica])
    }

    pub fn url(&self) -> String {
        let all: Vec<String> = self.nodes().map(Node::address).collect();
        format!("redis-cluster://{}", all.join(","))
    }

    /// Which shard had the slot of a name at the start.
    pub fn home(name: &str) -> usize {
        let slot = slot(name);
        (0..PRIMARIES).find(|at| slot < (at + 1) * SLOTS / PRIMARIES).unwrap_or_default()
    }

    /// Waits until all nodes know each other.
    async fn introduce(&self) -> Result<()> {
        let first = &self.shards[0].primary;
        let (begun, mut asked) = (Instant::now(), None::<Instant>);
        while !self.all_know_each_other().await? {
            if asked.is_none_or(|at| at.elapsed() > AGAIN) {
                asked = Some(Instant::now());
                let known: String = first.ask(&["CLUSTER", "NODES"]).await?;
                for node in self.nodes().filter(|node| !known.contains(&node.id)) {
                    first.meet(node).await?;
                }
            }
            ensure!(begun.elapsed() < PATIENCE, "the nodes do not get to know each other");
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn all_know_each_other(&self) -> Result<bool> {
        for node in self.nodes() {
            let list: String = node.ask(&["CLUSTER", "NODES"]).await?;
            let knows_all = self.nodes().all(|other| list.contains(&other.id));
            if !knows_all || list.contains("handshake") || list.contains("fail") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until every node serves, all agree on who is who, and replicas have what their primaries have.
    pub async fn settled(&self) -> Result<()> {
        let begun = Instant::now();
        while !self.is_settled().await? {
            ensure!(begun.elapsed() < PATIENCE, "the cluster does not settle");
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn is_settled(&self) -> Result<bool> {
        for node in self.nodes() {
            let info: String = node.ask(&["CLUSTER", "INFO"]).await?;
            if !info.contains("cluster_state:ok") || !info.contains("cluster_slots_assigned:16384")
            {
                return Ok(false);
            }
            let list: String = node.ask(&["CLUSTER", "NODES"]).await?;
            let is = |node: &Node, role: &str| {
                list.lines().any(|line| line.starts_with(&node.id) && line.contains(role))
            };
            let all = self
                .shards
                .iter()
                .all(|shard| is(&shard.primary, "master") && is(&shard.replica, "slave"));
            if !all {
                return Ok(false);
            }
        }
        for shard in &self.shards {
            if !shard.replica.has_all_of(&shard.primary).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves the slot of a name to another shard, with all of its keys, as `redis-cli --cluster reshard` does.
    pub async fn move_slot(&self, name: &str, from: usize, to: usize) -> Result<()> {
        let (source, target) = (&self.shards[from].primary, &self.shards[to].primary);
        let slot = slot(name).to_string();
        target.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source.id]).await?;
        source.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.id]).await?;
        loop {
            let keys: Vec<String> = source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await?;
            let Some(_) = keys.first() else { break };
            let port = target.port.to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            source.ask::<()>(&words).await?;
        }
        for node in [target, source] {
            node.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &target.id]).await?;
        }
        Ok(())
    }

    /// A polite failover: the primary waits until its replica has everything. Tells how long it took.
    pub async fn fail_over(&mut self, at: usize) -> Result<Duration> {
        let shard = &mut self.shards[at];
        let begun = Instant::now();
        shard.replica.takes_over().await?;
        std::mem::swap(&mut shard.primary, &mut shard.replica);
        let took = begun.elapsed();
        self.settled().await?;
        Ok(took)
    }

    /// Kills a primary, and tells how long it took until the cluster had replaced it.
    pub async fn kill_primary(&mut self, at: usize) -> Result<Duration> {
        let shard = &mut self.shards[at];
        let begun = Instant::now();
        shard.primary.kill()?;
        shard.replica.becomes_primary().await?;
        std::mem::swap(&mut shard.primary, &mut shard.replica);
        Ok(begun.elapsed())
    }

    /// Puts a new node in the place of an old one, as in an upgrade: the new one follows the primary, takes over politely if
    /// the old one is the primary, and the old one is shut down and forgotten.
    pub async fn replace(&mut self, at: usize, which: Which, silence: Duration) -> Result<()> {
        let new = Node::start(silence).await?;
        self.shards[at].primary.meet(&new).await?;
        self.all_meet(&new).await?;
        new.follow(&self.shards[at].primary).await?;
        let begun = Instant::now();
        while !new.has_all_of(&self.shards[at].primary).await? {
            ensure!(begun.elapsed() < PATIENCE, "a new node does not follow");
            sleep(LOOK).await;
        }
        let shard = &mut self.shards[at];
        let old = match which {
            Which::Replica => std::mem::replace(&mut shard.replica, new),
            Which::Primary => {
                new.takes_over().await?;
                std::mem::replace(&mut shard.primary, new)
            }
        };
        self.settled().await?;
        old.shut_down().await?;
        for node in self.nodes() {
            node.ask::<()>(&["CLUSTER", "FORGET", &old.id]).await?;
        }
        self.settled().await
    }

    /// Waits until the new node and all others know each other.
    async fn all_meet(&self, new: &Node) -> Result<()> {
        let begun = Instant::now();
        loop {
            let list: String = new.ask(&["CLUSTER", "NODES"]).await?;
            let mut all =
                !list.contains("handshake") && self.nodes().all(|node| list.contains(&node.id));
            for node in self.nodes() {
                let list: String = node.ask(&["CLUSTER", "NODES"]).await?;
                all &= list.contains(&new.id) && !list.contains("handshake");
            }
            if all {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "a new node is not known to all");
            sleep(LOOK).await;
        }
    }
}

/// One of the two nodes of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Primary,
    Replica,
}

impl Node {
    async fn meet(&self, other: &Self) -> Result<()> {
        let (port, bus) = (other.port.to_string(), other.bus().to_string());
        self.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await
    }

    /// Refused for as long as it does not know its primary.
    async fn follow(&self, primary: &Self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let Err(error) = self.ask::<()>(&["CLUSTER", "REPLICATE", &primary.id]).await else {
                return Ok(());
            };
            if begun.elapsed() > PATIENCE {
                return Err(error).context("a replica does not take its primary");
            }
            sleep(LOOK).await;
        }
    }

    /// Politely: its primary waits until it has everything.
    async fn takes_over(&self) -> Result<()> {
        let (begun, mut asked) = (Instant::now(), None::<Instant>);
        while !self.is_primary().await? {
            if asked.is_none_or(|at| at.elapsed() > GIVEN_UP) {
                // It is refused by one that has just become a primary.
                let _ = self.ask::<()>(&["CLUSTER", "FAILOVER"]).await;
                asked = Some(Instant::now());
            }
            ensure!(begun.elapsed() < PATIENCE, "a replica does not take over");
            sleep(CLOSE_LOOK).await;
        }
        Ok(())
    }

    /// By itself, since the others miss its primary.
    async fn becomes_primary(&self) -> Result<()> {
        let begun = Instant::now();
        while !self.is_primary().await? {
            ensure!(
                begun.elapsed() < PATIENCE,
                "nobody takes the place of a primary that was killed"
            );
            sleep(CLOSE_LOOK).await;
        }
        Ok(())
    }

    async fn is_primary(&self) -> Result<bool> {
        Ok(self.info("role").await?.as_deref() == Some("master"))
    }

    async fn has_all_of(&self, primary: &Self) -> Result<bool> {
        let offset = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
        let has = offset(primary.info("master_repl_offset").await?);
        let port = format!("port={},", self.port);
        let is_online = primary.replication().await?.lines().any(|line| {
            line.starts_with("slave") && line.contains(&port) && line.contains("state=online")
        });
        let is_up = self.info("master_link_status").await?.as_deref() == Some("up");
        Ok(is_up && is_online && offset(self.info("slave_repl_offset").await?) >= has)
    }

    /// One field of what it says about replication.
    async fn info(&self, field: &str) -> Result<Option<String>> {
        let info = self.replication().await?;
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned()))
    }

    async fn replication(&self) -> Result<String> {
        self.ask(&["INFO", "replication"]).await
    }
}

/// The slot of a name: CRC-16/XMODEM.
fn slot(name: &str) -> usize {
    let shift = |crc: u16, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
    let step = |crc: u16, byte: u8| (0..8).fold(crc ^ (u16::from(byte) << 8), shift);
    usize::from(name.bytes().fold(0, step)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` tells.
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("123456789"), 12_739);
        assert_eq!(Cluster::home("foo"), 2);
    }
}
