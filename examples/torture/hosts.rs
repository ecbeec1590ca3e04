//! Servers on hosts of their own: a primary with two replicas and three sentinels, or a cluster of six nodes. They are parted
//! from each other and from the workers, stopped and killed. Who is the primary then, they find out among themselves.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::common::cluster::{home, slot_of};
use crate::common::port::Host;
use crate::common::sentinels::told;
use crate::common::{Admin, Cluster, Server, Watched, clock};
use crate::reigns::Reigns;
use crate::schedule::{Blow, Far, Near, ServerFault, Wire};
use crate::settings::{self, Topology};
use crate::stage::Log;
use crate::verdict::Break;
use crate::wires::{self, Wires};

/// How long a server may be silent before the others count it as gone, in ms: so long that a busy machine makes no failover,
const PATIENT: &str = "15000";
/// and while something is broken.
const BRISK: &str = "1000";

/// Longer than the servers need to agree: sentinels whose first attempt fails wait for twice their limit of three seconds, and tell
/// a primary that comes back that it is none after ten. One that got no processor for two seconds does nothing for thirty.
const AGREED: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(50);

/// After so many seconds of silence a server asks whether a client is there, and gives it three more.
const DEAD_AFTER: &str = "2";
/// By then servers have noticed who is dead.
pub const BURIED: Duration = Duration::from_secs(8);

enum Servers {
    Watched(Watched),
    Cluster(Cluster),
}

/// The servers that have the same data.
struct Shard {
    members: Vec<usize>,
    primary: usize,
    /// What the servers call the history of their data. Each new primary begins one.
    history: String,
    reigns: Reigns,
}

pub struct Hosts {
    servers: Servers,
    pub wires: Arc<Wires>,
    workers: usize,
    shards: Vec<Shard>,
    /// Whether grants count only when all replicas have them: then no failover excuses anything.
    acknowledged: bool,
    /// When all servers were last seen to agree.
    pub well: u64,
    pub log: Log,
}

impl Hosts {
    pub async fn set(topology: Topology) -> Self {
        let (count, workers) = (topology.servers(), topology.workers());
        let wires = Arc::new(Wires::lay(count, workers).await);
        let next = Cell::new(0);
        let place = || wires::server(next.replace((next.get() + 1) % count));
        // Each write is in the file before it is answered: SIGKILL takes nothing back.
        // The end of a worker that is killed while it is cut off reaches no server: the servers have to ask.
        let keeps = || {
            let setup = Server::builder().on(place()).set("tcp-keepalive", DEAD_AFTER);
            setup.set("appendonly", "yes").set("appendfsync", "no")
        };
        let (servers, groups) = if topology.is_cluster() {
            let cluster = Cluster::start_as(6, 3, keeps).await;
            (Servers::Cluster(cluster), vec![vec![0, 3], vec![1, 4], vec![2, 5]])
        } else {
            let watched = Watched::set_up(2, keeps, || Server::builder().on(place())).await;
            (Servers::Watched(watched), vec![vec![0, 1, 2]])
        };
        let shard = |members: Vec<usize>| {
            let all = match &servers {
                Servers::Watched(watched) => &watched.servers,
                Servers::Cluster(cluster) => &cluster.nodes,
            };
            let reigns = Reigns::of(members.iter().map(|member| all[*member].address()));
            Shard { primary: members[0], members, history: String::new(), reigns }
        };
        let shards = groups.into_iter().map(shard).collect();
        let mut hosts = Self {
            servers,
            wires,
            workers,
            shards,
            acknowledged: topology.is_acknowledged(),
            well: clock::now(),
            log: Log::default(),
        };
        hosts.count_as_gone_after(PATIENT).await;
        hosts.settle().await;
        hosts
    }

    pub fn url(&self) -> String {
        match &self.servers {
            Servers::Watched(watched) => watched.url(),
            Servers::Cluster(cluster) => cluster.url(),
        }
    }

    fn servers(&self) -> &[Server] {
        match &self.servers {
            Servers::Watched(watched) => &watched.servers,
            Servers::Cluster(cluster) => &cluster.nodes,
        }
    }

    /// What runs on a host.
    fn processes(&self, host: usize) -> Vec<&Server> {
        let sentinel = match &self.servers {
            Servers::Watched(watched) => Some(&watched.sentinels[host]),
            Servers::Cluster(_) => None,
        };
        [&self.servers()[host]].into_iter().chain(sentinel).collect()
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers().iter().map(Server::address).collect()
    }

    pub async fn keys(&self) -> Vec<String> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(self.servers()[shard.primary].admin().await.keys().await);
        }
        all
    }

    pub async fn channels(&self) -> Vec<String> {
        let mut all = Vec::new();
        for server in self.servers() {
            let admin = server.admin().await;
            all.extend(admin.channels().await);
            let ask = ["PUBSUB", "SHARDCHANNELS"];
            all.extend(admin.try_cmd::<Vec<String>>(&ask).await.unwrap_or_default());
        }
        // Sentinels talk to each other over this one.
        all.retain(|channel| channel != "__sentinel__:hello");
        all.sort();
        all.dedup();
        all
    }

    pub async fn suffer(&mut self, fault: ServerFault) {
        let ServerFault::Blow(lock, blow, time) = fault else {
            unreachable!("that is for servers without hosts")
        };
        self.settle().await;
        self.count_as_gone_after(BRISK).await;
        let shard = self.shard_of(lock);
        match blow {
            Blow::Part { near, far, way, wire } => {
                let (near, far) = self.sides(shard, near, far);
                let cut = self.wires.cut(&near, &far, way, wire).await;
                sleep(time).await;
                self.wires.mend(cut).await;
            }
            Blow::Slow { near, way } => {
                let host = wires::server(self.meant(shard, near));
                self.wires.slow_down(&host, way).await.expect("as when the wires were laid");
                sleep(time).await;
                self.wires.restore(&host, way).await;
            }
            Blow::Freeze(near) => {
                let processes = self.processes(self.meant(shard, near));
                processes.iter().for_each(|process| process.pause());
                sleep(time).await;
                processes.iter().for_each(|process| process.resume());
            }
            Blow::Kill(near) => {
                let processes = self.processes(self.meant(shard, near));
                processes.iter().for_each(|process| process.kill());
                sleep(time).await;
                for process in processes {
                    process.start_again().await;
                }
            }
        }
        self.log.tally.add(&told_of(blow), 1);
        self.settle().await;
        self.count_as_gone_after(PATIENT).await;
    }

    /// The addresses of both sides.
    fn sides(&self, shard: usize, near: Near, far: Far) -> (Vec<Ipv4Addr>, Vec<Ipv4Addr>) {
        let server = self.meant(shard, near);
        let goes_along =
            |worker: &usize| near == Near::PrimaryAndWorkers && *worker < self.workers / 2;
        let (with_it, others) = (0..self.workers).partition::<Vec<_>, _>(goes_along);
        let address = |host: Host| host.address;
        let mut sides = (vec![wires::server(server).address], Vec::new());
        sides.0.extend(with_it.into_iter().map(wires::client).map(address));
        if far != Far::Workers {
            let servers = (0..self.servers().len()).filter(|other| *other != server);
            sides.1.extend(servers.map(wires::server).map(address));
        }
        if far != Far::Servers {
            sides.1.extend(others.into_iter().map(wires::client).map(address));
        }
        sides
    }

    fn meant(&self, shard: usize, near: Near) -> usize {
        let Shard { members, primary, .. } = &self.shards[shard];
        match near {
            Near::Primary | Near::PrimaryAndWorkers => *primary,
            Near::Replica => *members.iter().find(|one| *one != primary).expect("a replica"),
        }
    }

    /// No slot moves.
    fn shard_of(&self, lock: &str) -> usize {
        match self.servers {
            Servers::Watched(_) => 0,
            Servers::Cluster(_) => home(slot_of(&settings::key(lock)), self.shards.len()),
        }
    }

    async fn count_as_gone_after(&self, millis: &str) {
        match &self.servers {
            Servers::Watched(watched) => watched.set("down-after-milliseconds", millis).await,
            Servers::Cluster(cluster) => {
                for node in &cluster.nodes {
                    node.admin().await.config_set("cluster-node-timeout", millis).await;
                }
            }
        }
    }
}

/// Who is the primary.
impl Hosts {
    /// Waits until all agree on it, and each replica has what its primary has. Where a primary was replaced since they were last seen
    /// to agree, both may have granted from when the new one took over until the old one knew of it.
    pub async fn settle(&mut self) {
        let begun = Instant::now();
        let found = loop {
            if let Some(found) = self.look().await {
                break found;
            }
            if begun.elapsed() > AGREED {
                let said = self.said().await;
                return self.log.tally.wrong(format!("the servers do not agree: {said}"));
            }
            sleep(LOOK).await;
        };
        let (well, now) = (self.well, clock::now());
        while !self.shards.iter().all(|shard| shard.reigns.are_known(now)) {
            sleep(LOOK).await;
        }
        self.well = now;
        for (at, (primary, history)) in found.into_iter().enumerate() {
            let known = &mut self.shards[at];
            let before = std::mem::replace(&mut known.history, history);
            let is_same = std::mem::replace(&mut known.primary, primary) == primary;
            if before.is_empty() || before == known.history {
                continue;
            }
            // One that was started again has all its data. But another one may have taken its place, and given it back.
            let what = if is_same { "a primary came back" } else { "a primary was replaced" };
            self.log.tally.add(what, 1);
            if !self.acknowledged {
                let (from, to) = self.shards[at].reigns.changed(well).unwrap_or((well, now));
                let both = "ms for which two primaries may have granted";
                self.log.tally.add(both, (to - from) / 1_000_000);
                let locks = settings::labels(|name| self.shard_of(name) == at);
                let breaks = locks.iter().map(|lock| Break::taken_over(lock, from, to));
                self.log.breaks.extend(breaks);
            }
        }
    }

    /// What each of them says, for those who ask why they do not agree.
    async fn said(&self) -> String {
        let mut all = Vec::new();
        for (host, server) in self.servers().iter().enumerate() {
            let said = Said::by(server).await;
            let said = said.as_ref().map(|said| {
                let fields = ["role", "master_host", "master_link_status", "connected_slaves"];
                fields.map(|field| said.0.get(field).map_or("-", |word| word.as_str())).join(" ")
            });
            all.push(format!("server {host}: {}", said.unwrap_or_else(|| "nothing".to_owned())));
        }
        if let Servers::Watched(watched) = &self.servers {
            for (host, sentinel) in watched.sentinels.iter().enumerate() {
                let admin = Admin::connect(&sentinel.url()).await;
                let mut words = Vec::new();
                for field in ["ip", "flags", "num-slaves", "num-other-sentinels"] {
                    words.push(told(&admin, field).await.unwrap_or_else(|| "-".to_owned()));
                }
                all.push(format!("sentinel {host}: {}", words.join(" ")));
            }
        }
        all.join("; ")
    }

    /// The primary of each shard, with its history. `None`: not all servers agree yet.
    async fn look(&self) -> Option<Vec<(usize, String)>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let mut said = Vec::new();
            for member in &shard.members {
                said.push((*member, Said::by(&self.servers()[*member]).await?));
            }
            let is_primary = |(_, said): &&(usize, Said)| said.is("role", "master");
            let primaries: Vec<_> = said.iter().filter(is_primary).collect();
            let [(primary, leads)] = primaries[..] else { return None };
            let address = self.servers()[*primary].address().ip().to_string();
            // Asked once more, a replica has at least what its primary had before.
            for member in shard.members.iter().filter(|member| *member != primary) {
                let follows = Said::by(&self.servers()[*member]).await?;
                let has = follows.number("slave_repl_offset") >= leads.number("master_repl_offset");
                let is_linked = follows.is("master_link_status", "up");
                if !(has && is_linked && follows.is("master_host", &address)) {
                    return None;
                }
            }
            // What it was sent comes back only when its file has all of it.
            let is_rewritten = |said: &Said| {
                said.is("aof_rewrite_in_progress", "0") && said.is("aof_rewrite_scheduled", "0")
            };
            if !said.iter().all(|(_, said)| is_rewritten(said)) {
                return None;
            }
            found.push((*primary, leads.0.get("master_replid")?.clone()));
        }
        let primaries: Vec<usize> = found.iter().map(|(primary, _)| *primary).collect();
        let agreed = match &self.servers {
            Servers::Watched(watched) => is_watched(watched, primaries[0]).await,
            Servers::Cluster(cluster) => is_known(cluster, &primaries).await,
        };
        agreed?.then_some(found)
    }
}

/// What a server says of itself.
struct Said(HashMap<String, String>);

impl Said {
    async fn by(server: &Server) -> Option<Self> {
        let text: String = server.admin().await.try_cmd(&["INFO"]).await.ok()?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Some(Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }

    fn is(&self, field: &str, value: &str) -> bool {
        self.0.get(field).is_some_and(|said| said == value)
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.0.get(field)?.parse().ok()
    }
}

/// Whether every sentinel knows this primary, the replicas and the other sentinels, and misses none of them.
async fn is_watched(watched: &Watched, primary: usize) -> Option<bool> {
    let address = watched.servers[primary].address().ip().to_string();
    for sentinel in &watched.sentinels {
        let admin = Admin::connect(&sentinel.url()).await;
        let expected =
            [("ip", address.as_str()), ("flags", "master"), ("num-other-sentinels", "2")];
        for (field, value) in expected.into_iter().chain([("num-slaves", "2")]) {
            if told(&admin, field).await? != value {
                return Some(false);
            }
        }
    }
    Some(true)
}

/// Whether every node knows these primaries and no other, and misses none of the nodes.
async fn is_known(cluster: &Cluster, primaries: &[usize]) -> Option<bool> {
    for node in &cluster.nodes {
        let list: String = node.admin().await.try_cmd(&["CLUSTER", "NODES"]).await.ok()?;
        let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split(' ').collect()).collect();
        let leads = |line: &&Vec<&str>| line[2].contains("master");
        let ids: Vec<_> = lines.iter().filter(leads).map(|line| line[0]).collect();
        let is_known = |primary: &usize| ids.contains(&cluster.ids[*primary].as_str());
        let is_missed = |line: &Vec<&str>| line[2].contains("fail");
        let agrees = ids.len() == primaries.len() && primaries.iter().all(is_known);
        let info: String = node.admin().await.try_cmd(&["CLUSTER", "INFO"]).await.ok()?;
        if !agrees || lines.iter().any(is_missed) || !info.contains("cluster_state:ok") {
            return Some(false);
        }
    }
    Some(true)
}

fn told_of(blow: Blow) -> String {
    let whom = |near| match near {
        Near::Primary => "a primary",
        Near::Replica => "a replica",
        Near::PrimaryAndWorkers => "a primary and half of the workers",
    };
    match blow {
        Blow::Part { near, far, way, wire } => {
            let far = match far {
                Far::All => "all others",
                Far::Servers => "the other servers",
                Far::Workers => "the workers",
            };
            let wire = if let Wire::Lossy(_) = wire { "lossy" } else { "cut" };
            format!("{wire}: {} from {far}, {}", whom(near), way.named())
        }
        Blow::Slow { near, way } => format!("slow: {}, {}", whom(near), way.named()),
        Blow::Freeze(near) => format!("stopped: {}", whom(near)),
        Blow::Kill(near) => format!("killed: {}", whom(near)),
    }
}
