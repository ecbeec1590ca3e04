//! What the library logs while a test listens.

use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Dispatch, Level};
use tracing_subscriber::Registry;
use tracing_subscriber::fmt::MakeWriter;

/// With one subscriber in the process, `tracing` asks only the thread that meets an event first whether anybody listens. That
/// may be the thread of another test, where nobody does. With two it asks both.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Registry::default()));

/// What is logged by this thread; a `#[tokio::test]` runs its tasks on one thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Listens as long as the second value is kept.
    pub(crate) fn here() -> (Self, DefaultGuard) {
        Self::of(Level::TRACE)
    }

    /// Keeps nothing below this level. A test looks through the whole log again and again, and if that is long, the client on the
    /// same thread is too slow for its server.
    pub(crate) fn of(level: Level) -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(log.clone());
        LazyLock::force(&ANOTHER);
        let guard = set_default(subscriber.finish());
        // Another test may be registering an event at this moment, which then believes that nobody listens.
        tracing::callsite::rebuild_interest_cache();
        (log, guard)
    }

    pub(crate) fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What was logged since the last call.
    pub(crate) fn taken(&self) -> String {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How many lines contain this.
    pub(crate) fn lines_with(&self, part: &str) -> usize {
        self.text().lines().filter(|line| line.contains(part)).count()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
