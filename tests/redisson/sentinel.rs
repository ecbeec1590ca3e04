//! A primary behind sentinels that both sides share: each asks the sentinels where it is, and goes where it goes.
//!
//! `./scripts/test-matrix --topology sentinel --test redisson` has all other tests of this program behind sentinels too.

use std::time::{Duration, Instant};

use crate::cluster::{KINDS, both_ways};
use crate::common::sentinels::follow;
use crate::common::{Site, eventually};
use crate::scene::{AT_ONCE, FURTHER, Scene, USUAL, granted};
use crate::version::FORGETS_CHANNELS;

/// Until Redisson has found the new primary, and listens there.
const FOUND: Duration = Duration::from_secs(60);

const OURS: &str = "redisson_lock__channel:{ours}";
const THEIRS: &str = "redisson_lock__channel:{theirs}";

#[tokio::test]
async fn each_kind_of_lock_excludes_and_wakes_the_other_side_behind_sentinels() {
    let Some(scene) = Scene::begin_at(Site::watched().await, USUAL).await else { return };
    let (client, mut java) = (scene.client().await, scene.thread("java"));
    for kind in KINDS {
        if kind.java == "fenced" && scene.has_no_fenced_locks().await {
            continue;
        }
        both_ways(kind, &format!("a:{}", kind.java), &scene, &client, &mut java).await;
    }
}

/// The replica has both locks when the primary dies. So what each side holds lives on, and what it waits for too.
#[tokio::test]
async fn holders_and_waiters_of_both_sides_follow_a_failover() {
    let Some(scene) = Scene::begin_at(Site::fails_over().await, USUAL).await else { return };
    let Site::Watched(watched) = &scene.server else { unreachable!("it was made so") };
    let client = scene.client().await;
    let (mut java, mut other) = (scene.thread("java"), scene.thread("other"));
    let ours = client.lock("ours").lock().await.unwrap();
    java.ask("lock theirs").await;
    other.order("lock ours").await;
    let waiting = client.lock("theirs");
    let waiting = tokio::spawn(async move { waiting.lock().await });
    scene.awaited_by("ours", 1).await;
    scene.awaited_by("theirs", 1).await;
    follow(&watched.servers[0], 1).await;

    watched.servers[0].kill();
    let new = watched.replaces(0).await;
    watched.servers[0].start_again().await;
    // Redisson waits for a replica with each of its writes.
    follow(&watched.servers[new], 1).await;

    let admin = watched.servers[new].admin().await;
    let comes_back = !scene.is(FORGETS_CHANNELS);
    let both_listen = async || {
        let java_listens = admin.subscribers(OURS).await == 1 || !comes_back;
        java_listens && admin.subscribers(THEIRS).await == 1
    };
    eventually(FOUND, "both listen on the new primary", both_listen).await;
    assert!(other.is_busy().await && !waiting.is_finished(), "two hold one lock");
    assert!(ours.is_valid());
    assert_eq!(java.result("trylock ours").await, "false");
    assert!(client.lock("theirs").try_lock().await.unwrap().is_none());

    let released = Instant::now();
    ours.unlock().await.unwrap();
    // If it does not listen, it looks when the TTL is over that it was told.
    let most = if comes_back { AT_ONCE } else { USUAL + FURTHER };
    assert!(other.answer().await.heard - released < most);
    java.ask("unlock theirs").await;
    let theirs = granted(async { waiting.await.unwrap() }).await;
    assert_eq!(java.result("trylock theirs").await, "false");
    assert!(client.lock("ours").try_lock().await.unwrap().is_none());
    theirs.unlock().await.unwrap();
    other.ask("unlock ours").await;
}
