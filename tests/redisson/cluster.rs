//! A cluster that both sides share: each kind excludes the other side, and a release wakes it. Java listens on the channels of
//! slots, where the servers have them, and so do we.
//!
//! `./scripts/test-matrix --topology cluster --test redisson` has all other tests of this program in a cluster too.

use std::time::Instant;

use parklock::{Client, Config, Error, Guard, Layout, WriteGuard};
use tokio::task::JoinHandle;

use crate::common::cluster::{home, slot};
use crate::common::fixture::{comes_in, is_pending};
use crate::common::{Site, timeout};
use crate::peer::Thread;
use crate::scene::{AT_ONCE, QUICK, Scene, USUAL, granted};
use crate::version::{ASKS_FOR_CHANNELS, CHANNELS_OF_SLOTS};

/// A name that begins like this for each of the three nodes.
fn names(begin: &str) -> [String; 3] {
    let at = |node| {
        let names = (0..).map(|number| format!("{begin}:{number}"));
        names.into_iter().find(|name: &String| home(slot(name), 3) == node)
    };
    [0, 1, 2].map(|node| at(node).expect("there are many names"))
}

/// What one at a time may have, of either side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// The words before Java's orders.
    pub(crate) java: &'static str,
    take: &'static str,
    give: &'static str,
    channel: &'static str,
}

pub(crate) const KINDS: [Kind; 5] = [
    Kind { java: "", take: "lock", give: "unlock", channel: "redisson_lock__channel:" },
    Kind { java: "fenced", take: "lock", give: "unlock", channel: "redisson_lock__channel:" },
    Kind { java: "fair", take: "lock", give: "unlock", channel: "" },
    Kind { java: "write", take: "lock", give: "unlock", channel: "redisson_rwlock:" },
    Kind { java: "sem", take: "acquire", give: "release", channel: "redisson_sc:" },
];

impl Kind {
    async fn ours(self, client: Client, name: String) -> parklock::Result<Guard> {
        match self.java {
            "fenced" => client.redisson().fenced_lock(name).lock().await,
            "fair" => client.fair_lock(name).lock().await,
            "write" => client.rw_lock(name).write().await.map(WriteGuard::into_guard),
            "sem" => client.semaphore(name, 1).acquire().await,
            _ => client.lock(name).lock().await,
        }
    }

    fn order(self, verb: &str, name: &str) -> String {
        format!("{}{verb} {name}", self.java)
    }

    /// Waits until somebody listens for its release. Each waiter of a fair lock has a channel of its own.
    async fn is_awaited(self, scene: &Scene, name: &str) {
        match self.channel {
            "" => {
                let queue = format!("redisson_lock_queue:{{{name}}}");
                let stands = async || scene.admin.cmd::<usize>(&["LLEN", &queue]).await == 1;
                crate::common::eventually(AT_ONCE, "it stands in the queue", stands).await;
                tokio::time::sleep(crate::common::fixture::A_WHILE).await;
            }
            channel => scene.listened_to(&format!("{channel}{{{name}}}"), 1).await,
        }
    }
}

fn waiting(kind: Kind, client: &Client, name: &str) -> JoinHandle<parklock::Result<Guard>> {
    tokio::spawn(kind.ours(client.clone(), name.to_owned()))
}

/// A client as a fleet with this version of Redisson has it.
async fn client(scene: &Scene) -> Client {
    let config = Config::default().layout(Layout::Redisson);
    let config = match scene.has(CHANNELS_OF_SLOTS) {
        true => config,
        // If this JVM uses them after all, it wakes nobody who does not: then ours look now and then.
        false if scene.has(ASKS_FOR_CHANNELS) => config.plain_channels(true).max_park(QUICK),
        false => config.plain_channels(true),
    };
    comes_in(scene.server.url(), config).await
}

/// Rust holds, Java waits and is told; then the other way round.
pub(crate) async fn both_ways(
    kind: Kind,
    name: &str,
    scene: &Scene,
    client: &Client,
    java: &mut Thread,
) {
    // The first to come says how many permits there are.
    let guard = timeout(AT_ONCE, kind.ours(client.clone(), name.to_owned())).await;
    let guard = guard.expect("it is free").expect("it is granted");
    java.order(&kind.order(kind.take, name)).await;
    kind.is_awaited(scene, name).await;
    if kind.java != "fenced" {
        // Which parks on nothing that can be seen.
        scene.java_parks(1).await;
    }
    assert!(java.is_busy().await, "{kind:?}: two hold it");
    let released = Instant::now();
    guard.unlock().await.expect("it was ours");
    let took = java.answer().await.heard - released;
    assert!(took < AT_ONCE, "{kind:?}: {took:?}");

    let mut waiter = waiting(kind, client, name);
    assert!(is_pending(&mut waiter).await, "{kind:?}: two hold it");
    kind.is_awaited(scene, name).await;
    java.ask(&kind.order(kind.give, name)).await;
    let next = granted(async { waiter.await.expect("no panic") }).await;
    next.unlock().await.expect("it was ours");
}

#[tokio::test]
async fn each_kind_of_lock_excludes_and_wakes_the_other_side_on_every_node() {
    let Some(scene) = Scene::begin_at(Site::cluster().await, USUAL).await else { return };
    let (client, mut java) = (client(&scene).await, scene.thread("java"));
    for kind in KINDS {
        if kind.java == "fenced" && scene.has_no_fenced_locks().await {
            continue;
        }
        for name in names(kind.java) {
            both_ways(kind, &name, &scene, &client, &mut java).await;
        }
    }
}

#[tokio::test]
async fn readers_of_both_sides_read_together_and_let_the_writer_of_either_in() {
    let Some(scene) = Scene::begin_at(Site::cluster().await, USUAL).await else { return };
    let client = client(&scene).await;
    let (mut reader, mut writer) = (scene.thread("reader"), scene.thread("writer"));
    for name in names("shared") {
        let book = client.rw_lock(&*name);
        let ours = book.read().await.expect("it is free");
        reader.ask(&format!("readlock {name}")).await;
        writer.order(&format!("writelock {name}")).await;
        scene.listened_to(&format!("redisson_rwlock:{{{name}}}"), 1).await;
        scene.java_parks(1).await;
        reader.ask(&format!("readunlock {name}")).await;
        assert!(writer.is_busy().await, "somebody reads");
        ours.unlock().await.expect("we read");
        assert!(writer.answer().await.took < USUAL, "it was told");

        let waits = tokio::spawn(async move { book.read().await });
        scene.listened_to(&format!("redisson_rwlock:{{{name}}}"), 1).await;
        assert!(!waits.is_finished(), "somebody writes");
        writer.ask(&format!("writeunlock {name}")).await;
        granted(async { waits.await.expect("no panic") }).await.unlock().await.expect("we read");
    }
}

#[tokio::test]
async fn a_latch_opens_for_both_sides_whoever_counts() {
    let Some(scene) = Scene::begin_at(Site::cluster().await, USUAL).await else { return };
    let (client, mut java) = (client(&scene).await, scene.thread("java"));
    for name in names("shared") {
        let latch = client.count_down_latch(&*name);
        assert!(latch.set(1).await.expect("it is not set"));
        let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
        java.order(&format!("latchawait {name}")).await;
        scene.listened_to(&channel, 1).await;
        assert_eq!(latch.count_down().await.expect("it is set"), 0);
        assert!(java.answer().await.took < USUAL, "it was told");

        assert_eq!(java.result(&format!("latchset {name} 1")).await, "true");
        let waits = tokio::spawn(async move { latch.wait().await });
        scene.listened_to(&channel, 1).await;
        assert!(!waits.is_finished(), "it is closed");
        java.ask(&format!("latchdown {name}")).await;
        let passed = timeout(AT_ONCE, waits).await.expect("it is told").expect("no panic");
        passed.expect("it is open");
    }
}

/// Redisson names the channel of a latch, and the keys beside others, so that they lie in another slot than the name.
#[tokio::test]
async fn a_name_whose_keys_lie_in_several_slots_is_refused() {
    let site = Site::cluster().await;
    let client = crate::scene::client(&site.url(), USUAL).await;
    let refused = client.lock("a}b").lock().await;
    assert!(matches!(refused, Err(Error::InvalidName { .. })), "{refused:?}");
    let refused = client.count_down_latch("{a}b").set(1).await;
    assert!(matches!(refused, Err(Error::InvalidName { .. })), "{refused:?}");
    client.lock("{a}b").lock().await.expect("it is free").unlock().await.expect("it is ours");
}
