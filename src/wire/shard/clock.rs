//! The server's clock, as known from heartbeats. It is the floor of the token counter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

/// Subtracted from the estimate, so that a fast monotonic clock does not put the counter ahead of the server's clock.
const MARGIN: Duration = Duration::from_millis(50);

/// A script lets the counter fall this many microseconds behind the floor before it writes the floor. So most grants only
/// count up, which takes the server half as long as to write. The scripts have the same number. It is less than
/// [`MARGIN`], so that no number is ahead of the clock.
const SLACK: u64 = 1 << 15;

/// The server's time in microseconds. Between two heartbeats our monotonic clock continues it.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    reading: Mutex<Option<Reading>>,
    /// More than the greatest number that this client was granted, even if a clock says less. The clocks of all servers
    /// of a client share it.
    beyond: Arc<AtomicU64>,
}

/// A number that is this many microseconds ahead of the server's clock is not from our counter: another program wrote
/// it. The scripts have the same limit.
const AHEAD: u64 = 1 << 40;

/// A reading that took no longer than this is precise enough at the start.
pub(crate) const PRECISE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy)]
struct Reading {
    micros: u64,
    at: Instant,
    /// The greatest error of the reading.
    error: Duration,
    /// The first time that this connection reported.
    first: u64,
}

impl Reading {
    /// The greatest error of the reading now: the speed of two clocks may differ by one in a thousand.
    fn error_at(&self, now: Instant) -> Duration {
        self.error + now.saturating_duration_since(self.at) / 1000
    }

    /// The server's time or slightly earlier.
    fn time(&self, now: Instant) -> u64 {
        let passed = micros(now.saturating_duration_since(self.at));
        (self.micros + passed).saturating_sub(micros(MARGIN))
    }
}

impl ServerClock {
    /// The clock of the same server, as another connection reads it.
    pub(crate) fn beside(&self) -> Self {
        Self::with(Arc::clone(&self.beyond))
    }

    /// The clock of one of the servers that share `beyond`.
    pub(crate) fn with(beyond: Arc<AtomicU64>) -> Self {
        Self { reading: Mutex::default(), beyond }
    }

    /// Another server takes over. Its clock may be behind, and the latest grants of this one may be lost: so no number
    /// may be drawn that this clock could have shown.
    pub(crate) fn hand_on(&self, now: Instant) {
        let reading = *self.reading.lock().expect("no panic under this lock");
        if let Some(reading) = reading {
            let latest = self.time(now) + micros(MARGIN * 2) + micros(reading.error_at(now));
            // The floor adds the slack again.
            self.beyond.fetch_max(latest - SLACK, Ordering::Relaxed);
        }
    }

    /// Records a time that the server reported between these two moments. The client takes it for the server's time at
    /// the later moment, so the estimate is never ahead of the server's clock. An answer that took long, or was read
    /// late, does not replace a better one.
    pub(crate) fn learn(&self, micros: u64, sent: Instant, answered: Instant) {
        let error = answered.saturating_duration_since(sent);
        let mut known = self.reading.lock().expect("no panic under this lock");
        if known.is_none_or(|known| error <= known.error_at(answered)) {
            let first = known.map_or(micros, |known| known.first);
            *known = Some(Reading { micros, at: answered, error, first });
        }
    }

    /// Forgets the reading: another server may have a different time.
    pub(crate) fn forget(&self) {
        *self.reading.lock().expect("no panic under this lock") = None;
    }

    /// Records a number that was granted. If the counter is lost, it continues from there.
    pub(crate) fn granted(&self, number: u64, now: Instant) {
        if number <= self.time(now).saturating_add(AHEAD) {
            self.beyond.fetch_max(number + 1, Ordering::Relaxed);
        }
    }

    /// The floor: a counter that is more than [`SLACK`] behind it continues from it.
    pub(crate) fn floor(&self, now: Instant) -> u64 {
        let reading = *self.reading.lock().expect("no panic under this lock");
        let (time, first) = reading.map_or((0, 0), |reading| (reading.time(now), reading.first));
        // There is no slack here. The server may be a replica that has just taken over, and lacks grants of a moment ago.
        let least = first.saturating_sub(micros(MARGIN)).max(self.beyond.load(Ordering::Relaxed));
        time.max(if least > 0 { least + SLACK } else { 0 })
    }

    /// The server's time or slightly earlier; 0 if it is not known.
    pub(crate) fn time(&self, now: Instant) -> u64 {
        let reading = *self.reading.lock().expect("no panic under this lock");
        reading.map_or(0, |reading| reading.time(now))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_follows_the_servers_clock_with_a_margin() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        assert_eq!(clock.floor(start), 0);
        clock.learn(10_000_000, start, start + Duration::from_millis(20));
        let later = start + Duration::from_millis(1_020);
        assert_eq!(clock.time(later), 10_000_000 + 1_000_000 - 50_000);
        assert_eq!(clock.floor(later), clock.time(later));
    }

    #[test]
    fn a_new_connection_gives_the_counter_no_slack_below_the_time_that_its_server_reports() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        let after = |micros| start + Duration::from_micros(micros);
        let (first, margin) = (10_000_000, 50_000);
        clock.learn(first, start, start);
        assert_eq!(clock.floor(start) - SLACK, first - margin);
        assert_eq!(clock.floor(after(SLACK)) - SLACK, first - margin);
        assert_eq!(clock.floor(after(SLACK + 9)), first + SLACK + 9 - margin, "the clock again");
        let later = first + 1_000_000;
        clock.learn(later, after(1_000_000), after(1_000_000));
        assert_eq!(clock.floor(after(1_000_000)), later - margin, "a heartbeat changes nothing");
        clock.forget();
        clock.learn(later, after(1_000_000), after(1_000_000));
        assert_eq!(clock.floor(after(1_000_000)) - SLACK, later - margin, "another server");
    }

    #[test]
    fn the_floor_never_falls_behind_what_was_granted() {
        let (clock, now) = (ServerClock::default(), Instant::now());
        clock.granted(70, now);
        clock.granted(50, now);
        assert_eq!(clock.floor(now) - SLACK, 71);
        clock.granted((1 << 53) - 3, now);
        clock.granted(AHEAD + 1, now);
        assert_eq!(clock.floor(now) - SLACK, 71);
    }

    #[test]
    fn a_server_whose_clock_is_behind_goes_on_where_the_one_before_it_ended() {
        let (beyond, now) = (Arc::default(), Instant::now());
        let [old, new] = [(); 2].map(|()| ServerClock::with(Arc::clone(&beyond)));
        old.learn(10_000_000, now, now);
        new.learn(9_800_000, now, now);
        assert_eq!(new.floor(now) - SLACK, 9_800_000 - 50_000);
        old.hand_on(now);
        assert_eq!(new.floor(now), 10_000_000 + 50_000, "more than the old one can have shown");
        ServerClock::with(Arc::clone(&beyond)).hand_on(now);
        assert_eq!(new.floor(now), 10_000_000 + 50_000, "a clock that was never read says nothing");
    }

    #[test]
    fn an_answer_that_was_read_late_does_not_spoil_the_estimate() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        let second = Duration::from_secs(1);
        clock.learn(10_000_000, start, start + Duration::from_millis(2));
        clock.learn(11_000_000, start + second, start + second * 2);
        let expected = 10_000_000 + 2_000_000 - 2_000 - 50_000;
        assert_eq!(clock.time(start + second * 2), expected);
        clock.learn(12_000_000, start + second * 2, start + second * 2);
        assert_eq!(clock.time(start + second * 2), 12_000_000 - 50_000);
    }
}
