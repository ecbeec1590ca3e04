//! Which primary the connections of a link lead to, and its time. What a primary has carried out, its successor may not know: a
//! replica that was behind takes its place, or the server restarts with older data.

use redis::Value;

use crate::mutex::Mutex;
use crate::wire::replies::field;
use crate::wire::shard::clock::ServerClock;

/// The primary that a link leads to.
#[derive(Default)]
pub(crate) struct Reign {
    pub(crate) clock: ServerClock,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// What Redis calls the history of its data. A server begins another one when it starts, and when it becomes a
    /// primary.
    history: Option<String>,
    began: Option<u64>,
}

impl Reign {
    /// Nothing is known of the primary yet. Its clock is this one.
    pub(super) fn new(clock: ServerClock) -> Self {
        Self { clock, last: Mutex::default() }
    }

    /// Records what the server of this connection reports of its replication. If it reports nothing, it may be another
    /// server than before.
    pub(super) fn learn(&self, replication: Option<&Value>, generation: u64) {
        let history = field(replication, "master_replid:").map(str::to_owned);
        let mut last = self.last.lock();
        if history.is_none() || history != last.history {
            *last = Last { history, began: Some(generation) };
        }
    }

    /// Its number, which no other primary has: the first connection to it. `None`: there was no connection yet.
    pub(crate) fn number(&self) -> Option<u64> {
        self.last.lock().began
    }
}

#[cfg(test)]
mod tests {
    use redis::VerbatimFormat;

    use super::*;

    #[test]
    fn a_primary_is_the_same_as_long_as_it_reports_the_same_history() {
        let reign = Reign::default();
        assert_eq!(reign.number(), None);
        let says = |history: &str| Value::VerbatimString {
            format: VerbatimFormat::Text,
            text: format!("# Replication\r\nrole:master\r\nmaster_replid:{history}\r\n"),
        };
        let reports =
            [Some(says("a")), Some(says("a")), Some(says("b")), None, None, Some(says("b"))];
        let number = |(generation, report): (u64, Option<Value>)| {
            reign.learn(report.as_ref(), generation);
            reign.number().expect("there is a connection")
        };
        let numbers: Vec<_> = (1..).zip(reports).map(number).collect();
        assert_eq!(numbers, [1, 1, 3, 4, 5, 6]);
    }
}
