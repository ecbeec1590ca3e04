//! What one client of a crowd came to.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Error};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub turns: u64,
    pub waited: Duration,
    pub longest: Duration,
}

impl Share {
    pub fn add(&mut self, waited: Duration) {
        self.turns += 1;
        self.waited += waited;
        self.longest = self.longest.max(waited);
    }
}

/// As one process tells it to another: turns, and nanoseconds.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.turns, self.waited.as_nanos(), self.longest.as_nanos())
    }
}

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut numbers = text.split('/').map(str::parse::<u64>);
        let mut next = || numbers.next().context("three numbers")?.context("a number");
        let (turns, waited, longest) = (next()?, next()?, next()?);
        let (waited, longest) = (Duration::from_nanos(waited), Duration::from_nanos(longest));
        Ok(Self { turns, waited, longest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_reads_what_was_written() {
        let mut share = Share::default();
        share.add(Duration::from_millis(3));
        share.add(Duration::from_nanos(7));
        let read: Share = share.to_string().parse().expect("three numbers");
        assert_eq!(read, share);
        assert!("1/2".parse::<Share>().is_err());
    }
}
