//! A holder whose client keeps idle locks is told that another client wants the lock; see `lua/line/keeper.lua`.

use crate::name::{Answer, Ask, LOCK, Name, WAITER_TTL, once};
use crate::stage::Client;
use crate::{everywhere, in_virtual_time};

/// The 16th character of its id says that it keeps locks.
const KEEPER: &str = "01234567-89ab-8fed-8cba-0123456789ab:1";
const OTHER: &str = "01234567-89ab-8eed-8cba-0123456789ab:1";

/// Hears what the clients of these owner fields hear.
fn ears(name: &mut Name) -> Client {
    let listener = name.listener("");
    for field in [KEEPER, OTHER] {
        let client = field.strip_suffix(":1").expect("its first tenure");
        name.stage.ask(listener, &["SUBSCRIBE", &format!("lock_channel:{{a}}:{client}")]);
    }
    listener
}

fn wanted() -> Vec<String> {
    vec![format!("{KEEPER}~")]
}

#[test]
fn a_keeper_is_told_by_the_first_waiter_and_by_no_other() {
    everywhere(LOCK, |name| {
        let listener = ears(name);
        assert!(name.lock(KEEPER).is_granted());
        assert!(name.words(listener).is_empty());
        assert!(!name.lock("b:1").is_granted());
        assert_eq!(name.words(listener), wanted());
        assert!(!name.lock("c:1").is_granted());
        assert!(name.words(listener).is_empty(), "the keeper knows it");
        assert!(name.release(KEEPER));
    });
}

#[test]
fn a_keeper_is_told_by_each_client_that_tries() {
    everywhere(LOCK, |name| {
        let listener = ears(name);
        assert!(name.lock(KEEPER).is_granted());
        for field in ["b:1", "b:2", "c:1"] {
            assert!(matches!(name.acquire(field, &once()), Answer::Kept { .. }));
            assert_eq!(name.words(listener), [format!("{KEEPER}~!")], "that nobody waits");
        }
    });
}

/// The first message may have been lost.
#[test]
fn a_keeper_is_told_again_with_a_sign_of_life() {
    in_virtual_time(LOCK, |name| {
        let listener = ears(name);
        assert!(name.lock(KEEPER).is_granted());
        assert!(!name.lock("b:1").is_granted());
        assert_eq!(name.words(listener), wanted());
        for _ in 0..3 {
            name.pass(WAITER_TTL / 3);
            assert!(!name.lock("b:1").is_granted());
            assert_eq!(name.words(listener), wanted());
        }
    });
}

#[test]
fn a_holder_that_keeps_nothing_is_told_nothing() {
    everywhere(LOCK, |name| {
        let listener = ears(name);
        for holder in [OTHER, "short:1"] {
            assert!(name.lock(holder).is_granted());
            assert!(matches!(name.acquire("b:1", &once()), Answer::Held { .. }));
            assert!(!name.acquire("c:1", &Ask::default()).is_granted());
            assert!(name.words(listener).is_empty());
            assert!(!name.release("c:1"), "it leaves the line");
            assert!(name.release(holder));
        }
    });
}

/// A hash of somebody else: its fields need not be owner fields.
#[test]
fn a_holder_of_another_program_is_told_nothing() {
    everywhere(LOCK, |name| {
        let listener = ears(name);
        let field = "0123456789abcdef without a number";
        assert_eq!(name.number(&["HSET", "lock:{a}", field, "1"]), 1);
        assert_eq!(name.number(&["PEXPIRE", "lock:{a}", "60000"]), 1);
        assert!(!name.lock("b:1").is_granted());
        assert!(!name.acquire("c:1", &once()).is_granted());
        assert!(name.words(listener).is_empty());
    });
}
