//! What the callers of a seed were told, as a history that another checker judges: `tests/witness`.

use std::path::Path;

use parklock::Layout;

use crate::board::{self, Call};
use crate::judge::{Claim, Epochs, Operation, operation};
use crate::plan::{Kind, Name, Plan};

/// Nothing in Redisson's layout: its tokens, and what it lets in beside a holder, are others.
pub fn write(path: &Path, plan: &Plan, claims: &[Claim], epochs: &Epochs, counters_lost: &[u64]) {
    if plan.layout == Layout::Redisson {
        return;
    }
    let ungranted = board::with(|board| std::mem::take(&mut board.ungranted));
    let asked = ungranted.iter().flat_map(|(call, at)| asked(plan, call, *at));
    let kind = |claim: &Claim| {
        let name = plan.names.iter().find(|name| name.label() == claim.lock);
        kind(name.expect("a name of the plan"))
    };
    let claims: Vec<_> = claims.iter().map(as_told).collect();
    let granted = claims.iter().map(|claim| Operation::granted(claim, kind(claim)));
    let ended = claims.iter().filter_map(|claim| {
        let same = |other: &Claim| other.owner == claim.owner && other.acquired == claim.acquired;
        let is_one_of_several = claims.iter().filter(|other| same(other)).count() > 1;
        Operation::ended(claim, kind(claim), is_one_of_several)
    });
    let forgotten = epochs.0.iter().map(Operation::forgotten);
    let reset = counters_lost.iter().map(|at| Operation::of_a_server("reset", None, *at, *at));
    let operations = asked.chain(granted).chain(ended).chain(forgotten).chain(reset).collect();
    operation::write(path, operations).expect("a writable file");
}

/// A hold that was suspended when its call returned, and never valid after that, may have ended at any moment of the call.
fn as_told(claim: &Claim) -> Claim {
    if claim.deadline > claim.acquired {
        return claim.clone();
    }
    let sent = claim.called.min(claim.last_confirmed);
    Claim { called: sent, ended: claim.ended.map(|_| sent), ..claim.clone() }
}

/// A call that was not granted. Of several names, it does not say which was not free. Of latches nothing is held.
fn asked<'a>(plan: &'a Plan, call: &'a Call, at: u64) -> impl Iterator<Item = Operation> + 'a {
    let outcome = if call.names.len() == 1 { call.outcome } else { "unknown" };
    let names = call.names.iter().map(|name| &plan.names[*name]);
    names.filter(|name| name.kind != Kind::Latch).map(move |name| Operation {
        process: operation::process(&format!("p{}", call.process), call.seat),
        called: call.since,
        returned: Some(at),
        name: name.label(),
        kind: kind(name),
        operation: "acquire".to_owned(),
        argument: operation::argument((call.part, call.of), &call.caller),
        outcome: outcome.to_owned(),
        token: None,
        left: None,
    })
}

fn kind(name: &Name) -> &'static str {
    match name.kind {
        Kind::Lock | Kind::Fenced | Kind::Fair => "lock",
        Kind::Rw => "rw",
        Kind::Permits(_) | Kind::Expirable(_) => "semaphore",
        Kind::Latch => "latch",
    }
}
