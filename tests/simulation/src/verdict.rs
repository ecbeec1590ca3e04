//! The judgement of a run: what its processes and the world have seen, and the rules that the torture run shares.

use crate::board::{self, Wrong};
use crate::judge::history::{History, Violation};
use crate::judge::{Break, Claim, Epochs, rules};
use crate::plan::{Fault, Kind, Plan, What};

/// Everything that was wrong, the first first.
pub fn pronounce(plan: &Plan) -> Vec<Wrong> {
    let fenced = plan.names.iter().filter(|name| name.kind == Kind::Fenced);
    let fenced: Vec<&String> = fenced.map(|name| &name.text).collect();
    let (mut claims, breaks, restarts, mut wrongs) = board::with(|board| {
        let open = board.take_open();
        let mut claims = std::mem::take(&mut board.over);
        claims.extend(open);
        let breaks = std::mem::take(&mut board.breaks);
        (claims, breaks, std::mem::take(&mut board.restarts), std::mem::take(&mut board.wrongs))
    });
    claims.sort_by_key(|claim| claim.acquired);
    let forgotten = forgotten_counters(plan, &breaks);
    let epochs = Epochs(breaks);
    wrongs.extend(exclusion(&claims, &epochs));
    let mut counted = Vec::new();
    let lost = rules::losses(&claims, &epochs, &restarts, &mut |path, times| {
        counted.push((path.to_owned(), times));
    });
    board::with(|board| counted.iter().for_each(|(path, times)| board.count(path, *times)));
    wrongs.extend(lost.into_iter().map(|what| wrong("a loss without a cause", what)));
    let many = rules::shares(&claims, &epochs);
    wrongs.extend(many.into_iter().map(|what| wrong("more out than there is", what)));
    // Redisson counts those of a fenced lock in a key of its own, which goes with the data.
    let counted: Vec<Claim> =
        claims.iter().filter(|claim| !fenced.contains(&&claim.lock)).cloned().collect();
    for claims in counted.chunk_by(|a, b| before(&forgotten, a) == before(&forgotten, b)) {
        let fell = rules::tokens(claims);
        wrongs.extend(fell.into_iter().map(|what| wrong("a token that did not grow", what)));
    }
    wrongs.sort_by_key(|wrong| wrong.at);
    wrongs
}

/// When Redis lost its token counter although its clock had been set back: then it may begin again with less, as
/// docs/guarantees.md says. From such a moment on, tokens are judged anew.
fn forgotten_counters(plan: &Plan, breaks: &[Break]) -> Vec<u64> {
    let is_set_back = |fault: &&Fault| matches!(fault.what, What::Clock { by } if by < 0);
    let set_back = plan.faults.iter().filter(is_set_back).map(|fault| fault.at).min();
    let after =
        |one: &&Break| set_back.is_some_and(|set_back| one.lock.is_none() && one.to >= set_back);
    let mut moments: Vec<u64> = breaks.iter().filter(after).map(|one| one.from).collect();
    moments.sort_unstable();
    moments
}

/// How many of these moments were before a claim.
fn before(moments: &[u64], claim: &Claim) -> usize {
    moments.partition_point(|moment| *moment <= claim.acquired)
}

fn exclusion(claims: &[Claim], epochs: &Epochs) -> Vec<Wrong> {
    let mut history = History::default();
    for claim in claims.iter().filter(|claim| claim.of == 1) {
        for epoch in epochs.sure(claim) {
            history.hold(claim.hold(epoch));
        }
    }
    history
        .violations()
        .into_iter()
        .map(|violation| wrong(rule(&violation), violation.to_string()))
        .collect()
}

fn rule(violation: &Violation) -> &'static str {
    match violation {
        Violation::Overlap(..) => "two holders at once",
        Violation::TokenFell(..) => "a token that did not grow",
        Violation::TokenTwice(..) => "one token twice",
        Violation::NeverEnded(_) => "a hold without an end",
        Violation::Left(..) | Violation::NeverReached(_) => "something is left",
    }
}

/// Of the rules that look back at claims: the moment is that of the last claim that is named.
fn wrong(rule: &'static str, what: String) -> Wrong {
    let moment = |line: &str| line.split('\t').nth(3).and_then(|at| at.parse().ok());
    let at = what.lines().filter_map(moment).max().unwrap_or(0);
    Wrong { rule, what, at }
}
