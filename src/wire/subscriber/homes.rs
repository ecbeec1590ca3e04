//! Which server has which channel. A channel moves with its slot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::slot::Slot;
use crate::wire::cluster::SlotMap;
use crate::wire::node::Node;
use crate::wire::shard::Facts;
use crate::wire::subscriber::channels::Channels;

/// Where channels are subscribed. The key `None` is the only server, or, in a cluster, no server: the slot has none for
/// now.
#[derive(Default)]
pub(super) struct Homes {
    pub(super) map: Arc<SlotMap>,
    pub(super) all: BTreeMap<Option<Node>, Home>,
}

/// The channels that one server has.
#[derive(Default)]
pub(super) struct Home {
    pub(super) channels: Channels,
    pub(super) link: Arc<HomeLink>,
    /// Ends the link; `None`: there is none yet.
    pub(super) stop: Option<CancellationToken>,
}

/// What a home and its link share.
#[derive(Default)]
pub(super) struct HomeLink {
    pub(super) changed: Notify,
    /// The generation of the live connection; 0: there is none.
    pub(super) generation: AtomicU64,
    pub(super) facts: Facts,
}

impl HomeLink {
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn is_up(&self) -> bool {
        self.generation() != 0
    }
}

impl Homes {
    /// The home of a channel.
    pub(super) fn of(&self, channel: &str) -> Option<Node> {
        if self.map.is_empty() { None } else { self.map.owner(Slot::of(channel)).cloned() }
    }

    pub(super) fn open(&mut self, home: Option<Node>) -> &mut Home {
        self.all.entry(home).or_default()
    }

    /// Moves each channel to its current home. Returns the links whose work has changed, and the channels that have
    /// subscribers and came to a home without a connection.
    pub(super) fn follow(&mut self, map: Arc<SlotMap>) -> (Vec<Arc<HomeLink>>, Vec<Arc<str>>) {
        self.map = Arc::clone(&map);
        let (mut moved, mut changed, mut deaf) = (Vec::new(), Vec::new(), Vec::new());
        for (node, home) in &mut self.all {
            let stays = |channel: &str| map.owner(Slot::of(channel)) == node.as_ref();
            // The server keeps a plain channel, and also a sharded one if only the map was wrong. A new connection has no
            // channels.
            let is_left = home.link.is_up();
            moved.extend(home.channels.leave_behind(stays, is_left));
            if !home.channels.left.is_empty() {
                changed.push(Arc::clone(&home.link));
            }
        }
        for (channel, subscribers) in moved {
            let home = self.of(&channel);
            let is_nowhere = home.is_none();
            let at = self.open(home);
            // A new link says by itself if it is down for long.
            if !at.link.is_up() && (is_nowhere || at.stop.is_some()) {
                deaf.push(Arc::clone(&channel));
            }
            at.channels.adopt(channel, subscribers);
            changed.push(Arc::clone(&at.link));
        }
        let used = map.nodes();
        self.all.retain(|node, home| {
            let stays = node.as_ref().is_none_or(|node| used.contains(&node));
            if let (false, Some(stop)) = (stays, &home.stop) {
                stop.cancel();
            }
            stays
        });
        (changed, deaf)
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;
    use tokio::time::Instant;

    use super::*;
    use crate::wire::address::{Expected, Hello};

    const CHANNEL: &str = "a";

    fn map(port: u16) -> Arc<SlotMap> {
        Arc::new(SlotMap::default().with(Slot::of(CHANNEL), Node::new("host", port)))
    }

    /// Homes whose only channel is at the node with port 1, which is connected and has sharded channels.
    fn homes() -> Homes {
        let mut homes = Homes::default();
        homes.follow(map(1));
        let home = homes.of(CHANNEL);
        let at = homes.open(home);
        let version = [Value::SimpleString("version".into()), Value::SimpleString("7.0.0".into())];
        let hello = Hello::read(&Value::Map(vec![version.into()])).unwrap();
        at.link.facts.learn(&hello, Expected::Node { plain_channels: false });
        at.link.generation.store(1, Ordering::Release);
        homes
    }

    #[test]
    fn an_idle_channel_that_moves_is_unsubscribed_where_it_was() {
        let mut homes = homes();
        let home = homes.of(CHANNEL);
        let at = homes.open(home);
        let name = at.channels.join(CHANNEL);
        at.channels.leave(&name, Instant::now());
        let both = map(2).with(Slot::new(0).unwrap(), Node::new("host", 1));
        let (changed, _) = homes.follow(Arc::new(both));
        let left = &homes.open(Some(Node::new("host", 1))).channels.left;
        assert_eq!(left.iter().map(|name| &**name).collect::<Vec<_>>(), [CHANNEL]);
        assert_eq!(changed.len(), 1);
    }
}
