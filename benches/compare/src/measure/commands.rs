//! How often the server ran which command, from `INFO commandstats`.

use std::collections::BTreeMap;

/// Commands that carry a script: what happens inside is counted by the server under the inner names.
const SCRIPTS: [&str; 6] = ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];

/// Commands that no script can run, so that each was sent by a client.
const SUBSCRIPTIONS: [&str; 6] =
    ["subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "psubscribe", "punsubscribe"];

/// Asked by this program, or the heartbeat of an idle connection.
const ASIDE: [&str; 4] = ["info", "ping", "time", "client|setinfo"];

/// Calls by command name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands(BTreeMap<String, u64>);

impl Commands {
    /// Reads the server's section: `cmdstat_get:calls=3,usec=5,...`.
    pub fn parse(info: &str) -> Self {
        Self(info.lines().filter_map(entry).collect())
    }

    /// What was run since `before`, this program's own questions and heartbeats aside.
    pub fn since(&self, before: &Self) -> Self {
        let grown = |(name, calls): (&String, &u64)| {
            let more = calls.saturating_sub(before.calls(name));
            (more > 0 && !ASIDE.contains(&name.as_str())).then(|| (name.clone(), more))
        };
        Self(self.0.iter().filter_map(grown).collect())
    }

    fn calls(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Everything the server ran, what scripts call included.
    pub fn run(&self) -> u64 {
        self.0.values().sum()
    }

    /// What clients sent: scripts, subscriptions, and what this library sends `bare`.
    pub fn sent(&self, bare: &[&str]) -> u64 {
        let sent = SCRIPTS.iter().chain(&SUBSCRIPTIONS).chain(bare);
        sent.map(|name| self.calls(name)).sum()
    }

    /// Calls that carry a script.
    pub fn scripts(&self) -> u64 {
        SCRIPTS.iter().map(|name| self.calls(name)).sum()
    }

    /// The counts by name, most called first.
    pub fn by_count(&self) -> Vec<(&str, u64)> {
        let mut all: Vec<_> = self.0.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        all
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (name, calls) in &other.0 {
            *self.0.entry(name.clone()).or_default() += calls;
        }
    }
}

fn entry(line: &str) -> Option<(String, u64)> {
    let (name, stats) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let calls = stats.strip_prefix("calls=")?.split(',').next()?;
    Some((name.to_owned(), calls.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# Commandstats\r\ncmdstat_get:calls=3,usec=5\r\n";
    const AFTER: &str = "cmdstat_get:calls=10,usec=5\r\ncmdstat_evalsha:calls=4,usec=9\r\n\
                         cmdstat_ping:calls=2,usec=1\r\ncmdstat_info:calls=1,usec=1\r\n";

    #[test]
    fn only_what_was_added_counts() {
        let ran = Commands::parse(AFTER).since(&Commands::parse(BEFORE));
        assert_eq!(ran.by_count(), [("get", 7), ("evalsha", 4)]);
        assert_eq!(ran.run(), 11);
    }

    #[test]
    fn inner_calls_were_not_sent() {
        let ran = Commands::parse(AFTER).since(&Commands::parse(BEFORE));
        assert_eq!(ran.sent(&[]), 4);
        assert_eq!(ran.sent(&["get"]), 11);
    }
}
