//! Others write to the keys of a lock: operators, programs with the same names, strangers.

use std::time::{Duration, Instant};

use parklock::{Client, Ended, Error};
use tracing::Level;

use crate::common::{eventually, judged};
use crate::log::Log;
use crate::scene::*;

/// F28: an operator deletes the lock, or everything.
#[tokio::test]
async fn a_holder_whose_key_was_deleted_is_told_before_its_deadline() {
    judged(async || {
        for deed in [&["DEL", &key("a")][..], &["FLUSHALL"], &["PEXPIRE", &key("a"), "1"]] {
            let scene = Scene::new().await;
            let client = scene.client(brisk()).await;
            let guard = client.lock("a").lock().await.unwrap();
            let until = deadline(&guard);

            scene.admin.cmd::<()>(deed).await;
            let gone = async || is_free(&scene.admin, "a").await;
            eventually(SOON, "the key is gone", gone).await;

            assert_eq!(soon(guard.ended()).await, Ended::Lost);
            assert!(Instant::now() < until, "only its deadline told it, after {deed:?}");
            assert_err!(guard.unlock().await, Error::Lost { .. });
            let next = client.lock("a").try_lock().await.unwrap();
            assert!(next.is_some_and(|next| next.is_valid()), "after {deed:?}");
        }
    })
    .await;
}

/// F28: an operator deletes the lock, and nobody is told.
#[tokio::test]
async fn a_waiter_whose_holder_was_deleted_gets_the_lock_within_a_park() {
    let scene = Scene::new().await;
    let park = Duration::from_millis(300);
    let (client, other) = (scene.client(patient().max_park(park)).await, scene.other().await);
    let theirs = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;

    scene.admin.cmd::<()>(&["DEL", &key("a")]).await;

    let ours = granted(waiter).await;
    assert_err!(theirs.unlock().await, Error::Lost { .. });
    is_held_once(&scene.admin, "a").await;
    assert!(ours.is_valid());
    ours.unlock().await.unwrap();
}

/// An operator deletes what the scripts note about waiters. By themselves, those near the front ask every twenty seconds.
#[tokio::test]
async fn waiters_whose_notes_were_deleted_have_their_turns() {
    const CALLERS: usize = 60;
    let scene = Scene::new().await;
    let rarely = || patient().watchdog_timeout(2 * LONG).waiter_ttl(LONG);
    let clients = [scene.client(rarely()).await, scene.client(rarely()).await];
    let theirs = scene.other().await.fair_lock("a").lock().await.unwrap();
    let turn = async |client: Client| client.fair_lock("a").lock().await?.unlock().await;
    let turns: Vec<_> = (0..CALLERS).map(|n| tokio::spawn(turn(clients[n % 2].clone()))).collect();
    let stand = async || scene.admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == CALLERS;
    eventually(SOON, "all of them stand in line", stand).await;

    scene.admin.cmd::<()>(&["DEL", "lock_notes:{a}"]).await;
    theirs.unlock().await.unwrap();

    for turn in turns {
        soon(turn).await.unwrap().unwrap();
    }
    scene.is_clean().await;
}

/// F29: somebody takes the TTL away from a lock that is held.
#[tokio::test]
async fn a_renewal_puts_back_a_ttl_that_was_taken_away() {
    judged(async || {
        let scene = Scene::new().await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();

        scene.admin.cmd::<()>(&["PERSIST", &key("a")]).await;
        assert_eq!(scene.admin.pttl(&key("a")).await, -1);

        let limited = async || scene.admin.pttl(&key("a")).await > 0;
        eventually(SOON, "the key has a TTL again", limited).await;
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

/// F29: a foreign key without a TTL stands in the lock's place.
#[tokio::test]
async fn a_key_without_a_ttl_is_warned_of_and_looked_at_each_park() {
    let (log, _listening) = Log::of(Level::WARN);
    let scene = Scene::new().await;
    let client = scene.client(patient().max_park(Duration::from_millis(100))).await;
    scene.admin.cmd::<()>(&["HSET", &key("a"), "somebody", "1"]).await;
    assert_eq!(scene.admin.pttl(&key("a")).await, -1);

    assert!(client.lock("a").try_lock().await.unwrap().is_none());
    assert_eq!(client.lock("a").ttl().await.unwrap(), None);
    assert!(client.lock("a").is_locked().await.unwrap(), "without a TTL, it is held for ever");
    let waiter = scene.parked(&client, "a").await;
    let looks = scene.proxy.script("acquire").count();
    looks.happened_times(3).await;
    assert!(log.lines_with("the key of the lock has no TTL") > 0);
    assert!(!waiter.is_finished());

    scene.admin.cmd::<()>(&["DEL", &key("a")]).await;
    granted(waiter).await.unlock().await.unwrap();
}

/// F30: a value of another type stands in the lock's place.
#[tokio::test]
async fn a_key_of_another_type_is_a_conflict_and_stays_as_it_is() {
    let kinds: [(&str, &[&str]); 4] = [
        ("string", &["SET", "KEY", "text"]),
        ("list", &["RPUSH", "KEY", "item"]),
        ("set", &["SADD", "KEY", "member"]),
        ("zset", &["ZADD", "KEY", "1", "member"]),
    ];
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    for (n, (kind, deed)) in kinds.into_iter().enumerate() {
        let (lock, key) = (client.lock(format!("a{n}")), key(&format!("a{n}")));
        let deed: Vec<_> = deed.iter().map(|word| word.replace("KEY", &key)).collect();
        let deed: Vec<_> = deed.iter().map(String::as_str).collect();
        scene.admin.cmd::<()>(&deed).await;
        let before: Vec<u8> = scene.admin.cmd(&["DUMP", &key]).await;
        let looks = scene.proxy.script("acquire").count();

        let conflicts = [
            soon(lock.lock()).await.map(drop),
            lock.try_lock().await.map(drop),
            lock.ttl().await.map(drop),
            lock.force_unlock().await.map(drop),
        ];
        for conflict in conflicts {
            let Err(Error::Conflict { key: named, kind: said, .. }) = conflict else {
                panic!("{conflict:?}")
            };
            assert_eq!((named.as_str(), said.as_str()), (key.as_str(), kind));
        }

        assert_eq!(looks.fired(), 2, "asked again and again");
        looks.lift();
        assert_eq!(scene.admin.cmd::<Vec<u8>>(&["DUMP", &key]).await, before);
    }
}

/// F30: the key of a lock that is held is overwritten by a value of another type.
#[tokio::test]
async fn a_holder_whose_key_was_overwritten_is_told_and_leaves_it() {
    judged(async || {
        let scene = Scene::new().await;
        let client = scene.client(brisk()).await;
        let guard = client.lock("a").lock().await.unwrap();
        let until = deadline(&guard);

        scene.admin.cmd::<()>(&["SET", &key("a"), "text"]).await;

        assert_eq!(soon(guard.ended()).await, Ended::Lost);
        assert!(Instant::now() < until, "only its deadline told it");
        assert_err!(guard.unlock().await, Error::Lost { .. });
        tokio::time::sleep(A_WHILE).await; // in this time the client would sweep away the rest of the lock
        assert_eq!(scene.admin.cmd::<String>(&["GET", &key("a")]).await, "text");
    })
    .await;
}

/// F30: the same, and the holder unlocks before anybody has told it.
#[tokio::test]
async fn an_unlock_of_a_key_that_was_overwritten_leaves_it() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let lock = client.reentrant_lock("a");
    let (guard, nested) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());

    scene.admin.cmd::<()>(&["SET", &key("a"), "text"]).await;

    let nested = nested.unlock().await;
    let unlocked = guard.unlock().await;
    assert_err!(unlocked, Error::Lost { .. });
    assert!(matches!(nested, Ok(()) | Err(Error::Lost { .. })), "{nested:?}");
    assert_eq!(scene.admin.cmd::<String>(&["GET", &key("a")]).await, "text");
}

/// F31: another program has put a hash with other fields in the place of the lock.
#[tokio::test]
async fn a_hash_with_other_fields_is_held_by_somebody_else() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    scene.admin.cmd::<()>(&["HSET", &key("a"), "somebody", "three times", "", "-1"]).await;
    scene.admin.cmd::<()>(&["PEXPIRE", &key("a"), "3000"]).await;

    assert!(client.lock("a").try_lock().await.unwrap().is_none());
    let fields = scene.admin.hgetall(&key("a")).await;
    assert!(fields.len() == 2 && fields["somebody"] == "three times", "{fields:?}");

    // Its time is up, and ours comes without a message.
    soon(client.lock("a").lock()).await.unwrap().unlock().await.unwrap();
}

/// F31: somebody adds a field of his own to a lock that is held.
#[tokio::test]
async fn a_release_leaves_what_a_stranger_added() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let guard = client.lock("a").lock().await.unwrap();
    scene.admin.cmd::<()>(&["HSET", &key("a"), "somebody", "1"]).await;

    guard.extend(LONG).await.unwrap();
    guard.unlock().await.unwrap();

    let left = scene.admin.hgetall(&key("a")).await;
    assert_eq!(left.keys().collect::<Vec<_>>(), ["somebody"]);
    assert!(scene.admin.pttl(&key("a")).await > 0);
    assert!(client.lock("a").try_lock().await.unwrap().is_none());
}
