//! Changes of a count-down latch. The server carries each out once, however often the client sends it.

use std::time::Duration;

use redis::Cmd;

use crate::keys::Keys;
use crate::wire::calls::millis;
use crate::wire::commands::Connection;
use crate::wire::family::{LatchScripts, scripts_of};
use crate::wire::fault::Fault;
use crate::wire::replies::number;
use crate::wire::scripts::Script;

/// A change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    Set { count: u64, ttl: Duration },
    CountDown,
    Delete,
}

impl Order {
    fn script(self, scripts: &LatchScripts) -> &'static Script {
        match self {
            Self::Set { .. } => scripts.set,
            Self::CountDown => scripts.count_down,
            Self::Delete => scripts.delete,
        }
    }
}

impl Connection<'_> {
    /// Changes the latch. Returns 1 or 0 (done or not), or the count that is left. The server remembers this request
    /// for as long as `request` says.
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
        let script = scripts_of(keys).latch.as_ref().map(|scripts| order.script(scripts));
        number(self.ask_if(script, keys, fill).await?)
    }
}
