//! The parent: starts everything, breaks what the schedule says, ends everything, and has it judged meanwhile.

use std::mem::take;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::common::clock;
use crate::crew::Crew;
use crate::eavesdropper::{Eavesdropper, Place};
use crate::history::Witness;
use crate::hosts::BURIED;
use crate::network::Network;
use crate::presence::{self, Absence};
use crate::pulse::{self, LATE};
use crate::reading::Records;
use crate::schedule::{self, Action, ServerFault};
use crate::settings::{self, GRACE, Kind, LEASE, MAX_PARK, STUCK, Topology, bare, nanos};
use crate::stage::{Log, Stage};
use crate::verdict::{Break, Court, Piece, Tally, Verdict};
use crate::vitals::{Table, Vitals};
use crate::worker::buffer;

const STEP: Duration = Duration::from_millis(5);
/// So many server faults may wait for their turn.
const BACKLOG: usize = 20;
const PROGRESS: Duration = Duration::from_secs(10);
/// So often the run is judged while it goes on.
const MINUTE: Duration = Duration::from_secs(60);
/// How long, in nanoseconds, a worker may take to write down what it knows.
const UNWRITTEN: u64 = 10_000_000_000;

/// What a run is asked to be.
#[derive(Debug)]
pub struct Wishes {
    pub topology: Topology,
    pub seed: u64,
    pub length: Duration,
    /// It may be long: what was judged is thrown away, and the keeper lives to the end, so that one sees whether it grows.
    pub endures: bool,
    /// Where a line a minute is added.
    pub table: Option<PathBuf>,
    /// The program of half of the workers, if they are others.
    pub beside: Option<PathBuf>,
    /// Another judge.
    pub witness: Option<PathBuf>,
}

pub async fn run(wishes: Wishes) -> Verdict {
    let Wishes { topology, seed, length, endures, table, beside, witness } = wishes;
    let mut stage = Stage::set(topology, seed).await;
    let network = Network::before(&stage, seed).await;
    let urls = (0..topology.workers()).map(|worker| network.url(worker, &stage)).collect();
    let (folder, started) = (records(), clock::now());
    let crew = Crew::hire((urls, topology, beside), seed, started, folder.clone());

    let (pieces, inbox) = channel();
    let records = Records::new(folder.clone(), topology, endures);
    let witness = witness.map(|program| Witness::new(program, folder.clone()));
    let mut court = Court::new((topology, started), records, witness, table.map(Table::at));
    let court = thread::spawn(move || {
        inbox.into_iter().for_each(|piece| court.sit(piece));
        court
    });

    // Where servers have hosts, there is none.
    let heard = if topology.has_hosts() { Place::Nodes(Vec::new()) } else { stage.place() };
    let eavesdropper = Eavesdropper::at(heard, seed);
    let (faults, orders) = mpsc::unbounded_channel();
    let (told, logs) = channel();
    let unfinished = Arc::new(AtomicU64::new(stage.is_known_until()));
    let mut stand = Stand {
        crew,
        network,
        spared: stage.spared(),
        logs,
        unfinished: Arc::clone(&unfinished),
        place: stage.place(),
        absences: absences(topology, &stage),
        silences: pulse::watch_servers(stage.addresses(), topology.is_acknowledged()),
        pauses: pulse::watch_ourselves_from_here(),
        endures,
        pieces,
        tally: Tally::new(),
    };
    let plan = schedule::drawn(topology, seed, length);
    let operated = operate((&mut stage, topology), orders, started, &unfinished, told);
    let (mut stand, ()) = tokio::join!(
        async move {
            stand.conduct(plan, length, faults).await;
            stand
        },
        operated
    );
    stand.tally.add("messages forged by an eavesdropper", eavesdropper.end());
    stand.network.heal(&mut stand.tally).await;
    stand.crew.dismiss(STUCK + LEASE * 4, &mut stand.tally).await;
    let left = left(&stage, topology.longest_lease()).await;
    stand.end(stage.into_log().await);
    let verdict = court.join().expect("no panic in court").close(left, length);
    if verdict == Verdict::Right {
        let _ = fs::remove_dir_all(&folder);
        buffer::files(&folder).into_iter().for_each(|file| _ = fs::remove_file(file));
    } else {
        println!("the records are in {}", folder.display());
    }
    verdict
}

/// Where everything is broken and looked after, but for the servers.
struct Stand {
    crew: Crew,
    network: Network,
    /// Whether the stage needs the keeper.
    spared: Arc<AtomicBool>,
    /// What came of each server fault, and until when all is known that befell the servers.
    logs: Receiver<Log>,
    unfinished: Arc<AtomicU64>,
    place: Place,
    silences: Receiver<(u64, u64)>,
    /// When clients with a session did not listen.
    absences: Receiver<Absence>,
    /// When this process got no processor.
    pauses: Receiver<(u64, u64)>,
    endures: bool,
    pieces: Sender<Piece>,
    tally: Tally,
}

impl Stand {
    async fn conduct(
        &mut self,
        plan: Vec<(Duration, Action)>,
        length: Duration,
        faults: mpsc::UnboundedSender<ServerFault>,
    ) {
        let (started, mut plan) = (Instant::now(), plan.into_iter().peekable());
        let (mut report, mut minute) = (PROGRESS, MINUTE);
        let mut clocks = pulse::Clocks::compared();
        while started.elapsed() < length {
            let before = clock::now();
            sleep(STEP).await;
            if clock::now() - before > LATE {
                self.tally.late.push((before, clock::now()));
            }
            if let Some(since) = clocks.have_parted() {
                // Leases in Redis end by the one clock, and holders believe in them by the other.
                self.tally.add("the clock was set, or the machine was suspended", 1);
                let breaks = vec![Break::loose(None, since, clock::now())];
                self.send(Piece { log: Log { breaks, ..Log::default() }, ..Piece::default() });
            }
            self.crew.tick(Instant::now());
            while let Some((_, action)) = plan.next_if(|(at, _)| *at <= started.elapsed()) {
                self.act(action, &faults);
            }
            if started.elapsed() >= minute {
                self.judge_and_report().await;
                (minute, report) = (minute + MINUTE, report + PROGRESS);
            } else if started.elapsed() >= report {
                self.send(Piece { is_told: !self.endures, ..Piece::default() });
                report += PROGRESS;
            }
        }
    }

    fn act(&mut self, action: Action, faults: &mpsc::UnboundedSender<ServerFault>) {
        self.tally.moment(format!("{action:?}"));
        // Another one is as good while the stage needs the keeper.
        let is_spared = self.spared.load(Ordering::Relaxed);
        let keeper = self.crew.topology.keeper();
        let victim = |worker, spared| if worker == keeper && spared { 0 } else { worker };
        match action {
            Action::Kill { worker } => {
                self.crew.kill(victim(worker, is_spared || self.endures), &mut self.tally);
            }
            Action::Stop { worker, time } => {
                self.tally.add("worker stopped", 1);
                self.tally.add("worker stopped for longer than its lease", u64::from(time > LEASE));
                self.tally.add("worker stopped for longer than a grace", u64::from(time > GRACE));
                self.crew.stop(victim(worker, is_spared), time);
            }
            Action::Network { proxy, fault, time } => self.network.suffer(proxy, fault, time),
            Action::CutOff { worker, servers, way, wire, time } => {
                self.network.cut_off((worker, servers), way, wire, time);
            }
            Action::Unplug { worker, time } => self.network.unplug(worker, time),
            Action::Server(fault) => faults.send(fault).expect("the stage is there"),
        }
    }

    async fn judge_and_report(&mut self) {
        // Of what a fault that is not over has done, nobody knows yet.
        let until = (clock::now() - UNWRITTEN).min(self.unfinished.load(Ordering::SeqCst));
        let longest = self.pauses.try_iter().map(|(from, to)| to - from).max().unwrap_or(0);
        let vitals = Vitals::of(&self.crew, &self.place, longest).await;
        let (until, vitals) = (Some(until), Some(vitals));
        self.send(Piece { until, vitals, ..Piece::default() });
    }

    /// Tells the court this, and all that has happened since.
    fn send(&mut self, mut piece: Piece) {
        self.logs.try_iter().for_each(|log| piece.log.add(log));
        self.tally.silences.extend(self.silences.try_iter());
        self.tally.absences.extend(self.absences.try_iter());
        self.tally.late.extend_from_slice(&self.tally.silences);
        piece.at = clock::now();
        piece.crew = self.crew.names();
        piece.gone = take(&mut self.crew.gone);
        piece.log.tally.merge(take(&mut self.tally));
        self.pieces.send(piece).expect("the court sits");
    }

    /// The last piece: everybody has gone.
    fn end(mut self, log: Log) {
        self.send(Piece { log, until: Some(u64::MAX), ..Piece::default() });
    }
}

/// Where no client has a session, nobody has to listen.
fn absences(topology: Topology, stage: &Stage) -> Receiver<Absence> {
    match stage.place() {
        Place::Front(server) if topology == Topology::Sessions => presence::watch(server),
        _ => channel().1,
    }
}

/// Server faults follow each other, and hold up nothing else. One that outlasts its bout spoils the calm, even if it ends in
/// the next bout: a polite failover may hold up writes for five seconds. Where faults take long, they wait for the next
/// bout instead.
async fn operate(
    (stage, topology): (&mut Stage, Topology),
    mut inbox: mpsc::UnboundedReceiver<ServerFault>,
    started: u64,
    unfinished: &AtomicU64,
    told: Sender<Log>,
) {
    let is_bout_now = || topology.is_bout(Duration::from_nanos(clock::now() - started));
    while let Some(fault) = inbox.recv().await {
        while stage.is_slow() && !is_bout_now() && !inbox.is_closed() {
            sleep(STEP).await;
        }
        if stage.is_slow() && (inbox.is_closed() || inbox.len() > BACKLOG) {
            stage.log().tally.add("server: left out, since there was no time for it", 1);
            continue;
        }
        let from = clock::now();
        unfinished.store(from.min(stage.is_known_until()), Ordering::SeqCst);
        stage.suffer(fault).await;
        stage.log().tally.late.push((from, clock::now() + nanos(topology.mended())));
        told.send(stage.take_log()).expect("somebody listens");
        unfinished.store(stage.is_known_until(), Ordering::SeqCst);
    }
}

/// What is still in Redis when it should not be.
async fn left(stage: &Stage, lease: Duration) -> Vec<(String, String)> {
    let buried = if let Stage::Hosts(_) = stage { BURIED } else { Duration::from_secs(1) };
    let until = Instant::now() + lease.max(MAX_PARK * 2) + buried;
    loop {
        // Who has counted at a latch or has notified is remembered for longer than we wait here, and so is a client with a session
        // that has died.
        let stays = |key: &String| {
            let is_of_redisson = bare(key).starts_with("redisson_") || is_semaphore(key);
            let is_session = bare(key).starts_with("lock_notes:session:{");
            let is_counter = bare(key).starts_with("lock:grants");
            is_counter || is_session || key.ends_with(":requests") || is_of_redisson
        };
        let keys = stage.keys().await.into_iter().filter(|key| !stays(key));
        let keys = keys.map(|key| ("key".to_owned(), key));
        let channels = stage.channels().await.into_iter();
        let channels = channels.map(|channel| ("channel".to_owned(), channel));
        let left: Vec<_> = keys.chain(channels).collect();
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// In Redisson's layout nobody forgets how many permits there are, or clears away leases of those who died.
fn is_semaphore(key: &str) -> bool {
    let name = bare(key.trim_start_matches('{').trim_end_matches("}:timeout"));
    matches!(settings::kind_of(name), Some(Kind::Permits(_)))
}

fn records() -> PathBuf {
    // In a namespace of processes, the first one has the same number in each run.
    let name = format!("parklock-torture-{}-{:x}", process::id(), fastrand::u64(..));
    let records = env::temp_dir().join(name);
    fs::create_dir_all(&records).expect("a directory for the records");
    records
}
