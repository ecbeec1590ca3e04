//! A failover forgets a notification of a condition, and not the line: no waiter stands there for ever.

use parklock::{Client, Config, Guard, Result, Woken};
use tokio::task::JoinHandle;

use super::roles::*;
use crate::common::sentinels::primary_and_replicas;
use crate::common::{Class, Cluster, Proxy, Server, Watched, eventually};
use crate::scene::*;

/// A waiter shows no sign of life by itself while it is cut off. A request that gets no answer would wake it in any case.
fn quiet() -> Config {
    patient().waiter_ttl(LONG / 2)
}

/// The waiter of a condition, whose client is behind the proxy, and another client.
struct Play<'a> {
    names: [String; 2],
    front: &'a Proxy,
    primary: &'a Server,
    replica: &'a Server,
    other: Client,
    waiter: JoinHandle<Result<Guard>>,
}

impl<'a> Play<'a> {
    /// The waiter stands in line, and the replica knows of that.
    async fn begin(
        names: [String; 2],
        front: &'a Proxy,
        url: &str,
        primary: &'a Server,
        replica: &'a Server,
    ) -> Self {
        let (waits, other) = (client(&front.url(), quiet()).await, client(url, quiet()).await);
        let (lock, condition) = (waits.lock(&names[0]), waits.condition(&names[1]));
        let waiter = tokio::spawn(async move { lock.lock().await?.wait(&condition).await });
        stands_in_line(primary, &names[1], 1).await;
        let free = async || !other.lock(&names[0]).is_locked().await.expect("an answer");
        eventually(SOON, "the waiter has given the lock back", free).await;
        replicated(primary, replica).await;
        Self { names, front, primary, replica, other, waiter }
    }

    /// The waiter is cut off while it is notified. The primary dies before the replica has heard of that.
    async fn forgets(&self, all: bool) {
        self.replica.pause();
        self.primary.admin().await.client_kill("replica").await;
        let cut = self.front.blackhole(None);
        let condition = self.other.condition(&self.names[1]);
        let notified =
            if all { condition.notify_all().await } else { condition.notify_one().await };
        notified.expect("the primary has done it");
        stands_in_line(self.primary, &self.names[1], 0).await;
        cut.happened().await;
        self.primary.kill();
        self.replica.resume();
        self.front.reset(None).await;
        cut.lift();
    }

    /// The waiter looks again, and leaves nothing in the line of the new primary.
    async fn ends(self) {
        granted(self.waiter).await.unlock().await.expect("it is ours");
        stands_in_line(self.replica, &self.names[1], 0).await;
    }
}

/// Waits until so many stand in the line of this name.
async fn stands_in_line(server: &Server, name: &str, count: usize) {
    let (admin, line) = (server.admin().await, format!("lock_queue:{{{name}}}"));
    let stand = async || admin.cmd::<usize>(&["ZCARD", &line]).await == count;
    eventually(SOON, &format!("{count} stand in the line of {name}"), stand).await;
}

fn names() -> [String; 2] {
    ["a", "c"].map(String::from)
}

/// F16: the same address leads to another server.
#[tokio::test]
async fn a_notification_that_a_failover_forgot_wakes_its_waiter_anyway() {
    for all in [false, true] {
        let servers = primary_and_replicas(1, Server::builder).await;
        let route = Route::to(&servers[0]);
        let front = Proxy::seeded(route.address(), fastrand::u64(..)).await;
        let (url, [primary, replica]) = (servers[0].url(), [&servers[0], &servers[1]]);
        let play = Play::begin(names(), &front, &url, primary, replica).await;
        route.change(replica);
        play.forgets(all).await;
        promote(&replica.admin().await).await;
        play.ends().await;
    }
}

/// F16: sentinels name another server.
#[tokio::test]
async fn a_notification_that_was_forgotten_behind_sentinels_wakes_its_waiter_anyway() {
    let watched = Watched::start().await;
    let front = Proxy::before(&watched).await;
    let [primary, replica] = [&watched.servers[0], &watched.servers[1]];
    let play = Play::begin(names(), &front, &watched.url(), primary, replica).await;
    play.forgets(false).await;
    // How soon they agree is not what this is about.
    watched.replaces(0).await;
    play.ends().await;
}

/// F16: another node has the slot.
#[tokio::test]
async fn a_notification_that_was_forgotten_in_a_cluster_wakes_its_waiter_anyway() {
    let cluster = Cluster::with_replicas().await;
    let front = Proxy::before(&cluster).await;
    let names = ["lock:", "condition:"].map(|begin| cluster.names_at(0, begin, 1).remove(0));
    let [primary, replica] = [&cluster.nodes[0], &cluster.nodes[3]];
    let play = Play::begin(names, &front, &cluster.url(), primary, replica).await;
    play.forgets(false).await;
    replica.admin().await.cmd::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    play.ends().await;
}

/// A connection that breaks says nothing about the primary: nobody is woken for it.
#[tokio::test]
async fn a_waiter_whose_connections_break_is_not_woken_at_the_same_primary() {
    let scene = Scene::new().await;
    let client = scene.client(quiet()).await;
    let asked = scene.proxy.script("wait").about("{c}").count();
    let (lock, condition) = (client.lock("a"), client.condition("c"));
    let waiter = tokio::spawn(async move {
        let waiter = lock.lock().await?.wait_for(&condition, LONG).await;
        waiter.map(|(guard, woken)| (guard, woken == Woken::Notified))
    });
    // It asks once more when its channel is live. A request whose connection breaks would wake it. So wait for an answer
    // behind that of the waiter.
    asked.happened_times(2).await;
    let lock = client.lock("a");
    lock.is_locked().await.expect("it is answered");
    scene.proxy.reset(Class::Command).await;
    let answered = async || lock.is_locked().await.is_ok();
    eventually(SOON, "there is another connection", answered).await;
    let asked = scene.proxy.script("wait").about("{c}").count();
    scene.proxy.reset(Class::Subscriber).await;
    asked.happened().await;
    eventually(SOON, "the waiter is answered", answered).await;
    let other = scene.other().await;
    assert!(!waiter.is_finished());
    stands_in_line(&scene.server, "c", 1).await;
    other.condition("c").notify_one().await.expect("an answer");
    let (guard, notified) = soon(waiter).await.expect("no panic").expect("the lock");
    assert!(notified);
    guard.unlock().await.expect("it is ours");
}
