//! A handler of axum that takes the hold of its request.

use axum_core::extract::FromRequestParts;
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::engine::Hold;

/// A handler of axum takes a [`Hold`], but no [`LockLayer`](crate::tower::LockLayer) has put one into the request (feature `axum`).
///
/// The response is a 500 that says so. A layer must be around the route, and name a lock for the request: see
/// [`LockLayer::by_path`](crate::tower::LockLayer::by_path).
///
/// ```
/// use axum::{Router, body::Body, routing::post};
/// use http::{Request, StatusCode};
/// use parklock::{Hold, tower::LockLayer};
/// use tower::ServiceExt;
///
/// async fn pay(hold: Hold) -> String {
///     format!("paid under token {}", hold.token())
/// }
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let unprotected = Router::new().route("/orders/{id}/payment", post(pay));
/// let protected = unprotected.clone().layer(LockLayer::by_path(&client));
///
/// let request = || Request::post("/orders/42/payment").body(Body::empty()).unwrap();
/// assert_eq!(protected.oneshot(request()).await.unwrap().status(), StatusCode::OK);
/// assert_eq!(unprotected.oneshot(request()).await.unwrap().status(), StatusCode::INTERNAL_SERVER_ERROR);
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the handler takes a hold, but no lock layer has locked anything for this request")]
pub struct NoHold;

impl IntoResponse for NoHold {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Hold {
    type Rejection = NoHold;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoHold> {
        parts.extensions.get::<Self>().cloned().ok_or(NoHold)
    }
}
