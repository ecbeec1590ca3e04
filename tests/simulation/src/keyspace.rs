//! What the judge reads directly in the server: the holders and waiters of a name, by Redis' own account.

use std::collections::BTreeSet;

use parklock::Layout;
use parklock_simulated_server::{Content, Entry, Reply};

use crate::plan::{Kind, Name, WITHIN};
use crate::station::Station;

/// Whether a key counts tokens: all of them, or in a cluster those of a slot.
pub fn is_counter(key: &str) -> bool {
    let key = within(key);
    key == "lock:grants" || key.starts_with("lock:grants:{")
}

/// A key without its namespace.
fn within(key: &str) -> &str {
    key.strip_prefix(WITHIN).and_then(|key| key.strip_prefix(':')).unwrap_or(key)
}

/// A name as it stands in the keys of the native layout.
fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

/// The key of the holders.
pub fn key(layout: Layout, name: &Name) -> String {
    // In Redisson's layout, a namespace maps names.
    let mapped = name.label();
    match (layout, name.kind) {
        (Layout::Native, _) => format!("{}lock:{{{}}}", name.prefix(), escaped(&name.text)),
        (_, Kind::Permits(_)) if mapped.contains('}') => format!("lock_permits:{mapped}:"),
        (_, Kind::Permits(_)) => format!("lock_permits:{{{mapped}}}"),
        (_, Kind::Expirable(_)) => format!("{}:timeout", tagged(&mapped)),
        _ => mapped,
    }
}

/// Redisson's rule: a name that brings a brace brings its own hash tag.
fn tagged(name: &str) -> String {
    if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") }
}

/// The channel on which a release is told.
pub fn channel(layout: Layout, name: &Name) -> String {
    let tag = tagged(&name.label());
    match (layout, name.kind) {
        (Layout::Native, _) => {
            format!("{}lock_channel:{{{}}}", name.prefix(), escaped(&name.text))
        }
        (_, Kind::Rw) => format!("redisson_rwlock:{tag}"),
        (_, Kind::Permits(_) | Kind::Expirable(_)) => format!("redisson_sc:{tag}"),
        _ => format!("redisson_lock__channel:{tag}"),
    }
}

/// The key of the line, in which waiters stand in their order.
pub fn queue(name: &Name) -> String {
    format!("{}lock_queue:{{{}}}", name.prefix(), escaped(&name.text))
}

/// The key of the notes of the line.
pub fn notes(name: &Name) -> String {
    format!("{}lock_notes:{{{}}}", name.prefix(), escaped(&name.text))
}

/// Whether a key remembers for minutes that a latch was counted down, that a condition was notified, or that permits were
/// set; or for a day where a client with a session was that has died.
pub fn remembers(key: &str, content: &Content) -> bool {
    let is_set = match content {
        Content::Hash(fields) => fields.iter().any(|(field, _)| field == b"set"),
        _ => false,
    };
    let key = within(key);
    key.starts_with("lock_requests:")
        || key.starts_with("lock_notes:session:{")
        || key.starts_with("lock_notes:") && (key.ends_with(":requests") || is_set)
}

/// So much later than their own end the places of our clients stand in Redisson's fair queue: see
/// lua/redisson/fair/fair.lua.
const SKEW: f64 = 5_000.0;

/// The keys of Redisson's fair queues in which no live waiter stands. A waiter that crashed stands there until the
/// next client asks, or for a day: Redisson's own clients may be the only ones that come, and they rely on it.
pub fn dead_places(all: &[Entry], time: u64) -> BTreeSet<String> {
    let now = (time / 1_000) as f64;
    let text = |entry: &Entry| String::from_utf8_lossy(&entry.key).into_owned();
    let mut dead = BTreeSet::new();
    for entry in all {
        let (key, Content::Zset(deadlines)) = (text(entry), &entry.content) else { continue };
        let Some(name) = key.strip_prefix("redisson_lock_timeout:") else { continue };
        if deadlines.iter().any(|(_, end)| end - SKEW > now) {
            continue;
        }
        let queue = format!("redisson_lock_queue:{name}");
        let is_known = |field: &Vec<u8>| deadlines.iter().any(|(known, _)| known == field);
        let is_over = |entry: &Entry| match &entry.content {
            Content::List(fields) => text(entry) == queue && fields.iter().all(is_known),
            _ => false,
        };
        if all.iter().any(is_over) {
            dead.insert(queue);
        }
        dead.insert(key);
    }
    dead
}

/// The owner fields of the waiters, where they stand in the server.
pub fn waiters(station: &mut Station, layout: Layout, name: &Name) -> Vec<String> {
    match (layout, name.kind) {
        (_, Kind::Latch) => Vec::new(),
        (Layout::Native, _) => station.list(&["ZRANGE", &queue(name), "0", "-1"]),
        (_, Kind::Fair) => {
            let queue = format!("redisson_lock_queue:{}", tagged(&name.label()));
            station.list(&["LRANGE", &queue, "0", "-1"])
        }
        _ => Vec::new(),
    }
}

fn is_sorted_set(layout: Layout, kind: Kind) -> bool {
    match kind {
        Kind::Lock | Kind::Fenced => false,
        Kind::Fair | Kind::Rw => layout == Layout::Native,
        Kind::Permits(_) | Kind::Expirable(_) => true,
        Kind::Latch => false,
    }
}

/// How much this holder has in a native name. What it has is noted if it is more than one: see lua/line/zset.lua.
pub fn part(station: &mut Station, name: &Name, field: &str) -> u64 {
    let key = key(Layout::Native, name);
    match station.execute(&["ZSCORE", &key, &format!("={field}")]) {
        Reply::Double(part) => -part as u64,
        _ => 1,
    }
}

/// The owner fields of the holders whose leases are not over.
pub fn holders(station: &mut Station, layout: Layout, name: &Name) -> Vec<String> {
    let key = key(layout, name);
    if is_sorted_set(layout, name.kind) {
        let now = format!("({}", station.time() / 1_000);
        return station.list(&["ZRANGE", &key, &now, "+inf", "BYSCORE"]);
    }
    let fields = station.list(&["HKEYS", &key]);
    fields.into_iter().filter(|field| field != "mode").collect()
}
