//! The caller of this client that contends, and what it gives up when it is dropped.

use std::sync::Arc;

use crate::engine::entry::{Entry, EntryPermit, Visit};
use crate::engine::shared::Engine;
use crate::error::Result;
use crate::keys::Keys;

/// The caller of this client that contends. If it is dropped before it was granted the lock, it passes on the permit,
/// and the place in line with it. If no other caller of this client waits, it gives up the place.
pub(crate) struct Contender {
    engine: Arc<Engine>,
    /// `None` once it is granted, or while it looks for a tenure that was left for it.
    pub(super) permit: Option<EntryPermit>,
}

impl Contender {
    pub(super) fn new(engine: &Arc<Engine>, permit: EntryPermit) -> Self {
        Self { engine: Arc::clone(engine), permit: Some(permit) }
    }

    /// Contends at once, or not at all if another caller of this client came first. A tenure that was left for others
    /// still holds the lock in Redis, so for this caller the lock is held.
    pub(crate) async fn at_once(engine: &Arc<Engine>, keys: &Arc<Keys>) -> Result<Option<Self>> {
        let permit = engine.permit_now(&engine.visit(keys, 1, false)?).await?;
        Ok(permit.map(|permit| Self::new(engine, permit)))
    }

    pub(crate) fn entry(&self) -> Arc<Entry> {
        Arc::clone(&self.visit().entry)
    }

    pub(super) fn permit(&self) -> &EntryPermit {
        self.permit.as_ref().expect("it has not been granted yet")
    }

    pub(super) fn visit(&self) -> &Visit {
        self.permit().visit()
    }

    /// The server has granted it the lock, and taken it out of the line. The entry knows its owner field until the
    /// tenure has begun.
    pub(crate) fn granted(mut self) -> EntryPermit {
        let permit = self.permit.take().expect("it is granted once");
        self.engine.give_back_former(permit.entry().has_it());
        permit
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let left = permit.give_up(|| self.engine.next_tenure());
        left.iter().for_each(|visit| self.engine.look_after(visit));
    }
}
