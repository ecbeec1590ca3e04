//! Which channels are subscribed to, and that none is forgotten, asked for too often, or kept for nobody.

use std::time::Duration;

use crate::common::eventually;
use crate::common::fixture::settled;
use crate::scene::*;
use parklock::Error;

/// How often somebody has looked at a lock that is held, in however many requests.
async fn looks(scene: &Scene) -> usize {
    // Each look makes sure that it asks a primary, by one HDEL that changes nothing.
    usize::try_from(scene.admin.command_calls("hdel").await).expect("not that many")
}

async fn looked(scene: &Scene, times: usize) {
    let enough = async || looks(scene).await >= times;
    eventually(SOON, "everybody looks", enough).await;
}

/// F40: all connections break while thousands of locks are waited for.
#[tokio::test]
async fn thousands_of_channels_come_back_in_a_few_requests() {
    const NAMES: usize = 3000;
    // Each waiter listens on the channel of its lock, and on that of its client.
    const CHANNELS: usize = 2 * NAMES;
    let scene = Scene::new().await;
    let held = "for i = 1, ARGV[1] do
        redis.call('hset', 'lock:{a' .. i .. '}', 'somebody', 1)
        redis.call('pexpire', 'lock:{a' .. i .. '}', 60000)
    end";
    scene.admin.cmd::<()>(&["EVAL", held, "0", &NAMES.to_string()]).await;
    // With signs of life so far apart, none is among the looks that are counted.
    let client = scene.client(patient().response_timeout(LONG / 4).waiter_ttl(LONG / 2)).await;
    let waiters: Vec<_> = (1..=NAMES).map(|n| waiting(client.lock(format!("a{n}")))).collect();
    let subscribed = async || scene.admin.channels().await.len() == CHANNELS;
    eventually(LONG, "everybody listens", subscribed).await;
    looked(&scene, 2 * NAMES).await;
    settled(&scene.admin).await;

    scene.admin.reset_stats().await;
    let subscribes = scene.proxy.command("SUBSCRIBE").count();
    assert_eq!(scene.proxy.reset(None).await, 2);
    let asked = async || subscribes.fired() >= CHANNELS / 1000;
    eventually(LONG, "all channels are asked for", asked).await;
    eventually(LONG, "all channels are back", subscribed).await;
    looked(&scene, NAMES).await;
    tokio::time::sleep(A_WHILE).await;

    assert_eq!(subscribes.fired(), CHANNELS / 1000, "SUBSCRIBEs");
    let looks = looks(&scene).await;
    // One if the subscriber stays away for long, which it does on a busy machine, and one for each channel that is back.
    assert!(looks <= 3 * NAMES, "{looks} looks for {NAMES} locks");
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    for waiter in waiters {
        waiter.abort();
    }
}

/// F41: waiters succeed, run out of patience, and are dropped.
#[tokio::test]
async fn a_channel_is_left_when_its_last_waiter_has_gone() {
    let scene = Scene::new().await;
    let brief = patient().subscription_linger(Duration::from_millis(50));
    let (client, other) = (scene.client(brief).await, scene.other().await);
    let mut theirs = Vec::new();
    for name in ["won", "late", "dropped"] {
        theirs.push(other.lock(name).lock().await.unwrap());
    }
    let won = scene.parked(&client, "won").await;
    let dropped = scene.parked(&client, "dropped").await;
    let late = client.lock("late").try_lock_for(Duration::from_secs(2)).await;
    // Its limit may be over before the first answer.
    assert!(matches!(
        late,
        Ok(None) | Err(Error::Unavailable { .. } | Error::Indeterminate { .. })
    ));
    assert!(scene.admin.subscribers(&channel("dropped")).await == 1);

    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    drop(theirs);
    let won = granted(won).await;

    let left = async || scene.admin.channels().await.is_empty();
    eventually(SOON, "every channel is left", left).await;
    assert!(won.is_valid());
    drop(won);
    scene.is_clean().await;
}

/// F42: somebody waits anew while the channel is being left.
#[tokio::test]
async fn a_waiter_that_comes_while_its_channel_is_left_is_told() {
    for stall in [crate::common::proxy::Rule::hold_request, crate::common::proxy::Rule::hold_reply]
    {
        let scene = Scene::new().await;
        let brief = patient().subscription_linger(Duration::from_millis(20));
        let (client, other) = (scene.client(brief).await, scene.other().await);
        let theirs = other.lock("a").lock().await.unwrap();
        let leaving = stall(scene.proxy.command("UNSUBSCRIBE"));
        let first = scene.parked(&client, "a").await;
        first.abort();
        leaving.happened().await;

        let waiter = waiting(client.lock("a"));
        let looks = scene.proxy.script("acquire").count();
        looks.happened().await;
        leaving.lift();

        looks.happened_times(2).await;
        let subscribed = async || scene.admin.subscribers(&channel("a")).await == 1;
        eventually(SOON, "it is subscribed again", subscribed).await;
        let settled = looks.fired() + 1;
        scene.admin.publish(&channel("a"), "somebody").await;
        looks.happened_times(settled).await;
        theirs.unlock().await.unwrap();
        granted(waiter).await.unlock().await.unwrap();
    }
}

/// F42: the lock is waited for again and again, just when its channel is being left.
#[tokio::test]
async fn waiters_that_come_and_go_as_the_channel_does_all_get_the_lock() {
    let scene = Scene::new().await;
    let hasty = patient().subscription_linger(Duration::ZERO);
    let (client, other) = (scene.client(hasty).await, scene.other().await);
    let left = scene.proxy.command("UNSUBSCRIBE").count();
    for _ in 0..50 {
        let theirs = other.lock("a").lock().await.unwrap();
        let waiter = waiting(client.lock("a"));
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..4))).await;
        theirs.unlock().await.unwrap();
        let guard = soon(waiter).await.expect("no panic");
        assert!(!matches!(guard, Err(Error::Unavailable { .. })), "{guard:?}");
        guard.unwrap().unlock().await.unwrap();
    }
    assert!(left.fired() > 0);
    let left = async || scene.admin.channels().await.is_empty();
    eventually(SOON, "the channel is left", left).await;
}
