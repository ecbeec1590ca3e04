//! Holders whose clients have sessions, and the reign in which they have recorded that.

use std::time::Duration;

use crate::everywhere;
use crate::name::{FAIR, LOCK, Name, RW};

/// The client `h` has a patience of so many ms.
const PATIENCE: u64 = 500;
const HOLDER: &str = "h+500:1";
const RECORD: &str = "lock_notes:session:{h+500}";

/// What the server calls the reign that is now, as the library reads it.
fn reign(name: &mut Name) -> String {
    let said = name.command(&["INFO", "replication"]).text;
    let said = String::from_utf8(said).expect("a text");
    let reign = said.lines().find_map(|line| line.strip_prefix("master_replid:"));
    reign.expect("every server has one").trim().to_owned()
}

/// Whether a waiter has the lock, although the lease is not over, when it has looked twice and a patience has passed between. It lines up
/// without a look.
fn ends(name: &mut Name) -> bool {
    assert!(!name.lock("w:1").is_granted() && !name.lock("w:1").is_granted());
    name.stage.pass(Duration::from_millis(PATIENCE + 1));
    name.lock("w:1").is_granted()
}

#[test]
fn a_hold_ends_early_only_in_the_reign_that_its_client_has_recorded() {
    for kind in [LOCK, FAIR, RW] {
        everywhere(kind, |name| {
            let reign = reign(name);
            let another: String = reign.chars().rev().collect();
            for (record, ends_early) in [("", false), (&another, false), (&reign, true)] {
                name.command(&["FLUSHALL"]);
                if !record.is_empty() {
                    name.command(&["SET", RECORD, record]);
                }
                assert!(name.lock(HOLDER).is_granted());
                assert_eq!(ends(name), ends_early, "{kind:?}: {record}");
            }
        });
    }
}

/// The primary of that reign may have had its erasure.
#[test]
fn what_was_noted_in_another_reign_ends_no_hold() {
    for kind in [LOCK, FAIR, RW] {
        everywhere(kind, |name| {
            let reign = reign(name);
            let another: String = reign.chars().rev().collect();
            for (noted, ends_at_once) in [(&another, false), (&reign, true)] {
                name.command(&["FLUSHALL"]);
                name.command(&["SET", RECORD, &reign]);
                assert!(name.lock(HOLDER).is_granted() && !name.lock("w:1").is_granted());
                let note = format!("{noted} {HOLDER} 1");
                name.command(&["HSET", "lock_notes:{a}", "silent", &note]);
                assert_eq!(name.lock("w:1").is_granted(), ends_at_once, "{kind:?}: {noted}");
                name.stage.pass(Duration::from_millis(PATIENCE + 1));
                assert!(name.lock("w:1").is_granted(), "{kind:?}: {noted}");
            }
        });
    }
}

#[test]
fn nobody_ends_the_hold_of_a_client_that_listens() {
    for kind in [LOCK, FAIR, RW] {
        everywhere(kind, |name| {
            let reign = reign(name);
            name.command(&["SET", RECORD, &reign]);
            let listener = name.stage.connect();
            name.stage.ask(listener, &["HELLO", "3"]);
            name.stage.ask(listener, &["SUBSCRIBE", "lock_channel:session:{h+500}"]);
            assert!(name.lock(HOLDER).is_granted());
            assert!(!ends(name), "{kind:?}");
        });
    }
}
