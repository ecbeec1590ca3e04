//! How much of everything: durations, sizes and rounds of a run.

use std::time::Duration;

/// What the command line asked for, defaults filled in.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Tasks of `par` and `hot`.
    pub tasks: usize,
    /// Processes of `fleet` and `crowd`, and the tasks of each of `fleet`.
    pub processes: usize,
    pub tasks_each: usize,
    /// Clients of `crowd`: a table for each number.
    pub clients: Vec<usize>,
    /// Callers of `parked` and `herd`, if not as many as the scale says.
    pub waiters: Option<usize>,
    /// The timed part of a run of `seq` to `relay`, of `kinds` and `crowd`.
    pub timed: Duration,
    /// Rounds if the workload does not say otherwise.
    pub rounds: Option<usize>,
    /// Of the sizes of `parked`, `herd`, `held` and `churn`.
    pub scale: f64,
    /// Untimed turns before the timed part; a cold JVM gets more.
    pub warm: Duration,
    pub warm_jvm: Duration,
    /// `parked`, `herd`: until all are parked, and how long they are watched.
    pub settle: Duration,
    pub parked: Duration,
    /// `parked`, `herd`: how long all have to get through after the release.
    pub limit: Duration,
    /// `held`: the lease that is kept up, for three times its length.
    pub lease: Duration,
    /// `upgrade`: how long the load lasts.
    pub upgrade: Duration,
    /// `churn`: how long a client stays subscribed to an idle name, if not its default.
    pub linger: Option<Duration>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            tasks: 64,
            processes: 4,
            tasks_each: 16,
            clients: vec![10, 30, 100, 300, 1_000],
            waiters: None,
            timed: Duration::from_secs(5),
            rounds: None,
            scale: 1.0,
            warm: Duration::from_millis(500),
            warm_jvm: Duration::from_secs(5),
            settle: Duration::from_secs(3),
            parked: Duration::from_secs(10),
            limit: Duration::from_secs(60),
            lease: Duration::from_secs(30),
            upgrade: Duration::from_secs(600),
            linger: None,
        }
    }
}

impl Plan {
    /// A moment of each at a hundredth of its size: shows that everything still runs, and nothing else.
    pub fn smoke() -> Self {
        Self {
            clients: vec![3, 10],
            timed: Duration::from_millis(300),
            rounds: Some(1),
            scale: 0.01,
            warm: Duration::from_millis(100),
            warm_jvm: Duration::from_millis(500),
            settle: Duration::from_millis(200),
            parked: Duration::from_millis(500),
            limit: Duration::from_secs(10),
            lease: Duration::from_secs(1),
            upgrade: Duration::from_secs(60),
            linger: Some(Duration::from_millis(200)),
            ..Self::default()
        }
    }

    /// A size of the full workload at this plan's scale.
    pub fn scaled(&self, full: usize) -> usize {
        ((full as f64 * self.scale).round() as usize).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scaled_size_is_never_nothing() {
        assert_eq!(Plan::smoke().scaled(10_000), 100);
        assert_eq!(Plan::smoke().scaled(3), 1);
        assert_eq!(Plan::default().scaled(10_000), 10_000);
    }
}
