//! How long it takes from a loss to `ended()`, for each class of loss: `cargo bench -p micro --bench loss_times -- 30`.
//!
//! The number is the watchdog timeout in seconds. Each class has a server and a client of its own, holds thirty locks
//! that were taken at moments spread over one renewal period, and loses all of them at once. All classes run at the same
//! time, so the whole takes a little more than two leases.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{Proxy, Server, eventually};
use futures_util::future::{LocalBoxFuture, join_all};
use parklock::{Client, Config, Guard};
use tokio::time::sleep;

const LOCKS: u32 = 30;

/// A server, a client that holds locks there, and an admin that is about to cause their loss.
struct Scene {
    server: Server,
    proxy: Proxy,
    holder: Client,
    other: Client,
    guards: Vec<Guard>,
}

type Cause = fn(&Scene) -> LocalBoxFuture<'_, ()>;

/// A class of loss: what causes it, and what we expect the holder to learn it from.
struct Loss {
    what: &'static str,
    told_by: &'static str,
    fixed_lease: bool,
    /// The holder had to wait for each lock, and its subscription lingers on.
    listens: bool,
    cause: Cause,
}

const CLASSES: [Loss; 9] = [
    class("key deleted by an operator", "Redis", |scene| Box::pin(delete(scene))),
    class("restart with empty data", "the new connection", |scene| {
        Box::pin(scene.server.restart())
    }),
    class("force_unlock by another client", "Redis", |scene| Box::pin(force_unlock(scene))),
    Loss {
        listens: true,
        ..class("force_unlock, while the holder's subscription lingers", "message", |scene| {
            Box::pin(force_unlock(scene))
        })
    },
    class("server stopped answering (SIGSTOP)", "deadline", |scene| {
        Box::pin(async { scene.server.pause() })
    }),
    class("server killed, and not started again", "deadline", |scene| {
        Box::pin(async { scene.server.kill() })
    }),
    class("network partition", "deadline", |scene| {
        Box::pin(async {
            scene.proxy.blackhole(None);
        })
    }),
    class("client closed", "itself", |scene| Box::pin(scene.holder.close())),
    Loss {
        fixed_lease: true,
        ..class("key deleted, lease fixed (nobody renews)", "Redis", |scene| {
            Box::pin(delete(scene))
        })
    },
];

const fn class(what: &'static str, told_by: &'static str, cause: Cause) -> Loss {
    Loss { what, told_by, fixed_lease: false, listens: false, cause }
}

async fn delete(scene: &Scene) {
    let admin = scene.server.admin().await;
    admin.cmd::<()>(&["FLUSHALL"]).await;
}

async fn force_unlock(scene: &Scene) {
    let unlocks = (0..LOCKS).map(|n| {
        let lock = scene.other.lock(name(n));
        async move { lock.force_unlock().await.expect("the server is there") }
    });
    assert!(join_all(unlocks).await.into_iter().all(|held| held), "all were held");
}

fn name(n: u32) -> String {
    format!("lock {n}")
}

impl Scene {
    async fn set(class: &Loss, lease: Duration) -> Self {
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        let config = Config::default().watchdog_timeout(lease);
        let config = if class.listens { config.subscription_linger(lease * 2) } else { config };
        let connect = async |url| {
            let connected = Client::connect_with(url, config.clone()).await;
            connected.expect("the server is there")
        };
        let (holder, other) = (connect(proxy.url()).await, connect(server.url()).await);
        let mut scene = Self { server, proxy, holder, other, guards: Vec::new() };
        for n in 0..LOCKS {
            let guard = scene.take(n, class, lease).await;
            scene.guards.push(guard);
            sleep(lease / 3 / LOCKS).await;
        }
        scene
    }

    async fn take(&self, n: u32, class: &Loss, lease: Duration) -> Guard {
        let lock = self.holder.lock(name(n));
        let lock = if class.fixed_lease { lock.lease(lease) } else { lock };
        if !class.listens {
            return lock.lock().await.expect("it is free");
        }
        let first = self.other.lock(name(n)).lock().await.expect("it is free");
        let waiter = tokio::spawn(async move { lock.lock().await });
        let (admin, channel) = (self.server.admin().await, format!("lock_channel:{{{}}}", name(n)));
        let listens = async || admin.subscribers(&channel).await > 0;
        eventually(lease, "the holder listens", listens).await;
        first.unlock().await.expect("it is ours");
        waiter.await.expect("no panic").expect("it is free now")
    }
}

/// For each lock: how long it took from the cause to `ended()`, and how long after the deadline that was.
async fn measured(class: &Loss, lease: Duration) -> Vec<(Duration, f64)> {
    let scene = Scene::set(class, lease).await;
    sleep(lease / 3).await;
    assert!(scene.guards.iter().all(Guard::is_valid) || class.fixed_lease);
    let caused = Instant::now();
    let deadlines: Vec<_> = scene.guards.iter().map(|guard| caused + guard.remaining()).collect();
    let losses = scene.guards.iter().map(|guard| {
        let lost = guard.ended();
        tokio::spawn(async move {
            lost.await;
            Instant::now()
        })
    });
    let losses: Vec<_> = losses.collect();
    (class.cause)(&scene).await;
    let times = join_all(losses).await.into_iter().zip(deadlines).map(|(lost, deadline)| {
        let lost = lost.expect("no panic");
        let early = deadline.saturating_duration_since(lost).as_secs_f64();
        (lost - caused, lost.saturating_duration_since(deadline).as_secs_f64() - early)
    });
    times.collect()
}

fn row(class: &Loss, mut times: Vec<(Duration, f64)>) -> String {
    times.sort_by_key(|(took, _)| *took);
    let [least, median, most] =
        [0, times.len() / 2, times.len() - 1].map(|n| times[n].0.as_secs_f64());
    let latest = times.iter().map(|(_, late)| *late).fold(f64::MIN, f64::max);
    let Loss { what, told_by, .. } = class;
    let late = if *told_by == "deadline" { format!("{:.1} ms", latest * 1e3) } else { "".into() };
    format!("| {what} | {told_by} | {least:.3} | {median:.3} | {most:.3} | {late} |")
}

#[tokio::main]
async fn main() {
    let seconds = std::env::args().filter_map(|word| word.parse::<f64>().ok()).next();
    let lease = Duration::from_secs_f64(seconds.unwrap_or(3.0));
    let times = join_all(CLASSES.iter().map(|class| measured(class, lease))).await;
    println!(
        "watchdog_timeout {lease:?}, {LOCKS} locks a class; seconds from the loss to lost()\n"
    );
    println!("| what happens | told by | least | median | most | latest after its deadline |");
    println!("|---|---|---|---|---|---|");
    for (class, times) in CLASSES.iter().zip(times) {
        println!("{}", row(class, times));
    }
}
