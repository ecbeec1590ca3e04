//! What all connections of a proxy share: the judge, the blackholes, and who is there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fault::Fault;
use super::judge::Judge;
use super::link::Link;
use super::names::Names;
use super::rule::Class;

#[derive(Debug)]
pub(super) struct Net {
    judge: Mutex<Judge>,
    blackholes: Mutex<Vec<(Option<Class>, Fault)>>,
    links: Mutex<Vec<Arc<Link>>>,
    pub(super) names: Names,
}

impl Net {
    pub(super) fn new(seed: u64, names: Names) -> Self {
        let judge = Mutex::new(Judge::new(seed));
        Self { judge, blackholes: Mutex::default(), links: Mutex::default(), names }
    }

    pub(super) fn judge(&self) -> MutexGuard<'_, Judge> {
        held(&self.judge)
    }

    pub(super) fn join(&self) -> Arc<Link> {
        let link = Arc::new(Link::default());
        let mut links = held(&self.links);
        links.retain(|link| !link.is_closed());
        links.push(Arc::clone(&link));
        link
    }

    /// The open connections of a class, or all.
    pub(super) fn links(&self, class: Option<Class>) -> Vec<Arc<Link>> {
        let links = held(&self.links);
        let open = links.iter().filter(|link| !link.is_closed() && covers(class, link));
        open.cloned().collect()
    }

    pub(super) fn blackhole(&self, class: Option<Class>) -> Fault {
        let hole = Fault::new(format!("a blackhole for {class:?}"));
        held(&self.blackholes).push((class, hole.clone()));
        hole
    }

    /// Waits while a blackhole covers the link.
    pub(super) async fn lit(&self, link: &Link) {
        while let Some(hole) = self.hole_over(link) {
            hole.hold().await;
        }
    }

    fn hole_over(&self, link: &Link) -> Option<Fault> {
        let holes = held(&self.blackholes);
        let mut over =
            holes.iter().filter(|(class, hole)| covers(*class, link) && !hole.is_lifted());
        over.next().map(|(_, hole)| hole.clone())
    }
}

fn covers(class: Option<Class>, link: &Link) -> bool {
    class.is_none_or(|class| class == link.class())
}

/// A test that panicked while it held one of these must not take the proxy with it.
pub(super) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
