//! The channels and their listeners.

use std::collections::BTreeMap;

use crate::connection::Conn;
use crate::reply::Reply;
use crate::resp::Protocol;
use crate::state::{Caller, State};

impl State {
    pub(crate) fn listens_in_resp2(&self, caller: Caller) -> bool {
        let connection = self.connection(caller);
        connection.is_some_and(|it| {
            let listens = !it.channels.is_empty() || !it.shard_channels.is_empty();
            it.protocol == Protocol::Resp2 && listens
        })
    }

    /// Of channels that belong to slots, if they are `sharded`; else of those of the whole server.
    pub(crate) fn subscribed(&self, caller: Caller, sharded: bool) -> Vec<Vec<u8>> {
        self.connection(caller).map_or(Vec::new(), |connection| match sharded {
            true => connection.shard_channels.clone(),
            false => connection.channels.clone(),
        })
    }

    fn own(&mut self, conn: Conn, sharded: bool) -> Option<&mut Vec<Vec<u8>>> {
        let connection = self.connections.get_mut(&conn)?;
        Some(if sharded { &mut connection.shard_channels } else { &mut connection.channels })
    }

    fn listeners(&mut self, sharded: bool) -> &mut BTreeMap<Vec<u8>, Vec<Conn>> {
        if sharded { &mut self.shard_channels } else { &mut self.channels }
    }

    pub(crate) fn subscribe(&mut self, caller: Caller, channel: &[u8], sharded: bool) {
        let Some(conn) = caller.conn else { return };
        let Some(own) = self.own(conn, sharded) else { return };
        if !own.iter().any(|known| known == channel) {
            own.push(channel.to_vec());
            self.listeners(sharded).entry(channel.to_vec()).or_default().push(conn);
        }
        let what = if sharded { "ssubscribe" } else { "subscribe" };
        self.confirm(conn, what, Some(channel), sharded);
    }

    pub(crate) fn unsubscribe(&mut self, caller: Caller, channel: Option<&[u8]>, sharded: bool) {
        let Some(conn) = caller.conn else { return };
        if let Some(channel) = channel {
            self.leave(caller, channel, sharded);
        }
        let what = if sharded { "sunsubscribe" } else { "unsubscribe" };
        self.confirm(conn, what, channel, sharded);
    }

    pub(crate) fn leave(&mut self, caller: Caller, channel: &[u8], sharded: bool) {
        let Some(conn) = caller.conn else { return };
        if let Some(own) = self.own(conn, sharded) {
            own.retain(|known| known != channel);
        }
        let all = self.listeners(sharded);
        if let Some(listeners) = all.get_mut(channel) {
            listeners.retain(|listener| *listener != conn);
            if listeners.is_empty() {
                all.remove(channel);
            }
        }
    }

    pub(crate) fn leave_all(&mut self, caller: Caller) {
        for sharded in [false, true] {
            for channel in self.subscribed(caller, sharded) {
                self.leave(caller, &channel, sharded);
            }
        }
    }

    pub(crate) fn confirm(
        &mut self,
        conn: Conn,
        what: &str,
        channel: Option<&[u8]>,
        sharded: bool,
    ) {
        let left = self.own(conn, sharded).map_or(0, |own| own.len());
        let channel = channel.map_or(Reply::Nil, Reply::bulk);
        self.send(conn, &Reply::Push(vec![Reply::bulk(what), channel, Reply::count(left)]));
    }

    /// How many got it. In a cluster, the other nodes hear of it too, unless the channel belongs to a slot.
    pub(crate) fn publish(&mut self, channel: &[u8], message: &[u8], sharded: bool) -> usize {
        if let (Some(cluster), false) = (&mut self.cluster, sharded) {
            cluster.bus.push((channel.to_vec(), message.to_vec()));
        }
        if let Some(overheard) = &mut self.overheard {
            overheard.push((channel.to_vec(), message.to_vec(), sharded));
        }
        self.tell(channel, message, sharded)
    }

    /// As `publish`, to the listeners of this server alone.
    pub(crate) fn tell(&mut self, channel: &[u8], message: &[u8], sharded: bool) -> usize {
        let listeners = self.listeners(sharded).get(channel).cloned().unwrap_or_default();
        if listeners.is_empty() {
            return 0;
        }
        let what = if sharded { "smessage" } else { "message" };
        let push = Reply::Push(vec![Reply::bulk(what), Reply::bulk(channel), Reply::bulk(message)]);
        for listener in &listeners {
            // Newer servers let nothing come between a command and its reply.
            if self.version.is_recent() && self.serving == Some(*listener) {
                let encoded = self.encode(*listener, &push);
                self.behind_the_reply.push(encoded);
            } else {
                self.send(*listener, &push);
            }
        }
        listeners.len()
    }
}
