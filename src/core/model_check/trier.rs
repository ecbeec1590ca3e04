//! A caller that does not wait: what `caller.rs` does for `try_lock`. It leaves no place in line. If a keeper was told to give
//! the lock back, it asks once more.

use crate::core::model_check::client::{Driver, Spot, Stage};
use crate::core::model_check::request::{Answer, Request};
use crate::core::model_check::server::Field;
use crate::core::model_check::{Mutation, Terms, Verdict, World, told};

impl Terms {
    fn asks_again(self, by: Field) -> bool {
        self.keeps(by.client) && !self.is(Mutation::ATryAsksOnce)
    }
}

impl Driver<'_> {
    /// Whether the callers of this client do not wait.
    pub(crate) fn tries(&self) -> bool {
        self.terms.trier == Some(self.client.number)
    }

    pub(crate) fn tries_once(&mut self, spot: usize, after: Option<Field>) {
        let id = self.new_id();
        self.client.spots[spot].stage = Stage::Trying { id, after };
        self.client.up.push(Request::Try { field: self.client.field(id), sent: 0 });
    }

    pub(crate) fn tried(&mut self, id: u8, holder: Option<Field>, sent: i8) {
        let trying = |spot: &Spot| matches!(spot.stage, Stage::Trying { id: own, .. } if own == id);
        let Some(spot) = self.client.spots.iter().position(trying) else { return };
        let (own, lease) = (self.client.field(id), self.terms.lease);
        let is_first = matches!(self.client.spots[spot].stage, Stage::Trying { after: None, .. });
        match holder {
            Some(holder) if holder == own && self.clock.is_believed(sent, lease) => {
                self.begin(spot, id, false, (sent + lease, sent + lease / 3));
            }
            Some(holder) if holder == own => self.tried_in_vain(spot),
            Some(by) if is_first && self.terms.asks_again(by) => {
                self.client.spots[spot].stage = Stage::Refused { by };
            }
            _ => self.next_caller(spot, None),
        }
    }

    /// The caller gets an error, and the client cleans up after the request.
    pub(crate) fn tried_in_vain(&mut self, spot: usize) {
        if let Stage::Trying { id, .. } = self.client.spots[spot].stage {
            self.give_back_ghost(self.ghost(id));
            self.next_caller(spot, None);
        }
    }
}

impl World {
    /// Without faults, no caller is refused twice because one client keeps the lock idle. The keeper was told, and has given it
    /// back. If it has taken the lock again since, it does not keep it. (Another keeper may have taken it meanwhile.)
    pub(crate) fn judge_try(&self, c: usize, answer: Answer, terms: Terms) -> Verdict {
        let Answer::Tried { holder: Some(by), .. } = answer else { return Ok(()) };
        let idle = self.clients[usize::from(by.client)].idle();
        if self.spent.any || idle.is_none_or(|tenure| tenure.id != by.id) {
            return Ok(());
        }
        let mut stages = self.clients[c].spots.iter().map(|spot| spot.stage);
        let again = |stage| matches!(stage, Stage::Trying { after: Some(before), .. } if before.client == by.client);
        if !terms.asks_again(by) || stages.any(again) {
            return Err(format!("a caller gives up while {} is idle", told(by)));
        }
        Ok(())
    }
}
