//! Holds that end with the process of their client (`Config::session`), over failovers. tests/client/session.rs has those of one server.

use std::time::Duration;

use parklock::{Client, Config, Error, Guard};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::common::fixture::comes_in;
use crate::common::{Admin, Class, Proxy, Server, Watched, Worker, WorkerSide, eventually, judged};
use crate::scene::*;
use crate::server::roles::{Route, promote, replica_of};

const GRACE: Duration = Duration::from_secs(2);

/// No lease ends while a test runs.
fn without() -> Config {
    patient().watchdog_timeout(Duration::from_secs(600))
}

fn within() -> Config {
    without().session(GRACE)
}

/// Locks as it is told, says so, and holds.
#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_holds() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client = comes_in(boss.variable("URL"), within()).await;
    let guard = client.lock("a").lock().await.unwrap();
    boss.tell("granted");
    while let Some(order) = boss.order().await {
        assert_eq!(order, "valid?");
        boss.tell(&guard.is_valid().to_string());
    }
}

async fn holder(url: &str) -> Worker {
    let mut worker = Worker::start("session::worker_that_holds", &[("URL", url)]);
    assert_eq!(worker.hear().await, "granted");
    worker
}

/// Waits until it believes in its hold.
async fn believes(holder: &mut Worker) {
    eventually(SOON, "it believes in it", async || holder.ask("valid?").await == "true").await;
}

/// The head of the line.
async fn head(client: &Client, admin: &Admin) -> JoinHandle<Result<Guard, Error>> {
    let waiter = waiting(client.lock("a"));
    let stands = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await > 0;
    eventually(SOON, "somebody stands in line", stands).await;
    waiter
}

/// Waits until the holder has recorded that it is at this server. What holders recorded elsewhere that are dead by now says another reign.
async fn is_recorded(admin: &Admin) {
    let recorded = async || {
        let records: Vec<String> = admin.cmd(&["KEYS", "lock_notes:session:*"]).await;
        let read = [vec!["MGET".to_owned()], records].concat();
        let read: Vec<_> = read.iter().map(String::as_str).collect();
        let reigns: Vec<Option<String>> = admin.cmd(&read).await;
        reigns.contains(&admin.info("replication", "master_replid").await)
    };
    eventually(SOON, "the record says this reign", recorded).await;
}

/// The heads have looked again and again for longer than a patience, and the hold is still there. On a slow machine they have looked less often:
/// then a failure may be missed, but there is none where there should not be one.
async fn outlasts_its_patience<T>(waiter: &JoinHandle<T>, admin: &Admin) {
    let before = admin.command_calls("evalsha").await;
    sleep(GRACE * 2).await;
    let looked = async || admin.command_calls("evalsha").await > before + 2;
    eventually(SOON, "the head has looked", looked).await;
    assert!(!waiter.is_finished(), "the lease is not over");
}

#[tokio::test]
async fn behind_sentinels_the_lock_of_a_killed_process_is_free_before_and_after_a_failover() {
    judged(async || {
        let watched = Watched::start().await;
        let mut first = holder(&watched.url()).await;
        let client = client(&watched.url(), without()).await;
        let admin = watched.servers[0].admin().await;
        let waiter = head(&client, &admin).await;
        first.kill9();
        granted(waiter).await.unlock().await.unwrap();

        let mut second = holder(&watched.url()).await;
        replicated(&watched.servers[0], &watched.servers[1]).await;
        watched.fail_over().await;
        assert_eq!(watched.switched_from(0).await, 1);
        let admin = watched.servers[1].admin().await;
        is_recorded(&admin).await;
        let waiter = head(&client, &admin).await;
        outlasts_its_patience(&waiter, &admin).await;
        believes(&mut second).await;

        second.kill9();
        granted(waiter).await.unlock().await.unwrap();
    })
    .await;
}

/// The holder stays at the former primary, which goes on as one. In the new one nobody listens to it.
#[tokio::test]
async fn a_holder_that_stays_at_the_former_primary_keeps_its_lock_at_the_new_one() {
    let primary = Server::start().await;
    let link = Proxy::before(&primary).await;
    let replica = replica_of(&primary, &link).await;
    let ours = client(&primary.url(), within()).await;
    let guard = ours.lock("a").lock().await.unwrap();
    replicated(&primary, &replica).await;
    let admin = replica.admin().await;
    promote(&admin).await;

    let theirs = client(&replica.url(), without()).await;
    let waiter = head(&theirs, &admin).await;
    outlasts_its_patience(&waiter, &admin).await;
    eventually(SOON, "it believes in it", async || guard.is_valid()).await;
}

/// An address that leads to another server from now on, as a host name does. Its connections break, and the holder comes after.
#[tokio::test]
async fn behind_one_address_a_holder_takes_its_session_along_to_the_new_primary() {
    judged(async || {
        let primary = Server::start().await;
        let link = Proxy::before(&primary).await;
        let replica = replica_of(&primary, &link).await;
        let route = Route::to(&primary);
        let mut holder = holder(&format!("redis://{}", route.address())).await;
        replicated(&primary, &replica).await;
        let admin = replica.admin().await;
        promote(&admin).await;
        route.change(&replica);

        let theirs = client(&replica.url(), without()).await;
        let waiter = head(&theirs, &admin).await;
        outlasts_its_patience(&waiter, &admin).await;
        // At the former one, which still has it.
        believes(&mut holder).await;

        primary.kill();
        is_recorded(&admin).await;
        believes(&mut holder).await;
        outlasts_its_patience(&waiter, &admin).await;
        holder.kill9();
        assert!(granted(waiter).await.is_valid());
    })
    .await;
}

/// It is the same run of the same server. What it has of the holder's record is from its first time, since the holder is elsewhere.
#[tokio::test]
async fn a_server_that_is_the_primary_once_more_believes_no_record_of_its_first_time() {
    let [first, second] = [Server::start().await, Server::start().await];
    let [at_first, at_second] = [first.admin().await, second.admin().await];
    let link = Proxy::before(&second).await;
    let route = Route::to(&first);
    let ours = client(&format!("redis://{}", route.address()), within()).await;
    let guard = ours.lock("a").lock().await.unwrap();
    follows(&at_second, first.port()).await;
    replicated(&first, &second).await;
    promote(&at_second).await;
    follows(&at_first, link.port()).await;
    let cut = link.blackhole(Class::Replica);
    route.change(&second);
    is_recorded(&at_second).await;
    promote(&at_first).await;
    drop(cut);

    let theirs = client(&first.url(), without()).await;
    let waiter = head(&theirs, &at_first).await;
    outlasts_its_patience(&waiter, &at_first).await;
    eventually(SOON, "it believes in it", async || guard.is_valid()).await;
}

async fn follows(admin: &Admin, primary: u16) {
    admin.cmd::<()>(&["REPLICAOF", "127.0.0.1", &primary.to_string()]).await;
    let up =
        async || admin.info("replication", "master_link_status").await.as_deref() == Some("up");
    eventually(SOON, "it follows", up).await;
}

#[tokio::test]
async fn a_client_that_closes_takes_its_record_away() {
    judged(async || {
        let server = Server::start().await;
        let admin = server.admin().await;
        let ours = client(&server.url(), within()).await;
        is_recorded(&admin).await;
        ours.close().await;
        assert_eq!(admin.keys().await, [""; 0]);
    })
    .await;
}
