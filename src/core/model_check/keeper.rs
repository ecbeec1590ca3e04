//! A client that keeps idle locks: what `keep.rs`, `outbox.rs` and `tenure/hand_over.rs` do, in the same order of steps. It
//! does each step by itself: a message, a request, or a holder that leaves may come between any two of them.

use crate::core::model_check::client::{Client, Driver, Ears, Stage};
use crate::core::model_check::request::Request;
use crate::core::model_check::{Mutation, STRAY, TTL, Terms, Verdict, World};

impl Client {
    /// Whether messages reach it, as far as it knows.
    fn is_live(&self) -> bool {
        matches!(self.ears, Ears::Open | Ears::Cut)
    }
}

impl Driver<'_> {
    fn keeps(&self) -> bool {
        self.terms.keeps(self.client.number)
    }

    /// Sends an acquire. A keeper first allows itself to keep what is granted.
    pub(crate) fn send(&mut self, spot: usize, request: Request) {
        if !self.keeps() {
            self.client.up.push(request);
            return;
        }
        if !self.is(Mutation::TheCheckComesFirst) && !self.is(Mutation::TheAnswerAllows) {
            self.client.spots[spot].known.may_keep = true;
        }
        self.client.keeping.unsent = Some((request, self.client.is_live()));
    }

    /// The keeper checks its channel after the permission, and then sends the request.
    pub(crate) fn checks(&mut self) {
        let Some((request, was_live)) = self.client.keeping.unsent.take() else { return };
        if self.is(Mutation::TheCheckComesFirst) {
            self.client.spots.iter_mut().for_each(|spot| spot.known.may_keep = was_live);
        } else if !self.client.is_live() && !self.is(Mutation::TheDeafKeep) {
            self.forbid();
        }
        if self.client.keeping.expects > 0 {
            self.forbid();
        }
        self.client.up.push(request);
    }

    /// The answer to a grant says whether somebody waits. Returns whether the client heeds that.
    pub(crate) fn heeds_who_waits(&mut self, awaited: bool) -> bool {
        if self.is(Mutation::TheAnswerAllows) {
            let may_keep = self.keeps() && self.client.is_live();
            self.client.spots.iter_mut().for_each(|spot| spot.known.may_keep = may_keep);
        }
        awaited && !self.is(Mutation::WhoWaitsIsNotHeeded)
    }

    pub(crate) fn forbid(&mut self) {
        for spot in 0..self.client.spots.len() {
            self.change(spot, |lock, _| lock.forbid_keeping());
        }
    }

    /// A caller of another client has tried the lock, and tries once more after a pause.
    pub(crate) fn was_tried(&mut self) {
        if !self.is(Mutation::TheTryIsForgotten) {
            self.client.keeping.expects = 2;
        }
        self.wanted();
    }

    /// Another client wants the lock. The keeper first ends the permission, and then looks for an idle tenure.
    pub(crate) fn wanted(&mut self) {
        if self.is(Mutation::TheHolderIsNotTold) && self.client.idle().is_none() {
            return;
        }
        self.client.keeping.looks = true;
        if self.is(Mutation::TheIdleIsSoughtFirst) {
            self.retires_kept();
        } else {
            self.forbid();
        }
    }

    pub(crate) fn looks_for_idle(&mut self) {
        self.client.keeping.looks = false;
        if self.is(Mutation::TheIdleIsSoughtFirst) {
            self.forbid();
        } else {
            self.retires_kept();
        }
    }

    /// The channel is live again, or the client knows that it is deaf. It may have missed that another client wants the
    /// lock.
    pub(crate) fn channel_changed(&mut self) {
        if self.keeps() && !self.is(Mutation::TheLiveChannelIsNotHeeded) {
            self.wanted();
        }
    }

    fn retires_kept(&mut self) {
        for spot in 0..self.client.spots.len() {
            self.retires_kept_in(spot);
        }
    }

    /// Gives back, in the background, what the client keeps idle. It has no permit. Returns whether there was something.
    pub(crate) fn retires_kept_in(&mut self, spot: usize) -> bool {
        let clock = self.clock;
        let Stage::Holding(tenure) = &mut self.client.spots[spot].stage else { return false };
        let retires = tenure.change(clock, |tenure| tenure.retire(true));
        if retires {
            let tenure = *tenure;
            self.release(tenure, false);
            self.next_caller(spot, None);
        }
        retires
    }
}

impl World {
    /// Counts the ticks for which somebody has waited for a lock that no caller holds, since its client keeps it or has
    /// died. They must not be too many.
    pub(crate) fn judge_kept(&mut self, waits: bool, terms: Terms) -> Verdict {
        let holder = self.server.lock.map(|(field, _)| &self.clients[usize::from(field.client)]);
        // A client that cannot know that it is deaf promises nothing.
        let is_idle = |client: &Client| {
            client.idle().is_some() && client.ears != Ears::Cut || client.has_left_to_nobody()
        };
        let may_be_idle = terms.keepers > 0 || terms.hands_on_in_line;
        let Some(holder) = holder.filter(|c| waits && may_be_idle && (c.gone || is_idle(c))) else {
            self.kept = 0;
            return Ok(());
        };
        let bound = match self.spent.lost {
            _ if holder.gone => terms.lease + STRAY,
            // The waiter tells the keeper again with its next sign of life.
            true => TTL / 3,
            false => 0,
        };
        self.kept += 1;
        if self.kept > bound {
            return Err(format!(
                "for {} ticks nobody holds the lock, and somebody waits",
                self.kept
            ));
        }
        Ok(())
    }
}
