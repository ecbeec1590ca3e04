//! What a caller has of an entry while it contends or holds: the permit, or a seat beside others.

use std::sync::Arc;

use tokio::time::Instant;

use crate::engine::entry::tenure::Inner;
use crate::engine::entry::{Entry, Visit};
use crate::keys::TenureId;

/// The right to contend for a lock, and then to hold it. A contender that drops it contends no more, and passes on its place in line,
/// too. If no caller of this client waits for the permit, the client gives back that place, and what else was left for callers.
pub(crate) struct EntryPermit {
    /// `None` once the permit is passed on.
    visit: Option<Visit>,
    /// The ticket with which its caller took the permit.
    number: u64,
    /// It is not the part of a tenure.
    contends: bool,
    /// Counts its caller's hold within another one.
    _inner: Option<Inner>,
}

impl EntryPermit {
    pub(super) fn new(visit: Visit, number: u64) -> Self {
        Self { visit: Some(visit), number, contends: true, _inner: None }
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.visit().entry
    }

    pub(crate) fn visit(&self) -> &Visit {
        self.visit.as_ref().expect("the permit is not passed on yet")
    }

    /// The ticket with which its caller took the permit. It puts that caller before all later ones, if it has to queue again.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The same permit, for a hold within another one.
    pub(crate) fn within(mut self, inner: Option<Inner>) -> Self {
        self._inner = inner;
        self
    }

    #[cfg(test)]
    pub(crate) fn begin(
        self,
        beginning: crate::engine::grant::Beginning,
    ) -> Arc<crate::engine::entry::Tenure> {
        self.visit().clone().begin(beginning, Some(self))
    }

    /// From now on it is the part of a tenure.
    pub(crate) fn into_stay(mut self) -> Stay {
        self.contends = false;
        Stay::Permit(self)
    }

    /// Whether a caller of this client waits for the tenure of its holder, and whether the client may keep it if none does.
    pub(super) fn heirs(&self) -> (bool, bool) {
        let state = self.entry().state();
        // In a line of callers, the caller right behind is one of this client, too.
        (state.is_awaited() || state.behind.get().is_some(), state.may_keep)
    }

    /// Passes the permit on. If no caller waits for it, gives back what was left for callers. A caller that waits sees to that itself
    /// when it leaves.
    pub(crate) fn pass_on(mut self) {
        self.leave(true);
    }

    fn leave(&mut self, looks_after: bool) {
        let Some(visit) = self.visit.take() else { return };
        let is_awaited = visit.entry.change(|state, after| {
            if self.contends {
                state.give_up(Instant::now(), || visit.entry.table.next_tenure());
            }
            state.pass_on(after);
            state.is_awaited()
        });
        if looks_after && !is_awaited {
            visit.look_after();
        }
    }
}

impl Drop for EntryPermit {
    fn drop(&mut self) {
        self.leave(self.contends);
    }
}

/// The part of a tenure in an entry with several tenures side by side. It keeps the entry in the table.
pub(crate) struct Seat {
    pub(super) visit: Visit,
    id: TenureId,
    is_released: bool,
}

impl Seat {
    pub(crate) fn new(visit: Visit, id: TenureId) -> Self {
        Self { visit, id, is_released: false }
    }
}

impl Drop for Seat {
    /// Releases tenures that were idle until this release was answered: no other release will check them.
    fn drop(&mut self) {
        let entry = &self.visit.entry;
        let mut state = entry.state();
        let ahead = state.ahead();
        let Some(shared) = &mut state.side_by_side else { return };
        let own = shared.gone(self.id, self.is_released);
        // The last caller to stop waiting leaves the idle tenures to this release, as long as the release is in flight. If
        // that caller is still counted here, it finds afterwards that the release has ended, and gives them back itself.
        let spare = if self.is_released { shared.spare(ahead) } else { Vec::new() };
        drop(state);
        drop(own);
        spare.iter().for_each(|tenure| entry.table.retire(tenure, None));
    }
}

/// The part of a tenure in its entry: the permit, or a seat beside others.
pub(crate) enum Stay {
    /// No other caller of this client may have the lock.
    Permit(EntryPermit),
    Seat(Seat),
    /// Nobody has the lock: the client keeps it idle. The visit keeps the entry in the table.
    Kept(Visit),
}

impl Stay {
    pub(super) fn visit(&self) -> &Visit {
        match self {
            Self::Permit(permit) => permit.visit(),
            Self::Seat(seat) => &seat.visit,
            Self::Kept(visit) => visit,
        }
    }

    /// The tenure is about to be released. A seat remains until Redis has answered.
    pub(super) fn leaving(&mut self) {
        if let Self::Seat(seat) = self {
            seat.visit.entry.side_by_side(|shared| shared.leaving(seat.id));
            seat.is_released = true;
        }
    }
}
