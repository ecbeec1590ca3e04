//! A client that hands a fair lock on to its caller right behind in the line: what `core/lock.rs`, `unlock.rs` and
//! `caller/contend.rs` do. Each caller has an entry of its own.

use crate::core::lock::Behind;
use crate::core::model_check::client::{Client, Driver, Spot, Stage};
use crate::core::model_check::known::{BUDGET, Clock, small};
use crate::core::model_check::server::{Field, Terms, Waiter};
use crate::core::model_check::{Action, Mutation, Setting, Verdict, World, told};
use crate::core::tenure::{Heir, PickUp};
use crate::keys::TenureId;

/// For how many ticks a tenure is left to the next caller.
const PICKUP: i8 = 1;

impl Client {
    /// The entry of this caller alone.
    fn entry_of(&self, id: u8) -> Option<usize> {
        let is_there = |spot: &Spot| spot.own == Some(id) && spot.stage != Stage::Free;
        self.spots.iter().position(is_there)
    }

    /// The caller of this client right behind in the line, if it still waits at that place.
    pub(crate) fn one_behind(&self, spot: usize, terms: Terms, clock: Clock) -> Option<usize> {
        let next = self.entry_of(small(self.spots[spot].known.behind.get()?.0))?;
        let Spot { known, left, .. } = &self.spots[next];
        let mut lock = known.lock(true, clock);
        if terms.is(Mutation::TheMovedAreHandedOnTo) {
            lock.behind = Behind::Nobody;
        }
        let waits = lock.is_still_behind() && self.spots[next].contends();
        (waits && left.is_none()).then_some(next)
    }

    /// Whether it has left a tenure to a caller that waits no more.
    pub(crate) fn has_left_to_nobody(&self) -> bool {
        self.spots.iter().any(|spot| spot.left.is_some() && !spot.contends())
    }
}

impl Driver<'_> {
    /// The server has said who stands right ahead.
    pub(crate) fn stands_behind(&mut self, spot: usize, ahead: Option<u8>) {
        let Some(ahead) = ahead.and_then(|ahead| self.client.entry_of(ahead)) else { return };
        if let Some(own) = self.client.spots[spot].own {
            self.change(ahead, |lock, _| lock.behind.set(TenureId(u64::from(own))));
        }
    }

    /// The holder is done, and leaves the lock to the caller right behind in the line.
    pub(crate) fn hands_on_in_line(&mut self, spot: usize) {
        let next =
            self.client.one_behind(spot, self.terms, self.clock).expect("somebody stands behind");
        if self.leaves(spot, true) != Heir::Next {
            return self.releases(spot);
        }
        if let Stage::Holding(mut tenure) = self.client.spots[spot].stage {
            tenure.rest = PICKUP;
            self.client.spots[next].left = Some(tenure);
            self.next_caller(spot, None);
        }
    }

    /// A contender looks first whether the caller right ahead has left it the lock. It still stands in line.
    pub(crate) fn picks_up_in_line(&mut self, spot: usize) -> bool {
        let Some(mut tenure) = self.client.spots[spot].left.take() else { return false };
        if self.is(Mutation::PickingUpProlongs) {
            tenure.ends = self.terms.lease;
        }
        let (clock, now) = (self.clock, self.clock.now);
        let picked_up = tenure.change(clock, |tenure| {
            tenure.expire(now.into());
            tenure.pick_up(now.into(), Some(BUDGET), false, true)
        });
        match picked_up {
            PickUp::Held(_) => {}
            PickUp::Ended(()) => {
                self.release(tenure, false);
                return false;
            }
            PickUp::Nothing => {
                // It is lost, and the next look at the clock says so.
                self.client.spots[spot].left = Some(tenure);
                return false;
            }
        }
        let (place, former) = self.change(spot, |lock, _| (lock.leave_line(), lock.has_it(now)));
        place.into_iter().for_each(|id| tenure.served.insert(small(id.0)));
        self.give_back_former(former);
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
