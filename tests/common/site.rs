//! Where tests of what users lock run: on one server, in a cluster, or on a primary behind sentinels.
//!
//! `PARKLOCK_TEST_TOPOLOGY` says where: `cluster`, `sentinel`, or nothing for one server. A cluster takes seconds to
//! start: so tests use it one after the other, and each finds it empty. No two tests use one at the same time.

use std::env;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::admin::Admin;
use super::cluster::{Cluster, home, slot_of};
use super::sentinels::Watched;
use super::server::Server;

/// Longer than any test, in milliseconds: no server of a site is counted as dead because a test has stopped it.
const NEVER: &str = "600000";

/// What clients connect to.
pub trait Front {
    fn url(&self) -> String;

    /// Everything that a client of it connects to.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// Its URL, if all of that lies at these addresses.
    fn url_at(&self, addresses: &[SocketAddr]) -> String;
}

impl Front for Server {
    fn url(&self) -> String {
        self.url()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address()]
    }

    fn url_at(&self, addresses: &[SocketAddr]) -> String {
        format!("redis://{}", addresses[0])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topology {
    Single,
    Cluster,
    Sentinel,
}

fn topology() -> Topology {
    match env::var("PARKLOCK_TEST_TOPOLOGY").as_deref() {
        Err(_) | Ok("" | "single") => Topology::Single,
        Ok("cluster") => Topology::Cluster,
        Ok("sentinel") => Topology::Sentinel,
        Ok(other) => panic!("PARKLOCK_TEST_TOPOLOGY is {other:?}: neither cluster nor sentinel"),
    }
}

/// Whether a test is left out in a cluster, and why.
pub fn left_out_in_a_cluster(why: &str) -> bool {
    left_out(topology() == Topology::Cluster, why)
}

/// Whether a test is left out everywhere but on one server, and why.
pub fn only_on_one_server(why: &str) -> bool {
    left_out(topology() != Topology::Single, why)
}

fn left_out(is_left_out: bool, why: &str) -> bool {
    if is_left_out {
        eprintln!("LEFT OUT: {why}");
    }
    is_left_out
}

/// Where a test runs. Dropped, it goes to the next test, or ends if this one has damaged it.
#[derive(Debug)]
pub enum Site {
    One(Server),
    Cluster(Lent<Cluster>),
    Watched(Lent<Watched>),
}

impl Site {
    pub async fn start() -> Self {
        match topology() {
            Topology::Single => Self::One(Server::start().await),
            Topology::Cluster => Self::cluster().await,
            Topology::Sentinel => Self::watched().await,
        }
    }

    /// A primary with a replica, behind sentinels, wherever other tests run. Nobody takes over.
    pub async fn watched() -> Self {
        Self::Watched(watched().await)
    }

    /// The same for this test alone: it may have the replica take over.
    pub async fn fails_over() -> Self {
        let alone = Self::Watched(Lent::new(Watched::start().await, &WATCHED));
        alone.damage();
        alone
    }

    /// A cluster, wherever other tests run: three primaries with a replica each.
    pub async fn cluster() -> Self {
        let cluster = match CLUSTERS.take() {
            Some(cluster) => cluster,
            None => {
                let cluster = Cluster::with_replicas().await;
                cluster.count_as_dead_after(NEVER).await;
                cluster
            }
        };
        for node in cluster.primaries() {
            empty(node).await;
        }
        Self::Cluster(Lent::new(cluster, &CLUSTERS))
    }

    pub fn url(&self) -> String {
        Front::url(self)
    }

    pub async fn admin(&self) -> Admin {
        Admin::connect(&self.url()).await
    }

    /// How many connections a client has that uses one lock: for scripts, for channels, and to a sentinel.
    pub fn links(&self) -> usize {
        if matches!(self, Self::Watched(_)) { 3 } else { 2 }
    }

    /// The server that this key of the test's own lies on, for a connection of the test's own.
    pub fn store_of(&self, key: &str) -> String {
        let primaries = self.primaries();
        primaries[home(slot_of(key), primaries.len())].url()
    }

    /// All servers that hold locks.
    pub fn primaries(&self) -> &[Server] {
        match self {
            Self::One(server) => std::slice::from_ref(server),
            Self::Cluster(cluster) => cluster.primaries(),
            Self::Watched(watched) => &watched.servers[..1],
        }
    }

    /// The first of them.
    pub fn address(&self) -> SocketAddr {
        self.primaries()[0].address()
    }

    /// See [`Server::pause`]. Nobody takes over meanwhile.
    pub fn pause(&self) {
        self.primaries().iter().for_each(Server::pause);
    }

    pub fn resume(&self) {
        self.primaries().iter().for_each(Server::resume);
    }

    /// See [`Server::stop`].
    pub async fn stop(&self) {
        self.damage();
        for server in self.primaries() {
            server.stop().await;
        }
    }

    /// See [`Server::kill`].
    pub fn kill(&self) {
        self.damage();
        self.primaries().iter().for_each(Server::kill);
    }

    /// See [`Server::start_again`].
    pub async fn start_again(&self) {
        for server in self.primaries() {
            server.start_again().await;
        }
    }

    /// See [`Server::restart`].
    pub async fn restart(&self) {
        self.kill();
        self.start_again().await;
    }

    /// The next test gets another one.
    fn damage(&self) {
        match self {
            Self::One(_) => {}
            Self::Cluster(cluster) => cluster.damage(),
            Self::Watched(watched) => watched.damage(),
        }
    }
}

impl Front for Site {
    fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
            Self::Watched(watched) => watched.url(),
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::One(server) => server.addresses(),
            Self::Cluster(_) => self.primaries().iter().map(Server::address).collect(),
            Self::Watched(watched) => watched.addresses(),
        }
    }

    fn url_at(&self, addresses: &[SocketAddr]) -> String {
        match self {
            Self::One(server) => server.url_at(addresses),
            Self::Cluster(cluster) => cluster.url_at(addresses),
            Self::Watched(watched) => watched.url_at(addresses),
        }
    }
}

static CLUSTERS: Pool<Cluster> = Pool(Mutex::new(Vec::new()));
static WATCHED: Pool<Watched> = Pool(Mutex::new(Vec::new()));

async fn watched() -> Lent<Watched> {
    let watched = match WATCHED.take() {
        Some(watched) => watched,
        None => Watched::start().await,
    };
    empty(&watched.servers[0]).await;
    Lent::new(watched, &WATCHED)
}

/// Leaves nothing of the test before: no key, no script, no count, no connection.
async fn empty(server: &Server) {
    let admin = server.admin().await;
    admin.client_kill("normal").await;
    admin.client_kill("pubsub").await;
    admin.config_set("maxmemory", "0").await;
    admin.cmd::<()>(&["FLUSHALL"]).await;
    admin.script_flush().await;
    admin.reset_stats().await;
}

/// What no test uses for now.
#[derive(Debug)]
struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn put(&self, one: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    }
}

/// One of a pool, to which it goes back unless it is damaged, or its test has failed.
#[derive(Debug)]
pub struct Lent<T: 'static> {
    one: Option<T>,
    pool: &'static Pool<T>,
    is_damaged: AtomicBool,
}

impl<T: 'static> Lent<T> {
    /// Where most tests run elsewhere, the few that need one end it: a process cannot clear away what it keeps to its end.
    fn new(one: T, pool: &'static Pool<T>) -> Self {
        let is_damaged = AtomicBool::new(topology() == Topology::Single);
        Self { one: Some(one), pool, is_damaged }
    }

    fn damage(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }
}

impl<T> std::ops::Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.one.as_ref().expect("taken only on drop")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        let is_whole = !*self.is_damaged.get_mut() && !std::thread::panicking();
        if let Some(one) = self.one.take().filter(|_| is_whole) {
            self.pool.put(one);
        }
    }
}
