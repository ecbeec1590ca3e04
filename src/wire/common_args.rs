//! The arguments that every script call of a client has.

use std::time::Duration;

use crate::config::Layout;

/// The arguments common to every script of a client.
#[derive(Debug)]
pub(crate) struct CommonArgs {
    /// This client's id, in lines and in the messages that it publishes.
    pub(crate) client: String,
    pub(crate) layout: Layout,
    /// How long the server keeps a line in which no client shows a sign of life. Most clients in a line sleep, but ask
    /// more often than this.
    pub(crate) line_ttl: Duration,
    /// For how long after its last sign of life a client in line counts as alive.
    pub(crate) waiter_ttl: Duration,
}

impl CommonArgs {
    /// The message that a release of this client publishes.
    pub(crate) fn message(&self) -> &str {
        self.layout.message(&self.client)
    }
}
