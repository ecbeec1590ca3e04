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
    fn who_asks_seldom_is_never_delayed() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..1_000 {
            assert_eq!(pace.next(now, PAUSE), now);
            pace.asked(now, PAUSE);
            now += PAUSE;
        }
    }
}
