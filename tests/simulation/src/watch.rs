//! What the judge sees while the world goes on: waiters that sleep beside room, and keys that are left at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use parklock::Layout;
use parklock_simulated_server::Content;

use crate::board::{self, Call};
use crate::clock::{self, MILLI};
use crate::fleet::Fleet;
use crate::keyspace;
use crate::plan::{Kind, Plan, nanos};
use crate::station::Station;
use crate::world::Berth;

pub struct Watch {
    plan: Arc<Plan>,
    /// Since when each name has had room for all who want it.
    free: BTreeMap<usize, u64>,
    /// How long a name with room may keep somebody waiting.
    bound: u64,
    /// By how much longer it may do so while somebody holds a part of it: until a waiter that died before it got more than
    /// the rest is found dead.
    search: u64,
    /// By how much longer a caller that is not polled may do so: until it is found out, and what it may have got, or left
    /// open, is given back.
    silence: u64,
}

impl Watch {
    pub fn new(plan: Arc<Plan>) -> Self {
        let way = plan.clients.iter().map(|client| client.way.1).max().unwrap_or(0);
        let longest = plan.longest(|client| client.claim);
        let differs = plan.clients.iter().any(|client| nanos(client.claim) != longest);
        // To a clock with the rhythm of a fast client, a pause between two signs of a slow client may look like a stall.
        // The clock leaves that pause out, and the slow client sees the outcome with its next sign.
        let stall = if differs { longest * 2 / 3 } else { 0 };
        // The place of a waiter that has gone lasts for this long. The rest is a few ways of a message.
        let bound = longest + stall + 6 * way + 350 * MILLI;
        let (silence, search) = (2 * longest, 2 * longest);
        Self { plan, free: BTreeMap::new(), bound, search, silence }
    }

    /// While there are no faults, nobody waits long for a lock that has room in the key space for all who want it.
    pub fn look(&mut self, fleet: &mut Fleet) {
        let plan = Arc::clone(&self.plan);
        for (at, name) in plan.names.iter().enumerate() {
            let Some((wanted, of)) = board::with(|board| board.wanted(at)) else {
                self.free.remove(&at);
                continue;
            };
            self.count(at);
            let is_free = fleet.holders(plan.layout, name).is_empty();
            let fits = plan.layout == Layout::Native && fleet.used(name) + wanted <= of;
            if !is_free && !fits {
                self.free.remove(&at);
                continue;
            }
            let since = *self.free.entry(at).or_insert_with(clock::now);
            self.judge(at, since, if is_free { 0 } else { self.search });
        }
    }

    /// Counts callers that have waited in calm times for so long that they would be judged if there was room.
    fn count(&self, name: usize) {
        board::with(|board| {
            let since = clock::now().saturating_sub(self.bound_of(name));
            let waits = |call: &Call| call.since.max(call.polled) < since;
            if board.calm_since(since) && board.waiting(name).any(waits) {
                board.judged("waits");
            }
        });
    }

    fn judge(&mut self, name: usize, since: u64, search: u64) {
        if search > 0 && board::with(|board| board.calm_since(clock::now())) {
            board::with(|board| board.judged("waits beside holders"));
        }
        let now = clock::now();
        let late = board::with(|board| {
            let since = since.max(board.progressed(name)).max(board.disturbed_until());
            let waited = |since: u64| now.saturating_sub(since);
            let silent = board.parked_since(name);
            let since = since.max(silent.unwrap_or(0));
            let bound = self.bound_of(name) + search + silent.map_or(0, |_| self.silence);
            let late = board.waiting(name).find(|call| waited(since.max(call.polled)) > bound);
            late.map(|call| (call.caller.clone(), call.since))
        });
        let Some((caller, called)) = late else { return };
        let what = format!(
            "{caller}, who called at {}, waits for name {name} ({:?}), which has had room since {}; the bound is {} ms",
            called as f64 / 1e9,
            self.plan.names[name].kind,
            since as f64 / 1e9,
            (self.bound_of(name) + search) / MILLI,
        );
        board::wrong("asleep beside room", what);
        self.free.insert(name, now + 5_000 * MILLI);
    }

    /// In a fair lock of Redisson's layout, the place of a waiter ends at a time of the server's clock. So a dead waiter's place
    /// lasts longer by as much as that clock was set back.
    fn bound_of(&self, name: usize) -> u64 {
        let is_fair = self.plan.names[name].kind == Kind::Fair;
        let is_clocked = is_fair && self.plan.layout == Layout::Redisson;
        self.bound + if is_clocked { self.plan.set_back(clock::now()) } else { 0 }
    }

    /// Everybody has come to its end.
    pub fn all_ended(&self, berths: &[Berth], plan: &Plan) {
        for (at, berth) in berths.iter().enumerate() {
            if board::with(|board| board.done.contains(&(at, berth.life))) {
                continue;
            }
            let calls: Vec<String> = board::with(|board| {
                let of = board.calls.values().filter(|call| call.process == at);
                of.map(|call| {
                    format!(
                        "{} waits for {:?} since {}",
                        call.caller,
                        call.names,
                        call.since as f64 / 1e9
                    )
                })
                .collect()
            });
            let what = format!("p{at} of {}: {}", plan.clients.len(), calls.join(", "));
            board::wrong("a process does not come to its end", what);
        }
    }

    /// All clients have gone and every lease is over: only keys that are meant to stay may be left.
    pub fn nothing_left(&self, fleet: &mut Fleet, berths: &[Berth]) {
        let primaries: Vec<usize> = fleet.shards.iter().map(|shard| shard.primary).collect();
        primaries.into_iter().for_each(|at| self.no_key_left(&mut fleet.stations[at]));
        for station in &fleet.stations {
            for channel in station.server.channels() {
                let channel = String::from_utf8_lossy(&channel).into_owned();
                board::wrong("a subscription is left", channel);
            }
        }
        for (at, berth) in berths.iter().enumerate().filter(|(_, berth)| berth.process.tasks() > 0)
        {
            board::wrong("a task is left", format!("p{at}: {} tasks", berth.process.tasks()));
        }
    }

    fn no_key_left(&self, station: &mut Station) {
        let time = station.time();
        let all = station.server.dump(time);
        let dead = keyspace::dead_places(&all, time);
        for entry in all {
            board::with(|board| board.judged("keys"));
            let key = String::from_utf8_lossy(&entry.key).into_owned();
            // The next client that asks clears Redisson's leases of permits.
            let counts = keyspace::is_counter(&key)
                || key.starts_with("redisson_lock_token:")
                || key.ends_with(":timeout");
            if entry.pttl < 0 && !counts && !is_permits(&entry.content) {
                board::wrong("a key without a TTL is left", format!("{key}: {:?}", entry.content));
            } else if !counts
                && !keyspace::remembers(&key, &entry.content)
                && !dead.contains(&key)
                && !self.is_over(&key, &entry.content, time)
                && entry.pttl >= 0
            {
                board::wrong(
                    "a key is left",
                    format!("{key}, for {} ms: {:?}", entry.pttl, entry.content),
                );
            }
        }
    }

    /// In Redisson's layout, leases of permits that are over stay until somebody asks for permits again, and the notes of
    /// how many permits they have.
    fn is_over(&self, key: &str, content: &Content, time: u64) -> bool {
        let now = (time / 1_000) as f64;
        match content {
            Content::Zset(leases) => {
                key.starts_with("lock_permits:") && leases.iter().all(|(_, end)| *end <= now)
            }
            Content::Hash(_) => {
                key.starts_with("lock_notes:") && self.plan.layout == Layout::Redisson
            }
            _ => false,
        }
    }
}

/// In Redisson's layout the number of free permits is a text without an end.
fn is_permits(content: &Content) -> bool {
    matches!(content, Content::Text(text) if text.iter().all(u8::is_ascii_digit))
}
