//! What the judge demands of tokens: they grow in real time, also across what was judged before and is forgotten.

use crate::judge::{Claim, rules};

/// A writer takes all parts.
const ALL: u64 = 9;

fn claim(part: u64, token: u64, called: u64, acquired: u64, ended: u64) -> Claim {
    Claim {
        lock: "book".to_owned(),
        owner: format!("{part}-{token}-{called}"),
        token,
        called,
        acquired,
        confirmed: called,
        last_confirmed: acquired,
        ended: Some(ended),
        part,
        of: ALL,
        ..Claim::default()
    }
}

fn writer(token: u64, called: u64) -> Claim {
    claim(ALL, token, called, called + 1, called + 5)
}

fn reader(token: u64, called: u64) -> Claim {
    claim(1, token, called, called + 1, called + 5)
}

fn found(claims: &[Claim]) -> usize {
    rules::tokens(claims).len()
}

#[test]
fn a_writer_after_a_writer_has_a_greater_token() {
    assert_eq!(found(&[writer(10, 0), writer(11, 10)]), 0);
    assert_eq!(found(&[writer(10, 0), writer(10, 10)]), 1);
    assert_eq!(found(&[writer(10, 0), writer(9, 10)]), 1);
}

#[test]
fn a_reader_after_a_writer_has_a_greater_token() {
    assert_eq!(found(&[writer(10, 0), reader(11, 10)]), 0);
    assert_eq!(found(&[writer(10, 0), reader(9, 10)]), 1);
}

#[test]
fn a_writer_after_a_reader_has_a_greater_token() {
    assert_eq!(found(&[reader(11, 0), writer(12, 10)]), 0);
    assert_eq!(found(&[reader(11, 0), writer(11, 10)]), 1);
}

#[test]
fn readers_are_in_no_order_among_themselves() {
    assert_eq!(found(&[writer(10, 0), reader(12, 10), reader(11, 20), reader(11, 30)]), 0);
}

#[test]
fn what_was_called_before_the_other_was_answered_is_in_no_order() {
    assert_eq!(found(&[claim(ALL, 10, 0, 12, 20), claim(1, 9, 11, 30, 40)]), 0);
}

#[test]
fn a_reader_that_has_the_lock_as_a_writer_too_has_the_same_token() {
    let outer = writer(10, 0);
    let inner = Claim { owner: outer.owner.clone(), ..reader(10, 3) };
    assert_eq!(found(&[outer, inner]), 0);
}

#[test]
fn without_a_token_there_is_no_order() {
    assert_eq!(found(&[reader(0, 0), writer(0, 10), reader(0, 20)]), 0);
}

/// Of a writer, and of a reader that came later and has a greater token, the writer's is what the next reader is held to.
#[test]
fn what_the_order_of_later_claims_needs_is_not_forgotten() {
    let judged = [writer(8, 0), writer(10, 10), reader(11, 20)];
    let known = |later: &Claim| -> Vec<Claim> {
        let last = rules::last(&judged);
        let kept = judged.iter().enumerate().filter(|(at, _)| last.contains(at));
        kept.map(|(_, claim)| claim.clone()).chain([later.clone()]).collect()
    };
    assert_eq!(found(&known(&reader(9, 30))), 1);
    assert_eq!(found(&known(&writer(9, 30))), 1);
    assert_eq!(found(&known(&writer(11, 30))), 1);
    assert_eq!(found(&known(&reader(11, 30))), 0);
    assert_eq!(found(&known(&writer(12, 30))), 0);
    assert_eq!(rules::last(&judged).len(), 2);
}
