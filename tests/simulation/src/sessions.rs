//! What the judge sees of sessions: to whom the server listens, and waiters behind a holder to whom it does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::board;
use crate::clock::{self, MILLI, SECOND};
use crate::desk::mark_of;
use crate::fleet::Fleet;
use crate::plan::Plan;
use crate::station::Station;

pub struct Sessions {
    plan: Arc<Plan>,
    /// Since when each field of a name is in the way of somebody, and of a client to whom nobody listens.
    since: BTreeMap<(usize, String), u64>,
    /// For how long it may be so: the head of the line may have died with the holder.
    bound: u64,
    /// From when on that can be judged: all faults are over, and everybody has noticed.
    settled: u64,
}

impl Sessions {
    pub fn new(plan: Arc<Plan>) -> Self {
        let way = plan.clients.iter().map(|client| client.way.1).max().unwrap_or(0);
        let grace = plan.longest(|client| client.session.unwrap_or_default());
        let bound = 2 * grace + 2 * plan.longest(|client| client.claim) + 6 * way + 350 * MILLI;
        let settled = plan.mended() + 2 * plan.longest(|client| client.response) + 3 * SECOND;
        Self { plan, since: BTreeMap::new(), bound, settled }
    }

    pub fn look(&mut self, fleet: &mut Fleet) {
        if self.plan.clients.iter().all(|client| client.session.is_none()) {
            return;
        }
        let now = clock::now();
        listen(fleet, now);
        let mut found = BTreeMap::new();
        for (at, name) in self.plan.names.iter().enumerate() {
            if board::with(|board| board.waiting(at).next().is_none()) {
                continue;
            }
            let holders = fleet.holders(self.plan.layout, name);
            for field in holders.into_iter().filter(|field| is_unheard(field, now)) {
                let since = self.since.get(&(at, field.clone())).copied().unwrap_or(now);
                found.insert((at, field), since);
            }
        }
        self.since = found;
        self.judge(now, fleet.station());
    }

    fn judge(&mut self, now: u64, station: &mut Station) {
        for ((name, field), since) in &mut self.since {
            if now < *since + self.bound {
                continue;
            }
            board::with(|board| board.judged("waits behind the dead"));
            if now < self.settled + self.bound || !has_record(station, field) {
                continue;
            }
            let what = format!("{field} of name {name}, since {:.3} s", *since as f64 / 1e9);
            board::wrong("somebody waits behind a dead process", what);
            *since = now + 60 * SECOND;
        }
    }
}

/// Whether a client has recorded that it has found this server in its present reign. If the process had died before the server was
/// started anew, it never will, and its leases count.
fn has_record(station: &mut Station, field: &str) -> bool {
    let (client, _) = field.rsplit_once(':').unwrap_or((field, ""));
    let records = station.list(&["KEYS", &format!("*session:{{{client}}}")]);
    let Some(record) = records.first().and_then(|key| station.text(&["GET", key])) else {
        return false;
    };
    station.text(&["INFO", "replication"]).is_some_and(|said| said.contains(&record))
}

/// Notes to whom the server does not listen.
fn listen(fleet: &mut Fleet, now: u64) {
    let channels = fleet.station().server.channels();
    let channels = channels.iter().map(|channel| String::from_utf8_lossy(channel));
    let heard: Vec<_> = channels.filter(|channel| channel.contains("session:{")).collect();
    board::with(|board| {
        let is_unheard = |seat| !heard.iter().any(|channel| channel.contains(&mark_of(seat)));
        let unheard = board.unheard.iter_mut().filter(|(seat, _)| is_unheard(**seat));
        unheard.for_each(|(_, at)| *at = now);
    });
}

/// Whether an owner field is of a client with a session to whom nobody listens at this moment.
fn is_unheard(field: &str, now: u64) -> bool {
    board::with(|board| {
        board.unheard.iter().any(|(seat, at)| *at == now && field.contains(&mark_of(*seat)))
    })
}
