//! Guards that are dropped where nobody can wait, forgotten, or all that is left of a client.

use std::cell::RefCell;
use std::mem;
use std::thread;
use std::time::Duration;

use parklock::{Ended, Guard};

use crate::common::{Proxy, Server, Watch, eventually, judged};
use crate::log::Log;
use crate::{LEASE, SOON, brief, connect, fields, is_clean, is_deserted, left, patient, tasks};

const RELEASE: &str = include_str!("../../lua/line/release.lua");

/// F59: a guard is dropped inside the runtime, where blocking would stop everything.
#[tokio::test]
async fn dropping_a_guard_waits_for_nothing() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("release", RELEASE);
    let (client, admin) = (connect(&proxy.url(), patient()).await, server.admin().await);
    let guard = client.lock("a").lock().await.unwrap();
    let held = proxy.script("release").nth(1).hold_request();

    // It ticks on a thread of its own: a drop that blocks this one is no stall.
    let dropping = Watch::apart();
    drop(guard);
    let took = dropping.passed();
    held.happened().await;
    assert!(!left(&admin).await.is_empty(), "the drop was over before the release had arrived");

    assert!(took < Duration::from_millis(50), "{took:?}");
    held.lift();
    is_clean(&admin, SOON, "it is given back in the background").await;
}

/// Drops it in the destructor of a thread-local variable, when the thread has ended.
pub(crate) fn drop_at_the_end_of_a_thread(guard: Guard) -> thread::Result<()> {
    thread_local!(static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) });
    thread::spawn(move || KEPT.with(|kept| *kept.borrow_mut() = Some(guard))).join()
}

/// F60: a guard is dropped outside of any runtime.
#[tokio::test]
async fn a_guard_dropped_outside_of_a_runtime_is_given_back_by_the_clients_own() {
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let guard = client.lock("a").lock().await.unwrap();
    let outside = thread::spawn(move || {
        let outside = tokio::runtime::Handle::try_current().is_err();
        drop(guard);
        outside
    });
    assert!(outside.join().expect("no panic"));
    is_clean(&admin, SOON, "the lock is given back").await;

    let guard = client.lock("a").lock().await.unwrap();
    assert_eq!(fields(&admin, "a").await.len(), 1);
    drop_at_the_end_of_a_thread(guard).expect("no panic");
    is_clean(&admin, SOON, "the lock is given back").await;
}

/// F63: a guard is forgotten.
#[tokio::test]
async fn a_forgotten_guard_is_renewed_until_max_hold() {
    judged(async || {
        let (log, _listening) = Log::here();
        let server = Server::start().await;
        let (admin, longest) = (server.admin().await, LEASE * 2);
        let client = connect(&server.url(), brief().max_hold(longest)).await;
        let endless = connect(&server.url(), brief()).await;
        let taken = Watch::start();
        let (guard, lost) = {
            let guard = client.lock("a").lock().await.unwrap();
            let lost = guard.ended();
            (guard, lost)
        };
        mem::forget(guard);
        mem::forget(endless.lock("b").lock().await.unwrap());
        tokio::time::sleep(LEASE + LEASE / 4).await;
        assert_eq!(fields(&admin, "a").await.len(), 1, "it is renewed though nobody has it");

        let next = client.lock("a").lock().await.unwrap();
        let (freed, passed) = (taken.elapsed(), taken.passed());
        assert_eq!(lost.await, Ended::Lost);
        assert!(freed >= longest - LEASE / 10, "{freed:?}");
        assert!(passed < longest + LEASE + Duration::from_secs(1), "{passed:?}");
        assert_eq!(log.lines_with("held the lock for max_hold"), 1, "it is warned about once");
        assert!(log.text().contains("name=\"a\""));
        assert_eq!(fields(&admin, "b").await.len(), 1, "without a limit it is renewed for ever");
        next.unlock().await.unwrap();
    })
    .await;
}

/// F64: nothing is kept of a client but a guard.
#[tokio::test]
async fn a_guard_keeps_its_client_alive_and_the_last_one_ends_it() {
    judged(async || {
        let server = Server::start().await;
        let idle = tasks();
        let client = connect(&server.url(), brief()).await;
        let guard = client.lock("a").lock().await.unwrap();
        let other = client.reentrant_lock("b").lock().await.unwrap();
        drop(client);
        drop(other);

        tokio::time::sleep(LEASE * 2).await;
        assert!(guard.is_valid(), "it is renewed though no handle is left");
        guard.extend(LEASE * 2).await.unwrap();
        guard.unlock().await.unwrap();

        // Fewer if one that a try before this left has ended, too.
        eventually(SOON, "the tasks end with the last guard", async || tasks() <= idle).await;
        let admin = server.admin().await;
        is_clean(&admin, SOON, "all is given back").await;
        is_deserted(&admin).await;
    })
    .await;
}

/// F64: the last guard of a client is dropped, not unlocked.
#[tokio::test]
async fn the_last_guard_is_given_back_though_its_client_is_gone() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let idle = tasks();
    let guard = connect(&server.url(), patient()).await.lock("a").lock().await.unwrap();
    assert_eq!(fields(&admin, "a").await.len(), 1);
    drop(guard);
    is_clean(&admin, SOON, "it is given back before the tasks end").await;
    eventually(SOON, "the tasks end", async || tasks() == idle).await;
}
