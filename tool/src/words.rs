//! The lines that the supervisor and the keeper of a lock exchange.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::holders::Holders;

/// What the keeper tells the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Told {
    /// The client has connected to Redis.
    Connected,
    /// The keeper has the lock, until then if it is not renewed. It waits for [`Order::Started`].
    Granted { token: u64, until: Moment },
    /// The keeper has let the command begin.
    Begun,
    /// The keeper does not wait for the lock, and has given back what was granted: it waits for [`Order::Wait`].
    Paused,
    /// The lock was renewed: its new deadline.
    Until(Moment),
    /// The lock is lost.
    Gone,
    /// The lock was not free in time: these hold it.
    Busy(Holders),
    /// The keeper cannot get the lock: the exit code, and why.
    Failed(u8, String),
    /// The keeper has given the lock back.
    Freed,
    /// The release failed: the lease will free the lock.
    Left(String),
}

/// What the supervisor orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Wait for the lock again.
    Wait,
    /// Do not wait for the lock: the supervisor is about to stop.
    Pause,
    /// There is a process for the command, in a group with this id. The command begins when the keeper says so.
    Started(i32),
    /// The command has ended: give the lock back when `--min-hold` is over.
    Over,
    /// Give the lock back now, whatever `--min-hold` is.
    Now,
}

/// The line for a word: JSON, whose texts have no line ends.
pub(crate) fn line(word: &impl Serialize) -> String {
    serde_json::to_string(word).unwrap_or_default() + "\n" // it can be written
}

/// The word in a line, if it is one.
pub(crate) fn read<T: DeserializeOwned>(line: &str) -> Option<T> {
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn both_sides_understand_each_other() {
        let until = Moment(Duration::from_nanos(123_456_789_012));
        let told = [
            Told::Connected,
            Told::Granted { token: u64::MAX, until },
            Told::Begun,
            Told::Paused,
            Told::Until(until),
            Told::Gone,
            Told::Busy(Holders {
                text: "two\nlines".to_owned(),
                json: serde_json::json!([7]),
                capacity: Some(2),
            }),
            Told::Failed(69, "redis is not available: no".to_owned()),
            Told::Freed,
            Told::Left("no answer".to_owned()),
        ];
        for word in told {
            assert_eq!(read(&line(&word)), Some(word));
        }
        let orders = [Order::Wait, Order::Pause, Order::Started(42), Order::Over, Order::Now];
        for order in orders {
            assert_eq!(read(&line(&order)), Some(order));
        }
    }

    #[test]
    fn a_reason_stays_in_its_line() {
        assert_eq!(line(&Told::Left("two\nlines".to_owned())).lines().count(), 1);
        assert_eq!((read::<Told>("nonsense"), read::<Order>("")), (None, None));
    }
}
