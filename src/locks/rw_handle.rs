//! The internals of both read-write locks: two handles of one name, one to read and one to write.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Patience};
use crate::error::{Error, Result};
use crate::guards::{Guard, WriteGuard};
use crate::kinds::Kind;
use crate::locks::handle::Handle;
use crate::owner::OwnerId;

/// A read-write lock by name. Each call names the owner that may nest. With `None`, the guard is the owner.
#[derive(Clone)]
pub(crate) struct RwHandle {
    read: Handle,
    pub(super) write: Handle,
}

impl RwHandle {
    pub(crate) fn new(engine: Arc<Engine>, name: String) -> Self {
        let read = Handle::new(Arc::clone(&engine), Kind::Read, name.clone());
        Self { read, write: Handle::new(engine, Kind::Write, name) }
    }

    pub(crate) fn lease(self, lease: Duration) -> Self {
        Self { read: self.read.lease(lease), write: self.write.lease(lease) }
    }

    /// Begins to read; `None` if the patience ran out. An owner that writes needs no room.
    pub(crate) async fn read(
        &self,
        owner: Option<OwnerId>,
        patience: Patience,
    ) -> Result<Option<Guard>> {
        let acquired = {
            let writes = owner.map(|owner| self.write.held_by(owner)).transpose()?.flatten();
            self.read.acquire_within(writes.as_ref(), owner, patience)
        };
        acquired.await
    }

    /// Begins to write; `None` if the patience ran out.
    pub(crate) async fn write(
        &self,
        owner: Option<OwnerId>,
        patience: Patience,
    ) -> Result<Option<WriteGuard>> {
        if let Some(owner) = owner {
            self.refuse_upgrade(owner)?;
        }
        let Some(guard) = self.write.acquire(owner, patience).await? else { return Ok(None) };
        // It does not fail: both handles have the same name and lease, so the write would have failed before.
        let (keys, options) = self.read.asked(owner, Patience::Endless)?;
        Ok(Some(WriteGuard::new(guard, (Arc::clone(keys), options))))
    }

    /// Refuses an owner that reads and does not write: it would wait for itself.
    fn refuse_upgrade(&self, owner: OwnerId) -> Result<()> {
        match (self.write.held_by(owner)?, self.read.held_by(owner)?) {
            (None, Some(reads)) => Err(Error::Upgrade { name: reads.name().into_owned() }),
            _ => Ok(()),
        }
    }

    pub(crate) async fn is_write_locked(&self) -> Result<bool> {
        let status = self.write.status().await?;
        Ok(status.ttl >= -1 && status.used >= status.capacity)
    }
}
