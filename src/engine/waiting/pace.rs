//! How often messages make a contender ask.

use std::time::Duration;

use tokio::time::Instant;

/// So many requests in a row are not delayed. The turns of a busy line, and what the dead leave behind, need fewer.
const AT_ONCE: u32 = 64;

/// The requests of one wait. Anybody who may publish can make contenders ask. Without a limit, one message without any right to
/// keys would cost a request of each client that waits, as often as somebody publishes it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Each request moves this time forward by one pause.
    used_until: Option<Instant>,
}

impl Pace {
    /// A request is sent. `pause`: what lies between two requests, once many have been sent.
    pub(super) fn asked(&mut self, now: Instant, pause: Duration) {
        let from = self.used_until.map_or(now, |until| until.max(now));
        self.used_until = Some(from + pause);
    }

    /// When a message that comes now makes the contender ask.
    pub(super) fn next(self, now: Instant, pause: Duration) -> Instant {
        let until = self.used_until.and_then(|until| until.checked_sub(pause * AT_ONCE));
        until.map_or(now, |until| until.max(now))
    }
}

/// What lies between two turns.
const TURN: Duration = Duration::from_millis(2);

/// The turns of the contenders of one line, when all of them have to ask. Thousands of callers of one client may wait for a
/// fair lock, and each of them is a contender.
#[derive(Debug, Default)]
pub(crate) struct Turns(Pace);

impl Turns {
    /// So many contenders have to ask, each once. Turns of an earlier time may still be to come. Those that are more than one for
    /// each contender are forgotten: their contenders have left, or have asked for another reason.
    pub(crate) fn begin(&mut self, now: Instant, contenders: usize) {
        let most = TURN.saturating_mul(u32::try_from(contenders).unwrap_or(u32::MAX));
        self.0.used_until = self.0.used_until.map(|until| until.min(now + most));
    }

    pub(super) fn next(&self, now: Instant) -> Instant {
        self.0.next(now, TURN)
    }

    pub(super) fn take(&mut self, now: Instant) {
        self.0.asked(now, TURN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(10);

    #[test]
    fn many_requests_in_a_row_are_at_once_and_more_of_them_one_in_a_pause() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut now = start;
        for _ in 0..AT_ONCE {
            assert_eq!(pace.next(now, PAUSE), now);
            pace.asked(now, PAUSE);
        }
        for request in 1..100 {
            now = pace.next(now, PAUSE);
            assert_eq!(now, start + PAUSE * (request - 1));
            pace.asked(now, PAUSE);
        }
    }

    #[test]
    fn a_contender_has_one_turn_however_often_all_of_them_have_to_ask() {
        let (mut turns, now, crowd) = (Turns::default(), Instant::now(), 1_000);
        for _ in 0..100 {
            turns.begin(now, crowd);
            assert!(turns.next(now) <= now + TURN * 1_000);
            for _ in 0..crowd {
                turns.take(now);
            }
        }
        turns.begin(now, 3);
        assert_eq!(turns.next(now), now, "the others have gone");
    }

    #[test]
    fn who_asks_seldom_is_never_delayed() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..1_000 {
            assert_eq!(pace.next(now, PAUSE), now);
            pace.asked(now, PAUSE);
            now += PAUSE;
        }
    }
}
