//! What the log says while a server fails: a line when that begins, one each few seconds, and one when it is over. Their number
//! depends neither on how many locks are held nor on how many callers wait.
//!
//! A server fails while locks that are held are not renewed there, or when its requests for locks have failed for a second.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::field::{debug, display};

use crate::engine::entry::Tenure;
use crate::keys::TenureId;
use crate::kinds::Holders;
use crate::wire::{Fault, Node};

/// Callers ride out a shorter outage, and it is not worth a warning.
pub(crate) const LONG_OUTAGE: Duration = Duration::from_secs(1);

/// The least time between two lines that say that a server still fails.
const APART: Duration = Duration::from_secs(5);

/// The first line about locks waits so long, so that it counts all that are due at the same time.
const GATHER: Duration = Duration::from_millis(100);

/// A node of a cluster at which nothing has failed for so long is out of use: its slots have moved.
const OUT_OF_USE: Duration = Duration::from_secs(30);

/// How many lost locks the last line names. The log has named each of them already.
const NAMED: usize = 5;

/// The servers of one client that fail now.
pub(crate) struct Outages {
    is_on: AtomicBool,
    /// Nodes of a cluster by name; `None` is the only server.
    servers: Mutex<BTreeMap<Option<Node>, Outage>>,
    /// There may be something to say sooner than planned.
    news: Notify,
    /// How many callers of this client wait.
    waiters: Arc<AtomicUsize>,
}

/// The outage of one server.
struct Outage {
    since: Instant,
    /// When something last failed, and how.
    failed: Instant,
    fault: Fault,
    /// When the last line was written, if there was one.
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
    pub(crate) fn new(waiters: Arc<AtomicUsize>) -> Self {
        let (is_on, servers, news) = (AtomicBool::new(false), Mutex::default(), Notify::new());
        Self { is_on, servers, news, waiters }
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
        let (server, mut servers) = (server(), self.servers());
        let Some(outage) = servers.get_mut(&server) else { return };
        // If too few replicas acknowledge, only a grant says that this is over.
        if is_grant || !matches!(outage.fault, Fault::Unacknowledged(_)) {
            (outage.calls, outage.works) = (None, true);
            self.clear(&mut servers);
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
        let mut servers = self.servers();
        // Meanwhile its slot may have moved: so look at all of them.
        for outage in servers.values_mut() {
            if let Some(tenure) = outage.unrenewed.remove(&tenure.id) {
                outage.works |= is_renewed;
                outage.notes_loss(&tenure);
            }
        }
        self.clear(&mut servers);
    }

    /// Writes the lines whose time has come.
    pub(crate) async fn tell(&self) -> Infallible {
        loop {
            let due = async {
                match self.next_line() {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = due => self.tell_now(),
                () = self.news.notified() => {}
            }
        }
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<Option<Node>, Outage>> {
        self.servers.lock().expect("no panic under this lock")
    }

    /// Something has failed. `notes` says whether that is to be said now, if nothing was said before.
    fn fails(&self, server: Option<Node>, fault: &Fault, notes: impl FnOnce(&mut Outage) -> bool) {
        let (now, mut servers) = (Instant::now(), self.servers());
        // Under the mutex: otherwise an answer could clear it in between, and the outage would stay.
        self.is_on.store(true, Ordering::SeqCst);
        let node = server.clone();
        let outage = servers.entry(server).or_insert_with(|| Outage::new(now, fault.clone()));
        let planned = outage.next_line(node.as_ref());
        (outage.failed, outage.fault, outage.works) = (now, fault.clone(), false);
        if notes(outage) && outage.said.is_none() {
            outage.begins(node.as_ref(), self.waiting());
        }
        if outage.next_line(node.as_ref()) != planned {
            self.news.notify_one();
        }
    }

    fn next_line(&self) -> Option<Instant> {
        self.servers().iter().filter_map(|(node, outage)| outage.next_line(node.as_ref())).min()
    }

    fn tell_now(&self) {
        let (now, mut servers) = (Instant::now(), self.servers());
        for (node, outage) in &mut *servers {
            if outage.next_line(node.as_ref()).is_some_and(|at| at <= now) {
                outage.tell(node.as_ref(), self.waiting(), now);
            }
        }
        self.clear(&mut servers);
    }

    fn waiting(&self) -> usize {
        self.waiters.load(Ordering::Relaxed)
    }

    /// Removes the outages that are over.
    fn clear(&self, servers: &mut BTreeMap<Option<Node>, Outage>) {
        servers.retain(|node, outage| {
            outage.waits_for_success(node.as_ref());
            let goes_on = outage.calls.is_some() || !outage.unrenewed.is_empty();
            if !goes_on {
                outage.ends(node.as_ref(), self.waiting());
            }
            goes_on
        });
        if servers.is_empty() {
            self.is_on.store(false, Ordering::SeqCst);
        }
    }
}

impl Outage {
    fn new(now: Instant, fault: Fault) -> Self {
        Self {
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
    fn next_line(&self, node: Option<&Node>) -> Option<Instant> {
        match self.said {
            None if !self.unrenewed.is_empty() => Some(self.since + GATHER),
            Some(said) if self.failed > said || self.works || !self.unrenewed.is_empty() => {
                Some(said + APART)
            }
            _ => node.map(|_| self.failed + OUT_OF_USE),
        }
    }

    fn tell(&mut self, node: Option<&Node>, waiting: usize, now: Instant) {
        // A holder that gives its lock back does not say so here.
        let (over, rest): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.unrenewed).into_iter().partition(|(_, held)| held.is_over());
        self.unrenewed = rest;
        over.values().for_each(|tenure| self.notes_loss(tenure));
        let Some(said) = self.said else {
            if self.unrenewed.is_empty() {
                self.calls = None;
            } else {
                self.begins(node, waiting);
            }
            return;
        };
        if self.failed > said {
            self.goes_on(node, waiting);
        } else if self.works || self.unrenewed.is_empty() {
            // Locks are renewed, and nobody asks for one; or the cluster does not use this node any more.
            self.calls = None;
            self.is_out_of_use = !self.works;
        } else {
            self.said = Some(now);
        }
    }

    /// If all locks that were not renewed have ended, that does not say that the server works: this is over when it does.
    fn waits_for_success(&mut self, node: Option<&Node>) {
        let is_known = self.works || self.is_out_of_use || self.said.is_none();
        if is_known || self.calls.is_some() || !self.unrenewed.is_empty() {
            return;
        }
        self.calls = Some(self.failed);
        if self.lost > 0 {
            let (server, lost, names) = (node.map(display), self.lost, debug(&self.names));
            tracing::warn!(server, lost, names, "the locks that were not renewed have ended");
        }
    }

    fn notes_loss(&mut self, tenure: &Tenure) {
        if tenure.is_lost() {
            self.lost += 1;
            if self.names.len() < NAMED {
                self.names.push(tenure.keys.name().into_owned());
            }
        }
    }

    fn begins(&mut self, node: Option<&Node>, waiting: usize) {
        self.said = Some(Instant::now());
        let (server, name, locks, fault) = (node.map(display), &self.name, self.most, &self.fault);
        if self.most > 0 {
            let name = name.as_ref().map(debug);
            tracing::warn!(server, locks, name, waiting, %fault, "locks are not renewed: the client tries again");
        } else {
            tracing::warn!(server, waiting, %fault, "no request for a lock has succeeded for a second: the client tries again");
        }
    }

    fn goes_on(&mut self, node: Option<&Node>, waiting: usize) {
        self.said = Some(Instant::now());
        let (server, since, fault) = (node.map(display), self.since.elapsed(), &self.fault);
        let (locks, lost, requests) = (self.unrenewed.len(), self.lost, self.requests);
        tracing::warn!(server, ?since, locks, lost, waiting, requests, %fault, "the server still fails");
    }

    fn ends(&mut self, node: Option<&Node>, waiting: usize) {
        if self.said.is_none() {
            if self.most == 0 {
                return;
            }
            self.begins(node, waiting);
        }
        let (server, lost, names) = (node.map(display), self.lost, &self.names);
        let names = (lost > 0).then_some(debug(names));
        if self.works {
            let after = self.since.elapsed();
            tracing::warn!(server, ?after, lost, names, "requests for locks succeed again");
        } else {
            let after = self.failed - self.since;
            tracing::warn!(server, ?after, lost, names, "nothing is asked there any more");
        }
    }
}
