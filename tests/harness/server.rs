//! Servers start, stop, pause and leave nothing behind.

use std::panic::AssertUnwindSafe;

use crate::common::{Server, Worker, WorkerSide, connect, eventually};
use crate::{SOON, ask, is_alive, is_pending, send, state_of};

#[tokio::test]
async fn a_dropped_server_is_gone_with_its_directory() {
    let server = Server::start().await;
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    assert!(is_alive(pid) && dir.exists());

    drop(server);

    assert!(!is_alive(pid) && !dir.exists());
}

#[tokio::test]
async fn a_server_does_not_outlive_a_test_that_panics() {
    let server = Server::start().await;
    let pid = server.pid();

    let panicked = std::panic::catch_unwind(AssertUnwindSafe(move || {
        let _mine = server;
        std::panic::resume_unwind(Box::new("as a failing assertion, but quietly"));
    }));

    assert!(panicked.is_err() && !is_alive(pid));
}

#[tokio::test]
async fn a_server_does_not_outlive_a_test_process_that_is_killed() {
    let mut owner = Worker::start("server::worker_with_a_server", &[]);
    let (pid, dir) = (owner.hear().await.parse().unwrap(), owner.hear().await);
    assert!(is_alive(pid));

    owner.kill9();

    eventually(SOON, "the server goes too", async || !is_alive(pid)).await;
    std::fs::remove_dir_all(dir).unwrap(); // which only its owner would have done
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_with_a_server() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let server = Server::start().await;
    boss.tell(&server.pid().to_string());
    boss.tell(server.dir().to_str().unwrap());
    boss.order().await;
}

#[tokio::test]
async fn a_server_outlives_the_thread_that_started_it() {
    let start = || tokio::runtime::Runtime::new().unwrap().block_on(Server::start());
    let server = std::thread::spawn(start).join().unwrap();
    let client = connect(&server.url()).await;
    assert_eq!(ask::<String>(&client, &["PING"]).await.unwrap(), "PONG");
}

#[tokio::test]
async fn a_killed_server_refuses_and_comes_back_empty_on_its_port() {
    let server = Server::start().await;
    let (port, pid) = (server.port(), server.pid());
    server.admin().await.cmd::<()>(&["SET", "key", "value"]).await;

    server.kill();
    let refused = std::net::TcpStream::connect(server.address()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    server.start_again().await;

    assert!(server.port() == port && server.pid() != pid && !is_alive(pid));
    assert!(server.admin().await.keys().await.is_empty());
}

#[tokio::test]
async fn an_append_only_server_remembers_over_a_kill() {
    let server = Server::builder().append_only().start().await;
    server.admin().await.cmd::<()>(&["SET", "key", "value"]).await;

    server.restart().await;

    assert_eq!(server.admin().await.keys().await, ["key"]);
}

#[tokio::test]
async fn a_paused_server_answers_once_it_is_resumed() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;

    server.pause();
    eventually(SOON, "it stops", async || state_of(server.pid()) == Some('T')).await;
    let mut answer = send::<String>(&client, &["PING"]);
    assert!(is_pending(&mut answer).await);
    server.resume();

    assert_eq!(answer.await.unwrap().unwrap(), "PONG");
}

#[tokio::test]
async fn a_paused_server_can_be_dropped() {
    let server = Server::start().await;
    let pid = server.pid();
    server.pause();
    drop(server);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_stopped_server_says_goodbye() {
    let server = Server::start().await;
    server.stop().await;
    assert!(server.log().contains("ready to exit"), "{}", server.log());
    server.start_again().await;
}

#[tokio::test]
async fn a_server_listens_on_a_unix_socket_if_asked() {
    let server = Server::builder().unix_socket().start().await;
    let client = connect(&server.unix_url()).await;
    assert_eq!(ask::<String>(&client, &["PING"]).await.unwrap(), "PONG");
}

#[tokio::test]
async fn a_replica_follows_its_primary() {
    let primary = Server::start().await;
    let replica = Server::builder().replica_of(primary.port()).start().await;
    primary.admin().await.cmd::<()>(&["SET", "key", "value"]).await;
    let admin = replica.admin().await;
    eventually(SOON, "the key arrives", async || admin.keys().await == ["key"]).await;
}

#[tokio::test]
#[should_panic(expected = "no-such-setting")]
async fn a_server_that_cannot_start_shows_its_log() {
    Server::builder().set("no-such-setting", "1").start().await;
}

#[tokio::test]
#[should_panic(expected = "not within 20ms: pigs fly")]
async fn eventually_names_what_did_not_happen() {
    eventually(std::time::Duration::from_millis(20), "pigs fly", async || false).await;
}

#[tokio::test]
async fn the_admin_sees_what_is_there() {
    let server = Server::start().await;
    let admin = server.admin().await;

    admin.cmd::<i64>(&["HSET", "b", "field", "1"]).await;
    admin.cmd::<()>(&["SET", "a", "1", "PX", "60000"]).await;

    assert_eq!(admin.keys().await, ["a", "b"]);
    assert_eq!(admin.hgetall("b").await["field"], "1");
    assert!((1..=60_000).contains(&admin.pttl("a").await));
    assert_eq!((admin.pttl("b").await, admin.pttl("c").await), (-1, -2));
    assert_eq!(admin.command_calls("hset").await, 1);
    assert_eq!(admin.info("replication", "role").await.as_deref(), Some("master"));
    admin.reset_stats().await;
    assert_eq!(admin.command_calls("hset").await, 0);
}

#[tokio::test]
async fn the_admin_sees_and_kills_subscribers() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let client = redis::Client::open(server.url()).unwrap();
    let mut subscriber = client.get_async_pubsub().await.unwrap();
    subscriber.subscribe("news").await.unwrap();

    assert_eq!(admin.channels().await, ["news"]);
    assert_eq!(admin.subscribers("news").await, 1);
    assert_eq!(admin.publish("news", "hello").await, 1);
    // The server may not have noticed yet that the connection that looked for it is closed.
    eventually(SOON, "only these two", async || admin.clients().await.len() == 2).await;
    assert_eq!(admin.client_kill("pubsub").await, 1);
    eventually(SOON, "nobody is left", async || admin.channels().await.is_empty()).await;
}
