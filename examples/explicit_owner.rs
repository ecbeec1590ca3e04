//! Owners of re-entrant locks other than the current Tokio task.
//! Run it: `cargo run --example explicit_owner`

use std::time::Duration;

use parklock::{Client, Owner, Result};
use tokio::time::{Instant, sleep};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let client = Client::connect(&url).await?;

    // One owner in two tasks: a lock that one task holds, the other may take too.
    let order = Owner::new();
    let outer = client.reentrant_lock("order:42").owned_by(&order).lock().await?;
    let helper = tokio::spawn(pack(client.clone(), order.clone()));
    println!("a helper task entered, {} holds", helper.await.expect("the task does not panic")?);
    outer.unlock().await?;

    // Two owners in one task: futures polled side by side exclude each other. Without owners of their own they would
    // be one owner, the task, and the second would be let in beside the first.
    let since = Instant::now();
    tokio::try_join!(ship(&client, "first", since), ship(&client, "second", since))?;

    client.close().await;
    Ok(())
}

async fn pack(client: Client, order: Owner) -> Result<u32> {
    let guard = client.reentrant_lock("order:42").owned_by(&order).lock().await?;
    let holds = guard.hold_count();
    guard.unlock().await?;
    Ok(holds)
}

async fn ship(client: &Client, who: &str, since: Instant) -> Result<()> {
    let owner = Owner::new();
    let guard = client.reentrant_lock("order:42").owned_by(&owner).lock().await?;
    println!("{who} has it from {:.1?}", since.elapsed());
    sleep(Duration::from_millis(300)).await;
    println!("{who} had it to   {:.1?}", since.elapsed());
    guard.unlock().await
}
