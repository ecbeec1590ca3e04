//! Strangers write to the counter behind the fencing tokens: locks are granted all the same, and tokens grow.

use std::time::Duration;

use parklock::{Error, FencingToken, Lock};
use tokio::time::sleep;

use crate::scene::*;

/// Puts something in the counter's place, between two grants of one lock.
async fn grants_over(deed: &[&str]) {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    let lock = client.lock("a");
    let before = take(&lock).await;

    scene.admin.cmd::<()>(&["DEL", COUNTER]).await;
    scene.admin.cmd::<()>(deed).await;
    assert_eq!(scene.admin.pttl(COUNTER).await, -1, "it is there");
    sleep(A_WHILE).await;

    let mut last = before;
    for _ in 0..3 {
        let token = take(&lock).await;
        assert!(token > last, "{deed:?}: {token} after {last}");
        last = token;
    }
    scene.is_clean().await;
}

async fn take(lock: &Lock) -> FencingToken {
    let guard = lock.try_lock().await.expect("nobody minds").expect("it is free");
    let token = guard.token();
    guard.unlock().await.expect("it was ours");
    token
}

/// F31, F51: the counter is a text.
#[tokio::test]
async fn tokens_grow_over_a_counter_that_is_a_text() {
    grants_over(&["SET", COUNTER, "a text"]).await;
    grants_over(&["SET", COUNTER, ""]).await;
    grants_over(&["SET", COUNTER, "1.5"]).await;
}

/// F31, F51: the counter is not where the tokens were.
#[tokio::test]
async fn tokens_grow_over_a_counter_that_was_set_back() {
    grants_over(&["SET", COUNTER, "0"]).await;
    grants_over(&["SET", COUNTER, "-9223372036854775808"]).await;
}

/// F31, F51: the counter is at the end of what an integer can be.
#[tokio::test]
async fn tokens_grow_over_a_counter_that_overflows() {
    grants_over(&["SET", COUNTER, "9223372036854775807"]).await; // i64::MAX
    grants_over(&["SET", COUNTER, "9223372036854775808"]).await;
}

/// F31, F51: the counter is where Lua's numbers begin to skip.
#[tokio::test]
async fn tokens_grow_over_a_counter_that_lua_cannot_count() {
    grants_over(&["SET", COUNTER, "9007199254740992"]).await; // 2^53
    grants_over(&["SET", COUNTER, "9007199254740991"]).await;
}

/// F31, F51: the counter is two grants from where Lua's numbers begin to skip.
#[tokio::test]
async fn tokens_grow_past_the_last_number_that_lua_can_count() {
    grants_over(&["SET", COUNTER, "9007199254740989"]).await; // 2^53 - 3
}

/// F51: the counter is set back, and the next client that asks has had no grant before.
#[tokio::test]
async fn tokens_grow_from_client_to_client_over_a_counter_that_was_set_back() {
    let scene = Scene::new().await;
    let (one, other) = (scene.client(patient()).await, scene.other().await);
    let first = take(&one.lock("a")).await;
    scene.admin.cmd::<()>(&["SET", COUNTER, "7"]).await;
    sleep(A_WHILE).await;
    let second = take(&other.lock("a")).await;
    assert!(second > first, "{second} after {first}");
}

/// F31, F51: the counter is far ahead of every clock, and just at the end of what would be believed.
#[tokio::test]
async fn tokens_grow_over_a_counter_that_is_ahead_of_the_clock() {
    grants_over(&["SET", COUNTER, "4503599627370494"]).await; // 2^52 - 2
    let scene = Scene::new().await;
    let (seconds, _): (u64, u64) = scene.admin.cmd(&["TIME"]).await;
    for ahead in [(1_u64 << 40) - 100_000, (1 << 40) + 1_000_000] {
        grants_over(&["SET", COUNTER, &(seconds * 1_000_000 + ahead).to_string()]).await;
    }
}

/// F51: the counter is lost between the grants of a client whose requests are slow and of one whose are not.
#[tokio::test]
async fn tokens_grow_over_a_lost_counter_though_clients_read_the_clock_differently() {
    let scene = Scene::new().await;
    let near = scene.other().await;
    // The request takes so long and the reply nothing, so the client takes it to be later than it is, by half of it.
    let way = Duration::from_millis(600);
    let slow = scene.proxy.command("TIME").first(2).delay_request(way, Duration::ZERO);
    let config = patient().response_timeout(LONG / 4).connect_timeout(LONG);
    let far = scene.client(config).await;
    slow.happened_times(2).await;
    sleep(way + Duration::from_millis(20)).await;

    let first = take(&far.lock("a")).await;
    scene.admin.cmd::<()>(&["DEL", COUNTER]).await;
    let second = take(&near.lock("a")).await;

    assert!(second > first, "{second} after {first}");
}

/// F30, F31: the counter is not a number at all.
#[tokio::test]
async fn a_counter_of_another_type_is_no_obstacle_or_is_named() {
    let scene = Scene::new().await;
    let client = scene.client(patient()).await;
    scene.admin.cmd::<()>(&["RPUSH", COUNTER, "item"]).await;

    match client.lock("a").try_lock().await {
        Ok(_guard) => is_held_once(&scene.admin, "a").await,
        Err(Error::Conflict { key, kind, .. }) => {
            assert_eq!((key.as_str(), kind.as_str()), (COUNTER, "list"));
            assert!(is_free(&scene.admin, "a").await);
        }
        Err(error) => panic!("{error:?}"),
    }
}
