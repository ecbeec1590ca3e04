//! Run it: `cargo run -p axum-handler`, then twice at once
//! `curl -i -X POST localhost:3000/orders/42/payment`

use std::time::Duration;

use axum_handler::{Bank, app};
use parklock::{Client, Config};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt::init();
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    // One for the whole process. It waits for a Redis that starts later.
    let config = Config::default().start_timeout(Duration::from_secs(60));
    let client = Client::connect_with(&url, config).await?;

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app(&client, Bank(Duration::from_secs(3)));
    // First no new requests, and an end for those that were accepted; then the locks.
    axum::serve(listener, app).with_graceful_shutdown(told_to_end()).await?;
    client.drain(Duration::from_secs(10)).await; // gives back all locks, so that nobody waits for a lease to end
    Ok(())
}

/// Ctrl-C, or SIGTERM from systemd, Docker or Kubernetes.
async fn told_to_end() {
    #[cfg(unix)]
    let terminated = async {
        let kind = tokio::signal::unix::SignalKind::terminate();
        tokio::signal::unix::signal(kind).expect("signals can be heard").recv().await;
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        () = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
