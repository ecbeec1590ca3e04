//! What the handles of one candidate share: whether it leads now, and when that changes.

use std::fmt;
use std::pin::pin;

use tokio::sync::watch;

use crate::fleet::term::Term;
use crate::wakers::guarding;

/// Reports when this candidate begins to lead, and when it stops: see [`Election::changes`](crate::Election::changes).
///
/// If there are several changes between two calls, only the last one is reported.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// let client = parklock::Client::connect(&url).await?;
/// let election = client.election("doc:changes");
/// let mut changes = election.changes();
/// let leadership = election.campaign().await?;
/// let term = changes.changed().await.expect("it has begun to lead");
/// assert_eq!(term.token(), leadership.token());
/// leadership.step_down().await?;
/// assert!(changes.changed().await.is_none());
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Changes {
    /// The candidacy owns the sender, so the receiver never ends.
    candidacy: Candidacy,
    seen: watch::Receiver<Option<Term>>,
}

impl Changes {
    pub(crate) fn new(candidacy: &Candidacy) -> Self {
        Self { candidacy: candidacy.clone(), seen: candidacy.0.subscribe() }
    }

    /// The term of this candidate, if it is the leader.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        self.candidacy.term()
    }

    /// Waits for the next change. Returns the term that began, or `None` if this candidate stopped leading. It sends no
    /// request. If no change ever comes, it waits forever.
    ///
    /// # Cancel safety
    /// The next call returns any change that this one did not.
    pub async fn changed(&mut self) -> Option<Term> {
        let _ = guarding(pin!(self.seen.changed())).await; // the sender is in `candidacy`
        self.seen.borrow_and_update().clone().filter(Term::is_leader)
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("term", &self.term()).finish_non_exhaustive()
    }
}

/// Whether the candidate leads now. Its handles share it.
#[derive(Clone, Default)]
pub(crate) struct Candidacy(watch::Sender<Option<Term>>);

impl Candidacy {
    pub(crate) fn term(&self) -> Option<Term> {
        self.0.borrow().clone().filter(Term::is_leader)
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
