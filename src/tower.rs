//! A [tower](https://docs.rs/tower) layer that holds a lock for each request (feature `tower`).
//!
//! It works with axum, tonic, hyper and anything else that uses `tower::Service` with `http` requests. Requests for the
//! same lock run one after the other, across all processes that share the Redis server; requests for different locks do
//! not wait for each other.
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use parklock::tower::LockLayer;
//! use std::convert::Infallible;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
//! let client = parklock::Client::connect(&url).await?;
//! let one_at_a_time = LockLayer::by_path(&client).wait(std::time::Duration::from_secs(1));
//! let service = ServiceBuilder::new().layer(one_at_a_time).service(service_fn(
//!     async |request: Request<String>| {
//!         let hold = request.extensions().get::<parklock::Hold>().expect("the layer put it there");
//!         Ok::<_, Infallible>(Response::new(format!("done under token {}", hold.token())))
//!     },
//! ));
//! let answer = service.oneshot(Request::post("/orders/42/payment").body(String::new()).unwrap()).await;
//! assert_eq!(answer.unwrap().status(), StatusCode::OK);
//! # Ok::<(), parklock::Error>(()) }).unwrap();
//! ```

#[cfg(feature = "axum")]
mod no_hold;

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use crate::client::Client;
use crate::error::Error;
use crate::guards::Guard;
use crate::locks::Lock;
use crate::log;
use crate::mutex::Mutex;

#[cfg(feature = "axum")]
pub use no_hold::NoHold;

/// The least time between two warnings of requests that are refused. If Redis is away, all are.
const APART: Duration = Duration::from_secs(5);

type LockOf<B> = dyn Fn(&Request<B>) -> Option<Lock> + Send + Sync;
type AnswerTo<R> = dyn Fn(Refusal) -> Response<R> + Send + Sync;
type Answering<R, E> = Pin<Box<dyn Future<Output = Result<Response<R>, E>> + Send>>;

/// Holds a lock while the inner service handles a request. `B` is the body of the requests and `R` that of the
/// responses.
///
/// The lock is released after the inner service has returned its response and before the layer returns it: the lock does
/// not protect a body that is still streaming after that. If the caller hangs up, the server drops the future, and the
/// lock is released in the background. The inner service finds the [`Hold`](crate::Hold), with its token, among the
/// request's extensions. With the feature `axum`, a handler of axum takes it as an argument.
///
/// Each request waits separately. So [`Config::max_waiters`](crate::Config::max_waiters), and a limit on concurrent
/// requests outside this layer, also limit how many of them wait. A limit inside this layer does not: a request waits for
/// the inner service to be ready when it has its lock. So this layer itself is always ready. A load-shedding layer
/// outside this one does not see how busy the inner service is.
///
/// The [module](self) has an example.
///
/// # Panics
/// The future of a response panics if it asks for a lock outside a Tokio runtime with time enabled. If the inner
/// service panics, so does that future, and the client releases the lock in the background.
#[must_use = "a layer does nothing until it is put around a service"]
pub struct LockLayer<B, R> {
    lock: Arc<LockOf<B>>,
    answer: Arc<AnswerTo<R>>,
    wait: Duration,
    on_loss: OnLoss,
    warned: Arc<Mutex<Warned>>,
}

/// The last warning of a refused request, and how many it was since then that had none.
#[derive(Default)]
struct Warned {
    at: Option<Instant>,
    more: usize,
}

/// What happens to a request whose lock is lost while the inner service handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnLoss {
    /// The inner future is dropped at its next `await`, and the layer returns [`Refusal::Lost`].
    #[default]
    Abort,
    /// The inner service continues, and its response gets the extension [`LockLost`]. The service can check the
    /// [`Hold`](crate::Hold) itself. Use this for services that must not be interrupted, and whose resource compares
    /// tokens. [`LockLost`] has an example.
    Mark,
}

/// An extension of the response: the lock was lost before the inner service answered. See [`OnLoss::Mark`].
///
/// ```
/// use http::{Request, Response};
/// use parklock::tower::{LockLayer, LockLost, OnLoss};
/// use std::convert::Infallible;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let layer = LockLayer::by_path(&client).on_loss(OnLoss::Mark);
/// let service = ServiceBuilder::new().layer(layer).service(service_fn(move |_: Request<String>| {
///     let operator = client.clone();
///     async move {
///         // An operator takes the lock away while the request is handled.
///         operator.lock("path:/doc/lost").force_unlock().await.unwrap();
///         Ok::<_, Infallible>(Response::new("done".to_owned()))
///     }
/// }));
/// let request = Request::post("/doc/lost").body(String::new()).unwrap();
/// let response = service.oneshot(request).await.unwrap();
/// assert_eq!(response.body(), "done");
/// assert_eq!(response.extensions().get(), Some(&LockLost));
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockLost;

/// Why the layer responds itself. [`LockLayer::answer`] has an example.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Others held the lock for as long as the layer waits. The inner service did not see the request.
    #[error("another request holds the lock")]
    Busy,
    /// The lock was lost while the inner service handled the request. What it has done so far remains.
    #[error("the lock of the request was lost")]
    Lost,
    /// The lock could not be acquired, or was lost before the inner service was ready ([`Error::Lost`]): see [`Error`].
    /// The inner service did not see the request.
    #[error("the request could not begin under its lock: {0}")]
    Failed(#[source] Error),
}

impl Refusal {
    /// The default status of the layer's own response (see [`LockLayer::answer`]): 423 *Locked* (RFC 4918) if the lock
    /// is busy; 503 if Redis cannot be reached, too many callers wait, the client is closed, or the lock was lost before
    /// the inner service was ready; 400 if the name is invalid; and 500 otherwise. That includes [`Lost`](Self::Lost): the
    /// request may be partly done, and a 503 would invite the caller to repeat it.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Busy => StatusCode::LOCKED,
            Self::Failed(Error::InvalidName { .. }) => StatusCode::BAD_REQUEST,
            Self::Failed(
                Error::Unavailable { .. }
                | Error::Indeterminate { .. }
                | Error::TooManyWaiters { .. }
                | Error::Closed
                | Error::Lost { .. },
            ) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Lost | Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Whether the inner service did not see the request, and a retry may succeed.
    #[must_use]
    pub fn is_worth_a_retry(&self) -> bool {
        matches!(self.status(), StatusCode::LOCKED | StatusCode::SERVICE_UNAVAILABLE)
    }

    fn plain<R: Default>(&self) -> Response<R> {
        let mut response = Response::new(R::default());
        *response.status_mut() = self.status();
        if self.is_worth_a_retry() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// A response without a body, whose headers are what gRPC otherwise sends after the body.
    fn grpc<R: Default>(&self) -> Response<R> {
        let code = match self.status() {
            StatusCode::LOCKED => GRPC_ABORTED,
            StatusCode::SERVICE_UNAVAILABLE => GRPC_UNAVAILABLE,
            StatusCode::BAD_REQUEST => GRPC_INVALID_ARGUMENT,
            _ => GRPC_INTERNAL,
        };
        let words = utf8_percent_encode(&self.to_string(), GRPC_ENCODED).to_string();
        let mut response = Response::new(R::default());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from_static(code));
        headers.extend(HeaderValue::try_from(words).map(|words| (GRPC_MESSAGE, words)));
        response
    }
}

// <https://grpc.io/docs/guides/status-codes/>
const GRPC_INVALID_ARGUMENT: &str = "3";
const GRPC_ABORTED: &str = "10";
const GRPC_INTERNAL: &str = "13";
const GRPC_UNAVAILABLE: &str = "14";

/// The message is percent-encoded.
const GRPC_ENCODED: &AsciiSet = &CONTROLS.add(b'%');
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

impl<B, R: Default> LockLayer<B, R> {
    /// The plain lock whose name the closure derives from the request. A request for which it returns `None` passes
    /// without a lock. A handler that must not run without one takes the [`Hold`](crate::Hold) from the extensions.
    ///
    /// `request.uri().path()` is the path as it was sent: `/orders/42` and `/orders/%34%32` differ, though a router
    /// takes them to the same handler. Derive the name from the [`decoded_path`], as [`by_path`](Self::by_path) does.
    ///
    /// If callers choose the names, add your own prefix, so that nobody can hold locks that have other purposes.
    ///
    /// The closure cannot refuse a request. For that, put a layer outside this one, such as `axum::middleware::from_fn` or
    /// `tower::filter`.
    pub fn new<N: Into<String>>(
        client: &Client,
        name: impl Fn(&Request<B>) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        let client = client.clone();
        Self::with(move |request| name(request).map(|name| client.lock(name)))
    }

    /// The lock that the closure derives from the request, for example a fair lock, or one with a fixed lease. A
    /// request for which it returns `None` passes without a lock.
    pub fn with(lock: impl Fn(&Request<B>) -> Option<Lock> + Send + Sync + 'static) -> Self {
        Self {
            lock: Arc::new(lock),
            answer: Arc::new(|refusal| refusal.plain()),
            wait: Duration::ZERO,
            on_loss: OnLoss::default(),
            warned: Arc::default(),
        }
    }

    /// The plain lock `path:<path>`, without the query: requests for one path run one after the other. The path is
    /// decoded, as routers decode it: `/orders/42` and `/orders/%34%32` are one lock.
    ///
    /// It locks each request whose path it sees, whatever the method. So choose [`new`](Self::new), with a name of your own, in these cases:
    /// - The layer is within `Router::nest` of axum, which cuts off the prefix: `/a/1` and `/b/1` would be one lock. Put the layer outside.
    /// - `GET`, `HEAD` or `OPTIONS` (a CORS preflight) should pass: return `None` for them.
    /// - The router takes `/a` and `/a/` to the same handler: they would be two locks.
    /// - Several services share a Redis: give each client a [namespace](crate::Config::namespace).
    /// - gRPC: the path is the method, so all calls of a method would be one lock. See also [`grpc`](Self::grpc).
    pub fn by_path(client: &Client) -> Self {
        Self::new(client, |request| Some(format!("path:{}", decoded_path(request))))
    }

    /// The plain lock `header:<value>` of a header such as `idempotency-key`. A request without that header passes
    /// without a lock. A value that makes no valid lock name, for example one that is too long, gets a 400.
    ///
    /// # Panics
    /// If `header` is not a valid header name, for example `x order`. No request can have such a header, so all requests
    /// would pass without a lock.
    #[track_caller]
    pub fn by_header(client: &Client, header: impl TryInto<HeaderName, Error: fmt::Debug>) -> Self {
        let header = header.try_into().expect("the name of a header");
        Self::new(client, move |request| {
            let value = request.headers().get(&header)?;
            Some(format!("header:{}", String::from_utf8_lossy(value.as_bytes())))
        })
    }

    /// Answers a refused request in the words of gRPC, with an empty body: `ABORTED` if the lock is busy, `UNAVAILABLE` where HTTP
    /// has a 503, `INVALID_ARGUMENT` if the name is invalid, and `INTERNAL` otherwise. A client of tonic would take the statuses of
    /// HTTP for `UNKNOWN`. `R` is the body of the responses, such as `tonic::body::Body`.
    ///
    /// Derive the name of the lock from a header (metadata) of the call, since the path of a request is its method.
    ///
    /// ```
    /// use http::{Request, Response, StatusCode};
    /// use parklock::tower::LockLayer;
    /// use std::convert::Infallible;
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let layer = LockLayer::by_header(&client, "x-order").grpc();
    /// let service = ServiceBuilder::new().layer(layer).service(service_fn(
    ///     async |_: Request<String>| Ok::<_, Infallible>(Response::new("done".to_owned())),
    /// ));
    /// let other_call = client.lock("header:grpc-42").lock().await?;
    /// let call = Request::post("/shop.Orders/Pay").header("x-order", "grpc-42").body(String::new());
    /// let response = service.oneshot(call.unwrap()).await.unwrap();
    /// assert_eq!(response.status(), StatusCode::OK); // as gRPC has it
    /// assert_eq!(response.headers()["grpc-status"], "10"); // ABORTED
    /// other_call.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn grpc(self) -> Self {
        self.answer(|refusal| refusal.grpc())
    }
}

/// The path of a request, decoded as routers decode it, for the name of a lock: two spellings of one path are not two locks.
/// Bytes that are not UTF-8 are replaced: at worst, two paths share a lock.
///
/// ```
/// use parklock::tower::decoded_path;
///
/// let request = http::Request::post("/orders/%34%32").body(()).unwrap();
/// assert_eq!(decoded_path(&request), "/orders/42");
/// ```
pub fn decoded_path<B>(request: &Request<B>) -> Cow<'_, str> {
    percent_decode_str(request.uri().path()).decode_utf8_lossy()
}

impl<B, R> LockLayer<B, R> {
    /// How long a request waits for its lock. Default: zero, so it does not wait.
    ///
    /// It should be less than the callers' own timeout.
    pub fn wait(self, limit: Duration) -> Self {
        Self { wait: limit, ..self }
    }

    /// What happens to a request whose lock is lost. Default: [`OnLoss::Abort`].
    pub fn on_loss(self, on_loss: OnLoss) -> Self {
        Self { on_loss, ..self }
    }

    /// The response to a refused request. Default: the [status](Refusal::status) with an empty body, and with
    /// `Retry-After: 1` if a retry may succeed.
    ///
    /// ```
    /// use http::{Request, Response, StatusCode};
    /// use parklock::tower::{LockLayer, Refusal};
    /// use std::convert::Infallible;
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::Client::connect(&url).await?;
    /// let layer = LockLayer::by_path(&client).answer(|refusal: Refusal| {
    ///     let mut response = Response::new(refusal.to_string());
    ///     *response.status_mut() = refusal.status();
    ///     response
    /// });
    /// let service = ServiceBuilder::new().layer(layer).service(service_fn(
    ///     async |_: Request<String>| Ok::<_, Infallible>(Response::new("done".to_owned())),
    /// ));
    /// let other_request = client.lock("path:/doc/answer").lock().await?;
    /// let request = Request::post("/doc/answer").body(String::new()).unwrap();
    /// let response = service.oneshot(request).await.unwrap();
    /// assert_eq!(response.status(), StatusCode::LOCKED);
    /// assert_eq!(response.body(), "another request holds the lock");
    /// other_request.unlock().await?;
    /// # Ok::<(), parklock::Error>(()) }).unwrap();
    /// ```
    pub fn answer(self, answer: impl Fn(Refusal) -> Response<R> + Send + Sync + 'static) -> Self {
        Self { answer: Arc::new(answer), ..self }
    }

    fn refuse(&self, lock: &Lock, refusal: Refusal) -> Response<R> {
        let (name, status) = (lock.name(), refusal.status());
        if status.is_server_error()
            && let Some(more) = self.warns()
        {
            let more = (more > 0).then_some(more);
            log::warn!(?name, status = status.as_u16(), %refusal, more, "a request is refused");
        } else {
            log::debug!(?name, status = status.as_u16(), %refusal, "a request is refused");
        }
        (self.answer)(refusal)
    }

    /// Whether it is time for a warning: then it says how many requests had none since the last one.
    fn warns(&self) -> Option<usize> {
        let mut warned = self.warned.lock();
        if warned.at.is_some_and(|at| at.elapsed() < APART) {
            warned.more += 1;
            return None;
        }
        warned.at = Some(Instant::now());
        Some(std::mem::take(&mut warned.more))
    }

    async fn locked(&self, lock: &Lock) -> Result<Guard, Refusal> {
        let guard = lock.try_lock_for(self.wait).await.map_err(Refusal::Failed)?;
        guard.ok_or(Refusal::Busy)
    }

    /// Handles a request under its lock.
    async fn serve<S>(self, lock: Lock, mut inner: S, mut request: Request<B>) -> Answer<S, B>
    where
        S: Service<Request<B>, Response = Response<R>>,
    {
        let guard = match self.locked(&lock).await {
            Ok(guard) => guard,
            Err(refusal) => return Ok(self.refuse(&lock, refusal)),
        };
        // The lock may be lost before the inner service is ready. Then the request has not begun, and may be repeated.
        tokio::select! {
            ready = ready(&mut inner) => ready?,
            _ = guard.ended() => return Ok(self.refuse(&lock, Refusal::Failed(Error::lost(lock.name())))),
        }
        request.extensions_mut().insert(guard.hold());
        let work = inner.call(request);
        match self.on_loss {
            OnLoss::Abort => match guard.run(|_| work).await {
                Ok(answered) => answered,
                Err(_) => Ok(self.refuse(&lock, Refusal::Lost)),
            },
            OnLoss::Mark => {
                let mut response = work.await?;
                if matches!(guard.finish().await, Err(Error::Lost { .. })) {
                    response.extensions_mut().insert(LockLost);
                }
                Ok(response)
            }
        }
    }
}

/// Passes the request to the inner service when the service is ready.
async fn handled<S, B>(mut inner: S, request: Request<B>) -> Answer<S, B>
where
    S: Service<Request<B>>,
{
    ready(&mut inner).await?;
    inner.call(request).await
}

async fn ready<S: Service<R>, R>(inner: &mut S) -> Result<(), S::Error> {
    poll_fn(|cx| inner.poll_ready(cx)).await
}

type Answer<S, B> = Result<<S as Service<Request<B>>>::Response, <S as Service<Request<B>>>::Error>;

impl<B, R> Clone for LockLayer<B, R> {
    fn clone(&self) -> Self {
        let (lock, answer) = (Arc::clone(&self.lock), Arc::clone(&self.answer));
        let warned = Arc::clone(&self.warned);
        Self { lock, answer, wait: self.wait, on_loss: self.on_loss, warned }
    }
}

impl<B, R> fmt::Debug for LockLayer<B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("wait", &self.wait)
            .field("on_loss", &self.on_loss)
            .finish_non_exhaustive()
    }
}

impl<S, B, R> Layer<S> for LockLayer<B, R> {
    type Service = LockService<S, B, R>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService { inner, layer: self.clone() }
    }
}

/// A service behind a [`LockLayer`]. [`Layer::layer`] makes it.
pub struct LockService<S, B, R> {
    inner: S,
    layer: LockLayer<B, R>,
}

impl<S: Clone, B, R> Clone for LockService<S, B, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S: fmt::Debug, B, R> fmt::Debug for LockService<S, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockService")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish()
    }
}

impl<S, B, R> Service<Request<B>> for LockService<S, B, R>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Answering<R, S::Error>;

    /// Always ready: a request asks the inner service when it has its lock. Otherwise a request that waits for its lock
    /// could occupy one of the inner service's few places, and other requests would wait for that place.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        match (self.layer.lock)(&request) {
            None => Box::pin(handled(inner, request)),
            Some(lock) => Box::pin(self.layer.clone().serve(lock, inner, request)),
        }
    }
}
