//! Waiters that have died, or only seem to have.

use std::time::{Duration, Instant};

use crate::name::{
    Answer, Ask, FAIR, LEASE, LINE_TTL, LOCK, Name, RW, SEMAPHORE, WAITER_TTL, once, part,
};
use crate::{everywhere, in_virtual_time, really};

const EXCLUSIVE: [(&str, u32); 3] = [LOCK, FAIR, RW];
const THIRD: u64 = WAITER_TTL / 3;

/// The living look three times per `waiter_ttl` for so many times. How many ms pass until the last of them is let in.
fn until_granted(name: &mut Name, living: &[&str]) -> u64 {
    for look in 1..100 {
        name.pass(THIRD);
        for field in living {
            if name.lock(field).is_granted() {
                return look * THIRD;
            }
        }
    }
    panic!("nobody is ever let in");
}

#[test]
fn a_silent_head_is_asked_and_blocks_the_line_until_it_is_removed() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let listener = name.listener("abc");
            name.lock("a:1");
            name.lock("b:1"); // dies
            name.lock("c:1");
            // The waiter behind it lives, so nothing counts as a stall.
            for _ in 0..4 {
                name.pass(THIRD);
                assert!(name.lock("c:1").is_near());
            }
            assert_eq!(name.words(listener).first().map(String::as_str), Some("b:1!"), "{kind:?}");
            name.release("a:1");
            let words = name.words(listener);
            assert!(!words.iter().any(|word| word.starts_with("c:1=")), "b has time: {words:?}");
            assert!(!name.lock("c:1").is_granted(), "and nobody passes it");
            let waited = until_granted(name, &["c:1"]);
            assert!(waited <= WAITER_TTL, "{kind:?}: {waited} ms");
            // It was only far away, comes back with its place, and is next.
            let place = 1;
            name.lock("d:1");
            let back = Ask { place, ..name.whole() };
            assert_eq!(name.acquire("b:1", &back).place(), place);
            name.release("c:1");
            let words = name.words(listener);
            assert!(words.contains(&"b:1=@7".to_owned()), "{words:?}");
        });
    }
}

/// The waiter behind it fits in, and rests: it asks only when the server wants it to.
#[test]
fn a_dead_head_that_does_not_fit_in_costs_a_few_waiter_ttl() {
    for kind in [RW, SEMAPHORE] {
        in_virtual_time(kind, |name| {
            name.acquire("a:1", &part(1)); // holds a part of it
            name.lock("b:1"); // dies
            let rests = Ask { manner: "rest", ..part(1) };
            let mut waited = 0;
            while let Answer::Waits { ttl, .. } = name.acquire("c:1", &rests) {
                let pause = ttl.try_into().expect("a holder has a lease");
                name.pass(pause);
                waited += pause;
            }
            assert!(waited <= 3 * WAITER_TTL, "{kind:?}: {waited} ms");
            name.release("c:1");
            name.release("a:1");
        });
    }
}

/// All that are near the front may die with the holder. Then a client behind them makes the next call, and not all of
/// them at once.
#[test]
fn a_far_waiter_is_told_when_the_lease_is_over_and_the_further_away_the_later() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            name.lock("a:1");
            for client in ["b", "c", "d", "e", "f", "g"] {
                name.lock(&format!("{client}:1"));
            }
            name.pass(THIRD);
            let mut told = |field: &str| match name.lock(field) {
                Answer::Waits { ttl, near: false, .. } => ttl.unsigned_abs(),
                other => panic!("{kind:?}: {field} is near: {other:?}"),
            };
            let step = WAITER_TTL / 12;
            assert_eq!(told("f:1"), LEASE - THIRD, "{kind:?}: four stand before it");
            assert_eq!(told("g:1"), LEASE - THIRD + step, "{kind:?}: five do");
        });
    }
}

#[test]
fn a_silent_head_that_answers_has_its_turn() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let listener = name.listener("abc");
            name.lock("a:1");
            name.lock("b:1");
            name.lock("c:1");
            for _ in 0..4 {
                name.pass(THIRD);
                name.lock("c:1");
            }
            name.release("a:1");
            assert!(name.words(listener).contains(&"b:1!".to_owned()));
            name.pass(THIRD / 2);
            assert!(!name.lock("c:1").is_granted());
            assert!(
                name.lock("b:1").is_granted(),
                "{kind:?}: its sign is an acquire, and it is free"
            );
        });
    }
}

#[test]
fn the_dead_in_a_row_cost_one_waiter_ttl_together() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let listener = name.listener("abcdefg");
            name.lock("a:1");
            for client in ["b", "c", "d", "e"] {
                name.lock(&format!("{client}:1"));
            }
            // b, c and d die; e lives.
            for _ in 0..3 {
                name.pass(THIRD + 1);
                name.lock("e:1");
            }
            let words = name.words(listener);
            assert_eq!(words, ["b:1!", "c:1!", "d:1!"], "{kind:?}: all at once");
            name.release("a:1");
            let waited = until_granted(name, &["e:1"]);
            assert!(waited <= WAITER_TTL, "{kind:?}: {waited} ms");
            assert_eq!(name.number(&["ZCARD", "lock_queue:{a}"]), 0);
            name.release("e:1");
            assert_eq!(name.keys_left(), [""; 0]);
        });
    }
}

/// A process that is stopped or cut off still has its connections, so the server believes that it hears. However many of its
/// callers stand at the front, the client behind them is notified too.
#[test]
fn a_silent_client_that_hears_does_not_fill_the_front() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let listener = name.listener("bcd");
            name.lock("a:1");
            let rest = Ask { manner: "rest", ..name.whole() };
            for field in 1..=12 {
                name.acquire(&format!("b:{field}"), &rest);
            }
            name.acquire("c:1", &rest);
            name.pass(THIRD + 1);
            assert!(name.acquire("c:1", &rest).is_near(), "{kind:?}: it guards those before it");
            // b falls silent. d keeps the clock of the waiters going.
            for _ in 0..6 {
                name.pass(THIRD);
                name.lock("d:1");
            }
            name.words(listener);
            name.release("a:1");
            let words = name.words(listener);
            assert!(words.contains(&"c:1!".to_owned()), "{kind:?}: {words:?}");
            assert!(!words.contains(&"b:5!".to_owned()), "{kind:?}: four are enough: {words:?}");
            // Each four of them cost their time.
            let waited = until_granted(name, &["c:1"]);
            assert!(waited <= 3 * (WAITER_TTL + THIRD), "{kind:?}: {waited} ms");
        });
    }
}

/// The script counts on the first callers behind that client. So it tells them to show signs of life, although they are far
/// from the front.
#[test]
fn a_caller_that_counts_as_awake_behind_a_silent_client_is_near() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            name.listener("abc");
            name.lock("a:1");
            let rest = Ask { manner: "rest", ..name.whole() };
            for field in 1..=12 {
                name.acquire(&format!("b:{field}"), &rest);
            }
            for field in ["c:1", "c:2", "c:3", "c:4"] {
                name.acquire(field, &rest);
            }
            // b falls silent. c asks, by its last caller.
            for _ in 0..6 {
                name.pass(THIRD);
                name.lock("c:4");
            }
            name.release("a:1");
            assert!(name.lock("c:1").is_near(), "{kind:?}");
            assert!(!name.lock("c:4").is_near(), "{kind:?}: the callers before it are enough");
        });
    }
}

/// The client is alive: it has taken that waiter out of the line itself. Nobody has told its other waiters.
#[test]
fn a_client_is_told_again_if_the_waiter_that_was_told_has_left() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let listener = name.listener("bcde");
            name.lock("a:1");
            for field in ["b:1", "c:1", "d:1", "e:1", "b:2"] {
                name.lock(field);
            }
            // b falls silent.
            let told = loop {
                name.pass(THIRD);
                for field in ["c:1", "d:1", "e:1"] {
                    name.lock(field);
                }
                let told = name.words(listener);
                if told.contains(&"b:1!".to_owned()) {
                    break told;
                }
            };
            assert!(!told.contains(&"b:2!".to_owned()), "{kind:?}: it is far away: {told:?}");
            name.release("b:1");
            let words = name.words(listener);
            assert!(words.contains(&"b:2!".to_owned()), "{kind:?}: {words:?}");
        });
    }
}

/// Somebody has deleted the notes, or the waiter's client has another version. The waiter may be alive.
#[test]
fn a_waiter_whose_note_cannot_be_read_is_told_and_comes_back() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let listener = name.listener("bc");
            name.lock("a:1");
            let first = name.lock("b:1").place();
            name.lock("c:1");
            name.command(&["DEL", "lock_notes:{a}"]);
            name.release("a:1");
            assert_eq!(name.words(listener), ["b:1!", "c:1!"], "{kind:?}");
            assert!(name.lock("c:1").is_granted(), "{kind:?}: it is the first to come back");
            let back = Ask { place: first, ..name.whole() };
            assert_eq!(name.acquire("b:1", &back).place(), first, "{kind:?}");
        });
    }
}

/// It may be the only live waiter in line. If it asked as seldom as resting waiters do, each pause would look like a
/// stall, and the dead would live on in it.
#[test]
fn a_resting_waiter_behind_silent_ones_is_told_to_ask_while_they_may_answer() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            name.lock("a:1");
            for field in ["b:1", "c:1", "d:1"] {
                name.lock(field);
            }
            // b, c and d die. e lives, and b is given the lock for as long as its last sign lasts.
            name.lock("e:1");
            name.release("a:1");
            for _ in 0..2 {
                name.pass(THIRD);
                name.lock("e:1");
            }
            name.pass(THIRD + 1);
            let mut waited = WAITER_TTL + 1;
            let rest = Ask { manner: "rest", ..name.whole() };
            while let Answer::Waits { ttl, near, .. } = name.acquire("e:1", &rest) {
                assert!(near);
                let again = u64::try_from(ttl).expect("they have a limit");
                name.pass(again);
                waited += again;
            }
            assert!(waited <= 2 * WAITER_TTL + THIRD, "{kind:?}: {waited} ms");
        });
    }
}

#[test]
fn a_silent_waiter_that_does_not_answer_is_told_again() {
    in_virtual_time(LOCK, |name| {
        let listener = name.listener("bc");
        name.lock("a:1");
        name.lock("b:1");
        name.lock("c:1");
        for _ in 0..3 {
            name.pass(THIRD + 1);
            name.lock("c:1");
        }
        assert_eq!(name.words(listener), ["b:1!"]);
        name.pass(THIRD / 2);
        name.lock("c:1");
        assert_eq!(name.words(listener), [""; 0], "its answer may still come");
        name.pass(THIRD / 2 + 1);
        name.lock("c:1");
        assert_eq!(name.words(listener), ["b:1!"], "the message may be lost");
    });
}

#[test]
fn where_nobody_listens_the_next_one_is_woken_too() {
    everywhere(LOCK, |name| {
        name.waiter_ttl = 60_000;
        // f, g, h and i have lost their connection; all others listen.
        let listener = name.listener("abcdejklmnop");
        name.lock("a:1");
        // All but the first four have come once more, and sleep.
        for client in "bcdefghijklmnopbcdefghijklmnop".chars() {
            name.lock(&format!("{client}:1"));
        }
        name.release("a:1");
        // f comes near and does not hear it, nor do g, h and i: j does.
        assert_eq!(name.words(listener), ["b:1=@7", "j:1?"]);
        assert!(name.lock("j:1").is_near());
        assert!(name.lock("f:1").is_near(), "it was told, and may have reconnected");
        assert!(!name.lock("k:1").is_near());
        name.release("b:1");
        assert_eq!(name.words(listener), ["c:1=@7"], "four are awake: d, e, and those up to j");
    });
}

#[test]
fn waiters_far_behind_may_be_silent_for_as_long_as_they_wait() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let near = ["b:1", "c:1", "d:1", "e:1"];
            name.lock("a:1");
            for field in near.iter().chain(&["f:1", "g:1"]) {
                name.lock(field);
            }
            let listener = name.listener("bcdefg");
            for _ in 0..30 {
                name.pass(THIRD);
                for field in near {
                    assert!(name.lock(field).is_near());
                }
            }
            assert_eq!(name.words(listener), [""; 0], "nobody asks them for anything");
            name.release("a:1");
            let words = name.words(listener);
            assert_eq!(words, ["b:1=@7", "f:1!"], "{kind:?}: near, and silent for long");
            assert!(name.lock("f:1").is_near());
            assert!(!name.lock("g:1").is_near());
        });
    }
}

#[test]
fn a_stall_of_the_server_removes_nobody() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            name.lock("a:1");
            for field in ["b:1", "c:1"] {
                name.lock(field);
            }
            name.pass(THIRD);
            name.lock("b:1");
            name.lock("c:1");
            name.pass(7 * WAITER_TTL);
            // The stall is over, and a script runs before any sign of life is read.
            let listener = name.listener("bc");
            name.release("a:1");
            assert_eq!(name.words(listener), ["b:1=@7"], "{kind:?}: b is not dead");
        });
    }
}

#[test]
fn a_grant_that_nobody_hears_is_over_with_the_life_of_its_client() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            name.lock("a:1");
            name.lock("b:1"); // dies
            name.lock("c:1");
            name.pass(THIRD);
            name.lock("c:1");
            name.release("a:1");
            let waited = until_granted(name, &["c:1"]);
            assert!(waited <= WAITER_TTL, "{kind:?}: {waited} ms");
        });
    }
}

#[test]
fn a_try_gets_a_lock_that_only_the_dead_wait_for() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let now = Ask { part: name.capacity, ..once() };
            name.lock("a:1");
            name.lock("b:1");
            name.pass(WAITER_TTL / 2);
            name.release("c:1"); // somebody comes by, so that nothing is a stall
            name.pass(WAITER_TTL / 2);
            name.release("c:1");
            name.release("a:1");
            assert!(name.acquire("d:1", &now).is_granted(), "{kind:?}");
        });
    }
}

/// Nobody in line shows a sign of life for so long. Another client comes by, so that nothing is a stall.
fn is_silent(name: &mut Name, long: u64) {
    name.pass(WAITER_TTL / 2);
    name.release("c:1");
    name.pass(long - WAITER_TTL / 2);
}

/// A caller that does not wait gets nothing, and the next sign of life of this waiter gets it the lock.
fn is_not_overtaken(name: &mut Name, waiter: &str, why: &str) {
    let now = Ask { part: name.capacity, ..once() };
    let answer = name.acquire("d:1", &now);
    assert!(!answer.is_granted(), "{}: {why}: {answer:?}", name.kind);
    assert!(name.lock(waiter).is_granted(), "{}: its sign is an acquire", name.kind);
}

/// A waiter that rests shows no signs of life until the line moves. Then it is asked for one, and its turn is kept.
#[test]
fn a_try_does_not_overtake_a_silent_waiter_that_has_just_been_asked() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let listener = name.listener("b");
            name.lock("a:1");
            name.lock("b:1");
            is_silent(name, WAITER_TTL);
            name.release("c:1");
            name.release("a:1");
            assert!(name.words(listener).contains(&"b:1!".to_owned()), "{kind:?}");
            is_not_overtaken(name, "b:1", "b has heard the question");
        });
    }
}

/// A client whose life ends in a few milliseconds is asked for a sign of life, since a grant would end with that life.
#[test]
fn a_try_does_not_overtake_a_waiter_that_has_been_asked_just_before_its_life_ends() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let listener = name.listener("b");
            name.lock("a:1");
            name.lock("b:1");
            name.pass(WAITER_TTL / 2);
            name.lock("b:1"); // its last sign
            is_silent(name, WAITER_TTL - 6);
            name.release("a:1");
            let words = name.words(listener);
            assert!(words.contains(&"b:1!".to_owned()), "{kind:?}: {words:?}");
            is_not_overtaken(name, "b:1", "b has heard the question");
        });
    }
}

/// A newcomer shows its first sign of life by itself, so nobody asks it for one.
#[test]
fn a_try_does_not_overtake_a_newcomer_just_before_its_life_ends() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let _listener = name.listener("b");
            name.lock("a:1");
            name.lock("b:1");
            is_silent(name, WAITER_TTL - 6);
            name.release("a:1");
            is_not_overtaken(name, "b:1", "b is alive");
        });
    }
}

#[test]
fn a_try_does_not_overtake_a_living_waiter_behind_a_window_of_dead_ones() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let now = Ask { part: name.capacity, ..once() };
            let _listener = name.listener("c");
            name.lock("a:1");
            for field in ["b:1", "b:2", "b:3", "b:4", "b:5", "c:1"] {
                name.lock(field);
            }
            for _ in 0..3 {
                name.pass(THIRD);
                name.lock("c:1");
            }
            name.release("a:1"); // b is silent, and is asked now: it keeps its place for a while
            let answer = name.acquire("d:1", &now);
            assert!(!answer.is_granted(), "{kind:?}: c lives, and came before: {answer:?}");
            name.pass(THIRD);
            name.lock("c:1");
            name.pass(THIRD);
            name.lock("c:1");
            name.pass(THIRD);
            assert!(name.lock("c:1").is_granted(), "{kind:?}: b has kept its place long enough");
        });
    }
}

#[test]
fn a_sign_of_life_of_a_client_counts_for_all_its_entries() {
    in_virtual_time(FAIR, |name| {
        let listener = name.listener("abc");
        name.lock("a:1");
        for field in ["b:1", "c:1", "b:2", "b:3"] {
            name.lock(field);
        }
        for _ in 0..9 {
            name.pass(THIRD);
            name.lock("c:1");
            name.lock("b:1");
        }
        assert_eq!(name.words(listener), ["b:2?", "b:3?"], "nobody is silent, and both are near");
        for (left, next) in
            [("a:1", "b:1=@7"), ("b:1", "c:1=@7"), ("c:1", "b:2=@7"), ("b:2", "b:3=@7")]
        {
            name.release(left);
            assert_eq!(name.words(listener), [next]);
        }
        name.release("b:3");
        assert_eq!(name.keys_left(), [""; 0]);
    });
}

#[test]
fn nothing_is_kept_of_clients_that_wait_no_more() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            name.lock("a:1");
            name.lock("z:1");
            for round in 0..50 {
                let field = format!("client{round}:1");
                name.lock(&field);
                name.release(&field);
            }
            let notes = name.command(&["HKEYS", "lock_notes:{a}"]);
            assert!(notes.items.len() <= 7, "{notes:?}");
        });
    }
}

/// The same on a real server, in real time.
#[test]
fn on_a_real_server_three_dead_cost_about_one_waiter_ttl() {
    really(LOCK, |name| {
        name.lock("a:1");
        for client in ["b", "c", "d", "e"] {
            name.lock(&format!("{client}:1"));
        }
        let quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(WAITER_TTL + 100) {
            name.pass(THIRD / 4);
            name.lock("e:1");
        }
        name.release("a:1");
        // So much time passes at least between two looks, and more if the machine stands still.
        let (between, mut looks) = (THIRD / 10, 0);
        while !name.lock("e:1").is_granted() {
            name.pass(between);
            looks += 1;
            assert!(looks * between < 2 * WAITER_TTL, "nobody is let in");
        }
        println!("three dead ahead, waiter_ttl {WAITER_TTL} ms: let in after {looks} looks");
    });
}

#[test]
fn a_waiter_that_answered_has_the_whole_time_when_it_is_asked_again() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            name.lock("a:1");
            name.lock("b:1");
            name.lock("c:1");
            let silence = |name: &mut Name, looks| {
                for _ in 0..looks {
                    name.pass(THIRD + 1);
                    assert!(!name.lock("c:1").is_granted());
                }
            };
            silence(name, 4);
            let place = name.lock("b:1").place(); // it was asked, and answers
            // Silent again, it is asked again, and its time begins anew.
            silence(name, 4);
            name.release("a:1");
            assert!(!name.lock("c:1").is_granted(), "{kind:?}: b may still answer");
            let answer = name.lock("b:1");
            assert!(answer.is_granted(), "{kind:?}: it had the place {place}: {answer:?}");
        });
    }
}

/// Once in `max_park` one contender of each client asks, and often there is only one client. It asks a little late, and may
/// have asked at any time before.
#[test]
fn a_line_outlasts_the_pause_between_two_requests_of_its_only_waiter() {
    const LATE: u64 = 200;
    let max_park = LINE_TTL / 2;
    for kind in EXCLUSIVE {
        for earlier in (0..=max_park).step_by(1_000) {
            in_virtual_time(kind, |name| {
                name.lock("a:1");
                name.lock("b:1");
                for pause in [earlier, max_park + LATE, max_park + LATE] {
                    name.pass(pause);
                    let is_there = name.number(&["EXISTS", "lock_queue:{a}"]) == 1;
                    assert!(is_there, "{kind:?}: asked after {earlier} ms, then {pause} ms later");
                    name.renew("a:1");
                    name.lock("b:1");
                }
            });
        }
    }
}

/// The clients of a line may have different `waiter_ttl`. A short one says nothing of how soon the others can answer.
#[test]
fn a_client_with_a_long_waiter_ttl_is_not_removed_by_those_with_a_short_one() {
    for kind in EXCLUSIVE {
        in_virtual_time(kind, |name| {
            let (short, long) = (50, 2_000);
            let asks = |name: &mut Name, waiter_ttl, field| {
                name.waiter_ttl = waiter_ttl;
                name.lock(field)
            };
            asks(name, short, "a:1");
            asks(name, long, "slow:1");
            // It rests, and is silent when its turn comes.
            for _ in 0..=long / 18 {
                name.pass(18);
                asks(name, short, "quick:1");
            }
            name.waiter_ttl = short;
            name.release("a:1");
            for _ in 0..4 {
                name.pass(18);
                let answer = asks(name, short, "quick:1");
                assert!(!answer.is_granted(), "{kind:?}: the head has had no time to answer");
            }
            assert!(asks(name, long, "slow:1").is_granted(), "{kind:?}");
        });
    }
}

/// A client that asks as often as the answers say, and at once when it hears a message.
struct Living {
    field: &'static str,
    asks_at: u64,
}

impl Living {
    fn follows(&mut self, answer: &Answer, now: u64) {
        let Answer::Waits { ttl, near, .. } = answer else { panic!("not in line: {answer:?}") };
        let again = ttl.unsigned_abs().min(LINE_TTL / 2);
        self.asks_at = now + 1 + if *near { again.min(THIRD) } else { again };
    }
}

/// In the line of a fair lock each caller has a place. A client that dies leaves many of them at once.
#[test]
fn a_dead_client_with_many_callers_costs_its_grant_and_one_waiter_ttl() {
    const MANY: u64 = 49;
    const LEASE: u64 = 3_000;
    for living in [1, 3] {
        in_virtual_time(FAIR, |name| {
            let listener = name.listener("bcd");
            let whole = Ask { lease: LEASE, ..name.whole() };
            name.acquire("a:1", &whole);
            for n in 1..=MANY {
                name.acquire(&format!("dead:{n}"), &whole);
            }
            // The line is slow, so the clients behind them sleep.
            for _ in 0..6 {
                name.pass(THIRD);
                name.acquire("dead:1", &whole);
            }
            let mut clients = ["b:1", "c:1", "d:1"].map(|field| Living { field, asks_at: 0 });
            let clients = &mut clients[..living];
            for client in clients.iter_mut() {
                client.follows(&name.lock(client.field), 0);
            }
            // The dead client is granted the lock, and nobody releases it.
            name.release("a:1");
            let granted = (1..60_000).find(|now| {
                name.pass(1);
                for (_, message) in name.heard(listener) {
                    for client in clients.iter_mut().filter(|it| message.contains(it.field)) {
                        client.asks_at = *now;
                    }
                }
                clients.iter_mut().filter(|client| client.asks_at <= *now).any(|client| {
                    let answer = name.lock(client.field);
                    let is_granted = answer.is_granted();
                    if !is_granted {
                        client.follows(&answer, *now);
                    }
                    is_granted
                })
            });
            let waited = granted.expect("somebody has it");
            assert!(waited <= 2 * WAITER_TTL + 10, "{living} living: {waited} ms");
        });
    }
}

/// With nobody near the front alive, long gaps lie between the calls of far clients. If several of them call at one moment, the
/// clock of the waiters must not take each gap for a stall.
#[test]
fn clients_that_call_at_one_moment_do_not_keep_the_dead_alive() {
    in_virtual_time(FAIR, |name| {
        let short = Ask { lease: 1_000, ..name.whole() };
        name.acquire("a:1", &short);
        for n in 1..=20 {
            name.acquire(&format!("dead:{n}"), &short);
        }
        name.lock("b:1");
        name.lock("c:1");
        let rounds = (1..30).find(|_| {
            name.pass(3_000);
            name.lock("b:1").is_granted() || name.lock("c:1").is_granted()
        });
        assert!(rounds.is_some_and(|rounds| rounds <= 6), "{rounds:?}");
    });
}
