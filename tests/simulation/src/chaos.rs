//! What each fault does, and how long it may show after it is over.

use std::time::Duration;

use parklock_simulated_server::Version;

use crate::board;
use crate::clock::{self, MILLI, SECOND};
use crate::judge::Break;
use crate::keyspace;
use crate::plan::{What, Which, nanos};
use crate::trace;
use crate::work::Order;
use crate::world::{Event, World};

/// Begins a fault, and says how long it may show.
pub fn begin(world: &mut World, at: usize) {
    let what = world.plan.faults[at].what.clone();
    // One shard after the other.
    world.fleet.aim = at;
    trace::line(|| format!("FAULT     {what:?}"));
    board::with(|board| board.count(&what.word(), 1));
    let until = clock::now() + what.long();
    // A script that was forgotten is sent again, and nobody notices.
    if !matches!(what, What::ForgetScripts) {
        board::with(|board| {
            board.disturb(until + settles(world, &what), client(&what), disorders(world, &what))
        });
    }
    if is_silence(&what) {
        let late = if what.long() > shortest_response(world) / 2 { noticed(world) } else { 0 };
        board::with(|board| board.silence(until + late));
    }
    if what.long() > 0 {
        world.at(until, Event::Mended(at));
    }
    for (key, count) in world.station().counters() {
        let drawn = world.drawn.entry(key).or_default();
        *drawn = count.max(*drawn);
    }
    act(world, at, &what, until);
    look_at_counters(world);
}

/// Whose client it is about.
fn client(what: &What) -> Option<usize> {
    match what {
        What::Crash { client, .. }
        | What::Pause { client, .. }
        | What::Replace { client }
        | What::Cut { client, .. }
        | What::Delay { client, .. }
        | What::Slice { client, .. }
        | What::Hole { client, .. }
        | What::HalfOpen { client, .. }
        | What::Swallow { client, .. }
        | What::Mislead { client, .. } => Some(*client),
        _ => None,
    }
}

fn is_silence(what: &What) -> bool {
    matches!(what, What::Stall { .. } | What::Slow { .. } | What::Restart { keeps: true, .. })
}

/// A client that has waited for an answer for longer than this connects again.
fn shortest_response(world: &World) -> u64 {
    world.plan.clients.iter().map(|client| nanos(client.response)).min().unwrap_or(0)
}

/// How long it may take a client to be back after a restart: it pauses between two tries to connect.
const BACK: Duration = Duration::from_secs(3);

/// How long it may take a client to ask again that has given up its connections to a server that lives.
const AGAIN: u64 = 300 * MILLI;

/// Whether the order of a queue may suffer. That of a server that only takes its time may not, unless a client gives up its
/// connections meanwhile and its place does not last until it asks again. Nor may that of a server that comes back with its
/// data, if places last until its clients are back too.
fn disorders(world: &World, what: &What) -> bool {
    let clients = &world.plan.clients;
    let gives_up =
        |late: u64| clients.iter().any(|c| nanos(c.response) < late && nanos(c.claim) < AGAIN);
    match *what {
        What::Stall { long } => gives_up(long),
        // All callers may wait for an answer at once, for example since messages make them ask.
        What::Slow { by, .. } => gives_up(by * (clients.len() * world.plan.callers) as u64),
        What::Restart { keeps: true, .. } => clients.iter().any(|c| c.claim < BACK),
        _ => true,
    }
}

/// A silent connection is noticed by its heartbeat, and made again with pauses.
fn noticed(world: &World) -> u64 {
    2 * world.plan.longest(|client| client.response) + 3 * SECOND
}

/// How long after its end it may show.
fn settles(world: &World, what: &What) -> u64 {
    let plan = &world.plan;
    let noticed = noticed(world);
    match what {
        // Nobody tells the waiters. They look when the lease should be over.
        What::Swallow { .. } | What::Deny { .. } | What::Delete { .. } | What::DeleteAll => {
            noticed + plan.longest(|client| client.max_park.max(client.watchdog))
        }
        What::Clock { .. }
        | What::Failover { .. }
        | What::Restart { .. }
        | What::TakeOver { .. }
        | What::Behind { .. }
        | What::Down { .. }
        | What::Lie { .. }
        | What::Deaf { .. }
        | What::SentinelDown { .. }
        | What::Move { .. } => {
            noticed + plan.longest(|client| client.max_park.max(client.watchdog))
        }
        _ => noticed,
    }
}

fn act(world: &mut World, at: usize, what: &What, until: u64) {
    match *what {
        What::Crash { client, back } if client < world.berths.len() => {
            world.crash(client);
            world.at(clock::now() + back, Event::Start(client));
        }
        What::Pause { client, .. } if client < world.berths.len() => world.pause(client, until),
        What::Replace { client } if client < world.berths.len() => {
            world.order(client, Order::Replace)
        }
        What::ForceUnlock { client, name }
            if client < world.berths.len() && name < world.plan.names.len() =>
        {
            world.order(client, Order::ForceUnlock { name });
        }
        What::Cut { client, link, moment } => {
            if let Some(link) = picked(world, client, link) {
                world.net.arm(link, moment);
            }
        }
        What::Hole { client, link, arrives, .. } => {
            if let Some(link) = picked(world, client, Which::Any(link)) {
                world.net.hole(link, until, arrives);
            }
        }
        What::HalfOpen { client, link } => {
            if let Some(link) = picked(world, client, Which::Any(link)) {
                world.net.half_open(link);
            }
        }
        What::Delay { client, by, .. } if client < world.berths.len() => {
            world.net.troubles[client].delay = (until, by);
        }
        What::Slice { client, .. } if client < world.berths.len() => {
            world.net.troubles[client].sliced_until = until;
        }
        What::Swallow { client, .. } if client < world.berths.len() => {
            world.net.troubles[client].swallowed_until = until;
        }
        What::Mislead { client, .. } if client < world.berths.len() => {
            mislead(world, client, until)
        }
        What::Failover { lag, .. } => fail_over(world, at, lag),
        What::TakeOver { shard, how, .. } => world.take_over(at, shard, how, until),
        What::Move { name, by, pace, rest } => world.open(at, name, by, pace, rest),
        What::Behind { .. }
        | What::Lie { .. }
        | What::Down { .. }
        | What::Deaf { .. }
        | What::SentinelDown { .. } => among_servers(world, what, until),
        _ => strike(world, what, until),
    }
    for (at, link, arrival) in world.net.take() {
        world.at(at, Event::Arrival(link, arrival));
    }
}

fn picked(world: &World, client: usize, link: Which) -> Option<u64> {
    (client < world.berths.len()).then(|| world.net.pick(client, link)).flatten()
}

/// What happens to one of several servers.
fn among_servers(world: &mut World, what: &What, until: u64) {
    let primary =
        |world: &World, shard: usize| world.fleet.shards[shard % world.fleet.shards.len()].primary;
    let sentinel = |world: &World, at: usize| world.fleet.sentinels.get(at).copied();
    match *what {
        What::Behind { shard, .. } => {
            let from = primary(world, shard);
            for line in world.lines.values_mut().filter(|line| line.from == from) {
                line.held_until = until.max(line.held_until);
            }
        }
        What::Lie { node, .. } => {
            if let Some(station) = world.fleet.stations.get_mut(node) {
                station.server.set_turned(1);
            }
        }
        What::Down { shard, .. } => {
            let at = primary(world, shard);
            world.fleet.stations[at].server.set_up(false);
        }
        What::Deaf { sentinel: at, .. } => {
            if let Some(at) = sentinel(world, at) {
                world.fleet.stations[at].deaf_until = until;
            }
        }
        What::SentinelDown { sentinel: at, .. } => {
            if let Some(at) = sentinel(world, at) {
                world.fall(at, until);
            }
        }
        _ => {}
    }
}

/// What happens to the server itself.
fn strike(world: &mut World, what: &What, until: u64) {
    let now = clock::now();
    match *what {
        What::Stall { .. } => {
            let stalled = &mut world.station().stalled_until;
            *stalled = until.max(*stalled);
        }
        What::Slow { by, .. } => world.station().slow = (until, by),
        What::Restart { keeps, .. } => restart(world, keeps, until),
        What::Clock { by } => {
            // They have one clock, or tokens would fall and leases end early over a failover.
            world.fleet.stations.iter_mut().for_each(|station| station.set_clock(by));
            broken(Break::loose(None, now, now));
        }
        What::MemoryFull { .. } => world.station().server.set_memory_full(true),
        What::Loading { .. } => world.station().server.set_loading(true),
        What::Busy { .. } => world.station().server.set_busy(true),
        What::Deny { .. } => world.station().server.set_denied(&[], true),
        What::ForgetScripts => drop(world.station().execute(&["SCRIPT", "FLUSH"])),
        What::Delete { name } if name < world.plan.names.len() => {
            let name = world.plan.names[name].clone();
            let key = keyspace::key(world.plan.layout, &name);
            for at in world.fleet.homes(world.plan.layout, &name) {
                world.fleet.stations[at].execute(&["DEL", &key]);
                world.send(at);
            }
            broken(Break::loose(Some(&name.label()), now, now));
        }
        What::Squat { name } if name < world.plan.names.len() => {
            let key = keyspace::key(world.plan.layout, &world.plan.names[name]);
            world.station().execute(&["SET", &key, "7"]);
        }
        What::DeleteAll => {
            for shard in 0..world.fleet.shards.len() {
                let at = world.fleet.shards[shard].primary;
                world.fleet.stations[at].execute(&["FLUSHALL"]);
                world.send(at);
            }
            broken(Break::loose(None, now, now));
        }
        What::Forge { name, form, beat } if name < world.plan.names.len() => {
            forge(world, name, form, beat);
        }
        _ => {}
    }
}

/// Ends a fault.
pub fn end(world: &mut World, at: usize) {
    let what = world.plan.faults[at].what.clone();
    trace::line(|| format!("MENDED    {what:?}"));
    // It may have begun on a server that is not the primary any more.
    for server in world.fleet.stations.iter_mut().map(|station| &mut station.server) {
        match what {
            What::MemoryFull { .. } => server.set_memory_full(false),
            What::Loading { .. } => server.set_loading(false),
            What::Busy { .. } => server.set_busy(false),
            What::Deny { .. } => server.set_denied(&[], false),
            What::Lie { .. } => server.set_turned(0),
            What::Down { .. } => server.set_up(true),
            _ => {}
        }
    }
    if let What::TakeOver { .. } = what {
        world.rejoin(at);
    }
}

fn broken(one: Break) {
    board::with(|board| board.breaks.push(one));
}

fn restart(world: &mut World, keeps: bool, until: u64) {
    let now = clock::now();
    let at = world.fleet.primary();
    world.reattach(at, until);
    let links = world.station().restart(keeps);
    // Not sooner than a failover says that has killed it: it would be a primary that nobody has replaced yet.
    let down_until = &mut world.station().down_until;
    *down_until = until.max(*down_until);
    links.into_iter().for_each(|link| world.net.hung_up(link));
    if keeps {
        board::with(|board| board.restarts.push(now));
    } else {
        broken(Break::sharp(now));
    }
}

/// A counter of the tokens may be lost, or be an old one: it catches up with the server's clock, but not if that is
/// behind too.
pub fn look_at_counters(world: &mut World) {
    let (counters, time) = (world.station().counters(), world.station().time());
    // One that was lost long ago counts too: the clock may have been set back only now.
    let is_behind =
        |(key, drawn): (&String, &u64)| counters.get(key).copied().unwrap_or(0).max(time) < *drawn;
    if world.drawn.iter().any(is_behind) {
        board::with(|board| board.counters_lost.push(clock::now()));
    }
}

/// A replica that had heard nothing for some time is the primary now.
fn fail_over(world: &mut World, at: usize, lag: u64) {
    let version = world.version;
    let mut next = world.station().sibling(version);
    if let Some(snapshot) = world.snapshots.remove(&at) {
        next.server.load(snapshot);
    }
    world.station().server.become_replica();
    world.before = world.fleet.primary();
    world.fleet.stations.push(next);
    world.fleet.shards[0].primary = world.fleet.stations.len() - 1;
    world.lag_until = clock::now() + lag;
    broken(Break::sharp(clock::now()));
}

/// A replica that knows nothing takes the connections that this client makes from now on.
fn mislead(world: &mut World, client: usize, until: u64) {
    let version = world.version;
    let mut replica = world.station().sibling(version);
    replica.server.become_replica();
    world.fleet.stations.push(replica);
    world.misled = Some((client, world.fleet.stations.len() - 1, until));
}

/// Publishes what no script of ours has published: nonsense, what Redisson says, or the grant of something.
fn forge(world: &mut World, name: usize, form: u64, beat: u64) {
    let (layout, name) = (world.plan.layout, world.plan.names[name].clone());
    let channel = keyspace::channel(layout, &name);
    let home = world.fleet.homes(layout, &name)[0];
    let station = &mut world.fleet.stations[home];
    let waiting = station.list(&["ZRANGE", &keyspace::queue(&name), "0", "-1"]);
    let stranger = "00000000-0000-8000-8000-00000000ffff";
    let message = match (form, waiting.first()) {
        (0, _) => String::new(),
        (1, _) => "0".to_owned(),
        (2, _) => stranger.to_owned(),
        (3, _) => format!("{stranger} {stranger}"),
        (4..8, Some(field)) => {
            let number = station.time() % (1 << 53);
            format!("{stranger} {field}={number}@{beat}")
        }
        _ => format!("{stranger} a=b@c :=@ {stranger}:1=99999999999999999999@0"),
    };
    trace::line(|| format!("FORGED    {channel}: {message}"));
    let is_sharded = world.fleet.is_cluster() && world.version != Version::Redis6_2;
    let publish = if is_sharded { "SPUBLISH" } else { "PUBLISH" };
    world.fleet.stations[home].execute(&[publish, &channel, &message]);
    world.send(home);
}
