//! The rules beyond the checker's own: across breaks in real time, and against losses without a cause.

use std::collections::{HashMap, HashSet};

use crate::judge::claim::Claim;
use crate::judge::epochs::Epochs;

/// How claims are counted that no epoch is sure to have known.
pub const UNSURE: &str = "claims that only later confirmations could judge";

/// When a claim begins or ends, and which of the two.
type Moments<'a> = Vec<(u64, bool, &'a Claim)>;

/// What several may hold: never more of it at a time than there is, and within an epoch as ever.
pub fn shares(claims: &[Claim], epochs: &Epochs) -> Vec<String> {
    let mut held: HashMap<(&str, usize), Moments<'_>> = HashMap::new();
    for claim in claims.iter().filter(|claim| claim.of > 1) {
        let ended = claim.ended.unwrap_or(u64::MAX);
        for epoch in epochs.sure(claim).into_iter().filter(|_| ended > claim.acquired) {
            let moments = held.entry((&claim.lock, epoch)).or_default();
            moments.extend([(claim.acquired, true, claim), (ended, false, claim)]);
        }
    }
    let mut found = Vec::new();
    for moments in held.values_mut() {
        // At one moment, ends come before beginnings.
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
                    .map(|claim| format!("{} {}", claim.hold(0), claim.part))
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
    count: &mut impl FnMut(&str, u64),
) -> Vec<String> {
    let mut found = Vec::new();
    let mut last: HashMap<&str, &Claim> = HashMap::new();
    let explained = explained(claims, epochs);
    let mut order: Vec<&Claim> = claims.iter().collect();
    order.sort_by_key(|claim| claim.acquired);
    for claim in order {
        count("grants", 1);
        count("hand-off", u64::from(claim.token % 1024 > 0));
        count("held together", u64::from(claim.of > 1 && claim.part < claim.of));
        count("a hold outlived a restart", spanned(claim, restarts));
        let sure = epochs.sure(claim);
        count("a hold outlived a failover", u64::from(sure.len() > 1));
        count(UNSURE, u64::from(sure.is_empty()));
        if let Some(before) = last.insert(&claim.lock, claim) {
            let taken = before.by_kill && before.worker != claim.worker;
            count("taken after its holder was killed", u64::from(taken));
        }
        let Some(lost_at) = claim.lost_at.filter(|at| *at < claim.deadline) else { continue };
        if explained.contains(&(&claim.owner, claim.acquired)) {
            count("lost because Redis had lost it", 1);
        } else {
            let early = (claim.deadline - lost_at) / 1_000_000;
            found.push(format!(
                "lost {early} ms before its deadline, though Redis kept it:\n  {}",
                claim.hold(0)
            ));
        }
    }
    found
}

/// The guards, by owner and beginning, that were lost because Redis had lost a part of what they hold: a guard of
/// several locks is lost as a whole.
fn explained<'a>(claims: &'a [Claim], epochs: &Epochs) -> HashSet<(&'a str, u64)> {
    let is_explained = |claim: &&Claim| claim.lost_at.is_some_and(|at| epochs.excuse(claim, at));
    claims.iter().filter(is_explained).map(|claim| (&*claim.owner, claim.acquired)).collect()
}

fn spanned(claim: &Claim, moments: &[u64]) -> u64 {
    let spanned = |at: &&u64| claim.confirmed < **at && **at < claim.last_confirmed;
    moments.iter().filter(spanned).count() as u64
}

/// The name of a lock, or its key, without this namespace.
pub fn bare<'a>(lock: &'a str, namespace: &str) -> &'a str {
    let bare = lock.strip_prefix(namespace).and_then(|lock| lock.strip_prefix(':'));
    bare.unwrap_or(lock)
}

/// How often two claims overlapped because one name with and without this namespace is two locks.
pub fn apart(claims: &[Claim], namespace: &str) -> u64 {
    let mut order: Vec<_> =
        claims.iter().map(|claim| (bare(&claim.lock, namespace), claim)).collect();
    order.sort_by_key(|(name, claim)| (*name, claim.acquired));
    let pairs = order.windows(2).map(|pair| (pair[0], pair[1]));
    let meet = pairs.filter(|((name, before), (other, next))| {
        name == other
            && before.lock != next.lock
            && before.ended.is_some_and(|at| at > next.acquired)
    });
    meet.count() as u64
}

/// Tokens grow in real time, over all breaks: if a grant began after another one was answered, it has a greater
/// token. Of two that can be held together, each may have the smaller one.
pub fn tokens(claims: &[Claim]) -> Vec<String> {
    let mut locks: HashMap<&str, Vec<&Claim>> = HashMap::new();
    let counted = claims.iter().filter(|claim| claim.token > 0);
    counted.for_each(|claim| locks.entry(&claim.lock).or_default().push(claim));
    let mut found = Vec::new();
    for told in locks.values_mut() {
        // A nested hold has the token of its outer one, and is no grant.
        let mut known = HashSet::new();
        let mut granted = told.clone();
        granted.sort_by_key(|claim| claim.acquired);
        granted.retain(|claim| known.insert((&claim.owner, claim.token)));
        let takes_all = |claim: &Claim| claim.part == claim.of;
        told.sort_by_key(|claim| claim.acquired);
        granted.sort_by_key(|claim| claim.called.min(claim.last_confirmed));
        let mut told = told.iter().peekable();
        // Of all, and of those who had all of it.
        let (mut greatest, mut greatest_alone) = (None::<&Claim>, None::<&Claim>);
        for claim in granted {
            let start = claim.called.min(claim.last_confirmed);
            while let Some(earlier) = told.next_if(|earlier| earlier.acquired <= start) {
                let is_greater =
                    |than: Option<&Claim>| than.is_none_or(|it| it.token < earlier.token);
                if is_greater(greatest) {
                    greatest = Some(earlier);
                }
                if takes_all(earlier) && is_greater(greatest_alone) {
                    greatest_alone = Some(earlier);
                }
            }
            let floor = if takes_all(claim) { greatest } else { greatest_alone };
            let Some(greatest) = floor else { continue };
            let same = greatest.token == claim.token && greatest.owner == claim.owner;
            if claim.token <= greatest.token && !same {
                let (earlier, later) = (greatest.hold(0), claim.hold(0));
                found.push(format!(
                    "a later grant without a greater token:\n  {earlier}\n  {later}"
                ));
            }
        }
    }
    found
}

/// Which of these, by their places, the order of later claims is judged by: of each lock, the latest, the one with the greatest
/// token, and of those who had all of it the one with the greatest.
pub fn last(claims: &[Claim]) -> HashSet<usize> {
    let mut last: HashMap<&str, [Option<(u64, usize)>; 3]> = HashMap::new();
    for (at, claim) in claims.iter().enumerate() {
        let [late, great, alone] = last.entry(&claim.lock).or_default();
        *late = (*late).max(Some((claim.acquired, at)));
        *great = (*great).max(Some((claim.token, at)));
        if claim.part == claim.of {
            *alone = (*alone).max(Some((claim.token, at)));
        }
    }
    last.into_values().flatten().flatten().map(|(_, at)| at).collect()
}
