//! What must not grow in a run of hours.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{RedisResult, cmd};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::common::clock;
use crate::crew::Crew;
use crate::eavesdropper::Place;

/// A server that is down is left out.
const PATIENCE: Duration = Duration::from_secs(1);

/// Names with numbers, if they are known. Memory is in KiB.
#[derive(Debug)]
pub struct Vitals(Vec<(&'static str, Option<u64>)>);

impl Vitals {
    /// The longest pause of the machine since the last look is in nanoseconds.
    pub async fn of(crew: &Crew, place: &Place, pause: u64) -> Self {
        let (pids, keeper) = (crew.pids(), crew.topology.keeper());
        let others = pids.iter().enumerate().filter(|(worker, _)| *worker != keeper);
        let [connections, keys, server] = servers(place).await;
        let conductor = std::process::id();
        Self(vec![
            ("longest pause in ms", Some(pause / 1_000_000)),
            ("memory of the conductor", memory(conductor)),
            ("descriptors of the conductor", descriptors(conductor)),
            ("tasks of the conductor", Some(Handle::current().metrics().num_alive_tasks() as u64)),
            ("memory of the keeper", memory(pids[keeper])),
            ("descriptors of the keeper", descriptors(pids[keeper])),
            ("memory of the others", others.map(|(_, pid)| memory(*pid)).sum()),
            ("memory of the server", server),
            ("connections", connections),
            ("keys", keys),
        ])
    }

    pub fn note(&mut self, what: &'static str, number: Option<u64>) {
        self.0.push((what, number));
    }
}

impl fmt::Display for Vitals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.iter().filter_map(|(what, number)| number.map(|it| (what, it)));
        let words: Vec<_> = known.map(|(what, number)| format!("{what} {number}")).collect();
        write!(f, "{}", words.join(", "))
    }
}

/// A table that a later run goes on with.
#[derive(Debug)]
pub struct Table(File);

impl Table {
    pub fn at(path: PathBuf) -> Self {
        Self(File::options().create(true).append(true).open(path).expect("a table"))
    }

    /// A line with the seconds, grants, kills and violations of this run so far.
    pub fn add(&mut self, first: [u64; 4], vitals: &Vitals) {
        let file = &mut self.0;
        let is_new = file.metadata().is_ok_and(|file| file.len() == 0);
        if is_new {
            let names: Vec<_> = vitals.0.iter().map(|(what, _)| *what).collect();
            let names = names.join("\t");
            let head = format!("unix time\tseconds\tgrants\tkills\tviolations\t{names}");
            writeln!(file, "{head}").expect("the disk is not full");
        }
        let mut words = vec![(clock::wall() / 1_000_000_000).to_string()];
        words.extend(first.map(|number| number.to_string()));
        words.extend(
            vitals.0.iter().map(|(_, number)| {
                number.map_or_else(|| "-".to_owned(), |number| number.to_string())
            }),
        );
        writeln!(file, "{}", words.join("\t")).expect("the disk is not full");
    }
}

/// Connections, keys and memory of all servers.
async fn servers(place: &Place) -> [Option<u64>; 3] {
    let addresses = match place {
        Place::Front(address) => std::slice::from_ref(address),
        Place::Nodes(addresses) => addresses,
    };
    let mut sums = [None; 3];
    let asked = addresses.iter().map(|address| timeout(PATIENCE, server(*address)));
    for numbers in join_all(asked).await {
        let Ok(Ok(numbers)) = numbers else { continue };
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum = Some(sum.unwrap_or(0) + number);
        }
    }
    sums
}

async fn server(address: SocketAddr) -> RedisResult<[u64; 3]> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    let mut link = client.get_multiplexed_async_connection().await?;
    let keys = cmd("DBSIZE").query_async(&mut link).await?;
    let info: String = cmd("INFO").query_async(&mut link).await?;
    let number = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
    };
    Ok([number("connected_clients"), keys, number("used_memory_rss") / 1_024])
}

fn memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn descriptors(pid: u32) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64)
}
