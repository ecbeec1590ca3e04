//! The order of the line: which client is next, which one is told, and which keys stay.

use crate::everywhere;
use crate::in_virtual_time;
use crate::name::{Answer, Ask, FAIR, LEASE, LOCK, Name, RW, SEMAPHORE, WAITER_TTL, once};

const EXCLUSIVE: [(&str, u32); 3] = [LOCK, FAIR, RW];

#[test]
fn a_release_gives_to_the_next_in_line_and_tells_it_alone() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            let listener = name.listener("abcdefgh");
            let mut number = name.lock("a:1").number();
            let waiters = ["b", "c", "d", "e", "f", "g", "h"];
            for client in waiters {
                let answer = name.lock(&format!("{client}:1"));
                assert!(answer.is_near(), "{client} shows one more sign: {answer:?}");
            }
            for client in waiters {
                let answer = name.lock(&format!("{client}:1"));
                assert_eq!(answer.is_near(), client < "f", "{client} {answer:?}");
            }
            assert!(
                name.heard(listener).is_empty(),
                "a newcomer gets an answer, and nobody is told"
            );
            let expected = [
                ("a", vec!["b:1=@7", "f:1?"]),
                ("b", vec!["c:1=@7", "g:1?"]),
                ("c", vec!["d:1=@7", "h:1?"]),
                ("d", vec!["e:1=@7"]),
                ("e", vec!["f:1=@7"]),
            ];
            for (client, words) in expected {
                assert!(name.release(&format!("{client}:1")));
                assert_eq!(name.words(listener), words, "{kind:?}: after {client}");
                name.assert_all_end();
            }
            assert!(!name.release("e:1"), "it was given back before");
            for client in ["f", "g", "h"] {
                let field = format!("{client}:1");
                let confirmed = name.lock(&field);
                assert!(confirmed.is_granted(), "{client} finds what it was given: {confirmed:?}");
                assert!(confirmed.number() > number, "each turn has a greater number");
                number = confirmed.number();
                let ttl = name.number(&["PTTL", "lock:{a}"]);
                assert!(
                    ttl > LEASE as i64 - 5_000,
                    "it has it for the whole lease, not for {ttl} ms"
                );
                assert!(name.release(&field));
            }
            assert_eq!(name.keys_left(), [""; 0], "{kind:?}: nobody holds or waits");
        });
    }
}

/// Waiters that have just lined up show signs of life by themselves, so no script has to tell them to.
#[test]
fn in_a_line_that_moves_fast_a_turn_is_one_message() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let clients: Vec<_> = ('a'..='j').collect();
            let listener = name.listener("abcdefghij");
            for client in &clients {
                name.lock(&format!("{client}:0"));
            }
            for turn in 0..100 {
                let holds = format!("{}:{}", clients[turn % 10], turn / 10);
                let next = format!("{}:{}=@7", clients[(turn + 1) % 10], (turn + 1) / 10);
                assert!(name.release(&holds));
                assert_eq!(name.words(listener), [next], "{kind:?}: turn {turn}");
                let again = format!("{}:{}", clients[turn % 10], turn / 10 + 1);
                assert!(name.lock(&again).is_near());
                name.pass(WAITER_TTL / 30);
            }
            name.assert_all_end();
            // No newcomer lines up any more. Scripts look at silent waiters as before.
            name.pass(WAITER_TTL / 3);
            assert!(!name.lock("f:10").is_near(), "it may sleep");
            name.release("a:10");
            let words = name.words(listener);
            assert_eq!(words, ["b:10=@7", "f:10?"], "{kind:?}: f comes near");
        });
    }
}

#[test]
fn a_waiter_that_leaves_the_line_brings_the_next_one_near() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            let listener = name.listener("bcdefg");
            name.lock("a:1");
            for client in "bcdefgbcdefg".chars() {
                name.lock(&format!("{client}:1"));
            }
            assert!(!name.release("c:1"), "it did not hold");
            assert_eq!(name.words(listener), ["f:1?"]);
            assert!(name.lock("f:1").is_near());
            assert!(!name.lock("g:1").is_near());
            name.release("a:1");
            assert_eq!(name.words(listener), ["b:1=@7", "g:1?"]);
        });
    }
}

#[test]
fn a_waiter_keeps_its_place_and_gets_it_back() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            name.lock("a:1");
            let first = name.lock("b:1").place();
            let second = name.lock("c:1").place();
            assert!(first < second);
            assert_eq!(name.lock("b:1").place(), first, "asking again moves nobody");
            name.release("b:1");
            let again = Ask { place: first, ..name.whole() };
            let answer = name.acquire("b:2", &again);
            assert_eq!(answer.place(), first, "also under another owner field");
            let listener = name.listener("bc");
            name.release("a:1");
            assert_eq!(name.words(listener), ["b:2=@7"]);
        });
    }
}

/// As two copies of one process do: see docs/guarantees.md.
#[test]
fn two_clients_with_one_owner_field_are_one_holder() {
    for kind in [LOCK, FAIR] {
        everywhere(kind, |name| {
            assert!(name.lock("a:1").is_granted());
            assert!(name.lock("a:1").is_granted(), "the copy is taken for a repetition");
            name.lock("b:1");
            assert!(name.release("a:1"), "one of them gives back the hold of both");
            assert!(name.lock("b:1").is_granted());
            assert!(!name.renew("a:1"), "the other one learns of it");
        });
    }
}

#[test]
fn a_try_leaves_nothing_behind_and_passes_nobody() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            let once = Ask { part: name.capacity, ..once() };
            assert!(name.acquire("a:1", &once).is_granted());
            assert!(matches!(name.acquire("b:1", &once), Answer::Held { .. }));
            assert_eq!(name.number(&["EXISTS", "lock_queue:{a}", "lock_notes:{a}"]), 0);
            name.lock("c:1");
            assert!(matches!(name.acquire("b:1", &once), Answer::Held { .. }));
            let listener = name.listener("abc");
            name.release("a:1");
            assert_eq!(name.words(listener), ["c:1=@7"]);
            name.release("c:1");
            assert_eq!(name.keys_left(), [""; 0]);
        });
    }
}

#[test]
fn an_old_tenure_is_given_to_others_first_and_otherwise_to_the_new_one() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            let listener = name.listener("abc");
            name.lock("a:1");
            let exchange = |old| Ask { old, part: name.capacity, ..Ask::default() };
            let (first, second) = (exchange("a:1"), exchange("a:2"));
            let taken = name.acquire("a:2", &first);
            assert!(matches!(taken, Answer::Granted { awaited: false, .. }), "{taken:?}");
            assert!(!name.release("a:1"), "the old one is gone");
            name.lock("b:1");
            let answer = name.acquire("a:3", &second);
            assert!(answer.is_near(), "{answer:?}");
            assert_eq!(name.words(listener), ["b:1=@7"]);
            name.release("b:1");
            assert_eq!(name.words(listener), ["a:3=@7"]);
            // The answer is lost, and it is asked again.
            assert!(name.acquire("a:3", &second).is_granted());
            name.release("a:3");
            assert_eq!(name.keys_left(), [""; 0]);
        });
    }
}

#[test]
fn a_grant_says_whether_somebody_waits() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            let granted = |answer| matches!(answer, Answer::Granted { awaited: true, .. });
            assert!(!granted(name.lock("a:1")));
            name.lock("b:1");
            assert!(granted(name.lock("a:1")), "it asks again while somebody waits");
        });
    }
}

#[test]
fn a_message_that_is_lost_costs_one_look() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            name.lock("a:1");
            name.lock("b:1");
            name.pass(200);
            name.release("a:1");
            let left = name.number(&["PTTL", "lock:{a}"]);
            // The sign of life was given 200 ms ago.
            assert_eq!(left, name.waiter_ttl as i64 - 200, "{kind:?}");
            assert!(name.lock("b:1").is_granted(), "it never heard of it, and looks");
            let left = name.number(&["PTTL", "lock:{a}"]);
            assert_eq!(left, LEASE as i64);
        });
    }
}

#[test]
fn a_renewal_confirms_what_a_message_granted() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            name.lock("a:1");
            name.lock("b:1");
            name.release("a:1");
            name.pass(300);
            assert!(name.renew("b:1"));
            assert_eq!(name.number(&["PTTL", "lock:{a}"]), LEASE as i64);
            assert!(!name.renew("a:1"));
        });
    }
}

#[test]
fn a_short_lease_bounds_what_a_message_grants() {
    in_virtual_time(FAIR, |name| {
        name.lock("a:1");
        name.acquire("b:1", &Ask { lease: 50, ..Ask::default() });
        name.release("a:1");
        assert_eq!(name.number(&["PTTL", "lock:{a}"]), 50);
    });
}

#[test]
fn force_lets_in_the_next_one_and_tells_everybody() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            let listener = name.listener("ab");
            name.lock("a:1");
            name.lock("b:1");
            assert_eq!(name.force_unlock(), 1);
            let words = name.words(listener);
            assert!(words.iter().any(|word| word.starts_with("* force_unlock")), "{words:?}");
            assert!(words.contains(&"b:1=@7".to_owned()), "{words:?}");
            assert!(!name.release("a:1"));
            assert!(name.release("b:1"));
            assert_eq!(name.force_unlock(), 0);
            assert_eq!(name.keys_left(), [""; 0]);
        });
    }
}

#[test]
fn the_first_client_that_finds_a_lock_gone_passes_it_on() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            let listener = name.listener("ab");
            name.lock("a:1");
            name.lock("b:1");
            name.command(&["DEL", "lock:{a}"]);
            assert!(!name.release("a:1"));
            assert_eq!(name.words(listener), ["b:1=@7"]);
            // The line is gone too: the server does not know the waiters, and tells all clients to look.
            name.command(&["DEL", "lock:{a}", "lock_queue:{a}", "lock_notes:{a}"]);
            assert!(!name.release("b:1"));
            assert_eq!(name.words(listener), ["* b"]);
            let exchange = Ask { old: "b:1", ..name.whole() };
            assert!(name.acquire("b:2", &exchange).is_granted());
            assert_eq!(name.words(listener), ["* b"], "also if it offers the tenure that is lost");
        });
    }
}

#[test]
fn a_lease_that_is_over_makes_room_when_somebody_looks() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let short = Ask { lease: 500, ..name.whole() };
            assert!(name.acquire("a:1", &short).is_granted());
            name.lock("b:1");
            name.lock("c:1");
            for _ in 0..3 {
                name.pass(160);
                assert!(!name.lock("b:1").is_granted() && !name.lock("c:1").is_granted());
            }
            name.pass(50);
            let listener = name.listener("bc");
            assert!(!name.lock("c:1").is_granted(), "it is not the first");
            assert_eq!(name.words(listener), ["b:1=@7"], "any call lets in the head");
            assert!(!name.release("a:1"));
        });
    }
}

#[test]
fn the_uncontended_path_takes_a_free_lock_and_leaves_the_line_alone() {
    everywhere(LOCK, |name| {
        // The counter is there from now on.
        assert!(name.lock("z:1").is_granted() && name.release("z:1"));
        let (code, number) = name.take("a:1");
        assert_eq!(code, 1);
        let (code, again) = name.take("a:1");
        assert_eq!(code, 1, "it finds its own work");
        assert!(again > number);
        assert_eq!(name.take("b:1"), (2, 0));
        name.lock("b:1");
        name.command(&["DEL", "lock:{a}"]);
        assert_eq!(name.take("c:1"), (2, 0), "free, but somebody waits");
        assert!(name.lock("b:1").is_granted());
    });
}

/// One far caller of a client asks for all of them. It may stand behind the front. Then those at the front must not count
/// as near without having been told: nobody would ask when the holder dies.
#[test]
fn those_at_the_front_are_told_when_a_caller_of_their_client_behind_them_asks() {
    in_virtual_time(FAIR, |name| {
        let listener = name.listener("ab");
        for field in ["h:1", "b:1", "a:1"] {
            name.lock(field);
        }
        for number in 2..=8 {
            let answer = name.lock(&format!("b:{number}"));
            assert!(!answer.is_near(), "b:1 shows a sign for all of them: {answer:?}");
        }
        assert!(name.release("h:1") && name.release("b:1"));
        assert_eq!(name.words(listener), ["b:1=@7", "a:1=@7"], "the line is awake");
        name.pass(WAITER_TTL / 3);
        let answer = name.lock("b:8");
        assert!(!answer.is_near(), "{answer:?}");
        assert_eq!(name.words(listener), ["b:2?", "b:3?", "b:4?", "b:5?"]);
    });
}

/// So a client may hand the lock from one of its callers to the next, and overtakes nobody.
#[test]
fn a_caller_of_a_fair_lock_hears_which_caller_of_its_client_stands_right_ahead() {
    for kind in [FAIR, RW, SEMAPHORE] {
        everywhere(kind, |name| {
            name.lock("a:1");
            let ahead = |name: &mut Name, field: &str| name.lock(field).ahead();
            assert_eq!(ahead(name, "a:2"), None, "it is the first in line");
            assert_eq!(ahead(name, "a:3"), (kind == FAIR).then_some(2));
            assert_eq!(ahead(name, "b:1"), None);
            assert_eq!(ahead(name, "a:4"), None, "another client stands right ahead");
            assert_eq!(ahead(name, "a:4"), None, "it has lined up before");
            assert_eq!(ahead(name, "a:5"), (kind == FAIR).then_some(4));
            assert_eq!(ahead(name, "a:5"), None, "it was told before");
            let place = name.lock("a:5").place();
            let returns = Ask { place, ..name.whole() };
            assert_eq!(name.acquire("a:6", &returns).ahead(), None, "it has a place of its own");
        });
    }
}

/// Its client has handed the lock on to them, so they have had their turns.
#[test]
fn a_release_takes_the_callers_that_were_served_out_of_the_line() {
    everywhere(FAIR, |name| {
        let listener = name.listener("ab");
        name.lock("a:1");
        for field in ["a:2", "a:3", "a:4", "b:1"] {
            name.lock(field);
        }
        assert!(name.release("a:1"));
        assert_eq!(name.words(listener), ["a:2=@7"]);
        assert!(name.release_served("a:2", &["a:3", "a:4"]));
        assert_eq!(name.words(listener), ["b:1=@7"]);
        assert!(!name.release_served("a:2", &["a:3", "a:4"]), "an answer was lost");
        assert!(name.lock("b:1").is_granted());
        name.assert_all_end();
        assert!(name.release("b:1"));
        assert_eq!(name.keys_left(), [""; 0]);
    });
}

/// The client did not know that yet, and handed the lock on to the caller that the server has let in.
#[test]
fn a_release_of_a_lost_hold_ends_the_hold_of_a_caller_that_was_served() {
    everywhere(FAIR, |name| {
        let listener = name.listener("ab");
        name.lock("a:1");
        for field in ["a:2", "b:1"] {
            name.lock(field);
        }
        assert_eq!(name.force_unlock(), 1);
        assert!(name.words(listener).contains(&"a:2=@7".to_owned()));
        assert!(!name.release_served("a:1", &["a:2"]));
        assert_eq!(name.words(listener), ["b:1=@7"]);
        assert!(name.release("b:1"));
        assert_eq!(name.keys_left(), [""; 0]);
    });
}
