//! What a connection is known by, and how it ends.

use crate::connection::{Conn, Connection};
use crate::reply::{Answer, Reply};
use crate::resp::Protocol;
use crate::state::{Caller, State};

impl State {
    pub(crate) fn is_logged_in(&self, caller: Caller) -> bool {
        self.connection(caller).is_none_or(|connection| connection.logged_in)
    }

    pub(crate) fn log_in(&mut self, caller: Caller, user: &[u8], password: &[u8]) -> Answer {
        let fits =
            user == b"default" && self.password.as_deref().is_none_or(|wanted| wanted == password);
        if !fits {
            return Err(Reply::error(
                "WRONGPASS invalid username-password pair or user is disabled.",
            ));
        }
        if let Some(connection) = self.connection_mut(caller) {
            connection.logged_in = true;
        }
        Ok(Reply::ok())
    }

    pub(crate) fn protocol(&self, caller: Caller) -> Protocol {
        self.connection(caller).map_or(Protocol::Resp2, |connection| connection.protocol)
    }

    pub(crate) fn set_protocol(&mut self, caller: Caller, protocol: Protocol) {
        if let Some(connection) = self.connection_mut(caller) {
            connection.protocol = protocol;
        }
    }

    pub(crate) fn name(&self, caller: Caller) -> Option<Vec<u8>> {
        self.connection(caller).map(|connection| connection.name.clone())
    }

    pub(crate) fn set_name(&mut self, caller: Caller, name: &[u8]) {
        if let Some(connection) = self.connection_mut(caller) {
            connection.name = name.to_vec();
        }
    }

    pub(crate) fn select(&mut self, caller: Caller, database: usize) {
        if let Some(run) = &mut self.run {
            run.database = database;
        } else if let Some(connection) = self.connection_mut(caller) {
            connection.database = database;
        }
    }

    pub(crate) fn reset(&mut self, caller: Caller) {
        self.leave_all(caller);
        let logged_in = self.password.is_none();
        if let Some(connection) = self.connection_mut(caller) {
            let parser = std::mem::take(&mut connection.parser);
            *connection = Connection { parser, ..Connection::new(logged_in) };
        }
    }

    /// Closes a connection from the server's side, after its outbox is sent.
    pub(crate) fn close_after_reply(&mut self, caller: Caller) {
        let Some(conn) = caller.conn else { return };
        if !self.hang_ups.contains(&conn) {
            self.hang_ups.push(conn);
        }
    }

    /// Forgets a connection.
    pub(crate) fn drop_connection(&mut self, conn: Conn) {
        self.leave_all(Caller { conn: Some(conn) });
        self.connections.remove(&conn);
    }

    pub(crate) fn kill(&mut self, chosen: impl Fn(Conn, &Connection) -> bool) -> usize {
        let open = self.connections.iter().filter(|(conn, _)| !self.hang_ups.contains(conn));
        let killed: Vec<_> = open
            .filter(|(conn, connection)| chosen(**conn, connection))
            .map(|(conn, _)| *conn)
            .collect();
        for conn in &killed {
            self.close_after_reply(Caller { conn: Some(*conn) });
        }
        killed.len()
    }
}
