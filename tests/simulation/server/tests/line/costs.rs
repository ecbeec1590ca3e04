//! What the scripts cost a real server, in commands. `benches/compare` measures the time.

use std::collections::BTreeMap;

use crate::frame::Frame;
use crate::name::{ALL, Answer, Ask, FAIR, LOCK, Name, RW, part};
use crate::really;
use crate::scripts::{self, Script};

/// The most commands of one call, however many wait or hold.
const BOUND: u64 = 100;

/// The calls of each command since they were last set to zero.
fn stats(name: &mut Name) -> BTreeMap<String, u64> {
    let text = String::from_utf8(name.command(&["INFO", "commandstats"]).text).expect("a text");
    let line = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let calls = rest.strip_prefix("calls=")?.split(',').next()?.parse().ok()?;
        Some((command.to_owned(), calls))
    };
    text.lines().filter_map(line).collect()
}

/// The commands within the scripts that `work` runs.
fn commands(name: &mut Name, work: impl FnOnce(&mut Name)) -> (u64, String) {
    name.command(&["CONFIG", "RESETSTAT"]);
    work(name);
    let mut stats = stats(name);
    // The clock is read once for each script, as the library's own floor.
    let scripts = stats.remove("evalsha").expect("a script ran");
    stats.retain(|command, _| !command.starts_with("config") && command != "info");
    // The counter of tokens is written only when the clock has left it behind. Then the script also reads the clock.
    let written = stats.remove("set").unwrap_or(0);
    let count: u64 = stats.values().sum();
    let list = stats.iter().map(|(command, calls)| format!("{command} {calls}"));
    (count - scripts - written, list.collect::<Vec<_>>().join(", "))
}

#[test]
fn an_uncontended_pair_takes_at_most_five_commands_and_three() {
    for (kind, part) in [(LOCK, 1), (FAIR, 1), (RW, ALL), (RW, 1), (("semaphore", 64), 3)] {
        really(kind, |name| {
            name.acquire("a:1", &crate::name::part(part));
            name.release("a:1");
            let ask = crate::name::part(part);
            let (take, took) =
                commands(name, |name| assert!(name.acquire("a:1", &ask).is_granted()));
            let (give, gave) = commands(name, |name| assert!(name.release("a:1")));
            println!(
                "{kind:?}, {part}: {take} to take it ({took}), {give} to give it back ({gave}); one TIME each is ours"
            );
            let most = if kind == LOCK { (4, 2) } else { (5, 3) };
            assert!(take <= most.0 && give <= most.1, "{kind:?}: {take} and {give}");
        });
    }
}

#[test]
fn a_turn_from_client_to_client_costs_the_same_however_many_wait() {
    let mut counts = Vec::new();
    for crowd in [5, 50, 500] {
        really(LOCK, |name| {
            name.waiter_ttl = 60_000;
            name.all_listen();
            let field = |n: usize| format!("client{n}:1");
            for n in 0..crowd {
                name.lock(&field(n));
            }
            let (count, list) = commands(name, |name| {
                for n in 0..crowd {
                    assert!(name.release(&field(n)));
                    name.lock(&field(n + crowd));
                }
            });
            let turn = count as f64 / crowd as f64;
            println!("{crowd} clients: {turn:.1} commands a turn ({list})");
            counts.push(turn);
        });
    }
    assert!(counts[2] < counts[0] * 1.3, "{counts:?}");
    assert!(counts.iter().all(|turn| *turn < 25.0), "{counts:?}");
}

/// A crowd has died with permits of a semaphore that Java shares. No call may stop the server for all others.
#[test]
fn thousands_of_dead_permits_come_back_in_calls_of_limited_length() {
    const DEAD: usize = 5_000;
    for (kind, each) in [("semaphore", 2), ("expirable", 1)] {
        really((kind, 0), |name| {
            let permits = DEAD * each;
            let keys =
                ["lock:grants", "a", "lock_permits:{a}", "lock_notes:{a}"].map(str::to_owned);
            name.command(&["SET", "a", "0"]);
            for n in 0..DEAD {
                name.command(&["ZADD", &keys[2], "1", &format!("dead:{n}")]);
                if kind == "semaphore" {
                    name.command(&["HSET", &keys[3], &format!("dead:{n}"), &each.to_string()]);
                }
            }
            let call = |name: &mut Name, script: &Script, rest: &[&str]| {
                let (floor, all) = (name.floor(), permits.to_string());
                let head = [&*floor, kind, &all, "redisson_sc:{a}", "0", "900"];
                let argv: Vec<_> = head.iter().chain(rest).map(|word| (*word).to_owned()).collect();
                let answer = name.stage.run(name.boss, script, &keys, &argv);
                answer.items.iter().map(Frame::number).collect::<Vec<_>>()
            };
            for n in 1..=5 {
                let (count, list) = commands(name, |name| {
                    let field = format!("c:{n}");
                    let taken =
                        call(name, &scripts::REDISSON_SEMAPHORE_ACQUIRE, &[&field, "1", "30000"]);
                    assert_eq!(taken[0], 1, "{kind}");
                });
                println!("{kind}, call {n}: {count} commands ({list})");
                assert!(count < 1_100, "{kind}, call {n}: {count} commands ({list})");
                let [_, used, all] = call(name, &scripts::REDISSON_SEMAPHORE_STATUS, &[])[..]
                else {
                    panic!("three numbers")
                };
                assert_eq!(all - used, (permits - n) as i64, "{kind}: the dead hold none of them");
            }
            assert_eq!(name.number(&["ZCARD", &keys[2]]), 5, "{kind}: only the living are left");
            let free = String::from_utf8(name.command(&["GET", "a"]).text).unwrap();
            assert_eq!(free, (permits - 5).to_string(), "{kind}: all have come back");
        });
    }
}

/// The most commands that one call of a script takes, and how many calls there are until `call` says that it was the last.
fn longest(name: &mut Name, what: &str, mut call: impl FnMut(&mut Name) -> bool) -> (u64, usize) {
    let (mut longest, mut calls, mut goes_on) = ((0, String::new()), 0, true);
    while goes_on {
        longest = commands(name, |name| goes_on = call(name)).max(longest);
        calls += 1;
    }
    println!("{what}: {calls} calls, the longest takes {} commands ({})", longest.0, longest.1);
    (longest.0, calls)
}

#[test]
fn ten_thousand_readers_are_let_in_by_short_calls() {
    const READERS: usize = 10_000;
    really(RW, |name| {
        name.waiter_ttl = 600_000;
        name.all_listen();
        name.acquire("w:1", &Ask { lease: 86_400_000, ..part(ALL) });
        let ask = Ask { lease: 86_400_000, ..part(1) };
        for n in 0..READERS {
            name.acquire(&format!("r{n}:1"), &ask);
        }
        let mut calls = 0;
        let let_in = longest(name, "10,000 readers let in", |name| {
            if calls == 0 {
                name.release("w:1");
            } else {
                // All that were told to look.
                name.acquire(&format!("r{}:1", calls * 64), &part(1));
            }
            calls += 1;
            name.number(&["ZCARD", "lock_queue:{a}"]) > 0
        });
        assert!(let_in.0 < BOUND);
        assert!(let_in.1 < READERS / 50, "64 a call: {let_in:?}");
        assert_eq!(name.status()[1], READERS as i64);
        let mut left = 100;
        let releases = longest(name, "one of 10,000 readers leaves", |name| {
            left -= 1;
            assert!(name.release(&format!("r{left}:1")));
            left > 0
        });
        assert!(releases.0 < BOUND);
    });
}

/// Somebody deletes the notes of a line. Nobody in it can be read any more: they are told, and make room.
#[test]
fn ten_thousand_places_without_notes_leave_by_short_calls() {
    const PLACES: usize = 10_000;
    for kind in [LOCK, FAIR] {
        really(kind, |name| {
            name.waiter_ttl = 600_000;
            name.all_listen();
            // No machine is so slow that it ends meanwhile.
            let whole = Ask { lease: 86_400_000, ..name.whole() };
            name.acquire("holder:1", &whole);
            for n in 0..PLACES {
                name.lock(&format!("c{}:{n}", n % 4));
            }
            name.command(&["DEL", "lock_notes:{a}"]);
            name.command(&["CONFIG", "RESETSTAT"]);
            // A release that is not finished is called again.
            assert!(name.release("holder:1"));
            let stats = stats(name);
            let (calls, all) = (stats["evalsha"], stats.values().sum::<u64>());
            println!("{kind:?}: 10,000 places without notes: {calls} calls, {all} commands");
            assert!(calls > PLACES as u64 / 100, "{kind:?}: {calls} calls");
            assert!(all / calls < BOUND, "{kind:?}: {all} commands in {calls} calls");
            assert_eq!(name.number(&["ZCARD", "lock_queue:{a}"]), 0, "{kind:?}");
        });
    }
}

#[test]
fn ten_thousand_writers_hand_over_by_short_calls() {
    const WRITERS: usize = 10_000;
    really(RW, |name| {
        name.waiter_ttl = 600_000;
        name.all_listen();
        let ask = Ask { lease: 86_400_000, ..part(ALL) };
        for n in 0..WRITERS {
            name.acquire(&format!("w{n}:1"), &ask);
        }
        let mut n = 0;
        let releases = longest(name, "a writer leaves 10,000 writers", |name| {
            assert!(name.release(&format!("w{n}:1")));
            n += 1;
            n < 200
        });
        assert!(releases.0 < BOUND);
        let mut n = 0;
        let signs = longest(name, "a sign of life among 10,000 writers", |name| {
            name.lock("w205:1");
            n += 1;
            n < 100
        });
        assert!(signs.0 < BOUND);
    });
}

#[test]
fn a_hundred_thousand_permits_of_the_dead_are_taken_away_by_short_calls() {
    const PERMITS: usize = 100_000;
    really(("semaphore", 1), |name| {
        name.capacity = PERMITS as u32;
        // As a hundred thousand acquires leave it whose leases are over.
        let over = name.stage.time(name.boss) / 1000 - 1000;
        for chunk in 0..100 {
            let mut words = vec!["ZADD".to_owned(), "lock:{a}".to_owned()];
            for n in 0..1000 {
                words.extend([over.to_string(), format!("dead{chunk}:{n}")]);
            }
            name.stage.ask(name.boss, &words);
        }
        let used = (PERMITS as i64 - (1 << 52)).to_string();
        name.command(&["ZADD", "lock:{a}", &used, &format!("#semaphore {PERMITS}")]);
        name.command(&["PEXPIRE", "lock:{a}", "600000"]);
        let mut n = 0;
        let acquires = longest(name, "a permit beside 100,000 of the dead", |name| {
            let answer = name.acquire(&format!("a:{n}"), &part(1));
            assert!(answer.is_granted(), "{answer:?}");
            n += 1;
            n < 300
        });
        assert!(acquires.0 < BOUND);
        let mut n = 0;
        let statuses = longest(name, "status beside 100,000 of the dead", |name| {
            name.status();
            n += 1;
            n < 100
        });
        assert!(statuses.0 < BOUND);
    });
}

/// A reader beside others, and a caller that asks for a held lock.
#[test]
fn a_reader_beside_others_and_a_waiter_take_few_commands() {
    really(RW, |name| {
        name.acquire("a:1", &part(1));
        let (take, took) = commands(name, |name| {
            assert!(matches!(name.acquire("b:1", &part(1)), Answer::Granted { .. }));
        });
        let (give, gave) = commands(name, |name| assert!(name.release("b:1")));
        println!("a reader beside another: {take} ({took}) and {give} ({gave})");
        // Giving back looks at the last lease too, so that the key ends with it.
        assert!(take <= 7 && give <= 6);
        let ask = Ask { part: ALL, ..Ask::default() };
        let (line_up, list) = commands(name, |name| _ = name.acquire("w:1", &ask));
        println!("a writer lines up: {line_up} ({list})");
        let (sign, list) = commands(name, |name| _ = name.acquire("w:1", &ask));
        println!("a sign of life: {sign} ({list})");
    });
}
