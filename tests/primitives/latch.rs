//! A latch opens when it was counted down to zero. Each call counts once, and all waiters are answered.

use crate::common;

use std::time::Duration;

use common::fixture::{
    LONG, SOON, client, comes_in, is_pending, lock_keys, scripts, server_and_client,
};
use common::{Admin, Proxy, Site, eventually, judged, timeout};
use futures_util::StreamExt;
use parklock::{Client, Config, CountDownLatch, Error, Layout, Result};
use tokio::task::{JoinHandle, JoinSet};

const LAYOUTS: [Layout; 2] = [Layout::Native, Layout::Redisson];

/// The script that sets, counts down and deletes.
const ORDER: &str = include_str!("../../lua/latch/order.lua");

/// Texts that Redis takes for no number, or for a greater one than Lua has. Most of them are numbers for Lua.
pub(crate) const NO_NUMBERS: [&str; 9] =
    ["1.5", "0x3", "nan", "007", "-0", " 5", "inf", "1e3", "99999999999999999999"];

async fn client_of(url: &str, layout: Layout) -> Client {
    let config = Config::default().layout(layout).max_park(LONG);
    comes_in(url, config).await
}

fn channel(layout: Layout) -> &'static str {
    match layout {
        Layout::Redisson => "redisson_countdownlatch__channel__{a}",
        _ => "lock_channel:{a}",
    }
}

fn waiter(client: &Client) -> JoinHandle<Result<()>> {
    let latch = client.count_down_latch("a");
    tokio::spawn(async move { latch.wait().await })
}

/// Waits until so many clients listen, so that what comes next is told to them and not seen.
async fn awaited(admin: &Admin, layout: Layout, clients: usize) {
    let listen = async || admin.subscribers(channel(layout)).await == clients;
    eventually(SOON, &format!("{clients} clients listen"), listen).await;
    tokio::time::sleep(common::fixture::A_WHILE).await;
}

async fn answered(waiter: JoinHandle<Result<()>>) -> Result<()> {
    timeout(SOON, waiter).await.expect("it is told").expect("no panic")
}

async fn nothing_is_eternal(admin: &Admin) {
    for key in lock_keys(admin).await {
        assert_ne!(admin.pttl(&key).await, -1, "{key} never expires");
    }
}

#[tokio::test]
async fn all_waiters_pass_when_the_latch_is_counted_down_to_zero() {
    for layout in LAYOUTS {
        let server = Site::start().await;
        let admin = server.admin().await;
        let url = server.url();
        let (a, b, c) =
            tokio::join!(client_of(&url, layout), client_of(&url, layout), client_of(&url, layout));
        assert!(a.count_down_latch("a").set(3).await.unwrap());
        let mut waiters: Vec<_> = [&b, &b, &c, &c].map(waiter).into();
        awaited(&admin, layout, 2).await;

        assert_eq!(c.count_down_latch("a").count_down().await.unwrap(), 2);
        assert_eq!(a.count_down_latch("a").count_down().await.unwrap(), 1);
        assert!(is_pending(&mut waiters[0]).await && !waiters[2].is_finished());
        nothing_is_eternal(&admin).await;
        assert_eq!(a.count_down_latch("a").count_down().await.unwrap(), 0);

        for waiter in waiters {
            answered(waiter).await.unwrap();
        }
        assert_eq!(a.count_down_latch("a").count_down().await.unwrap(), 0, "not below zero");
        answered(waiter(&c)).await.expect("a late caller passes");
        nothing_is_eternal(&admin).await;
    }
}

#[tokio::test]
async fn a_count_whose_answer_is_lost_counts_once() {
    for layout in LAYOUTS {
        let server = Site::start().await;
        let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
        proxy.name_script("order", ORDER);
        let latch = client_of(&proxy.url(), layout).await.count_down_latch("a");
        latch.set(5).await.unwrap();

        let lost = proxy.script("order").about("\r\ncount_down\r\n").first(2).cut_after();
        assert_eq!(latch.count_down().await.unwrap(), 4);
        assert_eq!(lost.fired(), 2, "it was carried out and the answer lost, twice");
        lost.lift();

        let unsent = proxy.script("order").about("\r\ncount_down\r\n").nth(1).cut_before();
        assert_eq!(latch.count_down().await.unwrap(), 3);
        assert_eq!(unsent.fired(), 1);
        assert_eq!(latch.count().await.unwrap(), Some(3));
        nothing_is_eternal(&admin).await;
    }
}

/// The count opens the latch, its answer is lost, and a caller that has passed deletes the latch before the repetition.
#[tokio::test]
async fn a_last_count_whose_answer_is_lost_counts_though_the_latch_is_deleted() {
    for layout in LAYOUTS {
        let server = Site::start().await;
        let proxy = Proxy::before(&server).await;
        proxy.name_script("order", ORDER);
        let counts = client_of(&proxy.url(), layout).await.count_down_latch("a");
        let passes = client_of(&server.url(), layout).await.count_down_latch("a");
        counts.set(1).await.unwrap();

        let _lost = proxy.script("order").about("\r\ncount_down\r\n").nth(1).cut_after();
        let repeated = proxy.script("order").about("\r\ncount_down\r\n").nth(2).hold_request();
        let counted = tokio::spawn(async move { counts.count_down().await });
        repeated.happened().await;
        passes.wait().await.unwrap();
        assert_eq!(passes.delete().await.unwrap(), layout == Layout::Native);
        repeated.lift();

        let counted = timeout(SOON, counted).await.expect("it is answered").expect("no panic");
        assert_eq!(counted.unwrap(), 0);
    }
}

/// The first copy of a request is kept on the way until the second was answered.
#[tokio::test]
async fn a_count_that_arrives_twice_counts_once() {
    judged(async || {
        for layout in LAYOUTS {
            let server = Site::start().await;
            let proxy = Proxy::before(&server).await;
            proxy.name_script("order", ORDER);
            let config =
                Config::default().layout(layout).response_timeout(Duration::from_millis(500));
            let client = comes_in(proxy.url(), config).await;
            let latch = client.count_down_latch("a");
            latch.set(5).await.unwrap();

            let kept = proxy.script("order").about("\r\ncount_down\r\n").nth(1).hold_request();
            assert_eq!(latch.count_down().await.unwrap(), 4);
            kept.happened().await;
            let admin = server.admin().await;
            let before = scripts(&admin).await;
            kept.lift();
            let arrived = async || scripts(&admin).await > before;
            eventually(SOON, "the first copy arrives", arrived).await;

            assert_eq!(latch.count().await.unwrap(), Some(4));
        }
    })
    .await;
}

/// The server remembers a request for as long as its client may repeat it. A request of a client that gives up sooner
/// does not shorten that.
#[tokio::test]
async fn a_client_with_a_short_ride_out_does_not_forget_the_requests_of_one_with_a_long_ride_out() {
    for (layout, requests) in
        [(Layout::Native, "lock_notes:{a}:requests"), (Layout::Redisson, "lock_requests:{a}")]
    {
        let server = Site::start().await;
        let admin = server.admin().await;
        let config = |ride_out| Config::default().layout(layout).ride_out(ride_out);
        let patient = comes_in(server.url(), config(LONG * 100)).await;
        let hasty = comes_in(server.url(), config(Duration::ZERO)).await;
        assert!(hasty.count_down_latch("a").set(5).await.unwrap());
        assert_eq!(admin.cmd::<usize>(&["DEL", requests]).await, 1);
        assert_eq!(patient.count_down_latch("a").count_down().await.unwrap(), 4);

        // Two minutes go by.
        let [request] = admin.cmd::<[String; 1]>(&["ZRANGE", requests, "0", "-1"]).await;
        let back = format!("-{}", 120 << 20); // the seconds stand above twenty bits
        admin.cmd::<String>(&["ZINCRBY", requests, &back, &request]).await;
        assert_eq!(hasty.count_down_latch("a").count_down().await.unwrap(), 3);

        let known: Option<String> = admin.cmd(&["ZSCORE", requests, &request]).await;
        assert!(known.is_some(), "{layout:?}: it may come again, and would be counted twice");
    }
}

/// The server keeps each request for as long as its client may repeat it. So a client must not repeat one for days.
#[tokio::test]
async fn a_count_is_remembered_for_minutes_however_long_its_client_rides_out() {
    for (layout, requests) in
        [(Layout::Native, "lock_notes:{a}:requests"), (Layout::Redisson, "lock_requests:{a}")]
    {
        let server = Site::start().await;
        let admin = server.admin().await;
        let config = Config::default().layout(layout).ride_out(Duration::MAX);
        let client = comes_in(server.url(), config).await;
        assert!(client.count_down_latch("a").set(2).await.unwrap());
        assert_eq!(client.count_down_latch("a").count_down().await.unwrap(), 1);
        let kept = admin.pttl(requests).await;
        assert!((1..=15 * 60_000).contains(&kept), "{layout:?}: {kept} ms");
    }
}

/// A burst of requests is forgotten in pieces: a script that removed millions at once would stop the server.
#[tokio::test]
async fn no_count_removes_thousands_of_old_requests_at_once() {
    const OLD: usize = 3_000;
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client(&server).await);
    let (latch, requests) = (client.count_down_latch("a"), "lock_notes:{a}:requests");
    assert!(latch.set(1_000).await.unwrap());
    let mut words = vec!["ZADD", requests];
    let old: Vec<_> = (0..OLD).map(|number| format!("old#{number}")).collect();
    old.iter().for_each(|member| words.extend(["1", member]));
    admin.cmd::<usize>(&words).await;
    let left = async || admin.cmd::<usize>(&["ZCARD", requests]).await;
    let mut before = left().await;
    let mut counts = 0;
    while before > 10 {
        latch.count_down().await.unwrap();
        let now = left().await;
        assert!(before - now <= 64, "one call removed {}", before - now);
        (before, counts) = (now, counts + 1);
        assert!(counts < OLD / 20, "they go faster than new ones come");
    }
}

/// In Redisson's layout a latch goes when it opens, and its name is free for a semaphore. The counts are no permits.
#[tokio::test]
async fn a_semaphore_with_the_name_of_an_opened_latch_has_all_its_permits() {
    let server = Site::start().await;
    let client = client_of(&server.url(), Layout::Redisson).await;
    let latch = client.count_down_latch("a");
    assert!(latch.set(2).await.unwrap());
    latch.count_down().await.unwrap();
    assert_eq!(latch.count_down().await.unwrap(), 0);

    let permits = client.semaphore("a", 3);
    let all = permits.try_acquire_many(3).await.unwrap().expect("nobody has any");
    all.unlock().await.unwrap();
    assert_eq!(permits.available_permits().await.unwrap(), 3);
}

/// The request that has set or deleted a latch says so, however often the client sends it.
#[tokio::test]
async fn setting_and_deleting_are_answered_though_an_answer_is_lost() {
    for layout in LAYOUTS {
        let server = Site::start().await;
        let proxy = Proxy::before(&server).await;
        proxy.name_script("order", ORDER);
        let latch = client_of(&proxy.url(), layout).await.count_down_latch("a");

        let lost = proxy.script("order").about("\r\nset\r\n").nth(1).cut_after();
        assert!(latch.set(5).await.unwrap());
        assert_eq!(lost.fired(), 1);
        let lost = proxy.script("order").about("\r\ndelete\r\n").nth(1).cut_after();
        assert!(latch.delete().await.unwrap());
        assert_eq!(lost.fired(), 1);
    }
}

#[tokio::test]
async fn a_wait_that_times_out_says_whether_the_latch_is_open() {
    judged(async || {
        for layout in LAYOUTS {
            let (server, moment) = (Site::start().await, Duration::from_secs(1));
            let client = client_of(&server.url(), layout).await;
            let latch = client.count_down_latch("a");
            latch.set(1).await.unwrap();
            assert!(!latch.wait_for(moment).await.unwrap());
            assert!(!latch.wait_for(Duration::ZERO).await.unwrap());
            let waiting = tokio::spawn({
                let latch = latch.clone();
                async move { latch.wait_for(LONG).await }
            });
            awaited(&server.admin().await, layout, 1).await;

            latch.count_down().await.unwrap();

            assert!(timeout(SOON, waiting).await.expect("it is told").unwrap().unwrap());
            assert!(latch.wait_for(Duration::ZERO).await.unwrap());
            assert!(latch.wait_for(moment).await.unwrap());
        }
    })
    .await;
}

#[tokio::test]
async fn deleting_a_latch_answers_its_waiters() {
    for layout in LAYOUTS {
        let server = Site::start().await;
        let admin = server.admin().await;
        let (client, other) =
            (client_of(&server.url(), layout).await, client_of(&server.url(), layout).await);
        let latch = client.count_down_latch("a");
        latch.set(1).await.unwrap();
        let waiters = [&client, &other].map(waiter);
        awaited(&admin, layout, 2).await;

        assert!(latch.delete().await.unwrap());

        for waiter in waiters {
            unset(layout, answered(waiter).await);
        }
        assert!(!latch.delete().await.unwrap());
        assert_eq!(latch.count().await.unwrap(), None);
    }
}

/// In Redisson's layout, a missing latch is open.
fn unset(layout: Layout, answer: Result<()>) {
    match (layout, answer) {
        (Layout::Redisson, Ok(())) | (Layout::Native, Err(Error::Unset { .. })) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_end_of_a_latchs_lease_answers_its_waiters() {
    for layout in LAYOUTS {
        let server = Site::start().await;
        let client = client_of(&server.url(), layout).await;
        let latch = client.count_down_latch("a").lease(Duration::from_millis(300));
        latch.set(1).await.unwrap();
        unset(layout, answered(waiter(&client)).await);
    }
}

/// F78.
#[tokio::test]
async fn a_closed_latch_cannot_be_set() {
    judged(async || {
        for layout in LAYOUTS {
            let server = Site::start().await;
            let client = client_of(&server.url(), layout).await;
            let latch = client.count_down_latch("a");
            assert!(latch.set(1).await.unwrap());
            let mut waiting = waiter(&client);
            awaited(&server.admin().await, layout, 1).await;

            assert!(!latch.set(7).await.unwrap());

            assert!(is_pending(&mut waiting).await);
            assert_eq!(latch.count().await.unwrap(), Some(1));
            latch.count_down().await.unwrap();
            answered(waiting).await.unwrap();
            assert!(latch.set(2).await.unwrap(), "it is open");
            assert_eq!(latch.count().await.unwrap(), Some(2));
            assert!(!latch.wait_for(Duration::from_secs(1)).await.unwrap());
        }
    })
    .await;
}

#[tokio::test]
async fn a_latch_that_is_set_to_zero_is_open() {
    for layout in LAYOUTS {
        let server = Site::start().await;
        let latch = client_of(&server.url(), layout).await.count_down_latch("a");
        assert!(latch.set(0).await.unwrap());
        latch.wait().await.unwrap();
        assert!(latch.set(1).await.unwrap());
    }
}

#[tokio::test]
async fn a_latch_that_was_never_set_is_not_taken_for_open() {
    let (_server, client) = server_and_client().await;
    let latch = client.count_down_latch("a");
    assert!(matches!(latch.wait().await, Err(Error::Unset { .. })));
    assert!(matches!(latch.wait_for(Duration::ZERO).await, Err(Error::Unset { .. })));
    assert!(matches!(latch.wait_for(LONG).await, Err(Error::Unset { .. })));
    assert!(matches!(latch.count_down().await, Err(Error::Unset { .. })));
    assert_eq!(latch.count().await.unwrap(), None);
}

#[tokio::test]
async fn in_redissons_layout_a_missing_latch_is_open() {
    let server = Site::start().await;
    let latch = client_of(&server.url(), Layout::Redisson).await.count_down_latch("a");
    latch.wait().await.unwrap();
    assert!(latch.wait_for(Duration::ZERO).await.unwrap());
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert_eq!(latch.count().await.unwrap(), None);
    assert!(lock_keys(&server.admin().await).await.is_empty());
}

/// Each caller asks once, after the caller before it.
#[tokio::test]
async fn thousands_in_one_client_pass_one_after_the_other() {
    const CROWD: usize = 3_000;
    for layout in LAYOUTS {
        let server = Site::start().await;
        let (admin, client) = (server.admin().await, client_of(&server.url(), layout).await);
        let latch = client.count_down_latch("a");
        latch.set(1).await.unwrap();
        let mut crowd = JoinSet::new();
        for _ in 0..CROWD {
            let latch = latch.clone();
            crowd.spawn(async move { latch.wait().await });
        }
        awaited(&admin, layout, 1).await;
        let before = scripts(&admin).await;

        latch.count_down().await.unwrap();

        let all = async { crowd.join_all().await.into_iter().collect::<Result<Vec<()>>>() };
        timeout(LONG, all).await.expect("all pass").unwrap();
        let asked = scripts(&admin).await - before;
        assert!(asked <= 2 * CROWD as u64, "{asked} scripts for {CROWD}");
        assert_eq!(latch.count_down().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_cancelled_waiter_leaves_nothing_behind_and_holds_up_nobody() {
    for layout in LAYOUTS {
        let server = Site::start().await;
        let admin = server.admin().await;
        let client = client_of(&server.url(), layout).await;
        let latch = client.count_down_latch("a");
        latch.set(1).await.unwrap();
        let keys = lock_keys(&admin).await;
        let (first, second) = (waiter(&client), waiter(&client));
        awaited(&admin, layout, 1).await;

        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());

        assert_eq!(lock_keys(&admin).await, keys);
        latch.count_down().await.unwrap();
        answered(second).await.unwrap();
    }
}

#[tokio::test]
async fn a_name_of_another_kind_is_a_conflict() {
    let (server, client) = server_and_client().await;
    let _guard = client.lock("a").lock().await.unwrap();
    let latch: CountDownLatch = client.count_down_latch("a");
    assert!(matches!(latch.set(1).await, Err(Error::Conflict { .. })));
    assert!(matches!(latch.wait().await, Err(Error::Conflict { .. })));
    client.count_down_latch("b").set(1).await.unwrap();
    assert!(matches!(client.lock("b").lock().await, Err(Error::Conflict { .. })));
    let admin = server.admin().await;
    admin.cmd::<()>(&["SET", "lock:{c}", "text"]).await;
    assert!(matches!(client.count_down_latch("c").count_down().await, Err(Error::Conflict { .. })));
    for number in NO_NUMBERS {
        admin.cmd::<()>(&["SET", "lock:{d}", number]).await;
        let counted = client.count_down_latch("d").count_down().await;
        assert!(matches!(counted, Err(Error::Conflict { .. })), "{number}: {counted:?}");
        assert!(!admin.cmd::<bool>(&["EXISTS", "lock_notes:{d}:requests"]).await, "{number}");
    }
    // Another program may write anything into the notes.
    for (noted, known) in [("semaphore 3", "semaphore of 3 permits"), ("any\tthing", "line")] {
        admin.cmd::<()>(&["SET", "lock_queue:{d}", "somebody waits"]).await;
        admin.cmd::<()>(&["HSET", "lock_notes:{d}", "kind", noted]).await;
        match client.count_down_latch("d").set(1).await {
            Err(Error::Conflict { kind, .. }) => assert_eq!(kind, known),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_count_that_is_too_great_is_an_error() {
    let (_server, client) = server_and_client().await;
    let latch = client.count_down_latch("a");
    assert!(matches!(latch.set(1 << 53).await, Err(Error::InvalidCount { .. })));
    let endless = latch.clone().lease(Duration::from_secs(25 * 60 * 60));
    assert!(matches!(endless.set(1).await, Err(Error::InvalidLease { .. })));
    assert!(latch.set((1 << 53) - 1).await.unwrap());
    assert_eq!(latch.count_down().await.unwrap(), (1 << 53) - 2);
}

#[tokio::test]
async fn closing_a_client_answers_its_waiters() {
    let server = Site::start().await;
    let (admin, client) = (server.admin().await, client(&server).await);
    client.count_down_latch("a").set(1).await.unwrap();
    let waiting = waiter(&client);
    awaited(&admin, Layout::Native, 1).await;
    client.close().await;
    assert!(matches!(answered(waiting).await, Err(Error::Closed)));
    assert!(matches!(client.count_down_latch("a").count_down().await, Err(Error::Closed)));
}

/// B9: each count is remembered for two minutes, since it may arrive again. Together they must cost little.
#[tokio::test]
async fn the_record_of_many_counts_is_small() {
    judged(async || {
        const COUNTS: u64 = 20_000;
        for (layout, requests) in
            [(Layout::Native, "lock_notes:{a}:requests"), (Layout::Redisson, "lock_requests:{a}")]
        {
            let server = Site::start().await;
            let (admin, client) = (server.admin().await, client_of(&server.url(), layout).await);
            let latch = client.count_down_latch("a");
            assert!(latch.set(COUNTS + 1).await.unwrap());
            let count = async |_| latch.count_down().await.unwrap();
            let counts = futures_util::stream::iter(0..COUNTS).map(count);
            counts.buffer_unordered(500).for_each(async |_| {}).await;
            assert_eq!(latch.count().await.unwrap(), Some(1), "{layout:?}: each counted once");

            let bytes: u64 = admin.cmd(&["MEMORY", "USAGE", requests, "SAMPLES", "0"]).await;
            assert!(bytes < COUNTS * 14, "{layout:?}: {bytes} bytes for {COUNTS} counts");
            nothing_is_eternal(&admin).await;
        }
    })
    .await;
}

/// C4: one request answers all callers that came before it was sent; they send none of their own.
#[tokio::test]
async fn all_waiters_of_one_client_pass_with_a_few_requests() {
    const WAITERS: usize = 300;
    for layout in LAYOUTS {
        let server = Site::start().await;
        let admin = server.admin().await;
        let (ours, other) =
            (client_of(&server.url(), layout).await, client_of(&server.url(), layout).await);
        assert!(other.count_down_latch("a").set(1).await.unwrap());
        let waiters: Vec<_> = (0..WAITERS).map(|_| waiter(&ours)).collect();
        awaited(&admin, layout, 1).await;
        admin.reset_stats().await;
        other.count_down_latch("a").count_down().await.unwrap();
        for waiter in waiters {
            answered(waiter).await.unwrap();
        }
        let scripts = scripts(&admin).await;
        assert!(scripts <= 5, "{layout:?}: {scripts} scripts");
    }
}

/// P9: a waiter was told that the latch is open, and is not polled.
#[tokio::test]
async fn a_waiter_that_is_not_polled_holds_up_nobody() {
    for (layout, asked) in LAYOUTS.into_iter().flat_map(|layout| [(layout, 1), (layout, 100)]) {
        let server = Site::start().await;
        let config = Config::default().layout(layout).waiter_ttl(Duration::from_millis(200));
        let client = comes_in(server.url(), config).await;
        let latch = client.count_down_latch("a");
        latch.set(1).await.unwrap();
        // It has asked, or it has its answer too.
        let mut asleep = Box::pin(latch.wait());
        assert!(timeout(Duration::from_millis(asked), asleep.as_mut()).await.is_err());
        let waiters = [waiter(&client), waiter(&client)];
        awaited(&server.admin().await, layout, 1).await;
        latch.count_down().await.unwrap();
        for waiter in waiters {
            answered(waiter).await.unwrap();
        }
        timeout(SOON, asleep).await.expect("it is polled").unwrap();
    }
}

/// C4: nobody waits for the answers to the others.
#[tokio::test]
async fn many_callers_of_a_distant_open_latch_take_a_few_round_trips() {
    const DISTANCE: Duration = Duration::from_millis(50);
    const WAITERS: usize = 200;
    for layout in LAYOUTS {
        let server = Site::start().await;
        let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
        let client = client_of(&proxy.url(), layout).await;
        let latch = client.count_down_latch("a");
        assert!(latch.set(0).await.unwrap());
        let _far = proxy.everything().delay_reply(DISTANCE, Duration::ZERO);
        for limited in [false, true] {
            admin.reset_stats().await;
            let mut crowd = JoinSet::new();
            for _ in 0..WAITERS {
                let latch = latch.clone();
                crowd.spawn(async move {
                    if limited {
                        latch.wait_for(SOON).await
                    } else {
                        latch.wait().await.map(|()| true)
                    }
                });
            }
            let passed = timeout(SOON, crowd.join_all()).await.expect("all pass");
            assert!(passed.into_iter().all(|passed| passed.unwrap()), "{layout:?}");
            let scripts = scripts(&admin).await;
            assert!(scripts <= 4, "{layout:?}: {scripts} scripts");
        }
    }
}
