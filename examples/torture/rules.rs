//! The rules beyond the checker's own: across breaks in real time, against losses without a cause, and for promptness.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::history::Hold;
use crate::epochs::Epochs;
use crate::reading::Claim;
use crate::settings::{PROMPT, SEVERAL, is_calm, nanos};
use crate::verdict::Tally;

/// A claim as the checker takes it, in one of its epochs.
pub fn hold(claim: &Claim, epoch: usize) -> Hold {
    let Claim { lock, owner, token, acquired, ended, .. } = claim;
    let hold = Hold::new(&format!("{lock}@{epoch}"), owner, *token, *acquired);
    ended.map_or(hold.clone(), |ended| hold.until(ended))
}

/// When a claim begins or ends, and which of the two.
type Moments<'a> = Vec<(u64, bool, &'a Claim)>;

/// What several may hold: never more of it at a time than there is, and within an epoch as ever.
pub fn shares(claims: &[Claim], epochs: &Epochs) -> Vec<String> {
    let mut held: HashMap<(&str, usize), Moments<'_>> = HashMap::new();
    for claim in claims.iter().filter(|claim| claim.of > 1) {
        let ended = claim.ended.unwrap_or(u64::MAX);
        for epoch in epochs.sure(claim).filter(|_| ended > claim.acquired) {
            let moments = held.entry((&claim.lock, epoch)).or_default();
            moments.extend([(claim.acquired, true, claim), (ended, false, claim)]);
        }
    }
    let mut found = Vec::new();
    for moments in held.values_mut() {
        // At one moment, who goes goes first.
        moments.sort_by_key(|(at, enters, _)| (*at, *enters));
        let mut inside: Vec<&Claim> = Vec::new();
        for (_, enters, claim) in moments {
            if !*enters {
                inside.retain(|other| !std::ptr::eq(*other, *claim));
                continue;
            }
            inside.push(claim);
            let used: u64 = inside.iter().map(|claim| claim.part).sum();
            if used > claim.of {
                let all: Vec<_> = inside
                    .iter()
                    .map(|claim| format!("{} {}", hold(claim, 0), claim.part))
                    .collect();
                found.push(format!("{used} of {} held at once:\n  {}", claim.of, all.join("\n  ")));
            }
        }
    }
    found
}

/// Paths that only the claims tell of, and losses that nothing explains.
pub fn losses(
    claims: &[Claim],
    epochs: &Epochs,
    restarts: &[u64],
    tally: &mut Tally,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut last: HashMap<&str, &Claim> = HashMap::new();
    let mut order: Vec<&Claim> = claims.iter().collect();
    order.sort_by_key(|claim| claim.acquired);
    for claim in order {
        tally.add("grants", 1);
        tally.add("hand-off", u64::from(claim.token % 1024 > 0));
        tally.add("held together", u64::from(claim.of > 1 && claim.part < claim.of));
        tally.add("a hold outlived a restart", spanned(claim, restarts));
        let sure = epochs.sure(claim);
        tally.add("a hold outlived a failover", u64::from(sure.end() > sure.start()));
        tally.add("claims that only later confirmations could judge", u64::from(sure.is_empty()));
        if let Some(before) = last.insert(&claim.lock, claim) {
            let taken = before.by_kill && before.worker != claim.worker;
            tally.add("taken after its holder was killed", u64::from(taken));
        }
        let Some(lost_at) = claim.lost_at.filter(|at| *at < claim.deadline) else { continue };
        if epochs.excuse(claim, lost_at) {
            tally.add("lost because Redis had lost it", 1);
        } else {
            let early = (claim.deadline - lost_at) / 1_000_000;
            found.push(format!(
                "lost {early} ms before its deadline, though Redis kept it:\n  {}",
                hold(claim, 0)
            ));
        }
    }
    found
}

fn spanned(claim: &Claim, moments: &[u64]) -> u64 {
    let spanned = |at: &&u64| claim.confirmed < **at && **at < claim.last_confirmed;
    moments.iter().filter(spanned).count() as u64
}

/// Tokens grow in real time, over all breaks: who was granted after another one had been told has a greater token.
pub fn tokens(claims: &[Claim]) -> Vec<String> {
    let mut locks: HashMap<&str, Vec<&Claim>> = HashMap::new();
    let alone = claims.iter().filter(|claim| claim.part == claim.of);
    alone.for_each(|claim| locks.entry(&claim.lock).or_default().push(claim));
    let mut found = Vec::new();
    for told in locks.values_mut() {
        let mut granted = told.clone();
        told.sort_by_key(|claim| claim.acquired);
        granted.sort_by_key(|claim| claim.called.min(claim.last_confirmed));
        let (mut told, mut greatest) = (told.iter().peekable(), None::<&Claim>);
        for claim in granted {
            let start = claim.called.min(claim.last_confirmed);
            while let Some(earlier) = told.next_if(|earlier| earlier.acquired <= start) {
                if greatest.is_none_or(|greatest| greatest.token < earlier.token) {
                    greatest = Some(earlier);
                }
            }
            let Some(greatest) = greatest else { continue };
            let same = greatest.token == claim.token && greatest.owner == claim.owner;
            if claim.token <= greatest.token && !same {
                let (earlier, later) = (hold(greatest, 0), hold(claim, 0));
                found.push(format!(
                    "a later grant without a greater token:\n  {earlier}\n  {later}"
                ));
            }
        }
    }
    found
}

/// Who waited while the lock was free, when nothing was broken any more: a wake-up was lost, or somebody holds it of
/// whom nobody knows, such as an acquire whose caller has gone.
pub fn slow(claims: &[Claim], started: u64, tally: &mut Tally) -> Vec<String> {
    let mut order: Vec<&Claim> = claims.iter().filter(|claim| claim.of == 1).collect();
    order.sort_by_key(|claim| (claim.lock.as_str(), claim.acquired));
    let (mut found, mut longest, mut judged) = (Vec::new(), 0, 0);
    let mut free_since = 0;
    for pair in order.windows(2) {
        let (before, next) = (pair[0], pair[1]);
        let is_same = before.lock == next.lock;
        free_since = if is_same { before.ended.unwrap_or(u64::MAX).max(free_since) } else { 0 };
        let calm = |at: u64| is_calm(Duration::from_nanos(at.saturating_sub(started)));
        let since = free_since.max(next.called);
        let waited = is_same && since < next.acquired && !next.owner.contains(SEVERAL);
        let late = tally.late.iter().any(|(from, to)| *from < next.acquired && *to > since);
        if !waited || !calm(since) || !calm(next.acquired) || late {
            continue;
        }
        let gap = next.acquired - since;
        (longest, judged) = (longest.max(gap), judged + 1);
        if gap > nanos(PROMPT) {
            let (before, next) = (hold(before, 0), hold(next, 0));
            let gap = gap / 1_000_000;
            found.push(format!(
                "it waited {gap} ms for a lock that was free:\n  {next}\n  {before}"
            ));
        }
    }
    tally.add("waits judged in calm times", judged);
    tally.add("the longest of them, in microseconds", longest / 1_000);
    tally.add("moments when the machine was too busy", tally.late.len() as u64);
    found
}
