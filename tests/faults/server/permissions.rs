//! Users without one of the permissions that a lock needs: nothing is left half done.

use std::time::Duration;

use parklock::{Client, Config, Ended, Error};

use crate::common::{Admin, judged};
use crate::scene::*;

/// A client whose user may do everything but this, and the proof of it.
async fn client_without(
    scene: &Scene,
    config: Config,
    rules: &[&str],
    forbidden: &[&str],
) -> Client {
    let user = ["ACL", "SETUSER", "user", "reset", "on", ">pass", "~*", "&*", "+@all"];
    scene.admin.cmd::<()>(&[&user, rules].concat()).await;
    let url = scene.server.url().replace("redis://", "redis://user:pass@");
    let refused = Admin::connect(&url).await.try_cmd::<()>(forbidden).await;
    let refused = refused.expect_err("the user may not");
    assert_eq!(refused.code(), Some("NOPERM"), "{refused}");
    client(&url, config).await
}

/// The user may not publish.
#[tokio::test]
async fn an_unlock_that_may_not_publish_is_a_release() {
    for rules in [&["-publish"][..], &["resetchannels"], &["resetchannels", "&other:*"]] {
        let scene = Scene::new().await;
        let client =
            client_without(&scene, patient(), rules, &["PUBLISH", &channel("a"), "x"]).await;
        let lock = client.reentrant_lock("a");
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());

        inner.unlock().await.unwrap();
        outer.unlock().await.unwrap();

        assert!(is_free(&scene.admin, "a").await, "{rules:?}");
        drop(lock.lock().await.unwrap());
        scene.is_clean().await;
    }
}

/// The user may not set an expiry.
#[tokio::test]
async fn an_acquire_that_may_not_set_an_expiry_leaves_no_eternal_key() {
    let scene = Scene::new().await;
    let forbidden = ["PEXPIRE", &key("a"), "1"];
    let client = client_without(&scene, patient(), &["-pexpire"], &forbidden).await;

    assert_err!(client.lock("a").try_lock().await, Error::Permission { .. });
    assert_err!(soon(client.lock("a").lock()).await, Error::Permission { .. });

    scene.is_clean().await;
}

/// The user may neither set an expiry nor undo the write before it.
#[tokio::test]
async fn an_acquire_that_may_undo_nothing_leaves_no_eternal_key() {
    let scene = Scene::new().await;
    let forbidden = ["PEXPIRE", &key("a"), "1"];
    let client = client_without(&scene, patient(), &["-pexpire", "-hdel"], &forbidden).await;

    assert_err!(client.lock("a").try_lock().await, Error::Permission { .. });

    assert!(is_free(&scene.admin, "a").await, "TTL {}", scene.admin.pttl(&key("a")).await);
}

/// The user may not do one of the other things that an acquire does.
#[tokio::test]
async fn an_acquire_that_is_forbidden_says_so_and_leaves_nothing() {
    for (rules, forbidden) in [
        ("-hset", &["HSET", &key("a"), "f", "1"][..]),
        ("-set", &["SET", COUNTER, "1"]),
        ("-exists", &["EXISTS", &key("a")]),
        ("-eval", &["EVAL", "return 1", "0"]),
        ("-evalsha", &["EVALSHA", "x", "0"]),
    ] {
        let scene = Scene::new().await;
        let rules: Vec<_> = rules.split(' ').collect();
        let client = client_without(&scene, patient(), &rules, forbidden).await;
        let attempt = client.lock("a").try_lock().await;
        match (rules[0], attempt) {
            // It is only needed for scripts that the server forgot.
            ("-eval", Ok(Some(guard))) => guard.unlock().await.unwrap(),
            (_, Err(Error::Permission { .. })) => {}
            (_, other) => panic!("{rules:?}: {other:?}"),
        }
        scene.is_clean().await;
    }
}

/// A user of the locks whose names begin with an `a`.
const ONLY_A: [&str; 7] =
    ["resetkeys", "~lock:grants", "~lock:{a*", "~lock_queue:{a*", "~lock_notes:{a*", "&*", "+@all"];

/// One of the locks that are asked for at the same moment is forbidden.
#[tokio::test]
async fn a_forbidden_name_harms_no_other_lock() {
    let scene = Scene::new().await;
    scene
        .admin
        .cmd::<()>(&[&["ACL", "SETUSER", "user", "reset", "on", ">pass"], &ONLY_A[..]].concat())
        .await;
    let url = scene.proxy.url().replace("redis://", "redis://user:pass@");
    let client = client(&url, patient()).await;
    assert_err!(client.lock("b").try_lock().await, Error::Permission { .. });

    // While the first is under way, the others gather.
    let slow = scene.proxy.script("acquire").nth(1).delay_reply(A_WHILE, Duration::ZERO);
    let first = waiting(client.lock("a"));
    slow.happened().await;
    let names = ["a0", "a1", "b", "a2", "a3"];
    let attempts = names.map(|name| {
        let lock = client.lock(name);
        tokio::spawn(async move { lock.try_lock().await })
    });
    for (name, attempt) in names.into_iter().zip(attempts) {
        match (name, soon(attempt).await.unwrap()) {
            ("b", attempt) => assert_err!(attempt, Error::Permission { .. }),
            (name, attempt) => assert!(matches!(attempt, Ok(Some(_))), "{name}: {attempt:?}"),
        }
    }
    drop(granted(first).await);
    scene.is_clean().await;
}

/// One of the locks that are renewed and given back together has become forbidden.
#[tokio::test]
async fn a_lock_that_has_become_forbidden_takes_no_other_with_it() {
    judged(async || {
        let scene = Scene::new().await;
        let client = client_without(&scene, brisk(), &["-flushall"], &["FLUSHALL"]).await;
        // All at once, so that they are renewed together.
        let [b, others @ ..] = ["b", "a0", "a1", "a2", "a3"].map(|name| waiting(client.lock(name)));
        let b = granted(b).await;
        let mut guards = Vec::new();
        for other in others {
            guards.push(granted(other).await);
        }

        scene.admin.cmd::<()>(&[&["ACL", "SETUSER", "user"], &ONLY_A[..]].concat()).await;

        assert_eq!(soon(b.ended()).await, Ended::Lost);
        for guard in &guards {
            assert!(guard.is_valid(), "{guard:?} is lost with the other");
        }
        drop((b, guards));
        scene.is_clean().await;
    })
    .await;
}

/// The user loses a permission while it holds the lock.
#[tokio::test]
async fn a_release_that_has_become_forbidden_says_so() {
    judged(async || {
        let scene = Scene::new().await;
        let client = client_without(&scene, brisk(), &["-flushall"], &["FLUSHALL"]).await;
        let guard = client.lock("a").lock().await.unwrap();

        scene.admin.cmd::<()>(&["ACL", "SETUSER", "user", "-hdel"]).await;

        assert_err!(guard.unlock().await, Error::Permission { .. });
        is_held_once(&scene.admin, "a").await;
        scene.is_clean().await; // its lease ends it
    })
    .await;
}
