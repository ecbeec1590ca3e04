//! Orders: changes of a count-down latch, and notifications of a condition. The server carries out each order once,
//! however often the client sends it.

use std::time::Duration;

use itoa::Buffer;

use crate::keys::Keys;
use crate::wire::args::{Words, millis};
use crate::wire::connection::Connection;
use crate::wire::family::{Scripts, existing, scripts_of};
use crate::wire::fault::Fault;
use crate::wire::replies::number;
use crate::wire::scripts::Script;

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

impl Order {
    fn script(self, scripts: &Scripts) -> Option<&'static Script> {
        match self {
            Self::Set { .. } => scripts.set,
            Self::CountDown => scripts.count_down,
            Self::Delete => scripts.delete,
            Self::NotifyOne | Self::NotifyAll => scripts.notify,
        }
    }
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
                Order::Set { count, ttl } => _ = words.arg(count).arg(millis(ttl)),
                Order::NotifyOne => _ = words.arg("one"),
                Order::NotifyAll => _ = words.arg("all"),
                Order::CountDown | Order::Delete => {}
            }
        };
        let script = existing(order.script(scripts_of(keys)), keys)?;
        let answer = number(self.ask(script, keys, fill).await?)?;
        self.counts(answer)
    }
}
