//! What Redis has of a client that has no use for it: nobody there holds it, asks for it, or gives it back.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::board;
use crate::clock::{self, MILLI};
use crate::desk::mark_of;
use crate::fleet::Fleet;
use crate::plan::{Kind, Plan, What};

/// How often the judge looks for them.
pub const LOOK: u64 = 100 * MILLI;

pub struct Ghosts {
    plan: Arc<Plan>,
    /// Since when each field of a name is of no use.
    since: BTreeMap<(usize, String), u64>,
    /// What is given back in the background may take so long, and what a client keeps longer.
    bound: u64,
    /// Nothing is to be said of this plan.
    silent: bool,
}

impl Ghosts {
    pub fn new(plan: Arc<Plan>) -> Self {
        let way = plan.clients.iter().map(|client| client.way.1).max().unwrap_or(0);
        // A clock that is set back makes leases longer, and some scenes do not tell the board what they hold.
        let stepped = plan.faults.iter().any(|fault| matches!(fault.what, What::Clock { .. }));
        let silent = stepped || plan.scene.is_some_and(|scene| scene.is_discreet());
        let bound = 700 * MILLI + 10 * way + plan.longest(|client| client.keep);
        Self { plan, since: BTreeMap::new(), bound, silent }
    }

    /// When nothing is broken, what nobody needs is given back at once, and not left to its lease.
    pub fn look(&mut self, fleet: &mut Fleet) {
        if self.silent {
            return;
        }
        let (plan, now) = (Arc::clone(&self.plan), clock::now());
        let is_calm = now > board::with(|board| board.disturbed_until()) + self.bound;
        let mut found = BTreeMap::new();
        for (at, name) in plan.names.iter().enumerate() {
            // A reader whose lease was over stays in Redisson's hash until somebody else leaves.
            if name.kind == Kind::Latch
                || name.kind == Kind::Rw && plan.layout == parklock::Layout::Redisson
            {
                continue;
            }
            for field in fleet.holders(plan.layout, name) {
                if is_calm {
                    board::with(|board| board.judged("holders"));
                }
                let Some(last_use) = self.ghost(at, &field) else { continue };
                let since = self.since.get(&(at, field.clone())).copied().unwrap_or(now);
                found.insert((at, field), since.max(last_use));
            }
        }
        self.since = found;
        self.judge(now);
    }

    /// When it was last of use, if it is of a client that lives, and that does nothing with the name now. A client that
    /// keeps a lock may have used it again and again since the last look.
    fn ghost(&self, name: usize, field: &str) -> Option<u64> {
        board::with(|board| {
            let seat = *board.seats.keys().find(|seat| field.contains(&mark_of(**seat)))?;
            let is_ghost = !board.is_in_use(seat, name);
            is_ghost.then(|| board.last_use(seat, &self.plan.names[name].label()))
        })
    }

    fn judge(&mut self, now: u64) {
        for ((name, field), since) in &mut self.since {
            let calm = (*since).max(board::with(|board| board.disturbed_until()));
            if now.saturating_sub(calm) <= self.bound {
                continue;
            }
            let what = format!("{field} of name {name}, since {:.3} s", *since as f64 / 1e9);
            board::wrong("a hold that nobody has", what);
            *since = now + 60_000 * MILLI;
        }
    }
}
