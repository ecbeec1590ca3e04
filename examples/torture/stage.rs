//! The servers of the run, whichever they are, and what befell them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parklock::{Client, Config, Error, Layout};
use tokio::time::sleep;

use crate::common::{Admin, Proxy, clock};
use crate::eavesdropper::Place;
use crate::hosts::Hosts;
use crate::nodes::Nodes;
use crate::pair::Pair;
use crate::schedule::{Blow, ServerFault, Takes, Trial, Upheaval};
use crate::settings::{self, Kind, Topology};
use crate::verdict::{Break, Tally};
use crate::wires::Wires;

pub enum Stage {
    Pair(Box<Pair>),
    Cluster(Box<Nodes>),
    Hosts(Box<Hosts>),
}

/// What the judge has to know of the servers.
#[derive(Debug, Default)]
pub struct Log {
    /// When Redis forgot what it had granted.
    pub breaks: Vec<Break>,
    /// When the primary was restarted and kept what it had granted.
    pub restarts: Vec<u64>,
    /// What a hold of these locks may have outlived.
    pub spans: Vec<Span>,
    /// Whether the keeper is to be left alone.
    pub spared: Arc<AtomicBool>,
    pub tally: Tally,
}

impl Log {
    pub fn add(&mut self, other: Self) {
        self.breaks.extend(other.breaks);
        self.restarts.extend(other.restarts);
        self.spans.extend(other.spans);
        self.tally.merge(other.tally);
    }
}

/// Something that befell some locks between two moments.
#[derive(Debug)]
pub struct Span {
    pub what: &'static str,
    pub locks: Vec<String>,
    pub from: u64,
    pub to: u64,
}

impl Stage {
    pub async fn set(topology: Topology, seed: u64) -> Self {
        match topology {
            Topology::Pair | Topology::Redisson | Topology::Sessions => {
                Self::Pair(Box::new(Pair::set(topology, seed).await))
            }
            Topology::Cluster { .. } => {
                Self::Cluster(Box::new(Nodes::set(topology.is_acknowledged()).await))
            }
            Topology::Hosts { .. } => Self::Hosts(Box::new(Hosts::set(topology).await)),
        }
    }

    pub fn url(&self) -> String {
        match self {
            Self::Pair(pair) => pair.switch.url(),
            Self::Cluster(nodes) => nodes.url(),
            Self::Hosts(hosts) => hosts.url(),
        }
    }

    /// The servers whose silence excuses those who wait: each request in a cluster needs two of six, if replicas acknowledge.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Pair(_) => Vec::new(),
            Self::Cluster(nodes) => nodes.addresses(),
            Self::Hosts(hosts) => hosts.addresses(),
        }
    }

    /// Where all servers are.
    pub fn place(&self) -> Place {
        match self {
            Self::Pair(pair) => Place::Front(pair.switch.address()),
            Self::Cluster(nodes) => Place::Nodes(nodes.addresses()),
            Self::Hosts(hosts) => Place::Nodes(hosts.addresses()),
        }
    }

    /// A proxy before all of it. Where servers have hosts, the network itself breaks.
    pub async fn proxy(&self, seed: u64) -> Option<Proxy> {
        match self {
            Self::Pair(pair) => Some(Proxy::seeded(pair.switch.address(), seed).await),
            Self::Cluster(nodes) => Some(nodes.proxy(seed).await),
            Self::Hosts(_) => None,
        }
    }

    pub fn wires(&self) -> Option<Arc<Wires>> {
        if let Self::Hosts(hosts) = self { Some(Arc::clone(&hosts.wires)) } else { None }
    }

    /// Whether faults may take so long that they get in each other's way.
    pub fn is_slow(&self) -> bool {
        matches!(self, Self::Cluster(_) | Self::Hosts(_))
    }

    /// Until when all is known that befell the servers when nothing was broken. Where they fail over by themselves, we learn of it later.
    pub fn is_known_until(&self) -> u64 {
        if let Self::Hosts(hosts) = self { hosts.well } else { u64::MAX }
    }

    pub fn spared(&self) -> Arc<AtomicBool> {
        let log = match self {
            Self::Pair(pair) => &pair.log,
            Self::Cluster(nodes) => &nodes.log,
            Self::Hosts(hosts) => &hosts.log,
        };
        Arc::clone(&log.spared)
    }

    pub fn log(&mut self) -> &mut Log {
        match self {
            Self::Pair(pair) => &mut pair.log,
            Self::Cluster(nodes) => &mut nodes.log,
            Self::Hosts(hosts) => &mut hosts.log,
        }
    }

    /// What has been written there since this was last asked.
    pub fn take_log(&mut self) -> Log {
        let spared = self.spared();
        std::mem::replace(self.log(), Log { spared, ..Log::default() })
    }

    pub async fn into_log(mut self) -> Log {
        match &mut self {
            Self::Pair(_) => {}
            Self::Cluster(nodes) => nodes.count_refusals().await,
            // The last one may have come when nothing was broken.
            Self::Hosts(hosts) => hosts.settle().await,
        }
        self.take_log()
    }

    pub async fn suffer(&mut self, fault: ServerFault) {
        self.log().tally.moment(format!("now: {fault:?}"));
        let has_happened = match self {
            Self::Pair(pair) => pair.suffer(fault).await,
            Self::Cluster(nodes) => nodes.suffer(fault).await,
            Self::Hosts(hosts) => {
                hosts.suffer(fault).await;
                true
            }
        };
        let tally = &mut self.log().tally;
        tally.moment(format!("over: {fault:?}"));
        let left_out = if has_happened { "" } else { ", in vain" };
        tally.add(&format!("server: {}{left_out}", word(fault)), 1);
    }

    pub async fn keys(&self) -> Vec<String> {
        match self {
            Self::Pair(pair) => pair.admin().await.keys().await,
            Self::Cluster(nodes) => nodes.keys().await,
            Self::Hosts(hosts) => hosts.keys().await,
        }
    }

    pub async fn channels(&self) -> Vec<String> {
        match self {
            Self::Pair(pair) => pair.admin().await.channels().await,
            Self::Cluster(nodes) => nodes.channels().await,
            Self::Hosts(hosts) => hosts.channels().await,
        }
    }
}

/// Mostly nobody has the lock. So DEL and `force_unlock` are tried so often, and so long after each other, until they strike somebody.
const TRIES: usize = 60;
const PAUSE: Duration = Duration::from_millis(5);

/// Whether it was there.
pub async fn delete(admin: &Admin, key: &str, lock: &'static str, log: &mut Log) -> bool {
    for _ in 0..TRIES {
        let from = clock::now();
        if admin.cmd::<i64>(&["DEL", key]).await == 1 {
            log.breaks.push(Break::loose(Some(lock), from, clock::now()));
            return true;
        }
        sleep(PAUSE).await;
    }
    false
}

/// As an operator does it, with a client of his own. Whether somebody had it.
pub async fn force_unlock(layout: Layout, url: &str, lock: &'static str, log: &mut Log) -> bool {
    let config = Config::default().layout(layout);
    let Ok(client) = Client::connect_with(url, config).await else { return false };
    let mut taken = Ok(false);
    for _ in 0..TRIES {
        let from = clock::now();
        taken = force_unlock_once(&client, lock).await;
        // If nobody knows whether it was, it may have been.
        if matches!(taken, Ok(true) | Err(Error::Indeterminate { .. })) {
            log.breaks.push(Break::loose(Some(lock), from, clock::now()));
        }
        if !matches!(taken, Ok(false)) {
            break;
        }
        sleep(PAUSE).await;
    }
    client.close().await;
    match taken {
        Ok(taken) => taken,
        Err(Error::Indeterminate { .. } | Error::Unavailable { .. }) => false,
        Err(error) => {
            log.tally.wrong(format!("force_unlock: {error:?}"));
            false
        }
    }
}

async fn force_unlock_once(client: &Client, lock: &'static str) -> Result<bool, Error> {
    match settings::kind_of(lock) {
        None => client.lock(lock).force_unlock().await,
        Some(Kind::Fair) => client.fair_lock(lock).force_unlock().await,
        Some(Kind::Rw) => client.rw_lock(lock).force_unlock().await,
        Some(Kind::Fenced) => client.redisson().fenced_lock(lock).force_unlock().await,
        Some(Kind::Permits(of)) => {
            client.redisson().expirable_semaphore(lock, of).force_unlock().await
        }
    }
}

fn word(fault: ServerFault) -> &'static str {
    match fault {
        ServerFault::FlushScripts => "scripts flushed",
        ServerFault::KillConnections(_) => "connections killed",
        ServerFault::Pause(_) => "stopped and continued",
        ServerFault::ClientPause(..) => "clients paused",
        ServerFault::MemoryFull(_) => "memory full",
        ServerFault::RestartWithData => "restarted with its data",
        ServerFault::RestartEmpty => "restarted without data",
        ServerFault::Promote(_) => "replica promoted",
        ServerFault::Demote(_) => "primary demoted under its clients",
        ServerFault::Misdirect(_) => "clients led to the replica",
        ServerFault::FlushAll => "FLUSHALL",
        ServerFault::Del(_) => "DEL of a lock",
        ServerFault::ForceUnlock(_) => "force_unlock",
        ServerFault::Kept(Trial::Failover) => "failover under the keeper",
        ServerFault::Kept(Trial::Restart) => "restart under the keeper",
        ServerFault::Kept(Trial::Del) => "DEL under the keeper",
        ServerFault::Kept(Trial::Move) => "slot moved under the keeper",
        ServerFault::Kept(Trial::StandOpen) => "slot left open under the keeper",
        ServerFault::Upheaval(_, Upheaval::Move(_)) => "slot to be moved",
        ServerFault::Upheaval(_, Upheaval::LeaveOpen(..)) => "slot to be left open",
        ServerFault::Upheaval(_, Upheaval::FailOver(Takes::Politely)) => "failover to be made",
        ServerFault::Upheaval(_, Upheaval::FailOver(_)) => "failover to be forced",
        ServerFault::Upheaval(_, Upheaval::Kill(_)) => "primary to be killed",
        ServerFault::Upheaval(_, Upheaval::Zombie(..)) => "primary to be made a zombie",
        ServerFault::Blow(_, Blow::Part { .. }, _) => "host to be parted from others",
        ServerFault::Blow(_, Blow::Slow { .. }, _) => "wire to be made slow",
        ServerFault::Blow(_, Blow::Freeze(_), _) => "host to be stopped",
        ServerFault::Blow(_, Blow::Kill(_), _) => "host to be killed",
    }
}
