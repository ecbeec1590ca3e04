//! The history checker refuses histories that were made to be wrong, and takes those that are right.

use crate::common;
use crate::judge::history::{History, Hold, Violation};

use common::clock;

/// `lock owner token [acquired, ended)`.
fn hold(owner: &str, token: u64, acquired: u64, ended: u64) -> Hold {
    Hold::new("a", owner, token, acquired).until(ended)
}

fn on(lock: &str, hold: Hold) -> Hold {
    Hold { lock: lock.to_owned(), ..hold }
}

fn judged(holds: impl IntoIterator<Item = Hold>) -> Vec<Violation> {
    let mut history = History::default();
    holds.into_iter().for_each(|hold| history.hold(hold));
    history.violations()
}

#[test]
fn an_empty_history_is_right() {
    assert_eq!(judged([]), []);
}

#[test]
fn one_after_the_other_with_growing_tokens_is_right_in_whatever_order_it_is_recorded() {
    let holds = [hold("x", 1, 0, 10), hold("y", 2, 10, 20), hold("x", 5, 25, 30)];
    assert_eq!(judged(holds.clone()), []);
    assert_eq!(judged(holds.into_iter().rev()), []);
}

#[test]
fn two_holders_at_once_are_refused() {
    let (first, second) = (hold("x", 1, 0, 10), hold("y", 2, 9, 20));
    assert_eq!(judged([second.clone(), first.clone()]), [Violation::Overlap(first, second)]);
}

#[test]
fn a_short_hold_within_a_long_one_is_refused_also_when_another_comes_between() {
    let long = hold("x", 1, 0, 100);
    let (early, late) = (hold("y", 2, 10, 20), hold("z", 3, 50, 60));
    let found = judged([long.clone(), early.clone(), late.clone()]);
    assert_eq!(found, [Violation::Overlap(long.clone(), early), Violation::Overlap(long, late)]);
}

#[test]
fn two_holders_from_the_same_moment_are_refused() {
    assert_eq!(judged([hold("x", 1, 5, 9), hold("y", 2, 5, 9)]).len(), 1);
}

#[test]
fn two_guards_of_one_client_are_two_owners() {
    assert_eq!(judged([hold("p/1", 1, 0, 10), hold("p/2", 2, 5, 10)]).len(), 1);
}

#[test]
fn different_locks_do_not_exclude_each_other() {
    let holds = [on("a", hold("x", 1, 0, 10)), on("b", hold("y", 1, 0, 10))];
    assert_eq!(judged(holds), []);
}

#[test]
fn tokens_out_of_order_are_refused() {
    let (first, second) = (hold("x", 7, 0, 10), hold("y", 6, 10, 20));
    assert_eq!(judged([first.clone(), second.clone()]), [Violation::TokenFell(first, second)]);
}

#[test]
fn a_token_must_beat_all_earlier_ones_and_not_only_the_last() {
    let holds = [hold("x", 9, 0, 10), hold("y", 3, 10, 20), hold("z", 5, 20, 30)];
    let found = judged(holds.clone());
    let fell = |n: usize| Violation::TokenFell(holds[0].clone(), holds[n].clone());
    assert_eq!(found, [fell(1), fell(2)]);
}

#[test]
fn equal_tokens_are_refused() {
    let (first, second) = (hold("x", 7, 0, 10), hold("y", 7, 10, 20));
    let found = judged([first.clone(), second.clone()]);
    assert_eq!(
        found,
        [Violation::TokenFell(first.clone(), second.clone()), Violation::TokenTwice(first, second)]
    );
}

#[test]
fn one_owner_does_not_get_its_old_token_again() {
    let (first, second) = (hold("x", 7, 0, 10), hold("x", 7, 11, 20));
    assert_eq!(judged([first.clone(), second.clone()]), [Violation::TokenFell(first, second)]);
}

#[test]
fn a_nested_hold_shares_the_token_of_its_owner() {
    let nested = [hold("x", 7, 0, 30), hold("x", 7, 5, 10), hold("x", 7, 15, 40)];
    assert_eq!(judged(nested), []);
}

#[test]
fn a_nested_hold_keeps_others_out_after_the_outer_one_has_ended() {
    let (outer, inner) = (hold("x", 7, 0, 10), hold("x", 7, 5, 20));
    let other = hold("y", 8, 15, 30);
    let found = judged([outer, inner.clone(), other.clone()]);
    assert_eq!(found, [Violation::Overlap(inner, other)]);
}

#[test]
fn a_nested_hold_with_another_token_is_refused() {
    assert_eq!(judged([hold("x", 7, 0, 30), hold("x", 8, 5, 10)]).len(), 1);
}

#[test]
fn a_hold_without_an_end_is_refused() {
    let open = Hold::new("a", "x", 1, 0);
    assert_eq!(judged([open.clone()]), [Violation::NeverEnded(open)]);
}

#[test]
fn a_hold_with_two_ends_ends_at_the_first() {
    let lost_before_unlock = hold("x", 1, 0, 100).until(10).until(50);
    assert_eq!(judged([lost_before_unlock, hold("y", 2, 20, 30)]), []);
}

#[test]
fn a_guard_that_is_returned_after_its_deadline_claims_nothing() {
    let stale = hold("x", 1, 15, 9);
    assert_eq!(judged([stale, hold("y", 2, 10, 20)]), []);
    let same_token = [hold("x", 2, 15, 9), hold("y", 2, 10, 20)];
    assert_eq!(judged(same_token).len(), 1);
}

#[test]
fn leftovers_are_named() {
    let mut history = History::default();
    history.left("key", ["lock:{a}"]);
    history.left("channel", Vec::<String>::new());
    let key = Violation::Left("key".to_owned(), "lock:{a}".to_owned());
    assert_eq!(history.violations(), [key]);
}

#[test]
fn a_path_that_was_never_taken_is_refused() {
    let mut history = History::expecting(["ghost cleaned", "lost by deadline"]);
    history.reached("ghost cleaned", 3);
    let missed = Violation::NeverReached("lost by deadline".to_owned());
    assert_eq!(history.violations(), [missed]);

    history.reached("lost by deadline", 0);
    assert_eq!(history.violations().len(), 1);
    history.reached("lost by deadline", 1);
    assert_eq!(history.violations(), []);
    assert_eq!(history.paths()["ghost cleaned"], 3);
}

#[test]
fn a_path_that_nobody_expected_is_counted_all_the_same() {
    let mut history = History::expecting(["ghost cleaned"]);
    history.reached("gost cleaned", 1);
    assert_eq!(history.violations().len(), 1);
}

#[test]
fn a_hold_is_written_and_read_as_one_line() {
    for hold in [hold("worker 1/guard 7", u64::MAX, 3, 4), Hold::new("a b", "x", 1, 0)] {
        assert_eq!(hold.to_string().parse(), Ok(hold));
    }
    for line in ["", "a\tx\t1\t2", "a\tx\t1\t2\t3\t4", "a\tx\tone\t2\t3", "a\tx\t1\t-\t3"] {
        assert!(line.parse::<Hold>().is_err(), "{line:?}");
    }
}

#[test]
fn every_violation_says_who_and_when() {
    let mut history = History::expecting(["ghost cleaned"]);
    history.left("key", ["lock:{a}"]);
    history.hold(hold("x", 2, 0, 10));
    history.hold(hold("y", 1, 7, 20));
    history.hold(hold("z", 1, 30, 40));
    history.hold(Hold::new("b", "w", 1, 0));
    let said: Vec<String> = history.violations().iter().map(ToString::to_string).collect();
    let all = said.join("\n");
    for part in [
        "at once, for 3 ns",
        "a\tx\t2\t0\t10",
        "without a greater token",
        "two owners with one token",
        "without an end",
        "a key is left: lock:{a}",
        "never reached: ghost cleaned",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
}

#[test]
fn a_long_history_is_judged_in_no_time() {
    let mut history = History::default();
    for n in 0..200_000 {
        history.hold(on(&format!("{}", n % 7), hold("x", n, 10 * n, 10 * n + 9)));
    }
    assert_eq!(history.violations(), []);
    // One wrong among many is found.
    history.hold(on("3", hold("y", 700_000, 10 * 700 + 35, 10 * 700 + 36)));
    assert!(!history.violations().is_empty());
}

#[test]
fn the_clock_runs_like_that_of_instant() {
    let (before, start) = (clock::now(), std::time::Instant::now());
    std::thread::sleep(std::time::Duration::from_millis(20));
    let elapsed = start.elapsed().as_nanos();
    assert!(u128::from(clock::now() - before) >= elapsed);
}
