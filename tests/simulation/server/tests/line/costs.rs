//! What the scripts cost a real server: commands, and time. The times are printed, with the processor's name.

use std::collections::BTreeMap;
use std::fs;

use crate::frame::Frame;
use crate::name::{ALL, Answer, Ask, FAIR, LOCK, Name, RW, part};
use crate::really;
use crate::scripts::{self, Script};

/// What an `EVALSHA` may take at the most, in microseconds, however many wait or hold.
const BOUND: u64 = 2_000;

/// Calls and microseconds of each command since the last reset.
fn stats(name: &mut Name) -> BTreeMap<String, (u64, u64)> {
    let text = String::from_utf8(name.command(&["INFO", "commandstats"]).text).expect("a text");
    let line = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let mut fields = rest.split(',').filter_map(|field| field.split_once('='));
        let mut number = |name| fields.find(|(field, _)| *field == name)?.1.parse().ok();
        Some((command.to_owned(), (number("calls")?, number("usec")?)))
    };
    text.lines().filter_map(line).collect()
}

fn reset(name: &mut Name) {
    name.command(&["CONFIG", "RESETSTAT"]);
}

/// The commands within the scripts that `work` runs.
fn commands(name: &mut Name, work: impl FnOnce(&mut Name)) -> (u64, String) {
    reset(name);
    work(name);
    let mut stats = stats(name);
    // The clock is read once for each script, as the library's own floor.
    let scripts = stats.remove("evalsha").expect("a script ran").0;
    stats.retain(|command, _| !command.starts_with("config") && command != "info");
    // The counter of tokens is written only when the clock has left it behind. Then the script also reads the clock.
    let written = stats.remove("set").map_or(0, |(calls, _)| calls);
    let count: u64 = stats.values().map(|(calls, _)| calls).sum();
    let list = stats.iter().map(|(command, (calls, _))| format!("{command} {calls}"));
    (count - scripts - written, list.collect::<Vec<_>>().join(", "))
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("a processor that does not say its name".into(), |(_, name)| name.to_owned())
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

/// The times of a script: of the quick tenth of its calls the longest, which a busy machine does not spoil, the middle one
/// and the longest of all; how many they are.
fn times(name: &mut Name, mut call: impl FnMut(&mut Name) -> bool) -> (u64, u64, u64, usize) {
    let mut times = Vec::new();
    loop {
        reset(name);
        let goes_on = call(name);
        let (calls, micros) = stats(name)["evalsha"];
        assert_eq!(calls, 1);
        times.push(micros);
        if !goes_on {
            break;
        }
    }
    times.sort_unstable();
    (times[times.len() / 10], times[times.len() / 2], times[times.len() - 1], times.len())
}

fn say(what: &str, (quick, middle, longest, calls): (u64, u64, u64, usize)) {
    println!(
        "{}: {what}: {calls} calls, a tenth within {quick} us, half within {middle} us, all within {longest} us",
        processor()
    );
    assert!(quick < BOUND, "{what}: {quick} us");
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
        let let_in = times(name, |name| {
            if calls == 0 {
                name.release("w:1");
            } else {
                // All that were told to look.
                name.acquire(&format!("r{}:1", calls * 64), &part(1));
            }
            calls += 1;
            name.number(&["ZCARD", "lock_queue:{a}"]) > 0
        });
        say("10,000 readers let in", let_in);
        assert!(let_in.3 < READERS / 50, "64 a call: {let_in:?}");
        assert_eq!(name.status()[1], READERS as i64);
        let mut left = 100;
        let releases = times(name, |name| {
            left -= 1;
            assert!(name.release(&format!("r{left}:1")));
            left > 0
        });
        say("one of 10,000 readers leaves", releases);
    });
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
        let releases = times(name, |name| {
            assert!(name.release(&format!("w{n}:1")));
            n += 1;
            n < 200
        });
        say("a writer leaves 10,000 writers", releases);
        let mut n = 0;
        let signs = times(name, |name| {
            name.lock("w205:1");
            n += 1;
            n < 100
        });
        say("a sign of life among 10,000 writers", signs);
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
        let acquires = times(name, |name| {
            let answer = name.acquire(&format!("a:{n}"), &part(1));
            assert!(answer.is_granted(), "{answer:?}");
            n += 1;
            n < 300
        });
        say("a permit beside 100,000 of the dead", acquires);
        let mut n = 0;
        let statuses = times(name, |name| {
            name.status();
            n += 1;
            n < 100
        });
        say("status beside 100,000 of the dead", statuses);
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

/// The least that a lock by Lua can do: as it is usually written, with a count and a message to everybody.
const FLOOR_ACQUIRE: &str = "
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";
const FLOOR_RELEASE: &str = "
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then return 0 end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return 1";

/// A way to acquire and to release.
type Pair<'a> = &'a dyn Fn(&mut Name);

/// The server's microseconds for each of these pairs, in the quietest of many short rounds, which take turns.
fn pair_micros<const N: usize>(name: &mut Name, pairs: [Pair<'_>; N]) -> [f64; N] {
    const PAIRS: u32 = 50;
    let mut best = [f64::INFINITY; N];
    for _ in 0..100 {
        for (pair, best) in pairs.iter().zip(&mut best) {
            reset(name);
            (0..PAIRS).for_each(|_| pair(name));
            *best = best.min(stats(name)["evalsha"].1 as f64 / f64::from(PAIRS));
        }
    }
    best
}

#[test]
fn the_server_time_of_a_pair_is_printed() {
    really(LOCK, |name| {
        let load = |name: &mut Name, text| {
            String::from_utf8(name.command(&["SCRIPT", "LOAD", text]).text).expect("a hash")
        };
        let (acquire, release) = (load(name, FLOOR_ACQUIRE), load(name, FLOOR_RELEASE));
        name.lock("a:1");
        name.release("a:1");
        let floor = |name: &mut Name| {
            name.command(&["EVALSHA", &acquire, "1", "lock:{a}", "30000", "client:1"]);
            let channel = "lock_channel:{a}";
            name.command(&["EVALSHA", &release, "2", "lock:{a}", channel, "0", "client:1"]);
        };
        let plain = |name: &mut Name| {
            assert_eq!(name.take("a:1").0, 1);
            assert!(name.release("a:1"));
        };
        let alone = |name: &mut Name| {
            assert!(name.lock("a:1").is_granted());
            assert!(name.release("a:1"));
        };
        let [floor, plain, alone] = pair_micros(name, [&floor, &plain, &alone]);
        println!(
            "{}: server time of a pair: floor {floor:.1} us, plain {plain:.1} us, by the call that may wait {alone:.1} us",
            processor()
        );
        // A machine that is busy measures anything; three times as much would be another script.
        assert!(plain < floor * 3.0, "{plain} us, the floor takes {floor} us");
    });
    for (kind, part) in [(FAIR, 1), (RW, ALL), (RW, 1), (("semaphore", 64), 3)] {
        really(kind, |name| {
            let ask = crate::name::part(part);
            name.acquire("a:1", &ask);
            name.release("a:1");
            let pair = |name: &mut Name| {
                assert!(name.acquire("a:1", &ask).is_granted());
                assert!(name.release("a:1"));
            };
            let [pair] = pair_micros(name, [&pair]);
            println!("{}: server time of a pair: {kind:?}, {part}: {pair:.1} us", processor());
        });
    }
}
