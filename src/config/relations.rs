//! The check that settings do not contradict each other: each relation that has to hold, with its error message.

use std::time::Duration;

use crate::config::{ACK_DELAY, Config, Layout, SHORTEST_LIFE, longest_lease};
use crate::error::{Error, Result};
use crate::token::MOST_HAND_OVERS;

/// With a shorter timeout, the watchdog's steps of a few milliseconds would be too coarse.
const SHORTEST_WATCH: Duration = Duration::from_millis(100);

/// A dead waiter at the front keeps everybody from a free lock for as long as its own client says.
const LONGEST_LIFE: Duration = Duration::from_secs(600);

/// A client beats at least four times in this.
const SHORTEST_GRACE: Duration = Duration::from_secs(1);

const SHORTEST_ANSWER: Duration = Duration::from_millis(1);

/// The shortest time between two requests of a waiter that nobody tells anything.
const SHORTEST_PARK: Duration = Duration::from_millis(10);

impl Config {
    /// # Errors
    /// [`Error::Config`], naming the first relation that does not hold.
    pub(crate) fn check(&self) -> Result<()> {
        let longest = longest_lease();
        let in_namespace = |holds: &dyn Fn(&str) -> bool| self.in_namespace().is_none_or(holds);
        let is_blank = |c: char| c.is_whitespace() || c.is_control();
        // Whether each relation holds, and the error message if it does not.
        let relations = [
            // Leases.
            (
                (SHORTEST_WATCH..=longest).contains(&self.watchdog_timeout),
                "watchdog_timeout must be between 100 ms and 24 h",
            ),
            (
                self.max_hold.is_none_or(|hold| hold >= self.watchdog_timeout),
                "max_hold must be at least watchdog_timeout, \
                 since every renewed hold has a lease of that length",
            ),
            (
                self.hand_off.max_consecutive <= MOST_HAND_OVERS,
                "hand_off.max_consecutive must be at most 1,023, the hand-overs that a token can count",
            ),
            (self.keep <= longest, "keep must be at most 24 h"),
            (
                self.keep.is_zero() || self.layout == Layout::Native,
                "keep must be zero in Redisson's layout, since Redisson asks nobody to give up a lock",
            ),
            (
                self.session.is_none_or(|grace| grace >= SHORTEST_GRACE),
                "session must be at least 1 s, or a moment without an answer would suspend every lock",
            ),
            (
                self.session.is_none_or(|grace| grace <= self.watchdog_timeout),
                "session must be at most watchdog_timeout, since a lock ends with its lease anyway",
            ),
            (
                self.session.is_none() || self.layout == Layout::Native,
                "session must not be set in Redisson's layout, since Redisson looks at leases only",
            ),
            (
                self.session.is_none() || self.replicas.is_none(),
                "session must not be set with replicas, since what ends a hold waits for none",
            ),
            // Answers.
            (
                self.response() <= self.watchdog_timeout / 4,
                "response_timeout must be at most a quarter of watchdog_timeout, \
                 or one unanswered renewal could not be repeated in time",
            ),
            (self.response() >= SHORTEST_ANSWER, "response_timeout must be at least 1 ms"),
            (!self.connect_timeout.is_zero(), "connect_timeout must not be zero"),
            (self.connect_timeout <= longest, "connect_timeout must be at most 24 h"),
            (self.start_timeout <= longest, "start_timeout must be at most 24 h"),
            // Acknowledgements by replicas.
            (
                self.replicas.is_none() || self.acks().saturating_add(ACK_DELAY) <= self.response(),
                "ack_timeout must be at least 100 ms less than response_timeout, \
                 or a server that waits for its replicas would be taken for dead",
            ),
            (
                self.replicas.is_none() || self.acks() >= SHORTEST_ANSWER,
                "ack_timeout must be at least 1 ms, or nothing would ever be acknowledged",
            ),
            // Waiting.
            (
                self.max_park >= SHORTEST_PARK,
                "max_park must be at least 10 ms, or waiters would poll",
            ),
            (self.max_park <= longest, "max_park must be at most 24 h"),
            (self.max_waiters > 0, "max_waiters must be at least 1"),
            (self.subscription_linger <= longest, "subscription_linger must be at most 24 h"),
            (
                self.life() <= self.watchdog_timeout / 2,
                "waiter_ttl must be at most half of watchdog_timeout, \
                 or a lock that a message granted could run out before it is confirmed",
            ),
            (
                self.life() <= LONGEST_LIFE,
                "waiter_ttl must be at most ten minutes, \
                 since a process that dies near the front of a line delays all others for that long",
            ),
            (
                self.life() >= SHORTEST_LIFE,
                "waiter_ttl must be at least 50 ms, \
                 or a waiter could not send three signs of life in it",
            ),
            (
                self.pickup() <= self.watchdog_timeout / 2,
                "pickup_timeout must be at most half of watchdog_timeout, \
                 or a lock could run out between two callers",
            ),
            (self.pickup() >= SHORTEST_ANSWER, "pickup_timeout must be at least 1 ms"),
            // Words.
            (
                self.describe.as_deref().is_none_or(is_plain_word),
                "describe must be 1 to 64 letters, digits and . _ - : / @",
            ),
            (in_namespace(&|name| !name.is_empty()), "namespace must not be empty"),
            (
                in_namespace(&|name| name.len() <= LONGEST_NAMESPACE),
                "namespace must be at most 64 bytes long",
            ),
            (
                in_namespace(&|name| !name.contains(['{', '}'])),
                "namespace must have no braces, since the names of locks stand in braces",
            ),
            (
                in_namespace(&|name| !name.contains(is_blank)),
                "namespace must have no blanks and no control characters",
            ),
        ];
        match relations.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, relation)) => Err(Error::config(relation)),
        }
    }
}

/// The longest name of a program.
const LONGEST_APP: usize = 64;

/// The longest namespace, in bytes.
pub(crate) const LONGEST_NAMESPACE: usize = 64;

/// Such a name needs no quotes wherever it is written.
fn is_plain_word(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/@".contains(&byte);
    (1..=LONGEST_APP).contains(&word.len()) && word.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HandOff;

    fn refusal(config: Config) -> String {
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_hold_and_follow_the_watchdog_timeout() {
        assert!(Config::default().check().is_ok());
        assert_eq!(Config::default().response(), Duration::from_secs(2));
        let quick = Config::default().watchdog_timeout(Duration::from_secs(3));
        assert_eq!(quick.response(), Duration::from_millis(750));
        assert_eq!(quick.riding_out(), Duration::from_secs(3));
        assert!(quick.check().is_ok());
    }

    #[test]
    fn the_check_names_the_relation_that_does_not_hold() {
        let second = Duration::from_secs(1);
        let config = Config::default;
        assert!(refusal(config().response_timeout(second * 10)).contains("a quarter of watchdog"));
        assert!(refusal(config().watchdog_timeout(Duration::ZERO)).contains("watchdog_timeout"));
        assert!(refusal(config().max_hold(second)).contains("max_hold"));
        assert!(refusal(config().max_waiters(0)).contains("max_waiters"));
        assert!(refusal(config().waiter_ttl(second * 20)).contains("waiter_ttl"));
        assert!(refusal(config().waiter_ttl(Duration::ZERO)).contains("at least 50 ms"));
        assert!(config().waiter_ttl(SHORTEST_LIFE).check().is_ok());
        let day = || config().watchdog_timeout(second * 86_400);
        assert!(refusal(day().waiter_ttl(second * 601)).contains("at most ten minutes"));
        assert!(day().waiter_ttl(second * 600).check().is_ok());
        assert!(refusal(config().pickup_timeout(second * 20)).contains("pickup_timeout"));
        assert!(refusal(config().pickup_timeout(Duration::ZERO)).contains("at least 1 ms"));
        let acked = || config().replicas(1);
        assert!(refusal(acked().ack_timeout(second * 2)).contains("ack_timeout"));
        assert!(refusal(acked().ack_timeout(Duration::ZERO)).contains("at least 1 ms"));
        assert!(config().ack_timeout(second * 2).check().is_ok(), "nothing is acknowledged");
        assert!(refusal(acked().ack_timeout(second * 39 / 20)).contains("ack_timeout must be"));
        assert!(acked().ack_timeout(second * 19 / 10).check().is_ok());
        assert_eq!(acked().response_timeout(second / 5).acks(), second / 10);
        assert!(acked().watchdog_timeout(second / 2).check().is_ok(), "the default has a margin");
        assert!(refusal(acked().watchdog_timeout(second / 4)).contains("ack_timeout must be"));
        assert_eq!(acked().acks(), second / 2);
        assert_eq!(config().waiter_ttl(second * 2).pickup(), second * 2);
        assert!(config().watchdog_timeout(SHORTEST_WATCH).check().is_ok());
        assert!(refusal(config().max_park(SHORTEST_PARK / 2)).contains("max_park"));
        assert!(config().describe("billing@eu-1/v2").check().is_ok());
        for app in ["", "two words", "a\"b", &"x".repeat(65), "\u{e9}"] {
            assert!(refusal(config().describe(app)).contains("describe"), "{app}");
        }
        for namespace in ["billing", "a:b", "*[?]\\", "\u{e9}", &"x".repeat(64)] {
            assert!(config().namespace(namespace).check().is_ok(), "{namespace}");
        }
        for (namespace, why) in [
            ("", "empty"),
            (&*"x".repeat(65), "64 bytes"),
            ("a{b", "braces"),
            ("a}b", "braces"),
            ("a b", "blanks"),
            ("a\u{2003}b", "blanks"),
            ("a\nb", "control"),
            ("a\0", "control"),
        ] {
            let refused = refusal(config().namespace(namespace));
            assert!(refused.contains("namespace must") && refused.contains(why), "{refused}");
        }
        let endless = HandOff { max_consecutive: 1024, ..HandOff::default() };
        assert!(refusal(config().hand_off(endless)).contains("max_consecutive"));
        assert!(refusal(config().keep(second * 86_401)).contains("keep must be at most 24 h"));
        assert!(
            refusal(config().layout(Layout::Redisson).keep(second)).contains("keep must be zero")
        );
        assert!(config().keep(second * 86_400).check().is_ok());
        assert!(refusal(config().session(second / 2)).contains("session must be at least 1 s"));
        assert!(refusal(config().session(second * 31)).contains("session must be at most"));
        let with_redisson = config().layout(Layout::Redisson).session(second * 3);
        assert!(refusal(with_redisson).contains("session must not be set in Redisson's layout"));
        assert!(refusal(config().session(second * 3).replicas(1)).contains("with replicas"));
        assert!(config().session(second).check().is_ok());
        assert!(config().session(second * 30).check().is_ok());
    }
}
