//! The tenures of re-entrant owners, for kinds that an owner may hold in several ways at once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::engine::entry::Tenure;
use crate::keys::Keys;
use crate::kinds::{Holders, Kind};
use crate::mutex::Mutex;
use crate::owner::OwnerId;

/// The tenures of each owner, by name. Tenures that are over are removed from time to time.
#[derive(Default)]
pub(crate) struct Owned(Mutex<State>);

#[derive(Default)]
struct State {
    /// Usually one tenure. Futures that an owner polls side by side may each have one.
    tenures: HashMap<(OwnerId, String, Kind), Vec<Weak<Tenure>>>,
    /// The number of tenures that triggers the next cleanup.
    most: usize,
}

impl Owned {
    /// Notes an owner's tenure. That of a plain lock is found in its entry instead.
    pub(crate) fn enter(&self, owner: Option<OwnerId>, tenure: &Arc<Tenure>) {
        let Some(owner) = owner.filter(|_| tenure.keys.row.holders != Holders::Plain) else {
            return;
        };
        let mut state = self.0.lock();
        if state.tenures.len() >= state.most {
            state.tenures.retain(|_, tenures| tenures.iter().any(|tenure| live(tenure).is_some()));
            state.most = (state.tenures.len() * 2).max(64);
        }
        let tenures = state.tenures.entry(key(owner, &tenure.keys)).or_default();
        // The tenure may have been this owner's before, and another owner's in between.
        tenures.retain(|there| live(there).is_some_and(|there| !Arc::ptr_eq(&there, tenure)));
        tenures.push(Arc::downgrade(tenure));
    }

    pub(crate) fn find(&self, owner: OwnerId, keys: &Keys) -> Option<Arc<Tenure>> {
        let state = self.0.lock();
        let tenures = state.tenures.get(&key(owner, keys))?;
        // A tenure that was handed over is alive, but belongs to another owner.
        let is_held = |tenure: &Arc<Tenure>| tenure.hold_of(owner).is_some();
        tenures.iter().filter_map(live).find(is_held)
    }
}

fn live(tenure: &Weak<Tenure>) -> Option<Arc<Tenure>> {
    tenure.upgrade().filter(|there| !there.is_over())
}

fn key(owner: OwnerId, keys: &Keys) -> (OwnerId, String, Kind) {
    (owner, keys.name().into_owned(), keys.kind)
}
