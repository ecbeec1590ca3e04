//! Many callers that give up waiting.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use parklock::Client;
use tokio::time::sleep;

use crate::common::{Server, Worker, WorkerSide, eventually};
use crate::{SOON, connect, left, patient, tasks};

/// Kilobytes of memory that this process has in RAM.
fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("linux");
    let pages = statm.split_whitespace().nth(1).expect("the second field").parse::<i64>();
    pages.expect("a number") * 4
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("linux").count()
}

/// A thousand waits that are given up: in the queue of this client, parked, listening, and in flight.
async fn give_up_a_thousand_times(client: &Client, round: usize) -> usize {
    let mine = client.lock("mine");
    let waits = (0..1000).map(|n| {
        let lock = match n % 4 {
            0 | 1 => mine.clone(),
            2 => client.lock(format!("theirs {}", n % 64)),
            _ => client.lock(format!("free {round} {n}")),
        };
        async move {
            let limit = Duration::from_micros(fastrand::u64(0..3_000));
            tokio::select! {
                biased;
                guard = lock.lock() => { drop(guard); 0 }
                () = sleep(limit) => 1,
            }
        }
    });
    let given_up: Vec<usize> = stream::iter(waits).buffer_unordered(64).collect().await;
    given_up.into_iter().sum()
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_gives_up() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let client = connect(&boss.variable("URL"), patient()).await;
    let _mine = client.lock("mine").lock().await.unwrap();
    let (idle, open) = (tasks(), descriptors());
    let mut given_up = 0;
    while let Some(rounds) = boss.order().await {
        for round in 0..rounds.parse().unwrap() {
            given_up += give_up_a_thousand_times(&client, round).await;
            boss.tell("a round");
        }
        sleep(Duration::from_millis(50)).await; // longer than subscriptions linger
        eventually(SOON, "no task is left of them", async || tasks() == idle).await;
        boss.tell(&format!("{given_up} {} {}", resident(), descriptors() as i64 - open as i64));
    }
}

/// F82: waits are given up again and again.
#[tokio::test]
async fn given_up_waits_leave_no_memory_behind() {
    let server = Server::start().await;
    let (holder, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let mut theirs = Vec::new();
    for n in (2..64).step_by(4) {
        theirs.push(holder.lock(format!("theirs {n}")).lock().await.unwrap());
    }
    let mut worker = Worker::start("churn::worker_that_gives_up", &[("URL", &server.url())]);
    let mut figures: Vec<(i64, i64)> = Vec::new();
    for rounds in ["35", "60", "60"] {
        worker.order(rounds).await;
        // Each round has its time: how long all of them take is a matter of the machine.
        let told = loop {
            match worker.hear().await {
                round if round == "a round" => {}
                told => break told,
            }
        };
        let words: Vec<i64> = told.split(' ').map(|word| word.parse().unwrap()).collect();
        figures.push((words[0], words[1]));
        assert_eq!(words[2], 0, "descriptors were left open");
        let gone = async || left(&admin).await.len() == theirs.len() + 1;
        eventually(SOON, "no key and no channel of theirs is left", gone).await;
    }
    eprintln!("given up, resident kB: {figures:?}");
    assert!(figures[0].0 > 20_000, "waits were given up: {figures:?}");
    let grown = figures.windows(2).map(|figures| {
        let [(before, warm), (after, last)] = figures else { unreachable!("two figures") };
        assert!(after - before > 40_000, "waits were given up: {figures:?}");
        last - warm
    });
    // The slope after the warm-up; 32 bytes for each wait would be 1,500 kB each time. On a busy machine much is under way at once, and
    // the memory for that stays: but it comes once.
    assert!(grown.min() < Some(1_000), "{figures:?}");
}
