//! The middleware on a Redis within the test, whose clock is paused.

use std::future::ready;

use actix_web::dev::Service;
use actix_web::test::{TestRequest, init_service};
use parklock::Config;
use parklock_testing::Redis;

use super::*;

/// Longer than the client tries to unlock.
const LONG: Duration = Duration::from_secs(60);

async fn client(redis: &Redis) -> Client {
    redis.client(Config::default()).await.unwrap()
}

/// The answer to a payment, during which this happens to Redis.
async fn pays(client: Client, redis: &Data<Redis>, happens: fn(&Redis)) -> StatusCode {
    let pay = move |redis: Data<Redis>| {
        happens(&redis);
        ready("paid")
    };
    let app = App::new()
        .app_data(Data::new(client))
        .app_data(redis.clone())
        .service(web::resource("/orders/{order}/payment").wrap(from_fn(one_at_a_time)).post(pay));
    let request = TestRequest::post().uri("/orders/42/payment").to_request();
    match init_service(app).await.call(request).await {
        Ok(answer) => answer.status(),
        Err(error) => error.as_response_error().status_code(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_payment_that_is_done_is_answered_although_redis_is_silent() {
    let redis = Data::new(Redis::start());
    let began = tokio::time::Instant::now();
    let answer = pays(client(&redis).await, &redis, |redis| redis.silent_for(LONG)).await;
    assert_eq!(answer, StatusCode::OK);
    assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_payment_whose_lock_was_lost_is_not_to_be_repeated() {
    let redis = Data::new(Redis::start());
    let answer = pays(client(&redis).await, &redis, |redis| redis.lose("payment:42")).await;
    assert_eq!(answer, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test(start_paused = true)]
async fn only_a_caller_whose_payment_may_succeed_later_is_asked_to_come_back() {
    let redis = Data::new(Redis::start());
    let (ours, theirs) = (client(&redis).await, client(&redis).await);
    let _other_kind = theirs.fair_lock("payment:42").lock().await.unwrap();
    let answer = pays(ours.clone(), &redis, |_| ()).await;
    assert_eq!(answer, StatusCode::INTERNAL_SERVER_ERROR);
    redis.refuse();
    redis.cut();
    assert_eq!(pays(ours, &redis, |_| ()).await, StatusCode::SERVICE_UNAVAILABLE);
}
