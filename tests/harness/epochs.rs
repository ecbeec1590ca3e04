//! What the judge demands across a break: a hold counts where Redis is known to have had it.

use crate::judge::history::{History, Violation};
use crate::judge::{Break, Claim, Epochs};

/// The unit of all times here, in nanoseconds: a tenth of a second.
const TENTH: u64 = 100_000_000;

/// Granted at once, confirmed at these moments, and over at the last.
fn claim(owner: &str, token: u64, acquired: u64, last_confirmed: u64, ended: u64) -> Claim {
    let [acquired, last_confirmed, ended] =
        [acquired, last_confirmed, ended].map(|time| time * TENTH);
    Claim {
        lock: "a".to_owned(),
        owner: owner.to_owned(),
        token,
        called: acquired,
        acquired,
        confirmed: acquired,
        last_confirmed,
        ended: Some(ended),
        part: 1,
        of: 1,
        ..Claim::default()
    }
}

fn judged(claims: &[Claim], breaks: Vec<Break>) -> Vec<Violation> {
    let mut history = History::default();
    Epochs(breaks).holds(claims).into_iter().for_each(|hold| history.hold(hold));
    history.violations()
}

const OLD: (&str, u64) = ("old", 1);
const NEW: (&str, u64) = ("new", 2);

/// The old holder is confirmed at 40; another one is inside from 20 to `until`.
fn with_another_inside_until(until: u64, breaks: Vec<Break>) -> Vec<Violation> {
    judged(&[claim(OLD.0, OLD.1, 5, 40, 50), claim(NEW.0, NEW.1, 20, 20, until)], breaks)
}

#[test]
fn two_holders_of_one_epoch_are_refused() {
    assert_eq!(with_another_inside_until(30, vec![]).len(), 1);
    assert_eq!(
        with_another_inside_until(30, vec![Break::loose(None, 10 * TENTH, 11 * TENTH)]).len(),
        1
    );
}

#[test]
fn a_replica_may_let_in_the_old_holder_again_after_another_one() {
    assert_eq!(with_another_inside_until(30, vec![Break::sharp(10 * TENTH)]), []);
}

#[test]
fn an_old_holder_that_a_replica_confirms_keeps_all_others_out() {
    assert_eq!(with_another_inside_until(45, vec![Break::sharp(10 * TENTH)]).len(), 1);
}

/// The renewal that confirmed it may have run after the other one was given back.
#[test]
fn an_old_holder_keeps_nobody_out_before_its_renewal_is_answered() {
    let another = claim(NEW.0, NEW.1, 20, 20, 40);
    let until = another.ended.map(|ended| ended + 300_000);
    let another = Claim { ended: until, ..another };
    let old = claim(OLD.0, OLD.1, 5, 40, 50);
    assert_eq!(judged(&[old, another], vec![Break::sharp(10 * TENTH)]), []);
}

#[test]
fn a_nested_hold_behind_a_failover_has_the_token_of_its_outer_hold() {
    let outer = claim(OLD.0, OLD.1, 5, 6, 50);
    let nested = claim(OLD.0, OLD.1, 40, 40, 45);
    let other = claim(NEW.0, NEW.1, 20, 20, 30);
    assert_eq!(
        judged(&[outer.clone(), nested.clone(), other.clone()], vec![Break::sharp(10 * TENTH)]),
        []
    );
    // The server that went on had granted it, so nobody else was inside.
    assert_ne!(judged(&[outer, nested, other], vec![]), []);
}

#[test]
fn a_grant_behind_a_failover_has_a_greater_token() {
    let claims = [claim(NEW.0, NEW.1, 20, 20, 30), claim(OLD.0, OLD.1, 40, 40, 50)];
    assert_eq!(judged(&claims, vec![Break::sharp(10 * TENTH)]).len(), 1);
}

/// A takeover: for a time two servers grant the lock.
#[test]
fn while_two_servers_grant_a_lock_their_holders_may_overlap() {
    let taken_over = || vec![Break::taken_over("a", 10 * TENTH, 22 * TENTH)];
    // The old holder was let in by the old server, and the new one by the new server at about the same time.
    let old = claim(OLD.0, OLD.1, 5, 5, 50);
    let new = claim(NEW.0, NEW.1, 20, 20, 30);
    assert_eq!(judged(&[old.clone(), new.clone()], taken_over()), []);
    assert_eq!(judged(&[old.clone(), new.clone()], vec![]).len(), 1);
    assert_eq!(
        judged(&[old.clone(), new], vec![Break::taken_over("b", 10 * TENTH, 22 * TENTH)]).len(),
        1
    );
    // Both are confirmed when only one server grants any more.
    let [old, new] = [claim(OLD.0, OLD.1, 5, 23, 50), claim(NEW.0, NEW.1, 20, 24, 30)];
    assert_eq!(judged(&[old, new], taken_over()).len(), 1);
}

#[test]
fn before_and_after_a_takeover_two_holders_are_refused() {
    let taken_over = || vec![Break::taken_over("a", 100 * TENTH, 110 * TENTH)];
    assert_eq!(with_another_inside_until(30, taken_over()).len(), 1);
    let late = [claim(OLD.0, OLD.1, 120, 130, 150), claim(NEW.0, NEW.1, 125, 126, 140)];
    assert_eq!(judged(&late, taken_over()).len(), 1);
}
