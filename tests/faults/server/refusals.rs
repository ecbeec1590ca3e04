//! A server that is there and refuses: it loads, cannot save, lacks replicas, or has too many clients.

use std::fs;
use std::time::{Duration, Instant};

use parklock::{Client, Ended, Error};
use tracing::Level;

use crate::common::{eventually, judged};
use crate::log::Log;
use crate::scene::*;

/// A server that takes two seconds to load its data.
async fn slow_to_load() -> Scene {
    let mut setup = debuggable().set("key-load-delay", "2000").set("rdbcompression", "no");
    if !is_version_6() {
        // Version 6 looks up from its loading each two megabytes.
        setup = setup.set("loading-process-events-interval-bytes", "1024");
    }
    let scene = Scene::on(setup.start().await).await;
    scene.admin.cmd::<()>(&["DEBUG", "POPULATE", "1000", "filler", "20000"]).await;
    scene
}

/// Has it load what it has now.
async fn load(scene: &Scene) {
    scene.admin.cmd::<()>(&["SAVE"]).await;
    scene.server.kill();
    scene.server.launch();
    let loads = async || ping(&scene.server).await.starts_with("-LOADING");
    eventually(SOON, "the server loads", loads).await;
}

/// F19: the server loads its data.
#[tokio::test]
async fn a_server_that_loads_is_waited_for() {
    let scene = slow_to_load().await;
    let client = scene.client(patient()).await;
    let guard = client.lock("a").lock().await.unwrap();

    load(&scene).await;
    // Version 6 looks up so seldom that it is done when it answers.
    if !is_version_6() {
        let refused = client.lock("b").try_lock().await;
        assert_err!(refused, Error::Unavailable { .. } | Error::Indeterminate { .. });
        assert_err!(Client::connect(scene.server.url()).await, Error::Unavailable { .. });
    }
    let waiter = waiting(client.lock("b"));
    assert!(guard.is_valid());
    scene.server.ready().await;

    granted(waiter).await.unlock().await.unwrap();
    soon(guard.unlock()).await.unwrap();
}

/// F19: the server loads its data, which it says to a PING too.
#[tokio::test]
async fn a_server_that_loads_is_not_stormed() {
    let scene = slow_to_load().await;
    let (_client, redials) = (scene.client(patient()).await, scene.proxy.command("HELLO").count());
    load(&scene).await;
    assert_no_storm(&redials).await;
}

/// Makes the server's disk refuse its backups, as a full one does.
async fn break_the_disk(scene: &Scene) {
    scene.admin.config_set("save", "3600 1").await;
    fs::create_dir(scene.server.dir().join("dump.rdb")).expect("our own directory");
    scene.admin.cmd::<()>(&["BGSAVE"]).await;
    let refuses = async || {
        let refused = scene.admin.try_cmd::<()>(&["SET", "x", "1", "PX", "1"]).await;
        refused.is_err_and(|error| error.code() == Some("MISCONF"))
    };
    eventually(SOON, "the server refuses to write", refuses).await;
}

async fn mend_the_disk(scene: &Scene) {
    fs::remove_dir(scene.server.dir().join("dump.rdb")).expect("our own directory");
    scene.admin.cmd::<()>(&["BGSAVE"]).await;
    let writes = async || scene.admin.try_cmd::<()>(&["SET", "x", "1", "PX", "1"]).await.is_ok();
    eventually(SOON, "the server writes", writes).await;
}

/// F20: the server cannot save, and refuses all writes.
#[tokio::test]
async fn a_server_that_cannot_save_is_unavailable_until_it_can() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let guard = client.lock("a").lock().await.unwrap();

    break_the_disk(&scene).await;
    let refused = client.lock("b").try_lock().await;
    let Err(Error::Unavailable { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("MISCONF"), "{source}");
    assert!(is_free(&scene.admin, "b").await);
    let mut unlock = tokio::spawn(guard.unlock());
    let waiter = waiting(client.lock("b"));
    assert!(is_pending(&mut unlock).await);

    mend_the_disk(&scene).await;
    soon(unlock).await.unwrap().unwrap();
    granted(waiter).await.unlock().await.unwrap();
    scene.is_clean().await;
}

/// F20: the server cannot save for longer than a lease.
#[tokio::test]
async fn a_holder_whose_renewals_are_refused_is_warned_and_has_lost_by_its_deadline() {
    judged(async || {
        let (log, _listening) = Log::of(Level::WARN);
        let scene = Scene::new().await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();

        break_the_disk(&scene).await;
        let until = deadline(&guard);
        let warned = async || log.lines_with("locks are not renewed") > 0;
        eventually(SOON, "the log warns", warned).await;
        assert!(guard.is_valid(), "warned too late");

        assert_eq!(soon(guard.ended()).await, Ended::Lost);
        assert!(Instant::now() + Duration::from_millis(5) >= until);
        assert_err!(guard.unlock().await, Error::Lost { .. });
    })
    .await;
}

/// F20: the server cannot save, which it says to a PING too.
#[tokio::test]
async fn a_server_that_cannot_save_is_not_stormed() {
    let scene = Scene::new().await;
    let (client, redials) = (scene.client(patient()).await, scene.proxy.command("HELLO").count());
    break_the_disk(&scene).await;
    let refused = async || assert!(client.lock("a").try_lock().await.is_err(), "it saves");
    refused().await;
    let calls = async {
        loop {
            refused().await;
        }
    };
    tokio::select! {
        () = assert_no_storm(&redials) => {}
        () = calls => {}
    }
}

/// F24: the server has fewer replicas than it wants for a write.
#[tokio::test]
async fn a_server_that_lacks_replicas_is_unavailable_until_it_has_them() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let guard = client.lock("a").lock().await.unwrap();

    scene.admin.config_set("min-replicas-to-write", "1").await;
    let refused = scene.admin.try_cmd::<()>(&["SET", "x", "1"]).await.unwrap_err();
    assert_eq!(refused.code(), Some("NOREPLICAS"));
    assert_err!(client.lock("b").try_lock().await, Error::Unavailable { .. });
    assert_err!(guard.extend(LONG).await, Error::Unavailable { .. });
    assert!(guard.is_valid());
    assert!(is_free(&scene.admin, "b").await);
    let mut unlock = tokio::spawn(guard.unlock());
    let waiter = waiting(client.lock("b"));
    assert!(is_pending(&mut unlock).await);

    scene.admin.config_set("min-replicas-to-write", "0").await;
    soon(unlock).await.unwrap().unwrap();
    granted(waiter).await.unlock().await.unwrap();
    scene.is_clean().await;
}

/// F26: the server has as many clients as it takes.
#[tokio::test]
async fn a_server_that_takes_no_more_clients_is_unavailable_to_new_ones_only() {
    judged(async || {
        let scene = Scene::new().await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();

        let connected = scene.admin.clients().await.len().to_string();
        scene.admin.config_set("maxclients", &connected).await;
        let answer = ping(&scene.server).await;
        assert!(answer.contains("max number of clients"), "{answer}");

        assert_err!(Client::connect(scene.server.url()).await, Error::Unavailable { .. });
        is_renewed(&guard).await;
        soon(guard.unlock()).await.unwrap();
    })
    .await;
}

/// F26: a client loses its connections and its place.
#[tokio::test]
async fn a_client_that_lost_its_connections_reconnects_when_the_server_accepts_clients() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let guard = client.lock("a").lock().await.unwrap();
    let redials = scene.proxy.command("HELLO").count();

    scene.admin.config_set("maxclients", "1").await;
    scene.proxy.reset(None).await;
    redials.happened().await;
    let answer = ping(&scene.server).await;
    assert!(answer.contains("max number of clients"), "{answer}");
    // The client's other link may not have noticed yet: a request that it sends into the reset is indeterminate.
    let refused = loop {
        match client.lock("b").try_lock().await {
            Err(Error::Indeterminate { .. }) => {}
            answer => break answer,
        }
    };
    assert_err!(refused, Error::Unavailable { .. });
    assert_no_storm(&redials).await;
    let waiter = waiting(client.lock("b"));

    scene.admin.config_set("maxclients", "100").await;
    granted(waiter).await.unlock().await.unwrap();
    assert!(guard.is_valid());
    soon(guard.unlock()).await.unwrap();
}
