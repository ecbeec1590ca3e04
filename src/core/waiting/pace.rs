//! How often messages make a contender ask.

use std::time::Duration;

use tokio::time::Instant;

use crate::kinds::Holders;

/// So many requests in a row are not delayed. The turns of a busy line, and what the dead leave behind, need fewer.
const AT_ONCE: u32 = 64;

/// The requests of one wait. Anybody who may publish can make contenders ask. Without a limit, one message without any right to
/// keys would cost a request of each client that waits, as often as somebody publishes it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
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

/// What lies between two turns: in a line that lets in one after the other, and in one whose waiters are notified together.
const TURN: Duration = Duration::from_millis(2);
const TURN_OF_NOTIFIED: Duration = Duration::from_micros(100);

/// When messages make the contenders of one line ask. Thousands of callers of one client may wait for a fair lock or a condition,
/// and each of them is a contender.
#[derive(Debug)]
pub(crate) struct Turns {
    turn: Duration,
    far: Pace,
    /// Of those near the front, and of those that a message names. They do not wait behind a crowd. Their turns are shorter, since
    /// the server may wait for their sign of life, and does so for one `waiter_ttl` only.
    near: Pace,
}

/// How many contenders near the front ask in the turn of one that is far.
const NEAR: u32 = 4;

impl Turns {
    pub(crate) fn of(holders: Holders) -> Self {
        let turn = if holders == Holders::Notified { TURN_OF_NOTIFIED } else { TURN };
        Self { turn, far: Pace::default(), near: Pace::default() }
    }

    /// All of so many contenders have to ask, each once. Turns of an earlier time may still be to come. Those that are more than
    /// one for each contender are forgotten: their contenders have left, or have asked for another reason.
    pub(crate) fn begin(&mut self, now: Instant, contenders: usize) {
        let most = u32::try_from(contenders).unwrap_or(u32::MAX);
        for is_near in [false, true] {
            let (pace, turn) = self.pace(is_near);
            let last = now + turn.saturating_mul(most);
            pace.used_until = pace.used_until.map(|until| until.min(last));
        }
    }

    pub(super) fn next(&mut self, now: Instant, is_near: bool) -> Instant {
        let (pace, turn) = self.pace(is_near);
        pace.next(now, turn)
    }

    pub(super) fn take(&mut self, now: Instant, is_near: bool) {
        let (pace, turn) = self.pace(is_near);
        pace.asked(now, turn);
    }

    fn pace(&mut self, is_near: bool) -> (&mut Pace, Duration) {
        match is_near {
            true => (&mut self.near, self.turn / NEAR),
            false => (&mut self.far, self.turn),
        }
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
        let (mut turns, now, crowd) = (Turns::of(Holders::HandedOn), Instant::now(), 1_000);
        for is_near in [false, true] {
            for _ in 0..100 {
                turns.begin(now, crowd);
                assert!(turns.next(now, is_near) <= now + TURN * 1_000);
                for _ in 0..crowd {
                    turns.take(now, is_near);
                }
            }
            turns.begin(now, 3);
            assert_eq!(turns.next(now, is_near), now, "the others have gone");
        }
    }

    #[test]
    fn contenders_near_the_front_do_not_wait_behind_a_crowd() {
        let (mut turns, now) = (Turns::of(Holders::HandedOn), Instant::now());
        (0..1_000).for_each(|_| turns.take(now, false));
        assert!(turns.next(now, false) > now);
        for _ in 0..AT_ONCE {
            assert_eq!(turns.next(now, true), now);
            turns.take(now, true);
        }
        turns.take(now, true);
        assert_eq!(turns.next(now, true), now + TURN / NEAR, "they have turns too");
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
