//! The watchdog: it renews locks in batches, and detects their loss. `timetable.rs` says which tenures are due, and
//! `tenure/renewal.rs` what to do with each. (A tenure is a client's possession of a lock, from a grant by Redis to its release or
//! loss.)
//!
//! 1. Only an answer from Redis moves a deadline, and only to a later time. Without an answer, the deadline passes.
//! 2. The watchdog believes the answer "gone" at once, even if the deadline is far away.
//! 3. A tenure that has ended is not renewed again. `tenure/ending.rs` decides whether it has ended, not this task.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::core::rhythm::Rhythm;
use crate::core::tenure::Due;
use crate::engine::entry::Tenure;
use crate::engine::entry::tenure::TRACK_AGAIN;
use crate::engine::outages::Outages;
use crate::engine::releaser::Outbox;
use crate::log;
use crate::meters;
use crate::wire::{Commands, Fault, Node, Renewal, Session};

/// The most locks in one renewal script. It blocks the server for about half a millisecond.
const BATCH: usize = 128;

/// The task that renews.
pub(crate) struct Watchdog {
    pub(crate) commands: Commands,
    pub(crate) outbox: Outbox,
    pub(crate) outages: Arc<Outages>,
    pub(crate) rhythm: Rhythm,
    pub(crate) session: Option<Arc<Session>>,
}

impl Watchdog {
    pub(crate) async fn run(self, stop: CancellationToken) {
        let is_connected = |node: Option<&Node>| self.commands.is_connected(node);
        let runs = async {
            tokio::join!(self.renew_in_time(), self.resume(), self.outages.tell(is_connected))
        };
        stop.run_until_cancelled(runs).await;
    }

    async fn renew_in_time(&self) {
        let mut requests = FuturesUnordered::new();
        loop {
            tokio::select! {
                due = self.outbox.timetable.next() => {
                    let (due, untracked) = self.sorted(due);
                    let shares = |tenure: &Arc<Tenure>| tenure.keys.row.family.shares_renewals();
                    let (sharing, others): (Vec<_>, Vec<_>) = due.into_iter().partition(shares);
                    let together = self.commands.together(BATCH);
                    let batches = sharing.chunks(together).chain(others.chunks(1));
                    // A slow request delays no other one.
                    requests.extend(batches.map(|batch| Either::Left(self.renew(batch.to_vec()))));
                    let batches = untracked.chunks(together);
                    requests.extend(batches.map(|batch| Either::Right(self.have_tracked(batch.to_vec()))));
                }
                Some(()) = requests.next() => {}
            }
        }
    }

    /// Renews all tenures when the client has connected anew: by then, others may have found that it does not listen. A tenure that
    /// begins just now sees that itself.
    async fn resume(&self) {
        let Some(session) = &self.session else { return };
        let mut begun = 0;
        loop {
            begun = session.begins_anew(begun).await;
            for tenure in self.outbox.timetable.tenures() {
                if tenure.is_of_former_connection() {
                    self.outbox.timetable.hasten(&tenure);
                }
            }
        }
    }

    /// Keeps the tenures that have to be renewed, and those whose keys the server has to watch. Handles the others.
    fn sorted(&self, mut due: Vec<Arc<Tenure>>) -> (Vec<Arc<Tenure>>, Vec<Arc<Tenure>>) {
        let (now, mut untracked) = (Instant::now(), Vec::new());
        due.retain(|tenure| {
            let Rhythm { max_hold, idle, .. } = self.rhythm_of(tenure);
            match tenure.due(now, max_hold, idle) {
                // Until the answer comes, keep it in the wheel.
                Due::Renew(_) => return self.look_again(tenure),
                Due::Track => {
                    untracked.push(Arc::clone(tenure));
                    self.look_again(tenure);
                    return false;
                }
                Due::Later => {
                    self.look_again(tenure);
                    return false;
                }
                // Redis may still have it, and it would block all callers until its TTL is over.
                Due::Release(ending) => self.outbox.release(ending),
                Due::Ended => {}
            }
            self.outages.passes(tenure, false);
            false
        });
        (due, untracked)
    }

    fn rhythm_of(&self, tenure: &Tenure) -> Rhythm {
        self.rhythm.of(&tenure.keys, tenure.lease)
    }

    async fn renew(&self, batch: Vec<Arc<Tenure>>) {
        meters::batch("renew", batch.len());
        let sent = Instant::now();
        let asked: Vec<_> =
            batch.iter().map(|tenure| tenure.renewal(self.rhythm_of(tenure).timeout)).collect();
        match self.ask(&batch, &asked).await {
            Ok(answers) => {
                for ((tenure, ttl), answer) in batch.iter().zip(asked).zip(answers) {
                    self.answered(tenure, answer, (sent, ttl));
                }
                self.have_tracked(batch).await;
            }
            Err(fault) => {
                meters::renewals("failed", batch.len());
                self.fails(&batch, &fault);
            }
        }
    }

    /// Has the server watch the keys of these tenures, as far as they are not over and it does that for this client.
    async fn have_tracked(&self, mut batch: Vec<Arc<Tenure>>) {
        batch.retain(|tenure| !tenure.is_over() && self.commands.tracks(&tenure.keys));
        let Some(first) = batch.first() else { return };
        let keys: Vec<_> = batch.iter().map(|tenure| &*tenure.keys).collect();
        let tracked = match self.commands.behind_acknowledged(&first.keys) {
            Ok(connection) => connection.track(&keys).await,
            Err(fault) => Err(fault),
        };
        match tracked {
            Ok(true) => {}
            // One of them is gone: a renewal says which.
            Ok(false) => batch.iter().for_each(|tenure| self.outbox.timetable.alarm(tenure)),
            // When the client is connected again, it renews all.
            Err(Fault::NotSent(_)) => {}
            // While a slot moves, for example, neither node tracks its keys.
            Err(fault) if fault.is_passing() => {
                let timetable = &self.outbox.timetable;
                batch.iter().for_each(|tenure| timetable.track_after(tenure, TRACK_AGAIN));
            }
            // The next renewal tries again.
            Err(_) => {}
        }
    }

    async fn ask(
        &self,
        batch: &[Arc<Tenure>],
        asked: &[Duration],
    ) -> Result<Vec<Result<bool, Fault>>, Fault> {
        let renewal = |(tenure, ttl): (_, &Duration)| {
            let Tenure { keys, id, .. }: &Tenure = tenure;
            Renewal { keys, id: *id, ttl: *ttl, count: None }
        };
        let tenures = batch.iter().map(|tenure| &**tenure);
        let renewals: Vec<_> = tenures.zip(asked).map(renewal).collect();
        self.commands.acknowledged(&batch[0].keys)?.renew(&renewals).await
    }

    fn answered(
        &self,
        tenure: &Arc<Tenure>,
        answer: Result<bool, Fault>,
        (sent, ttl): (Instant, Duration),
    ) {
        let outcome = answer.as_ref().map(|is_ours| if *is_ours { "renewed" } else { "gone" });
        meters::renewals(outcome.unwrap_or("failed"), 1);
        match answer {
            Ok(true) => {
                // If the tenure is over, the next look sweeps it.
                if tenure.prolong(sent, ttl) {
                    tenure.with(|tenure| tenure.lifetime.counts_from(sent));
                }
                if tenure.is_of_former_connection() {
                    // The client has connected anew while this renewal was under way.
                    self.outbox.timetable.hasten(tenure);
                }
                self.outages.passes(tenure, true);
                let next = self.rhythm_of(tenure).next(Instant::now());
                tenure.with(|tenure| tenure.lifetime.renew_at(next));
                self.look_again(tenure);
            }
            Ok(false) => {
                self.outbox.gone(tenure);
                self.outages.passes(tenure, true);
            }
            Err(fault) => self.fails(std::slice::from_ref(tenure), &fault),
        }
    }

    /// The client tries again. All of these are on one server.
    fn fails(&self, tenures: &[Arc<Tenure>], fault: &Fault) {
        let (name, locks) = (tenures[0].keys.name(), tenures.len());
        log::debug!(?name, locks, %fault, "not renewed");
        self.outages.renewals_fail(self.commands.node(&tenures[0].keys), tenures, fault);
        for tenure in tenures {
            let again = self.rhythm_of(tenure).again(Instant::now());
            tenure.with(|tenure| tenure.check_again(again));
            self.look_again(tenure);
        }
    }

    /// Schedules another look at the tenure. Returns `false` if the client is closed.
    fn look_again(&self, tenure: &Arc<Tenure>) -> bool {
        self.outbox.timetable.plan(tenure, self.rhythm.idle)
    }
}
