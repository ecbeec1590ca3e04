//! A primary becomes a replica under clients whose connections stay open: nothing that it says then is believed.

use parklock::{Client, Error};

use super::roles::*;
use crate::common::{Class, Server, eventually};
use crate::scene::*;

/// F17: a primary becomes a replica under clients whose connections stay open.
#[tokio::test]
async fn nothing_that_a_demoted_primary_says_is_believed() {
    let server = Server::start().await;
    let url = server.url();
    let admin = server.admin().await;
    let holder = client(&url, patient()).await;
    let guard = holder.lock("a").lock().await.unwrap();
    // A client that was refused once connects anew. So each answer needs a connection of its own that was open
    // before.
    let [tries, tries_free, looks, forces] = [(); 4].map(|()| {
        tokio::spawn({
            let url = url.clone();
            async move { client(&url, patient()).await }
        })
    });
    let (tries, tries_free) = (tries.await.unwrap(), tries_free.await.unwrap());
    let (looks, forces) = (looks.await.unwrap(), forces.await.unwrap());

    demote(&admin).await;
    assert_err!(tries.lock("a").try_lock().await, Error::Unavailable { .. });
    assert_err!(tries_free.lock("b").try_lock().await, Error::Unavailable { .. });
    assert_err!(looks.lock("a").ttl().await, Error::Unavailable { .. });
    assert_err!(forces.lock("a").force_unlock().await, Error::Unavailable { .. });
    assert_err!(guard.extend(LONG).await, Error::Unavailable { .. });
    assert!(guard.is_valid());
    assert_err!(Client::connect(&url).await, Error::Unavailable { .. });

    promote(&admin).await;
    let held = async || matches!(tries.lock("a").try_lock().await, Ok(None));
    eventually(SOON, "the lock is known to be held", held).await;
    soon(guard.unlock()).await.unwrap();
    soon(tries.lock("a").lock()).await.unwrap().unlock().await.unwrap();
}

/// F17: somebody begins to wait while the server is a replica.
#[tokio::test]
async fn a_waiter_outlives_a_demotion() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (client, other) =
        (client(&server.url(), patient()).await, client(&server.url(), patient()).await);
    let guard = other.lock("a").lock().await.unwrap();

    demote(&admin).await;
    let mut waiter = waiting(client.lock("a"));
    assert!(is_pending(&mut waiter).await);
    promote(&admin).await;

    let held = async || matches!(client.lock("b").try_lock().await, Ok(Some(_)));
    eventually(SOON, "it is a primary again", held).await;
    assert!(!waiter.is_finished());
    soon(guard.unlock()).await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
}

/// F17: an unlock meets a server that has just been demoted.
#[tokio::test]
async fn an_unlock_on_a_demoted_primary_is_repeated_until_it_is_one_again() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let client = client(&server.url(), patient()).await;
    let guard = client.lock("a").lock().await.unwrap();

    demote(&admin).await;
    let mut unlock = tokio::spawn(guard.unlock());
    assert!(is_pending(&mut unlock).await);
    is_held_once(&admin, "a").await;
    promote(&admin).await;

    soon(unlock).await.unwrap().unwrap();
    assert!(is_free(&admin, "a").await);
}

/// F17: an unlock meets a server that has just been demoted, and is the first request that does.
#[tokio::test]
async fn a_client_leaves_a_server_that_has_refused_its_unlock_as_a_replica() {
    let scene = Scene::new().await;
    // So no other answer tells the client of it, and none that is late.
    let config = patient().watchdog_timeout(LONG * 4).response_timeout(LONG);
    let client = scene.client(config).await;
    let guard = client.lock("a").lock().await.unwrap();
    let repeated = scene.proxy.script("release").nth(2).hold_request();

    demote(&scene.admin).await;
    let unlock = tokio::spawn(guard.unlock());
    let leaves = async || scene.proxy.connections(Class::Command) == 0;
    eventually(SOON, "the client leaves its connection", leaves).await;
    promote(&scene.admin).await;

    repeated.lift();
    soon(unlock).await.unwrap().unwrap();
    scene.is_clean().await;
}

/// F18: a primary becomes a replica of one that knows nothing, and its clients stay connected.
#[tokio::test]
async fn a_demoted_primary_that_forgot_a_lock_ends_no_hold() {
    let (server, empty) = (Server::start().await, Server::start().await);
    let admin = server.admin().await;
    let (holder, open) =
        (client(&server.url(), patient()).await, client(&server.url(), patient()).await);
    let guard = holder.lock("a").lock().await.unwrap();

    admin.cmd::<()>(&["REPLICAOF", "127.0.0.1", &empty.port().to_string()]).await;
    let forgotten = async || is_free(&admin, "a").await;
    eventually(SOON, "it takes over the other's nothing", forgotten).await;
    assert!(is_replica(&admin).await);

    assert_err!(guard.extend(LONG).await, Error::Unavailable { .. });
    assert!(guard.is_valid());
    assert_err!(open.lock("a").try_lock().await, Error::Unavailable { .. });

    promote(&admin).await;
    let lost = async || matches!(guard.extend(LONG).await, Err(Error::Lost { .. }));
    eventually(SOON, "the promoted one is believed", lost).await;
    assert_err!(guard.unlock().await, Error::Lost { .. });
}

/// F25: a replica without its primary, which answers nothing at all.
#[tokio::test]
async fn a_replica_that_refuses_stale_answers_is_unavailable() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let client = client(&server.url(), patient()).await;
    let guard = client.lock("a").lock().await.unwrap();

    admin.config_set("replica-serve-stale-data", "no").await;
    demote(&admin).await;
    let refused = admin.try_cmd::<()>(&["GET", "a"]).await.unwrap_err();
    assert_eq!(refused.code(), Some("MASTERDOWN"));

    assert_err!(client.lock("b").try_lock().await, Error::Unavailable { .. });
    let waiter = waiting(client.lock("b"));
    promote(&admin).await;
    granted(waiter).await.unlock().await.unwrap();
    assert!(guard.is_valid());
    soon(guard.unlock()).await.unwrap();
}
