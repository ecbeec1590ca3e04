//! The channels and their listeners.

use crate::connection::Conn;
use crate::reply::Reply;
use crate::resp::Protocol;
use crate::state::{Caller, State};

impl State {
    pub(crate) fn listens_in_resp2(&self, caller: Caller) -> bool {
        let connection = self.connection(caller);
        connection.is_some_and(|it| it.protocol == Protocol::Resp2 && !it.channels.is_empty())
    }

    pub(crate) fn subscribed(&self, caller: Caller) -> Vec<Vec<u8>> {
        self.connection(caller).map_or(Vec::new(), |connection| connection.channels.clone())
    }

    pub(crate) fn subscribe(&mut self, caller: Caller, channel: &[u8]) {
        let Some(conn) = caller.conn else { return };
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if !connection.channels.iter().any(|known| known == channel) {
            connection.channels.push(channel.to_vec());
            self.channels.entry(channel.to_vec()).or_default().push(conn);
        }
        self.confirm(conn, "subscribe", Some(channel));
    }

    pub(crate) fn unsubscribe(&mut self, caller: Caller, channel: Option<&[u8]>) {
        let Some(conn) = caller.conn else { return };
        if let Some(channel) = channel {
            self.leave(caller, channel);
        }
        self.confirm(conn, "unsubscribe", channel);
    }

    pub(crate) fn leave(&mut self, caller: Caller, channel: &[u8]) {
        let Some(conn) = caller.conn else { return };
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.channels.retain(|known| known != channel);
        }
        if let Some(listeners) = self.channels.get_mut(channel) {
            listeners.retain(|listener| *listener != conn);
            if listeners.is_empty() {
                self.channels.remove(channel);
            }
        }
    }

    fn confirm(&mut self, conn: Conn, what: &str, channel: Option<&[u8]>) {
        let left = self.connections.get(&conn).map_or(0, |connection| connection.channels.len());
        let channel = channel.map_or(Reply::Nil, Reply::bulk);
        self.send(conn, &Reply::Push(vec![Reply::bulk(what), channel, Reply::count(left)]));
    }

    /// How many got it.
    pub(crate) fn publish(&mut self, _: Caller, channel: &[u8], message: &[u8]) -> usize {
        let listeners = self.channels.get(channel).cloned().unwrap_or_default();
        if listeners.is_empty() {
            return 0;
        }
        let push =
            Reply::Push(vec![Reply::bulk("message"), Reply::bulk(channel), Reply::bulk(message)]);
        for listener in &listeners {
            // Newer servers let nothing come between a command and its reply.
            if self.version.is_valkey() && self.serving == Some(*listener) {
                let encoded = self.encode(*listener, &push);
                self.behind_the_reply.push(encoded);
            } else {
                self.send(*listener, &push);
            }
        }
        listeners.len()
    }
}
