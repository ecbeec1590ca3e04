//! The recorder of a process, for what `metrics` costs: none, or that of a Prometheus exporter.

use anyhow::{Result, bail};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

/// Buckets as an exporter has them, so that a sample costs what it costs in a service.
const SECONDS: [f64; 8] = [0.0001, 0.0005, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0];

/// Installs the recorder that COMPARE_RECORDER names, and keeps it as an exporter does.
pub fn install() -> Result<()> {
    match std::env::var("COMPARE_RECORDER").as_deref() {
        Err(_) | Ok("none") => return Ok(()),
        Ok("prometheus") => {}
        Ok(other) => bail!("COMPARE_RECORDER is none or prometheus, not {other}"),
    }
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let recorder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &SECONDS)?;
    let recorder = recorder.install_recorder()?;
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(std::time::Duration::from_secs(5));
        loop {
            tick.tick().await;
            recorder.run_upkeep();
        }
    });
    Ok(())
}
