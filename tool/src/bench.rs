//! `parklock bench`: compares parklock with a polling lock on the user's own server, for a minute.

use std::fmt::Write;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use parklock::operator::{self, Space};
use parklock::{Client, Error};
use redis::Script;
use redis::aio::MultiplexedConnection;
use serde_json::json;
use tokio::time::sleep;

use crate::args::Bench;
use crate::failure::Failure;
use crate::servers::Server;
use crate::span::in_ms;
use crate::{exit, output, servers};

/// How long a holder works in the contended part.
const WORK: Duration = Duration::from_millis(1);
/// How long the pollers sleep between two attempts.
const POLLS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// There are two rounds, so that a slow moment of the machine does not affect one case alone.
const ROUNDS: u32 = 2;

const TEXT: &str = "\
In a turn, a caller gets the lock, works for 1 ms (not in the first part), and gives the lock back. The wait is the time from asking
to getting. Commands are those that the server ran for each turn, in scripts too. If others use this server, their commands count too.
The poller is the usual simple lock: SET NX PX, a sleep while it is taken, and a script that deletes it if it is still ours. It has no
order, no renewal and no token, and does less for each turn: alone it may be faster. It uses the tool's own connection, not the
library.
";

pub(crate) async fn bench(asked: &Bench) -> Result<u8, Failure> {
    if asked.seconds == 0 || asked.clients == 0 {
        return Err(Failure::usage("--seconds and --clients must be at least 1"));
    }
    let servers = primaries(&asked.server.url()).await?;
    let stage = Stage::new(asked, &servers).await?;
    let address =
        servers.iter().map(|server| server.address.as_str()).collect::<Vec<_>>().join(", ");
    if !asked.json {
        output::put(&format!("{} s on {address}\n\n", asked.seconds));
    }
    let cases = cases(asked.clients);
    let slice =
        Duration::from_secs(asked.seconds) / (ROUNDS * u32::try_from(cases.len()).unwrap_or(1));
    let mut tallies: Vec<Tally> = cases.iter().map(|_| Tally::default()).collect();
    for _ in 0..ROUNDS {
        for (case, tally) in cases.iter().zip(&mut tallies) {
            tally.add(stage.play(case, slice).await?);
        }
    }
    stage.close().await;
    tallies.iter_mut().for_each(|tally| tally.waits.sort());
    if asked.json {
        output::put(&lines(&cases, &tallies));
    } else {
        output::put(&table(&cases, &tallies));
        output::put(TEXT);
    }
    Ok(exit::OK)
}

/// All servers that have locks. It counts the commands of all of them, and does not know beforehand which ones its keys
/// need.
async fn primaries(url: &str) -> Result<Vec<Server>, Failure> {
    let reached = servers::reach(url).await?;
    match reached.failure() {
        Some(failure) => {
            let why = format!("{failure}. bench needs every primary of the cluster");
            Err(Failure { why, ..failure.clone() })
        }
        None => Ok(reached.servers),
    }
}

/// What one row of the table measures: which lock, and how many callers.
#[derive(Debug, Clone, Copy)]
struct Case {
    part: &'static str,
    callers: usize,
    work: Duration,
    /// How long a poller sleeps; `None`: the case measures parklock.
    poll: Option<Duration>,
}

fn cases(clients: usize) -> Vec<Case> {
    let alone = |poll| Case { part: "alone", callers: 1, work: Duration::ZERO, poll };
    let together = |poll| Case { part: "contended", callers: clients, work: WORK, poll };
    let mut cases = vec![alone(None), alone(Some(POLLS[0])), together(None)];
    cases.extend(POLLS.iter().map(|poll| together(Some(*poll))));
    cases
}

/// The measurements of one case.
#[derive(Debug, Default)]
struct Tally {
    waits: Vec<Duration>,
    took: Duration,
    commands: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.waits.extend(other.waits);
        self.took += other.took;
        self.commands += other.commands;
    }

    fn turns_per_second(&self) -> f64 {
        self.waits.len() as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }

    fn commands_per_turn(&self) -> f64 {
        self.commands as f64 / self.waits.len().max(1) as f64
    }

    /// The longest wait among the shortest `share` of all waits, which are sorted: a quantile.
    fn wait(&self, share: f64) -> Duration {
        let last = self.waits.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        self.waits.get(at).copied().unwrap_or_default()
    }
}

/// Clients and connections, one of each for each caller.
struct Stage {
    name: String,
    servers: Vec<Server>,
    clients: Vec<Client>,
    /// The key of the pollers.
    key: String,
    pollers: Vec<MultiplexedConnection>,
}

impl Stage {
    async fn new(asked: &Bench, servers: &[Server]) -> Result<Self, Failure> {
        let name = format!("parklock-bench-{:x}", fastrand::u64(..));
        let realm = asked.server.one_realm()?;
        let (url, config) = (asked.server.url(), asked.server.config());
        let connect = |_| Client::connect_with(&url, config.clone());
        let clients = try_join_all((0..asked.clients).map(connect)).await?;
        // Like the key of a lock: the user of a program may use no other.
        let space = servers.first().map_or(Space::Database(0), |server| server.space);
        let place = (realm.namespaces.name(), &*format!("{name}:poller"));
        let key = operator::place(realm.layout, "lock", place, space)?.lock;
        // In a cluster, the pollers' key lies on one node, so they all need a connection to that node.
        let server = owner(servers, &key).await?;
        let mut pollers = Vec::new();
        for _ in 0..asked.clients {
            pollers.push(server.again().await?);
        }
        Ok(Self { name, servers: servers.to_vec(), clients, key, pollers })
    }

    async fn play(&self, case: &Case, slice: Duration) -> Result<Tally, Failure> {
        let (before, began) = (self.commands().await?, Instant::now());
        let until = began + slice;
        let waits = match case.poll {
            None => {
                let callers = self.clients.iter().take(case.callers);
                try_join_all(callers.map(|client| lock(client, &self.name, case.work, until)))
                    .await?
            }
            Some(poll) => {
                let (callers, key) = (self.pollers.iter().take(case.callers), &self.key);
                let turns =
                    callers.map(|conn| polled(conn.clone(), key.clone(), poll, case.work, until));
                try_join_all(turns).await?
            }
        };
        let took = began.elapsed();
        let commands = self.commands().await?.saturating_sub(before);
        Ok(Tally { waits: waits.concat(), took, commands })
    }

    /// All commands that all servers have run.
    async fn commands(&self) -> Result<u64, Failure> {
        let each = self.servers.iter().map(async |server| {
            let stats = server.info("stats").await?;
            Ok::<_, Failure>(stats.number("total_commands_processed").unwrap_or(0))
        });
        Ok(try_join_all(each).await?.into_iter().sum())
    }

    async fn close(&self) {
        join_all(self.clients.iter().map(Client::close)).await;
    }
}

/// The server that has this key.
async fn owner<'a>(servers: &'a [Server], key: &str) -> Result<&'a Server, Failure> {
    for server in servers {
        match server.query::<u64>(&["EXISTS", key]).await {
            Ok(_) => return Ok(server),
            Err(refused) if refused.is_refusal() => return Err(refused),
            // Another node has it.
            Err(_) => {}
        }
    }
    Err(Failure::unavailable("no server takes the key of the pollers"))
}

/// Takes turns until the time is over. Returns how long each turn waited.
async fn lock(
    client: &Client,
    name: &str,
    work: Duration,
    until: Instant,
) -> Result<Vec<Duration>, Failure> {
    let (lock, mut waits) = (client.lock(name), Vec::new());
    loop {
        let asked = Instant::now();
        let left = until.saturating_duration_since(asked);
        if left.is_zero() {
            return Ok(waits);
        }
        let guard = match lock.try_lock_for(left).await {
            Ok(Some(guard)) => guard,
            // The time ran out while a request was in flight.
            Ok(None) | Err(Error::Indeterminate { .. }) => return Ok(waits),
            Err(error) => return Err(error.into()),
        };
        waits.push(asked.elapsed());
        rest(work).await;
        guard.unlock().await?;
    }
}

/// Same as `lock`, with the simple lock.
async fn polled(
    mut conn: MultiplexedConnection,
    key: String,
    poll: Duration,
    work: Duration,
    until: Instant,
) -> Result<Vec<Duration>, Failure> {
    let release = Script::new(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
    );
    let (token, mut waits) = (format!("{:x}", fastrand::u64(..)), Vec::new());
    loop {
        let asked = Instant::now();
        while !take(&mut conn, &key, &token).await? {
            if Instant::now() >= until {
                return Ok(waits);
            }
            // Half of the pause is random: otherwise all pollers would ask at the same moments.
            sleep(poll.mul_f64(0.5 + fastrand::f64())).await;
        }
        waits.push(asked.elapsed());
        rest(work).await;
        release.key(&key).arg(&token).invoke_async::<i64>(&mut conn).await?;
        if Instant::now() >= until {
            return Ok(waits);
        }
    }
}

async fn take(conn: &mut MultiplexedConnection, key: &str, token: &str) -> Result<bool, Failure> {
    let mut set = redis::cmd("SET");
    set.arg(key).arg(token).arg("NX").arg("PX").arg(30_000);
    Ok(set.query_async::<Option<String>>(conn).await?.is_some())
}

async fn rest(work: Duration) {
    if !work.is_zero() {
        sleep(work).await;
    }
}

/// One line of JSON for each case.
fn lines(cases: &[Case], tallies: &[Tally]) -> String {
    let line = |(case, tally): (&Case, &Tally)| {
        let [middle, late, longest] =
            [0.5, 0.99, 1.0].map(|share| tally.wait(share).as_secs_f64() * 1000.0);
        let poll = case.poll.map(|poll| poll.as_secs_f64() * 1000.0);
        let line = json!({
            "part": case.part, "clients": case.callers, "poll_ms": poll,
            "turns_per_second": tally.turns_per_second(),
            "wait_ms": { "p50": middle, "p99": late, "longest": longest },
            "commands_per_turn": tally.commands_per_turn(),
        });
        format!("{line}\n")
    };
    cases.iter().zip(tallies).map(line).collect()
}

fn table(cases: &[Case], tallies: &[Tally]) -> String {
    let mut text = String::new();
    let heads = ["turns/s", "wait p50", "p99", "longest", "commands/turn"];
    let [turns, middle, late, longest, commands] = heads;
    let _ = writeln!(
        text,
        "{:34} {turns:>9} {middle:>10} {late:>10} {longest:>10} {commands:>13}",
        "",
    );
    for (case, tally) in cases.iter().zip(tallies) {
        let (rate, commands) = (tally.turns_per_second(), tally.commands_per_turn());
        let [middle, late, longest] = [0.5, 0.99, 1.0].map(|share| in_ms(tally.wait(share)));
        let _ = writeln!(
            text,
            "{:34} {rate:>9.0} {middle:>10} {late:>10} {longest:>10} {commands:>13.1}",
            case.title(),
        );
    }
    text + "\n"
}

impl Case {
    fn title(&self) -> String {
        let Self { part, callers, poll, .. } = self;
        let who = match poll {
            None => "parklock".to_owned(),
            Some(_) if *callers == 1 => "simple lock".to_owned(),
            Some(poll) => format!("poller, {} ms", poll.as_millis()),
        };
        if *callers == 1 {
            format!("{part}: {who}")
        } else {
            format!("{part}, {callers} clients: {who}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_are_counted_by_their_shares() {
        let waits = (1..=101).map(Duration::from_millis).collect();
        let tally = Tally { waits, ..Tally::default() };
        let shown = [0.5, 0.99, 1.0].map(|share| in_ms(tally.wait(share)));
        assert_eq!(shown, ["51.00 ms", "100.00 ms", "101.00 ms"]);
        assert_eq!(Tally::default().wait(0.5), Duration::ZERO);
    }

    #[test]
    fn each_case_has_a_line() {
        let cases = cases(8);
        let tallies: Vec<_> = cases.iter().map(|_| Tally::default()).collect();
        let text = table(&cases, &tallies);
        assert_eq!(text.trim_end().lines().count(), 1 + cases.len());
        assert!(text.contains("contended, 8 clients: poller, 100 ms"));
    }
}
