//! Re-entrance: a function that holds a lock calls another that takes the same one.
//! Run it: `cargo run --example nested`

use parklock::{Client, ReentrantLock, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let client = Client::connect(&url).await?;
    let account = client.reentrant_lock("account:7");

    transfer(&account).await?;

    println!("now it is free: {}", !account.is_locked().await?);
    client.close().await;
    Ok(())
}

/// Debits and records under one lock: nobody sees the one without the other.
async fn transfer(account: &ReentrantLock) -> Result<()> {
    let guard = account.lock().await?;
    println!("transfer has the lock, {} hold", guard.hold_count());

    record(account).await?;
    println!("record has unlocked, transfer still holds: {}", guard.hold_count());

    // The owner is the task. Another one is another owner, even in the same process.
    let handle = account.clone();
    let elsewhere = tokio::spawn(async move { handle.try_lock().await });
    let elsewhere = elsewhere.await.expect("the task does not panic")?;
    println!("another task gets it: {}", elsewhere.is_some());

    guard.unlock().await
}

/// Safe to call alone. If the caller has the lock already, it re-enters instead of waiting for itself.
async fn record(account: &ReentrantLock) -> Result<()> {
    let guard = account.lock().await?;
    println!("record re-entered, {} holds", guard.hold_count());
    guard.unlock().await
}
