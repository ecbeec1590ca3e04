//! The world: one time, a list of what happens when, and the processes and servers that it happens to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use parklock_simulated_server::{Conn, Snapshot, Version};
use tokio::sync::mpsc;

use crate::board::{self, Board, Question};
use crate::caller::Home;
use crate::chaos;
use crate::clock::{self, MILLI, SECOND};
use crate::desk::{Desk, mark_of};
use crate::eavesdropper::{Eavesdropper, Message};
use crate::fleet::Fleet;
use crate::frames;
use crate::ghosts::{self, Ghosts};
use crate::keyspace;
use crate::net::{Arrival, Net};
use crate::plan::{Plan, Topology, What};
use crate::plays;
use crate::process::Process;
use crate::replicas::{Line, Replaced};
use crate::sessions::Sessions;
use crate::slots::Move;
use crate::station::Station;
use crate::steps;
use crate::trace;
use crate::watch::Watch;
use crate::wire::Dialling;
use crate::work::{self, Order};

/// How often the judge looks at the key space.
const LOOK: u64 = 10 * MILLI;

/// So long after a client was closed, what it had sent has arrived.
const ARRIVED: u64 = 60 * MILLI;

/// How many ways of a message it takes at most to connect to a node, and to ask it something.
const CONNECTING: u64 = 20;

/// Something that happens at a time.
pub enum Event {
    Arrival(u64, Arrival),
    Fault(usize),
    /// What began with a fault is over.
    Mended(usize),
    /// The state of now is what a replica will have heard last.
    Remember(usize),
    Start(usize),
    Resume(usize),
    /// A server is ready for its backlog.
    Serve(usize),
    /// Something that a primary has written is at a replica.
    Replicated(u64),
    /// A primary hears how much a replica has.
    Acknowledged(u64, u64),
    /// At a station, somebody has waited long enough for replicas.
    WaitOver(usize),
    /// The others have noticed that their primary is dead: this one takes over.
    Promoted(usize, usize),
    /// A station of a cluster hears who is the primary of a shard.
    Hears {
        station: usize,
        shard: usize,
    },
    /// A replica follows the primary of its shard.
    Follows {
        station: usize,
        shard: usize,
    },
    SentinelHears(usize),
    /// The next key of a slot that moves.
    Carried(usize),
    /// What one node has published is at another.
    Told {
        station: usize,
        channel: Vec<u8>,
        message: Vec<u8>,
    },
    /// The eavesdropper publishes this at a station.
    Forged {
        station: usize,
        message: Message,
    },
    /// A client has been closed for some time.
    Closed {
        process: usize,
        seat: u64,
    },
    Tick,
    Look,
}

/// The place of a process: its life now, and how it is reached.
pub struct Berth {
    pub process: Process,
    dialling: Dialling,
    orders: Option<mpsc::UnboundedSender<Order>>,
    pub life: u64,
}

pub struct World {
    pub plan: Arc<Plan>,
    pub rng: Rng,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    pub berths: Vec<Berth>,
    pub net: Net,
    pub fleet: Fleet,
    /// The dice of what happens among the servers: one server alone throws none.
    pub fleet_rng: Rng,
    pub lines: BTreeMap<u64, Line>,
    pub lines_made: u64,
    /// By fault.
    pub replaced: BTreeMap<usize, Replaced>,
    pub moves: BTreeMap<usize, Move>,
    /// How many failovers there have been.
    pub epoch: u64,
    /// The station that was the primary before, and until when new connections still reach it.
    pub before: usize,
    pub lag_until: u64,
    /// The connections that this client makes lead to this station, until then.
    pub misled: Option<(usize, usize, u64)>,
    pub snapshots: BTreeMap<usize, Snapshot>,
    pub version: Version,
    dirty: BTreeSet<usize>,
    watch: Watch,
    ghosts: Ghosts,
    sessions: Sessions,
    eavesdropper: Option<Eavesdropper>,
    /// How far each counter of the tokens has ever been. In a cluster, each slot has one.
    pub drawn: BTreeMap<String, u64>,
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let mut rng = Rng::with_seed(plan.seed ^ 0x7777);
        let versions = [Version::Redis6_2, Version::Redis7_0, Version::Valkey9_1];
        let version = versions[rng.usize(..3)];
        let ways = plan.clients.iter().map(|client| client.way).collect();
        let plan = Arc::new(plan);
        let mut world = Self {
            net: Net::new(rng.u64(..), ways),
            rng,
            events: BTreeMap::new(),
            scheduled: 0,
            berths: Vec::new(),
            fleet: Fleet::planned(&plan, || Station::new(version)),
            fleet_rng: Rng::with_seed(plan.seed ^ 0xf1ee7),
            lines: BTreeMap::new(),
            lines_made: 0,
            replaced: BTreeMap::new(),
            moves: BTreeMap::new(),
            epoch: 0,
            before: 0,
            lag_until: 0,
            misled: None,
            snapshots: BTreeMap::new(),
            version,
            dirty: BTreeSet::new(),
            watch: Watch::new(Arc::clone(&plan)),
            ghosts: Ghosts::new(Arc::clone(&plan)),
            sessions: Sessions::new(Arc::clone(&plan)),
            eavesdropper: Eavesdropper::of(plan.seed, plan.is_overheard)
                .filter(|_| !plan.bare && !plan.in_steps),
            drawn: BTreeMap::new(),
            plan,
        };
        if world.fleet.is_cluster() {
            let way = world.plan.clients.iter().map(|client| client.way.1).max().unwrap_or(0);
            board::with(|board| board.connects_for = CONNECTING * way);
        }
        world.found();
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        let plan = Arc::clone(&self.plan);
        for (at, setup) in plan.clients.iter().enumerate() {
            let process = Process::new(setup.seed, setup.rate);
            self.berths.push(Berth {
                process,
                dialling: Dialling::default(),
                orders: None,
                life: 0,
            });
            let first = self.rng.u64(..20 * MILLI);
            self.at(first, Event::Start(at));
        }
        for (at, fault) in plan.faults.iter().enumerate() {
            self.at(fault.at, Event::Fault(at));
            if let What::Failover { stale, .. } = fault.what {
                self.at(fault.at.saturating_sub(stale), Event::Remember(at));
            }
        }
        self.at(MILLI, Event::Tick);
        self.at(LOOK, Event::Look);
    }

    /// Schedules an event. Of several events at one time, the first that was scheduled happens first.
    pub fn at(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((at.max(clock::now()), self.scheduled), event);
    }

    pub fn station(&mut self) -> &mut Station {
        self.fleet.station()
    }

    /// Lives through the whole plan, and says how long that took in its own time.
    pub fn run(&mut self) -> u64 {
        self.until(self.plan.length, |_| false);
        let patience = self.plan.length.max(self.plan.mended()) + self.patience();
        self.until(patience, Self::is_over);
        self.watch.all_ended(&self.berths, &self.plan);
        let rest = clock::now() + self.leftover();
        self.until(rest, |_| false);
        self.watch.nothing_left(&mut self.fleet, &self.berths);
        clock::now()
    }

    /// How long a caller may go on when it should come to its end: others hold what it waits for, and may die.
    fn patience(&self) -> u64 {
        2 * self.plan.longest(|client| client.watchdog + client.ride_out) + 30 * SECOND
    }

    /// How long something may stay in the server after all have gone.
    fn leftover(&self) -> u64 {
        let leases = self.plan.longest(|client| client.watchdog);
        let parks = self.plan.longest(|client| client.max_park * 2);
        // A key lives for longer by as much as the server's clock steps back.
        leases.max(parks) + self.plan.set_back(u64::MAX) + 3 * SECOND
    }

    fn is_over(&self) -> bool {
        let over = |(at, berth): (usize, &Berth)| {
            berth.process.is_alive() && board::with(|board| board.done.contains(&(at, berth.life)))
        };
        self.berths.iter().enumerate().all(over)
    }

    /// Goes on until that time, or until something is so.
    fn until(&mut self, end: u64, is_so: impl Fn(&Self) -> bool) {
        let mut looked = 0;
        while let Some((&(at, order), _)) = self.events.first_key_value() {
            if at > end {
                break;
            }
            if at > looked + 50 * MILLI {
                looked = at;
                if is_so(self) {
                    return;
                }
            }
            clock::set(at);
            if let Some(event) = self.events.remove(&(at, order)) {
                self.happen(event);
            }
            let is_last = self.events.first_key_value().is_none_or(|((next, _), _)| *next > at);
            if is_last {
                self.step_dirty();
            }
        }
        clock::set(end.max(clock::now()));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(link, arrival) => self.arrive(link, arrival),
            Event::Fault(at) => chaos::begin(self, at),
            Event::Mended(at) => chaos::end(self, at),
            Event::Remember(at) => {
                let snapshot = self.station().server.snapshot();
                self.snapshots.insert(at, snapshot);
            }
            Event::Start(process) => self.start(process),
            Event::Resume(process) => drop(self.dirty.insert(process)),
            Event::Serve(at) => self.serve_backlog(at),
            Event::Closed { process, seat } => self.watch_closed(process, seat),
            Event::Forged { station, message } => self.publish(station, &message),
            Event::Tick | Event::Look => self.pass(event),
            other => self.among_servers(other),
        }
    }

    /// What happens among the servers.
    fn among_servers(&mut self, event: Event) {
        match event {
            Event::Replicated(line) => self.arrive_at_replica(line),
            Event::Acknowledged(line, offset) => self.acknowledge(line, offset),
            Event::WaitOver(at) => self.end_waits(at),
            Event::Promoted(fault, next) => {
                self.crown(fault, next, clock::now());
                // The replica may have an old counter.
                self.fleet.aim = fault;
                chaos::look_at_counters(self);
            }
            Event::Hears { station, shard } => self.hears(station, shard),
            Event::Follows { station, shard } => self.follows(station, shard),
            Event::SentinelHears(at) => self.sentinel_hears(at),
            Event::Carried(fault) => self.carry(fault),
            Event::Told { station, channel, message } => {
                self.fleet.stations[station].server.tell(&channel, &message);
                self.send(station);
            }
            _ => unreachable!("it happens elsewhere"),
        }
    }

    /// Time passes.
    fn pass(&mut self, event: Event) {
        match event {
            Event::Tick => self.tick(),
            Event::Look => {
                self.watch.look(&mut self.fleet);
                self.sessions.look(&mut self.fleet);
                if clock::now().is_multiple_of(ghosts::LOOK) {
                    self.ghosts.look(&mut self.fleet);
                }
                self.at(clock::now() + LOOK, Event::Look);
            }
            _ => {}
        }
    }

    fn tick(&mut self) {
        for (at, berth) in self.berths.iter().enumerate() {
            if berth.process.tasks() > 0 {
                self.dirty.insert(at);
            }
        }
        self.at(clock::now() + MILLI, Event::Tick);
    }

    // --- Processes ---

    fn start(&mut self, at: usize) {
        let (setup, berth) = (&self.plan.clients[at], &mut self.berths[at]);
        if berth.life > 0 && berth.process.is_alive() {
            // It has crashed twice, and is back after the shorter time.
            return;
        }
        berth.life += 1;
        let seed = setup.seed ^ berth.life.wrapping_mul(0x2545_f491_4f6c_dd1d);
        berth.process = Process::new(seed, setup.rate);
        berth.dialling = Dialling::default();
        let home = Arc::new(Home { plan: Arc::clone(&self.plan), process: at, life: berth.life });
        let desk = Arc::new(Desk::new(home, berth.dialling.clone()));
        let (orders, obeyed) = mpsc::unbounded_channel();
        berth.orders = Some(orders);
        match self.plan.scene {
            Some(scene) if !scene.is_work() => berth.process.spawn(plays::play(scene, desk)),
            _ => berth.process.spawn(work::live(desk, obeyed)),
        }
        trace::line(|| format!("p{at}        starts, life {}", berth.life));
        self.dirty.insert(at);
    }

    pub fn order(&mut self, process: usize, order: Order) {
        let berth = &self.berths[process];
        if let Some(orders) = berth.orders.as_ref().filter(|_| berth.process.is_alive()) {
            let _ = orders.send(order);
            self.dirty.insert(process);
        }
    }

    /// Nothing of it runs until then.
    pub fn pause(&mut self, process: usize, until: u64) {
        let paused = &mut self.berths[process].process.paused_until;
        *paused = until.max(*paused);
        board::with(|board| *board.paused.entry(process).or_default() += until - clock::now());
        self.at(until, Event::Resume(process));
    }

    pub fn crash(&mut self, process: usize) {
        self.net.die(process);
        steps::dies(process);
        self.schedule();
        board::with(|board| board.crashed(process));
        self.berths[process].process.crash();
    }

    fn step_dirty(&mut self) {
        while let Some(process) = self.dirty.pop_first() {
            let berth = &mut self.berths[process];
            if berth.process.is_paused() || !berth.process.is_alive() {
                continue;
            }
            berth.process.step(|| board::look(process));
            for dialled in berth.dialling.take() {
                let station = self.fleet.at(&dialled.host);
                let station = station.unwrap_or_else(|| self.reached_by(process));
                self.net.dial(process, station, dialled);
            }
            self.net.collect(process);
            self.schedule();
            self.look_up();
        }
    }

    /// The station that a new connection of this process leads to.
    fn reached_by(&self, process: usize) -> usize {
        let now = clock::now();
        match self.misled {
            Some((client, station, until)) if client == process && now < until => station,
            _ if now < self.lag_until => self.before,
            _ => self.fleet.primary(),
        }
    }

    fn schedule(&mut self) {
        for (at, link, arrival) in self.net.take() {
            self.at(at, Event::Arrival(link, arrival));
        }
    }

    // --- The wire ---

    fn arrive(&mut self, id: u64, arrival: Arrival) {
        match arrival {
            Arrival::Answer(bytes) => {
                if let Some(process) = self.net.deliver(id, &bytes) {
                    trace::mix(id << 1, &bytes);
                    trace::line(|| format!("p{process}.{id}    <- {}", frames::answers(&bytes)));
                    self.dirty.insert(process);
                }
            }
            Arrival::Closed(how) => {
                if let Some(process) = self.net.end(id, how) {
                    trace::mix(id << 1, b"closed");
                    trace::line(|| format!("p{process}.{id}    is over: {how:?}"));
                    self.dirty.insert(process);
                }
            }
            up => self.arrive_up(id, up),
        }
    }

    /// What reaches a server that is not ready waits there, in its order.
    fn arrive_up(&mut self, id: u64, arrival: Arrival) {
        let Some(at) = self.net.links.get(&id).map(|link| link.station) else { return };
        let station = &mut self.fleet.stations[at];
        let (ready, is_first) = (station.ready_at(), station.backlog.is_empty());
        if is_first && ready <= clock::now() {
            return self.serve(id, arrival);
        }
        station.backlog.push_back((id, arrival));
        if is_first {
            self.at(ready, Event::Serve(at));
        }
    }

    /// Works off the backlog, as far as the server is ready.
    fn serve_backlog(&mut self, at: usize) {
        loop {
            let station = &mut self.fleet.stations[at];
            let ready = station.ready_at();
            if ready > clock::now() {
                return self.at(ready, Event::Serve(at));
            }
            let Some((id, arrival)) = station.backlog.pop_front() else { return };
            self.serve(id, arrival);
        }
    }

    fn serve(&mut self, id: u64, arrival: Arrival) {
        let Some(link) = self.net.links.get(&id) else { return };
        let (process, at, conn) = (link.process, link.station, link.conn);
        let station = &mut self.fleet.stations[at];
        match (arrival, conn) {
            (Arrival::Client, _) if clock::now() < station.down_until => {
                self.net.refuse(id);
                self.dirty.insert(process);
            }
            (Arrival::Client, _) => {
                let conn = station.accept(id);
                self.net.accept(id, conn);
                self.dirty.insert(process);
            }
            (Arrival::Request(bytes), Some(conn)) if !self.net.is_lost(id) => {
                trace::mix(id << 1 | 1, &bytes);
                trace::line(|| format!("p{process}.{id}    -> {}", frames::requests(&bytes)));
                self.receive(at, conn, id, &bytes);
                self.send(at);
            }
            (Arrival::Gone, conn) => {
                if let Some(conn) = conn {
                    station.hang_up(conn);
                }
                self.net.links.remove(&id);
            }
            _ => {}
        }
    }

    /// A server carries out what has arrived. If the steps of a lock are kept, it does so request by request.
    fn receive(&mut self, at: usize, conn: Conn, id: u64, bytes: &[u8]) {
        let station = &mut self.fleet.stations[at];
        if !steps::are_kept() {
            return station.receive(conn, bytes);
        }
        station.server.overhear(); // what others have published
        for request in steps::requests(id, bytes) {
            station.receive(conn, &request);
            let mut answer = Vec::new();
            for (link, bytes) in station.output() {
                if link == id {
                    answer.extend_from_slice(&bytes);
                }
                self.net.answer(link, bytes);
            }
            steps::ran(station, &request, &answer);
        }
    }

    /// Puts on its way what a station sends.
    pub fn send(&mut self, at: usize) {
        for (link, bytes) in self.fleet.stations[at].output() {
            self.net.answer(link, bytes);
        }
        for link in self.fleet.stations[at].hang_ups() {
            self.net.hung_up(link);
        }
        if !matches!(self.plan.topology, Topology::One) {
            self.replicate(at);
            self.spread(at);
        }
        self.overhear(at);
        self.schedule();
    }

    /// The eavesdropper hears what a station has published.
    fn overhear(&mut self, station: usize) {
        let Some(eavesdropper) = &mut self.eavesdropper else { return };
        let mut forged = Vec::new();
        for (channel, text, is_sharded) in self.fleet.stations[station].server.overhear() {
            let (Ok(channel), Ok(text)) = (String::from_utf8(channel), String::from_utf8(text))
            else {
                continue;
            };
            forged.extend(eavesdropper.hear(&Message { channel, text, is_sharded }));
        }
        board::with(|board| board.count("forged by an eavesdropper", forged.len() as u64));
        for (after, message) in forged {
            self.at(clock::now() + after, Event::Forged { station, message });
        }
    }

    fn publish(&mut self, station: usize, Message { channel, text, is_sharded }: &Message) {
        trace::line(|| format!("FORGED    {channel}: {text}"));
        let publish = if *is_sharded { "SPUBLISH" } else { "PUBLISH" };
        self.fleet.stations[station].execute(&[publish, channel, text]);
        self.send(station);
    }

    /// Puts on its way to the other nodes what one has published.
    fn spread(&mut self, at: usize) {
        for (channel, message) in self.fleet.stations[at].server.bus() {
            for station in (0..self.fleet.stations.len()).filter(|station| *station != at) {
                let arrives = clock::now() + self.fleet_rng.u64(100_000..3 * MILLI);
                let (channel, message) = (channel.clone(), message.clone());
                self.at(arrives, Event::Told { station, channel, message });
            }
        }
    }

    // --- What only the world can look up ---

    fn look_up(&mut self) {
        let questions = board::with(|board| std::mem::take(&mut board.questions));
        for question in questions {
            match question {
                Question::Present { unlock, seat, name } => {
                    let present = !self.fields_of(seat, name).is_empty();
                    board::with(|board| board.present(unlock, present));
                }
                Question::Counted { seat, name, holds } => self.watch_counted(seat, name, holds),
                Question::Unchanged { seat, name, caller } => {
                    self.watch_unchanged(seat, name, &caller)
                }
                // Earlier requests may arrive after it.
                Question::Closed { process, seat } => {
                    self.at(clock::now() + ARRIVED, Event::Closed { process, seat });
                }
            }
        }
    }

    /// What a seat's client has of a name in Redis.
    fn fields_of(&mut self, seat: u64, name: usize) -> Vec<String> {
        let (layout, name) = (self.plan.layout, self.plan.names[name].clone());
        let client = mark_of(seat);
        let holders = self.fleet.holders(layout, &name);
        holders.into_iter().filter(|field| field.contains(&client)).collect()
    }

    /// As `fields_of`, for waiters.
    fn places_of(&mut self, seat: u64, name: usize) -> Vec<String> {
        let (layout, name) = (self.plan.layout, self.plan.names[name].clone());
        let client = mark_of(seat);
        let waiters = self.fleet.waiters(layout, &name);
        waiters.into_iter().filter(|field| field.contains(&client)).collect()
    }

    fn watch_counted(&mut self, seat: u64, name: usize, holds: u64) {
        let key = keyspace::key(self.plan.layout, &self.plan.names[name]);
        for field in self.fields_of(seat, name) {
            let (layout, of) = (self.plan.layout, self.plan.names[name].clone());
            let counted = self.fleet.number(layout, &of, &["HGET", &key, &field]);
            if counted != holds {
                let what = format!("{counted} of {holds} in name {name}");
                board::wrong("Redis counts other holds than there are", what);
            }
        }
    }

    fn watch_unchanged(&mut self, seat: u64, name: usize, caller: &str) {
        let lease = self.plan.longest(|client| client.watchdog);
        let since = clock::now().saturating_sub(lease);
        // What an earlier caller of this client had asked for, and heard no answer to, may have run since.
        let earlier = since.saturating_sub(5 * SECOND);
        let text = &*self.plan.names[name].label();
        let may_run = |b: &Board| {
            b.uses(seat, (name, text), since)
                || b.is_unsure(seat, name, earlier)
                || b.was_silent(seat, name, earlier)
        };
        if board::with(|b| may_run(b)) {
            return;
        }
        board::with(|board| board.judged("Unavailable"));
        let fields = self.fields_of(seat, name);
        if !fields.is_empty() {
            let what = format!("{caller} was told so of name {name}, and Redis has {fields:?}");
            board::wrong("Unavailable though something was changed", what);
        }
    }

    /// A client that is closed holds nothing, unless it could not reach the server.
    fn watch_closed(&mut self, process: usize, seat: u64) {
        let since = clock::now().saturating_sub(3 * SECOND);
        if !board::with(|board| board.calm_since(since)) {
            return;
        }
        board::with(|board| board.judged("close"));
        for name in 0..self.plan.names.len() {
            let mut fields = self.fields_of(seat, name);
            fields.extend(self.places_of(seat, name));
            if !fields.is_empty() {
                let what =
                    format!("p{process}: {} fields of name {name}: {:?}", fields.len(), fields[0]);
                board::wrong("close left something held", what);
            }
        }
    }
}
