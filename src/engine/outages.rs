//! What the log says while a server fails: a log line when that begins, one each few seconds, and one when it is over. Their number
//! depends neither on how many locks are held nor on how many callers wait.
//!
//! A server fails while locks that are held are not renewed there, or when its requests for locks have failed for a second.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::field::{debug, display};

use crate::core::tenure::Ended;
use crate::engine::entry::Tenure;
use crate::failures::in_ms;
use crate::keys::TenureId;
use crate::kinds::Holders;
use crate::log;
use crate::mutex::Mutex;
use crate::pause::sleep_until_if;
use crate::wire::{Fault, Node};

/// Callers ride out a shorter outage, and it is not worth a warning.
pub(crate) const LONG_OUTAGE: Duration = Duration::from_secs(1);

/// The least time between two lines that say that a server still fails.
const APART: Duration = Duration::from_secs(5);

/// The first log line about locks waits so long, so that it counts all that are due at the same time.
const GATHER: Duration = Duration::from_millis(100);

/// A node of a cluster at which nothing has failed for so long is out of use: its slots have moved. A failure that
/// the log did not tell of is forgotten after so long.
const OUT_OF_USE: Duration = Duration::from_secs(30);

/// How many lost locks the last log line names. The log has named each of them already.
const NAMED: usize = 5;

/// The servers of one client that fail now.
pub(crate) struct Outages {
    is_on: AtomicBool,
    outages: Mutex<Vec<Outage>>,
    /// There may be something to say sooner than planned.
    news: Notify,
    /// How many callers of this client wait.
    waiters: Arc<AtomicUsize>,
    is_cluster: bool,
}

/// The outage of one server.
struct Outage {
    /// A node of a cluster. `None`: the only server; or, in a cluster, whichever node should have the slot.
    server: Option<Node>,
    /// The cluster may use other nodes by now.
    is_of_cluster: bool,
    since: Instant,
    /// When something last failed, and how.
    failed: Instant,
    fault: Fault,
    /// When the last log line was written, if there was one.
    said: Option<Instant>,
    /// Since when requests for locks fail, if they do.
    calls: Option<Instant>,
    /// How many requests for locks have failed.
    requests: usize,
    /// The locks that are held and not renewed.
    unrenewed: BTreeMap<TenureId, Arc<Tenure>>,
    /// The most locks that were not renewed at once, and the first of them.
    most: usize,
    name: Option<String>,
    /// The server has done its work since something last failed.
    works: bool,
    /// A node of a cluster at which nothing fails any more, since nothing is asked there.
    is_out_of_use: bool,
    lost: usize,
    names: Vec<String>,
}

impl Outages {
    pub(crate) fn new(waiters: Arc<AtomicUsize>, is_cluster: bool) -> Self {
        let (is_on, outages, news) = (AtomicBool::new(false), Mutex::default(), Notify::new());
        Self { is_on, outages, news, waiters, is_cluster }
    }

    /// A request for a lock has failed at this server.
    pub(crate) fn call_fails(&self, server: Option<Node>, fault: &Fault) {
        self.fails(server, fault, |outage| {
            outage.requests += 1;
            let since = *outage.calls.get_or_insert(outage.failed);
            outage.failed - since >= LONG_OUTAGE
        });
    }

    /// A request for a lock was answered by this server.
    pub(crate) fn call_answered(&self, server: impl FnOnce() -> Option<Node>, is_grant: bool) {
        // Usually there is no outage, and no mutex to lock.
        if !self.is_on.load(Ordering::SeqCst) {
            return;
        }
        let (server, mut outages) = (server(), self.outages.lock());
        let Some(outage) = outages.iter_mut().find(|outage| outage.server == server) else {
            return;
        };
        // If too few replicas acknowledge, only a grant says that this is over.
        if is_grant || !matches!(outage.fault, Fault::Unacknowledged(_)) {
            (outage.calls, outage.works) = (None, true);
            self.clear(&mut outages);
        }
    }

    /// The server has not renewed these tenures.
    pub(crate) fn renewals_fail<'a>(
        &self,
        server: Option<Node>,
        tenures: impl IntoIterator<Item = &'a Arc<Tenure>>,
        fault: &Fault,
    ) {
        let is_held = |tenure: &&Arc<Tenure>| {
            tenure.keys.row.holders != Holders::Notified && tenure.holds() > 0
        };
        let held: Vec<_> = tenures.into_iter().filter(is_held).map(Arc::clone).collect();
        let Some(first) = held.first() else { return };
        let name = || first.keys.name().into_owned();
        self.fails(server, fault, |outage| {
            outage.name.get_or_insert_with(name);
            outage.unrenewed.extend(held.iter().map(|tenure| (tenure.id, Arc::clone(tenure))));
            outage.most = outage.most.max(outage.unrenewed.len());
            false
        });
    }

    /// The tenure is renewed again, or has ended.
    pub(crate) fn passes(&self, tenure: &Tenure, is_renewed: bool) {
        if !self.is_on.load(Ordering::SeqCst) {
            return;
        }
        let mut outages = self.outages.lock();
        // Meanwhile its slot may have moved: so look at all of them.
        for outage in &mut *outages {
            if let Some(tenure) = outage.unrenewed.remove(&tenure.id) {
                outage.works |= is_renewed;
                outage.notes_loss(&tenure);
            }
        }
        self.clear(&mut outages);
    }

    /// Writes the lines whose time has come.
    pub(crate) async fn tell(&self, is_connected: impl Fn(Option<&Node>) -> bool) -> Infallible {
        loop {
            tokio::select! {
                () = sleep_until_if(self.next_line()) => self.tell_now(&is_connected),
                () = self.news.notified() => {}
            }
        }
    }

    /// Something has failed. `notes` says whether that is to be said now, if nothing was said before.
    fn fails(&self, server: Option<Node>, fault: &Fault, notes: impl FnOnce(&mut Outage) -> bool) {
        let (now, mut outages) = (Instant::now(), self.outages.lock());
        // Under the mutex: otherwise an answer could clear it in between, and the outage would stay.
        self.is_on.store(true, Ordering::SeqCst);
        let known = outages.iter().position(|outage| outage.server == server);
        let at = known.unwrap_or_else(|| {
            outages.push(Outage::new((server, self.is_cluster), now, fault.clone()));
            outages.len() - 1
        });
        let outage = &mut outages[at];
        let planned = outage.next_line();
        (outage.failed, outage.fault, outage.works) = (now, fault.clone(), false);
        if notes(outage) && outage.said.is_none() {
            outage.begins(self.waiting());
        }
        if outage.next_line() != planned {
            self.news.notify_one();
        }
    }

    fn next_line(&self) -> Option<Instant> {
        self.outages.lock().iter().filter_map(Outage::next_line).min()
    }

    fn tell_now(&self, is_connected: impl Fn(Option<&Node>) -> bool) {
        let (now, mut outages) = (Instant::now(), self.outages.lock());
        for outage in &mut *outages {
            if outage.next_line().is_some_and(|at| at <= now) {
                // A server that has not answered is connected only if it has answered something since: a heartbeat, or
                // the first requests of a new connection.
                outage.works |= outage.is_silent() && is_connected(outage.server.as_ref());
                outage.tell(self.waiting(), now);
            }
        }
        self.clear(&mut outages);
    }

    fn waiting(&self) -> usize {
        self.waiters.load(Ordering::Relaxed)
    }

    /// Removes the outages that are over.
    fn clear(&self, outages: &mut Vec<Outage>) {
        outages.retain_mut(|outage| {
            outage.waits_for_success();
            let goes_on = outage.calls.is_some() || !outage.unrenewed.is_empty();
            if !goes_on {
                outage.ends(self.waiting());
            }
            goes_on
        });
        if outages.is_empty() {
            self.is_on.store(false, Ordering::SeqCst);
        }
    }
}

impl Outage {
    fn new((server, is_of_cluster): (Option<Node>, bool), now: Instant, fault: Fault) -> Self {
        Self {
            server,
            is_of_cluster,
            since: now,
            failed: now,
            fault,
            said: None,
            calls: None,
            requests: 0,
            unrenewed: BTreeMap::new(),
            most: 0,
            name: None,
            works: false,
            is_out_of_use: false,
            lost: 0,
            names: Vec::new(),
        }
    }

    /// When there is something to say or to find out next.
    fn next_line(&self) -> Option<Instant> {
        match self.said {
            None if !self.unrenewed.is_empty() => Some(self.since + GATHER),
            Some(said)
                if self.failed > said
                    || self.works
                    || self.is_silent()
                    || !self.unrenewed.is_empty() =>
            {
                Some(said + APART)
            }
            None => Some(self.failed + OUT_OF_USE),
            Some(_) => self.is_of_cluster.then(|| self.failed + OUT_OF_USE),
        }
    }

    /// Whether the server did not answer, and nobody has asked it since the last log line.
    fn is_silent(&self) -> bool {
        let is_unanswered = matches!(self.fault, Fault::NotSent(_) | Fault::Unanswered(_));
        is_unanswered && self.unrenewed.is_empty() && self.said.is_some_and(|at| at >= self.failed)
    }

    fn tell(&mut self, waiting: usize, now: Instant) {
        // A holder that gives its lock back does not say so here.
        let (over, rest): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.unrenewed).into_iter().partition(|(_, held)| held.is_over());
        self.unrenewed = rest;
        over.values().for_each(|tenure| self.notes_loss(tenure));
        let Some(said) = self.said else {
            if self.unrenewed.is_empty() {
                self.calls = None;
            } else {
                self.begins(waiting);
            }
            return;
        };
        if self.failed > said {
            self.goes_on(waiting);
            return;
        }
        // This looks again later: a lock that was not renewed here may fail at another node by now.
        self.said = Some(now);
        if self.works || self.is_left(now) {
            // Locks are renewed, and nobody asks for one; or the cluster does not use this node any more.
            self.calls = None;
            self.is_out_of_use = !self.works;
        }
    }

    fn is_left(&self, now: Instant) -> bool {
        let is_unused = self.is_of_cluster && self.unrenewed.is_empty();
        is_unused && now >= self.failed + OUT_OF_USE
    }

    /// If all locks that were not renewed have ended, that does not say that the server works: this is over when it does.
    fn waits_for_success(&mut self) {
        let is_known = self.works || self.is_out_of_use || self.said.is_none();
        if is_known || self.calls.is_some() || !self.unrenewed.is_empty() {
            return;
        }
        self.calls = Some(self.failed);
        if self.lost > 0 {
            let (server, lost, names) =
                (self.server.as_ref().map(display), self.lost, debug(&self.names));
            log::warn!(server, lost, names, "the locks that were not renewed have ended");
        }
    }

    fn notes_loss(&mut self, tenure: &Tenure) {
        if tenure.with(|tenure| tenure.ended == Some(Ended::Lost)) {
            self.lost += 1;
            if self.names.len() < NAMED {
                self.names.push(tenure.keys.name().into_owned());
            }
        }
    }

    fn begins(&mut self, waiting: usize) {
        self.said = Some(Instant::now());
        let server = self.server.as_ref().map(display);
        let (name, locks, fault) = (&self.name, self.most, &self.fault);
        if self.most > 0 {
            let name = name.as_ref().map(debug);
            log::warn!(server, locks, name, waiting, %fault, "locks are not renewed: the client tries again");
        } else {
            log::warn!(server, waiting, %fault, "no request for a lock has succeeded for a second: the client tries again");
        }
    }

    fn goes_on(&mut self, waiting: usize) {
        self.said = Some(Instant::now());
        let server = self.server.as_ref().map(display);
        let (since, fault) = (in_ms(self.since.elapsed()), &self.fault);
        let (locks, lost, requests) = (self.unrenewed.len(), self.lost, self.requests);
        log::warn!(server, ?since, locks, lost, waiting, requests, %fault, "the server still fails");
    }

    fn ends(&mut self, waiting: usize) {
        if self.said.is_none() {
            if self.most == 0 {
                return;
            }
            self.begins(waiting);
        }
        let server = self.server.as_ref().map(display);
        let (lost, names) = (self.lost, &self.names);
        let names = (lost > 0).then_some(debug(names));
        if self.works {
            let after = in_ms(self.since.elapsed());
            let requests = (self.requests > 0).then_some(self.requests);
            log::warn!(server, ?after, lost, names, requests, "the outage is over");
        } else {
            let after = in_ms(self.failed - self.since);
            log::warn!(server, ?after, lost, names, "nothing is asked there any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::engine::entry::tenure::tests::begun;

    fn outages() -> Outages {
        Outages::new(Arc::default(), true)
    }

    fn down() -> Fault {
        Fault::from_text("CLUSTERDOWN The cluster is down")
    }

    fn node() -> Option<Node> {
        Some(Node::new("a", 1))
    }

    /// Nobody has asked in between, so nobody knows how the server was.
    #[tokio::test(start_paused = true)]
    async fn two_failures_far_apart_are_no_outage() {
        for is_cluster in [false, true] {
            let outages = Outages::new(Arc::default(), is_cluster);
            for _ in 0..2 {
                outages.call_fails(None, &down());
                assert!(outages.outages.lock()[0].said.is_none());
                advance(OUT_OF_USE).await;
                assert_eq!(outages.next_line(), Some(Instant::now()));
                outages.tell_now(|_| true);
                assert!(!outages.is_on.load(Ordering::SeqCst));
            }
        }
    }

    /// The slot of the lock has moved, and the other node does not renew it either.
    #[tokio::test(start_paused = true)]
    async fn a_node_that_works_again_is_looked_at_seldom_although_a_lock_is_not_renewed() {
        let (outages, (_table, hold)) = (outages(), begun());
        outages.renewals_fail(node(), [&hold.tenure], &down());
        advance(GATHER).await;
        outages.tell_now(|_| false);
        outages.call_answered(node, true);
        advance(APART).await;
        outages.tell_now(|_| true);
        assert!(outages.next_line().is_some_and(|at| at > Instant::now()));
    }

    /// As long as no node has the slot, nobody knows at which one a request fails. Later answers come from another one.
    #[tokio::test(start_paused = true)]
    async fn an_outage_of_whichever_node_should_have_the_slot_ends() {
        let outages = outages();
        outages.call_fails(None, &down());
        advance(LONG_OUTAGE).await;
        outages.call_fails(None, &down());
        outages.call_answered(node, true);
        advance(OUT_OF_USE).await;
        outages.tell_now(|_| false);
        advance(OUT_OF_USE).await;
        outages.tell_now(|_| false);
        assert!(!outages.is_on.load(Ordering::SeqCst));
    }
}
