//! A web service of actix-web: one payment per order at a time, across all the servers you run.
//! Run it: `cargo run -p actix-payments`

use std::time::{Duration, Instant};

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::{ErrorInternalServerError, ErrorServiceUnavailable, InternalError};
use actix_web::http::StatusCode;
use actix_web::http::header::RETRY_AFTER;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, Data, Path, ReqData};
use actix_web::{App, Error, HttpMessage, HttpResponse, HttpServer};
use parklock::Error::{Closed, Indeterminate, Lost, TooManyWaiters, Unavailable};
use parklock::{Client, Hold};
use tokio::time::timeout;

#[cfg(test)]
mod tests;

/// How long a payment takes.
const BANK: Duration = Duration::from_millis(100);

/// How long a request waits for its lock, and then for the answer to the unlock: together less than its caller waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bank compares the tokens, and refuses an older one.
async fn pay(hold: ReqData<Hold>) -> String {
    tokio::time::sleep(BANK).await;
    hold.token().to_string()
}

/// Handles a request under the lock of its order, and drops the handler if that lock is lost. It may have reached the bank
/// by then: so this answer is a 500, which callers do not repeat.
async fn one_at_a_time(
    client: Data<Client>,
    order: Path<u64>,
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let lock = client.lock(format!("payment:{order}"));
    let guard = lock.try_lock_for(PATIENCE).await.map_err(refused)?.ok_or_else(busy)?;
    request.extensions_mut().insert(guard.hold());
    tokio::select! {
        answer = next.call(request) => match timeout(PATIENCE, guard.unlock()).await {
            Ok(Err(lost @ Lost { .. })) => Err(ErrorInternalServerError(lost)),
            // The work is done. If Redis does not answer, the client goes on with the unlock.
            _ => answer,
        },
        _ = guard.ended() => Err(ErrorInternalServerError("the lock is lost")),
    }
}

/// The request did not begin. Only if it may succeed later, its caller is asked to repeat it.
fn refused(error: parklock::Error) -> Error {
    match error {
        Unavailable { .. } | Indeterminate { .. } | TooManyWaiters { .. } | Closed => {
            ErrorServiceUnavailable(error)
        }
        _ => ErrorInternalServerError(error),
    }
}

fn busy() -> Error {
    let answer = HttpResponse::Locked().insert_header((RETRY_AFTER, "1")).finish();
    InternalError::from_response("another request holds the lock", answer).into()
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    // One for the whole process, made here: each worker of actix has a runtime of its own, and they share this client.
    let client = Data::new(Client::connect(&url).await?);
    let shared = client.clone();
    let server = HttpServer::new(move || {
        App::new().app_data(shared.clone()).service(
            web::resource("/orders/{order}/payment").wrap(from_fn(one_at_a_time)).post(pay),
        )
    })
    .workers(2)
    .bind(("127.0.0.1", 0))?;
    let orders = format!("http://{}/orders", server.addrs()[0]);
    tokio::spawn(server.run());

    let caller = awc::Client::default();
    let pay = async |order: u64| -> Result<_, Box<dyn std::error::Error>> {
        let mut answer = caller.post(format!("{orders}/{order}/payment")).send().await?;
        Ok((answer.status(), answer.body().await?))
    };
    let began = Instant::now();
    let ((_, one), (_, other)) = tokio::try_join!(pay(42), pay(42))?;
    println!("paid under the tokens {one:?} and {other:?}");
    assert!(began.elapsed() >= 2 * BANK && one != other, "one after the other");

    let elsewhere = client.lock("payment:42").lock().await?; // a server that is slow
    let (refused, _) = pay(42).await?;
    println!("refused: {refused}");
    assert_eq!(refused, StatusCode::LOCKED);
    assert_eq!(pay(7).await?.0, StatusCode::OK); // another order does not wait
    elsewhere.unlock().await?;
    assert_eq!(pay(42).await?.0, StatusCode::OK);
    Ok(())
}
