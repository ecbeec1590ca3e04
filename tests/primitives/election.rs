//! At most one candidate leads, it knows in time when it leads no more, and everybody can see who leads.

use crate::common;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::fixture::{LONG, SOON, client, client_with, comes_in, is_pending, key, parked, quick};
use common::rights::untold;
use common::{Proxy, Server, eventually, judged, timeout};
use parklock::{Client, Config, Election, Error, Leader, Leadership, Term};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

async fn leads(candidate: &Election) -> Leadership {
    timeout(SOON, candidate.campaign()).await.expect("it is elected").expect("an answer")
}

/// A candidate that leads as soon as it can, and when that was.
fn leads_next(candidate: Election) -> JoinHandle<(Instant, Leadership)> {
    tokio::spawn(async move {
        let next = leads(&candidate).await;
        (Instant::now(), next)
    })
}

/// A candidate with a lease of nine seconds that leaves its work half of that to stop.
async fn wary(proxy: &Proxy) -> Election {
    let lease = Duration::from_secs(9);
    let client = comes_in(proxy.url(), Config::default().watchdog_timeout(lease)).await;
    client.election("a").margin(lease / 2)
}

async fn over(ended: impl Future<Output = ()>) {
    timeout(SOON, ended).await.expect("the end is told");
}

async fn delete(server: &Server, name: &str) {
    server.admin().await.cmd::<i64>(&["DEL", &key(name)]).await;
}

#[tokio::test]
async fn one_candidate_leads_and_the_next_one_when_it_steps_down() {
    let server = Server::start().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let (a, b) = (ours.election("a"), theirs.election("a"));
    let first = leads(&a).await;
    assert!(first.is_leader() && a.is_leader() && !b.is_leader());
    assert!(b.try_campaign().await.unwrap().is_none());
    let waiting = b.clone();
    let waiter = tokio::spawn(async move { leads(&waiting).await });
    parked(&server.admin().await, "a", 1).await;
    assert!(!waiter.is_finished());
    let (token, ended) = (first.token(), first.ended());

    first.step_down().await.unwrap();

    over(ended).await;
    let second = waiter.await.unwrap();
    assert!(second.token() > token);
    assert!(!a.is_leader() && a.term().is_none() && b.is_leader());
}

#[tokio::test]
async fn a_leadership_that_is_dropped_is_given_back() {
    let server = Server::start().await;
    let (a, b) = (client(&server).await.election("a"), client(&server).await.election("a"));
    let first = leads(&a).await;
    let term = first.term();
    drop(first);
    assert!(!term.is_leader(), "it leads no more, before the server knows");
    leads(&b).await.step_down().await.unwrap();
}

#[tokio::test]
async fn a_lock_of_that_name_keeps_candidates_out() {
    let server = Server::start().await;
    let client = client(&server).await;
    let guard = client.lock("a").lock().await.unwrap();
    assert!(client.election("a").try_campaign().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    let leadership = leads(&client.election("a")).await;
    assert!(client.lock("a").try_lock().await.unwrap().is_none());
    leadership.step_down().await.unwrap();
}

#[tokio::test]
async fn a_leader_that_is_robbed_stops_and_campaigns_again() {
    let server = Server::start().await;
    let (a, terms) = (client(&server).await.election("a"), Arc::new(AtomicUsize::new(0)));
    let mut last = None;
    let done = a.run(|term: Term| {
        let is_later = last.replace(term.token()).is_none_or(|before| term.token() > before);
        assert!(is_later && term.is_leader());
        let (server, count) = (&server, terms.fetch_add(1, Ordering::Relaxed));
        async move {
            if count < 2 {
                delete(server, "a").await;
                pending::<()>().await;
            }
            term.token()
        }
    });
    let token = timeout(SOON, done).await.expect("in time").expect("the third term does the work");
    assert_eq!(terms.load(Ordering::Relaxed), 3);
    assert!(!a.is_leader());
    let next = leads(&a).await;
    assert!(next.token() > token, "it has stepped down");
}

#[tokio::test]
async fn run_says_when_the_work_ended_without_the_leadership() {
    let server = Server::start().await;
    // If the server told it, it would stop the work, and lead again.
    let a = comes_in(untold(&server).await, quick().watchdog_timeout(LONG)).await.election("a");
    let done = a.run(async |_| delete(&server, "a").await);
    let done = timeout(SOON, done).await.expect("in time");
    assert!(matches!(done, Err(Error::Lost { .. })), "{done:?}");
}

/// A leader that hears nothing stops while its lock still keeps all others out.
#[tokio::test]
async fn a_leader_without_redis_stops_before_another_one_may_lead() {
    judged(async || {
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        let (a, b) = (wary(&proxy).await, client(&server).await.election("a"));
        let first = leads(&a).await;
        let waiter = leads_next(b);
        parked(&server.admin().await, "a", 1).await;
        let cut = proxy.blackhole(None);

        over(first.ended()).await;
        let stopped = Instant::now();
        assert!(!first.is_leader() && !a.is_leader() && first.remaining().is_zero());
        let (led, next) = waiter.await.unwrap();

        // Between the two lies the margin, unless a busy machine polled this task late.
        assert!(
            led > stopped + Duration::from_secs(1),
            "the next one leads {:?} later",
            led - stopped
        );
        assert!(next.token() > first.token());
        cut.lift();
        assert!(is_pending(next.ended()).await && !first.is_leader());
    })
    .await;
}

/// The connection is back right after the term, and the lock is renewed. The work still has the margin.
#[tokio::test]
async fn nobody_else_leads_within_the_margin_although_redis_is_back() {
    judged(async || {
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        let (a, b) = (wary(&proxy).await, client(&server).await.election("a"));
        let first = leads(&a).await;
        let waiter = leads_next(b);
        parked(&server.admin().await, "a", 1).await;
        let cut = proxy.blackhole(None);

        over(first.ended()).await;
        let stopped = Instant::now();
        cut.lift();
        let (led, next) = waiter.await.unwrap();

        assert!(
            led > stopped + Duration::from_secs(3),
            "the next one leads {:?} later",
            led - stopped
        );
        assert!(!first.is_leader() && !a.is_leader());
        assert!(next.token() > first.token());
    })
    .await;
}

/// `run` has dropped the work, whose requests may be in flight.
#[tokio::test]
async fn work_that_was_dropped_for_want_of_redis_has_the_margin_too() {
    judged(async || {
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        let (a, b) = (wary(&proxy).await, client(&server).await.election("a"));
        let (working, mut worked) = mpsc::channel::<()>(1);
        let (mut first, leader) = (Some(working), a.clone());
        let running = tokio::spawn(async move {
            let work = |_| {
                let working = first.take();
                async move {
                    let _working = working;
                    pending::<()>().await;
                }
            };
            leader.run(work).await
        });
        eventually(SOON, "it leads", async || a.is_leader()).await;
        let waiter = leads_next(b);
        parked(&server.admin().await, "a", 1).await;
        let cut = proxy.blackhole(None);

        assert_eq!(timeout(SOON, worked.recv()).await.expect("the work is dropped"), None);
        let stopped = Instant::now();
        cut.lift();
        let (led, _next) = waiter.await.unwrap();

        assert!(
            led > stopped + Duration::from_secs(3),
            "the next one leads {:?} later",
            led - stopped
        );
        running.abort();
    })
    .await;
}

/// The lock is granted, and then the connection breaks: a candidate that has waited for long keeps what it has.
#[tokio::test]
async fn a_candidate_rides_out_a_connection_that_breaks_after_its_election() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
    let candidate = comes_in(proxy.url(), Config::default()).await.election("a");
    let lost = proxy.script("renew").first(2).cut_after();
    let leadership = leads(&candidate).await;
    assert_eq!(lost.fired(), 2);
    assert!(leadership.is_leader());
    leadership.step_down().await.unwrap();
}

/// The runtime that campaigned is still there, but nobody drives it.
#[tokio::test]
async fn a_term_ends_on_the_runtime_of_its_client() {
    let server = Server::start().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let candidate = ours.election("a");
    let campaigned = tokio::task::spawn_blocking(move || {
        let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let leadership = other.block_on(leads(&candidate));
        (other, leadership)
    });
    let (other, leadership) = campaigned.await.unwrap();
    drop(leadership);
    leads(&theirs.election("a")).await.step_down().await.unwrap();
    timeout(SOON, ours.close()).await.expect("it closes");
    other.shutdown_background();
}

/// Renewals that fail and succeed again do not end a term.
#[tokio::test]
async fn a_leader_that_is_renewed_goes_on() {
    judged(async || {
        let server = Server::start().await;
        let client =
            client_with(&server, Config::default().watchdog_timeout(Duration::from_secs(6))).await;
        let leadership = leads(&client.election("a")).await;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(7) {
            assert!(leadership.is_leader(), "after {:?}", start.elapsed());
            sleep(Duration::from_millis(20)).await;
        }
        leadership.step_down().await.unwrap();
    })
    .await;
}

/// A message grants a lock for a shorter time than the margin may be.
#[tokio::test]
async fn a_term_begins_with_the_whole_lease() {
    let server = Server::start().await;
    let config = Config::default().waiter_ttl(Duration::from_millis(300));
    let (ours, theirs) = (client(&server).await, client_with(&server, config).await);
    let held = ours.lock("a").lock().await.unwrap();
    let candidate = theirs.election("a").margin(Duration::from_secs(15));
    let waiter = tokio::spawn(async move { leads(&candidate).await });
    parked(&server.admin().await, "a", 1).await;
    held.unlock().await.unwrap();
    let leadership = waiter.await.unwrap();
    assert!(leadership.remaining() > Duration::from_secs(10), "{:?}", leadership.remaining());
    assert!(is_pending(leadership.ended()).await);
}

async fn said(election: &Election, token: u64, identity: &str) {
    let is_so = |leader: Leader| leader.token.get() == token && leader.identity == identity;
    let says = async || election.leader().await.expect("an answer").is_some_and(is_so);
    eventually(SOON, &format!("{identity} leads"), says).await;
}

#[tokio::test]
async fn everybody_sees_who_leads() {
    let server = Server::start().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let (a, b) = (ours.election("a").identity("host a, process 7"), theirs.election("a"));
    let mut observer = b.observe().every(Duration::from_millis(20));
    assert_eq!(timeout(SOON, observer.next()).await.unwrap().unwrap(), None);
    let first = leads(&a).await;

    let told = timeout(SOON, observer.next()).await.unwrap().unwrap().expect("a leader");
    assert_eq!((told.token, &*told.identity), (first.token(), "host a, process 7"));
    assert!(is_pending(observer.next()).await, "nothing has changed");

    first.step_down().await.unwrap();
    assert_eq!(timeout(SOON, observer.next()).await.unwrap().unwrap(), None);
    let second = leads(&b).await;
    let told = timeout(SOON, observer.next()).await.unwrap().unwrap().expect("a leader");
    assert_eq!(told.token, second.token());
    assert!(!told.identity.is_empty(), "without a name, it is the id of the client");
    delete(&server, "a").await;
    assert_eq!(timeout(SOON, observer.next()).await.unwrap().unwrap(), None);
}

/// The lock goes on under the same owner field, so the mark of the earlier term must not be taken for the later one's.
#[tokio::test]
async fn candidates_of_one_client_are_told_apart() {
    let server = Server::start().await;
    let client = client(&server).await;
    let (a, b) = (client.election("a").identity("a"), client.election("a").identity("b"));
    let first = leads(&a).await;
    said(&b, first.token().get(), "a").await;
    let waiting = b.clone();
    let waiter = tokio::spawn(async move { leads(&waiting).await });
    sleep(common::fixture::A_WHILE).await;
    first.step_down().await.unwrap();
    let second = waiter.await.unwrap();
    said(&a, second.token().get(), "b").await;
    assert!(!a.is_leader() && b.is_leader());
}

#[tokio::test]
async fn a_late_announcement_of_an_earlier_term_changes_nothing() {
    let server = Server::start().await;
    let (admin, client) = (server.admin().await, client(&server).await);
    let candidate = client.election("a").identity("now");
    let leadership = leads(&candidate).await;
    said(&candidate, leadership.token().get(), "now").await;
    let field = admin.hgetall(&key("a")).await.into_keys().next().expect("an owner field");
    let mark = "lock_notes:{a}:leader";
    let announce = async |field: &str, token: u64| -> Vec<i64> {
        let text = format!("{token:020} {field} {token}");
        let script = include_str!("../../lua/marks/announce.lua");
        admin.cmd(&["EVAL", script, "2", &key("a"), mark, field, &text, "60000"]).await
    };

    let leads_now = async || {
        // At once: before long, the leader says who it is again.
        let leader = candidate.leader().await.expect("an answer").expect("a leader");
        assert_eq!((leader.token, &*leader.identity), (leadership.token(), "now"));
    };

    assert_eq!(announce(&field, 7).await, [1]);
    leads_now().await;
    assert_eq!(announce("somebody:1", u64::MAX).await, [0], "it does not hold the lock");
    leads_now().await;
    let later = leadership.token().get() + 1;
    assert_eq!(announce(&field, later).await, [1]);
    said(&candidate, later, &later.to_string()).await;
    assert!(admin.pttl(mark).await > 0);
}

#[tokio::test]
async fn a_candidate_tells_when_it_leads_and_when_no_more() {
    let server = Server::start().await;
    let candidate = client(&server).await.election("a");
    let mut changes = candidate.changes();
    assert!(changes.term().is_none() && is_pending(changes.changed()).await);
    let first = leads(&candidate).await;
    let begun = timeout(SOON, changes.changed()).await.unwrap().expect("a term");
    assert_eq!(begun.token(), first.token());
    assert!(changes.term().is_some() && is_pending(changes.changed()).await);
    delete(&server, "a").await;
    assert!(timeout(SOON, changes.changed()).await.unwrap().is_none());
    assert!(changes.term().is_none());
    drop(candidate);
    assert!(is_pending(changes.changed()).await, "nothing more to tell");
}

#[tokio::test]
async fn closing_the_client_ends_the_term_and_the_campaign() {
    let server = Server::start().await;
    let ours = client(&server).await;
    let leadership = leads(&ours.election("a")).await;
    let candidate = ours.election("b");
    let running = tokio::spawn(async move { candidate.run(|_| pending::<()>()).await });
    sleep(common::fixture::A_WHILE).await;

    timeout(SOON, ours.close()).await.expect("it closes");

    over(leadership.ended()).await;
    assert!(!leadership.is_leader());
    let ran = timeout(SOON, running).await.expect("it ends").unwrap();
    assert!(matches!(ran, Err(Error::Closed)), "{ran:?}");
    let next = client(&server).await;
    leads(&next.election("a")).await.step_down().await.unwrap();
}

#[tokio::test]
async fn an_invalid_margin_identity_or_name_is_refused_by_the_first_call() {
    let server = Server::start().await;
    let client: Client = client_with(&server, quick()).await;
    let refused = [
        client.election("a").margin(Duration::from_secs(2)),
        client.election("a").identity("x".repeat(1_025)),
    ];
    for candidate in refused {
        let refusal = candidate.campaign().await.unwrap_err();
        assert!(matches!(refusal, Error::Config { .. }), "{refusal:?}");
    }
    let nameless = client.election("");
    assert!(matches!(nameless.campaign().await, Err(Error::InvalidName { .. })));
    assert!(matches!(nameless.leader().await, Err(Error::InvalidName { .. })));
}

/// Somebody deletes the lock between the grant and the first renewal.
#[tokio::test]
async fn a_candidate_that_loses_the_lock_before_its_term_is_not_told_that_another_one_leads() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
    let client = comes_in(proxy.url(), Config::default()).await;
    let renewal = proxy.script("renew").nth(1).hold_request();
    let candidate = client.election("a");
    let trying = tokio::spawn(async move { candidate.try_campaign().await });
    renewal.happened().await;
    delete(&server, "a").await;
    renewal.lift();
    let tried = timeout(SOON, trying).await.unwrap().unwrap();
    assert!(matches!(tried, Err(Error::Lost { .. })), "{tried:?}");
}
