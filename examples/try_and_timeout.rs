//! Calls that do not wait, calls with a time limit, and locks that end by themselves.
//! Run it: `cargo run --example try_and_timeout`

use std::time::{Duration, Instant};

use parklock::{Client, Result};
use tokio::time::{sleep, timeout};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let client = Client::connect(&url).await?;
    let report = client.lock("report:daily");

    let guard = report.lock().await?;
    println!("the report is being written");

    // Busy is an answer, not an error: do something else instead.
    println!("try_lock: {}", answer(report.try_lock().await?.is_some()));

    // Wait, but not for ever.
    let patience = Duration::from_millis(300);
    let since = Instant::now();
    let late = report.try_lock_for(patience).await?;
    println!("try_lock_for {patience:?}: {} after {:.1?}", answer(late.is_some()), since.elapsed());

    // Dropping the future of lock() gives up the place in the queue, so any limit works.
    let cut = timeout(patience, report.lock()).await;
    println!("timeout around lock(): {}", answer(cut.is_ok()));

    // A release wakes the waiter; nobody asks Redis again and again.
    let waiting = tokio::spawn(async move { report.try_lock_for(Duration::from_secs(10)).await });
    sleep(patience).await;
    guard.unlock().await?;
    let next = waiting.await.expect("the task does not panic")?;
    println!("unlocked, and the waiter: {}", answer(next.is_some()));
    drop(next); // given back in the background

    // A fixed lease is not renewed: this lock ends after half a second, come what may.
    let brief = client.lock("report:brief").lease(Duration::from_millis(500));
    let guard = brief.lock().await?;
    println!("a fixed lease, {:.0?} left", guard.remaining());
    sleep(Duration::from_millis(600)).await;
    println!("0.6 s later it is valid: {}", guard.is_valid());

    client.close().await;
    Ok(())
}

fn answer(got: bool) -> &'static str {
    if got { "got the lock" } else { "busy" }
}
