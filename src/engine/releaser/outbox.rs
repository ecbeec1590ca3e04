//! The outbox: how any part of the client leaves a job to the releaser, and gives back what no caller needs any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc::UnboundedSender;

use crate::engine::debts::Debts;
use crate::engine::entry::tenure::Ending;
use crate::engine::entry::{Entry, Remains, Tenure, Timetable};
use crate::engine::grant::Loss;
use crate::engine::releaser::job::Job;
use crate::engine::releaser::releases_under_way::ReleasesUnderWay;
use crate::keys::{Keys, TenureId};
use crate::kinds::Holders;
use crate::log;

/// The way to the releaser, which releases tenures that no caller needs any more.
#[derive(Clone)]
pub(crate) struct Outbox {
    pub(crate) releaser: UnboundedSender<Job>,
    pub(crate) releases: Arc<ReleasesUnderWay>,
    pub(crate) timetable: Arc<Timetable>,
    pub(crate) debts: Debts,
    /// A job came when the releaser had ended.
    came_late: Arc<AtomicBool>,
}

impl Outbox {
    pub(crate) fn new(releaser: UnboundedSender<Job>, timetable: Arc<Timetable>) -> Self {
        let (releases, debts, came_late) = (Arc::default(), Debts::default(), Arc::default());
        Self { releaser, releases, timetable, debts, came_late }
    }

    /// Leaves a job to the releaser. If the client is closed, nobody does it.
    pub(crate) fn put(&self, mut job: Job) {
        if job.is_new(&self.releases) {
            self.put_again(job);
        }
    }

    /// Leaves a job to the releaser that was tried in vain.
    pub(super) fn put_again(&self, job: Job) {
        let is_lost = self.releaser.send(job).is_err();
        if is_lost && !self.came_late.swap(true, Ordering::Relaxed) {
            log::warn!("the client is closed: locks that it held expire with their leases");
        }
    }

    /// Releases the tenure of this entry if the client keeps it idle. If a caller holds it, the client does not keep it
    /// afterwards.
    pub(crate) fn give_back_kept(&self, entry: &Entry) {
        // First end the permission. A holder that leaves in between either sees that, or leaves an idle tenure, which is
        // found here.
        if entry.with(|lock| lock.forbid_keeping())
            && let Some(tenure) = entry.tenure()
        {
            // A `try_lock` of this client waits for the releases that are under way.
            let _release = self.releases.begin(&tenure.keys);
            tenure.retire_kept().into_iter().for_each(|ending| self.release(ending));
        }
    }

    /// The job that releases a tenure. The watchdog need not look at it any more.
    pub(crate) fn job(&self, ending: Ending) -> Job {
        self.timetable.leave(&ending);
        Job::release(ending)
    }

    /// The server no longer has a tenure. A release that finds nothing does what remains: perhaps nobody has notified the waiters,
    /// and callers that the tenure was handed over to may still stand in the line. The loss of a notification leaves nothing to do.
    pub(crate) fn gone(&self, tenure: &Tenure) {
        let Some(ending) = tenure.lose(Loss::Gone) else { return };
        match tenure.keys.row.holders {
            Holders::Notified => self.timetable.leave(&ending),
            _ => self.release(ending),
        }
    }

    /// Has a tenure released that has ended.
    pub(crate) fn release(&self, ending: Ending) {
        self.put(self.job(ending));
    }

    /// Gives up a place in the line.
    pub(crate) fn leave_line(&self, keys: &Arc<Keys>, id: TenureId) {
        self.put(Job::leave_line(keys, id, self.debts.tidying()));
    }

    /// Gives back what no caller needs any more.
    pub(crate) fn give_back(&self, remains: Remains<'_>) {
        match remains {
            Remains::Tenure(ending) => self.release(ending),
            Remains::Place(keys, id) => self.leave_line(keys, id),
            Remains::Ghost(ghost) => self.put(Job::ghost(ghost)),
        }
    }
}
