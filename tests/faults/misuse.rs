//! Too often, twice, by the wrong one, in the wrong order.

use parklock::{Error, Guard, Owner};

use crate::common::{Proxy, Server, eventually};
use crate::{A_WHILE, SOON, connect, fields, is_clean, key, last_request_with, patient};

/// F72: an owner nests without end.
#[tokio::test]
async fn too_many_holds_are_refused_and_the_lock_is_kept() {
    let server = Server::builder().unix_socket().start().await;
    let (client, admin) = (connect(&server.unix_url(), patient()).await, server.admin().await);
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let mut guards = vec![lock.lock().await.unwrap()];
    // What stands in Redis does not matter: it is written, not added to.
    let field = fields(&admin, "a").await.remove(0);
    admin.cmd::<()>(&["HSET", &key("a"), &field, "9223372036854775807"]).await;
    let limit = loop {
        match lock.lock().await {
            Ok(guard) => guards.push(guard),
            Err(Error::TooManyHolds { name, limit }) if name == "a" => break limit,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((limit, guards.len()), (65_535, 65_535));

    assert_eq!(admin.hgetall(&key("a")).await[&field], "65535");
    assert_eq!(guards[0].hold_count(), limit);
    assert!(lock.try_lock().await.is_err(), "it stays so");
    guards.pop().unwrap().unlock().await.unwrap();
    guards.push(lock.lock().await.expect("there is room for one"));
    drop(guards);
    is_clean(&admin, SOON, "it is given back").await;
}

/// F73: a release arrives a second time, when the lock is somebody else's.
#[tokio::test]
async fn a_second_release_has_no_effect() {
    let server = Server::builder()
        .set("slowlog-log-slower-than", "0")
        .set("slowlog-max-len", "1000")
        .start()
        .await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let guard = client.lock("a").lock().await.unwrap();
    let field = fields(&admin, "a").await.remove(0);
    guard.unlock().await.unwrap(); // consumes the guard: there is nothing left to unlock
    let release = last_request_with(&admin, &field).await;
    let release: Vec<&str> = release.iter().map(String::as_str).collect();
    let next = client.lock("a").lock().await.unwrap();
    let theirs = fields(&admin, "a").await;

    for _ in 0..2 {
        assert_eq!(admin.cmd::<Vec<u32>>(&release).await, [0], "it finds nothing");
    }

    assert_eq!(fields(&admin, "a").await, theirs);
    assert!(next.is_valid());
    next.unlock().await.unwrap();
}

/// F73: a guard is unlocked, then dropped, as every guard is.
#[tokio::test]
async fn a_guard_is_given_back_once() {
    trait NotClone<Marker> {
        fn given_back_once(&self) {}
    }
    impl<T> NotClone<()> for T {}
    impl<T: Clone> NotClone<u8> for T {}
    // Ambiguous, and so no program, if a guard could be cloned.
    let only_one_way = <Guard as NotClone<_>>::given_back_once;

    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("release", include_str!("../../lua/line/release.lua"));
    let client = connect(&proxy.url(), patient()).await;
    let releases = proxy.script("release").count();
    let guard = client.lock("a").lock().await.unwrap();
    only_one_way(&guard);
    guard.unlock().await.unwrap();
    let guard = client.lock("b").lock().await.unwrap();
    drop(guard);
    is_clean(&server.admin().await, SOON, "both are given back").await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(releases.fired(), 2);
}

/// F74: a guard unlocks what has become another owner's.
#[tokio::test]
async fn an_unlock_does_not_touch_another_owners_hold() {
    let server = Server::start().await;
    let [client, other] =
        [connect(&server.url(), patient()).await, connect(&server.url(), patient()).await];
    let admin = server.admin().await;
    for nested in [false, true] {
        let lock = client.reentrant_lock("a").owned_by(&Owner::new());
        let stale = lock.lock().await.unwrap();
        let inner = if nested { Some(lock.lock().await.unwrap()) } else { None };
        assert!(other.lock("a").force_unlock().await.unwrap());
        let theirs = other.lock("a").lock().await.unwrap();
        let before = admin.hgetall(&key("a")).await;
        assert_eq!(before.len(), 1, "it is the other owner's now");

        if let Some(inner) = inner {
            assert!(matches!(inner.unlock().await, Err(Error::Lost { .. })));
        }
        assert!(matches!(stale.unlock().await, Err(Error::Lost { .. })));
        assert_eq!(admin.hgetall(&key("a")).await, before);
        assert!(theirs.is_valid());
        theirs.unlock().await.unwrap();
    }
}

/// F75: nested guards go in every order but their own.
#[tokio::test]
async fn nested_guards_may_be_given_back_in_any_order() {
    let server = Server::start().await;
    let [client, other] =
        [connect(&server.url(), patient()).await, connect(&server.url(), patient()).await];
    let admin = server.admin().await;
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (order, dropped) in orders.into_iter().flat_map(|order| [(order, false), (order, true)]) {
        let lock = client.reentrant_lock("a").owned_by(&Owner::new());
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(Some(lock.lock().await.unwrap()));
        }
        for (n, left) in order.into_iter().zip([2, 1, 0]) {
            let guard = guards[n].take().unwrap();
            if dropped {
                drop(guard)
            } else {
                guard.unlock().await.unwrap()
            }
            let counted = async || {
                let counts: Vec<_> = admin.hgetall(&key("a")).await.into_values().collect();
                counts == Vec::from_iter((left > 0).then(|| left.to_string()))
            };
            eventually(SOON, &format!("{order:?}: {left} holds in redis"), counted).await;
            for guard in guards.iter().flatten() {
                assert!(guard.is_valid());
                assert_eq!(guard.hold_count(), left);
            }
            let free = other.lock("a").try_lock().await.unwrap();
            assert_eq!(free.is_some(), left == 0, "{order:?}");
            if let Some(guard) = free {
                guard.unlock().await.unwrap();
            }
        }
    }
}
