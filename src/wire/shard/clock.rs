//! The server's clock, as known from heartbeats. It is the floor of the token counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::Mutex;

/// Subtracted from the estimate, so that a fast monotonic clock does not put the counter ahead of the server's clock.
const MARGIN: Duration = Duration::from_millis(50);

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
    /// The first time that this connection reported. There is no margin below it: the server may be a replica that has just
    /// taken over, and lacks grants of a moment ago.
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
        self.micros.saturating_add(passed).saturating_sub(micros(MARGIN))
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
        let reading = *self.reading.lock();
        if let Some(reading) = reading {
            let error = micros(MARGIN * 2).saturating_add(micros(reading.error_at(now)));
            let latest = self.time(now).saturating_add(error);
            self.beyond.fetch_max(latest, Ordering::Relaxed);
        }
    }

    /// Records a time that the server reported between these two moments. The client takes it for the server's time at
    /// the later moment, so the estimate is never ahead of the server's clock. An answer that took long, or was read
    /// late, does not replace a better one.
    pub(crate) fn learn(&self, micros: u64, sent: Instant, answered: Instant) {
        let error = answered.saturating_duration_since(sent);
        let mut known = self.reading.lock();
        if known.is_none_or(|known| error <= known.error_at(answered)) {
            let first = known.map_or(micros, |known| known.first);
            *known = Some(Reading { micros, at: answered, error, first });
        }
    }

    /// Forgets the reading: another server may have a different time.
    pub(crate) fn forget(&self) {
        *self.reading.lock() = None;
    }

    /// Records a number that was granted, unless it is too far ahead of the clock. Returns whether it was recorded. If the
    /// counter is lost, it continues from there.
    pub(crate) fn granted(&self, number: u64, now: Instant) -> bool {
        let is_near = number <= self.time(now).saturating_add(AHEAD);
        if is_near {
            self.beyond.fetch_max(number + 1, Ordering::Relaxed);
        }
        is_near
    }

    /// The floor: the least number that a grant may have now. A counter below it continues from the server's clock, which is
    /// ahead of the floor by the margin. So most grants only count up.
    pub(crate) fn floor(&self, now: Instant) -> u64 {
        let reading = *self.reading.lock();
        let time = reading.map_or(0, |reading| reading.time(now).max(reading.first));
        time.max(self.beyond.load(Ordering::Relaxed))
    }

    /// The server's time or slightly earlier; 0 if it is not known.
    pub(crate) fn time(&self, now: Instant) -> u64 {
        let reading = *self.reading.lock();
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
    fn the_floor_of_a_new_connection_begins_at_the_time_that_its_server_reports() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        let after = |micros| start + Duration::from_micros(micros);
        let (first, later) = (10_000_000, 11_000_000);
        clock.learn(first, start, start);
        assert_eq!(clock.floor(start), first);
        assert_eq!(clock.floor(after(50_000)), first);
        assert_eq!(clock.floor(after(60_000)), first + 10_000, "the clock with its margin");
        clock.learn(later, after(1_000_000), after(1_000_000));
        assert_eq!(clock.floor(after(1_000_000)), later - 50_000, "a heartbeat changes nothing");
        clock.forget();
        clock.learn(later, after(1_000_000), after(1_000_000));
        assert_eq!(clock.floor(after(1_000_000)), later, "another server");
    }

    /// The slots of a cluster have a counter each, and the client's grants of one slot raise the floor of the others.
    #[test]
    fn the_counters_of_several_slots_do_not_drive_each_other_ahead_of_the_clock() {
        let (clock, start, first) = (ServerClock::default(), Instant::now(), 10_000_000);
        clock.learn(first, start, start);
        let mut counters = [0; 2];
        for turn in 0..1_000 {
            let (now, passed) = (start + Duration::from_micros(turn * 500), turn * 500);
            let counter: &mut u64 = &mut counters[(turn % 2) as usize];
            // As the scripts do it.
            *counter += 1;
            if *counter < clock.floor(now) {
                *counter = clock.floor(now).max(first + passed);
            }
            clock.granted(*counter, now);
            assert!(*counter <= first + passed + 2, "{counter} at {}", first + passed);
        }
    }

    #[test]
    fn the_floor_never_falls_behind_what_was_granted() {
        let (clock, now) = (ServerClock::default(), Instant::now());
        clock.granted(70, now);
        clock.granted(50, now);
        assert_eq!(clock.floor(now), 71);
        clock.granted((1 << 53) - 3, now);
        clock.granted(AHEAD + 1, now);
        assert_eq!(clock.floor(now), 71);
    }

    #[test]
    fn a_server_whose_clock_is_behind_goes_on_where_the_one_before_it_ended() {
        let (beyond, now) = (Arc::default(), Instant::now());
        let [old, new] = [(); 2].map(|()| ServerClock::with(Arc::clone(&beyond)));
        old.learn(10_000_000, now, now);
        new.learn(9_800_000, now, now);
        assert_eq!(new.floor(now), 9_800_000);
        old.hand_on(now);
        assert_eq!(new.floor(now), 10_000_000 + 50_000, "more than the old one can have shown");
        ServerClock::with(Arc::clone(&beyond)).hand_on(now);
        assert_eq!(new.floor(now), 10_000_000 + 50_000, "a clock that was never read says nothing");
    }

    #[test]
    fn no_time_is_too_late_to_be_reckoned_with() {
        let (clock, now) = (ServerClock::default(), Instant::now());
        clock.learn(u64::MAX, now, now);
        let later = now + Duration::from_secs(1);
        clock.hand_on(later);
        assert_eq!(clock.floor(later), u64::MAX);
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
