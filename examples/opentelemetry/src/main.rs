//! Locks in OpenTelemetry: the spans and the metrics of parklock, beside those of the service.
//! Run it: `cargo run -p opentelemetry-export`

use metrics_exporter_otel::OpenTelemetryRecorder;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::{SpanId, TracerProvider as _};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use parklock::{Client, Config};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The upper bounds of the buckets, in seconds: those of OpenTelemetry are for milliseconds.
const SECONDS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// Its span has two children: how long it waits for the lock, and how long it holds the lock.
#[tracing::instrument(skip(client))]
async fn pay(client: &Client, order: u64) -> parklock::Result<()> {
    client.lock(format!("order:{order}")).lock().await?.unlock().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A service has exporters of `opentelemetry-otlp` in place of these two.
    let (spans, numbers) = (InMemorySpanExporter::default(), InMemoryMetricExporter::default());
    let tracers = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    let meters = SdkMeterProvider::builder().with_periodic_exporter(numbers.clone()).build();

    // The spans have the level DEBUG: a filter must let `parklock=debug` pass.
    let layer = tracing_opentelemetry::layer().with_tracer(tracers.tracer("shop"));
    tracing_subscriber::registry().with(layer).init();
    let recorder = OpenTelemetryRecorder::new(meters.meter("shop"));
    for metric in ["parklock_wait_seconds", "parklock_hold_seconds"] {
        recorder.set_histogram_bounds(&metric.into(), SECONDS.to_vec());
    }
    metrics::set_global_recorder(recorder)?; // before the first client, which says what its metrics mean

    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let config = Config::default().label(|name| Some(name.split(':').next()?.to_owned()));
    let client = Client::connect_with(url, config).await?;
    pay(&client, 42).await?;
    client.close().await;

    let spans = spans.get_finished_spans()?;
    let span = |name| spans.iter().find(|span| span.name == name).expect(name);
    let payment = span("pay");
    for child in ["lock.acquire", "lock.hold"].map(span) {
        println!("{}: {:?}", child.name, child.end_time.duration_since(child.start_time)?);
        assert_eq!(child.parent_span_id, payment.span_context.span_id());
    }
    assert_eq!(payment.parent_span_id, SpanId::INVALID);

    meters.force_flush()?;
    let numbers = numbers.get_finished_metrics()?;
    let metrics = numbers.iter().flat_map(|all| all.scope_metrics()).flat_map(|all| all.metrics());
    let names: Vec<_> = metrics.map(|metric| metric.name()).collect();
    println!("{names:?}");
    assert!(names.contains(&"parklock_wait_seconds") && names.contains(&"parklock_held"));
    Ok(())
}
