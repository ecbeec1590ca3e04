//! The tower layer holds a lock for each request, and answers by itself when it cannot. The server lies within the test, and
//! the clock is paused.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use parklock::tower::{LockLayer, LockLost, OnLoss, Refusal, decoded_path};
use parklock::{Client, Config, Error, Hold, RedLock};
use parklock_testing::Redis;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};
use tracing::Level;

use crate::common::fixture::{LONG, SOON};
use crate::observability::Log;

/// The paused clock moves on only when everybody waits for something.
const A_MOMENT: Duration = Duration::from_millis(1);

type Answer = Response<String>;

async fn client(redis: &Redis) -> Client {
    redis.client(Config::default()).await.expect("it is there")
}

/// A service that answers with the token of its lock, as soon as the door has a permit.
fn behind(
    layer: &LockLayer<String, String>,
    door: &Arc<Semaphore>,
) -> impl Service<Request<String>, Response = Answer, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let door = Arc::clone(door);
    layer.layer(service_fn(move |request: Request<String>| {
        let door = Arc::clone(&door);
        async move {
            door.acquire().await.expect("it is never closed").forget();
            let hold = request.extensions().get::<Hold>();
            Ok(Response::new(hold.map_or("no lock".into(), |hold| hold.token().to_string())))
        }
    }))
}

fn open() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))
}

fn post(path: &str) -> Request<String> {
    Request::post(path).body(String::new()).expect("a request")
}

async fn answered(answer: impl Future<Output = Result<Answer, Infallible>>) -> Answer {
    timeout(SOON, answer).await.expect("an answer").expect("never an error")
}

async fn held(client: &Client, name: &str) {
    let held = async {
        while !client.lock(name).is_locked().await.expect("an answer") {
            sleep(A_MOMENT).await;
        }
    };
    timeout(SOON, held).await.expect("the request has its lock");
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_name_go_one_after_the_other_and_others_beside_them() {
    let redis = Redis::start();
    let (ours, theirs) = (client(&redis).await, client(&redis).await);
    let door = Arc::new(Semaphore::new(0));
    let first = tokio::spawn(behind(&LockLayer::by_path(&ours), &door).oneshot(post("/a?x=1")));
    held(&theirs, "path:/a").await;
    let beside = behind(&LockLayer::by_path(&theirs), &open());

    // The same path in other words: a router takes both to one handler.
    for path in ["/a?y=2", "/%61"] {
        let busy = answered(beside.clone().oneshot(post(path))).await;
        assert_eq!(busy.status(), StatusCode::LOCKED, "{path}");
        assert_eq!(busy.headers()[RETRY_AFTER], "1");
    }
    assert_eq!(answered(beside.clone().oneshot(post("/b"))).await.status(), StatusCode::OK);
    let waits = behind(&LockLayer::by_path(&theirs).wait(LONG), &open());
    let mut second = tokio::spawn(waits.oneshot(post("/a")));
    assert!(timeout(A_MOMENT, &mut second).await.is_err());
    door.add_permits(1);

    let first = answered(async { first.await.unwrap() }).await;
    let second = answered(async { second.await.unwrap() }).await;
    let token = |answer: Answer| answer.into_body().parse::<u64>().expect("a token");
    assert!(token(first) < token(second));
    assert!(!ours.lock("path:/a").is_locked().await.unwrap());
}

/// The layer of the guide, within a router that cuts the prefix off.
#[tokio::test(start_paused = true)]
async fn a_name_of_ones_own_is_one_for_all_spellings_of_a_path_and_none_for_requests_that_only_read()
 {
    let redis = Redis::start();
    let client = client(&redis).await;
    let of_orders = LockLayer::new(&client, |request| {
        let path = decoded_path(request);
        (!request.method().is_safe()).then(|| format!("shop:/orders{}", path.trim_end_matches('/')))
    });
    let service = behind(&of_orders, &open());
    let _held = client.lock("shop:/orders/42").lock().await.unwrap();
    for path in ["/42", "/42/", "/%34%32", "/4%32/?again"] {
        let busy = answered(service.clone().oneshot(post(path))).await;
        assert_eq!(busy.status(), StatusCode::LOCKED, "{path}");
    }
    assert_eq!(answered(service.clone().oneshot(post("/43"))).await.status(), StatusCode::OK);
    for method in ["GET", "HEAD", "OPTIONS"] {
        let request = Request::builder().method(method).uri("/42").body(String::new()).unwrap();
        assert_eq!(
            answered(service.clone().oneshot(request)).await.into_body(),
            "no lock",
            "{method}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_name_passes_without_a_lock() {
    let redis = Redis::start();
    let client = client(&redis).await;
    let by_header = LockLayer::by_header(&client, "Idempotency-Key");
    let service = behind(&by_header, &open());
    assert_eq!(answered(service.clone().oneshot(post("/a"))).await.into_body(), "no lock");

    let _held = client.lock("header:7").lock().await.unwrap();
    let keyed = |key: &str| Request::post("/").header("Idempotency-Key", key).body(String::new());
    let busy = answered(service.clone().oneshot(keyed("7").unwrap())).await;
    assert_eq!(busy.status(), StatusCode::LOCKED);
    let free = answered(service.clone().oneshot(keyed("8").unwrap())).await;
    assert_ne!(free.into_body(), "no lock");
    let endless = answered(service.oneshot(keyed(&"x".repeat(2_000)).unwrap())).await;
    assert_eq!(endless.status(), StatusCode::BAD_REQUEST);
    assert!(!endless.headers().contains_key(RETRY_AFTER));
}

/// Otherwise every request would pass without a lock, and nobody would know.
#[tokio::test(start_paused = true)]
#[should_panic(expected = "the name of a header")]
async fn a_header_name_that_is_none_is_refused_when_the_layer_is_made() {
    let redis = Redis::start();
    let _layer = LockLayer::<String, String>::by_header(&client(&redis).await, "x order");
}

#[tokio::test(start_paused = true)]
async fn the_program_can_choose_the_responses() {
    let redis = Redis::start();
    let client = client(&redis).await;
    let _held = client.lock("a").lock().await.unwrap();
    let said = |refusal: Refusal| {
        let busy = matches!(refusal, Refusal::Busy);
        let status = if busy { StatusCode::CONFLICT } else { StatusCode::IM_A_TEAPOT };
        Response::builder().status(status).body(refusal.to_string()).expect("an answer")
    };
    let layer = LockLayer::new(&client, |_| Some("a")).answer(said);
    let busy = answered(behind(&layer, &open()).oneshot(post("/"))).await;
    assert_eq!(
        (busy.status(), &**busy.body()),
        (StatusCode::CONFLICT, "another request holds the lock")
    );
    client.close().await;
    let closed = answered(behind(&layer, &open()).oneshot(post("/"))).await;
    assert_eq!(closed.status(), StatusCode::IM_A_TEAPOT);
    assert!(closed.body().contains("the client is closed"), "{}", closed.body());
}

#[tokio::test(start_paused = true)]
async fn the_program_can_derive_any_kind_of_lock_from_a_request() {
    let redis = Redis::start();
    let client = client(&redis).await;
    let fair = client.clone();
    let layer = LockLayer::with(move |_| Some(fair.fair_lock("a").lease(LONG)));
    let held = client.fair_lock("a").lock().await.unwrap();
    let service = behind(&layer, &open());
    let busy = answered(service.clone().oneshot(post("/"))).await;
    assert_eq!(busy.status(), StatusCode::LOCKED);
    held.unlock().await.unwrap();
    assert_eq!(answered(service.oneshot(post("/"))).await.status(), StatusCode::OK);
}

/// Says that the work was dropped.
struct Witness(Arc<AtomicBool>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_lock_is_lost_is_stopped_or_marked() {
    let redis = Redis::start();
    let client = client(&redis).await;
    let layer = LockLayer::<String, String>::new(&client, |_| Some("a"));
    let dropped = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&dropped);
    let work = service_fn(move |_: Request<String>| {
        let witness = Witness(Arc::clone(&seen));
        async move {
            let _witness = witness;
            pending::<Result<Answer, Infallible>>().await
        }
    });
    let stopped = layer.clone().layer(work).oneshot(post("/"));
    let (stopped, ()) = tokio::join!(answered(stopped), rob(&client));
    assert_eq!(stopped.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!stopped.headers().contains_key(RETRY_AFTER), "it may have been carried out in part");
    assert!(dropped.load(Ordering::SeqCst));

    let marking = layer.on_loss(OnLoss::Mark);
    let work = service_fn(|request: Request<String>| async move {
        let hold = request.extensions().get::<Hold>().expect("the layer puts it there");
        hold.ended().await;
        Ok::<_, Infallible>(Response::new("done all the same".to_owned()))
    });
    let (marked, ()) = tokio::join!(answered(marking.layer(work).oneshot(post("/"))), rob(&client));
    assert_eq!(marked.status(), StatusCode::OK);
    assert_eq!(marked.extensions().get(), Some(&LockLost));
    let kept = answered(behind(&marking, &open()).oneshot(post("/"))).await;
    assert_eq!(kept.extensions().get::<LockLost>(), None);
}

/// Takes the lock away from the request that holds it.
async fn rob(client: &Client) {
    held(client, "a").await;
    assert!(client.lock("a").force_unlock().await.expect("an answer"));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_gives_the_lock_back() {
    let redis = Redis::start();
    let client = client(&redis).await;
    let closed = Arc::new(Semaphore::new(0));
    let request = behind(&LockLayer::by_path(&client), &closed).oneshot(post("/a"));
    let working = tokio::spawn(request);
    held(&client, "path:/a").await;
    working.abort();
    sleep(A_MOMENT).await;
    assert!(!client.lock("path:/a").is_locked().await.unwrap());
}

/// A clone of the inner service has not been asked whether it is ready. A call must use the service that was asked.
#[tokio::test(start_paused = true)]
async fn a_request_goes_to_the_service_that_was_ready() {
    #[derive(Default)]
    struct Moody(bool);
    impl Clone for Moody {
        fn clone(&self) -> Self {
            Self(false)
        }
    }
    impl Service<Request<String>> for Moody {
        type Response = Answer;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Answer, Infallible>>;
        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Infallible>> {
            self.0 = true;
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Request<String>) -> Self::Future {
            assert!(std::mem::take(&mut self.0), "it was not ready");
            std::future::ready(Ok(Response::default()))
        }
    }
    let redis = Redis::start();
    let client = client(&redis).await;
    let mut service = LockLayer::by_path(&client).layer(Moody::default());
    for path in ["/a", "/b"] {
        let answer = service.ready().await.expect("ready").call(post(path));
        assert_eq!(answered(answer).await.status(), StatusCode::OK);
    }
}

/// A request that waits for its lock does not use up the limit of the inner service.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_keeps_no_place_of_the_inner_service() {
    let redis = Redis::start();
    let (ours, theirs) = (client(&redis).await, client(&redis).await);
    let held = theirs.lock("path:/a").lock().await.unwrap();
    let echo = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Answer::default()));
    let by_path = LockLayer::by_path(&ours).wait(LONG);
    let service = by_path.layer(ConcurrencyLimit::new(echo, 1));
    let waits = tokio::spawn(service.clone().oneshot(post("/a")));
    sleep(A_MOMENT).await;
    assert!(!waits.is_finished());

    assert_eq!(answered(service.oneshot(post("/b"))).await.status(), StatusCode::OK);

    held.unlock().await.unwrap();
    let waited = answered(async { waits.await.unwrap() }).await;
    assert_eq!(waited.status(), StatusCode::OK);
}

/// The inner service never sees a request that has lost its lock before the service was ready for it.
#[tokio::test(start_paused = true)]
async fn a_request_that_loses_its_lock_before_the_inner_service_is_ready_is_refused() {
    let redis = Redis::start();
    let client = client(&redis).await;
    let echo = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Answer::default()));
    let mut limited = ConcurrencyLimit::new(echo, 1);
    let layer = LockLayer::<String, String>::new(&client, |_| Some("a")).on_loss(OnLoss::Mark);
    let service = layer.layer(limited.clone());
    let _only_place = limited.ready().await.expect("nobody has it yet");

    let (refused, ()) = tokio::join!(answered(service.oneshot(post("/"))), rob(&client));
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()[RETRY_AFTER], "1", "the inner service has not seen it");
}

#[test]
fn a_refusal_says_whether_a_retry_may_succeed() {
    let status = |refusal: Refusal| (refusal.status().as_u16(), refusal.is_worth_a_retry());
    assert_eq!(status(Refusal::Busy), (423, true));
    assert_eq!(status(Refusal::Lost), (500, false));
    assert_eq!(status(Refusal::Failed(Error::TooManyWaiters { limit: 1 })), (503, true));
    assert_eq!(status(Refusal::Failed(Error::InvalidName { reason: "" })), (400, false));
    assert_eq!(status(Refusal::Failed(Error::Lost { name: "a".to_owned() })), (503, true));
}

/// The client would ride out the outage for ten minutes, and the request is done.
#[tokio::test(start_paused = true)]
async fn a_finished_response_does_not_wait_until_the_server_is_back() {
    for on_loss in [OnLoss::Abort, OnLoss::Mark] {
        let redis = Arc::new(Redis::start());
        let client = redis.client(Config::default().watchdog_timeout(LONG)).await.unwrap();
        let silent = Arc::clone(&redis);
        let service = LockLayer::by_path(&client).on_loss(on_loss).layer(service_fn(
            move |_: Request<String>| {
                silent.silent_for(LONG);
                async { Ok::<_, Infallible>(Response::new("done".to_owned())) }
            },
        ));
        let done = answered(service.oneshot(post("/a"))).await;
        assert_eq!((done.status(), &**done.body()), (StatusCode::OK, "done"));
        assert!(done.extensions().get::<LockLost>().is_none());
    }
}

/// H3: whoever reads the log finds which lock could not be had; a busy lock is no news.
#[tokio::test(start_paused = true)]
async fn a_503_is_a_warning_with_the_name_of_the_lock_and_a_423_is_not() {
    let (log, _capturing) = Log::capture();
    let redis = Redis::start();
    let client = client(&redis).await;
    let service = behind(&LockLayer::by_path(&client), &open());
    let guard = client.lock("path:/busy").lock().await.expect("it is free");
    let answer = answered(service.clone().oneshot(post("/busy"))).await;
    assert_eq!(answer.status(), StatusCode::LOCKED);
    redis.refuse();
    redis.cut();
    let answer = answered(service.oneshot(post("/away"))).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let refused = ["a request is refused", "status=503", "path:/away"];
    assert_eq!(log.said(Level::WARN, &refused), 1, "{}", log.all());
    assert_eq!(log.said(Level::WARN, &["path:/busy"]), 0, "{}", log.all());
    assert_eq!(log.said(Level::DEBUG, &["status=423", "path:/busy"]), 1, "{}", log.all());
    drop(guard);
}

/// H3: an outage is not a line for each request of a busy service.
#[tokio::test(start_paused = true)]
async fn many_refused_requests_are_a_warning_each_few_seconds() {
    let (log, _capturing) = Log::capture();
    let redis = Redis::start();
    let client = client(&redis).await;
    let service = behind(&LockLayer::by_path(&client), &open());
    let refused = ["a request is refused", "status=503", "path:/a"];
    redis.refuse();
    redis.cut();
    let answers =
        (0..100).map(|number| answered(service.clone().oneshot(post(&format!("/a/{number}")))));
    for answer in join_all(answers).await {
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(log.said(Level::WARN, &refused), 1, "{}", log.all());
    assert_eq!(log.said(Level::DEBUG, &refused), 99, "{}", log.all());
    assert_eq!(log.said(Level::WARN, &["more="]), 0, "{}", log.all());

    sleep(Duration::from_secs(6)).await;
    answered(service.oneshot(post("/a"))).await;
    assert_eq!(log.said(Level::WARN, &refused), 2, "{}", log.all());
    assert_eq!(log.said(Level::WARN, &["a request is refused", "more=99"]), 1, "{}", log.all());
}

/// A client of gRPC takes a status of HTTP for "unknown", and does not know whether to try again.
#[tokio::test(start_paused = true)]
async fn a_client_of_grpc_reads_why_its_call_was_refused() {
    let redis = Redis::start();
    let client = client(&redis).await;
    let service = behind(&LockLayer::by_path(&client).grpc(), &open());
    let _held = client.lock("path:/busy").lock().await.expect("it is free");
    let endless = "/".repeat(2_000);
    let mut refusals = Vec::new();
    for path in ["/busy", &endless, "/away"] {
        if path == "/away" {
            redis.refuse();
            redis.cut();
        }
        let answer = answered(service.clone().oneshot(post(path))).await;
        assert_eq!((answer.status(), &**answer.body()), (StatusCode::OK, ""));
        assert_eq!(answer.headers()["content-type"], "application/grpc");
        assert!(!answer.headers()["grpc-message"].is_empty());
        refusals.push(answer.headers()["grpc-status"].to_str().unwrap().to_owned());
    }
    assert_eq!(refusals, ["10", "3", "14"], "aborted, invalid argument, unavailable");
}

/// A service ends without failing a request that it has accepted.
#[tokio::test(start_paused = true)]
async fn a_client_that_drains_lets_accepted_requests_finish_and_then_closes() {
    let redis = Redis::start();
    for config in [Config::default(), Config::default().keep(LONG)] {
        let client = redis.client(config).await.expect("it is there");
        let door = Arc::new(Semaphore::new(0));
        let service = behind(&LockLayer::by_path(&client).wait(LONG), &door);
        let mut requests = Vec::new();
        for _ in 0..3 {
            requests.push(tokio::spawn(answered(service.clone().oneshot(post("/a")))));
            held(&client, "path:/a").await;
        }
        let drained = tokio::spawn({
            let client = client.clone();
            async move { client.drain(LONG).await }
        });
        sleep(A_MOMENT * 100).await;
        assert!(!drained.is_finished(), "one holds, and two wait");
        door.add_permits(3);
        for request in requests {
            assert_eq!(request.await.expect("no panic").status(), StatusCode::OK);
        }
        assert!(timeout(SOON, drained).await.expect("it ends").expect("no panic"));
        assert!(matches!(client.lock("b").lock().await, Err(Error::Closed)));
    }
}

/// A request whose connection broke may still run: for a lease, the client looks for it. That keeps nobody.
#[tokio::test(start_paused = true)]
async fn a_client_drains_at_once_though_it_still_looks_for_a_request_that_was_cut_off() {
    let redis = Redis::start();
    for refused in [false, true] {
        let client = client(&redis).await;
        client.lock("warm").lock().await.unwrap().unlock().await.expect("it is ours");
        if refused {
            redis.refuse();
        } else {
            redis.cut();
        }
        match client.lock("a").try_lock_for(SOON / 20).await {
            Ok(guard) => guard.expect("it is free").unlock().await.expect("it is ours"),
            Err(error) => assert!(refused, "{error}"),
        }
        redis.allow();
        sleep(SOON / 20).await;
        let began = tokio::time::Instant::now();
        assert!(client.drain(SOON).await, "refused: {refused}");
        assert!(began.elapsed() < SOON / 4, "{:?}, refused: {refused}", began.elapsed());
    }
}

/// Waits until a call of this client waits for this lock, or has ended.
async fn waits<T>(call: &JoinHandle<T>, client: &Client, name: &str) {
    let is_awaited = || client.holds().awaited.iter().any(|awaited| awaited.name == name);
    while !call.is_finished() && !is_awaited() {
        sleep(A_MOMENT).await;
    }
}

/// Between two attempts, a call for several locks owes nothing, and waits for nobody.
#[tokio::test(start_paused = true)]
async fn a_client_that_drains_lets_calls_finish_that_pause_between_two_attempts() {
    let redis = Redis::start();
    let (ours, theirs) = (client(&redis).await, client(&redis).await);
    let mut held = theirs.lock("a").lock().await.expect("it is free");
    let both = ours.multi_lock(["a", "b"]);
    let call = tokio::spawn(async move { both.lock().await?.unlock().await });
    waits(&call, &ours, "a").await;
    let drained = tokio::spawn({
        let ours = ours.clone();
        async move { ours.drain(LONG).await }
    });
    for name in ["b", "a"].repeat(20) {
        let next = theirs.lock(name).lock().await.expect("it is free soon");
        held.unlock().await.expect("it is ours");
        held = next;
        waits(&call, &ours, name).await;
    }
    held.unlock().await.expect("it is ours");
    call.await.expect("no panic").expect("it is served");
    assert!(drained.await.expect("no panic"));
}

/// It asks again after as long as its first request took, in which the keeper may give the lock back.
#[tokio::test(start_paused = true)]
async fn a_client_that_drains_lets_a_try_finish_that_waits_for_a_keeper() {
    let redis = Redis::start();
    let keeper = redis.client(Config::default().keep(LONG)).await.expect("it is there");
    let ours = client(&redis).await;
    while !ours.lock("a").is_locked().await.expect("an answer") {
        // It keeps what it is granted when it hears who wants it.
        keeper.lock("a").lock().await.expect("it is free").unlock().await.expect("it is ours");
    }
    redis.silent_for(A_MOMENT * 100);
    let tried = async { ours.lock("a").try_lock().await?.expect("it is idle").unlock().await };
    let (tried, drained) = tokio::join!(tried, ours.drain(LONG));
    assert!(tried.is_ok() && drained, "{tried:?}");
}

/// A call for a majority waits in one line after the other. To a server in whose line it does not stand, it owes nothing.
#[tokio::test(start_paused = true)]
async fn a_client_that_drains_lets_a_call_finish_that_waits_at_another_server() {
    let servers = [Redis::start(), Redis::start(), Redis::start()];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for server in &servers {
        ours.push(client(server).await);
        theirs.push(client(server).await);
    }
    let lock = |clients: &[Client]| RedLock::new(clients.iter().map(|client| client.lock("a")));
    let held = lock(&theirs).lock().await.expect("it is free");
    let call = lock(&ours);
    let call = tokio::spawn(async move { call.lock().await?.unlock().await });
    waits(&call, &ours[0], "a").await;
    let drained = tokio::spawn({
        let last = ours[2].clone();
        async move { last.drain(LONG).await }
    });
    sleep(A_MOMENT * 100).await;
    assert!(!drained.is_finished(), "the call may still ask there");
    held.unlock().await.expect("it is ours");
    call.await.expect("no panic").expect("it is served");
    assert!(drained.await.expect("no panic"));
}

#[tokio::test(start_paused = true)]
async fn a_client_drains_no_longer_than_its_limit() {
    let redis = Redis::start();
    let (ours, theirs) = (client(&redis).await, client(&redis).await);
    let guard = ours.lock("a").lock().await.expect("it is free");
    assert!(!ours.drain(SOON).await);
    assert!(!guard.is_valid());
    let given_back = theirs.lock("a").try_lock().await.expect("an answer");
    assert!(given_back.is_some());
}
