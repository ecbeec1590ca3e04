//! A web handler: one payment per order at a time, across all the servers you run.
//! Run it: `cargo run -p axum-handler`, then twice at once
//! `curl -i -X POST localhost:3000/orders/42/payment`

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use parklock::{Client, Error};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt::init();
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let client = Client::connect(&url).await?; // one for the whole process

    let app = Router::new().route("/orders/{id}/payment", post(pay)).with_state(client.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(interrupted()).await?;

    client.close().await; // gives back all locks, so that nobody waits for a lease to end
    Ok(())
}

/// If the caller hangs up, this future is dropped. Whether it waits or works then, the client gives the lock back.
async fn pay(State(client): State<Client>, Path(id): Path<u64>) -> Result<String, StatusCode> {
    let lock = client.lock(format!("payment:{id}"));
    let patience = Duration::from_secs(1);
    let Some(guard) = lock.try_lock_for(patience).await.map_err(status)? else {
        return Err(StatusCode::CONFLICT); // another request pays this order right now
    };

    sleep(Duration::from_secs(3)).await; // the payment: send the token along
    let receipt = format!("order {id} is paid, token {}\n", guard.token());

    guard.unlock().await.map_err(status)?;
    Ok(receipt)
}

fn status(error: Error) -> StatusCode {
    tracing::warn!(%error, "the payment was not made under the lock");
    match error {
        Error::Unavailable { .. } | Error::TooManyWaiters { .. } => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn interrupted() {
    tokio::signal::ctrl_c().await.ok();
}
