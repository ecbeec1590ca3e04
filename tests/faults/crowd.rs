//! Many callers that want the same lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parklock::Lock;
use tokio::task::JoinSet;

use crate::common::{Server, eventually, timeout};
use crate::{SOON, channel, connect, patient, scripts_run, somebody_waits};

/// Callers of one lock, each of whom takes it once, and never two at a time.
struct Crowd {
    callers: JoinSet<()>,
    started: Arc<AtomicUsize>,
}

impl Crowd {
    fn of(lock: &Lock, size: usize) -> Self {
        let (mut callers, started) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        let inside = Arc::new(AtomicUsize::new(0));
        for _ in 0..size {
            let (lock, started, inside) = (lock.clone(), Arc::clone(&started), Arc::clone(&inside));
            callers.spawn(async move {
                started.fetch_add(1, Ordering::SeqCst);
                let guard = lock.lock().await.expect("its turn comes");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.unlock().await.expect("it is ours");
            });
        }
        Self { callers, started }
    }

    async fn waits(&self) {
        let all = async || self.started.load(Ordering::SeqCst) == self.callers.len();
        eventually(SOON, "all callers have come", all).await;
    }

    async fn served(mut self) {
        let all = async {
            while let Some(served) = self.callers.join_next().await {
                served.expect("no panic");
            }
        };
        timeout(SOON * 3, all).await.expect("everybody is served");
    }
}

/// F80: a thousand callers of one client want the same lock.
#[tokio::test]
async fn a_crowd_in_one_client_is_one_contender() {
    let server = Server::start().await;
    let [holder, client] =
        [connect(&server.url(), patient()).await, connect(&server.url(), patient()).await];
    let (guard, admin) = (holder.lock("a").lock().await.unwrap(), server.admin().await);
    admin.reset_stats().await;
    let crowd = Crowd::of(&client.lock("a"), 1000);
    crowd.waits().await;
    somebody_waits(&admin, "a").await;
    let asked = async || scripts_run(&admin).await >= 2;
    eventually(SOON, "the contender has asked, listened and asked again", asked).await;
    assert!(scripts_run(&admin).await <= 3, "and nobody else has");

    guard.unlock().await.unwrap();
    crowd.served().await;

    // A try and a release a turn, at the most; and one connection that listens, once.
    let scripts = scripts_run(&admin).await;
    assert!(scripts <= 2 * 1000 + 20, "{scripts}");
    assert_eq!(admin.command_calls("subscribe").await, 1);
    eprintln!("1000 turns of one client: {scripts} scripts");
}

/// F80: a thousand callers of ten clients want the same lock.
#[tokio::test]
async fn a_crowd_in_ten_clients_is_ten_contenders() {
    let server = Server::start().await;
    let holder = connect(&server.url(), patient()).await;
    let (guard, admin) = (holder.lock("a").lock().await.unwrap(), server.admin().await);
    admin.reset_stats().await;
    let mut crowds = Vec::new();
    for _ in 0..10 {
        let client = connect(&server.url(), patient()).await;
        crowds.push((Crowd::of(&client.lock("a"), 100), client));
    }
    for (crowd, _) in &crowds {
        crowd.waits().await;
    }
    let ten = async || admin.subscribers(&channel("a")).await == 10;
    eventually(SOON, "each client listens once", ten).await;

    guard.unlock().await.unwrap();
    for (crowd, client) in crowds {
        crowd.served().await;
        drop(client);
    }

    // A release and a try of each client for each turn, at the most.
    let scripts = scripts_run(&admin).await;
    assert!(scripts <= 11 * 1000 + 200, "{scripts}");
    eprintln!("1000 turns of ten clients: {scripts} scripts");
}
