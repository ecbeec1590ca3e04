//! What the judge reads in the server directly: who has something of a name, by Redis' own account.

use parklock::Layout;

use crate::plan::{Kind, Name};
use crate::station::Station;

/// The counter of the tokens.
pub const COUNTER: &str = "lock:grants";

/// A name as it stands in the keys of the native layout.
fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

/// The key that says who holds it.
pub fn key(layout: Layout, name: &Name) -> String {
    match (layout, name.kind) {
        (Layout::Native, _) => format!("lock:{{{}}}", escaped(&name.text)),
        (_, Kind::Permits(_)) if name.text.contains('}') => format!("lock_permits:{}:", name.text),
        (_, Kind::Permits(_)) => format!("lock_permits:{{{}}}", name.text),
        (_, Kind::Expirable(_)) => format!("{}:timeout", tagged(&name.text)),
        _ => name.text.clone(),
    }
}

/// Redisson's rule: a name that brings a brace brings its own hash tag.
fn tagged(name: &str) -> String {
    if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") }
}

/// The channel on which a release is told.
pub fn channel(layout: Layout, name: &Name) -> String {
    let tag = tagged(&name.text);
    match (layout, name.kind) {
        (Layout::Native, _) => format!("lock_channel:{{{}}}", escaped(&name.text)),
        (_, Kind::Rw) => format!("redisson_rwlock:{tag}"),
        (_, Kind::Permits(_) | Kind::Expirable(_)) => format!("redisson_sc:{tag}"),
        _ => format!("redisson_lock__channel:{tag}"),
    }
}

/// Where those who wait for themselves stand in their order.
pub fn queue(name: &Name) -> String {
    format!("lock_queue:{{{}}}", escaped(&name.text))
}

fn is_sorted_set(layout: Layout, kind: Kind) -> bool {
    match kind {
        Kind::Lock | Kind::Fenced => false,
        Kind::Fair | Kind::Rw => layout == Layout::Native,
        Kind::Permits(_) | Kind::Expirable(_) => true,
        Kind::Latch => false,
    }
}

/// The owner fields of those who hold something of it and whose leases are not over.
pub fn holders(station: &mut Station, layout: Layout, name: &Name) -> Vec<String> {
    let key = key(layout, name);
    if is_sorted_set(layout, name.kind) {
        let now = format!("({}", station.time() / 1_000);
        return station.list(&["ZRANGE", &key, &now, "+inf", "BYSCORE"]);
    }
    let fields = station.list(&["HKEYS", &key]);
    fields.into_iter().filter(|field| field != "mode").collect()
}
