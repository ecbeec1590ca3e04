//! A client that hands a fair lock on to its caller right behind in the line: what `core/lock.rs`, `unlock.rs` and
//! `caller/contend.rs` do. Each caller has an entry of its own.

use crate::core::waiting::model_check::behind::Behind;
use crate::core::waiting::model_check::client::{Client, Driver, Spot, Stage, Tenure, number};
use crate::core::waiting::model_check::server::{Field, Terms, Waiter};
use crate::core::waiting::model_check::{Action, Mutation, Setting, Verdict, World, told};

/// For how many ticks a tenure is left to the next caller.
const PICKUP: i8 = 1;

impl Client {
    /// The caller of this client right behind in the line, if it still waits at that place.
    pub(crate) fn one_behind(&self, spot: usize, terms: Terms) -> Option<usize> {
        let Behind::Spot(next) = self.spots[spot].behind else { return None };
        let next = usize::from(next);
        let Spot { behind, left, line, .. } = &self.spots[next];
        let is_there = *behind != Behind::Moved || terms.is(Mutation::TheMovedAreHandedOnTo);
        let waits = self.spots[next].contends() && line.as_ref().is_some_and(|line| line.stands);
        (is_there && waits && left.is_none()).then_some(next)
    }

    /// Whether it has left a tenure to a caller that waits no more.
    pub(crate) fn has_left_to_nobody(&self) -> bool {
        self.spots.iter().any(|spot| spot.left.is_some() && !spot.contends())
    }
}

impl Driver<'_> {
    /// The server has said who stands right ahead.
    pub(crate) fn stands_behind(&mut self, spot: usize, ahead: Option<u8>) {
        let Some(ahead) = ahead else { return };
        let is_there = |spot: &&mut Spot| spot.entry == ahead && spot.stage != Stage::Free;
        if let Some(ahead) = self.client.spots.iter_mut().find(is_there)
            && ahead.behind == Behind::Nobody
        {
            ahead.behind = Behind::Spot(number(spot));
        }
    }

    /// The holder is done, and leaves the lock to the caller right behind in the line.
    pub(crate) fn hands_on_in_line(&mut self, spot: usize) {
        let next = self.client.one_behind(spot, self.terms).expect("somebody stands behind");
        if let Stage::Holding(tenure) = self.client.spots[spot].stage {
            self.client.spots[next].left = Some(Tenure { rest: PICKUP, ..tenure });
            self.next_caller(spot, None);
        }
    }

    /// A contender looks first whether the caller right ahead has left it the lock. It still stands in line.
    pub(crate) fn picks_up_in_line(&mut self, spot: usize) -> bool {
        let left = self.client.spots[spot].left.take_if(|left| left.ends > 0);
        let Some(mut tenure) = left else { return false };
        if self.is(Mutation::PickingUpProlongs) {
            tenure.ends = self.terms.lease;
        }
        let line = self.client.spots[spot].line.take();
        line.filter(|line| line.stands).iter().for_each(|line| tenure.served.insert(line.id));
        tenure.rest = self.terms.hold;
        self.client.spots[spot].stage = Stage::Holding(tenure);
        self.stop_speaking(spot);
        self.renew_if_due(spot);
        true
    }

    /// Nobody has taken up what was left to this caller.
    pub(crate) fn retires_left(&mut self, spot: usize) {
        if self.is(Mutation::NobodyLooksAfterTheLeft) {
            return;
        }
        if let Some(tenure) = self.client.spots[spot].left.take() {
            self.release(tenure, false);
        }
    }
}

impl World {
    /// What a caller does with a tenure that was left to it before this tick is over.
    pub(crate) fn may_take_up(&self, c: usize, s: usize, setting: &Setting) -> Option<Action> {
        let spot = &self.clients[c].spots[s];
        spot.left?;
        match spot.stage {
            Stage::Parked(_) => Some(Action::PicksUp(c, s)),
            _ if spot.contends() || setting.terms.is(Mutation::NobodyLooksAfterTheLeft) => None,
            _ => Some(Action::Retires(c, s)),
        }
    }

    /// A caller that was handed the lock in line has overtaken nobody but a caller that had lost its place meanwhile.
    pub(crate) fn judge_served(&self) -> Verdict {
        let line = &self.server.line;
        for client in &self.clients {
            for spot in &client.spots {
                let Stage::Holding(tenure) = spot.stage else { continue };
                let is_served = |field: Field| {
                    field.client == client.number && tenure.served.contains(field.id)
                };
                let Some(last) = line.iter().rposition(|waiter| is_served(waiter.field)) else {
                    continue;
                };
                let is_passed = |waiter: &&Waiter| !is_served(waiter.field) && !waiter.is_back;
                let passed = line[..last].iter().find(is_passed);
                if let Some(passed) = passed {
                    return Err(format!(
                        "{} was handed on past {}",
                        told(client.field(tenure.id)),
                        told(passed.field)
                    ));
                }
            }
        }
        Ok(())
    }
}
