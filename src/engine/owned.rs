//! Which tenures an owner has of what it may hold in several ways at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use crate::engine::entry::Tenure;
use crate::keys::Keys;
use crate::kinds::Kind;
use crate::owner::OwnerId;

/// The tenures of each owner, by name. Those that are over are swept out now and then.
#[derive(Default)]
pub(crate) struct Owned(Mutex<State>);

#[derive(Default)]
struct State {
    /// Mostly one; futures that an owner polls side by side may each have got its own.
    tenures: HashMap<(OwnerId, String, Kind), Vec<Weak<Tenure>>>,
    /// So many there may be before the next sweep.
    most: usize,
}

impl Owned {
    pub(crate) fn enter(&self, owner: OwnerId, tenure: &Arc<Tenure>) {
        let mut state = self.0.lock().expect("no panic under this lock");
        if state.tenures.len() >= state.most {
            state.tenures.retain(|_, tenures| tenures.iter().any(|tenure| live(tenure).is_some()));
            state.most = (state.tenures.len() * 2).max(64);
        }
        let tenures = state.tenures.entry(key(owner, &tenure.keys)).or_default();
        // It may have been the same owner's before, and others' in between.
        tenures.retain(|there| live(there).is_some_and(|there| !Arc::ptr_eq(&there, tenure)));
        tenures.push(Arc::downgrade(tenure));
    }

    pub(crate) fn find(&self, owner: OwnerId, keys: &Keys) -> Option<Arc<Tenure>> {
        let state = self.0.lock().expect("no panic under this lock");
        let tenures = state.tenures.get(&key(owner, keys))?;
        // One that was handed on is live, and another owner's.
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
