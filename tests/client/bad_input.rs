//! Impossible input is refused before it does any harm, and strange input works.

use crate::common;

use std::time::Duration;

use common::fixture::{
    SOON, channel, client, client_with, is_pending, key, lock_keys, scripts, server_and_client,
};
use common::{Site, timeout};
use parklock::{Client, Config, Ended, Error, HandOff, Layout};

/// Commands that make a value of each type that is no lock.
const STRANGERS: [(&str, &[&str]); 5] = [
    ("string", &["SET", "KEY", "v"]),
    ("list", &["RPUSH", "KEY", "v"]),
    ("set", &["SADD", "KEY", "v"]),
    ("zset", &["ZADD", "KEY", "1", "v"]),
    ("stream", &["XADD", "KEY", "1-1", "f", "v"]),
];

async fn put(server: &Site, command: &[&str], key: &str) {
    let admin = server.admin().await;
    admin.cmd::<i64>(&["DEL", key]).await;
    let words: Vec<_> =
        command.iter().map(|word| if *word == "KEY" { key } else { word }).collect();
    admin.cmd::<redis::Value>(&words).await;
}

async fn dump(server: &Site, key: &str) -> Vec<u8> {
    server.admin().await.cmd(&["DUMP", key]).await
}

/// What every call about a lock answers: each of them must fail.
async fn refusals(client: &Client, name: &str) -> Vec<Error> {
    let lock = client.lock(name);
    let run = lock.run(async |_| unreachable!("the lock is not ours"));
    vec![
        lock.lock().await.expect_err("it is refused"),
        lock.try_lock().await.expect_err("it is refused"),
        lock.try_lock_for(SOON).await.expect_err("it is refused"),
        client.reentrant_lock(name).lock().await.expect_err("it is refused"),
        lock.ttl().await.expect_err("it is refused"),
        lock.is_locked().await.expect_err("it is refused"),
        lock.force_unlock().await.expect_err("it is refused"),
        run.await.unwrap_err(),
    ]
}

#[tokio::test]
async fn a_name_that_is_empty_or_longer_than_a_kib_is_refused_without_io() {
    let (server, client) = server_and_client().await;
    let before = scripts(&server.admin().await).await;
    for name in ["".to_owned(), "x".repeat(1025), "ä".repeat(513)] {
        for error in refusals(&client, &name).await {
            assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        }
    }
    assert_eq!(scripts(&server.admin().await).await, before);
}

#[tokio::test]
async fn a_number_of_permits_that_no_semaphore_can_have_is_refused_without_io() {
    let (server, client) = server_and_client().await;
    let before = scripts(&server.admin().await).await;
    for number in [0, 1 << 30, u32::MAX] {
        let refused = |error: Error| match error {
            Error::InvalidPermits { asked, of } => assert_eq!((asked, of), (number, (1 << 30) - 1)),
            error => panic!("{number}: {error}"),
        };
        let permits = client.semaphore("a", number);
        refused(permits.acquire().await.expect_err("it is refused"));
        refused(permits.try_acquire().await.expect_err("it is refused"));
        refused(permits.run(async |_| ()).await.expect_err("it is refused"));
        refused(permits.available_permits().await.expect_err("it is refused"));
        refused(permits.set_permits(1).await.expect_err("it is refused"));
        refused(permits.force_unlock().await.expect_err("it is refused"));
        let nameless = client.semaphore("", number).available_permits().await;
        assert!(matches!(nameless, Err(Error::InvalidName { .. })), "{nameless:?}");
    }
    assert_eq!(scripts(&server.admin().await).await, before);
}

#[tokio::test]
async fn every_other_name_is_a_lock_of_its_own() {
    let server = Site::start().await;
    let longest = "x".repeat(1024);
    let names = [
        "a",
        "A",
        "a ",
        "\0",
        "\r\n",
        "{",
        "}",
        "{}",
        "{a}",
        "a}b{",
        "%7B",
        "%",
        "*",
        "a:b",
        "'\"]]",
        "{a}:b",
        "lock:{a}",
        "grants",
        "äöü🔒",
        "a\0b",
        "${x}",
        "\u{7f}\u{80}",
        &longest,
    ];
    for layout in [Layout::Native, Layout::Redisson] {
        let client = client_with(&server, Config::default().layout(layout)).await;
        let mut guards = Vec::new();
        for name in names {
            let guard = client.lock(name).try_lock().await.unwrap();
            guards.push(guard.unwrap_or_else(|| panic!("{name:?} is another lock already")));
        }
        assert_eq!(lock_keys(&server.admin().await).await.len(), names.len());
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    }
    assert!(lock_keys(&server.admin().await).await.is_empty());
}

#[tokio::test]
async fn two_names_with_one_channel_are_two_locks() {
    let server = Site::start().await;
    let config = Config::default().layout(Layout::Redisson);
    let (ours, theirs) =
        (client_with(&server, config.clone()).await, client_with(&server, config).await);
    let _braced = theirs.lock("{a}").lock().await.unwrap();
    let plain = ours.lock("a").lock().await.unwrap();
    let lock = ours.lock("{a}");
    let mut waiter = tokio::spawn(async move { lock.lock().await });
    assert!(is_pending(&mut waiter).await);
    plain.unlock().await.unwrap();
    assert!(is_pending(&mut waiter).await, "both clients hold {{a}}");
}

#[tokio::test]
async fn a_lease_below_10_ms_or_above_a_day_is_refused_without_io() {
    let (server, client) = server_and_client().await;
    let (guard, day) = (client.lock("held").lock().await.unwrap(), Duration::from_secs(86_400));
    let before = scripts(&server.admin().await).await;
    let (ms, ns) = (Duration::from_millis(1), Duration::from_nanos(1));
    for lease in [Duration::ZERO, ns, ms * 10 - ns, day + ns, day * 365_000, Duration::MAX] {
        let lock = client.lock("a").lease(lease);
        let reentrant = client.reentrant_lock("a").lease(lease);
        for error in [
            lock.lock().await.unwrap_err(),
            lock.try_lock().await.unwrap_err(),
            lock.try_lock_for(SOON).await.unwrap_err(),
            reentrant.lock().await.unwrap_err(),
            guard.extend(lease).await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidLease { lease: wrong } if wrong == lease));
        }
    }
    assert_eq!(scripts(&server.admin().await).await, before);
    client.lock("b").lease(ms * 10).lock().await.unwrap().ended().await;
    let longest = client.lock("c").lease(day).lock().await.unwrap();
    assert!(longest.remaining() > day / 100 * 98);
    guard.extend(day).await.unwrap();
}

#[tokio::test]
async fn settings_that_contradict_each_other_are_named() {
    let server = Site::start().await;
    let (config, ms) = (Config::default, Duration::from_millis(1));
    let turns = HandOff { max_consecutive: 1024, ..HandOff::default() };
    for (wrong, words) in [
        (config().watchdog_timeout(ms), ["watchdog_timeout", "24 h"]),
        (
            config().watchdog_timeout(ms * 100).response_timeout(ms * 26),
            ["response_timeout", "watchdog_timeout"],
        ),
        (config().response_timeout(Duration::ZERO), ["response_timeout", "1 ms"]),
        (config().connect_timeout(Duration::ZERO), ["connect_timeout", "zero"]),
        (config().max_park(ms * 9), ["max_park", "10 ms"]),
        (config().max_waiters(0), ["max_waiters", "1"]),
        (config().max_hold(ms), ["max_hold", "watchdog_timeout"]),
        (config().waiter_ttl(Duration::from_secs(16)), ["waiter_ttl", "watchdog_timeout"]),
        (config().waiter_ttl(Duration::ZERO), ["waiter_ttl", "50 ms"]),
        (config().waiter_ttl(ms * 49), ["waiter_ttl", "50 ms"]),
        (config().hand_off(turns), ["max_consecutive", "1,023"]),
    ] {
        let error = Client::connect_with(server.url(), wrong).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{error} lacks {word}");
        }
    }
    assert!(server.admin().await.clients().await.len() <= 1, "only ourselves are connected");
}

#[tokio::test]
async fn a_key_of_another_type_is_a_conflict_and_left_as_it_is() {
    let (server, client) = server_and_client().await;
    for (kind, command) in STRANGERS {
        put(&server, command, &key("a")).await;
        let before = dump(&server, &key("a")).await;
        for error in timeout(SOON, refusals(&client, "a")).await.unwrap() {
            assert!(
                matches!(&error, Error::Conflict { key: named, kind: said, .. } if *named == key("a") && said == kind),
                "{kind}: {error}"
            );
        }
        assert_eq!(dump(&server, &key("a")).await, before);
    }
}

/// The release frees the lock, and then cannot let in the waiter.
#[tokio::test]
async fn an_unlock_beside_the_notes_of_a_stranger_has_given_the_lock_back() {
    let (server, client) = server_and_client().await;
    let (admin, theirs) = (server.admin().await, common::fixture::client(&server).await);
    let guard = client.lock("a").lock().await.unwrap();
    let waiter = tokio::spawn(async move { theirs.lock("a").lock().await });
    common::fixture::parked(&admin, "a", 1).await;
    admin.cmd::<i64>(&["DEL", "lock_notes:{a}"]).await;
    admin.cmd::<()>(&["SET", "lock_notes:{a}", "text"]).await;

    guard.unlock().await.expect("it was given back");

    assert_eq!(admin.pttl(&key("a")).await, -2, "the lock is free");
    waiter.abort();
}

#[tokio::test]
async fn a_lock_that_was_overwritten_is_lost_and_the_stranger_left_as_it_is() {
    let server = Site::start().await;
    let client = client(&server).await;
    for (kind, command) in STRANGERS {
        let plain = client.lock("a").lock().await.unwrap();
        put(&server, command, &key("a")).await;
        let before = dump(&server, &key("a")).await;
        assert!(matches!(plain.extend(SOON).await, Err(Error::Lost { .. })), "{kind}");
        assert!(matches!(plain.unlock().await, Err(Error::Lost { .. })), "{kind}");
        assert_eq!(dump(&server, &key("a")).await, before);

        let name = format!("{kind}, noticed by a renewal");
        let watched = client.lock(&name).lock().await.unwrap();
        put(&server, command, &key(&name)).await;
        assert_eq!(timeout(SOON, watched.ended()).await.unwrap(), Ended::Lost);
        server.admin().await.cmd::<i64>(&["DEL", &key("a")]).await;
    }
}

#[tokio::test]
async fn a_key_without_a_ttl_is_waited_for_and_not_for_ever() {
    let server = Site::start().await;
    let client = client_with(&server, Config::default().max_park(Duration::from_secs(1))).await;
    let admin = server.admin().await;
    admin.cmd::<i64>(&["HSET", &key("a"), "a stranger", "1"]).await;
    assert_eq!(client.lock("a").ttl().await.unwrap(), None);
    assert!(client.lock("a").is_locked().await.unwrap(), "without a TTL, it is held for ever");
    assert!(client.lock("a").try_lock().await.unwrap().is_none());
    let lock = client.lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    common::fixture::parked(&admin, "a", 1).await;

    admin.cmd::<i64>(&["DEL", &key("a")]).await; // and nobody publishes anything

    timeout(SOON, waiter).await.unwrap().unwrap().unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_replaced_and_one_of_another_type_refused() {
    let (server, client) = server_and_client().await;
    let admin = server.admin().await;
    let mut last = client.lock("a").lock().await.unwrap().token();
    for nonsense in ["nonsense", "-1", "9223372036854775807", "9007199254740993", "1.5", "0"] {
        admin.cmd::<()>(&["SET", "lock:grants", nonsense]).await;
        let guard = client.lock("b").lock().await.unwrap();
        assert!(guard.token() > last, "{nonsense}");
        last = guard.token();
        guard.unlock().await.unwrap();
    }
    put(&server, &["RPUSH", "KEY", "v"], "lock:grants").await;
    let refused = timeout(SOON, client.lock("b").lock()).await.unwrap();
    assert!(
        matches!(&refused, Err(Error::Conflict { key, kind, .. }) if key == "lock:grants" && kind == "list"),
        "{refused:?}"
    );
    assert!(admin.hgetall(&key("b")).await.is_empty());
}

#[tokio::test]
async fn whatever_is_published_on_a_channel_harms_nobody() {
    let (server, ours) = server_and_client().await;
    let admin = server.admin().await;
    let guard = client(&server).await.lock("a").lock().await.unwrap();
    let lock = ours.lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    common::fixture::parked(&admin, "a", 1).await;
    for message in ["", "0", "1", "\0\u{1F512}", &"x".repeat(100_000)] {
        assert_eq!(admin.publish(&channel("a"), message).await, 1);
    }
    guard.unlock().await.unwrap();
    timeout(SOON, waiter).await.unwrap().unwrap().unwrap().unlock().await.unwrap();
}
