//! A primary with replicas of one's own, and the sentinels that watch it.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;

use super::admin::Admin;
use super::server::{Server, Setup};
use super::site::Front;
use super::wait::eventually;

/// Sentinels know each other after two seconds.
const START: Duration = Duration::from_secs(40);

/// A failover takes some seconds. But a sentinel that had no processor for two seconds does nothing for the next thirty: Redis
/// calls that TILT.
pub const FAILOVER: Duration = Duration::from_secs(120);

/// Longer than any test: no primary is counted as dead because the machine does not run it.
const NEVER: &str = "600000";

/// How soon a primary counts as dead where a test is about that, in milliseconds.
const BRISK: &str = "500";

/// How the sentinels call the primary.
pub const SERVICE: &str = "orders";

/// A primary, its replicas, and three sentinels. Nobody takes over unless a test wants it. Dropped, all of it is killed.
#[derive(Debug)]
pub struct Watched {
    /// First the one that is the primary at the start.
    pub servers: Vec<Server>,
    pub sentinels: Vec<Server>,
}

impl Watched {
    /// A primary with one replica.
    pub async fn start() -> Self {
        Self::with_replicas(1).await
    }

    pub async fn with_replicas(replicas: usize) -> Self {
        Self::set_up(replicas, Server::builder, Server::builder).await
    }

    /// The servers are set up like this, the first of them the primary, and the sentinels like that.
    pub async fn set_up(
        replicas: usize,
        server: impl Fn() -> Setup,
        sentinel: impl Fn() -> Setup,
    ) -> Self {
        let servers = primary_and_replicas(replicas, server).await;
        let watch = monitor(servers[0].address());
        let sentinel = || sentinel().sentinel(watch.clone()).start();
        let sentinels = join_all((0..3).map(|_| sentinel())).await;
        let watched = Self { servers, sentinels };
        watched.settled(replicas).await;
        watched
    }

    /// Waits until each sentinel knows the others, and all replicas.
    pub async fn settled(&self, replicas: usize) {
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let admin = Admin::connect(&sentinel.url()).await;
            let knows = async || {
                let (others, slaves) =
                    (told(&admin, "num-other-sentinels").await, told(&admin, "num-slaves").await);
                let reachable = told(&admin, "flags").await.is_some_and(|flags| flags == "master");
                reachable && others.as_deref() == Some("2") && slaves == Some(replicas.to_string())
            };
            eventually(START, "the sentinels know all others", knows).await;
        }
    }

    /// From now on, a primary that says nothing for half a second counts as dead: a replica takes over, if there is one.
    pub async fn notices_the_dead(&self) {
        self.set("down-after-milliseconds", BRISK).await;
    }

    /// Has the sentinels replace a primary that has died, and waits until they have; by which server. That one stays.
    pub async fn replaces(&self, dead: usize) -> usize {
        self.notices_the_dead().await;
        let new = self.switched_from(dead).await;
        self.set("down-after-milliseconds", NEVER).await;
        new
    }

    /// Sets an option of all sentinels.
    pub async fn set(&self, option: &str, value: &str) {
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let admin = Admin::connect(&sentinel.url()).await;
            admin.cmd::<()>(&["SENTINEL", "SET", SERVICE, option, value]).await;
        }
    }

    pub fn url(&self) -> String {
        self.url_of(&self.sentinels.iter().collect::<Vec<_>>())
    }

    /// The URL with these sentinels alone.
    pub fn url_of(&self, sentinels: &[&Server]) -> String {
        let hosts: Vec<_> = sentinels.iter().map(|one| one.address().to_string()).collect();
        format!("redis-sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// Has the first living sentinel make another server the primary, although the primary lives.
    pub async fn fail_over(&self) {
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_up()).expect("a sentinel");
        let admin = Admin::connect(&sentinel.url()).await;
        let began = async || admin.try_cmd::<()>(&["SENTINEL", "FAILOVER", SERVICE]).await.is_ok();
        // Not before it has a replica that it likes.
        eventually(START, "the failover begins", began).await;
    }

    /// Waits until every living sentinel names another primary than this one; which one.
    pub async fn switched_from(&self, old: usize) -> usize {
        let old = self.servers[old].port().to_string();
        let mut new = String::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let admin = Admin::connect(&sentinel.url()).await;
            let switched = async || {
                new = told(&admin, "port").await.unwrap_or_default();
                !new.is_empty() && new != old
            };
            eventually(FAILOVER, "the sentinels name another primary", switched).await;
        }
        let is_it = |server: &Server| server.port().to_string() == new;
        self.servers.iter().position(is_it).expect("one of ours")
    }
}

/// The primary and the sentinels. A replica that takes over is reached where it is.
impl Front for Watched {
    fn url(&self) -> String {
        self.url()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let primary_and_sentinels = self.servers[..1].iter().chain(&self.sentinels);
        primary_and_sentinels.map(Server::address).collect()
    }

    fn url_at(&self, addresses: &[SocketAddr]) -> String {
        let listed: Vec<_> = addresses[1..].iter().map(SocketAddr::to_string).collect();
        format!("redis-sentinel://{}/{SERVICE}", listed.join(","))
    }
}

/// The lines of a sentinel that watches the primary at this address.
pub fn monitor(primary: SocketAddr) -> String {
    let (address, port) = (primary.ip(), primary.port());
    format!(
        "sentinel monitor {SERVICE} {address} {port} 2\n\
         sentinel down-after-milliseconds {SERVICE} {NEVER}\n\
         sentinel failover-timeout {SERVICE} 3000\n\
         sentinel parallel-syncs {SERVICE} 1"
    )
}

/// A primary that so many replicas follow.
pub async fn primary_and_replicas(replicas: usize, setup: impl Fn() -> Setup) -> Vec<Server> {
    let primary = setup().start().await;
    let address = primary.address();
    let replica = || setup().replica_at(address).start();
    let mut servers = vec![primary];
    servers.extend(join_all((0..replicas).map(|_| replica())).await);
    follow(&servers[0], replicas).await;
    servers
}

/// Waits until so many replicas acknowledge what this primary writes. A replica whose link is up may still miss all of it.
pub async fn follow(primary: &Server, replicas: usize) {
    let admin = primary.admin().await;
    let followed = async || {
        admin.cmd::<()>(&["SET", "probe", "1"]).await;
        let acknowledged: usize = admin.cmd(&["WAIT", &replicas.to_string(), "100"]).await;
        admin.cmd::<()>(&["DEL", "probe"]).await;
        acknowledged >= replicas
    };
    eventually(START, "the replicas follow", followed).await;
}

/// One field of what a sentinel says of the primary.
pub async fn told(admin: &Admin, field: &str) -> Option<String> {
    let all: Vec<String> = admin.try_cmd(&["SENTINEL", "MASTER", SERVICE]).await.ok()?;
    all.chunks_exact(2).find(|pair| pair[0] == field).map(|pair| pair[1].clone())
}
