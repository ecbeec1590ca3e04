//! A service that shows its locks to Prometheus: `GET /metrics`.
//! Run it: `cargo run -p metrics-endpoint`, then `curl localhost:9898/metrics`

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use parklock::{Client, Config, Result};
use tokio::time::{interval, sleep};

/// The upper bounds of the buckets, in seconds: from a round trip in one rack to a lease.
const SECONDS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0,
    10.0, 30.0,
];
const LOCKS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let prometheus = recorder()?; // before the first client, which says what its metrics mean

    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    // `orders:1` and `orders:2` are counted together: a label for each name would be too many.
    let config = Config::default().label(|name| Some(name.split(':').next()?.to_owned()));
    let client = Client::connect_with(url, config.watchdog_timeout(Duration::from_secs(9))).await?;
    tokio::spawn(lead(client.clone()));
    for worker in 0..8 {
        tokio::spawn(work(client.clone(), worker));
    }

    let address = std::env::var("LISTEN").unwrap_or("127.0.0.1:9898".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}/metrics", listener.local_addr()?);
    let app = Router::new().route("/metrics", get(async move || prometheus.render()));
    axum::serve(listener, app).with_graceful_shutdown(interrupted()).await?;
    client.close().await;
    Ok(())
}

/// Installs the recorder. Its histograms have buckets, so that Prometheus can add up those of several processes.
fn recorder() -> Result<PrometheusHandle, BuildError> {
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Full("parklock_batch_size".into()), &LOCKS)?
        .install_recorder()?;
    let upkeep = prometheus.clone();
    tokio::spawn(async move {
        let mut tick = interval(Duration::from_secs(5));
        loop {
            tick.tick().await;
            upkeep.run_upkeep(); // or samples pile up while nobody scrapes
        }
    });
    Ok(prometheus)
}

/// Something to look at. An error ends one round, and not the worker: Redis comes back.
async fn work(client: Client, worker: u64) {
    for round in worker.. {
        if let Err(error) = take_turns(&client, round).await {
            eprintln!("worker {worker}: {error}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// One process leads, and the others wait. It leads again when it has lost its term: `run` returns only with an error.
async fn lead(client: Client) {
    let Err(error) = client.election("leader").run(|_term| pending::<Infallible>()).await;
    eprintln!("leader: {error}");
}

/// Orders that are worked on, a report that many read, and a job that nobody waits for.
async fn take_turns(client: &Client, round: u64) -> Result<()> {
    let order = client.lock(format!("orders:{}", round % 3)).lock().await?;
    sleep(Duration::from_millis(5 + 7 * (round % 5))).await;
    order.unlock().await?;

    let report = client.rw_lock("report");
    if round.is_multiple_of(16) {
        report.write().await?.unlock().await?;
    } else {
        report.read().await?.unlock().await?;
    }

    if let Some(_job) = client.lock("nightly-job").try_lock().await? {
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn interrupted() {
    tokio::signal::ctrl_c().await.ok();
}
