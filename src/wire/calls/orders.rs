//! Orders: changes of a count-down latch, and notifications of a condition. The server carries out each order once,
//! however often the client sends it.

use std::time::Duration;

use itoa::Buffer;

use crate::keys::Keys;
use crate::wire::args::{Words, millis};
use crate::wire::connection::Connection;
use crate::wire::family::{existing, scripts_of};
use crate::wire::fault::Fault;
use crate::wire::replies::number;

/// A change that the server carries out once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    Set {
        count: u64,
        ttl: Duration,
    },
    CountDown,
    Delete,
    /// Notifies the waiter at the front.
    NotifyOne,
    /// Notifies all waiters.
    NotifyAll,
}

impl Connection<'_> {
    /// Sends the order. Returns 1 or 0 (done or not), the remaining count, or how many waiters were notified.
    /// The server remembers this request for as long as `request` says.
    pub(crate) async fn order(
        &mut self,
        keys: &Keys,
        order: Order,
        (request, memory): (u64, Duration),
    ) -> Result<i64, Fault> {
        let fill = |words: &mut Words<'_>, client: &str| {
            words.joined(&[client, ":", Buffer::new().format(request)]).arg(millis(memory));
            match order {
                Order::Set { count, ttl } => words.arg("set").arg(count).arg(millis(ttl)),
                Order::CountDown => words.arg("count_down"),
                Order::Delete => words.arg("delete"),
                Order::NotifyOne => words.arg("one"),
                Order::NotifyAll => words.arg("all"),
            };
        };
        let script = existing(scripts_of(keys).order, keys)?;
        let answer = number(self.ask(script, keys, fill).await?)?;
        self.counts(answer)
    }
}
