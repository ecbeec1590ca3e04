//! The server ends and comes back: empty, with everything, with what it once had, without its scripts.

use std::time::{Duration, Instant};

use parklock::{Client, Ended, Error};
use redis::Script;

use crate::common::{Admin, Server, eventually, judged};
use crate::scene::*;

async fn run_id(admin: &Admin) -> String {
    admin.info("server", "run_id").await.expect("every server has one")
}

/// F12: the server restarts without its data.
#[tokio::test]
async fn a_holder_whose_server_forgot_everything_is_told_before_its_deadline() {
    judged(async || {
        let mut scene = Scene::new().await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();

        let until = deadline(&guard);
        scene.server.restart().await;
        scene.admin = scene.server.admin().await;
        assert!(is_free(&scene.admin, "a").await);

        assert_eq!(soon(guard.ended()).await, Ended::Lost);
        assert!(Instant::now() < until, "only its deadline told it");
        assert!(!guard.is_valid());
        assert_err!(guard.unlock().await, Error::Lost { .. });
    })
    .await;
}

/// F12: the server restarts without its data, under a holder and a waiter.
#[tokio::test]
async fn a_waiter_gets_the_lock_from_a_server_that_forgot_everything() {
    let mut scene = Scene::new().await;
    let (client, other) = (scene.client(patient()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;

    scene.server.restart().await;
    scene.admin = scene.server.admin().await;

    let ours = granted(waiter).await;
    assert!(ours.token() > theirs.token(), "the counter was lost with the data");
    let lost = async || matches!(theirs.extend(LONG).await, Err(Error::Lost { .. }));
    eventually(SOON, "the loss is known", lost).await;
    assert_err!(theirs.unlock().await, Error::Lost { .. });
    is_held_once(&scene.admin, "a").await;
    soon(ours.unlock()).await.unwrap();
    scene.is_clean().await;
}

/// F13: the server restarts with all of its data.
#[tokio::test]
async fn a_hold_survives_a_restart_that_keeps_the_data() {
    judged(async || {
        let mut scene = Scene::on(Server::builder().append_only().start().await).await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();
        let before = run_id(&scene.admin).await;

        scene.server.restart().await;
        scene.admin = scene.server.admin().await;
        assert_ne!(run_id(&scene.admin).await, before);
        is_held_once(&scene.admin, "a").await;

        is_renewed(&guard).await;
        let other = scene.other().await;
        assert!(other.lock("a").try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// F13: the server is away for longer than the lease.
#[tokio::test]
async fn a_holder_whose_server_stays_away_has_lost_by_its_deadline() {
    let scene = Scene::new().await;
    let client = scene.client(brisk().ride_out(Duration::from_secs(1))).await;
    let guard = in_time(&client.lock("a")).await;
    let until = deadline(&guard);

    scene.server.kill();
    assert_eq!(soon(guard.ended()).await, Ended::Lost);

    assert!(Instant::now() + Duration::from_millis(5) >= until, "told too early");
    assert!(!guard.is_valid());
    assert_err!(soon(client.lock("a").lock()).await, Error::Unavailable { .. });
}

/// F14: the server restarts with old data, in which a lock is held that was given back since.
#[tokio::test]
async fn a_lock_from_an_old_backup_blocks_until_its_lease_ends() {
    judged(async || {
        let mut scene = Scene::new().await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();
        scene.admin.cmd::<()>(&["SAVE"]).await;
        guard.unlock().await.unwrap();
        let last = client.lock("a").lock().await.unwrap();
        let token = last.token();
        last.unlock().await.unwrap();

        scene.server.restart().await;
        scene.admin = scene.server.admin().await;
        is_held_once(&scene.admin, "a").await;

        let other = scene.other().await;
        assert!(other.lock("a").try_lock().await.unwrap().is_none());
        let ours = soon(client.lock("a").lock()).await.unwrap();
        assert!(ours.token() > token, "the counter was rolled back");
        soon(ours.unlock()).await.unwrap();
    })
    .await;
}

async fn forget(admin: &Admin, script: &str) {
    admin.script_flush().await;
    let hash = Script::new(script).get_hash().to_owned();
    assert_eq!(admin.cmd::<Vec<bool>>(&["SCRIPT", "EXISTS", &hash]).await, [false]);
}

/// F15: the server forgets the scripts, before each one.
#[tokio::test]
async fn a_script_that_the_server_forgot_is_sent_again_unseen() {
    let scene = Scene::new().await;
    let client = scene.client(patient().watchdog_timeout(Duration::from_secs(12))).await;
    let lock = client.reentrant_lock("a");
    let sent = scene.proxy.command("EVAL").count();
    let forget = async || forget(&scene.admin, include_str!("../../../lua/lock/renew.lua")).await;

    forget().await;
    let outer = lock.lock().await.unwrap();
    forget().await;
    let inner = lock.lock().await.unwrap();
    forget().await;
    assert!(lock.is_locked().await.unwrap());
    forget().await;
    inner.extend(Duration::from_secs(3)).await.unwrap();
    assert_eq!(sent.fired(), 4);
    forget().await;
    is_renewed(&outer).await;
    sent.happened_times(5).await;
    forget().await;
    inner.unlock().await.unwrap();
    forget().await;
    outer.unlock().await.unwrap();
    assert_eq!(sent.fired(), 7);
    scene.is_clean().await;

    forget().await;
    assert!(!lock.force_unlock().await.unwrap());
    assert_eq!(sent.fired(), 8);
}

/// F15: the server forgets the scripts while somebody waits.
#[tokio::test]
async fn a_waiter_does_not_notice_that_the_server_forgot_the_scripts() {
    let scene = Scene::new().await;
    let (client, other): (Client, Client) = (scene.client(patient()).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;

    forget(&scene.admin, include_str!("../../../lua/lock/renew.lua")).await;
    theirs.unlock().await.unwrap();

    granted(waiter).await.unlock().await.unwrap();
    let nobody = async || scene.admin.keys().await == [COUNTER];
    eventually(SOON, "nothing is left", nobody).await;
}
