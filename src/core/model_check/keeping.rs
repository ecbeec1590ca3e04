//! What a client that keeps idle locks knows beyond its lock.

use crate::core::model_check::request::Request;

/// What the client knows beyond its lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Keeping {
    /// For so many ticks, a caller that tried the lock is expected again.
    pub(crate) expects: i8,
    /// The permission has just ended. The client has not looked for an idle tenure yet.
    pub(crate) looks: bool,
    /// A request that allows it to keep the lock, and whether the channel was live before the permission.
    pub(crate) unsent: Option<(Request, bool)>,
}

impl Keeping {
    pub(crate) fn tick(&mut self) {
        self.expects = (self.expects - 1).max(0);
    }
}
