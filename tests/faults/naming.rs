//! Errors say which lock they are about.

use std::time::Duration;

use parklock::{Client, Error, Layout, Result};

use crate::common::Server;
use crate::scene::*;

/// The text of an error about a lock of this name.
fn names<T: std::fmt::Debug>(result: Result<T>, name: &str) {
    let error = result.expect_err("it is lost");
    assert!(error.to_string().contains(&format!("{name:?}")), "{name}: {error}");
}

/// Takes a lock away from its holder.
async fn taken_away(client: &Client, name: &str) {
    assert!(client.lock(name).force_unlock().await.expect("it is answered"), "{name} was held");
}

#[tokio::test]
async fn a_loss_names_the_lock_whichever_call_reports_it() {
    let server = Server::start().await;
    let (client, operator) = (client(&server.url(), patient()).await, client_of(&server).await);
    let guard = client.lock("unlocked").lock().await.expect("free");
    taken_away(&operator, "unlocked").await;
    names(guard.unlock().await, "unlocked");

    let guard = client.lock("extended").lock().await.expect("free");
    taken_away(&operator, "extended").await;
    names(guard.extend(LONG).await, "extended");
    names(guard.extend(LONG).await, "extended");

    let lock = client.lock("run");
    names(lock.run(async |_| taken_away(&operator, "run").await).await, "run");

    let nested = client.reentrant_lock("nested");
    let guard = nested.lock().await.expect("free");
    taken_away(&operator, "nested").await;
    names(nested.lock().await, "nested");
    drop(guard);

    let both = client.multi_lock(["one", "two"]);
    let guard = both.lock().await.expect("free");
    taken_away(&operator, "two").await;
    names(guard.unlock().await, "two");

    let guard = client.rw_lock("written").write().await.expect("free");
    assert!(operator.rw_lock("written").force_unlock().await.expect("it is answered"));
    names(guard.downgrade().await, "written");

    let guard = client.lock("leased").lease(Duration::from_millis(50)).lock().await.expect("free");
    guard.ended().await;
    names(guard.unlock().await, "leased");
}

async fn client_of(server: &Server) -> Client {
    client(&server.url(), patient()).await
}

#[tokio::test]
async fn a_missing_latch_is_named() {
    let server = Server::start().await;
    for layout in [Layout::Native, Layout::Redisson] {
        let client = client(&server.url(), patient().layout(layout)).await;
        let latch = client.count_down_latch("gate");
        for error in [latch.wait().await.err(), latch.count_down().await.map(drop).err()] {
            let Some(error) = error else { continue };
            assert!(matches!(error, Error::Unset { .. }), "{error}");
            assert!(error.to_string().contains("\"gate\""), "{error}");
        }
    }
    let client = client_of(&server).await;
    names(client.count_down_latch("gate").wait().await, "gate");
    names(client.count_down_latch("gate").wait_for(LONG).await, "gate");
}
