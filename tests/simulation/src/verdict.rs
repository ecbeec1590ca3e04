//! The judgement of a run: what its processes and the world have seen, and the rules that the torture run shares.

use std::path::Path;

use crate::board::{self, Wrong};
use crate::history;
use crate::judge::history::{History, Violation};
use crate::judge::{Claim, Epochs, rules};
use crate::plan::{Kind, Plan, WITHIN};

/// Everything that was wrong, the first first.
pub fn pronounce(plan: &Plan, history: Option<&Path>) -> Vec<Wrong> {
    let fenced = plan.names.iter().filter(|name| name.kind == Kind::Fenced);
    let fenced: Vec<String> = fenced.map(|name| name.label()).collect();
    let (mut claims, breaks, restarts, counters_lost, mut wrongs) = board::with(|board| {
        let open = board.take_open();
        let mut claims = std::mem::take(&mut board.over);
        claims.extend(open);
        let breaks = std::mem::take(&mut board.breaks);
        let restarts = std::mem::take(&mut board.restarts);
        let counters_lost = std::mem::take(&mut board.counters_lost);
        (claims, breaks, restarts, counters_lost, std::mem::take(&mut board.wrongs))
    });
    claims.sort_by_key(|claim| claim.acquired);
    let epochs = Epochs(breaks);
    if let Some(path) = history {
        history::write(path, plan, &claims, &epochs, &counters_lost);
    }
    wrongs.extend(exclusion(&claims, &epochs));
    let mut counted = Vec::new();
    let lost = rules::losses(&claims, &epochs, &restarts, &mut |path, times| {
        counted.push((path.to_owned(), times));
    });
    board::with(|board| counted.iter().for_each(|(path, times)| board.count(path, *times)));
    wrongs.extend(lost.into_iter().map(|what| wrong("a loss without a cause", what)));
    let apart = rules::apart(&claims, WITHIN);
    board::with(|board| board.count("held in two namespaces at once", apart));
    let shares = claims.iter().filter(|claim| claim.of > 1 && !epochs.sure(claim).is_empty());
    board::with(|board| board.count("judged: shares", shares.count() as u64));
    let many = rules::shares(&claims, &epochs);
    wrongs.extend(many.into_iter().map(|what| wrong("more out than there is", what)));
    // Redisson counts those of a fenced lock in a key of its own, which goes with the data.
    let counted: Vec<Claim> =
        claims.iter().filter(|claim| !fenced.contains(&claim.lock)).cloned().collect();
    let counted: Vec<Claim> =
        counted.into_iter().filter(|claim| !epochs.may_be_late(claim)).collect();
    let parts: Vec<Vec<Claim>> = between(&counters_lost, &counted).collect();
    board::with(|board| {
        board.count("judged: tokens", parts.iter().map(|part| part.len() as u64).sum())
    });
    let fell = parts.iter().flat_map(|claims| rules::tokens(claims));
    wrongs.extend(fell.into_iter().map(|what| wrong("a token that did not grow", what)));
    wrongs.sort_by_key(|wrong| wrong.at);
    wrongs
}

/// The claims between two moments at which the counter of the tokens was lost: each part is judged for itself, and a
/// claim that spans such a moment is in none.
fn between<'a>(moments: &[u64], claims: &'a [Claim]) -> impl Iterator<Item = Vec<Claim>> + 'a {
    let starts = [0].into_iter().chain(moments.iter().copied());
    let ends = moments.iter().copied().chain([u64::MAX]);
    let parts: Vec<(u64, u64)> = starts.zip(ends).collect();
    parts.into_iter().map(move |(start, end)| {
        let within = |claim: &&Claim| {
            claim.called.min(claim.last_confirmed) >= start && claim.acquired <= end
        };
        claims.iter().filter(within).cloned().collect()
    })
}

fn exclusion(claims: &[Claim], epochs: &Epochs) -> Vec<Wrong> {
    let (mut history, holds) = (History::default(), epochs.holds(claims));
    board::with(|board| board.count("judged: holds", holds.len() as u64));
    holds.into_iter().for_each(|hold| history.hold(hold));
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
