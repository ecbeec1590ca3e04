//! Which tenures an owner has of what it may hold in several ways at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use crate::engine::tenure::Tenure;
use crate::keys::{Keys, Kind};
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
        tenures.retain(|tenure| live(tenure).is_some());
        tenures.push(Arc::downgrade(tenure));
    }

    pub(crate) fn find(&self, owner: OwnerId, keys: &Keys) -> Option<Arc<Tenure>> {
        let state = self.0.lock().expect("no panic under this lock");
        state.tenures.get(&key(owner, keys))?.iter().find_map(live)
    }
}

fn live(tenure: &Weak<Tenure>) -> Option<Arc<Tenure>> {
    tenure.upgrade().filter(|there| !there.is_over())
}

fn key(owner: OwnerId, keys: &Keys) -> (OwnerId, String, Kind) {
    (owner, keys.name().into_owned(), keys.kind)
}
