//! What the handles of one candidate share: whether the candidate leads now.

use std::sync::Arc;

use tokio::sync::watch;

use crate::fleet::term::Term;

#[derive(Clone, Default)]
pub(crate) struct Candidacy(Arc<watch::Sender<Option<Term>>>);

impl Candidacy {
    pub(crate) fn term(&self) -> Option<Term> {
        self.0.borrow().clone().filter(Term::is_leader)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Option<Term>> {
        self.0.subscribe()
    }

    /// The candidate leads until the returned value is dropped, or its next term begins.
    pub(crate) fn begin(&self, term: &Term) -> Leading {
        self.0.send_replace(Some(term.clone()));
        Leading { candidacy: self.clone(), term: term.clone() }
    }
}

/// Its drop ends the term, even if the runtime of its task has ended.
pub(crate) struct Leading {
    candidacy: Candidacy,
    term: Term,
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.term.end();
        self.candidacy.0.send_if_modified(|current| {
            // The next term of this candidate may have begun already.
            let ours = current.as_ref().is_some_and(|term| term.token() == self.term.token());
            if ours {
                *current = None;
            }
            ours
        });
    }
}
