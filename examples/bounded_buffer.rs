//! A buffer with room for three, between processes: who finds it full or empty waits for a condition.
//! Run it: `cargo run --example bounded_buffer`
//!
//! It starts itself four times: two processes put items in, and two take them out.

use std::env;
use std::process::{Child, Command};

use parklock::{Client, Condition, Lock, Result};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

const ROOM: usize = 3;
const ITEMS: usize = 10;
const BUFFER: &str = "example:buffer";

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let url = env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let mut store = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let Some(role) = env::args().nth(1) else {
        let () = store.del(BUFFER).await?;
        let start = |role| Command::new(env::current_exe()?).arg(role).spawn();
        let workers = ["put", "take", "put", "take"].map(start);
        for worker in workers.into_iter().collect::<std::io::Result<Vec<Child>>>()?.iter_mut() {
            assert!(worker.wait()?.success());
        }
        println!("left in the buffer: {}", store.llen::<_, usize>(BUFFER).await?);
        return Ok(());
    };
    let client = Client::connect(&url).await?;
    let lock = client.lock(BUFFER);
    let not_full = client.condition("example:buffer:not-full");
    let not_empty = client.condition("example:buffer:not-empty");
    for item in 1..=ITEMS {
        match role.as_str() {
            "put" => put(&lock, &not_full, &not_empty, &mut store, item).await?,
            _ => take(&lock, &not_full, &not_empty, &mut store).await?,
        }
    }
    client.close().await;
    Ok(())
}

async fn put(
    lock: &Lock,
    not_full: &Condition,
    not_empty: &Condition,
    store: &mut MultiplexedConnection,
    item: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut guard = lock.lock().await?;
    // A loop: another process may have been quicker, and a wait may end without a reason.
    while store.llen::<_, usize>(BUFFER).await? >= ROOM {
        guard = guard.wait(not_full).await?;
    }
    // First tell, then put: nobody looks before the lock is free, and if this process dies in between, nothing is lost.
    not_empty.notify_one().await?;
    let () = store.rpush(BUFFER, item).await?;
    Ok(guard.unlock().await?)
}

async fn take(
    lock: &Lock,
    not_full: &Condition,
    not_empty: &Condition,
    store: &mut MultiplexedConnection,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut guard = lock.lock().await?;
    while store.llen::<_, usize>(BUFFER).await? == 0 {
        guard = guard.wait(not_empty).await?;
    }
    not_full.notify_one().await?;
    let item: usize = store.lpop(BUFFER, None).await?;
    println!("{}: took {item} with token {}", std::process::id(), guard.token());
    Ok(guard.unlock().await?)
}
