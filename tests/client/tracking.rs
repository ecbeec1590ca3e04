//! The server tells a holder at once that the key of its lock has changed. What it says is a reason to look, and no more.

use crate::common;

use std::time::Duration;

use common::cluster::slot;
use common::fixture::{SOON, comes_in, key, scripts, settled};
use common::rights::untold;
use common::sentinels::primary_and_replicas;
use common::{Admin, Cluster, Proxy, Server, eventually, timeout};
use parklock::{Client, Config, Ended, Guard, Layout, Owner, Replicas};

/// Renewals that are due come minutes later. So a holder that learns of a loss soon was told of it.
fn patient() -> Config {
    Config::default().watchdog_timeout(Duration::from_secs(1800))
}

/// Waits until this server watches so many keys.
async fn watches(admin: &Admin, keys: u64) {
    let watched = async || {
        let count = admin.info("stats", "tracking_total_keys").await;
        count.is_some_and(|count| count.parse() == Ok(keys))
    };
    eventually(SOON, "the server watches the keys", watched).await;
}

async fn is_lost_at_once(guard: &Guard) {
    assert_eq!(timeout(SOON, guard.ended()).await.expect("it is told"), Ended::Lost);
}

/// A hold of each kind that one caller has alone, and its name.
async fn holds(client: &Client) -> [(&'static str, Guard); 4] {
    let fixed = client.lock("fixed").lease(Duration::from_secs(900));
    [
        ("plain", client.lock("plain").lock().await.expect("it is free")),
        ("fixed", fixed.lock().await.expect("it is free")),
        ("fair", client.fair_lock("fair").lock().await.expect("it is free")),
        ("write", client.rw_lock("write").write().await.expect("it is free").into()),
    ]
}

async fn server_and_client() -> (Server, Admin, Client) {
    let server = Server::start().await;
    let (admin, client) = (server.admin().await, comes_in(server.url(), patient()).await);
    (server, admin, client)
}

/// A hold of each kind, all of which the server watches.
async fn all_watched() -> (Server, Admin, [(&'static str, Guard); 4]) {
    let (server, admin, client) = server_and_client().await;
    let held = holds(&client).await;
    watches(&admin, 4).await;
    (server, admin, held)
}

#[tokio::test]
async fn a_holder_learns_at_once_that_its_key_was_deleted_renamed_or_overwritten() {
    for change in [&["DEL"][..], &["RENAME", "theirs"], &["SET", "theirs"]] {
        let (_server, admin, held) = all_watched().await;
        for (name, guard) in held {
            let key = key(name);
            let words = [&change[..1], &[&*key], &change[1..]].concat();
            admin.cmd::<redis::Value>(&words).await;
            is_lost_at_once(&guard).await;
        }
    }
}

#[tokio::test]
async fn a_holder_whose_server_has_lost_its_data_is_told_when_it_is_back() {
    let (server, _admin, held) = all_watched().await;
    server.restart().await;
    for (_, guard) in held {
        is_lost_at_once(&guard).await;
    }
}

#[tokio::test]
async fn a_lock_is_watched_again_after_the_connection_was_lost() {
    let (_server, admin, client) = server_and_client().await;
    let guard = client.lock("a").lock().await.unwrap();
    watches(&admin, 1).await;
    let before = scripts(&admin).await;
    assert!(admin.client_kill("normal").await > 0);
    eventually(SOON, "it looks", async || scripts(&admin).await > before).await;
    admin.cmd::<i64>(&["DEL", &key("a")]).await;
    is_lost_at_once(&guard).await;
}

#[tokio::test]
async fn a_lease_that_somebody_shortens_is_made_long_again_at_once() {
    let (_server, admin, held) = all_watched().await;
    for (name, guard) in held {
        let key = key(name);
        admin.cmd::<i64>(&["PEXPIRE", &key, "100000"]).await;
        eventually(SOON, "it is long again", async || admin.pttl(&key).await > 200_000).await;
        assert!(guard.is_valid());
    }
}

#[tokio::test]
async fn all_holders_learn_at_once_that_the_server_was_emptied() {
    let (_server, admin, held) = all_watched().await;
    admin.cmd::<()>(&["FLUSHALL"]).await;
    for (_, guard) in held {
        is_lost_at_once(&guard).await;
    }
}

#[tokio::test]
async fn a_lock_is_watched_again_after_its_client_has_changed_the_key() {
    let (_server, admin, client) = server_and_client().await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let outer = lock.lock().await.unwrap();
    watches(&admin, 1).await;
    let inner = lock.lock().await.unwrap();
    watches(&admin, 1).await;
    inner.unlock().await.unwrap();
    watches(&admin, 1).await;
    outer.extend(Duration::from_secs(3600)).await.unwrap();
    watches(&admin, 1).await;
    let inner = lock.lock().await.unwrap();
    watches(&admin, 1).await;
    // In the background.
    drop(inner);
    let count = async || admin.cmd::<Vec<String>>(&["HVALS", &key("a")]).await == ["1"];
    eventually(SOON, "the count is written", count).await;
    watches(&admin, 1).await;
    admin.cmd::<i64>(&["DEL", &key("a")]).await;
    is_lost_at_once(&outer).await;
}

/// A holder with a fixed lease renews nothing that would have its key watched.
#[tokio::test]
async fn a_lock_is_watched_again_however_often_the_connection_was_lost() {
    let (_server, admin, client) = server_and_client().await;
    let fixed = client.lock("a").lease(Duration::from_secs(900));
    let guard = fixed.lock().await.unwrap();
    watches(&admin, 1).await;
    for _ in 0..6 {
        let asked = admin.command_calls("exists").await;
        assert!(admin.client_kill("normal").await > 0);
        let asks = async || admin.command_calls("exists").await > asked;
        eventually(SOON, "it has the key watched", asks).await;
    }
    admin.cmd::<i64>(&["DEL", &key("a")]).await;
    is_lost_at_once(&guard).await;
}

/// Whoever may write the key can change it as often as they like. The holder keeps its lock, and looks a few times at most.
#[tokio::test]
async fn a_change_that_takes_nothing_away_costs_little_and_ends_no_hold() {
    let (_server, admin, client) = server_and_client().await;
    let guard = client.lock("a").lock().await.unwrap();
    watches(&admin, 1).await;
    let before = scripts(&admin).await;
    let changes = async || {
        admin.cmd::<i64>(&["HSET", &key("a"), "theirs", "1"]).await;
        admin.cmd::<i64>(&["HDEL", &key("a"), "theirs"]).await;
    };
    let has_looked = async || {
        changes().await;
        scripts(&admin).await - before == 4
    };
    eventually(SOON, "it looks", has_looked).await;
    // It looks no more before the next renewal, and the server forgets the key.
    for _ in 0..100 {
        changes().await;
    }
    watches(&admin, 0).await;
    assert_eq!(settled(&admin).await - before, 4);
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn an_unlock_tells_nobody_and_leaves_nothing_watched() {
    let (_server, admin, client) = server_and_client().await;
    let guard = client.lock("a").lock().await.unwrap();
    watches(&admin, 1).await;
    let before = scripts(&admin).await;
    guard.unlock().await.unwrap();
    watches(&admin, 0).await;
    assert_eq!(scripts(&admin).await - before, 1, "the release alone");
}

#[tokio::test]
async fn a_user_without_the_right_learns_of_a_loss_from_the_next_renewal() {
    let server = Server::start().await;
    let (admin, url) = (server.admin().await, untold(&server).await);
    // The lease outlasts the patience of this test.
    let guard = comes_in(url, Config::default()).await.lock("a").lock().await.unwrap();
    admin.cmd::<i64>(&["DEL", &key("a")]).await;
    is_lost_at_once(&guard).await;
    assert_eq!(admin.info("clients", "tracking_clients").await.as_deref(), Some("0"));
}

#[tokio::test]
async fn a_client_that_connects_again_looks_at_what_it_holds_without_the_right_too() {
    let server = Server::start().await;
    let (admin, url) = (server.admin().await, untold(&server).await);
    let client = comes_in(url, patient()).await;
    let guard = client.lock("a").lock().await.unwrap();
    let read = client.rw_lock("b").read().await.unwrap();
    admin.cmd::<i64>(&["DEL", &key("a"), &key("b")]).await;
    assert!(admin.client_kill("normal").await > 0);
    is_lost_at_once(&guard).await;
    assert_eq!(timeout(SOON, read.ended()).await.expect("it is told"), Ended::Lost);
}

#[tokio::test]
async fn in_redissons_layout_the_holder_of_a_plain_lock_is_told_too() {
    for name in ["a", "{b}", "c:d"] {
        let server = Server::start().await;
        let config = patient().layout(Layout::Redisson).namespace("billing");
        let (admin, client) = (server.admin().await, comes_in(server.url(), config).await);
        let guard = client.lock(name).lock().await.unwrap();
        watches(&admin, 1).await;
        admin.cmd::<i64>(&["DEL", &format!("billing:{name}")]).await;
        is_lost_at_once(&guard).await;
    }
}

#[tokio::test]
async fn a_name_with_braces_in_a_namespace_and_another_database_is_found() {
    let server = Server::start().await;
    let url = format!("{}/3", server.url());
    let admin = Admin::connect(&url).await;
    let client = comes_in(url, patient().namespace("billing")).await;
    let guard = client.lock("a}b{%").lock().await.unwrap();
    watches(&admin, 1).await;
    server.admin().await.cmd::<()>(&["FLUSHDB"]).await;
    watches(&admin, 1).await;
    assert!(guard.is_valid(), "that was another database");
    admin.cmd::<i64>(&["DEL", "billing:lock:{a%7Db%7B%25}"]).await;
    is_lost_at_once(&guard).await;
}

#[tokio::test]
async fn where_replicas_acknowledge_a_holder_is_told_too() {
    let servers = primary_and_replicas(1, Server::builder).await;
    let (admin, url) = (servers[0].admin().await, servers[0].url());
    let client = comes_in(url, patient().replicas(1).ack_timeout(Duration::from_secs(1))).await;
    let held = holds(&client).await;
    watches(&admin, 4).await;
    for (name, guard) in held {
        admin.cmd::<i64>(&["DEL", &key(name)]).await;
        is_lost_at_once(&guard).await;
    }
}

/// The server watches the keys for the connection that waits for replicas, and the other one knows nothing of them.
#[tokio::test]
async fn where_replicas_acknowledge_the_end_of_the_other_connection_makes_no_holder_look() {
    let server = Server::start().await;
    let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
    proxy.name_script("count", include_str!("../../lua/latch/status.lua"));
    let client = comes_in(proxy.url(), patient().replicas(Replicas::Connected)).await;
    let guard = client.lock("a").lock().await.unwrap();
    watches(&admin, 1).await;
    let before = settled(&admin).await;
    let cut = proxy.script("count").nth(1).cut_after();
    client.count_down_latch("b").count().await.expect_err("the connection ends");
    assert_eq!(client.count_down_latch("b").count().await.unwrap(), None);
    assert_eq!((cut.fired(), settled(&admin).await - before), (1, 2), "the counts alone");
    watches(&admin, 1).await;
    admin.cmd::<i64>(&["DEL", &key("a")]).await;
    is_lost_at_once(&guard).await;
}

#[tokio::test]
async fn in_a_cluster_a_holder_is_told_by_the_node_to_which_its_slot_has_moved() {
    let cluster = Cluster::start_as(2, 2, Server::builder).await;
    let client = comes_in(cluster.url(), patient()).await;
    let (from, to) = (cluster.home("a"), 1 - cluster.home("a"));
    let guard = client.lock("a").lock().await.unwrap();
    watches(&cluster.admin(from).await, 1).await;
    cluster.move_slot(slot("a"), from, to).await;
    // The key has gone from the first node, so the client has looked for it at the other one.
    let admin = cluster.admin(to).await;
    watches(&admin, 1).await;
    assert!(guard.is_valid());
    admin.cmd::<i64>(&["DEL", &key("a")]).await;
    is_lost_at_once(&guard).await;
}

/// What a holder of one node would look for in vain uses up what it may be told of in ten seconds.
#[tokio::test]
async fn in_a_cluster_what_one_node_may_have_lost_makes_no_holder_of_another_look() {
    let cluster = Cluster::start_as(2, 2, Server::builder).await;
    let client = comes_in(cluster.url(), patient()).await;
    let (here, there) = (cluster.admin(0).await, cluster.admin(1).await);
    let [emptied, kept] = &cluster.names_at(0, "", 2)[..] else { unreachable!() };
    let name = &cluster.names_at(1, "", 1)[0];
    let (emptied, guard) =
        (client.lock(emptied).lock().await.unwrap(), client.lock(name).lock().await.unwrap());
    watches(&here, 1).await;
    watches(&there, 1).await;
    let before = settled(&there).await;
    here.cmd::<()>(&["FLUSHALL"]).await;
    is_lost_at_once(&emptied).await;
    let _kept = client.lock(kept).lock().await.unwrap();
    watches(&here, 1).await;
    for _ in 0..6 {
        let asked = here.command_calls("exists").await;
        assert!(here.client_kill("normal").await > 0);
        let asks = async || here.command_calls("exists").await > asked;
        eventually(SOON, "it has the key watched", asks).await;
    }
    assert_eq!(settled(&there).await, before);
    watches(&there, 1).await;
    there.cmd::<i64>(&["DEL", &key(name)]).await;
    is_lost_at_once(&guard).await;
}

/// The hold that ends has its hold count written in the background, since its guard is dropped.
#[tokio::test]
async fn a_nested_hold_that_ends_and_finds_no_lock_tells_the_holds_that_are_left() {
    let server = Server::start().await;
    let (admin, url) = (server.admin().await, untold(&server).await);
    let client = comes_in(url, patient()).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    admin.cmd::<()>(&["DEL", &key("a")]).await;
    drop(inner);
    is_lost_at_once(&outer).await;
}
