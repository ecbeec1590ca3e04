//! One of three leads, and the next one when it is gone. One of three does what is due.
//! Run it: `cargo run --example one_of_a_fleet`

use std::time::Duration;

use parklock::{Client, Result, Term};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    // Three clients, as three processes would be.
    let mut fleet = Vec::new();
    for _ in 0..3 {
        fleet.push(Client::connect(&url).await?);
    }

    // A watcher hears who leads, wherever that is.
    let mut observer =
        fleet[0].election("example:leader").observe().every(Duration::from_millis(50));
    let watcher = tokio::spawn(async move {
        while let Ok(leader) = observer.next().await {
            let who = leader.map_or("nobody".into(), |leader| leader.identity);
            println!("{who} leads");
        }
    });

    let mut candidates = JoinSet::new();
    for (client, host) in fleet.clone().into_iter().zip(["host a", "host b", "host c"]) {
        let election = client.election("example:leader").identity(host);
        candidates.spawn(async move { election.run(work_of_a_leader).await });
    }
    while let Some(term) = candidates.join_next().await {
        println!("  the term {} is over", term.expect("no panic")?);
    }
    watcher.abort();

    let mut jobs = JoinSet::new();
    for client in fleet.clone() {
        jobs.spawn(async move {
            let reports = client.every("example:reports", Duration::from_millis(500));
            let send = async |_| println!("one of three sends the reports");
            let _ = timeout(Duration::from_secs(2), reports.run(send)).await; // it would run for ever
        });
    }
    jobs.join_all().await;

    for client in fleet {
        client.close().await;
    }
    Ok(())
}

/// It could be called again, with a greater token, if the leadership were lost meanwhile.
async fn work_of_a_leader(term: Term) -> u64 {
    sleep(Duration::from_millis(200)).await; // what only a leader may do, with this token
    term.token().get()
}
