//! How a client gives back what none of its callers needs any more: an idle tenure, a place in line, and what Redis may have
//! granted to former owner fields.

use std::sync::Arc;

use tokio::time::timeout;

use crate::engine::entry::{EntryPermit, Stay, Tenure, Visit};
use crate::engine::ghost::Ghost;
use crate::engine::releaser::Job;
use crate::engine::shared::Engine;
use crate::error::{Error, Result};
use crate::keys::{Keys, TenureId};

impl Engine {
    /// Gives back this lock if the client keeps it idle.
    pub(crate) fn give_back_kept(&self, keys: &Keys) {
        if let Some(entry) = self.table.find(keys.id()).filter(|_| keys.row.may_be_kept()) {
            self.outbox.give_back_kept(&entry);
        }
    }

    /// Releases what Redis may have granted to the former owner fields of a contender.
    pub(crate) fn give_back_former(&self, ghosts: Vec<Ghost>) {
        ghosts.into_iter().for_each(|ghost| self.outbox.put(Job::ghost(ghost)));
    }

    /// Gives back everything that was left for waiting callers, if no caller waits any more.
    pub(crate) fn look_after(&self, visit: &Visit) {
        let Some((left, permit)) = visit.forsake() else { return };
        left.place.into_iter().for_each(|id| self.leave_line(&visit.entry.keys, id));
        self.give_back_former(left.ghosts);
        if let Some(tenure) = &left.tenure {
            self.retire(tenure, permit);
        }
        left.idle.iter().for_each(|tenure| self.retire(tenure, None));
    }

    /// Releases an idle tenure, and then the permit.
    pub(crate) fn retire(&self, tenure: &Tenure, permit: Option<EntryPermit>) {
        if let Some(mut ending) = tenure.retire() {
            // A kept tenure has no permit. So its job keeps this one until the server has answered.
            if matches!(ending.stay, None | Some(Stay::Kept(_))) {
                ending.stay = permit.map(Stay::Permit).or(ending.stay);
            }
            self.outbox.release(ending);
        }
    }

    /// Releases what is idle at this name, and waits until Redis has answered the releases in flight.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub(crate) async fn finish_releases(&self, keys: &Keys) {
        for entry in self.table.shared_of(&keys.channel) {
            entry.spare().iter().for_each(|tenure| self.retire(tenure, None));
        }
        self.await_releases(keys).await;
    }

    /// Waits until Redis has answered all releases of this name that are under way, but no longer than for one answer.
    /// In a cluster a release may ask one node after the other, and each of them may be silent.
    pub(crate) async fn await_releases(&self, keys: &Keys) {
        let _ = timeout(self.config.response(), self.outbox.releases.ended(keys)).await;
    }

    /// Same as [`await_releases`](Self::await_releases), but also waits for those that have failed and are repeated.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if an answer does not come: then it is not known whether anybody else has the lock.
    pub(crate) async fn await_repeated_releases(&self, keys: &Keys) -> Result<()> {
        let limit = self.config.response();
        timeout(limit, self.outbox.releases.answered(keys))
            .await
            .map_err(|_| Error::unanswered(limit))
    }

    /// Gives up a place in the line.
    pub(crate) fn leave_line(&self, keys: &Arc<Keys>, id: TenureId) {
        self.outbox.put(Job::leave_line(keys, id, self.debts.tidying()));
    }
}
