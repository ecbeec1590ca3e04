//! How what a primary has written gets to those that follow it, and what becomes of it when one of them takes over.

use std::collections::VecDeque;
use std::rc::Rc;

use parklock_simulated_server::{Batch, NodeInfo, SLOTS, Snapshot, Watched};

use crate::board;
use crate::clock::{self, MICRO, MILLI, SECOND};
use crate::fleet::{self, PORT};
use crate::judge::Break;
use crate::plan::{How, Topology};
use crate::trace;
use crate::world::{Event, World};

/// The name under which sentinels know the primary.
pub const SERVICE: &str = "mymaster";

/// How long it takes what a primary has written to its replica.
const LAG: (u64, u64) = (100 * MICRO, 2 * MILLI);

/// How long a node may take to hear what another one has become.
const GOSSIP: u64 = 150 * MILLI;

/// How long a sentinel may take to hear of a failover.
const HEARSAY: u64 = 1_200 * MILLI;

/// What is on its way to a replica.
enum Cargo {
    All(Box<Snapshot>),
    Written(Rc<Batch>),
}

/// A replica that follows.
pub struct Line {
    pub from: usize,
    pub to: usize,
    on_its_way: VecDeque<Cargo>,
    /// When the last of it arrives.
    last: u64,
    pub held_until: u64,
    /// It has had all of it once.
    pub is_whole: bool,
}

/// Somebody took over, and who it was before does not know yet, or is not back.
pub struct Replaced {
    pub shard: usize,
    pub before: usize,
    pub how: How,
    /// A killed one has a successor only after a while.
    pub is_promoted: bool,
}

impl World {
    /// Makes the servers of the plan what they are.
    pub fn found(&mut self) {
        if matches!(self.plan.topology, Topology::One) {
            return;
        }
        let infos: Vec<NodeInfo> = (0..self.fleet.stations.len())
            .map(|at| NodeInfo { id: format!("{at:040x}"), host: fleet::host(at), port: PORT })
            .collect();
        for at in 0..self.fleet.stations.len() {
            if !self.fleet.is_cluster() {
                break;
            }
            let owners: Vec<usize> = (0..SLOTS).map(|slot| self.fleet.owner(slot)).collect();
            let server = &mut self.fleet.stations[at].server;
            server.join(at, infos.clone());
            for (slot, shard) in (0..SLOTS).zip(owners) {
                server.assign(slot, self.fleet.shards[shard].primary);
            }
            for shard in &self.fleet.shards {
                for other in &shard.others {
                    server.set_primary_of(*other, Some(shard.primary));
                }
            }
        }
        for shard in 0..self.fleet.shards.len() {
            let (from, others) =
                (self.fleet.shards[shard].primary, self.fleet.shards[shard].others.clone());
            for to in others {
                self.fleet.stations[to].server.become_replica();
                let line = self.attach(from, to);
                self.lines.entry(line).and_modify(|line| line.last = clock::now());
                self.arrive_at_replica(line);
            }
        }
        self.tell_sentinels(0, true);
    }

    /// From now on this station follows that one.
    pub fn attach(&mut self, from: usize, to: usize) -> u64 {
        self.lines_made += 1;
        let id = self.lines_made;
        let server = &mut self.fleet.stations[from].server;
        server.follow(id);
        let cargo = Cargo::All(Box::new(server.snapshot()));
        let line = Line {
            from,
            to,
            on_its_way: VecDeque::from([cargo]),
            last: clock::now() + self.fleet_rng.u64(20 * MILLI..200 * MILLI),
            held_until: 0,
            is_whole: false,
        };
        self.at(line.last, Event::Replicated(id));
        self.lines.insert(id, line);
        id
    }

    /// A primary restarts with its data: its replicas follow it again when it is back.
    pub fn reattach(&mut self, primary: usize, back: u64) {
        let lost: Vec<usize> =
            self.lines.values().filter(|line| line.from == primary).map(|line| line.to).collect();
        self.detach(|line| line.from == primary);
        let of = |shard: &fleet::Shard| shard.primary == primary;
        let Some(shard) = self.fleet.shards.iter().position(of) else { return };
        for station in lost {
            self.at(back + MILLI, Event::Follows { station, shard });
        }
    }

    /// Nothing that is on its way arrives.
    pub fn detach(&mut self, is_meant: impl Fn(&Line) -> bool) {
        let meant = self.lines.iter().filter(|(_, line)| is_meant(line)).map(|(id, _)| *id);
        for id in meant.collect::<Vec<_>>() {
            if let Some(line) = self.lines.remove(&id) {
                self.fleet.stations[line.from].server.unfollow(id);
            }
        }
    }

    /// Puts on its way what a station has written.
    pub fn replicate(&mut self, at: usize) {
        let written = self.fleet.stations[at].server.stream();
        let followers: Vec<u64> =
            self.lines.iter().filter(|(_, line)| line.from == at).map(|(id, _)| *id).collect();
        for batch in written {
            for id in &followers {
                let takes = self.fleet_rng.u64(LAG.0..LAG.1);
                let Some(line) = self.lines.get_mut(id) else { continue };
                line.last = (clock::now() + takes).max(line.last + 1);
                line.on_its_way.push_back(Cargo::Written(Rc::clone(&batch)));
                let arrives = line.last;
                self.at(arrives, Event::Replicated(*id));
            }
        }
        self.wait(at);
    }

    /// The next of what is on its way to a replica is there.
    pub fn arrive_at_replica(&mut self, id: u64) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        if line.on_its_way.is_empty() {
            return;
        }
        let replica = &mut self.fleet.stations[line.to];
        let ready = replica.ready_at().max(line.held_until).max(replica.down_until);
        if ready > clock::now() {
            return self.at(ready, Event::Replicated(id));
        }
        let offset = match line.on_its_way.pop_front() {
            Some(Cargo::All(all)) => {
                let offset = all.offset();
                replica.server.load(*all);
                line.is_whole = true;
                offset
            }
            Some(Cargo::Written(batch)) => {
                replica.server.apply(&batch);
                batch.offset
            }
            None => return,
        };
        let takes = self.fleet_rng.u64(LAG.0..LAG.1);
        self.at(clock::now() + takes, Event::Acknowledged(id, offset));
    }

    /// A primary hears what a replica has.
    pub fn acknowledge(&mut self, id: u64, offset: u64) {
        let Some(line) = self.lines.get(&id) else { return };
        let station = &mut self.fleet.stations[line.from];
        let (from, ready) = (line.from, station.ready_at().max(line.held_until));
        if ready > clock::now() {
            return self.at(ready, Event::Acknowledged(id, offset));
        }
        let time = station.time();
        station.server.acknowledge(id, offset, time);
        self.send(from);
    }

    /// Has somebody look when the next WAIT at this station is over.
    fn wait(&mut self, at: usize) {
        let station = &mut self.fleet.stations[at];
        let Some(end) = station.server.next_end() else { return };
        let end = clock::now() + end.saturating_sub(station.time()) * MICRO;
        if station.looks_at <= clock::now() || end < station.looks_at {
            station.looks_at = end;
            self.at(end, Event::WaitOver(at));
        }
    }

    pub fn end_waits(&mut self, at: usize) {
        let station = &mut self.fleet.stations[at];
        let ready = station.ready_at();
        if ready > clock::now() {
            return self.at(ready, Event::WaitOver(at));
        }
        let time = station.time();
        station.server.pass(time);
        self.send(at);
    }

    // --- Failover ---

    /// A replica takes over, or will when the others have noticed that their primary is dead.
    pub fn take_over(&mut self, fault: usize, shard: usize, how: How, until: u64) {
        let shard = shard % self.fleet.shards.len();
        let (busy, is_open) = {
            let touches = |(from, to): &(usize, usize)| *from == shard || *to == shard;
            let busy = self.fleet.shards[shard].busy_until > clock::now();
            (busy, self.fleet.open.values().any(touches))
        };
        // What an open slot has at both nodes, an operator would have to mend by hand.
        if busy || is_open || self.successor(shard).is_none() {
            return board::reached("nobody can take over");
        }
        let before = self.fleet.shards[shard].primary;
        self.fleet.shards[shard].busy_until = until + 2 * SECOND;
        self.replaced.insert(fault, Replaced { shard, before, how, is_promoted: false });
        if how != How::Killed {
            return self.promote(fault, until);
        }
        let whole = self.successor(shard);
        self.detach(|line| line.from == before && Some(line.to) != whole);
        self.detach(|line| line.from == before);
        self.fall(before, until);
        let notices =
            self.fleet_rng.u64(300 * MILLI..2 * SECOND).min((until - clock::now()) * 3 / 4);
        self.at(clock::now() + notices, Event::Promoted(fault, whole.unwrap_or(before)));
    }

    /// A station is gone until then.
    pub fn fall(&mut self, at: usize, until: u64) {
        let links = self.fleet.stations[at].restart(true);
        self.fleet.stations[at].down_until = until;
        links.into_iter().for_each(|link| self.net.hung_up(link));
    }

    /// One that has all that it was sent.
    fn successor(&self, shard: usize) -> Option<usize> {
        let shard = self.fleet.shards.get(shard)?;
        let follows = |line: &&Line| line.from == shard.primary && line.is_whole;
        let whole: Vec<usize> = self.lines.values().filter(follows).map(|line| line.to).collect();
        let place = usize::try_from(clock::now() / MILLI).unwrap_or(0);
        (!whole.is_empty()).then(|| whole[place % whole.len()])
    }

    fn promote(&mut self, fault: usize, until: u64) {
        let Some(Replaced { shard, how, before, .. }) = self.replaced.get(&fault) else { return };
        let (shard, how, before) = (*shard, *how, *before);
        let Some(next) = self.successor(shard) else { return };
        if how == How::Asked {
            self.catch_up(before, next);
        }
        self.detach(|line| line.from == before && line.to == next);
        let ends = if how == How::Asked { clock::now() } else { until };
        self.crown(fault, next, ends);
        if how == How::Asked {
            self.rejoin(fault);
        }
    }

    /// All that the primary has written is at the replica, before the primary goes on.
    fn catch_up(&mut self, from: usize, to: usize) {
        self.replicate(from);
        let line = self.lines.iter().find(|(_, line)| line.from == from && line.to == to);
        let Some((&id, _)) = line else { return };
        while let Some(Cargo::Written(batch)) =
            self.lines.get_mut(&id).and_then(|line| line.on_its_way.pop_front())
        {
            self.fleet.stations[to].server.apply(&batch);
        }
    }

    /// This one is the primary of its shard now. Until `ends`, who was it before takes itself for it still.
    pub fn crown(&mut self, fault: usize, next: usize, ends: u64) {
        let Some(replaced) = self.replaced.get_mut(&fault) else { return };
        replaced.is_promoted = true;
        let (shard, before, how) = (replaced.shard, replaced.before, replaced.how);
        trace::line(|| format!("PROMOTED  {next} for {before}"));
        board::reached(&format!("failover: {how:?}"));
        let slots = self.fleet.slots(shard);
        let server = &mut self.fleet.stations[next].server;
        server.become_primary();
        server.set_primary_of(next, None);
        slots.iter().for_each(|slot| server.assign(*slot, next));
        let of = &mut self.fleet.shards[shard];
        of.primary = next;
        of.others.retain(|other| *other != next);
        let followers = of.others.clone();
        of.others.push(before);
        self.forget_unless_acknowledged((shard, before, next), how, ends);
        // Offsets compare within one history only, and what came before is decided now.
        self.fleet.brought.retain(|_, (to, _)| *to != before);
        self.before = before;
        self.lag_until = clock::now() + self.fleet_rng.u64(..100 * MILLI);
        for other in 0..self.fleet.stations.len() {
            if other != next && other != before && self.fleet.is_cluster() {
                let hears = clock::now() + self.fleet_rng.u64(MILLI..GOSSIP);
                self.at(hears, Event::Hears { station: other, shard });
            }
        }
        // They go on following the one before for a moment.
        for follower in followers {
            let hears = clock::now() + self.fleet_rng.u64(MILLI..SECOND);
            self.at(hears, Event::Follows { station: follower, shard });
        }
        self.epoch += 1;
        self.tell_sentinels(HEARSAY, false);
    }

    /// What the new primary does not have is lost, unless no grant counted that it did not have. Nobody waits for replicas when a
    /// slot brings a key: `MIGRATE` does not. This judges by slot, not by key.
    fn forget_unless_acknowledged(
        &mut self,
        (shard, before, next): (usize, usize, usize),
        how: How,
        ends: u64,
    ) {
        if how == How::Asked {
            return;
        }
        // Breaks are of the plan's names. A caller gives a latch a name of its own, and its counts are not acknowledged.
        board::with(|board| board.forgotten_until = board.forgotten_until.max(Some(ends)));
        let now = clock::now();
        let is_acknowledged = self.plan.is_acknowledged_by_all();
        if is_acknowledged {
            board::reached("failover: every grant was acknowledged");
        }
        let has = self.fleet.stations[next].server.offset();
        let is_lost = |slot| {
            let brought = self.fleet.brought.get(&slot);
            !is_acknowledged || brought.is_some_and(|(to, offset)| *to == before && *offset > has)
        };
        let names: Vec<Option<String>> = if self.fleet.is_cluster() {
            let of = |name: &&crate::plan::Name| {
                let slot = fleet::Fleet::slot(self.plan.layout, name);
                self.fleet.owner(slot) == shard && is_lost(slot)
            };
            self.plan.names.iter().filter(of).map(|name| Some(name.label())).collect()
        } else if is_acknowledged {
            Vec::new()
        } else {
            vec![None]
        };
        if is_acknowledged && !names.is_empty() {
            board::reached("failover: a key that its slot had brought was not acknowledged");
        }
        let breaks = names.into_iter().map(|name| Break::replaced(name.as_deref(), now, ends));
        board::with(|board| board.breaks.extend(breaks));
    }

    /// A station of a cluster hears who the primary of a shard is.
    pub fn hears(&mut self, station: usize, shard: usize) {
        let (primary, slots) = (self.fleet.shards[shard].primary, self.fleet.slots(shard));
        let others = self.fleet.shards[shard].others.clone();
        let server = &mut self.fleet.stations[station].server;
        slots.iter().for_each(|slot| server.assign(*slot, primary));
        server.set_primary_of(primary, None);
        others.iter().for_each(|other| server.set_primary_of(*other, Some(primary)));
        self.send(station);
    }

    /// A replica follows the primary of its shard.
    pub fn follows(&mut self, station: usize, shard: usize) {
        let primary = self.fleet.shards[shard].primary;
        let follows = |line: &Line| line.from == primary && line.to == station;
        if station == primary || self.lines.values().any(follows) {
            return;
        }
        self.detach(|line| line.to == station);
        self.attach(primary, station);
    }

    /// Who was replaced knows it now, or is back: it is a replica.
    pub fn rejoin(&mut self, fault: usize) {
        let Some(Replaced { shard, before, how, is_promoted }) = self.replaced.remove(&fault)
        else {
            return;
        };
        if !is_promoted {
            return;
        }
        trace::line(|| format!("REPLICA   {before}"));
        self.detach(|line| line.from == before);
        self.fleet.stations[before].server.become_replica();
        if !self.fleet.sentinels.is_empty() && how != How::Killed {
            // Sentinels end all connections to a primary that they have replaced.
            for kind in ["normal", "pubsub"] {
                self.fleet.stations[before].execute(&["CLIENT", "KILL", "TYPE", kind]);
            }
        }
        self.hears(before, shard);
        self.follows(before, shard);
        self.send(before);
    }

    // --- Sentinels ---

    /// Each sentinel hears of the primary within this time.
    fn tell_sentinels(&mut self, within: u64, at_once: bool) {
        for sentinel in self.fleet.sentinels.clone() {
            let late = if at_once { 0 } else { self.fleet_rng.u64(50 * MILLI..within) };
            if at_once {
                self.sentinel_hears(sentinel);
            } else {
                self.at(clock::now() + late, Event::SentinelHears(sentinel));
            }
        }
        if let (Some(leader), false) = (self.fleet.sentinels.first().copied(), at_once) {
            self.sentinel_leads(leader);
        }
    }

    /// A sentinel leads the failover: for a while it gives two addresses. Later it hears of its end, as the others do.
    pub fn sentinel_leads(&mut self, sentinel: usize) {
        let watched = self.watched();
        self.fleet.stations[sentinel].server.lead(watched);
        self.send(sentinel);
    }

    fn watched(&self) -> Watched {
        Watched {
            service: SERVICE.to_owned(),
            host: fleet::host(self.fleet.primary()),
            port: PORT,
            epoch: self.epoch,
        }
    }

    pub fn sentinel_hears(&mut self, sentinel: usize) {
        let station = &self.fleet.stations[sentinel];
        let ready = station.deaf_until.max(station.down_until);
        if ready > clock::now() {
            return self.at(ready, Event::SentinelHears(sentinel));
        }
        let watched = self.watched();
        let others = self.fleet.sentinels.iter().filter(|other| **other != sentinel);
        let others = others.map(|other| (fleet::host(*other), PORT)).collect();
        self.fleet.stations[sentinel].server.watch(fleet::host(sentinel), watched, others);
        self.send(sentinel);
    }
}
