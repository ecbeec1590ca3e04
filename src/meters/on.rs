//! Reports events to the program's recorder.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use dashmap::DashMap;
use metrics::{Gauge, IntoF64, Key, Label, Level, Metadata, Unit, with_recorder};
use tokio::time::Instant;

use crate::wakers::guarded;

static METADATA: Metadata<'static> = Metadata::new("parklock", Level::INFO, Some(module_path!()));

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Counter,
    Gauge,
    Histogram,
}

/// One metric: its name, type, labels, and description.
struct Metric {
    name: &'static str,
    sort: Sort,
    unit: Unit,
    #[cfg_attr(not(test), expect(dead_code, reason = "held against docs/operations.md"))]
    labels: &'static [&'static str],
    says: &'static str,
}

/// A constant for each metric, and all of them.
macro_rules! metrics {
    ($($id:ident = $sort:ident of $unit:ident, $name:literal $labels:tt: $says:literal;)*) => {
        $(const $id: Metric = Metric {
            name: $name,
            sort: Sort::$sort,
            unit: Unit::$unit,
            labels: &$labels,
            says: $says,
        };)*

        static ALL: &[Metric] = &[$($id),*];
    };
}

metrics! {
    ACQUIRE = Counter of Count, "parklock_acquire_total" ["kind", "lock", "outcome"]:
        "Calls that asked for a lock, by how they ended";
    WAIT = Histogram of Seconds, "parklock_wait_seconds" ["kind", "lock"]:
        "Time from a call to its grant";
    HOLD = Histogram of Seconds, "parklock_hold_seconds" ["kind", "lock"]:
        "Time from a grant to the end of the hold: released or lost";
    HELD = Gauge of Count, "parklock_held" ["kind", "lock"]:
        "Holds that this process currently has";
    WAITING = Gauge of Count, "parklock_waiting" ["kind", "lock"]:
        "Callers of this process that are waiting";
    LOST = Counter of Count, "parklock_lost_total" ["kind", "lock", "reason"]:
        "Holds that ended before they were released";
    HAND_OFF = Counter of Count, "parklock_hand_off_total" ["kind", "lock"]:
        "Holds handed from caller to caller of this process, without a request";
    RENEW = Counter of Count, "parklock_renew_total" ["outcome"]:
        "Renewals by the watchdog, by their answer";
    LATENESS = Histogram of Seconds, "parklock_renew_lateness_seconds" []:
        "Time from when a renewal was due until it was confirmed, repetitions included";
    GHOSTS = Counter of Count, "parklock_ghosts_total" []:
        "Requests for a lock whose caller never got the answer, so that the client cleans up after them";
    WAKEUPS = Counter of Count, "parklock_wakeups_total" ["source"]:
        "Wake-ups of waiters, by their cause";
    RECONNECT = Counter of Count, "parklock_reconnect_total" ["link"]:
        "Reconnections";
    ROUND_TRIP = Histogram of Seconds, "parklock_round_trip_seconds" []:
        "Time from sending a script to its answer";
    BATCH = Histogram of Count, "parklock_batch_size" ["request"]:
        "Locks in one request shared by several callers";
}

/// Describes each metric, and starts the counters at zero. Recorders allow repeated descriptions.
pub(crate) fn describe() {
    guarded(|| {
        with_recorder(|recorder| {
            for Metric { name, sort, unit, says, .. } in ALL {
                let (name, unit, says) = ((*name).into(), Some(*unit), (*says).into());
                match sort {
                    Sort::Counter => recorder.describe_counter(name, unit, says),
                    Sort::Gauge => recorder.describe_gauge(name, unit, says),
                    Sort::Histogram => recorder.describe_histogram(name, unit, says),
                }
            }
        })
    });
    begin_counters();
}

/// A counter that appears with its first event shows no increase, and raises no alarm. So counters start at zero.
fn begin_counters() {
    ghosts(0);
    ["renewed", "gone", "failed"].iter().for_each(|outcome| renewals(outcome, 0));
    for source in ["message", "ttl", "subscription"] {
        labelled(&WAKEUPS, "source", source, |key| count(key, 0));
    }
}

/// Adds to a counter. Each call of a recorder is guarded: it is the program's code, and may panic.
fn count(key: &Key, more: u64) {
    guarded(|| {
        with_recorder(|recorder| recorder.register_counter(key, &METADATA)).increment(more);
    });
}

/// Adds a sample to a histogram.
fn record(key: &Key, sample: impl IntoF64) {
    guarded(|| {
        with_recorder(|recorder| recorder.register_histogram(key, &METADATA)).record(sample);
    });
}

/// How the names of locks become labels, and what is kept for each label.
#[derive(Clone, Default)]
pub(crate) struct Labels {
    of: Option<Labeller>,
    known: Arc<DashMap<(&'static str, Option<String>), Meters>>,
}

type Labeller = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Labels {
    pub(crate) fn new(of: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { of: Some(Arc::new(of)), ..Self::default() }
    }

    /// The meters of a lock of this kind and name.
    pub(crate) fn meters<'a>(
        &self,
        kind: &'static str,
        name: impl FnOnce() -> Cow<'a, str>,
    ) -> Meters {
        let id = (kind, self.of.as_ref().and_then(|of| of(&name())));
        if let Some(known) = self.known.get(&id) {
            return known.clone();
        }
        let made = Series::new(kind, id.1.as_deref());
        made.begin_counters();
        self.known.entry(id).or_insert(Meters(Some(Arc::new(made)))).clone()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.of.is_some() { "Labels" } else { "None" })
    }
}

/// The metrics of all locks of one kind and label. `None`: nothing is counted.
#[derive(Clone, Default)]
pub(crate) struct Meters(Option<Arc<Series>>);

/// The keys, with their labels. They are made once, since each lookup in a recorder needs one.
struct Series {
    granted: Key,
    busy: Key,
    timeout: Key,
    cancelled: Key,
    error: Key,
    wait: Key,
    hold: Key,
    held: Key,
    waiting: Key,
    hand_off: Key,
    /// One key per reason, which is a label.
    lost: [(&'static str, Key); 3],
}

impl Series {
    fn new(kind: &'static str, label: Option<&str>) -> Self {
        let key = |metric: &Metric, more: Option<(&'static str, &'static str)>| {
            let mut labels = vec![Label::from_static_parts("kind", kind)];
            labels.extend(label.map(|label| Label::new("lock", label.to_owned())));
            labels.extend(more.map(|(key, value)| Label::from_static_parts(key, value)));
            Key::from_parts(metric.name, labels)
        };
        let outcome = |outcome| key(&ACQUIRE, Some(("outcome", outcome)));
        let lost = ["deadline", "gone", "closed"];
        Self {
            granted: outcome("granted"),
            busy: outcome("busy"),
            timeout: outcome("timeout"),
            cancelled: outcome("cancelled"),
            error: outcome("error"),
            wait: key(&WAIT, None),
            hold: key(&HOLD, None),
            held: key(&HELD, None),
            waiting: key(&WAITING, None),
            hand_off: key(&HAND_OFF, None),
            lost: lost.map(|reason| (reason, key(&LOST, Some(("reason", reason))))),
        }
    }

    fn begin_counters(&self) {
        let Self { granted, busy, timeout, cancelled, error, hand_off, lost, .. } = self;
        let counters = [granted, busy, timeout, cancelled, error, hand_off];
        let all = counters.into_iter().chain(lost.iter().map(|(_, key)| key));
        all.for_each(|key| count(key, 0));
    }

    fn lost(&self, why: &'static str) {
        let key = self.lost.iter().find(|(reason, _)| *reason == why);
        key.iter().for_each(|(_, key)| count(key, 1));
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meters")
    }
}

impl Meters {
    /// A caller asks for the lock. `is_once`: the caller does not wait.
    pub(crate) fn asks(&self, is_once: bool) -> LockCall {
        LockCall { series: self.0.clone(), since: Instant::now(), is_once }
    }

    /// A caller waits, until the value is dropped.
    pub(crate) fn waits(&self) -> Waits {
        Waits { _up: self.0.as_ref().map(|series| Up::new(&series.waiting)) }
    }

    /// A hold was lost, which its holder found out by unlocking.
    pub(crate) fn lost(&self, why: &'static str) {
        self.0.iter().for_each(|series| series.lost(why));
    }
}

/// Adds one to a gauge, until it is dropped. It counts down in the recorder in which it counted up, even if the program
/// has since installed another.
struct Up(Option<Gauge>);

impl Up {
    fn new(key: &Key) -> Self {
        let mut counted = None;
        guarded(|| {
            let gauge = with_recorder(|recorder| recorder.register_gauge(key, &METADATA));
            gauge.increment(1.0);
            counted = Some(gauge);
        });
        Self(counted)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        guarded(|| self.0.iter().for_each(|gauge| gauge.decrement(1.0)));
    }
}

/// A call that asks for a lock. If it is dropped before an outcome is set, the call was cancelled.
pub(crate) struct LockCall {
    series: Option<Arc<Series>>,
    since: Instant,
    is_once: bool,
}

impl LockCall {
    pub(crate) fn came_to<E>(mut self, is_granted: Result<bool, E>) {
        let Some(series) = self.series.take() else { return };
        match is_granted {
            Ok(true) => {
                record(&series.wait, self.since.elapsed());
                count(&series.granted, 1);
            }
            Ok(false) if self.is_once => count(&series.busy, 1),
            Ok(false) => count(&series.timeout, 1),
            Err(_) => count(&series.error, 1),
        }
    }
}

impl Drop for LockCall {
    fn drop(&mut self) {
        if let Some(series) = self.series.take() {
            count(&series.cancelled, 1);
        }
    }
}

/// A caller that waits.
pub(crate) struct Waits {
    _up: Option<Up>,
}

/// The holds of a tenure that have not ended. There are few, almost always one.
#[derive(Default)]
pub(crate) struct HoldTimes {
    first: Option<HoldTime>,
    others: Vec<HoldTime>,
}

/// One hold, which ends when this is dropped.
struct HoldTime {
    hold: u16,
    since: Instant,
    series: Arc<Series>,
    _up: Up,
}

impl Drop for HoldTime {
    fn drop(&mut self) {
        record(&self.series.hold, self.since.elapsed());
    }
}

impl HoldTimes {
    /// The hold with this number begins. Every hold but the first began without a request.
    pub(crate) fn begin(&mut self, meters: &Meters, hold: u16) {
        let Some(series) = &meters.0 else { return };
        if hold > 0 {
            count(&series.hand_off, 1);
        }
        let (up, series) = (Up::new(&series.held), Arc::clone(series));
        let held = HoldTime { hold, since: Instant::now(), series, _up: up };
        match &mut self.first {
            first @ None => *first = Some(held),
            Some(_) => self.others.push(held),
        }
    }

    /// The hold with this number has ended. The caller drops the result after unlocking the tenure.
    pub(crate) fn end(&mut self, hold: u16) -> Self {
        let first = self.first.take_if(|held| held.hold == hold).or_else(|| {
            let at = self.others.iter().position(|held| held.hold == hold)?;
            Some(self.others.swap_remove(at))
        });
        Self { first, others: Vec::new() }
    }

    /// All holds have ended: see [`end`](Self::end).
    pub(crate) fn end_all(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The holds were lost, not released.
    pub(crate) fn lost(self, why: &'static str) {
        self.first.iter().chain(&self.others).for_each(|held| held.series.lost(why));
    }
}

/// Since when a renewal has been due.
#[derive(Default)]
pub(crate) struct Lateness(Option<Instant>);

impl Lateness {
    /// A renewal is due since `at`, unless an earlier one is still open.
    pub(crate) fn due(&mut self, at: Instant) {
        self.0.get_or_insert(at);
    }

    /// The server has confirmed the renewal.
    pub(crate) fn renewed(&mut self) {
        if let Some(due) = self.0.take() {
            static KEY: Key = Key::from_static_name(LATENESS.name);
            record(&KEY, due.elapsed());
        }
    }
}

/// This many renewals had this outcome: `renewed`, `gone` or `failed`.
pub(crate) fn renewals(outcome: &'static str, tenures: usize) {
    labelled(&RENEW, "outcome", outcome, |key| count(key, tenures as u64));
}

/// The client has to clean up after a request for a lock, since its caller never got the answer.
pub(crate) fn ghost() {
    ghosts(1);
}

fn ghosts(more: u64) {
    static KEY: Key = Key::from_static_name(GHOSTS.name);
    count(&KEY, more);
}

/// This many waiters were woken: by a `message`, by the `ttl`, or because their `subscription` began or ended.
pub(crate) fn woken(source: &'static str, waiters: impl FnOnce() -> usize) {
    let waiters = waiters();
    if waiters > 0 {
        labelled(&WAKEUPS, "source", source, |key| count(key, waiters as u64));
    }
}

/// A link has connected. `again`: it was connected before.
pub(crate) fn connected(link: &'static str, again: bool) {
    labelled(&RECONNECT, "link", link, |key| count(key, u64::from(again)));
}

/// A script that was sent at this time was answered.
pub(crate) fn round_trip(sent: Instant) {
    static KEY: Key = Key::from_static_name(ROUND_TRIP.name);
    record(&KEY, sent.elapsed());
}

/// A request covers this many locks: `acquire`, `release` or `renew`.
pub(crate) fn batch(request: &'static str, size: usize) {
    labelled(&BATCH, "request", request, |key| record(key, size as f64));
}

/// Calls `act` with the key of this label, which is made once.
fn labelled(metric: &Metric, label: &'static str, value: &'static str, act: impl FnOnce(&Key)) {
    static KEYS: LazyLock<DashMap<(&str, &str), Key>> = LazyLock::new(DashMap::new);
    let id = (metric.name, value);
    if let Some(key) = KEYS.get(&id) {
        return act(&key);
    }
    let made = Key::from_parts(metric.name, vec![Label::from_static_parts(label, value)]);
    let key = KEYS.entry(id).or_insert(made).clone();
    act(&key);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Labels that Prometheus itself puts on a series.
    const OF_PROMETHEUS: [&str; 4] = ["le", "instance", "job", "__name__"];

    fn read(file: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    fn is_word(character: char) -> bool {
        character.is_ascii_alphanumeric() || character == '_'
    }

    /// The metrics that a text names, each with the rest of the text.
    fn named(text: &str) -> impl Iterator<Item = (&str, &str)> {
        text.match_indices("parklock_").map(|(at, _)| {
            let end = text[at..].find(|c| !is_word(c)).map_or(text.len(), |length| at + length);
            (&text[at..end], &text[end..])
        })
    }

    /// The metric of a series, which has a suffix if it is a part of a histogram.
    fn metric_of(series: &str) -> Option<&'static Metric> {
        let parts = ["_bucket", "_sum", "_count"];
        let part_of = |metric: &Metric| {
            let part = series.strip_prefix(metric.name);
            metric.sort == Sort::Histogram && part.is_some_and(|part| parts.contains(&part))
        };
        ALL.iter().find(|metric| match metric.sort {
            Sort::Histogram => part_of(metric),
            Sort::Counter | Sort::Gauge => metric.name == series,
        })
    }

    /// The labels of a selector, if the text begins with one: `{kind="lock",reason!="closed"}`.
    fn selected(text: &str) -> Vec<&str> {
        let Some(inside) = text.strip_prefix('{').and_then(|text| text.split('}').next()) else {
            return Vec::new();
        };
        let labels = inside.split("\",").filter(|part| !part.trim().is_empty());
        labels.map(|part| part.trim().split(|c| !is_word(c)).next().unwrap_or_default()).collect()
    }

    /// The labels in the `by (..)` clauses of a text.
    fn grouped(text: &str) -> impl Iterator<Item = &str> {
        let lists = text.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        lists.flat_map(|list| list.split(',').map(str::trim))
    }

    /// The errors in the metrics and labels of a text, and how many metrics it names.
    fn mistakes(text: &str) -> (Vec<String>, usize) {
        let (mut wrong, mut names) = (Vec::new(), 0);
        let text = &text.replace("\\\"", "\""); // as JSON writes quotes in a text
        for (series, rest) in named(text) {
            names += 1;
            match metric_of(series) {
                None => wrong.push(format!("there is no {series}")),
                Some(metric) => wrong.extend(
                    selected(rest)
                        .into_iter()
                        .filter(|label| !has_label(metric, label))
                        .map(|label| format!("{series} has no label {label:?}")),
                ),
            }
        }
        let known = |label: &&str| !ALL.iter().any(|metric| has_label(metric, label));
        wrong.extend(grouped(text).filter(known).map(|label| format!("no metric has {label:?}")));
        (wrong, names)
    }

    fn has_label(metric: &Metric, label: &str) -> bool {
        metric.labels.contains(&label) || OF_PROMETHEUS.contains(&label)
    }

    #[test]
    fn the_board_and_the_alerts_name_what_exists() {
        for (file, least) in [("docs/grafana/parklock.json", 20), ("docs/grafana/alerts.yml", 6)] {
            let (wrong, names) = mistakes(&read(file));
            assert_eq!(wrong, Vec::<String>::new(), "in {file}");
            assert!(names >= least, "{file} names {names} metrics");
        }
    }

    #[test]
    fn the_board_shows_every_metric() {
        let board = read("docs/grafana/parklock.json");
        let shown: BTreeSet<_> =
            named(&board).filter_map(|(series, _)| metric_of(series)).map(|m| m.name).collect();
        let all: BTreeSet<_> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(shown, all);
    }

    #[test]
    fn a_metric_or_a_label_that_does_not_exist_would_be_found() {
        let found = |text: &str| mistakes(text).0.len();
        assert_eq!(found("rate(parklock_acquire_total{outcome=\"error\"}[5m])"), 0);
        assert_eq!(found("rate(parklock_acquires_total[5m])"), 1);
        assert_eq!(found("rate(parklock_acquire_total{result=\"error\"}[5m])"), 1);
        assert_eq!(found("parklock_lost_total{kind=~\"a,b\", why!=\"closed\"}"), 1);
        assert_eq!(found("parklock_wait_seconds"), 1, "a histogram has parts");
        assert_eq!(found("parklock_held_bucket"), 1, "a gauge has none");
        assert_eq!(found("sum by (le, kind) (rate(parklock_wait_seconds_bucket[5m]))"), 0);
        assert_eq!(found("sum by (colour) (parklock_held)"), 1);
        assert_eq!(found("\"expr\": \"parklock_held{kind=\\\"lock\\\"}\""), 0);
        assert_eq!(found("\"expr\": \"parklock_held{sort=\\\"lock\\\"}\""), 1);
    }

    /// The lines of the table in docs/operations.md begin like this: | `name` | counter | labels |
    #[test]
    fn the_manual_lists_all_metrics_with_their_labels() {
        let manual = read("docs/operations.md");
        let rows = manual.lines().filter_map(|line| line.strip_prefix("| `parklock_"));
        let listed: BTreeSet<_> = rows
            .map(|row| {
                let mut cells = row.split('|').map(str::trim);
                let name = cells.next().unwrap_or_default().trim_end_matches('`');
                let (sort, labels) = (cells.next(), cells.next().unwrap_or_default());
                let labels = labels.split('`').skip(1).step_by(2).collect::<Vec<_>>();
                format!("parklock_{name} {} {labels:?}", sort.unwrap_or_default())
            })
            .collect();
        let sort = |sort| match sort {
            Sort::Counter => "counter",
            Sort::Gauge => "gauge",
            Sort::Histogram => "histogram",
        };
        let all = ALL.iter().map(|m| format!("{} {} {:?}", m.name, sort(m.sort), m.labels));
        assert_eq!(listed, all.collect());
    }
}
