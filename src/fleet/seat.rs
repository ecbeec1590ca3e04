//! What the handles of one candidate share: whether the candidate leads now.

use std::sync::Arc;

use tokio::sync::watch;

use crate::fleet::term::Term;

#[derive(Clone)]
pub(crate) struct Seat(Arc<watch::Sender<Option<Term>>>);

impl Default for Seat {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Seat {
    pub(crate) fn term(&self) -> Option<Term> {
        self.0.borrow().clone().filter(Term::is_leader)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Option<Term>> {
        self.0.subscribe()
    }

    /// The term has the seat until the returned value is dropped, or the next term takes the seat.
    pub(crate) fn take(&self, term: &Term) -> Seated {
        self.0.send_replace(Some(term.clone()));
        Seated { seat: self.clone(), term: term.clone() }
    }
}

/// Its drop leaves the seat, even if the runtime of its task has ended.
pub(crate) struct Seated {
    seat: Seat,
    term: Term,
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.term.end();
        self.seat.0.send_if_modified(|seated| {
            // The next term of this candidate may have taken the seat already.
            let ours = seated.as_ref().is_some_and(|term| term.token() == self.term.token());
            if ours {
                *seated = None;
            }
            ours
        });
    }
}
