//! What a schedule came to.

use std::fmt;

/// One wrong way on one schedule, and the right way on the same one.
#[derive(Debug)]
pub struct Row {
    /// Such as `D7 ii`.
    pub number: &'static str,
    /// The wrong lock, in a few words.
    pub way: &'static str,
    pub schedule: &'static str,
    pub wrong: Harm,
    pub right: Harm,
}

/// How often the harm was done, of how many times that it could have been, and what it was.
#[derive(Debug)]
pub struct Harm {
    pub times: u32,
    pub of: u32,
    pub what: String,
}

impl Harm {
    pub fn new(times: u32, of: u32, what: impl Into<String>) -> Self {
        Self { times, of, what: what.into() }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {}", self.times, self.of, self.what)
    }
}
