//! What the server refuses has done nothing, and leaves nothing without a TTL.

use crate::name::{
    Answer, Ask, CONDITION, FAIR, LEASE, LOCK, Name, RW, SEMAPHORE, asks, once, part,
};
use crate::stage::Client;
use crate::{everywhere, in_virtual_time, really};

const EXCLUSIVE: [(&str, u32); 3] = [LOCK, FAIR, RW];

/// A full memory: whatever needs more is refused.
fn fill_memory(name: &mut Name, full: bool) {
    name.command(&["CONFIG", "SET", "maxmemory", if full { "1" } else { "0" }]);
}

fn error(answer: Answer) -> String {
    match answer {
        Answer::Error(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn with_a_full_memory_nobody_takes_it_and_everybody_gives_it_back() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            if !name.stage.is_real() {
                return;
            }
            let listener = name.listener("abc");
            fill_memory(name, true);
            let refused = name.lock("a:1");
            assert!(error(refused).contains("OOM"), "{kind:?}");
            assert_eq!(name.keys_left(), [""; 0]);
            fill_memory(name, false);
            name.lock("a:1");
            name.lock("b:1");
            fill_memory(name, true);
            assert!(name.lock("b:1").is_near(), "a waiter stays");
            assert!(name.release("a:1"));
            assert_eq!(name.words(listener), ["b:1=@7"], "after a release everything is allowed");
            assert!(name.renew("b:1"));
            assert!(name.release("b:1"));
            assert_eq!(name.keys_left(), [""; 0]);
        });
    }
}

#[test]
fn a_replica_refuses_everything() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            if !name.stage.is_real() {
                return;
            }
            name.lock("a:1");
            name.lock("b:1");
            name.command(&["REPLICAOF", "127.0.0.1", "1"]);
            let now = Ask { part: name.capacity, ..once() };
            for field in ["a:1", "b:1", "c:1"] {
                let refused = name.lock(field);
                assert!(error(refused).contains("READONLY"), "{kind:?} {field}");
                let refused = name.acquire(field, &now);
                assert!(error(refused).contains("READONLY"), "{kind:?} {field}");
            }
            name.command(&["REPLICAOF", "NO", "ONE"]);
            assert_eq!(name.number(&["ZCOUNT", "lock_queue:{a}", "0", "+inf"]), 1, "b, as before");
            assert!(name.release("a:1"));
        });
    }
}

/// A connection whose user keeps all permissions. It takes permissions from the user of all other connections.
fn boss_of(name: &mut Name) -> Client {
    let boss = name.stage.connect();
    name.stage.ask(boss, &["ACL", "SETUSER", "boss", "on", "nopass", "~*", "&*", "+@all"]);
    assert_eq!(name.stage.ask(boss, &["AUTH", "boss", ""]).text, b"OK");
    boss
}

#[test]
fn a_user_without_a_permission_leaves_nothing_without_a_ttl() {
    // A waiter of a condition that comes back and has lost its place is woken.
    let comes_back = Ask { place: 5, ..part(1) };
    let new = EXCLUSIVE.map(|kind| (kind, part(kind.1)));
    for (kind, ask) in new.into_iter().chain([(CONDITION, part(1)), (CONDITION, comes_back)]) {
        everywhere(kind, |name| {
            if !name.stage.is_real() {
                return;
            }
            let boss = boss_of(name);
            let commands = [
                "exists", "set", "incrby", "hset", "pexpire", "pttl", "zadd", "hdel", "zrem",
                "time", "hmget", "zrange", "zscore", "zmscore", "del", "hlen", "publish",
            ];
            for command in commands {
                name.stage.ask(boss, &["ACL", "SETUSER", "default", &format!("-{command}")]);
                name.stage.ask(boss, &["DEL", "lock:{a}", "lock_queue:{a}", "lock_notes:{a}"]);
                for field in ["a:1", "b:1"] {
                    let words = asks("1", kind, 900, field, &ask);
                    let script = match kind {
                        LOCK => &crate::scripts::LOCK_ACQUIRE,
                        CONDITION => &crate::scripts::CONDITION_ACQUIRE,
                        _ => &crate::scripts::LINE_ACQUIRE,
                    };
                    name.stage.run(name.boss, script, &Name::keys(), &words);
                }
                for key in &Name::keys()[1..] {
                    let ttl = name.stage.ask(boss, &["PTTL", key]).number();
                    assert_ne!(ttl, -1, "{kind:?} {ask:?}: without {command}, {key} has no TTL");
                }
                name.stage.ask(boss, &["ACL", "SETUSER", "default", &format!("+{command}")]);
            }
        });
    }
}

/// The lock has just been lost, or is taken away in the same call: so the hold of the next one is in a new key.
#[test]
fn a_user_without_a_permission_who_lets_others_in_leaves_nothing_without_a_ttl() {
    for kind in [FAIR, RW, SEMAPHORE, CONDITION] {
        really(kind, |name| {
            let boss = boss_of(name);
            let commands = [
                "exists", "pexpire", "pttl", "zadd", "zrem", "zrange", "zscore", "zmscore",
                "zcount", "zcard", "hmget", "hset", "hdel", "del", "incrby", "publish",
            ];
            let calls: &[_] = match kind {
                CONDITION => &["one", "all"],
                SEMAPHORE => &["force_unlock", "release", "status", "resize"],
                _ => &["force_unlock", "release", "status"],
            };
            for (call, command) in calls.iter().flat_map(|call| commands.map(|it| (call, it))) {
                if kind == CONDITION {
                    let words = asks(&name.floor(), kind, 900, "b:1", &part(1));
                    let script = &crate::scripts::CONDITION_ACQUIRE;
                    name.stage.run(name.boss, script, &Name::keys(), &words);
                } else {
                    name.lock("a:1");
                    name.lock("b:1").place();
                }
                if matches!(*call, "release" | "status" | "resize") {
                    name.command(&["DEL", "lock:{a}"]);
                }
                name.stage.ask(boss, &["ACL", "SETUSER", "default", &format!("-{command}")]);
                match *call {
                    "force_unlock" => _ = name.call(&crate::scripts::LINE_FORCE_UNLOCK, &[]),
                    "release" => _ = name.run_release("a:1", &[]),
                    "status" => _ = name.call(&crate::scripts::LINE_STATUS, &[]),
                    "resize" => _ = name.call(&crate::scripts::LINE_RESIZE, &["5"]),
                    whom => {
                        let order = ["x:1", "60000", whom];
                        name.call(&crate::scripts::CONDITION_NOTIFY, &order);
                    }
                }
                for key in name.stage.ask(boss, &["KEYS", "lock*{a}*"]).items {
                    let ttl = name.stage.ask(boss, &[&b"PTTL"[..], &key.text]).number();
                    assert_ne!(ttl, -1, "{call} without {command}: {key:?} has no TTL");
                }
                name.stage.ask(boss, &["ACL", "SETUSER", "default", &format!("+{command}")]);
                name.command(&["FLUSHALL"]);
            }
        });
    }
}

/// Whoever sends an order again learns what became of it.
#[test]
fn a_user_without_a_permission_gives_an_order_to_a_latch_as_a_whole_or_not_at_all() {
    const LATCH: (&str, u32) = ("latch", 0);
    // The count before (0: there is no latch), the order, and what is answered to it.
    const ORDERS: [(u8, &[&str], i64); 5] = [
        (0, &["set", "3", "60000"], 1),
        (0, &["set", "0", "60000"], 1),
        (3, &["count_down"], 2),
        (1, &["count_down"], 0),
        (3, &["delete"], 1),
    ];
    really(LATCH, |name| {
        let boss = boss_of(name);
        for script in [&crate::scripts::LATCH_ORDER, &crate::scripts::REDISSON_LATCH_ORDER] {
            let commands =
                ["set", "del", "decr", "pexpire", "pttl", "zadd", "zrange", "zscore", "zcard"];
            let each = ORDERS.iter().flat_map(|it| commands.map(|command| (it, command)));
            for (&(count, order, expected), command) in each {
                let call = |name: &mut Name, request: &str, order: &[&str]| {
                    name.call(script, &[&[request, "60000"], order].concat())
                };
                if count > 0 {
                    call(name, "x:1", &["set", &count.to_string(), "60000"]);
                }
                let before = name.command(&["GET", "lock:{a}"]).text;
                name.stage.ask(boss, &["ACL", "SETUSER", "default", &format!("-{command}")]);
                let refused = call(name, "x:2", order).kind == b'-';
                name.stage.ask(boss, &["ACL", "SETUSER", "default", &format!("+{command}")]);
                for key in name.stage.ask(boss, &["KEYS", "lock*{a}*"]).items {
                    let ttl = name.stage.ask(boss, &[&b"PTTL"[..], &key.text]).number();
                    assert_ne!(ttl, -1, "{order:?} without {command}: {key:?} has no TTL");
                }
                if refused {
                    let after = name.command(&["GET", "lock:{a}"]).text;
                    assert_eq!(before, after, "{order:?} without {command} is refused");
                    let again = call(name, "x:2", order).items[0].number();
                    assert_eq!(again, expected, "{order:?} without {command}, and again");
                }
                name.command(&["FLUSHALL"]);
            }
        }
    });
}

#[test]
fn a_key_of_another_type_is_refused_and_left_alone() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            name.command(&["SET", "lock:{a}", "text"]);
            let refused = name.lock("a:1");
            assert!(error(refused).contains("WRONGTYPE"), "{kind:?}");
            assert_eq!(name.keys_left(), ["lock:{a}"]);
        });
    }
}

#[test]
fn a_name_has_one_kind() {
    everywhere(FAIR, |name| {
        name.lock("a:1");
        name.lock("b:1");
        let words = asks(&name.floor(), ("rw", 1_073_741_824), 900, "c:1", &Ask::default());
        let frame = name.stage.run(name.boss, &crate::scripts::LINE_ACQUIRE, &Name::keys(), &words);
        assert!(String::from_utf8_lossy(&frame.text).contains("CONFLICT fair"), "{frame:?}");
        name.release("a:1");
        name.release("b:1");
        let frame = name.stage.run(name.boss, &crate::scripts::LINE_ACQUIRE, &Name::keys(), &words);
        assert_eq!(frame.kind, b':', "nobody holds or waits: {frame:?}");
    });
}

/// The number of permits is remembered for thirty days, and nobody uses the semaphore any more.
#[test]
fn a_plain_lock_whose_name_was_that_of_a_semaphore_is_taken_and_waited_for() {
    everywhere(SEMAPHORE, |name| {
        name.resize(5);
        (name.kind, name.capacity) = LOCK;
        assert_eq!(name.take("a:1").0, 1, "taken, without a look at the notes");
        name.lock("b:1").place();
        name.release("a:1");
        name.release("b:1");
    });
}

/// The lease of the holder of a permit is over, and its waiter has not looked yet.
#[test]
fn a_multi_lock_over_the_name_of_a_semaphore_lets_no_waiter_of_it_in() {
    in_virtual_time(SEMAPHORE, |name| {
        name.acquire("a:1", &Ask { lease: 100, ..name.whole() });
        name.acquire("b:1", &part(1));
        name.pass(101);
        assert_eq!(name.take_all("c:1"), -1, "refused");
        assert!(name.acquire("b:1", &part(1)).is_granted());
        name.release("b:1");
    });
}

/// The same, and the release of a cancelled acquire finds nothing to give back.
#[test]
fn a_release_of_a_plain_lock_lets_in_no_waiter_of_another_kind() {
    in_virtual_time(SEMAPHORE, |name| {
        name.acquire("a:1", &Ask { lease: 100, ..name.whole() });
        name.acquire("b:1", &part(1));
        name.pass(101);
        (name.kind, name.capacity) = LOCK;
        assert!(!name.release("c:1"), "nothing to give back");
        (name.kind, name.capacity) = SEMAPHORE;
        assert!(name.acquire("b:1", &part(1)).is_granted());
        name.release("b:1");
    });
}

/// Somebody has persisted the keys. A caller that is refused half-way undoes its own writes, and no others.
#[test]
fn a_refused_caller_deletes_no_keys_of_others() {
    for kind in EXCLUSIVE {
        everywhere(kind, |name| {
            if !name.stage.is_real() {
                return;
            }
            let boss = boss_of(name);
            name.lock("a:1");
            name.lock("b:1");
            for key in &Name::keys()[1..] {
                name.command(&["PERSIST", key]);
            }
            name.stage.ask(boss, &["ACL", "SETUSER", "default", "-pexpire"]);
            error(name.lock("c:1"));
            name.stage.ask(boss, &["ACL", "SETUSER", "default", "+pexpire"]);
            assert!(name.release("a:1"), "{kind:?}: it still holds");
            assert!(name.release("b:1"), "{kind:?}: it waited, and holds");
            assert_eq!(name.keys_left(), [""; 0]);
        });
    }
}

/// Somebody has persisted the key. If it then lived as long as the lease of whoever comes or renews, it would take the longer holds along.
#[test]
fn a_key_without_a_ttl_lives_as_long_as_the_longest_lease_from_the_next_call_on() {
    const LONGER: u64 = 100 * LEASE;
    for kind in [RW, SEMAPHORE] {
        for call in ["one", "one of several", "renewal"] {
            everywhere(kind, |name| {
                let longer = Ask { lease: LONGER, ..part(1) };
                assert!(name.acquire("a:1", &longer).is_granted());
                if call == "renewal" {
                    assert!(name.acquire("b:1", &part(1)).is_granted());
                }
                name.command(&["PERSIST", "lock:{a}"]);
                let is_done = match call {
                    "one" => name.acquire("b:1", &part(1)).is_granted(),
                    "one of several" => {
                        name.acquire_as_one_of_several("b:1", &part(1)).is_granted()
                    }
                    _ => name.renew("b:1"),
                };
                assert!(is_done, "{kind:?}, {call}");
                let ttl = name.number(&["PTTL", "lock:{a}"]);
                assert!(ttl > LONGER as i64 / 2, "{kind:?}, {call}: {ttl}");
                assert!(name.release("a:1") && name.release("b:1"), "{kind:?}, {call}");
                assert_eq!(name.keys_left(), [""; 0]);
            });
        }
    }
}

#[test]
fn a_permit_whose_expiry_is_refused_is_not_in_use() {
    really(SEMAPHORE, |name| {
        let boss = boss_of(name);
        assert!(name.acquire("a:1", &Ask { lease: 500, ..part(1) }).is_granted());
        name.stage.ask(boss, &["ACL", "SETUSER", "default", "-pexpire"]);
        error(name.acquire("b:1", &part(1)));
        name.stage.ask(boss, &["ACL", "SETUSER", "default", "+pexpire"]);
        assert_eq!(name.status()[1], 1, "only the first");
        assert!(name.release("a:1") && !name.release("b:1"));
        assert_eq!(name.keys_left(), [""; 0]);
    });
}

/// F31: the scores of another program's sorted set are no ends of leases.
#[test]
fn a_sorted_set_of_another_program_is_held_by_somebody_else_and_left_alone() {
    for kind in [FAIR, RW, SEMAPHORE] {
        everywhere(kind, |name| {
            name.command(&["ZADD", "lock:{a}", "1", "one", "2", "two"]);
            assert_eq!(name.status()[0], -1, "held, without an end");
            assert_eq!(name.acquire("a:1", &once()), Answer::Held { ttl: -1 });
            assert!(matches!(name.lock("a:1"), Answer::Waits { ttl: -1, .. }), "{kind:?}");
            assert!(!name.release("a:1"));
            assert_eq!(name.keys_left(), ["lock:{a}"]);
            assert_eq!(name.number(&["ZCARD", "lock:{a}"]), 2);
            assert_eq!(name.number(&["PTTL", "lock:{a}"]), -1);
        });
    }
}

/// A capacity that was set is remembered for thirty days. Only a lock that takes its name ends that.
#[test]
fn a_look_at_the_name_of_a_semaphore_as_another_kind_forgets_no_permits() {
    everywhere(SEMAPHORE, |name| {
        name.resize(5);
        for kind in [FAIR, RW] {
            (name.kind, name.capacity) = kind;
            assert_eq!(name.status()[..2], [-2, 0], "free");
            assert_eq!(name.force_unlock(), 0);
            assert!(!name.release("a:1"));
        }
        (name.kind, name.capacity) = LOCK;
        assert_eq!(name.force_unlock(), 0);
        (name.kind, name.capacity) = SEMAPHORE;
        assert_eq!(name.status(), [-2, 0, 5]);
        (name.kind, name.capacity) = FAIR;
        assert!(name.lock("a:1").is_granted());
        name.lock("b:1").place();
        assert!(name.release("a:1") && name.release("b:1"));
        assert_eq!(name.keys_left(), [""; 0], "the name was that of a fair lock");
        name.assert_all_end();
    });
}
