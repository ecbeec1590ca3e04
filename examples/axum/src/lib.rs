//! A web service: one payment per order at a time, across all the servers you run.

use std::time::Duration;

use axum::extract::{Path, Request};
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use parklock::tower::{LockLayer, Refusal};
use parklock::{Client, Hold};
use tokio::time::sleep;

/// How long a payment takes, with a bank that is not in a hurry.
#[derive(Debug, Clone, Copy)]
pub struct Bank(pub Duration);

/// The layer is around the routes that need the lock, and around no others.
pub fn app(client: &Client, bank: Bank) -> Router {
    let one_payment_at_a_time = LockLayer::new(client, order_of)
        .wait(Duration::from_secs(1)) // less than the time after which callers give up
        .answer(refused);
    Router::new()
        .route("/orders/{id}/payment", post(pay))
        .layer(one_payment_at_a_time)
        .route("/health", get(async || "well\n"))
        .layer(Extension(bank))
}

/// The name of the lock. Only a plain number gets a lock. An encoded one (`%34%32`) gets none; the handler then has no `Hold`,
/// and the answer is 500.
fn order_of(request: &Request) -> Option<String> {
    let id = request.uri().path().strip_prefix("/orders/")?.strip_suffix("/payment")?;
    id.parse::<u64>().ok().map(|id| format!("payment:{id}"))
}

/// If the caller hangs up, this future is dropped. If the lock is lost, it is dropped too. In both cases the payment
/// may have reached the bank: so the token goes along with it, and the bank refuses an older one.
async fn pay(Path(id): Path<u64>, hold: Hold, Extension(Bank(delay)): Extension<Bank>) -> String {
    sleep(delay).await;
    format!("order {id} is paid, token {}\n", hold.token())
}

/// Says what the caller may do about it. Without this, the layer answers with the same status and no words.
fn refused(refusal: Refusal) -> Response {
    let (status, words) = (refusal.status(), format!("{refusal}\n"));
    if refusal.is_worth_a_retry() {
        (status, [(RETRY_AFTER, "1")], words).into_response()
    } else {
        (status, words).into_response()
    }
}
