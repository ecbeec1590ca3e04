//! Passwords and hostile names.

use std::time::Instant;

use parklock::{Client, Ended, Error};

use crate::common::{Admin, Server, Watch, eventually, timeout};
use crate::log::Log;
use crate::{COUNTER, LEASE, SOON, a_turn, as_user, brief, connect, patient};

/// F86: no password, a wrong one, a wrong user.
#[tokio::test]
async fn a_wrong_password_is_a_permission_error_that_does_not_repeat_it() {
    let (log, _listening) = Log::here();
    let server = Server::builder().set("requirepass", "open-sesame").start().await;
    let url = |password| as_user(&server, "", password);
    let admin = Admin::connect(&url("open-sesame")).await;
    for (wrong, refusal) in [
        (server.url(), "NOAUTH"),
        (url("sesame-seed"), "WRONGPASS"),
        (as_user(&server, "nobody", "open-sesame"), "WRONGPASS"),
    ] {
        let refused: redis::RedisResult<String> = plain_ping(&wrong).await;
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(refusal) || said.contains("authentication failed"), "{said}");

        let asked = Watch::start();
        // It would ask again for so long if the answer were late.
        let insistent = patient().start_timeout(SOON * 3);
        let error = Client::connect_with(&wrong, insistent).await.unwrap_err();
        assert!(matches!(error, Error::Permission { .. }), "{error}");
        assert!(asked.passed() < SOON, "it is not tried again");
        for shown in [error.to_string(), format!("{error:?}"), log.text()] {
            assert!(!shown.contains("sesame"), "{shown}");
        }
    }
    assert_eq!(admin.keys().await, Vec::<String>::new());

    let client = connect(&url("open-sesame"), patient()).await;
    let (lock, guard) = (client.lock("a"), client.lock("a").lock().await.unwrap());
    for shown in [format!("{client:?}"), format!("{lock:?}"), format!("{guard:?}"), log.text()] {
        assert!(!shown.contains("sesame"), "{shown}");
    }
    guard.unlock().await.unwrap();
}

/// What a client without any care is told.
async fn plain_ping(url: &str) -> redis::RedisResult<String> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    redis::cmd("PING").query_async(&mut connection).await
}

/// F86: the password is changed while a client holds and another waits.
#[tokio::test]
async fn a_changed_password_is_a_permission_error_until_it_is_changed_back() {
    let (log, _listening) = Log::here();
    let server = Server::builder().set("requirepass", "old-sesame").start().await;
    let url = as_user(&server, "", "old-sesame");
    let (admin, client) = (Admin::connect(&url).await, connect(&url, brief()).await);
    let asked = Instant::now();
    let guard = client.lock("a").lock().await.unwrap();
    let lost = guard.ended();
    admin.config_set("requirepass", "new-sesame").await;
    admin.client_kill("normal").await;
    admin.client_kill("pubsub").await;
    assert!(plain_ping(&url).await.is_err(), "the old password is not taken any more");

    let permission = |error: Error| matches!(error, Error::Permission { .. });
    let denied = async || client.lock("b").try_lock().await.is_err_and(permission);
    eventually(SOON, "calls say that it is the permission", denied).await;
    let waiting = timeout(SOON, client.lock("b").lock()).await.expect("without riding it out");
    assert!(waiting.is_err_and(permission));
    assert_eq!(lost.await, Ended::Lost, "it could not be renewed");
    assert!(asked.elapsed() >= LEASE - LEASE / 10, "but was ours as long as its lease ran");
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));

    admin.config_set("requirepass", "old-sesame").await;
    let back = async || client.lock("b").try_lock().await.is_ok();
    eventually(SOON, "the client comes back by itself", back).await;
    assert!(log.lines_with("connected") > 0, "the log was listened to");
    assert!(!log.text().contains("sesame"), "{}", log.text());
}

/// F90: names that would be programs, commands or patterns if anybody took them for that.
#[tokio::test]
async fn a_name_is_never_more_than_a_name() {
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    admin.cmd::<()>(&["SET", "canary", "alive"]).await;
    a_turn(&client.lock("a")).await;
    let scripts = admin.info("memory", "number_of_cached_scripts").await;
    let names = [
        "'..redis.call('flushall')..'",
        "\"]] redis.call(\"flushall\") --",
        "a\r\nFLUSHALL\r\n",
        "*1\r\n$8\r\nFLUSHALL\r\n",
        "*",
        "canary",
        "lock:grants",
        "grants",
        "}canary{",
        "0 flushall",
        "%s%n%d",
        "../../canary",
    ];
    for name in names {
        let before = admin.keys().await.len();
        let guard = client.lock(name).lock().await.unwrap();
        let keys = admin.keys().await;
        assert_eq!(keys.len(), before + 1, "{name:?} is in use, as one key: {keys:?}");
        let waiter = tokio::spawn({
            let lock = client.lock(name);
            async move { a_turn(&lock).await }
        });
        assert!(client.lock(name).ttl().await.unwrap().is_some());
        guard.extend(SOON).await.unwrap();
        guard.unlock().await.unwrap();
        waiter.await.unwrap();
        client.lock(name).force_unlock().await.unwrap();
    }
    assert_eq!(admin.keys().await, ["canary", COUNTER]);
    assert_eq!(admin.cmd::<String>(&["GET", "canary"]).await, "alive");
    assert_eq!(admin.command_calls("flushall").await, 0);
    let then = admin.info("memory", "number_of_cached_scripts").await;
    assert_eq!(then, scripts, "no script was made of a name");
}
