//! What becomes of it when the server changes under it.

use std::time::Duration;

use parklock::{Config, Ended, Error};
use tokio::time::sleep;

use crate::common::fixture::{SOON, quick};
use crate::common::site::only_on_one_server;
use crate::common::{eventually, judged};
use crate::pair::Pair;
use crate::scene::{Scene, Waiter, assert_err, is_free_soon, is_held, soon};

/// The watchdog's timeout of `quick()`.
const QUICK: Duration = Duration::from_secs(3);

pub(crate) async fn a_server_that_forgets_its_scripts_is_taught_again(pair: Pair) {
    let scene = Scene::new(pair).await;
    let forget = async || scene.admin.script_flush().await;
    forget().await;
    let held = scene.ours().lock().await.unwrap();
    forget().await;
    let waiter = Waiter::parked(scene.theirs()).await;
    forget().await;
    held.extend(SOON * 4).await.unwrap();
    forget().await;
    held.unlock().await.unwrap();
    let next = waiter.gets_it().await;
    forget().await;
    is_held(&scene).await;
    next.unlock().await.unwrap();
    scene.is_clean().await;
}

pub(crate) async fn a_server_that_lost_its_data_tells_the_holder_and_lets_the_waiter_in(
    pair: Pair,
) {
    judged(async || {
        // The nodes of a cluster take no writes for two seconds after their start.
        let scene = Scene::with(pair, quick().ride_out(SOON)).await;
        let guard = scene.ours().lock().await.unwrap();
        let (first, second) = (Waiter::begin(scene.ours()), Waiter::parked(scene.theirs()).await);
        let token = guard.token();
        scene.server.restart().await;
        assert_eq!(soon(guard.ended()).await, Ended::Lost);
        assert_err!(guard.unlock().await, Error::Lost { .. });
        let through = async |waiter: Waiter, works: Duration| {
            let guard = waiter.gets_it().await;
            assert!(guard.token() > token || pair.name == "redisson_fenced", "its counter is gone");
            sleep(works).await;
            assert!(guard.is_valid(), "a hold that is new is renewed");
            guard.unlock().await.unwrap();
        };
        tokio::join!(through(first, QUICK * 2), through(second, Duration::ZERO));
        assert!(!scene.ours().is_held().await.unwrap(), "it is free");
    })
    .await;
}

fn replicas_are_soon_given_up() -> Config {
    Config::default().response_timeout(Duration::from_millis(300))
}

/// Makes it a replica of a server that is not there: it keeps its data.
async fn demote(scene: &Scene) {
    scene.admin.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
}

async fn promote(scene: &Scene) {
    scene.admin.cmd::<()>(&["REPLICAOF", "NO", "ONE"]).await;
}

pub(crate) async fn a_replica_is_not_believed(pair: Pair) {
    if only_on_one_server(
        "elsewhere, whoever demotes a primary makes another one: see tests/faults",
    ) {
        return;
    }
    let scene = Scene::with(pair, replicas_are_soon_given_up()).await;
    let guard = scene.ours().lock().await.unwrap();
    demote(&scene).await;
    // Neither that it is held nor that it is free, nor that it was lost.
    for name in ["a", "b"] {
        let tried = scene.pair.of(&scene.theirs, name).try_lock().await;
        assert_err!(tried, Error::Unavailable { .. } | Error::Indeterminate { .. });
    }
    assert!(scene.theirs().is_held().await.is_err());
    assert!(guard.extend(SOON * 4).await.is_err_and(|error| !matches!(error, Error::Lost { .. })));
    assert!(guard.is_valid());
    promote(&scene).await;
    let found =
        async || scene.ours().is_held().await.is_ok() && scene.theirs().is_held().await.is_ok();
    eventually(SOON, "both find the primary again", found).await;
    let waiter = Waiter::parked(scene.ours()).await;
    guard.unlock().await.unwrap();
    waiter.gets_it().await.unlock().await.unwrap();
    is_free_soon(scene.theirs()).await;
    scene.is_clean().await;
}

pub(crate) async fn what_is_held_is_kept_and_given_back_when_memory_is_full(pair: Pair) {
    judged(async || {
        let scene = Scene::with(pair, quick()).await;
        let guard = scene.ours().lock().await.unwrap();
        let waiter = Waiter::parked(scene.theirs()).await;
        scene.admin.config_set("maxmemory", "1").await;
        let full = scene.admin.try_cmd::<()>(&["SET", "test:x", "1"]).await;
        assert_eq!(full.expect_err("it is full").code(), Some("OOM"));
        let renewals = scene.proxy.script("renew").count();
        guard.extend(Duration::from_secs(4)).await.unwrap();
        renewals.happened_times(2).await;
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
        scene.admin.config_set("maxmemory", "0").await;
        waiter.gets_it().await.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}
