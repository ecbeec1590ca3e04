//! The arguments that every script call of a client has.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Layout;
use crate::wire::args::millis;
use crate::wire::session::Session;

/// The arguments common to every script of a client.
#[derive(Debug)]
pub(crate) struct CommonArgs {
    /// This client's id, in lines and in the messages that it publishes.
    pub(crate) client: String,
    pub(crate) layout: Layout,
    /// For how long after its last sign of life a client in line counts as alive.
    pub(crate) waiter_ttl: Duration,
    /// What each request for a place in a line says of this client, as one text: see lua/line/acquire_args.lua.
    pub(crate) line_terms: String,
    pub(crate) session: Option<Arc<Session>>,
}

impl CommonArgs {
    /// `line_ttl`: how long the server keeps a line in which no client shows a sign of life. Most clients in a line sleep, but
    /// ask more often than this.
    pub(crate) fn new(
        client: String,
        layout: Layout,
        waiter_ttl: Duration,
        line_ttl: Duration,
        session: Option<Arc<Session>>,
    ) -> Self {
        let (ttl, line) = (millis(waiter_ttl), millis(line_ttl));
        let line_terms = format!("{ttl} {line} {} ", layout.message(&client));
        Self { client, layout, waiter_ttl, line_terms, session }
    }

    /// Whether its holds end with a session.
    pub(crate) fn is_in_session(&self) -> bool {
        self.session.is_some()
    }

    /// The message that a release of this client publishes.
    pub(crate) fn message(&self) -> &str {
        self.layout.message(&self.client)
    }
}
