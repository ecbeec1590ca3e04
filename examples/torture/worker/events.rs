//! Counts the paths that only the library's own log tells of.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::worker::record;

/// From now on what the library logs is counted.
pub fn count() {
    tracing_subscriber::registry().with(Counter.with_filter(LevelFilter::INFO)).init();
}

struct Counter;

impl<S: Subscriber> Layer<S> for Counter {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !event.metadata().target().starts_with("parklock") {
            return;
        }
        let mut words = Words::default();
        event.record(&mut words);
        record::reached(&words.path());
        if words.message == "lock lost" && words.detail == GONE {
            record::gone(words.name.trim_matches('"'), &words.token);
        }
    }
}

/// What a client says of a server that turned out to be a replica.
const LEFT: [&str; 3] = ["replica", "READONLY", "no longer be trusted"];

/// Why a hold is lost that its server has no more.
const GONE: &str = "the server no longer has it";

#[derive(Default)]
struct Words {
    message: String,
    name: String,
    token: String,
    detail: String,
    fault: String,
    generation: u64,
}

impl Words {
    fn path(&self) -> String {
        let Self { message, detail, .. } = self;
        match message.as_str() {
            "connected" if self.generation > 1 => format!("{detail} link: connected again"),
            "connected" => format!("{detail} link: connected"),
            "disconnected" if LEFT.iter().any(|words| self.fault.contains(words)) => {
                format!("{detail} link: left a replica")
            }
            "disconnected" => format!("{detail} link: disconnected"),
            _ if detail.is_empty() => message.clone(),
            _ => format!("{message}: {detail}"),
        }
    }
}

impl Visit for Words {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "generation" {
            self.generation = value;
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if matches!(field.name(), "why" | "link") {
            value.clone_into(&mut self.detail);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "fault" => self.fault = format!("{value:?}"),
            "name" => self.name = format!("{value:?}"),
            "token" => self.token = format!("{value:?}"),
            _ => {}
        }
    }
}
