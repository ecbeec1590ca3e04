//! Settings and waits of everything, and of nothing.

use std::time::Duration;

use parklock::{Client, Config, Credentials, Error, HandOff, Owner, RedLock};

use crate::common::{Server, judged, timeout};
use crate::{A_WHILE, SOON, connect, patient, somebody_waits};

/// F71: a wait of `Duration::MAX`, for a lock that somebody holds.
#[tokio::test]
async fn an_endless_wait_does_not_overflow() {
    let server = Server::start().await;
    let [holder, client] =
        [connect(&server.url(), patient()).await, connect(&server.url(), patient()).await];
    let (guard, admin) = (holder.lock("a").lock().await.unwrap(), server.admin().await);
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let waiter = tokio::spawn(async move {
        let outer = lock.try_lock_for(Duration::MAX).await?;
        let inner = lock.try_lock_for(Duration::MAX).await?;
        Ok::<_, Error>(inner.or(outer))
    });
    somebody_waits(&admin, "a").await;
    guard.unlock().await.unwrap();
    let got = timeout(SOON, waiter).await.expect("it is free").expect("no panic");
    assert!(got.unwrap().is_some());
}

/// F71: every other call that takes a time, with `Duration::MAX`. Each call has to wait before it gets what it wants.
#[tokio::test]
async fn an_endless_time_overflows_nowhere() {
    const MOST: Duration = Duration::MAX;
    let server = Server::start().await;
    let account = || async { Ok::<_, Error>(Credentials::new("secret").valid_for(MOST)) };
    let admin = server.admin().await;
    admin.cmd::<()>(&["CONFIG", "SET", "requirepass", "secret"]).await;
    let holder = connect(&server.url(), patient().credentials(account)).await;
    let client = connect(&server.url(), patient().credentials(account)).await;
    let (latch, condition) = (client.count_down_latch("latch"), client.condition("condition"));
    latch.set(1).await.expect("it is new");
    let held = holder.lock("a").lock().await.expect("it is free");
    let reads = holder.rw_lock("r").write().await.expect("it is free");
    let permit = holder.semaphore("s", 1).acquire().await.expect("it is free");
    let waits = async {
        let limit = MOST;
        let (multi, red) = (client.multi_lock(["a", "b"]), RedLock::new([client.lock("a")]));
        let (semaphore, rw) = (client.semaphore("s", 1), client.rw_lock("r"));
        let all = futures_util::join!(
            async { multi.try_lock_for(limit).await?.expect("no end").unlock().await },
            async { red.try_lock_for(limit).await?.expect("no end").unlock().await },
            async { semaphore.try_acquire_for(limit).await?.expect("no end").unlock().await },
            async { rw.try_read_for(limit).await?.expect("no end").unlock().await },
            async { latch.wait_for(limit).await.map(|is_open| assert!(is_open)) },
            async {
                let guard = client.lock("c").lock().await?;
                guard.wait_for(&condition, limit).await?.0.unlock().await
            },
        );
        [all.0, all.1, all.2, all.3, all.4, all.5]
    };
    let ends = async {
        tokio::time::sleep(A_WHILE).await;
        held.unlock().await.expect("it is ours");
        reads.unlock().await.expect("it is ours");
        permit.unlock().await.expect("it is ours");
        holder.count_down_latch("latch").count_down().await.expect("it is set");
        somebody_waits(&admin, "condition").await;
        holder.condition("condition").notify_one().await.expect("an answer");
    };
    let (waited, ()) =
        timeout(SOON, futures_util::future::join(waits, ends)).await.expect("all of it is free");
    waited.into_iter().for_each(|waited| waited.expect("it is granted"));

    let job = client.every("e", Duration::from_secs(60)).at_most(MOST);
    assert!(job.run_if_due(|_| async {}).await.expect("it is due").is_some());
    let election = client.election("l");
    let mut observer = election.observe().every(MOST);
    assert!(observer.next().await.expect("an answer").is_none());
    let refused = election.margin(MOST).campaign().await;
    assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
}

/// Uses whatever a setting may touch: a contended wait, a nested hold, an outage, the end of a subscription, and what callers of
/// a client hold side by side.
async fn endures(server: &Server, config: Config) {
    let holder = connect(&server.url(), patient()).await;
    let client = connect(&server.url(), config).await;
    let guard = holder.lock("a").lock().await.expect("it is free");
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    let admin = server.admin().await;
    somebody_waits(&admin, "a").await;
    admin.client_kill("normal").await;
    admin.client_kill("pubsub").await;
    somebody_waits(&admin, "a").await;
    guard.unlock().await.expect("it is ours");
    let outer = timeout(SOON, waiter).await.expect("it is free").expect("no panic");
    let outer = outer.expect("it is granted");
    lock.lock().await.expect("it is the owner's").unlock().await.expect("it is ours");
    tokio::time::sleep(A_WHILE).await;
    outer.unlock().await.expect("it is ours");
    lock.lock().await.expect("the client goes on").unlock().await.expect("it is ours");
    for _ in 0..2 {
        client.semaphore("s", 2).acquire().await.expect("a permit").unlock().await.expect("ours");
        client.rw_lock("r").read().await.expect("a read").unlock().await.expect("ours");
    }
    timeout(SOON, client.close()).await.expect("it ends");
}

/// A setting works, or is refused with the reason; it does not break what happens later.
async fn works_or_is_refused(config: Config) {
    let server = Server::start().await;
    let connected = Client::connect_with(server.url(), config.clone()).await;
    // On a busy machine it may come too late. Then it connects again.
    if !matches!(connected, Err(Error::Config { .. })) {
        endures(&server, config).await;
    }
}

macro_rules! endless_settings {
    ($($name:ident: $set:ident,)*) => {$(
        /// F71: a setting of [`Duration::MAX`], which says "for ever".
        #[tokio::test]
        async fn $name() {
            works_or_is_refused(patient().$set(Duration::MAX)).await;
        }
    )*};
}

endless_settings! {
    an_endless_ride_out_works_or_is_refused: ride_out,
    an_endless_subscription_linger_works_or_is_refused: subscription_linger,
    an_endless_max_park_works_or_is_refused: max_park,
    an_endless_max_hold_works_or_is_refused: max_hold,
    an_endless_connect_timeout_works_or_is_refused: connect_timeout,
    an_endless_response_timeout_works_or_is_refused: response_timeout,
    an_endless_claim_timeout_works_or_is_refused: waiter_ttl,
    an_endless_watchdog_timeout_works_or_is_refused: watchdog_timeout,
    an_endless_pickup_timeout_works_or_is_refused: pickup_timeout,
    an_endless_ack_timeout_works_or_is_refused: ack_timeout,
    an_endless_keep_works_or_is_refused: keep,
}

/// F71: hand-offs without a limit in time.
#[tokio::test]
async fn an_endless_hand_off_works_or_is_refused() {
    let hand_off = HandOff { max_consecutive: 1023, max_time: Duration::MAX };
    works_or_is_refused(patient().hand_off(hand_off)).await;
}

/// F71: settings of zero.
#[tokio::test]
async fn settings_of_zero_work_or_are_refused() {
    judged(async || {
        let nothing = Duration::ZERO;
        works_or_is_refused(patient().subscription_linger(nothing)).await;
        works_or_is_refused(patient().waiter_ttl(nothing)).await;
        works_or_is_refused(patient().hand_off(HandOff { max_consecutive: 0, max_time: nothing }))
            .await;
        works_or_is_refused(patient().response_timeout(nothing)).await;
        works_or_is_refused(patient().connect_timeout(nothing)).await;
        works_or_is_refused(patient().max_park(nothing)).await;
        works_or_is_refused(patient().max_hold(nothing)).await;
    })
    .await;
}
