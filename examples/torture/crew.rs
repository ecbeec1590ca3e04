//! The worker processes, their deaths and their successors.

use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::clocks::Clocks;
use crate::common::child::{self, Child};
use crate::common::clock;
use crate::settings::{self, KEPT, Topology};
use crate::verdict::Tally;
use crate::wires;

/// A worker and all of its predecessors.
struct Berth {
    child: Child,
    pipes: Option<(ChildStdin, ChildStdout)>,
    incarnation: u64,
    stopped_until: Option<Instant>,
}

impl Berth {
    /// Whether it runs, or is stopped. As long as nobody has told it to end, it has to.
    fn is_alive(&mut self, worker: usize, tally: &mut Tally) -> bool {
        let is_running = self.child.is_running();
        if !is_running {
            tally.wrong(format!("worker {} ended by itself", name(worker, self.incarnation)));
        }
        is_running
    }
}

/// A worker that has come to its end.
#[derive(Debug, Clone)]
pub struct Gone {
    pub name: String,
    /// When the kill had returned; none if it ended by itself.
    pub killed: Option<u64>,
}

pub struct Crew {
    berths: Vec<Berth>,
    urls: Vec<String>,
    pub topology: Topology,
    /// The program of half of the workers, if they are of another version.
    beside: Option<PathBuf>,
    /// What the workers' clocks show, if each has a host of its own.
    clocks: Option<Clocks>,
    seed: u64,
    started: u64,
    records: PathBuf,
    /// Who has come to an end since this was last taken.
    pub gone: Vec<Gone>,
}

impl Crew {
    pub fn hire(
        (urls, topology, beside): (Vec<String>, Topology, Option<PathBuf>),
        seed: u64,
        started: u64,
        records: PathBuf,
    ) -> Self {
        let (berths, gone) = (Vec::new(), Vec::new());
        let clocks = topology.has_hosts().then(|| Clocks::set(&records)).flatten();
        let mut crew =
            Self { berths, urls, topology, beside, clocks, seed, started, records, gone };
        crew.berths = (0..topology.workers()).map(|worker| crew.start(worker, 0)).collect();
        crew
    }

    fn start(&self, worker: usize, incarnation: u64) -> Berth {
        // Workers of both versions are in each namespace, and the successor of a dead one is of the other version.
        let is_other = (worker as u64 / 2 + incarnation) % 2 == 1;
        // Redisson cannot be asked to keep a lock and to haunt another.
        let is_other =
            is_other && (worker != self.topology.keeper() || self.topology != Topology::Redisson);
        let beside = self.beside.clone().filter(|_| is_other);
        let program = beside.unwrap_or_else(|| std::env::current_exe().expect("our own path"));
        let mut command = if self.topology.has_hosts() {
            wires::client(worker).command(program)
        } else {
            child::command(program)
        };
        if let Some(clocks) = &self.clocks {
            command.envs(clocks.variables(worker));
        }
        let seed = self.seed.wrapping_mul(31).wrapping_add(incarnation * 100 + worker as u64);
        let name = name(worker, incarnation);
        let record = self.records.join(&name);
        command.args(["--worker", &name, "--url", &self.urls[worker], "--seed"]);
        command.arg(seed.to_string()).args(["--started", &self.started.to_string()]);
        command.arg("--record").arg(record).args(self.topology.words());
        if let Some(namespace) = settings::namespace(worker) {
            command.args(["--namespace", namespace]);
        }
        if worker == self.topology.keeper() {
            command.args(["--keeps", KEPT]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Child::start(command);
        let pipes = Some(child.pipes());
        Berth { child, pipes, incarnation, stopped_until: None }
    }

    /// Who is at work.
    pub fn names(&self) -> Vec<String> {
        let all = self.berths.iter().enumerate();
        all.map(|(worker, berth)| name(worker, berth.incarnation)).collect()
    }

    pub fn pids(&self) -> Vec<u32> {
        self.berths.iter().map(|berth| berth.child.pid()).collect()
    }

    /// SIGKILL; a successor starts at once.
    pub fn kill(&mut self, worker: usize, tally: &mut Tally) {
        let berth = &mut self.berths[worker];
        berth.is_alive(worker, tally);
        if berth.stopped_until.is_some() {
            tally.add("worker killed while it was stopped", 1);
        }
        berth.child.kill();
        let killed = Some(clock::now());
        tally.add("worker killed", 1);
        let incarnation = berth.incarnation + 1;
        self.gone.push(Gone { name: name(worker, berth.incarnation), killed });
        self.berths[worker] = self.start(worker, incarnation);
    }

    /// SIGSTOP, until its time is over.
    pub fn stop(&mut self, worker: usize, time: Duration) {
        let berth = &mut self.berths[worker];
        berth.child.signal("STOP");
        // One that is stopped for longer already stays stopped.
        berth.stopped_until = berth.stopped_until.max(Some(Instant::now() + time));
    }

    /// Continues those whose time is over.
    pub fn tick(&mut self, now: Instant) {
        for berth in &mut self.berths {
            if berth.stopped_until.is_some_and(|until| until <= now) {
                berth.stopped_until = None;
                berth.child.signal("CONT");
            }
        }
    }

    /// Tells all to finish, and waits until they have.
    pub async fn dismiss(&mut self, within: Duration, tally: &mut Tally) {
        let until = Instant::now() + within;
        for (worker, berth) in self.berths.iter_mut().enumerate() {
            if berth.is_alive(worker, tally) {
                berth.child.signal("CONT");
            }
            berth.stopped_until = None;
            berth.pipes = None;
        }
        for (worker, berth) in self.berths.iter_mut().enumerate() {
            while berth.child.is_running() && Instant::now() < until {
                sleep(Duration::from_millis(10)).await;
            }
            let name = name(worker, berth.incarnation);
            let late = berth.child.is_running();
            if late {
                tally.wrong(format!("worker {name} does not come to its end"));
                berth.child.kill();
            }
            if let Some(status) = berth.child.ended().filter(|status| !late && !status.success()) {
                tally.wrong(format!("worker {name} ended with {status}"));
            }
            self.gone.push(Gone { name, killed: late.then(clock::now) });
        }
        self.berths.clear();
    }
}

fn name(worker: usize, incarnation: u64) -> String {
    format!("w{worker}.{incarnation}")
}
