//! How often the server ran which command, from `INFO commandstats`.

use std::collections::BTreeMap;

/// Commands that carry a script: what happens inside is counted by the server under the inner names.
const SCRIPTS: [&str; 6] = ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];

/// Commands that no script can run, so that each was sent by a client.
const SUBSCRIPTIONS: [&str; 6] =
    ["subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "psubscribe", "punsubscribe"];

/// What publishes, by scripts or by clients.
const PUBLISHES: [&str; 2] = ["publish", "spublish"];

/// Asked by this program, or the heartbeat of an idle connection.
const ASIDE: [&str; 5] = ["info", "ping", "time", "client|setinfo", "pubsub|numsub"];

/// Calls and their time by command name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands(BTreeMap<String, Count>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    calls: u64,
    micros: u64,
}

impl Commands {
    /// Reads the server's section: `cmdstat_get:calls=3,usec=5,...`.
    pub fn parse(info: &str) -> Self {
        Self(info.lines().filter_map(entry).collect())
    }

    /// The commands since `before`, without this program's own questions and heartbeats.
    pub fn since(&self, before: &Self) -> Self {
        let grown = |(name, now): (&String, &Count)| {
            let before = before.of(name);
            let calls = now.calls.saturating_sub(before.calls);
            let micros = now.micros.saturating_sub(before.micros);
            (calls > 0 && !ASIDE.contains(&name.as_str()))
                .then(|| (name.clone(), Count { calls, micros }))
        };
        Self(self.0.iter().filter_map(grown).collect())
    }

    fn of(&self, name: &str) -> Count {
        self.0.get(name).copied().unwrap_or_default()
    }

    fn calls_of(&self, names: &[&str]) -> u64 {
        names.iter().map(|name| self.of(name).calls).sum()
    }

    /// Everything the server ran, what scripts call included.
    pub fn run(&self) -> u64 {
        self.0.values().map(|count| count.calls).sum()
    }

    /// What clients sent: scripts, subscriptions, and what this library sends `bare`.
    pub fn sent(&self, bare: &[&str]) -> u64 {
        self.scripts() + self.calls_of(&SUBSCRIPTIONS) + self.calls_of(bare)
    }

    /// Whether a command of this name carries a script.
    pub fn is_script(name: &str) -> bool {
        SCRIPTS.contains(&name.to_ascii_lowercase().as_str())
    }

    /// Calls that carry a script.
    pub fn scripts(&self) -> u64 {
        self.calls_of(&SCRIPTS)
    }

    /// Messages that were published, whether anybody heard them or not.
    pub fn published(&self) -> u64 {
        self.calls_of(&PUBLISHES)
    }

    /// Seconds that a call of a script took in the server, on average. The time of what it calls is part of it.
    pub fn script_seconds(&self) -> Option<f64> {
        let micros: u64 = SCRIPTS.iter().map(|name| self.of(name).micros).sum();
        let calls = self.scripts();
        (calls > 0).then(|| micros as f64 / 1e6 / calls as f64)
    }

    /// The counts by name, most called first.
    pub fn by_count(&self) -> Vec<(&str, u64)> {
        let mut all: Vec<_> = self.0.iter().map(|(name, n)| (name.as_str(), n.calls)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        all
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (name, more) in &other.0 {
            let count = self.0.entry(name.clone()).or_default();
            count.calls += more.calls;
            count.micros += more.micros;
        }
    }
}

fn entry(line: &str) -> Option<(String, Count)> {
    let (name, stats) = line.trim().strip_prefix("cmdstat_")?.split_once(':')?;
    let count = Count { calls: number(stats, "calls=")?, micros: number(stats, "usec=")? };
    Some((name.to_owned(), count))
}

fn number(stats: &str, field: &str) -> Option<u64> {
    stats.split(',').find_map(|stat| stat.strip_prefix(field))?.parse().ok()
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
    fn a_script_has_its_mean_time() {
        let ran = Commands::parse(AFTER).since(&Commands::parse(BEFORE));
        assert_eq!(ran.script_seconds(), Some(9e-6 / 4.0));
        assert_eq!(Commands::default().script_seconds(), None);
    }

    #[test]
    fn inner_calls_were_not_sent() {
        let ran = Commands::parse(AFTER).since(&Commands::parse(BEFORE));
        assert_eq!(ran.sent(&[]), 4);
        assert_eq!(ran.sent(&["get"]), 11);
    }
}
