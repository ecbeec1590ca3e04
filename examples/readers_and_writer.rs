//! Many readers or one writer, and a writer that goes on reading what it wrote.
//! Run it: `cargo run --example readers_and_writer`

use std::time::Duration;

use parklock::{Client, Result, RwLock};
use tokio::time::{Instant, sleep};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let client = Client::connect(&url).await?;
    let prices = client.rw_lock("prices");
    let since = Instant::now();

    // Readers share it: two of them take no longer than one.
    let readers = ["first", "second"].map(|who| tokio::spawn(read(prices.clone(), who, since)));
    for reader in readers {
        reader.await.expect("the task does not panic")?;
    }

    let writing = prices.write().await?;
    println!("{:.1?}: the prices are being written", since.elapsed());
    let waiting = tokio::spawn(read(prices.clone(), "third", since));
    sleep(Duration::from_millis(300)).await;

    // In one step: waiting readers are let in, and nobody can write in between.
    let reading = writing.downgrade().await?;
    println!("{:.1?}: written, and being checked", since.elapsed());
    waiting.await.expect("the task does not panic")?;

    // Each guard is its own owner: a reader that asks to write has to wait until all readers have
    // unlocked, itself among them.
    if prices.try_write().await?.is_none() {
        println!("{:.1?}: nobody can write while the prices are being checked", since.elapsed());
    }
    reading.unlock().await?;

    // So two futures of one task take turns.
    let write = async |who| {
        let guard = prices.write().await?;
        println!("{:.1?}: the {who} of two futures writes", since.elapsed());
        sleep(Duration::from_millis(100)).await;
        guard.unlock().await
    };
    tokio::try_join!(write("first"), write("second"))?;

    // A handle that is `reentrant()` may be locked again by the same task, but a read lock is never
    // upgraded: it would wait for itself. That is an error, not a deadlock.
    let nesting = prices.clone().reentrant();
    let outer = nesting.read().await?;
    let inner = nesting.read().await?;
    if let Err(error) = nesting.write().await {
        println!("a task that reads, and asks to write: {error}");
    }
    inner.unlock().await?;
    outer.unlock().await?;

    // `run_write` and `run_read` unlock by themselves, and stop the work if the lock is lost.
    let token = prices.run_write(|hold| async move { hold.token() }).await?;
    println!("written again, with token {token}");

    client.close().await;
    Ok(())
}

/// Reads for a while.
async fn read(prices: RwLock, who: &str, since: Instant) -> Result<()> {
    let guard = prices.read().await?;
    println!("{:.1?}: the {who} reader reads", since.elapsed());
    sleep(Duration::from_millis(200)).await;
    guard.unlock().await
}
