//! What a program's recorder is told: each metric, and that what goes up comes down again.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use common::fixture::{
    A_WHILE, LONG, SOON, client, client_with, comes_in, key, lock_keys, parked, quick,
};
use common::{Proxy, Server, eventually, judged, timeout};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parklock::{Client, Config, Error, HandOff, Owner};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Everything that was recorded on this thread, hence in a test with one thread.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Numbers>>);

#[derive(Default)]
struct Numbers {
    /// Of a counter and a gauge the value, of a histogram the number of samples.
    values: BTreeMap<Series, f64>,
    sums: BTreeMap<Series, f64>,
    described: BTreeSet<String>,
}

/// A name and its labels: `parklock_held{kind=lock}`.
type Series = String;

struct One(Recorded, Series);

impl One {
    fn add(&self, value: f64) {
        *self.0.numbers().values.entry(self.1.clone()).or_default() += value;
    }
}

impl CounterFn for One {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {
        panic!("nobody sets a counter");
    }
}

impl GaugeFn for One {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {
        panic!("clients of one process would overwrite each other");
    }
}

impl HistogramFn for One {
    fn record(&self, value: f64) {
        assert!(value >= 0.0);
        *self.0.numbers().sums.entry(self.1.clone()).or_default() += value;
        self.add(1.0);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}

impl Recorded {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().expect("no panic under this lock")
    }

    fn describe(&self, name: &KeyName) {
        self.numbers().described.insert(name.as_str().to_owned());
    }

    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(One(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    /// The value of all series together that begin like this.
    fn of(&self, series: &str) -> f64 {
        let numbers = self.numbers();
        numbers.values.iter().filter(|(is, _)| is.starts_with(series)).map(|(_, value)| value).sum()
    }

    /// The sum of all samples of the histograms that begin like this.
    fn sum(&self, series: &str) -> f64 {
        let numbers = self.numbers();
        numbers.sums.iter().filter(|(is, _)| is.starts_with(series)).map(|(_, sum)| sum).sum()
    }

    fn outcomes(&self, kind: &str) -> [f64; 5] {
        ["granted", "busy", "timeout", "cancelled", "error"].map(|outcome| {
            self.of(&format!("parklock_acquire_total{{kind={kind},outcome={outcome}}}"))
        })
    }

    fn held_and_waiting(&self) -> (f64, f64) {
        (self.of("parklock_held{"), self.of("parklock_waiting{"))
    }

    /// The names of all metrics that happened.
    fn happened(&self) -> BTreeSet<String> {
        let numbers = self.numbers();
        let happened = numbers.values.iter().filter(|(_, value)| **value > 0.0);
        happened.map(|(series, _)| series.split('{').next().expect("a name").to_owned()).collect()
    }

    async fn nothing_is_held_or_waited_for(&self, after: &str) {
        let zero = async || self.held_and_waiting() == (0.0, 0.0);
        eventually(SOON, &format!("held and waiting are zero after {after}"), zero).await;
    }
}

fn waits(client: &Client, name: &str) -> JoinHandle<parklock::Result<parklock::Guard>> {
    let lock = client.lock(name);
    tokio::spawn(async move { lock.lock().await })
}

#[tokio::test]
async fn a_call_is_counted_by_how_it_ended() {
    judged(async || {
        let recorded = Recorded::default();
        let _recording = metrics::set_default_local_recorder(&recorded);
        let server = Server::start().await;
        let (ours, theirs) =
            (comes_in(server.url(), quick()).await, comes_in(server.url(), quick()).await);
        let lock = ours.lock("a");
        let held = theirs.lock("a").lock().await.unwrap();
        assert_eq!(recorded.outcomes("lock"), [1.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(lock.try_lock().await.unwrap().is_none());
        assert!(lock.try_lock_for(Duration::from_secs(1)).await.unwrap().is_none());
        assert!(timeout(A_WHILE, lock.lock()).await.is_err());
        assert_eq!(recorded.outcomes("lock"), [1.0, 1.0, 1.0, 1.0, 0.0]);
        let queued = [waits(&ours, "a"), waits(&ours, "a")];
        parked(&server.admin().await, "a", 1).await;
        assert_eq!(recorded.held_and_waiting(), (1.0, 2.0));
        ours.close().await;
        for queued in queued {
            assert!(matches!(queued.await.unwrap(), Err(Error::Closed)));
        }
        assert_eq!(recorded.outcomes("lock"), [1.0, 1.0, 1.0, 1.0, 2.0]);
        assert_eq!(recorded.of("parklock_wait_seconds{kind=lock}"), 1.0, "only grants are timed");
        held.unlock().await.unwrap();
        assert_eq!(recorded.of("parklock_hold_seconds{kind=lock}"), 1.0);
        recorded.nothing_is_held_or_waited_for("all that").await;
        assert_eq!(recorded.of("parklock_lost_total"), 0.0);
    })
    .await;
}

#[tokio::test]
async fn what_goes_up_comes_down_however_a_hold_ends() {
    let recorded = Recorded::default();
    let _recording = metrics::set_default_local_recorder(&recorded);
    let server = Server::start().await;
    let (client, admin) = (client(&server).await, server.admin().await);
    let lost =
        |reason: &str| recorded.of(&format!("parklock_lost_total{{kind=lock,reason={reason}}}"));
    let held = |number: f64| assert_eq!(recorded.held_and_waiting(), (number, 0.0));

    let guard = client.lock("a").lock().await.unwrap();
    held(1.0);
    guard.unlock().await.unwrap();
    held(0.0);

    let guard = client.lock("a").lock().await.unwrap();
    drop(guard);
    held(0.0);

    let taken = client.lock("a").lock().await.unwrap();
    admin.cmd::<i64>(&["DEL", &key("a")]).await;
    timeout(SOON, taken.ended()).await.unwrap();
    assert_eq!((lost("gone"), lost("deadline"), lost("closed")), (1.0, 0.0, 0.0));
    held(0.0);
    drop(taken);
    held(0.0);

    let taken = client.lock("a").lock().await.unwrap();
    admin.cmd::<i64>(&["DEL", &key("a")]).await;
    assert!(matches!(taken.unlock().await, Err(Error::Lost { .. })));
    assert_eq!((lost("gone"), lost("deadline"), lost("closed")), (2.0, 0.0, 0.0));
    held(0.0);

    let over = client.lock("a").lease(Duration::from_millis(100)).lock().await.unwrap();
    timeout(SOON, over.ended()).await.unwrap();
    assert_eq!((lost("gone"), lost("deadline"), lost("closed")), (2.0, 1.0, 0.0));
    held(0.0);

    let outer = client.reentrant_lock("b").lock().await.unwrap();
    let inner = client.reentrant_lock("b").lock().await.unwrap();
    held(1.0); // one holder, however deep it is nested
    outer.unlock().await.unwrap();
    held(1.0);
    inner.unlock().await.unwrap();
    held(0.0);

    let both = client.multi_lock(["c", "d"]).lock().await.unwrap();
    held(2.0);
    both.unlock().await.unwrap();
    held(0.0);

    let rw = client.rw_lock("e");
    let read = rw.write().await.unwrap().downgrade().await.unwrap();
    assert_eq!(recorded.of("parklock_held{kind=read}"), 1.0);
    assert_eq!(recorded.of("parklock_held{kind=write}"), 0.0);
    let joined = rw.read().await.unwrap();
    assert_eq!(recorded.of("parklock_held{kind=read}"), 2.0);
    read.unlock().await.unwrap();
    assert_eq!(recorded.of("parklock_held{kind=read}"), 1.0);
    drop(joined);
    recorded.nothing_is_held_or_waited_for("readers that leave one by one").await;

    let permits = client.semaphore("f", 3);
    let (one, two) = (permits.acquire().await.unwrap(), permits.acquire_many(2).await.unwrap());
    held(2.0);
    drop((one, two));
    recorded.nothing_is_held_or_waited_for("permits").await;

    let latch = client.count_down_latch("g");
    latch.set(1).await.unwrap();
    latch.count_down().await.unwrap();
    latch.wait().await.unwrap();
    held(0.0); // nobody holds a latch
    assert_eq!(recorded.outcomes("latch"), [1.0, 0.0, 0.0, 0.0, 0.0]);

    let _still_here = client.fair_lock("h").lock().await.unwrap();
    let owner = Owner::new();
    let _nested = [
        client.reentrant_lock("i").owned_by(&owner).lock().await.unwrap(),
        client.reentrant_lock("i").owned_by(&owner).lock().await.unwrap(),
    ];
    let waiting = [waits(&client, "i"), waits(&client, "i")];
    let both = async || recorded.held_and_waiting() == (2.0, 2.0);
    eventually(SOON, "two hold and two wait", both).await;
    waiting[0].abort();
    let one = async || recorded.held_and_waiting() == (2.0, 1.0);
    eventually(SOON, "one waits no more", one).await;
    client.close().await;
    recorded.nothing_is_held_or_waited_for("a close with guards and waiters").await;
    assert_eq!(recorded.of("parklock_lost_total{kind=fair,reason=closed}"), 1.0);
    assert_eq!(lost("closed"), 1.0);
    let holds = recorded.of("parklock_hold_seconds");
    assert_eq!(
        holds,
        recorded.of("parklock_acquire_total") - nested_or_passed(&recorded),
        "{holds}"
    );
}

/// Calls in the test above that begin no hold of their own: two nested ones, a latch, two that never got the lock. One call
/// for two locks begins one hold more, and so does a downgrade, which is no call.
fn nested_or_passed(recorded: &Recorded) -> f64 {
    let cancelled_or_closed: f64 = recorded.outcomes("lock")[3..].iter().sum();
    assert_eq!(cancelled_or_closed, 2.0);
    2.0 + 1.0 + cancelled_or_closed - 1.0
}

#[tokio::test]
async fn a_lock_that_goes_from_caller_to_caller_is_a_hand_off() {
    let recorded = Recorded::default();
    let _recording = metrics::set_default_local_recorder(&recorded);
    let server = Server::start().await;
    let hand_off = HandOff { max_consecutive: 100, max_time: LONG };
    let client = client_with(&server, Config::default().hand_off(hand_off)).await;
    let first = client.lock("a").lock().await.unwrap();
    let queued: Vec<_> = (0..5).map(|_| waits(&client, "a")).collect();
    let all = async || recorded.of("parklock_waiting") == 5.0;
    eventually(SOON, "five wait", all).await;
    first.unlock().await.unwrap();
    for queued in queued {
        queued.await.unwrap().unwrap().unlock().await.unwrap();
    }
    assert_eq!(recorded.of("parklock_hand_off_total{kind=lock}"), 5.0);
    assert_eq!(recorded.of("parklock_hold_seconds{kind=lock}"), 6.0);
    assert_eq!(recorded.of("parklock_wait_seconds{kind=lock}"), 6.0);
    recorded.nothing_is_held_or_waited_for("hand-offs").await;
}

#[tokio::test]
async fn a_renewal_is_late_by_the_time_since_it_was_due() {
    judged(async || {
        let recorded = Recorded::default();
        let _recording = metrics::set_default_local_recorder(&recorded);
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        proxy.name_script("renew", include_str!("../../lua/lock/renew.lua"));
        let client = comes_in(proxy.url(), quick()).await;
        let guard = client.lock("a").lock().await.unwrap();
        proxy.script("renew").nth(1).cut_before().happened().await;
        let renewed = async || recorded.of("parklock_renew_total{outcome=renewed}") > 0.0;
        eventually(SOON, "it is renewed again", renewed).await;
        assert!(recorded.of("parklock_renew_total{outcome=failed}") > 0.0);
        assert!(recorded.of("parklock_batch_size{request=renew}") > 1.0);
        assert_eq!(recorded.of("parklock_renew_total{outcome=gone}"), 0.0);
        let late = recorded.sum("parklock_renew_lateness_seconds");
        assert!(late > 0.0, "{late} s");
        assert!(recorded.of("parklock_reconnect_total{link=command}") >= 1.0);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// The recorder is the program's code: the client, its guards and its tasks do what they do without one.
#[tokio::test]
async fn a_recorder_that_panics_changes_nothing() {
    struct Panics;
    impl Recorder for Panics {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            panic!("it cannot describe")
        }

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            panic!("it cannot describe")
        }

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            panic!("it cannot describe")
        }

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            panic!("it cannot count")
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            panic!("it cannot count")
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            panic!("it cannot record")
        }
    }
    let _panics = metrics::set_default_local_recorder(&Panics);
    let server = Server::start().await;
    let (ours, theirs) = (client(&server).await, client_with(&server, quick()).await);
    let held = theirs.lock("a").lock().await.unwrap();
    assert!(timeout(A_WHILE, ours.lock("a").lock()).await.is_err());
    let queued = [waits(&ours, "a"), waits(&ours, "a")];
    parked(&server.admin().await, "a", 1).await;
    let (shown, mut least) = (held.hold(), LONG);
    let is_renewed = async || {
        let left = shown.remaining();
        left > std::mem::replace(&mut least, left)
    };
    eventually(SOON, "it is renewed", is_renewed).await;
    held.unlock().await.unwrap();
    for queued in queued {
        timeout(SOON, queued).await.unwrap().unwrap().unwrap().unlock().await.unwrap();
    }
    let lost = ours.lock("b").lock().await.unwrap();
    server.admin().await.cmd::<i64>(&["DEL", &key("b")]).await;
    timeout(SOON, lost.ended()).await.unwrap();
    assert!(lost.unlock().await.is_err());
    for client in [ours, theirs] {
        assert!(timeout(SOON, client.drain(LONG)).await.unwrap());
    }
    assert_eq!(lock_keys(&server.admin().await).await, [""; 0]);
}

#[tokio::test]
async fn a_name_is_a_label_only_if_the_program_says_so() {
    let recorded = Recorded::default();
    let _recording = metrics::set_default_local_recorder(&recorded);
    let server = Server::start().await;
    let plain = client_with(&server, Config::default()).await;
    plain.lock("orders:1").lock().await.unwrap().unlock().await.unwrap();
    let named = |name: &str| name.split_once(':').map(|(group, _)| group.to_owned());
    let labelled = client_with(&server, Config::default().label(named)).await;
    for name in ["orders:1", "orders:2", "{orders}"] {
        labelled.lock(name).lock().await.unwrap().unlock().await.unwrap();
    }
    labelled.fair_lock("orders:3").lock().await.unwrap().unlock().await.unwrap();
    let granted =
        |labels: &str| recorded.of(&format!("parklock_acquire_total{{{labels},outcome=granted}}"));
    assert_eq!(granted("kind=lock"), 2.0, "one of each client");
    assert_eq!(granted("kind=lock,lock=orders"), 2.0);
    assert_eq!(granted("kind=fair,lock=orders"), 1.0);
    assert_eq!(recorded.of("parklock_hold_seconds{kind=lock,lock=orders}"), 2.0);
}

/// The metrics that the manual lists.
fn listed() -> BTreeSet<String> {
    let manual = include_str!("../../docs/operations.md");
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `parklock_"));
    rows.map(|row| format!("parklock_{}", row.split('`').next().expect("a name"))).collect()
}

#[tokio::test]
async fn all_metrics_of_the_manual_are_described_and_happen() {
    judged(async || {
        let recorded = Recorded::default();
        let _recording = metrics::set_default_local_recorder(&recorded);
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        proxy.name_acquires();
        let hand_off = HandOff { max_consecutive: 100, max_time: SOON };
        let ours = comes_in(proxy.url(), quick().hand_off(hand_off)).await;
        let theirs = comes_in(server.url(), quick()).await;
        let admin = server.admin().await;
        assert_eq!(recorded.numbers().described, listed());

        // A message, a hand-off, a batch.
        let held = theirs.lock("a").lock().await.unwrap();
        let queued = [waits(&ours, "a"), waits(&ours, "a")];
        parked(&admin, "a", 1).await;
        let both = async || recorded.of("parklock_waiting") == 2.0;
        eventually(SOON, "both wait", both).await;
        held.unlock().await.unwrap();
        for queued in queued {
            queued.await.unwrap().unwrap().unlock().await.unwrap();
        }
        assert!(recorded.of("parklock_wakeups_total{source=message}") >= 1.0);
        assert!(recorded.of("parklock_wakeups_total{source=subscription}") >= 1.0);

        // A late renewal, and a loss.
        let guard = ours.lock("b").lock().await.unwrap();
        let renewed = async || recorded.of("parklock_renew_lateness_seconds") > 0.0;
        eventually(SOON, "it is renewed", renewed).await;
        admin.cmd::<i64>(&["DEL", &key("b")]).await;
        timeout(SOON, guard.ended()).await.unwrap();
        assert!(recorded.of("parklock_renew_total{outcome=gone}") >= 1.0);

        // An answer that never comes.
        let cut = proxy.script("acquire").nth(1).cut_after();
        let unanswered = ours.lock("c").lock().await.unwrap();
        cut.happened().await;
        unanswered.unlock().await.unwrap();
        assert!(recorded.of("parklock_ghosts_total") >= 1.0);
        sleep(A_WHILE).await;

        assert_eq!(recorded.happened(), {
            let gauges = ["parklock_held".to_owned(), "parklock_waiting".to_owned()];
            listed().into_iter().filter(|name| !gauges.contains(name)).collect()
        });
        recorded.nothing_is_held_or_waited_for("all of it").await;
    })
    .await;
}

/// The server has refused the request, so there is nothing to clean up.
#[tokio::test]
async fn several_locks_that_are_refused_together_leave_no_ghost() {
    let recorded = Recorded::default();
    let _recording = metrics::set_default_local_recorder(&recorded);
    let server = Server::start().await;
    let rules = ["on", ">pass", "~lock:grants", "~lock*:{a}", "&*", "+@all"];
    let user = [&["ACL", "SETUSER", "user"][..], &rules].concat();
    server.admin().await.cmd::<()>(&user).await;
    let client = comes_in(server.url().replace("://", "://user:pass@"), Config::default()).await;
    let refused = client.multi_lock(["a", "b"]).try_lock().await;
    assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
    assert_eq!(recorded.of("parklock_ghosts_total"), 0.0);
    timeout(SOON, client.close()).await.expect("it owes nothing");
}
