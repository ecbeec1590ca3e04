//! The parent: starts everything, breaks what the schedule says, ends everything, and has it judged.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process};

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::common::clock;
use crate::crew::Crew;
use crate::eavesdropper::Eavesdropper;
use crate::hosts::BURIED;
use crate::network::Network;
use crate::pulse::{self, LATE};
use crate::reading::Progress;
use crate::schedule::{self, Action, ServerFault};
use crate::settings::{LEASE, MAX_PARK, MENDED, STUCK, Topology, bare, is_bout, nanos};
use crate::stage::Stage;
use crate::verdict::{self, Evidence, Tally, Verdict};

const STEP: Duration = Duration::from_millis(5);
/// So many server faults may wait for their turn.
const BACKLOG: usize = 20;
const PROGRESS: Duration = Duration::from_secs(10);

pub async fn run(
    topology: Topology,
    seed: u64,
    length: Duration,
    (beside, history): (Option<PathBuf>, Option<PathBuf>),
) -> Verdict {
    let mut stage = Stage::set(topology, seed).await;
    let mut network = Network::before(&stage, seed).await;
    let urls = (0..topology.workers()).map(|worker| network.url(worker, &stage)).collect();
    let records = records();
    let (started, mut tally) = (clock::now(), Tally::new());
    let mut crew = Crew::hire((urls, topology, beside), seed, started, records.clone());

    let eavesdropper = Eavesdropper::at(stage.place(), seed);
    let silences = pulse::watch_servers(stage.addresses(), topology.is_acknowledged());

    let (faults, inbox) = mpsc::unbounded_channel();
    let plan = schedule::drawn(topology, seed, length);
    let keeper = (topology.keeper(), stage.spared());
    let conducted = conduct(plan, length, &mut crew, &mut network, faults, keeper, &mut tally);
    tokio::join!(conducted, operate(&mut stage, inbox, started));
    tally.add("messages forged by an eavesdropper", eavesdropper.end());
    network.heal(&mut tally).await;
    crew.dismiss(STUCK + LEASE * 4, &mut tally).await;
    let left = left(&stage).await;
    let gone = crew.gone.clone();
    let log = stage.into_log().await;
    tally.merge(&log.tally);
    tally.late.extend(silences.try_iter());
    let records_of_all = records.clone();
    let evidence = Evidence { records: records_of_all, gone, log, tally, left, started, history };
    let verdict = verdict::pronounce(evidence, topology, length);
    if verdict == Verdict::Right {
        let _ = fs::remove_dir_all(&records);
    } else {
        println!("the records are in {}", records.display());
    }
    verdict
}

async fn conduct(
    plan: Vec<(Duration, Action)>,
    length: Duration,
    crew: &mut Crew,
    network: &mut Network,
    faults: mpsc::UnboundedSender<ServerFault>,
    (keeper, spared): (usize, Arc<AtomicBool>),
    tally: &mut Tally,
) {
    let (started, mut plan) = (Instant::now(), plan.into_iter().peekable());
    let (mut report, mut progress) = (PROGRESS, Progress::default());
    while started.elapsed() < length {
        let before = clock::now();
        sleep(STEP).await;
        if clock::now() - before > LATE {
            tally.late.push((before, clock::now()));
        }
        crew.tick(Instant::now());
        while let Some((_, action)) = plan.next_if(|(at, _)| *at <= started.elapsed()) {
            tally.moment(format!("{action:?}"));
            // Another one is as good while the stage needs the keeper.
            let is_spared = |worker| worker == keeper && spared.load(Ordering::Relaxed);
            let victim = |worker| if is_spared(worker) { 0 } else { worker };
            match action {
                Action::Kill { worker } => crew.kill(victim(worker), tally),
                Action::Stop { worker, time } => {
                    let worker = victim(worker);
                    tally.add("worker stopped", 1);
                    tally.add("worker stopped for longer than its lease", u64::from(time > LEASE));
                    crew.stop(worker, time);
                }
                Action::Network { proxy, fault, time } => network.suffer(proxy, fault, time),
                Action::CutOff { worker, servers, way, wire, time } => {
                    network.cut_off((worker, servers), way, wire, time);
                }
                Action::Unplug { worker, time } => network.unplug(worker, time),
                Action::Server(fault) => faults.send(fault).expect("the stage is there"),
            }
        }
        if started.elapsed() >= report {
            let (grants, kills) = (progress.grants(&crew.records), crew.gone.len());
            println!("{:>4} s: {grants} grants, {kills} kills", report.as_secs());
            report += PROGRESS;
        }
    }
}

/// Server faults follow each other, and hold up nothing else. One that outlasts its bout spoils the calm, even if it ends in
/// the next bout: a polite failover may hold up writes for five seconds. Where faults take long, they wait for the next
/// bout instead.
async fn operate(stage: &mut Stage, mut inbox: mpsc::UnboundedReceiver<ServerFault>, started: u64) {
    let is_bout_now = || is_bout(Duration::from_nanos(clock::now() - started));
    while let Some(fault) = inbox.recv().await {
        while stage.is_slow() && !is_bout_now() && !inbox.is_closed() {
            sleep(STEP).await;
        }
        if stage.is_slow() && (inbox.is_closed() || inbox.len() > BACKLOG) {
            stage.log().tally.add("server: left out, since there was no time for it", 1);
            continue;
        }
        let from = clock::now();
        stage.suffer(fault).await;
        stage.log().tally.late.push((from, clock::now() + nanos(MENDED)));
    }
}

/// What is still in Redis when it should not be.
async fn left(stage: &Stage) -> Vec<(String, String)> {
    let buried = if let Stage::Hosts(_) = stage { BURIED } else { Duration::from_secs(1) };
    let until = Instant::now() + LEASE.max(MAX_PARK * 2) + buried;
    loop {
        // Who has counted at a latch or has notified is remembered for longer than we wait here.
        let stays =
            |key: &String| bare(key).starts_with("lock:grants") || key.ends_with(":requests");
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

fn records() -> PathBuf {
    // In a namespace of processes, the first one has the same number in each run.
    let name = format!("parklock-torture-{}-{:x}", process::id(), fastrand::u64(..));
    let records = env::temp_dir().join(name);
    fs::create_dir_all(&records).expect("a directory for the records");
    records
}
