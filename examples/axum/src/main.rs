//! Run it: `cargo run -p axum-handler`, then twice at once
//! `curl -i -X POST localhost:3000/orders/42/payment`

use std::time::Duration;

use axum_handler::{Bank, app};
use parklock::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt::init();
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let client = Client::connect(&url).await?; // one for the whole process

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app(&client, Bank(Duration::from_secs(3)));
    axum::serve(listener, app).with_graceful_shutdown(interrupted()).await?;

    client.close().await; // gives back all locks, so that nobody waits for a lease to end
    Ok(())
}

async fn interrupted() {
    tokio::signal::ctrl_c().await.ok();
}
