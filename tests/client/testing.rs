//! The server that users start for their own tests.

use std::env;
use std::fs::read_to_string;
use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::common::fixture::{LONG, SOON};
use crate::common::server::Dir;
use crate::common::{Worker, WorkerSide, eventually, timeout};
use futures_util::FutureExt;
use parklock::testing::RedisServer;
use parklock::{Config, Error};
use tokio::net::TcpStream;

#[tokio::test]
async fn each_server_is_empty_and_ends_with_its_test() {
    let (a, b) = (RedisServer::start().await.unwrap(), RedisServer::start().await.unwrap());
    let (ours, theirs) = (a.client().await.unwrap(), b.client().await.unwrap());
    let _held = ours.lock("a").lock().await.unwrap();
    assert!(theirs.lock("a").try_lock().await.unwrap().is_some());
    assert!(a.client().await.unwrap().lock("a").try_lock().await.unwrap().is_none());
    let port = a.port();

    drop(a);

    let refuses = async || TcpStream::connect(("127.0.0.1", port)).await.is_err();
    eventually(SOON, "nobody listens any more", refuses).await;
}

#[tokio::test]
async fn a_server_can_be_paused_killed_and_started_again() {
    let mut server = RedisServer::start().await.unwrap();
    let config = Config::default().watchdog_timeout(Duration::from_secs(1)).start_timeout(LONG);
    let client = server.client_with(config).await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();

    server.pause().await.unwrap();
    timeout(SOON, guard.ended()).await.expect("the lease runs out");
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    server.resume().await.unwrap();
    let free = async || client.lock("a").try_lock().await.is_ok_and(|guard| guard.is_some());
    eventually(SOON, "it answers again", free).await;

    server.kill().await;
    assert!(client.lock("a").try_lock().await.is_err());
    assert!(server.pause().await.is_err(), "there is nothing to pause");
    server.restart().await.unwrap();
    eventually(SOON, "the client is back", free).await;
}

/// An order whose future was dropped is still carried out and answered. That answer is not the next order's.
#[tokio::test]
async fn an_order_that_was_dropped_does_not_answer_for_the_next_one() {
    let mut server = RedisServer::start().await.unwrap();
    for _ in 0..3 {
        let _ = server.pause().now_or_never();
    }
    server.resume().await.unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let info: redis::InfoDict =
        redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
    let stat = format!("/proc/{}/stat", info.get::<u32>("process_id").unwrap());
    let gone = redis::cmd("SHUTDOWN").query_async::<()>(&mut connection).await;
    assert!(gone.is_err(), "it does not answer");
    // A process that has ended is a zombie until the shell reaps it, which may be at once.
    let has_ended = async || read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    eventually(SOON, "the server has ended", has_ended).await;

    assert!(server.pause().await.is_err(), "there is nothing to pause");
}

/// The server runs in a directory of its own, where the name of its program leads elsewhere.
#[tokio::test]
async fn a_program_that_is_named_relative_to_the_current_directory_is_found() {
    let dir = Dir::create();
    let path = env::var_os("PATH").unwrap();
    let mut programs = env::split_paths(&path).map(|dir| dir.join("redis-server"));
    let program = programs.find(|program| program.is_file()).unwrap();
    symlink(&program, dir.0.join("redis-server")).unwrap();
    symlink(program, dir.0.join("a server")).unwrap();
    let whole = path.to_str().unwrap();
    let (first, dir_name) = (format!(".:{whole}"), dir.0.to_str().unwrap());
    for named in [
        [("IN", dir_name), ("PATH", whole), ("PARKLOCK_SERVER", "./redis-server")],
        [("IN", dir_name), ("PATH", &first), ("PARKLOCK_SERVER", "redis-server")],
        [("IN", dir_name), ("PATH", whole), ("PARKLOCK_SERVER", "./a server")],
    ] {
        let mut worker = Worker::start("testing::starts_a_server_elsewhere", &named);
        assert_eq!(worker.hear().await, "Ok(())", "{named:?}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_on_the_path_is_named() {
    let here = [("IN", "."), ("PARKLOCK_SERVER", "no-such-server")];
    let mut worker = Worker::start("testing::starts_a_server_elsewhere", &here);
    let said = worker.hear().await;
    let why = r#"PARKLOCK_SERVER names \"no-such-server\", which is not on the path"#;
    assert!(said.contains(why), "{said}");
}

#[tokio::test]
#[ignore = "a worker process"]
async fn starts_a_server_elsewhere() {
    let Some(boss) = WorkerSide::here() else { return };
    env::set_current_dir(env::var_os("IN").unwrap()).unwrap();
    boss.tell(&format!("{:?}", RedisServer::start().await.map(drop)));
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let refused = timeout(SOON, RedisServer::start_with(["--no-such-setting", "1"])).await;
    let error = refused.expect("at once").unwrap_err().to_string();
    assert!(error.contains("no-such-setting"), "{error}");
    let small = RedisServer::start_with(["--maxmemory", "1mb"]).await.unwrap();
    assert!(small.url().ends_with(&small.port().to_string()));
}
