//! The servers: which of them a name lies on, and what the judge reads there.

use parklock::Layout;
use parklock_simulated_server::{SLOTS, slot_of};

use std::collections::BTreeMap;

use crate::keyspace;
use crate::plan::{Name, Plan, Topology};
use crate::station::Station;

/// A primary and those that follow it, whether they do so at the moment or not.
#[derive(Default)]
pub struct Shard {
    pub primary: usize,
    pub others: Vec<usize>,
    /// Somebody is taking over from somebody else until then.
    pub busy_until: u64,
}

/// All servers of a world.
pub struct Fleet {
    pub stations: Vec<Station>,
    /// Of a cluster, several; else one.
    pub shards: Vec<Shard>,
    /// Which stations are sentinels.
    pub sentinels: Vec<usize>,
    /// The shard that has each slot of a cluster, and will have it when it is closed.
    owners: Vec<usize>,
    /// Slots that stand open: from which shard to which.
    pub open: BTreeMap<u16, (usize, usize)>,
    /// The last key that came to a slot: to which station, and at which offset of what that station writes.
    pub brought: BTreeMap<u16, (usize, u64)>,
    /// The shard that faults of a server are about.
    pub aim: usize,
}

impl Fleet {
    /// One server.
    pub fn of(station: Station) -> Self {
        Self {
            stations: vec![station],
            shards: vec![Shard::default()],
            sentinels: Vec::new(),
            owners: Vec::new(),
            open: BTreeMap::new(),
            brought: BTreeMap::new(),
            aim: 0,
        }
    }

    /// The servers of a plan, that know nothing of each other yet.
    pub fn planned(plan: &Plan, station: impl Fn() -> Station) -> Self {
        let mut fleet = Self::of(station());
        let (shards, replicas) = (plan.topology.shards(), plan.topology.replicas());
        let sentinels = plan.topology.sentinels();
        fleet.stations = (0..shards * (1 + replicas) + sentinels).map(|_| station()).collect();
        fleet.shards = (0..shards)
            .map(|shard| Shard {
                primary: shard,
                others: (0..replicas).map(|at| shards * (1 + at) + shard).collect(),
                ..Shard::default()
            })
            .collect();
        fleet.sentinels = (fleet.stations.len() - sentinels..fleet.stations.len()).collect();
        if matches!(plan.topology, Topology::Cluster { .. }) {
            let all = usize::from(SLOTS);
            fleet.owners = (0..all).map(|slot| slot * shards / all).collect();
        }
        fleet
    }

    pub fn is_cluster(&self) -> bool {
        !self.owners.is_empty()
    }

    /// The primary that faults of a server are about.
    pub fn station(&mut self) -> &mut Station {
        let at = self.primary();
        &mut self.stations[at]
    }

    pub fn primary(&self) -> usize {
        self.shards[self.aim % self.shards.len()].primary
    }

    /// The slot of a name's keys.
    pub fn slot(layout: Layout, name: &Name) -> u16 {
        slot_of(keyspace::key(layout, name).as_bytes())
    }

    pub fn owner(&self, slot: u16) -> usize {
        self.owners.get(usize::from(slot)).copied().unwrap_or(0)
    }

    pub fn set_owner(&mut self, slot: u16, shard: usize) {
        self.owners[usize::from(slot)] = shard;
    }

    /// The slots that a shard has.
    pub fn slots(&self, shard: usize) -> Vec<u16> {
        (0..SLOTS).filter(|slot| self.is_cluster() && self.owner(*slot) == shard).collect()
    }

    /// The primaries that have keys of a name: two, if its slot stands open.
    pub fn homes(&self, layout: Layout, name: &Name) -> Vec<usize> {
        let slot = Self::slot(layout, name);
        let shards = match self.open.get(&slot) {
            Some((from, to)) if self.is_cluster() => vec![*from, *to],
            _ => vec![self.owner(slot)],
        };
        shards.into_iter().map(|shard| self.shards[shard].primary).collect()
    }

    /// The owner fields of the holders of a name.
    pub fn holders(&mut self, layout: Layout, name: &Name) -> Vec<String> {
        let homes = self.homes(layout, name);
        let at = |at: usize| keyspace::holders(&mut self.stations[at], layout, name);
        homes.into_iter().flat_map(at).collect()
    }

    /// How much of a native name is held.
    pub fn used(&mut self, name: &Name) -> u64 {
        let homes = self.homes(Layout::Native, name);
        let mut at = |at: usize| -> u64 {
            let station = &mut self.stations[at];
            let holders = keyspace::holders(station, Layout::Native, name);
            holders.iter().map(|field| keyspace::part(station, name, field)).sum()
        };
        homes.into_iter().map(&mut at).sum()
    }

    /// The owner fields of its waiters, where they stand in the server.
    pub fn waiters(&mut self, layout: Layout, name: &Name) -> Vec<String> {
        let homes = self.homes(layout, name);
        let at = |at: usize| keyspace::waiters(&mut self.stations[at], layout, name);
        homes.into_iter().flat_map(at).collect()
    }

    /// What a command says of a name that says nothing where the key is not.
    pub fn number(&mut self, layout: Layout, name: &Name, words: &[&str]) -> u64 {
        let homes = self.homes(layout, name);
        homes.into_iter().map(|at| self.stations[at].number(words)).max().unwrap_or(0)
    }

    /// The station at this address.
    pub fn at(&self, host: &str) -> Option<usize> {
        let number: usize = host.strip_prefix("10.0.0.")?.parse().ok()?;
        number.checked_sub(1).filter(|at| *at < self.stations.len())
    }
}

/// Where a station is reached.
pub fn host(station: usize) -> String {
    format!("10.0.0.{}", station + 1)
}

/// The port of all of them.
pub const PORT: u16 = 6_379;
