//! At most two at a time, and a wait until all of them are done.
//! Run it: `cargo run --example permits_and_latch`

use std::time::Duration;

use parklock::{Client, CountDownLatch, Result, Semaphore};
use tokio::time::{Instant, sleep};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let client = Client::connect(&url).await?;

    // The semaphore begins with two permits. `set_permits` sets another number, for all handles.
    let uploads = client.semaphore("uploads", 2);
    let both = uploads.acquire_many(2).await?;
    if let Err(error) = client.semaphore("uploads", 3).try_acquire().await {
        println!("of three instead of two: {error}");
    }
    both.unlock().await?;

    // Set it before anybody waits or counts: a latch that nobody has set is an `Error::Unset`, and not open.
    let done = client.count_down_latch("uploads:done").lease(Duration::from_secs(60));
    println!("set: {}, set again: {}", done.set(4).await?, done.set(4).await?);

    let since = Instant::now();
    for file in 1..=4 {
        tokio::spawn(upload(uploads.clone(), done.clone(), file, since));
    }

    // Parks, here or in any other process, until four have counted down. A limit is wise: a dead process does not
    // count down.
    let all = done.wait_for(Duration::from_secs(10)).await?;
    println!("{:.1?}: all are done: {all}", since.elapsed());
    done.delete().await?;

    client.close().await;
    Ok(())
}

/// Two at a time. If this process dies, its permit comes back when the lease is over.
async fn upload(uploads: Semaphore, done: CountDownLatch, file: u32, since: Instant) -> Result<()> {
    let permit = uploads.acquire().await?;
    println!("{:.1?}: file {file} is being sent", since.elapsed());
    sleep(Duration::from_millis(300)).await;
    permit.unlock().await?;
    let left = done.count_down().await?;
    println!("{:.1?}: file {file} is sent, {left} left", since.elapsed());
    Ok(())
}
