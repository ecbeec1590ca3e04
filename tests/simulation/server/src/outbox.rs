//! The outbox: replies and messages to send, in their order.

use crate::connection::Conn;
use crate::reply::Reply;
use crate::resp;
use crate::state::{Caller, State};

impl State {
    pub(crate) fn encode(&self, conn: Conn, reply: &Reply) -> Vec<u8> {
        let mut bytes = Vec::new();
        resp::write(&mut bytes, reply, self.protocol(Caller { conn: Some(conn) }), self.version);
        bytes
    }

    pub(crate) fn send(&mut self, conn: Conn, reply: &Reply) {
        let protocol = self.protocol(Caller { conn: Some(conn) });
        if self.outbox.last().is_none_or(|(last, _)| *last != conn) {
            self.outbox.push((conn, Vec::new()));
        }
        if let Some((_, bytes)) = self.outbox.last_mut() {
            resp::write(bytes, reply, protocol, self.version);
        }
    }

    /// A command of this connection begins.
    pub(crate) fn serve(&mut self, conn: Conn) {
        self.serving = Some(conn);
    }

    /// It ends with this reply. What SUBSCRIBE and UNSUBSCRIBE answer was sent already.
    pub(crate) fn served(&mut self, conn: Conn, reply: &Reply) {
        self.serving = None;
        if !matches!(reply, Reply::Push(_)) {
            self.send(conn, reply);
        }
        for push in std::mem::take(&mut self.behind_the_reply) {
            self.outbox.push((conn, push));
        }
    }
}
