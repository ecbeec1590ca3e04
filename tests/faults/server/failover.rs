//! A replica takes the place of its primary: what it has not heard of is lost, and told; the rest goes on.

use parklock::{Ended, Error};

use super::roles::*;
use crate::common::{Class, Proxy, Server, eventually};
use crate::scene::*;

/// F16: the primary dies before a grant has reached the replica that takes its place.
#[tokio::test]
async fn a_grant_that_a_failover_forgot_is_lost_and_the_next_token_is_greater() {
    let primary = Server::start().await;
    let link = Proxy::before(&primary).await;
    let replica = replica_of(&primary, &link).await;
    let route = Route::to(&primary);
    let (client, other) = (route.client().await, route.client().await);

    let cut = link.blackhole(Class::Replica);
    let guard = client.lock("a").lock().await.unwrap();
    cut.happened().await;
    let admin = replica.admin().await;
    assert!(is_free(&admin, "a").await, "the replica has heard of it");
    primary.kill();
    promote(&admin).await;
    route.change(&replica);

    let next = soon(other.lock("a").lock()).await.unwrap();
    assert!(next.token() > guard.token());
    let lost = async || matches!(guard.extend(LONG).await, Err(Error::Lost { .. }));
    eventually(SOON, "the new primary does not know the old holder", lost).await;
    assert_eq!(soon(guard.ended()).await, Ended::Lost);
    assert_err!(guard.unlock().await, Error::Lost { .. });
    assert!(next.is_valid());
    is_held_once(&admin, "a").await;
    next.unlock().await.unwrap();
}

/// F16: the primary dies after the replica has heard of everything.
#[tokio::test]
async fn a_hold_that_reached_the_replica_survives_a_failover() {
    let primary = Server::start().await;
    let link = Proxy::before(&primary).await;
    let replica = replica_of(&primary, &link).await;
    let route = Route::to(&primary);
    let (client, other) = (route.client().await, route.client().await);
    let guard = client.lock("a").lock().await.unwrap();
    let waiter = waiting(other.lock("a"));
    let admin = replica.admin().await;
    let heard = async || !is_free(&admin, "a").await;
    eventually(SOON, "the replica hears of it", heard).await;

    primary.kill();
    promote(&admin).await;
    route.change(&replica);

    let kept = async || guard.extend(LONG).await.is_ok();
    eventually(SOON, "the new primary knows the holder", kept).await;
    assert!(!waiter.is_finished());
    guard.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
}

/// F17: the old primary lives on as a replica of nobody; subscriptions on it hear nothing of the new one.
#[tokio::test]
async fn a_waiter_is_not_left_listening_to_the_old_primary() {
    let primary = Server::start().await;
    let link = Proxy::before(&primary).await;
    let replica = replica_of(&primary, &link).await;
    let route = Route::to(&primary);
    let (client, other) = (route.client().await, route.client().await);
    let guard = other.lock("a").lock().await.unwrap();
    let mut waiter = waiting(client.lock("a"));
    let old = primary.admin().await;
    let listening = async || old.subscribers(&channel("a")).await == 1;
    eventually(SOON, "the waiter listens", listening).await;
    let new = replica.admin().await;
    let heard = async || !is_free(&new, "a").await;
    eventually(SOON, "the replica hears of it", heard).await;

    promote(&new).await;
    route.change(&replica);
    demote(&old).await;
    // Each client speaks, hears that this is a replica, and goes to the new primary.
    for client in [&client, &other] {
        let moved = async || matches!(client.lock("b").try_lock().await, Ok(Some(_)));
        eventually(SOON, "it speaks to the new primary", moved).await;
    }
    assert!(is_pending(&mut waiter).await);
    let held = new.hgetall(&key("a")).await;
    soon(guard.unlock()).await.unwrap();
    // It may be the waiter's by now, but not the old holder's.
    assert_ne!(new.hgetall(&key("a")).await, held, "the release went to the new primary");

    granted(waiter).await.unlock().await.unwrap();
}

/// F18: a replica that has not heard of a lock says that it is not held.
#[tokio::test]
async fn a_replica_that_knows_nothing_ends_no_hold() {
    let primary = Server::start().await;
    let link = Proxy::before(&primary).await;
    let replica = replica_of(&primary, &link).await;
    let route = Route::to(&primary);
    let client = route.client().await;
    let cut = link.blackhole(Class::Replica);
    let guard = client.lock("a").lock().await.unwrap();
    cut.happened().await;
    let admin = replica.admin().await;
    assert!(is_free(&admin, "a").await && is_replica(&admin).await);

    // Before the promotion.
    primary.kill();
    route.change(&replica);
    assert_err!(guard.extend(LONG).await, Error::Unavailable { .. } | Error::Indeterminate { .. });
    assert_err!(guard.extend(LONG).await, Error::Unavailable { .. });
    assert!(guard.is_valid());

    // After it, it is the primary's word.
    promote(&admin).await;
    assert!(guard.is_valid());
    let lost = async || matches!(guard.extend(LONG).await, Err(Error::Lost { .. }));
    eventually(SOON, "the new primary is believed", lost).await;
    assert!(!guard.is_valid());
}
