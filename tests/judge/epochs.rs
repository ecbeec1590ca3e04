//! When Redis forgot what it had granted, and what can still be demanded across such a break.
//!
//! The library does not promise that a lock outlives a server that loses it. So claims exclude each other within an
//! epoch, which ends with such a break. A claim belongs to the epochs in which Redis has confirmed it for certain: a
//! request that was answered ran between its sending and its answer. One that overlaps with the break itself may have
//! run on either side of it, and is judged by later confirmations only.

use std::collections::HashMap;

use crate::judge::claim::Claim;
use crate::judge::history::Hold;

/// A renewal is usually answered within this time, in nanoseconds.
const UNDER_WAY: u64 = 50_000_000;

/// Redis lost one lock, or all of them.
#[derive(Debug, Clone)]
pub struct Break {
    pub lock: Option<String>,
    pub from: u64,
    pub to: u64,
    /// It happened at one moment: a request that was sent before ran before, if it ran at all.
    sharp: bool,
    /// Another server took over, which may know less. Otherwise the server itself went on.
    replaced: bool,
}

impl Break {
    /// The old server grants nothing any more, and the new one nothing yet.
    pub fn sharp(now: u64) -> Self {
        Self { lock: None, from: now, to: now, sharp: true, replaced: true }
    }

    /// Another server took over this lock, and for a time between these two moments both may have granted it.
    pub fn taken_over(lock: &str, from: u64, to: u64) -> Self {
        Self { lock: Some(lock.to_owned()), from, to, sharp: false, replaced: true }
    }

    /// Another server took over at the first of these moments, and the old one went on until the second. What it granted
    /// meanwhile is judged by later confirmations only.
    pub fn replaced(lock: Option<&str>, from: u64, to: u64) -> Self {
        Self { lock: lock.map(str::to_owned), from, to, sharp: true, replaced: true }
    }

    /// The server went on: it happened between these two moments.
    pub fn loose(lock: Option<&str>, from: u64, to: u64) -> Self {
        Self { lock: lock.map(str::to_owned), from, to, sharp: false, replaced: false }
    }

    /// Whether another server took over.
    pub fn is_failover(&self) -> bool {
        self.replaced
    }

    fn is_before(&self, sent: u64) -> bool {
        self.to < sent
    }

    /// Whether it may have come before a request with this sending and answer.
    fn may_be_before(&self, sent: u64, answered: u64) -> bool {
        if self.sharp { self.from < sent } else { self.from <= answered }
    }
}

/// All breaks of a run.
#[derive(Debug)]
pub struct Epochs(pub Vec<Break>);

impl Epochs {
    fn of<'a>(&'a self, lock: &'a str) -> impl Iterator<Item = &'a Break> {
        self.0.iter().filter(move |one| one.lock.as_deref().is_none_or(|name| name == lock))
    }

    /// The epochs of its lock in which Redis knew of the claim for certain; often one, sometimes none.
    ///
    /// A server that went on and knows of a claim has known of it all the time. One that was replaced may have got it
    /// back with the older data of its successor: then nobody knows whether it had it in the epochs between.
    pub fn sure(&self, claim: &Claim) -> Vec<usize> {
        self.sure_since(self.first(claim), claim)
    }

    /// The same, for a claim that Redis first confirmed in this epoch.
    fn sure_since(&self, first: usize, claim: &Claim) -> Vec<usize> {
        let last = self.of(&claim.lock).filter(|one| one.is_before(claim.last_confirmed)).count();
        let replaced = self.of(&claim.lock).take(last).skip(first).any(|one| one.replaced);
        (first..=last).filter(|epoch| !replaced || [first, last].contains(epoch)).collect()
    }

    /// The holds of everything that only one may hold, in each epoch that is sure.
    ///
    /// A replica that is promoted may know the holder as a waiter. It lets another in, and then the old holder once more,
    /// under the same owner field. Neither the holder nor this judge can tell that from a hold that was never
    /// interrupted. So behind a failover a hold counts from its last confirmation on. The record has the sending of that
    /// request, and not its answer. The server may have let the holder in again in between: so the hold counts from a little
    /// later, and not at all if it ends before.
    pub fn holds(&self, claims: &[Claim]) -> Vec<Hold> {
        let mut grants: HashMap<_, &Claim> = HashMap::new();
        let alone = || claims.iter().filter(|claim| claim.of == 1);
        for claim in alone() {
            let grant = grants.entry((&claim.lock, &claim.owner, claim.token)).or_insert(claim);
            if claim.acquired < grant.acquired {
                *grant = claim;
            }
        }
        let in_epochs = |claim: &Claim| {
            let grant = grants[&(&claim.lock, &claim.owner, claim.token)];
            let first = self.first(grant);
            let hold = |epoch| {
                let outlived = self.of(&claim.lock).take(epoch).skip(first).any(|one| one.replaced);
                // A nested hold keeps the lock from its call on: the outer guard may end before that call returns.
                let nested = claim.called.clamp(grant.acquired, claim.acquired);
                let hold = Hold { acquired: nested, ..claim.hold(epoch) };
                if !outlived {
                    return Some(hold);
                }
                let hold = hold.outliving(claim.last_confirmed.saturating_add(UNDER_WAY));
                hold.ended.is_none_or(|ended| ended > hold.acquired).then_some(hold)
            };
            // What Redis first confirmed of a nested hold was the outer one.
            self.sure_since(first, claim).into_iter().filter_map(hold).collect::<Vec<_>>()
        };
        alone().flat_map(in_epochs).collect()
    }

    /// Whether a server may have granted it that had been replaced, and did not know it yet. Its tokens are smaller than those
    /// of its successor: that is what keeps its holders out.
    pub fn may_be_late(&self, claim: &Claim) -> bool {
        let sent = claim.called.min(claim.last_confirmed);
        let meets = |one: &Break| one.from < one.to && sent <= one.to && claim.acquired >= one.from;
        self.of(&claim.lock).any(|one| one.replaced && meets(one))
    }

    /// The epoch of its lock in which Redis first confirmed it, if that is certain, or the next.
    fn first(&self, claim: &Claim) -> usize {
        let before = |one: &&Break| one.may_be_before(claim.confirmed, claim.acquired);
        self.of(&claim.lock).filter(before).count()
    }

    /// Whether Redis may have lost the claim by then, since it last confirmed it.
    pub fn excuse(&self, claim: &Claim, lost_at: u64) -> bool {
        self.of(&claim.lock).any(|one| one.from <= lost_at && one.to >= claim.last_confirmed)
    }
}
