//! What users build on without noticing: it compiles, or it does not.

use crate::common;

use std::fmt::{Debug, Display};
use std::hash::Hash;

use common::fixture::server_and_client;
use parklock::{
    Client, ClientBuilder, Config, Ended, Error, FencingToken, Guard, HandOff, Hold, Layout, Lock,
    MultiGuard, MultiHold, MultiLock, Owner, ReentrantLock,
};

fn travels<T: Send + Sync + 'static>() {}
fn is_shown<T: Debug>() {}
fn is_cheap<T: Clone + Send + Sync + 'static>() {}
fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn public_types_are_send_and_debug() {
    travels::<Guard>();
    travels::<MultiGuard>();
    is_cheap::<Client>();
    is_cheap::<ClientBuilder>();
    is_shown::<ClientBuilder>();
    is_cheap::<Lock>();
    is_cheap::<ReentrantLock>();
    is_cheap::<MultiLock>();
    is_cheap::<Hold>();
    is_cheap::<MultiHold>();
    is_cheap::<Owner>();
    is_cheap::<Config>();
    is_cheap::<Error>();
    is_shown::<(Client, Config, Ended, Error)>();
    is_shown::<(Guard, HandOff, Hold, Layout, Lock, Owner, ReentrantLock)>();
    is_shown::<(MultiGuard, MultiHold, MultiLock)>();
}

#[test]
fn a_token_is_a_plain_ordered_number() {
    fn number<T: Copy + Ord + Hash + Display + Debug + Send + Sync>() {}
    number::<FencingToken>();
}

#[test]
fn an_error_is_an_error_of_the_standard_library() {
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    error::<Error>();
}

#[tokio::test]
async fn every_future_can_be_spawned() {
    let (_server, client) = server_and_client().await;
    let (lock, reentrant) = (client.lock("a"), client.reentrant_lock("b"));
    is_send(Client::connect("redis://127.0.0.1:1")).await.unwrap_err();
    let guard = is_send(lock.lock()).await.unwrap();
    let nested = is_send(reentrant.lock()).await.unwrap();
    assert!(is_send(lock.try_lock()).await.unwrap().is_none());
    assert!(is_send(lock.try_lock_for(std::time::Duration::ZERO)).await.unwrap().is_none());
    is_send(guard.extend(std::time::Duration::from_secs(1))).await.unwrap();
    let lost = is_send(guard.ended());
    is_send(guard.unlock()).await.unwrap();
    assert_eq!(lost.await, Ended::Released);
    assert_eq!(
        is_send(reentrant.run(|hold| async move { hold.token() })).await.unwrap(),
        nested.token()
    );
    let multi = client.multi_lock(["c", "d"]);
    let guard = is_send(multi.lock()).await.unwrap();
    assert!(is_send(multi.try_lock()).await.unwrap().is_none());
    assert!(is_send(multi.try_lock_for(std::time::Duration::ZERO)).await.unwrap().is_none());
    is_send(guard.extend(std::time::Duration::from_secs(1))).await.unwrap();
    let lost = is_send(guard.ended());
    is_send(guard.unlock()).await.unwrap();
    assert_eq!(is_send(lost).await, Ended::Released);
    is_send(multi.run(|hold| async move { hold.tokens() })).await.unwrap();
    is_send(client.close()).await;
}

#[tokio::test]
async fn futures_that_ask_the_server_can_be_spawned() {
    let (_server, client) = server_and_client().await;
    let (lock, reentrant) = (client.lock("a"), client.reentrant_lock("a"));
    assert!(!is_send(lock.is_locked()).await.unwrap());
    assert!(is_send(reentrant.ttl()).await.unwrap().is_none());
    assert!(!is_send(lock.force_unlock()).await.unwrap());
}
