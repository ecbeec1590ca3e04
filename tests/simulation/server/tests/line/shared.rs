//! Readers, writers and permits.

use crate::name::{ALL, Answer, Ask, LINE_TTL, RW, SEMAPHORE, once, part};
use crate::{everywhere, in_virtual_time};

#[test]
fn readers_that_waited_for_a_writer_read_before_the_next_one_writes() {
    everywhere(RW, |name| {
        name.waiter_ttl = 60_000;
        let listener = name.listener("abcdefghijk");
        name.lock("a:1");
        name.lock("b:1"); // writes next
        for client in "cdefghi".chars() {
            name.acquire(&format!("{client}:1"), &part(1));
        }
        name.lock("j:1");
        name.release("a:1");
        let mut words = name.words(listener);
        words.retain(|word| word.contains('='));
        let readers: Vec<_> = "cdefghi".chars().map(|client| format!("{client}:1=@7")).collect();
        assert_eq!(words, readers);
        let late = name.acquire("k:1", &part(1));
        assert!(!late.is_granted(), "it came after the writers: {late:?}");
        for client in "cdefgh".chars() {
            assert!(name.release(&format!("{client}:1")));
        }
        assert_eq!(name.words(listener), [""; 0], "the last one still reads");
        name.release("i:1");
        assert_eq!(name.words(listener).first().map(String::as_str), Some("b:1=@7"));
        name.release("b:1");
        assert_eq!(name.words(listener), ["k:1=@7"], "it waited while b wrote");
        name.release("k:1");
        name.release("j:1");
        assert_eq!(name.keys_left(), [""; 0]);
    });
}

/// The number was made smaller while more were held. One lease ends then, and there is still no room.
#[test]
fn a_lease_that_ends_is_counted_out_though_there_is_no_room() {
    in_virtual_time(SEMAPHORE, |name| {
        name.acquire("a:1", &Ask { lease: 50, ..part(1) });
        for field in ["b:1", "c:1"] {
            name.acquire(field, &part(1));
        }
        name.resize(1);
        name.capacity = 1;
        name.lock("d:1");
        name.pass(51);
        name.lock("e:1");
        assert_eq!(name.status()[1..], [2, 1]);
        name.release("b:1");
        name.release("c:1");
        assert!(name.lock("d:1").is_granted());
        assert_eq!(name.status()[1..], [1, 1]);
    });
}

#[test]
fn silent_readers_are_asked_and_nobody_writes_before_they_answer_or_are_removed() {
    in_virtual_time(RW, |name| {
        let listener = name.listener("abcdefghijk");
        let near = ["b:1", "c:1", "d:1", "e:1"];
        name.lock("a:1");
        near.iter().for_each(|writer| _ = name.lock(writer));
        for reader in ["f:1", "g:1"] {
            name.acquire(reader, &part(1));
        }
        // Far behind the window, they are silent, and rightly so.
        for _ in 0..6 {
            name.pass(300);
            near.iter().for_each(|writer| _ = name.lock(writer));
        }
        assert_eq!(name.words(listener), [""; 0]);
        name.release("a:1");
        let mut words = name.words(listener);
        words.sort();
        assert_eq!(words, ["f:1!", "g:1!"]);
        assert!(!name.lock("b:1").is_granted(), "f and g come first");
        assert!(name.acquire("f:1", &part(1)).is_granted());
        name.release("f:1");
        assert!(!name.lock("b:1").is_granted(), "g may still come");
        for _ in 0..3 {
            name.pass(300);
            near.iter().for_each(|writer| _ = name.lock(writer));
        }
        name.pass(1);
        assert!(name.lock("b:1").is_granted(), "g is dead");
    });
}

#[test]
fn many_readers_come_in_several_calls_each_of_which_makes_the_next() {
    everywhere(RW, |name| {
        name.waiter_ttl = 60_000;
        name.lock("w:1");
        let readers: Vec<_> = (0..200).map(|n| format!("r{n}:1")).collect();
        for reader in &readers {
            name.acquire(reader, &part(1));
        }
        name.lock("x:1");
        let listener = name.listener("wx");
        for reader in &readers {
            let channel = format!("lock_channel:{{a}}:{}", reader.trim_end_matches(":1"));
            name.stage.ask(listener, &["SUBSCRIBE", &channel]);
        }
        name.release("w:1");
        let (mut reading, mut calls) = (0, 1);
        loop {
            let words = name.words(listener);
            reading += words.iter().filter(|word| word.contains('=')).count();
            let Some(asked) = words.iter().find_map(|word| word.strip_suffix('!')) else { break };
            assert!(asked.starts_with('r'), "{asked}");
            assert!(name.acquire(asked, &part(1)).is_granted(), "{asked} is let in as it comes");
            reading += 1;
            calls += 1;
        }
        assert_eq!(reading, 200);
        assert_eq!(calls, 4, "64 a call, and who is told to make the next one");
        for reader in &readers {
            assert!(name.release(reader), "{reader}");
        }
        let words = name.words(listener);
        assert!(words.contains(&"x:1=@7".to_owned()), "{words:?}");
    });
}

#[test]
fn many_readers_behind_a_writer_all_read_before_it_writes() {
    everywhere(RW, |name| {
        name.waiter_ttl = 60_000;
        name.lock("w:1");
        name.lock("x:1");
        for n in 0..150 {
            name.acquire(&format!("r{n}:1"), &part(1));
        }
        let listener = name.listener("wx");
        name.release("w:1");
        // Those of the first call leave before the others have come.
        for n in 0..64 {
            assert!(name.release(&format!("r{n}:1")), "r{n} reads");
        }
        let words = name.words(listener);
        assert!(words.iter().all(|word| word == "x:1?"), "x waits for all of them: {words:?}");
        let mut reading = 0;
        for n in 64..150 {
            reading += i32::from(name.acquire(&format!("r{n}:1"), &part(1)).is_granted());
        }
        assert_eq!(reading, 86);
        for n in 64..150 {
            assert!(name.release(&format!("r{n}:1")));
        }
        assert_eq!(name.words(listener).last().map(String::as_str), Some("x:1=@7"));
    });
}

#[test]
fn a_reader_within_its_own_write_needs_no_room() {
    everywhere(RW, |name| {
        assert!(name.lock("a:1").is_granted());
        let within = Ask { within: "a:1", ..part(1) };
        assert!(name.acquire("a:2", &within).is_granted());
        assert!(!name.acquire("b:1", &Ask { within: "c:1", ..part(1) }).is_granted());
        name.release("a:1");
        assert!(name.acquire("b:1", &part(1)).is_granted(), "a reads, and so may b");
        assert!(!name.lock("c:1").is_granted());
        name.release("a:2");
        name.release("b:1");
        assert!(name.release("c:1"));
        assert_eq!(name.keys_left(), [""; 0]);
    });
}

#[test]
fn readers_share_and_permits_have_parts() {
    everywhere(RW, |name| {
        for client in "abc".chars() {
            assert!(name.acquire(&format!("{client}:1"), &part(1)).is_granted());
        }
        assert!(matches!(name.acquire("w:1", &Ask { part: ALL, ..once() }), Answer::Held { .. }));
        for client in "abc".chars() {
            assert!(name.release(&format!("{client}:1")));
        }
        assert_eq!(name.keys_left(), [""; 0]);
    });
    everywhere(SEMAPHORE, |name| {
        let listener = name.listener("abcdef");
        assert!(name.acquire("a:1", &part(2)).is_granted());
        assert!(name.acquire("b:1", &part(1)).is_granted());
        assert!(!name.acquire("c:1", &part(2)).is_granted());
        assert!(!name.acquire("d:1", &part(1)).is_granted(), "nobody passes c");
        assert_eq!(name.status()[1..], [3, 3]);
        name.release("b:1");
        assert_eq!(name.words(listener), [""; 0], "one is free, and c wants two");
        assert!(matches!(name.acquire("e:1", &once()), Answer::Held { .. }), "c waits in front");
        name.release("a:1");
        assert_eq!(name.words(listener), ["c:1=@7", "d:1=@7"]);
        assert_eq!(name.status()[1..], [3, 3]);
        name.release("d:1");
        name.release("c:1");
        assert_eq!(name.status(), [-2, 0, 3]);
        assert_eq!(name.keys_left(), [""; 0]);
    });
}

#[test]
fn a_capacity_that_was_set_stays_and_lets_in_waiters() {
    everywhere(SEMAPHORE, |name| {
        let listener = name.listener("abcd");
        name.acquire("a:1", &part(3));
        name.acquire("b:1", &part(1));
        name.acquire("c:1", &part(3));
        name.resize(4);
        assert_eq!(name.words(listener), ["b:1=@7"]);
        assert_eq!(name.status()[1..], [4, 4]);
        name.release("a:1");
        assert_eq!(name.words(listener), ["c:1=@7"]);
        name.release("b:1");
        name.release("c:1");
        assert_eq!(name.keys_left(), ["lock_notes:{a}"], "thirty days");
        let ttl = name.number(&["PTTL", "lock_notes:{a}"]);
        assert!(ttl > 29 * 86_400_000, "{ttl}");
        assert_eq!(name.status(), [-2, 0, 4]);
        assert!(name.acquire("d:1", &part(4)).is_granted());
        name.resize(2);
        assert_eq!(name.status()[1..], [4, 2]);
        name.release("d:1");
        assert_eq!(name.status(), [-2, 0, 2]);
    });
}

#[test]
fn a_capacity_that_was_set_is_remembered_while_somebody_always_waits() {
    const DAY: i64 = 86_400_000;
    in_virtual_time(SEMAPHORE, |name| {
        name.resize(1);
        name.acquire("a:1", &part(1));
        name.acquire("b:1", &part(1));
        // Most of its thirty days have passed.
        name.command(&["PEXPIRE", "lock_notes:{a}", &DAY.to_string()]);
        name.pass(LINE_TTL / 2);
        name.acquire("b:1", &part(1));
        let left = name.number(&["PTTL", "lock_notes:{a}"]);
        assert!(left > 29 * DAY, "{left} ms are left");
    });
}

#[test]
fn more_than_there_is_and_another_capacity_or_kind_are_refused() {
    everywhere(SEMAPHORE, |name| {
        let error = |answer: Answer| match answer {
            Answer::Error(text) => text,
            other => panic!("{other:?}"),
        };
        assert!(error(name.acquire("a:1", &part(4))).contains("PERMITS 4 of 3"));
        assert_eq!(name.keys_left(), [""; 0]);
        name.acquire("a:1", &part(3));
        name.acquire("b:1", &part(3));
        name.capacity = 5;
        assert!(error(name.acquire("c:1", &part(1))).contains("CONFLICT semaphore 3"));
        assert!(name.acquire("b:1", &part(3)).is_near(), "a waiter is no newcomer");
        name.capacity = 3;
        name.release("a:1");
        name.release("b:1");
        assert_eq!(name.keys_left(), [""; 0]);
    });
}

#[test]
fn permits_whose_leases_are_over_make_room_together() {
    in_virtual_time(SEMAPHORE, |name| {
        name.acquire("a:1", &part(1));
        name.acquire("b:1", &Ask { lease: 100, ..part(2) });
        assert!(name.acquire("c:1", &part(2)).is_near());
        name.pass(101);
        assert!(name.acquire("c:1", &part(2)).is_granted());
        assert_eq!(name.status()[1..], [3, 3]);
        name.release("c:1");
        name.release("a:1");
        assert_eq!(name.keys_left(), [""; 0]);
    });
}

/// More leases are over than one call removes, and the caller's own is among those that are left.
#[test]
fn a_caller_whose_own_hold_is_over_and_not_removed_yet_is_counted_once() {
    in_virtual_time(("semaphore", 100), |name| {
        name.acquire("z:1", &part(1));
        for n in 0..70 {
            name.acquire(&format!("b{n}:1"), &Ask { lease: 100 + n, ..part(1) });
        }
        name.acquire("a:1", &Ask { lease: 500, ..part(5) });
        name.pass(501);
        assert!(name.acquire("a:1", &part(5)).is_granted());
        name.status();
        assert_eq!(name.status()[1..], [6, 100]);
    });
}
