//! What the library logs: counted as paths, and kept for a log that is asked for.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::board;
use crate::trace;

/// From now on what the library logs is counted.
pub fn listen(traced: bool) {
    let most = if traced { Level::TRACE } else { Level::INFO };
    let listener = tracing_subscriber::registry().with(Listener { most });
    tracing::subscriber::set_global_default(listener).expect("there is none before this one");
}

struct Listener {
    most: Level,
}

impl<S: Subscriber> Layer<S> for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= self.most && metadata.target().starts_with("parklock")
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut words = Words::default();
        event.record(&mut words);
        trace::line(|| format!("log       {} {}", words.message, words.rest));
        if *event.metadata().level() <= Level::INFO {
            let path = format!("log: {} {}", words.message, words.detail);
            board::with(|board| {
                board.count(path.trim_end(), 1);
                if path == GONE {
                    board.gone(words.token);
                }
            });
        }
    }
}

/// What it says of a hold that its server has no more.
const GONE: &str = "log: lock lost the server no longer has it";

#[derive(Default)]
struct Words {
    message: String,
    detail: String,
    token: u64,
    rest: String,
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        if matches!(field.name(), "why" | "link") {
            value.clone_into(&mut self.detail);
        }
        let _ = write!(self.rest, "{}={value} ", field.name());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            if field.name() == "token" {
                self.token = format!("{value:?}").parse().unwrap_or(0);
            }
            let _ = write!(self.rest, "{}={value:?} ", field.name());
        }
    }
}
