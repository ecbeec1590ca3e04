//! `tokio::sync::Mutex`: the limit of a lock within one process, with no server at all. Between processes it excludes nobody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use anyhow::Result;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{Contender, Kind};
use crate::worker::protocol::Setup;

#[derive(Clone, Default)]
pub struct TokioMutex {
    names: Arc<StdMutex<HashMap<String, Arc<Mutex<()>>>>>,
}

impl Contender for TokioMutex {
    type Handle = Arc<Mutex<()>>;
    type Guard = OwnedMutexGuard<()>;

    async fn connect(_setup: &Setup) -> Result<Self> {
        Ok(Self::default())
    }

    fn handle(&self, _kind: Kind, name: &str) -> Self::Handle {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(names.entry(name.to_owned()).or_default())
    }

    async fn acquire(&self, handle: &Self::Handle) -> Result<Self::Guard> {
        Ok(Arc::clone(handle).lock_owned().await)
    }

    async fn release(&self, guard: Self::Guard) -> Result<()> {
        drop(guard);
        Ok(())
    }
}
