//! A client's description of itself in Redis, for operators.

use std::fs;
use std::time::Duration;

use redis::cmd;
use tokio::time::{Instant, timeout};

use crate::slot::Slot;
use crate::wire::cluster::{Servers, next_hop};
use crate::wire::commands::Commands;
use crate::wire::fault::{self, Fault};

/// How long the key lives. The client rewrites it after a third of that.
const LIFE: Duration = Duration::from_secs(15);

/// How long to wait for the connection to a node of a cluster that no other request has used.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who a client is.
#[derive(Debug)]
pub(crate) struct Card {
    key: String,
    /// In a cluster.
    slot: Option<Slot>,
    app: String,
    host: String,
    pid: u32,
    /// The server's time at the first write, in ms; 0: it has not been written yet.
    since: u64,
}

impl Card {
    pub(crate) fn new(app: &str, pid: u32, key: String, in_cluster: bool) -> Self {
        let slot = in_cluster.then(|| Slot::of(&key));
        Self { key, slot, app: app.to_owned(), host: host(), pid, since: 0 }
    }

    /// How often to write it.
    pub(crate) fn period() -> Duration {
        LIFE / 3
    }

    fn text(&self) -> String {
        let Self { app, host, pid, since, .. } = self;
        format!(r#"{{"app":"{app}","host":"{host}","pid":{pid},"since":{since}}}"#)
    }
}

impl Commands {
    /// Writes the card, which expires after a while.
    pub(crate) async fn show(&self, card: &mut Card) -> Result<(), Fault> {
        let shard = self.servers.shard_of(card.slot)?;
        // The link reports whether it came up in time.
        let _ = timeout(PATIENCE, shard.up()).await;
        let live = shard.link.live()?;
        if card.since == 0 {
            card.since = shard.reign.clock.time(Instant::now()) / 1000;
        }
        let mut set = cmd("SET");
        set.arg(&card.key).arg(card.text()).arg("PX").arg(LIFE.as_millis() as u64);
        let shown = fault::answered(live.socket.ask(&set).await);
        if let (Err(fault), Servers::Cluster(cluster)) = (&shown, &self.servers) {
            // The next card goes to the node that the answer names.
            let _ = next_hop(cluster, &shard, fault.clone()).await;
        }
        shown.map(drop)
    }
}

/// The name of this machine, as far as it can be written in quotes.
pub(crate) fn host() -> String {
    let files = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let name = files.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || ".-_".contains(*c);
    name.trim().chars().filter(is_plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::of_client;

    fn of(app: &str, in_cluster: bool) -> Card {
        Card::new(app, 42, of_client("", "id"), in_cluster)
    }

    #[test]
    fn a_card_is_text_that_needs_no_escapes() {
        let card = Card { since: 7, host: "web-1".into(), ..of("billing", false) };
        let text = r#"{"app":"billing","host":"web-1","pid":42,"since":7}"#.to_owned();
        assert_eq!((card.key.as_str(), card.text()), ("lock_client:{id}", text));
        assert!(!host().contains(['"', '\n']));
    }

    #[test]
    fn in_a_cluster_it_lies_in_the_slot_of_the_client() {
        assert_eq!(of("app", false).slot, None);
        assert_eq!(of("app", true).slot, Some(Slot::of("id")));
    }
}
