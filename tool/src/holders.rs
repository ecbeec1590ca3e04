//! Who holds a lock that the tool does not have, for a message about it. It asks only when it has to say something: a lock that is
//! free costs no question.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::time::timeout;

use crate::args::{Lock, Outer};
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::servers;
use crate::text::printable;

/// How long a message waits for the names.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many holders a message names.
const NAMED: usize = 3;

/// Who holds a lock, or that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holders {
    pub(crate) text: String,
    /// The same as `holders` of `info --json`.
    pub(crate) json: Json,
    /// How many permits there are, if it is a semaphore.
    pub(crate) capacity: Option<u64>,
}

impl Default for Holders {
    fn default() -> Self {
        Self { text: "somebody else".to_owned(), json: json!([]), capacity: None }
    }
}

impl Holders {
    /// The holders of the first lock.
    pub(crate) fn of(inventory: &Inventory) -> Self {
        let Some(lock) = inventory.locks.first().filter(|lock| !lock.holders.is_empty()) else {
            return Self::default();
        };
        let named = lock.holders.iter().take(NAMED);
        let mut names: Vec<_> =
            named.map(|holder| printable(&inventory.who_since(&holder.owner))).collect();
        let others = lock.held_by.saturating_sub(names.len() as u64);
        if others > 0 {
            names.push(format!("{others} more"));
        }
        let json = inventory.json(lock)["holders"].take();
        Self { text: names.join(" and "), json, capacity: lock.capacity }
    }

    /// Whether one of them is this tool.
    pub(crate) fn has(&self, tool: &Outer) -> bool {
        let mut named = self.json.as_array().into_iter().flatten().map(|holder| &holder["who"]);
        named.any(|who| who["host"] == *tool.host && who["pid"] == tool.pid)
    }

    /// Whether these tools leave no room for others.
    pub(crate) fn are_all(&self, tools: &[Outer]) -> bool {
        let held = tools.iter().filter(|tool| self.has(tool)).count();
        held as u64 >= self.capacity.unwrap_or(1)
    }
}

/// The holders of a lock that was just held by others. If this user may not ask, nobody knows them.
pub(crate) async fn of(lock: &Lock) -> Holders {
    let asked = async {
        let realm = lock.server.one_realm()?;
        let servers = servers::reach_for(&lock.server.url(), &realm, &lock.name).await?.servers;
        Ok::<_, Failure>(Holders::of(&Inventory::of_one(&servers, &realm, &lock.name, 0).await?))
    };
    timeout(PATIENCE, asked).await.ok().and_then(Result::ok).unwrap_or_default()
}
