//! What the log says, how loudly, and what it never says.

use crate::common;

use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use common::fixture::{LONG, SOON, client, comes_in, is_pending, key, lock_keys, quick};
use common::{Proxy, Server, eventually, judged, timeout};
use parklock::{Client, Config, Error};
use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// With one subscriber in the process, `tracing` asks only the thread that meets an event first whether anybody listens. That
/// may be the thread of another test, where nobody does. With two it asks both.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Registry::default()));

/// All that was logged on this thread: level, then the event's fields, then those of its spans.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(Level, String)>>>, Arc<Mutex<Vec<String>>>);

/// The fields of an event or a span as one text.
#[derive(Default)]
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string takes it");
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Log {
    fn on_new_span(
        &self,
        new: &tracing::span::Attributes<'_>,
        id: &tracing::Id,
        context: Context<'_, S>,
    ) {
        let mut words = Words::default();
        new.record(&mut words);
        context.span(id).expect("it is new").extensions_mut().insert(words);
    }

    fn on_record(
        &self,
        id: &tracing::Id,
        more: &tracing::span::Record<'_>,
        context: Context<'_, S>,
    ) {
        let span = context.span(id).expect("it is open");
        if let Some(words) = span.extensions_mut().get_mut::<Words>() {
            more.record(words);
        }
    }

    fn on_close(&self, id: tracing::Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("it closes now");
        let words = span.extensions().get::<Words>().map_or(String::new(), |words| words.0.clone());
        self.1.lock().expect("no panic").push(format!("{} {words}", span.name()));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut words = Words::default();
        event.record(&mut words);
        for span in context.event_scope(event).into_iter().flatten() {
            write!(words.0, "{} ", span.name()).expect("a string takes it");
            words.0 += span.extensions().get::<Words>().map_or("", |words| &words.0);
        }
        self.0.lock().expect("no panic").push((*event.metadata().level(), words.0));
    }
}

impl Log {
    /// Captures the log of this thread, hence of everything in a test with one thread.
    pub(crate) fn capture() -> (Self, DefaultGuard) {
        let log = Self::default();
        LazyLock::force(&ANOTHER);
        let guard = set_default(Registry::default().with(log.clone()));
        // Another test may be registering an event at this moment, which then believes that nobody listens.
        tracing::callsite::rebuild_interest_cache();
        (log, guard)
    }

    /// The events of a level that contain all of these words.
    pub(crate) fn said(&self, level: Level, words: &[&str]) -> usize {
        let log = self.0.lock().expect("no panic");
        let fits = |event: &&(Level, String)| {
            event.0 == level && words.iter().all(|word| event.1.contains(word))
        };
        log.iter().filter(fits).count()
    }

    /// The events that should not go unnoticed.
    fn loud(&self) -> Vec<(Level, String)> {
        let log = self.0.lock().expect("no panic");
        log.iter().filter(|(level, _)| *level <= Level::WARN).cloned().collect()
    }

    /// The spans that have ended, with their fields.
    fn spans(&self) -> Vec<String> {
        self.1.lock().expect("no panic").clone()
    }

    pub(crate) fn all(&self) -> String {
        format!("{:#?}", self.0.lock().expect("no panic"))
    }
}

#[tokio::test]
async fn a_grant_and_a_release_are_said_quietly_with_name_and_token() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let client = client(&server).await;
    tracing::callsite::rebuild_interest_cache();
    let guard = client.lock("orders").lock().await.unwrap();
    let token = format!("token={}", guard.token());
    guard.unlock().await.unwrap();
    for word in ["granted", "released"] {
        assert_eq!(log.said(Level::DEBUG, &[word, "orders", &token]), 1, "{word}: {}", log.all());
    }
    assert_eq!(log.loud(), []);
    assert!(log.said(Level::INFO, &["connected"]) >= 2, "{}", log.all());
}

/// The subscriber is the program's code, and panics when the span of a call closes. Asks for locks meanwhile. With the default lease: if
/// they are free soon, they were given back.
async fn are_given_back<T: Send + 'static>(
    server: &Server,
    asks: impl Future<Output = T> + Send + 'static,
) {
    struct Breaks;
    impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Breaks {
        fn on_close(&self, id: tracing::Id, context: Context<'_, S>) {
            let span = context.span(&id).expect("it is open");
            assert!(!span.name().starts_with("lock.acquire"), "the log is full");
        }
    }
    LazyLock::force(&ANOTHER);
    let breaks = set_default(Registry::default().with(Breaks));
    let granted = tokio::spawn(asks).await;
    drop(breaks);
    assert!(granted.err().expect("it panics").is_panic());
    let others = client(server).await;
    for name in ["a", "b"] {
        let next = timeout(SOON, others.lock(name).lock()).await.expect("it was given back");
        let guard = next.expect("it is free");
        guard.unlock().await.expect("it is held");
    }
}

#[tokio::test]
async fn a_lock_is_given_back_if_the_subscriber_panics_when_the_call_ends() {
    let server = Server::start().await;
    let client = client(&server).await;
    let lock = client.lock("a");
    are_given_back(&server, async move { lock.lock().await }).await;
}

#[tokio::test]
async fn all_locks_of_a_multi_lock_are_given_back_if_the_subscriber_panics_when_the_call_ends() {
    let server = Server::start().await;
    let client = client(&server).await;
    let both = client.multi_lock(["a", "b"]);
    are_given_back(&server, async move { both.lock().await }).await;
}

/// The client, its guards and its tasks do what they do without a subscriber: during an outage and after it, when a lock is lost, and when
/// a caller waits for a condition.
#[tokio::test]
async fn a_subscriber_that_panics_at_each_line_changes_nothing() {
    #[derive(Clone, Default)]
    struct Panics(Arc<Mutex<String>>);
    impl<S: Subscriber> Layer<S> for Panics {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut words = Words::default();
            event.record(&mut words);
            self.0.lock().expect("it does not panic here").push_str(&words.0);
            panic!("the log is full");
        }
    }
    LazyLock::force(&ANOTHER);
    let panics = Panics::default();
    let _panics = set_default(Registry::default().with(panics.clone()));
    let said = |words: &str| panics.0.lock().expect("it does not panic here").contains(words);
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let client = comes_in(proxy.url(), Config::default()).await;
    tracing::callsite::rebuild_interest_cache();

    let kept = client.lock("kept").lock().await.unwrap();
    proxy.refuse().await;
    proxy.reset(None).await;
    let (lock, condition) = (client.lock("a"), client.condition("changed"));
    let asks = tokio::spawn(async move { lock.lock().await });
    eventually(SOON, "requests fail", async || said("no request for a lock")).await;
    proxy.accept_again().await;
    let guard = timeout(SOON, asks).await.unwrap().unwrap().unwrap();
    eventually(SOON, "they succeed", async || said("the outage is over")).await;

    let waits = tokio::spawn(async move { guard.wait(&condition).await });
    let notifies = client.condition("changed");
    let is_back = async || {
        notifies.notify_one().await.unwrap();
        waits.is_finished()
    };
    eventually(SOON, "it is notified", is_back).await;
    let guard = timeout(SOON, waits).await.unwrap().unwrap().unwrap();
    server.admin().await.cmd::<i64>(&["DEL", &key("a")]).await;
    timeout(SOON, guard.ended()).await.unwrap();
    assert!(guard.unlock().await.is_err());

    assert!(kept.is_valid());
    kept.unlock().await.unwrap();
    drop(client.lock("kept").lock().await.unwrap());
    assert!(timeout(SOON, client.drain(LONG)).await.unwrap());
    let left = lock_keys(&server.admin().await).await;
    assert!(!left.contains(&key("kept")), "{left:?}");
    for line in ["connected", "granted", "waits", "lock lost", "released", "dropped"] {
        assert!(said(line), "{line}");
    }
}

#[tokio::test]
async fn spans_say_what_was_asked_for_and_what_went_wrong() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let client = comes_in(server.url(), Config::default().namespace("billing")).await;
    tracing::callsite::rebuild_interest_cache();
    let guard = client.fair_lock("orders").lock().await.unwrap();
    let token = format!("lock.token={}", guard.token());
    drop(guard);
    let within = "lock.namespace=\"billing\"";
    let hold = ["lock.hold", "lock.kind=\"fair\"", "lock.name=\"orders\"", within, &token];
    assert_eq!(log.said(Level::DEBUG, &[&["dropped"], &hold[..]].concat()), 1, "{}", log.all());
    let asked = ["lock.acquire", "lock.kind=\"fair\"", "lock.name=\"orders\"", within];
    let said = |words: &[&str]| {
        let spans = log.spans().into_iter();
        spans.filter(|span| words.iter().all(|word| span.contains(word))).count()
    };
    assert_eq!(said(&asked), 1, "{:#?}", log.spans());
    client.close().await;
    assert!(client.lock("orders").lock().await.is_err());
    let failed = [
        "lock.acquire",
        within,
        "lock.kind=\"lock\"",
        "db.system.name=\"redis\"",
        "error.type=\"closed\"",
    ];
    assert_eq!(said(&failed), 1, "{:#?}", log.spans());
}

#[tokio::test]
async fn a_loss_is_an_error_said_once_with_name_and_token() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let client = client(&server).await;
    let guard = client.lock("orders").lock().await.unwrap();
    server.admin().await.cmd::<i64>(&["DEL", &key("orders")]).await;
    timeout(SOON, guard.ended()).await.unwrap();
    let token = format!("token={}", guard.token());
    assert!(guard.unlock().await.is_err());
    assert_eq!(log.said(Level::ERROR, &["lost", "orders", &token]), 1, "{}", log.all());
    assert_eq!(log.loud().len(), 1, "{}", log.all());
}

#[tokio::test]
async fn a_reconnect_is_said_with_the_server_but_no_louder_than_info() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let client = client(&server).await;
    let address = server.address().to_string();
    let said = async |times: usize| log.said(Level::INFO, &["connected", &address]) >= times;
    eventually(SOON, "both links say hello", async || said(2).await).await;
    assert_eq!(server.admin().await.client_kill("normal").await, 2);
    eventually(SOON, "both links say goodbye and hello", async || said(6).await).await;
    client.lock("a").lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(log.loud(), []);
}

#[tokio::test]
async fn a_renewal_without_an_answer_is_a_warning() {
    judged(async || {
        let (log, _capturing) = Log::capture();
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
        let client = comes_in(proxy.url(), quick()).await;
        let guard = client.lock("orders").lock().await.unwrap();
        let lost = proxy.script("renew").nth(1).cut_before();
        lost.happened().await;
        let warned = async || log.said(Level::WARN, &["orders", "not renewed"]) > 0;
        eventually(SOON, "it warns", warned).await;
        assert!(guard.is_valid());
        assert_eq!(log.said(Level::ERROR, &[]), 0, "{}", log.all());
    })
    .await;
}

#[tokio::test]
async fn a_renewal_that_is_forbidden_is_a_warning_about_that_lock_alone() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let admin = server.admin().await;
    let set = ["ACL", "SETUSER", "user"];
    admin.cmd::<()>(&[&set[..], &["on", ">pass", "~*", "&*", "+@all"]].concat()).await;
    let client = comes_in(server.url().replace("://", "://user:pass@"), quick()).await;
    let mut guards = Vec::new();
    // So many that it is hardly ever renewed alone.
    for name in (0..200).map(|number| format!("kept{number}")).chain(["forbidden".to_owned()]) {
        guards.push(client.lock(name).lock().await.unwrap());
    }

    admin.cmd::<()>(&[&set[..], &["resetkeys", "~lock*:{kept*"]].concat()).await;

    let warned = async || log.said(Level::WARN, &["not renewed", "forbidden"]) > 0;
    eventually(SOON, "it warns", warned).await;
    // A warning about a whole request says how many locks it was for.
    let together = |count| log.said(Level::WARN, &["not renewed", count]);
    assert_eq!(together("locks="), together("locks=1 "), "{}", log.all());
}

#[tokio::test]
async fn a_task_that_waits_for_its_own_guard_is_warned_of_once() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let client = client(&server).await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let other = client.lock("orders");
    let mut other = tokio::spawn(async move { other.lock().await });
    assert!(is_pending(&mut other).await);
    assert_eq!(log.loud(), [], "another task may wait");
    for _ in 0..3 {
        assert!(is_pending(client.lock("orders").lock()).await);
    }
    assert_eq!(log.said(Level::WARN, &["orders", "deadlock"]), 1, "{}", log.all());
    other.abort();
}

#[tokio::test]
async fn a_key_without_a_ttl_and_a_lock_taken_away_are_warnings() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let client = client(&server).await;
    server.admin().await.cmd::<i64>(&["HSET", &key("orders"), "stranger", "1"]).await;
    let lock = client.lock("orders");
    let waiter = tokio::spawn(async move { lock.lock().await });
    let warned = async || log.said(Level::WARN, &["orders", "TTL"]) > 0;
    eventually(SOON, "it warns", warned).await;
    client.lock("orders").force_unlock().await.unwrap();
    assert_eq!(log.said(Level::WARN, &["orders", "took the lock away"]), 1, "{}", log.all());
    timeout(SOON, waiter).await.unwrap().unwrap().unwrap().unlock().await.unwrap();
}

/// The user lacks one key that plain locks do not need.
#[tokio::test]
async fn a_leader_that_may_not_announce_itself_is_warned_of_once() {
    judged(async || {
        let (log, _capturing) = Log::capture();
        let server = Server::start().await;
        let rules =
            ["on", ">pass", "~lock:*", "~lock_queue:*", "~lock_notes:{orders}", "&*", "+@all"];
        let user = [&["ACL", "SETUSER", "user"][..], &rules].concat();
        server.admin().await.cmd::<()>(&user).await;
        let client = comes_in(server.url().replace("://", "://user:pass@"), quick()).await;
        let leadership = client.election("orders").campaign().await.unwrap();
        let words = ["not announce the leader"];
        let failures = async || log.said(Level::WARN, &words) + log.said(Level::DEBUG, &words) >= 3;
        eventually(SOON, "it has failed several times", failures).await;
        assert_eq!(log.said(Level::WARN, &words), 1, "{}", log.all());
        leadership.step_down().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_hold_beyond_max_hold_is_a_warning_said_once() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let config = quick().max_hold(Duration::from_secs(3));
    let client = comes_in(server.url(), config).await;
    let guard = client.lock("orders").lock().await.unwrap();
    timeout(SOON, guard.ended()).await.unwrap();
    assert_eq!(log.said(Level::WARN, &["orders", "max_hold"]), 1, "{}", log.all());
}

#[tokio::test]
async fn a_password_is_never_said_whatever_happens() {
    let (log, _capturing) = Log::capture();
    let server = Server::builder().set("requirepass", "sesame").start().await;
    let url = |password: &str| server.url().replace("://", &format!("://:{password}@"));
    let config = Config::default().ride_out(Duration::from_millis(300));
    let client = comes_in(url("sesame"), config).await;
    let admin = common::Admin::connect(&url("sesame")).await;
    let guard = client.lock("orders").lock().await.unwrap();
    let mut said = format!("{client:?} {guard:?} {:?}", client.lock("orders"));
    for wrong in [url("sesame-not"), "redis://:sesame@".into(), "redis://:sesame@h/x".into()] {
        said += &format!("{:?}", Client::connect(wrong).await.unwrap_err());
    }
    admin.config_set("requirepass", "sesame2").await;
    admin.client_kill("normal").await;
    let refused = async || client.lock("other").try_lock().await.is_err();
    eventually(SOON, "it is refused", refused).await;
    said += &format!("{:?}", client.lock("other").lock().await);
    assert!(lock_keys(&admin).await.len() == 1);
    server.kill();
    said += &format!("{:?} {:?}", client.lock("other").lock().await, guard.unlock().await);
    assert!(!said.contains("sesame"), "{said}");
    assert!(!log.all().contains("sesame"), "{}", log.all());
}

#[tokio::test]
async fn a_client_that_describes_itself_can_be_told_from_others() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let described = comes_in(server.url(), quick().describe("billing")).await;
    let cards = async || admin.cmd::<Vec<String>>(&["KEYS", "lock_client:*"]).await;
    eventually(SOON, "the client says who it is", async || cards().await.len() == 1).await;
    let guard = described.lock("a").lock().await.unwrap();
    let owner = admin.hgetall(&key("a")).await.into_keys().next().unwrap();
    let (id, _) = owner.split_once(':').unwrap();
    let card = &cards().await[0];
    assert_eq!(*card, format!("lock_client:{{{id}}}"), "an owner leads to the client");
    let text: String = admin.cmd(&["GET", card]).await;
    let pid = std::process::id();
    assert!(text.starts_with(r#"{"app":"billing","host":""#), "{text}");
    assert!(text.contains(&format!(r#","pid":{pid},"since":"#)), "{text}");
    assert!(!text.ends_with(r#""since":0}"#), "the server's clock is known: {text}");
    assert!((1..=15_000).contains(&admin.pttl(card).await));
    let named =
        admin.clients().await.into_iter().filter(|line| line.contains("name=parklock:billing "));
    assert_eq!(named.count(), 2, "both of its connections");
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_describe_itself_says_nothing() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin.reset_stats().await;
    let client = comes_in(server.url(), quick()).await;
    client.lock("a").lock().await.unwrap().unlock().await.unwrap();
    client.close().await;
    assert_eq!(admin.cmd::<Vec<String>>(&["KEYS", "lock_client:*"]).await, Vec::<String>::new());
    let stats: String = admin.cmd(&["INFO", "commandstats"]).await;
    assert!(!stats.contains("cmdstat_client|setname"), "{stats}");
}

#[tokio::test]
async fn a_client_that_may_not_describe_itself_goes_on_without() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let words = [
        "ACL",
        "SETUSER",
        "locks",
        "on",
        "nopass",
        "~lock:*",
        "~lock_queue:*",
        "~lock_notes:*",
        "&*",
        "+@all",
        "-client",
    ];
    admin.cmd::<()>(&words).await;
    let url = server.url().replace("://", "://locks:any@");
    let client = comes_in(url, quick().describe("billing")).await;
    client.lock("a").lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(admin.cmd::<Vec<String>>(&["KEYS", "lock_client:*"]).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_client_that_closes_says_how_many_releases_are_unconfirmed() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let config = Config::default().response_timeout(Duration::from_millis(500));
    let client = comes_in(server.url(), config).await;
    let guards = [client.lock("a").lock().await.unwrap(), client.lock("b").lock().await.unwrap()];
    server.pause();
    timeout(SOON, client.close()).await.unwrap();
    assert_eq!(log.said(Level::WARN, &["confirmed every release", "open=2"]), 1, "{}", log.all());
    drop(guards);
}

#[tokio::test]
async fn an_unlock_that_finds_nothing_is_a_loss_said_once_with_name_and_token() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let client = client(&server).await;
    let guard = client.lock("orders").lock().await.unwrap();
    let token = format!("token={}", guard.token());
    server.admin().await.cmd::<i64>(&["DEL", &key("orders")]).await;
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert_eq!(log.said(Level::ERROR, &["lock lost", "orders", &token]), 1, "{}", log.all());
}

#[tokio::test]
async fn an_outage_of_more_than_a_second_is_a_warning_when_it_begins_and_when_it_ends() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let config = Config::default().response_timeout(Duration::from_millis(300));
    let client = comes_in(server.url(), config).await;
    server.pause();
    let lock = client.lock("a");
    let waiting = tokio::spawn(async move { lock.lock().await });
    let begins = ["no request for a lock has succeeded", "fault="];
    eventually(SOON, "it warns", async || log.said(Level::WARN, &begins) > 0).await;
    server.resume();
    timeout(SOON, waiting).await.unwrap().unwrap().unwrap().unlock().await.unwrap();
    assert_eq!(log.said(Level::WARN, &begins), 1, "{}", log.all());
    assert_eq!(log.said(Level::WARN, &["the outage is over"]), 1, "{}", log.all());
}

#[tokio::test]
async fn a_job_that_cannot_run_is_two_warnings_however_often_it_tries() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let client = client(&server).await;
    let orders = client.every("orders", LONG);
    let job = tokio::spawn(async move { orders.run(|_| async {}).await });
    // The job has not begun: this thread has not been given back.
    server.kill();
    let fails = ["could not run the job", "orders", "error="];
    let failures = async || log.said(Level::WARN, &fails) + log.said(Level::DEBUG, &fails) >= 4;
    eventually(SOON, "it has failed several times", failures).await;
    assert_eq!(log.said(Level::WARN, &fails), 1, "{}", log.all());
    assert!(log.said(Level::DEBUG, &["still could not run"]) >= 3, "{}", log.all());

    server.start_again().await;
    let again = ["can run the job again", "orders", "after=", "times="];
    eventually(SOON, "it runs", async || log.said(Level::WARN, &again) > 0).await;
    assert_eq!(log.said(Level::WARN, &again), 1, "{}", log.all());
    assert_eq!(log.said(Level::WARN, &["run the job"]), 2, "{}", log.all());
    job.abort();
}

/// It does not lead then, and perhaps not for days.
#[tokio::test]
async fn a_candidate_says_that_it_can_campaign_again_though_another_leads() {
    let (log, _capturing) = Log::capture();
    let server = Server::start().await;
    let leads = client(&server).await.election("orders").campaign().await.unwrap();
    let short = Duration::from_millis(300);
    let config = Config::default().response_timeout(short).ride_out(short);
    let election = comes_in(server.url(), config).await.election("orders");
    let stands_by = tokio::spawn(async move { election.run(|_| async {}).await });
    server.pause();
    let fails = ["could not campaign", "orders", "error="];
    let failures = async || log.said(Level::WARN, &fails) + log.said(Level::DEBUG, &fails) >= 4;
    eventually(SOON, "it has failed several times", failures).await;
    assert_eq!(log.said(Level::WARN, &fails), 1, "{}", log.all());

    server.resume();
    let again = ["can campaign again", "orders", "after=", "times="];
    eventually(SOON, "it stands by", async || log.said(Level::WARN, &again) > 0).await;
    assert!(!stands_by.is_finished());
    leads.step_down().await.unwrap();
    timeout(SOON, stands_by).await.unwrap().unwrap().unwrap();
}
