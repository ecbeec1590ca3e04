//! The test support, tested: what it promises is what the other tests rely on.

#[path = "../common/mod.rs"]
mod common;

mod checker;
mod classes;
mod cuts;
mod epochs;
mod framing;
mod holds;
#[path = "../judge/mod.rs"]
mod judge;
mod pairing;
mod process;
mod raw;
mod rules;
mod server;
mod stream;
mod tokens;
mod watches;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use redis::{FromRedisValue, RedisResult, aio::MultiplexedConnection};
use tokio::task::JoinHandle;

use common::{Proxy, Server, connect, timeout};

/// As long as a background effect may take on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(10);

/// As long as we look at what should not happen. If it is too short, a test cannot fail, but neither can it flake.
const A_WHILE: Duration = Duration::from_millis(60);

async fn proxied() -> (Server, Proxy, MultiplexedConnection) {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let client = connect(&proxy.url()).await;
    (server, proxy, client)
}

/// Sends a command in the background.
fn send<T>(client: &MultiplexedConnection, words: &[&str]) -> JoinHandle<RedisResult<T>>
where
    T: FromRedisValue + Send + 'static,
{
    let (mut client, mut cmd) = (client.clone(), redis::Cmd::new());
    cmd.arg(words);
    tokio::spawn(async move { cmd.query_async(&mut client).await })
}

/// Sends a command and waits for what came of it.
async fn ask<T>(client: &MultiplexedConnection, words: &[&str]) -> RedisResult<T>
where
    T: FromRedisValue + Send + 'static,
{
    let answer = timeout(SOON, send(client, words)).await.expect("an answer");
    answer.expect("no panic")
}

async fn is_pending(future: impl Future + Unpin) -> bool {
    timeout(A_WHILE, future).await.is_err()
}

/// Whether the process exists and is more than an entry that nobody has collected yet.
fn is_alive(pid: u32) -> bool {
    state_of(pid).is_some_and(|state| state != 'Z')
}

/// The kernel's letter: R runs, S sleeps, T is stopped.
fn state_of(pid: u32) -> Option<char> {
    let stat =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
