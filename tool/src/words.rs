//! The lines that the supervisor and the keeper of a lock exchange.

use std::fmt;
use std::time::Duration;

use crate::clock::Moment;
use crate::holders::Holders;

/// What the keeper tells the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("connected"),
            Self::Granted { token, until } => write!(f, "granted {token} {}", until.0.as_nanos()),
            Self::Begun => f.write_str("begun"),
            Self::Paused => f.write_str("paused"),
            Self::Until(until) => write!(f, "until {}", until.0.as_nanos()),
            Self::Gone => f.write_str("gone"),
            Self::Busy(holders) => write!(f, "busy {holders}"),
            Self::Failed(code, why) => write!(f, "failed {code} {}", why.replace('\n', " ")),
            Self::Freed => f.write_str("freed"),
            Self::Left(why) => write!(f, "left {}", why.replace('\n', " ")),
        }
    }
}

impl Told {
    pub(crate) fn read(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "connected" => Self::Connected,
            "granted" => {
                let (token, until) = rest.split_once(' ')?;
                Self::Granted { token: token.parse().ok()?, until: moment(until)? }
            }
            "begun" => Self::Begun,
            "paused" => Self::Paused,
            "until" => Self::Until(moment(rest)?),
            "gone" => Self::Gone,
            "busy" => Self::Busy(Holders::read(rest)?),
            "failed" => {
                let (code, why) = rest.split_once(' ')?;
                Self::Failed(code.parse().ok()?, why.to_owned())
            }
            "freed" => Self::Freed,
            "left" => Self::Left(rest.to_owned()),
            _ => return None,
        })
    }
}

fn moment(nanos: &str) -> Option<Moment> {
    nanos.parse().ok().map(|nanos| Moment(Duration::from_nanos(nanos)))
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait => f.write_str("wait"),
            Self::Pause => f.write_str("pause"),
            Self::Started(group) => write!(f, "started {group}"),
            Self::Over => f.write_str("over"),
            Self::Now => f.write_str("now"),
        }
    }
}

impl Order {
    pub(crate) fn read(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            Some(("started", group)) => group.parse().ok().map(Self::Started),
            None if line == "wait" => Some(Self::Wait),
            None if line == "pause" => Some(Self::Pause),
            None if line == "over" => Some(Self::Over),
            None if line == "now" => Some(Self::Now),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
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
            assert_eq!(Told::read(&word.to_string()), Some(word));
        }
        let orders = [Order::Wait, Order::Pause, Order::Started(42), Order::Over, Order::Now];
        for order in orders {
            assert_eq!(Order::read(&order.to_string()), Some(order));
        }
    }

    #[test]
    fn a_reason_stays_in_its_line() {
        assert_eq!(Told::Left("two\nlines".to_owned()).to_string(), "left two lines");
        assert_eq!((Told::read("nonsense"), Order::read("started x")), (None, None));
    }
}
