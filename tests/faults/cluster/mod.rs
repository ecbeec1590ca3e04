//! A Redis Cluster: real nodes, whose slots are moved and whose primaries fail.

mod channels;
mod databases;
mod failover;
mod ghosts;
mod kinds;
mod slots;

use std::env;
use std::path::PathBuf;

use parklock::{Client, Config, Error};

use crate::common::fixture::{comes_in, refusal};
use crate::common::{Admin, Cluster, Server, eventually};
use crate::scene::*;

/// Two clients of one cluster.
async fn two(cluster: &Cluster, config: Config) -> (Client, Client) {
    let url = cluster.url();
    tokio::join!(client(&url, config.clone()), client(&url, config))
}

/// Waits until nothing is left in the cluster but what a latch remembers for some minutes.
async fn is_clean(cluster: &Cluster) {
    let mut left = Vec::new();
    for _ in 0..500 {
        left = cluster.lock_keys().await;
        left.retain(|key| !key.ends_with(":requests"));
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(A_WHILE / 2).await;
    }
    panic!("left: {left:?}");
}

/// Waits until at least so many stand in the line of this name.
async fn stand_in_line(admin: &Admin, name: &str, count: usize) {
    let line = format!("lock_queue:{{{name}}}");
    let stand = async || admin.cmd::<usize>(&["ZCARD", &line]).await >= count;
    eventually(SOON, &format!("{count} stand in the line of {name}"), stand).await;
}

/// A Valkey, which moves slots in one piece (`CLUSTER MIGRATESLOTS`), and may have several databases in a cluster. `None` where it is not installed.
fn valkey() -> Option<PathBuf> {
    let program = installed("valkey-9.1");
    if program.is_none() {
        let missing = "Valkey 9.1 is not installed (scripts/servers installs it)";
        assert!(env::var_os("PARKLOCK_REQUIRE_SERVERS").is_none(), "{missing}");
        println!("skipped: {missing}");
    }
    program
}

/// A URL that does not fit the server is refused, and the error names the URL that does. An impossible URL is refused
/// too.
#[tokio::test]
async fn a_url_that_fits_the_server_is_asked_for() {
    let (cluster, single) = tokio::join!(Cluster::start(), Server::start());
    let node = cluster.nodes[0].url();
    let error = refusal(&node).await;
    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(error.to_string().contains("write redis-cluster://"), "{error}");

    let as_cluster = single.url().replace("redis://", "redis-cluster://");
    let error = refusal(&as_cluster).await;
    assert!(matches!(error, Error::Config { .. }), "{error}");

    let error = refusal(format!("{}/1", cluster.url())).await;
    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(error.to_string().contains("no database 1"), "{error}");
    assert!(error.to_string().contains("`cluster-databases`"), "{error}");

    for url in ["redis-cluster://".to_owned(), format!("{}/x", cluster.url())] {
        let error = refusal(&url).await;
        assert!(matches!(error, Error::Config { .. }), "{url}: {error}");
    }
    comes_in(cluster.url_of(2), Config::default()).await;
}
