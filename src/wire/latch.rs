//! What is done to a count-down latch: once, however often it is asked for.

use std::time::Duration;

use redis::Cmd;

use crate::config::Layout;
use crate::keys::Keys;
use crate::wire::calls::millis;
use crate::wire::commands::Connection;
use crate::wire::fault::Fault;
use crate::wire::replies::number;
use crate::wire::scripts::{self, Script};

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    Set { count: u64, ttl: Duration },
    CountDown,
    Delete,
}

impl Order {
    fn script(self, layout: Layout) -> &'static Script {
        match (layout, self) {
            (Layout::Native, Self::Set { .. }) => &scripts::LATCH_SET,
            (Layout::Native, Self::CountDown) => &scripts::LATCH_COUNT_DOWN,
            (Layout::Native, Self::Delete) => &scripts::LATCH_DELETE,
            (Layout::Redisson, Self::Set { .. }) => &scripts::REDISSON_LATCH_SET,
            (Layout::Redisson, Self::CountDown) => &scripts::REDISSON_LATCH_COUNT_DOWN,
            (Layout::Redisson, Self::Delete) => &scripts::REDISSON_LATCH_DELETE,
        }
    }
}

impl Connection<'_> {
    /// Whether it was done, or the count that is left. The server remembers for so long that it was done
    /// for this request.
    pub(crate) async fn order(
        &mut self,
        keys: &Keys,
        order: Order,
        (request, memory): (u64, Duration),
    ) -> Result<i64, Fault> {
        let fill = |cmd: &mut Cmd, client: &str| {
            cmd.arg(format!("{client}:{request}")).arg(millis(memory));
            if let Order::Set { count, ttl } = order {
                cmd.arg(count).arg(millis(ttl));
            }
        };
        number(self.ask(order.script(keys.layout), keys, fill).await?)
    }
}
