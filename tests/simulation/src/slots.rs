//! Slots of a cluster that move from node to node, key by key, as an operator's tool moves them.

use parklock_simulated_server::Reply;

use crate::board;
use crate::clock::{self, MILLI};
use crate::fleet::Fleet;
use crate::trace;
use crate::world::{Event, World};

/// A slot on its way.
pub struct Move {
    pub slot: u16,
    from: usize,
    to: usize,
    /// Between two keys.
    pace: u64,
    /// After so many keys, nothing happens for so long.
    rests: Option<(usize, u64)>,
    /// Keys of the slot that the target has from before: a replica that became its primary may have missed that they were
    /// deleted when the slot left.
    stale: Vec<String>,
}

impl World {
    /// The slot of a name begins to move to another shard.
    pub fn open(&mut self, fault: usize, name: usize, by: usize, pace: u64, rest: u64) {
        let Some(name) = self.plan.names.get(name).cloned() else { return };
        if !self.fleet.is_cluster() {
            return;
        }
        let slot = Fleet::slot(self.plan.layout, &name);
        let (from, shards) = (self.fleet.owner(slot), self.fleet.shards.len());
        let to = (from + by) % shards;
        let busy = |shard: usize| self.fleet.shards[shard].busy_until > clock::now();
        if from == to || self.fleet.open.contains_key(&slot) || busy(from) || busy(to) {
            return board::reached("a slot cannot move");
        }
        self.fleet.open.insert(slot, (from, to));
        let target = self.fleet.shards[to].primary;
        let stale = self.keys_in(target, slot);
        self.set_slot(to, slot, "IMPORTING", from);
        self.set_slot(from, slot, "MIGRATING", to);
        let rests = (rest > 0).then(|| (self.fleet_rng.usize(..4), rest));
        self.moves.insert(fault, Move { slot, from, to, pace, rests, stale });
        board::reached(if rest > 0 { "a slot stands open" } else { "a slot moves" });
        self.at(clock::now() + pace, Event::Carried(fault));
    }

    fn keys_in(&mut self, station: usize, slot: u16) -> Vec<String> {
        self.fleet.stations[station].list(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"])
    }

    fn set_slot(&mut self, shard: usize, slot: u16, how: &str, other: usize) {
        let id = format!("{:040x}", self.fleet.shards[other].primary);
        let at = self.fleet.shards[shard].primary;
        let words = ["CLUSTER", "SETSLOT", &slot.to_string(), how, &id];
        let answer = self.fleet.stations[at].execute(&words);
        if answer.is_error() {
            board::wrong("the simulation itself", format!("{words:?}: {answer:?}"));
        }
        self.send(at);
    }

    /// The next key goes over; when there is none left, the slot has moved.
    pub fn carry(&mut self, fault: usize) {
        let Some(Move { slot, from, to, pace, rests, .. }) = self.moves.get_mut(&fault) else {
            return;
        };
        let (slot, from, to, pace) = (*slot, *from, *to, *pace);
        let rest = match rests {
            Some((0, rest)) => {
                let rest = *rest;
                *rests = None;
                Some(rest)
            }
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        if let Some(rest) = rest {
            return self.at(clock::now() + rest, Event::Carried(fault));
        }
        let (source, target) = (self.fleet.shards[from].primary, self.fleet.shards[to].primary);
        let ready =
            self.fleet.stations[source].ready_at().max(self.fleet.stations[target].ready_at());
        if ready > clock::now() {
            return self.at(ready, Event::Carried(fault));
        }
        let keys = self.keys_in(source, slot);
        if keys.is_empty() {
            return self.close(fault);
        }
        let key = &keys[self.fleet_rng.usize(..keys.len())];
        trace::line(|| format!("CARRIED   {key} from {source} to {target}"));
        if let Some(parcel) = self.fleet.stations[source].server.take(key.as_bytes()) {
            let time = self.fleet.stations[target].time();
            // The operator of this cluster replaces a stale key, as with `MIGRATE … REPLACE`.
            let is_there =
                self.fleet.stations[target].execute(&["EXISTS", key]) == Reply::Integer(1);
            if is_there && !self.moves[&fault].stale.contains(key) {
                board::wrong("a key is at two nodes", format!("{key}, at {time}"));
            }
            self.fleet.stations[target].server.put(parcel);
            let offset = self.fleet.stations[target].server.offset();
            self.fleet.brought.insert(slot, (target, offset));
        }
        self.send(source);
        self.send(target);
        self.at(clock::now() + pace, Event::Carried(fault));
    }

    fn close(&mut self, fault: usize) {
        let Some(Move { slot, from, to, .. }) = self.moves.remove(&fault) else { return };
        trace::line(|| format!("MOVED     {slot} from {from} to {to}"));
        self.fleet.open.remove(&slot);
        self.fleet.set_owner(slot, to);
        self.set_slot(to, slot, "NODE", to);
        self.set_slot(from, slot, "NODE", to);
        let (source, target) = (self.fleet.shards[from].primary, self.fleet.shards[to].primary);
        for station in 0..self.fleet.stations.len() {
            if station != source && station != target {
                let hears = clock::now() + self.fleet_rng.u64(MILLI..150 * MILLI);
                self.at(hears, Event::Hears { station, shard: to });
            }
        }
    }
}
