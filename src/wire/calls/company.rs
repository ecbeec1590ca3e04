//! When requests that wait go to the server together: `gathering.rs` asks this.
//!
//! A batch goes when as many requests wait as are in flight. So batches grow with the load, and the server has one half of the
//! requests while the client prepares the other. If it had all of them, client and server would idle in turn. A request
//! need not wait if hardly any are in flight.

use std::time::Duration;

use tokio::time::Instant;

/// With fewer requests in flight, nobody waits.
const FEW: usize = 3;

/// So many requests are always enough for a batch: to wait for more of them would keep the server idle.
const ALWAYS_ENOUGH: usize = 16;

/// The longest time that a request waits for company: the server may be far away, or may not answer those in flight.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// The requests of one kind: how many are in flight, and since when others wait. Plain state.
#[derive(Debug, Default)]
pub(crate) struct Company {
    in_flight: usize,
    /// When the first one came of those that wait, or of those that waited with it and have gone.
    since: Option<Instant>,
}

impl Company {
    /// A request waits, and no other does.
    pub(crate) fn first_comes(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// When the next batch goes, of at most so many requests, if so many wait for it. It is sent at once if that time has passed.
    pub(crate) fn goes_at(&self, waiting: usize, most: usize) -> Option<Instant> {
        let since = self.since.filter(|_| waiting > 0)?;
        Some(if self.is_enough(waiting, most) { since } else { since + LONGEST_WAIT })
    }

    /// Whether the next batch need not wait for company.
    pub(crate) fn is_enough(&self, waiting: usize, most: usize) -> bool {
        waiting > 0
            && (self.in_flight < FEW || waiting >= self.in_flight.min(ALWAYS_ENOUGH).min(most))
    }

    /// So many requests go.
    pub(crate) fn goes(&mut self, many: usize) {
        self.in_flight += many;
    }

    /// So many requests are answered, or have failed.
    pub(crate) fn lands(&mut self, many: usize) {
        self.in_flight -= many;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_goes_when_as_many_wait_as_are_in_flight() {
        let (mut company, now) = (Company::default(), Instant::now());
        let (mut waiting, mut went) = (0, Vec::new());
        for _ in 0..100 {
            if waiting == 0 {
                company.first_comes(now);
            }
            waiting += 1;
            if company.is_enough(waiting, 64) {
                company.goes(waiting);
                went.push(std::mem::take(&mut waiting));
            }
        }
        assert_eq!(went, [1, 1, 1, 3, 6, 12, 16, 16, 16, 16]);
        company.lands(84);
        assert!(company.is_enough(4, 64) && !company.is_enough(3, 64), "four are in flight");
        assert!(company.is_enough(1, 1), "it is a full batch");
    }

    #[test]
    fn a_request_does_not_wait_for_company_for_long() {
        let (mut company, now) = (Company::default(), Instant::now());
        assert_eq!(company.goes_at(0, 64), None);
        company.goes(10);
        company.first_comes(now);
        assert_eq!(company.goes_at(2, 64), Some(now + LONGEST_WAIT));
        assert_eq!(company.goes_at(10, 64), Some(now), "they are enough");
    }
}
