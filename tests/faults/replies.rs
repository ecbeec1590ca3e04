//! Replies that are lost or late: a request may have run although nobody says so.

use std::time::Duration;

use parklock::{Ended, Error};
use tokio::time::sleep;

use crate::common::{eventually, judged, timeout};
use crate::scene::*;

/// F1: the reply of an acquire is lost.
#[tokio::test]
async fn an_acquire_whose_reply_is_lost_ends_as_one_hold() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let lost = scene.proxy.script("acquire").nth(1).cut_after();

    let guard = soon(client.lock("a").lock()).await.unwrap();

    assert_eq!(lost.fired(), 1);
    assert_eq!(grants(&scene.admin).await, 2, "the lost one ran");
    is_held_once(&scene.admin, "a").await;
    assert!(guard.is_valid());
    soon(guard.unlock()).await.unwrap();
    scene.is_clean().await;
}

/// F1: the reply of the only attempt is lost.
#[tokio::test]
async fn a_single_attempt_whose_reply_is_lost_is_indeterminate_and_leaves_nothing() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let lost = scene.proxy.script("acquire").nth(1).cut_after();

    let attempt = client.lock("a").try_lock().await;

    assert_eq!(lost.fired(), 1);
    assert_eq!(grants(&scene.admin).await, 1, "the lost one ran");
    assert_err!(attempt, Error::Indeterminate { .. });
    scene.is_clean().await;
}

/// F1: the caller's limit runs out while its request has run and nobody says so.
#[tokio::test]
async fn a_limit_that_runs_out_before_the_reply_is_indeterminate_and_leaves_nothing() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let held = scene.proxy.script("acquire").nth(1).hold_reply();

    let limited = client.lock("a").try_lock_for(A_WHILE).await;

    held.happened().await;
    assert_eq!(grants(&scene.admin).await, 1, "it ran");
    assert_err!(limited, Error::Indeterminate { .. });
    held.lift();
    scene.is_clean().await;
}

/// The server may grant the lock to the caller's place at any moment, also while it is out of reach.
#[tokio::test]
async fn a_limit_that_runs_out_in_line_during_an_outage_is_indeterminate_and_leaves_nothing() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient()).await, scene.other().await);
    let held = other.lock("a").lock().await.unwrap();
    let lock = client.lock("a");
    let limited = tokio::spawn(async move { lock.try_lock_for(A_WHILE * 30).await });
    let stands = async || scene.admin.cmd::<u64>(&["ZCARD", "lock_queue:{a}"]).await == 1;
    eventually(SOON, "the caller stands in line", stands).await;

    scene.proxy.refuse().await;
    scene.proxy.reset(None).await;
    let before = grants(&scene.admin).await;
    held.unlock().await.unwrap();

    // The release lets the waiter in, for a second: that may be over on a busy machine.
    assert_eq!(grants(&scene.admin).await, before + 1);
    assert_err!(soon(limited).await.unwrap(), Error::Indeterminate { .. });
    scene.proxy.accept_again().await;
    scene.is_clean().await;
}

/// F2: the connection breaks before an acquire reaches the server.
#[tokio::test]
async fn an_acquire_that_never_arrived_is_sent_again() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let cut = scene.proxy.script("acquire").nth(1).cut_before();

    let guard = soon(client.lock("a").lock()).await.unwrap();

    assert_eq!(cut.fired(), 1);
    assert_eq!(grants(&scene.admin).await, 1, "the lost one did not run");
    is_held_once(&scene.admin, "a").await;
    soon(guard.unlock()).await.unwrap();
    scene.is_clean().await;
}

/// F3: the reply of a release is lost.
#[tokio::test]
async fn an_unlock_whose_reply_is_lost_is_a_release() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let guard = client.lock("a").lock().await.unwrap();
    let lost = scene.proxy.script("release").nth(1).cut_after();

    let unlocked = soon(guard.unlock()).await;

    assert_eq!(lost.fired(), 1);
    assert!(unlocked.is_ok(), "{unlocked:?}");
    scene.is_clean().await;
}

/// F3: a release never reaches the server, and the lease ends before it is repeated.
#[tokio::test]
async fn an_unlock_that_was_cut_and_finds_nothing_after_the_lease_is_lost() {
    let scene = Scene::new().await;
    let client = scene.client(patient().response_timeout(Duration::from_secs(7))).await;
    let guard = client.lock("a").lease(Duration::from_secs(2)).lock().await.unwrap();
    let cut = scene.proxy.script("release").nth(1).cut_before();
    let late = scene.proxy.script("release").nth(2).hold_request();

    let unlocked = tokio::spawn(guard.unlock());
    late.happened().await;
    scene.is_clean().await; // the lease is over
    late.lift();

    assert_err!(soon(unlocked).await.unwrap(), Error::Lost { .. });
    assert_eq!(cut.fired(), 1);
}

/// F3: the reply of a release is lost, and somebody else has the lock by the time it is repeated.
#[tokio::test]
async fn a_repeated_unlock_does_not_touch_the_next_holder() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient()).await, scene.other().await);
    let guard = client.lock("a").lock().await.unwrap();
    let lost = scene.proxy.script("release").nth(1).cut_after();
    let repeated = scene.proxy.script("release").nth(2).hold_request();

    let unlock = tokio::spawn(guard.unlock());
    lost.happened().await;
    let next = soon(other.lock("a").lock()).await.unwrap();
    repeated.happened().await;
    repeated.lift();

    soon(unlock).await.unwrap().unwrap();
    is_held_once(&scene.admin, "a").await;
    next.extend(LONG).await.unwrap();
    assert!(next.is_valid());
    next.unlock().await.unwrap();
}

/// F3: the reply of a release is lost, and then the server stays away for longer than a call waits for it.
#[tokio::test]
async fn an_unlock_that_nobody_confirms_is_indeterminate_and_never_a_success() {
    let scene = Scene::new().await;
    let client = scene.client(patient().ride_out(Duration::from_millis(600))).await;
    let guard = client.lock("a").lock().await.unwrap();
    let cut = scene.proxy.script("release").cut_before();

    let unlocked = soon(guard.unlock()).await;

    cut.happened().await;
    assert_err!(unlocked, Error::Indeterminate { .. });
    is_held_once(&scene.admin, "a").await;
    cut.lift();
    scene.is_clean().await;
}

/// F4: the reply of a renewal is lost.
#[tokio::test]
async fn a_renewal_whose_reply_is_lost_moves_no_deadline_and_is_repeated() {
    judged(async || {
        let scene = Scene::new().await;
        let client = scene.client(brisk()).await;
        let guard = in_time(&client.lock("a")).await;
        let lost = scene.proxy.script("renew").nth(1).hold_reply();
        let before = deadline(&guard);

        lost.happened().await;

        assert!(
            deadline(&guard) < before + Duration::from_millis(200),
            "believed without an answer"
        );
        is_renewed(&guard).await;
        lost.lift();
        guard.unlock().await.unwrap();
    })
    .await;
}

/// F4: the replies of all renewals are lost.
#[tokio::test]
async fn a_holder_whose_renewals_are_never_answered_has_lost_by_its_deadline() {
    judged(async || {
        let scene = Scene::new().await;
        let client = scene.client(brisk()).await;
        let guard = in_time(&client.lock("a")).await;
        let lost = scene.proxy.script("renew").cut_after();
        let before = deadline(&guard);

        lost.happened_times(2).await;
        assert!(
            deadline(&guard) < before + Duration::from_millis(200),
            "believed without an answer"
        );
        assert!(scene.admin.pttl(&key("a")).await > 0, "the server renews it");

        assert_eq!(soon(guard.ended()).await, Ended::Lost);
        assert!(!guard.is_valid());
        assert_err!(guard.unlock().await, Error::Lost { .. });
        lost.lift();
        scene.is_clean().await; // although the server kept renewing what we gave up for lost
    })
    .await;
}

/// F6: a grant arrives when its lease is over.
#[tokio::test]
async fn a_grant_that_arrives_after_its_lease_is_no_grant() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let lease = Duration::from_millis(100);
    let late = scene.proxy.script("acquire").nth(1).hold_reply();
    let attempt = tokio::spawn({
        let lock = client.lock("a").lease(lease);
        async move { lock.try_lock().await }
    });

    late.happened().await;
    sleep(lease).await;
    late.lift();

    assert_err!(soon(attempt).await.unwrap(), Error::Indeterminate { .. });
    scene.is_clean().await;
}

/// F6: a grant arrives when its lease is over, and the caller is willing to wait.
#[tokio::test]
async fn a_waiter_whose_grant_came_too_late_asks_again() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let lease = Duration::from_millis(200);
    let late = scene.proxy.script("acquire").nth(1).delay_reply(lease, Duration::ZERO);

    let guard = soon(client.lock("a").lease(lease).lock()).await.unwrap();

    assert_eq!(late.fired(), 1);
    assert!(grants(&scene.admin).await >= 2, "the late one was believed");
    drop(guard);
    scene.is_clean().await;
}

/// F10: a request is sent again and again over new connections.
#[tokio::test]
async fn a_request_that_is_repeated_over_new_connections_counts_once() {
    let scene = Scene::new().await;
    // Each new connection loads the scripts. On a busy machine a connection that is given up halfway never comes about.
    let client = scene.client(patient().connect_timeout(LONG)).await;
    let lock = client.reentrant_lock("a");
    let acquires = scene.proxy.script("acquire").first(3).cut_after();
    let counts = scene.proxy.script("count").first(3).cut_after();

    let outer = timeout(LONG, lock.lock()).await.expect("it ends").unwrap();
    assert_eq!(acquires.fired(), 3);
    is_held_once(&scene.admin, "a").await;

    let inner = timeout(LONG, lock.lock()).await.expect("it ends").unwrap();
    // The background repeats the request too. If both are on one connection, one cut loses two of them.
    assert!(counts.fired() >= 2, "{} were cut", counts.fired());
    assert_eq!((inner.hold_count(), inner.token()), (2, outer.token()));
    let counted = async || scene.admin.hgetall(&key("a")).await.values().eq(["2"]);
    eventually(LONG, "the server counts two holds", counted).await;

    soon(inner.unlock()).await.unwrap();
    assert!(outer.is_valid());
    soon(outer.unlock()).await.unwrap();
    scene.is_clean().await;
}
