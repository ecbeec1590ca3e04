//! Locks in Redisson's layout. A name is a key there, and only its value tells what it is for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parklock::Layout;
use parklock::operator::{self, Namespaces, Part, Place};
use redis::{Value, pipe};

use crate::failure::Failure;
use crate::inventory::glob::fits;
use crate::inventory::lock::{FullName, Holder, Lock, MOST_HOLDERS, is_owner, millis};
use crate::inventory::scan::{pairs, scan, scored};
use crate::servers::{Server, needed, value};

/// How many fields of a hash the tool reads to see whether they are owners. Another program's hash may be large.
const SAMPLE: usize = 8;
/// The one field of a read-write lock that is not an owner.
const MODE: &str = "mode";

/// The names of a server that match a pattern.
pub(crate) async fn names(
    server: &Server,
    namespaces: &Namespaces,
    pattern: &str,
) -> Result<BTreeSet<FullName>, Failure> {
    // Here the namespace is the beginning of a name, and no key says where it ends.
    let namespace = namespaces.name();
    let prefix = namespace.map_or(String::new(), |namespace| format!("{namespace}:"));
    let pattern = operator::literal(&prefix) + pattern;
    let of =
        |name: String| Some((namespace.map(str::to_owned), name.strip_prefix(&prefix)?.to_owned()));
    Ok(mapped(server, &pattern).await?.into_iter().filter_map(of).collect())
}

/// The names that match a pattern, each with its namespace before it.
async fn mapped(server: &Server, pattern: &str) -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::new();
    scan(server, pattern, Some("hash"), |key| {
        if operator::part_of(key).is_none() {
            names.insert(key.to_owned());
        }
    })
    .await?;
    for (keys, kind) in operator::redisson_patterns() {
        // A name with braces has a key of another form. So no single pattern for SCAN finds the keys of all names that
        // fit, and the tool compares the names itself.
        scan(server, &keys, Some(kind), |key| {
            let name = match operator::part_of(key) {
                Some((Part::Permits, name)) => name,
                // The fair locks `a` and `{a}` have the same queue.
                Some((Part::FairLine, name)) if !names.contains(&format!("{{{name}}}")) => name,
                _ => return,
            };
            if fits(pattern.as_bytes(), name.as_bytes()) {
                names.insert(name);
            }
        })
        .await?;
    }
    Ok(names)
}

/// The keys and channels of a name: each kind has its own.
struct Places {
    fair: Place,
    fenced: Place,
    rw: Place,
    semaphore: Place,
}

impl Places {
    fn of((namespace, name): &FullName, server: &Server) -> Result<Self, Failure> {
        let name = (namespace.as_deref(), name.as_str());
        let of = |kind| operator::place(Layout::Redisson, kind, name, server.space);
        Ok(Self {
            fair: of("fair")?,
            fenced: of("fenced")?,
            rw: of("rw")?,
            semaphore: of("semaphore")?,
        })
    }
}

/// A lock, before its holders are known.
struct Sight {
    lock: Lock,
    /// How many fields it has, if it is a hash.
    fields: Option<u64>,
    semaphore: Place,
}

pub(crate) async fn locks(server: &Server, names: &[FullName]) -> Result<Vec<Lock>, Failure> {
    let now = server.clock().await?.as_millis() as u64;
    let mut seen = sights(server, names, now).await?;
    read_holders(server, &mut seen, now).await?;
    read_permits(server, &mut seen).await?;
    let locks = seen.into_iter().map(|sight| sight.lock);
    Ok(locks
        .filter(|lock| lock.held_by > 0 || lock.kind == "fair" || lock.interval.is_some())
        .collect())
}

/// The keys that look like locks.
async fn sights(server: &Server, names: &[FullName], now: u64) -> Result<Vec<Sight>, Failure> {
    let (mut asked, mut places) = (pipe(), Vec::new());
    for name in names {
        let place = Places::of(name, server)?;
        let key = &place.fair.lock;
        asked.cmd("TYPE").arg(key).cmd("PTTL").arg(key).cmd("HLEN").arg(key);
        asked.cmd("HRANDFIELD").arg(key).arg(SAMPLE).cmd("HGET").arg(key).arg(MODE);
        asked.cmd("LLEN").arg(&place.fair.line).cmd("GET").arg(&place.fenced.tokens);
        asked.cmd("PTTL").arg(&place.fair.interval);
        asked.cmd("ZCOUNT").arg(&place.semaphore.line).arg(format!("({now}")).arg("+inf");
        asked.cmd("PUBSUB").arg(server.counts_listeners());
        for Place { channel, .. } in [&place.fair, &place.rw, &place.semaphore] {
            asked.arg(channel);
        }
        places.push((name, place));
    }
    let mut answers = server.ask(&asked).await?.into_iter();
    let mut seen = Vec::new();
    for (name, place) in places {
        let kind: String = needed(answers.next())?.unwrap_or_default();
        let pttl: i64 = needed(answers.next())?.unwrap_or(-2);
        let length: u64 = needed(answers.next())?.unwrap_or(0);
        let fields: Vec<String> = needed(answers.next())?.unwrap_or_default();
        let mode = needed::<Option<String>>(answers.next())?.flatten();
        let line: u64 = needed(answers.next())?.unwrap_or(0);
        let token = value::<Option<u64>>(answers.next()).flatten();
        let interval = needed(answers.next())?.and_then(millis);
        let leases: u64 = needed(answers.next())?.unwrap_or(0);
        let listening: Vec<Value> = value(answers.next()).unwrap_or_default();
        let is_lock = kind == "hash" && are_owners(fields.iter().map(String::as_str));
        let (kind, place_of_kind) = match kind.as_str() {
            "hash" if !is_lock => continue,
            "hash" if mode.is_some() => ("rw", &place.rw),
            "hash" | "none" if line > 0 => ("fair", &place.fair),
            "hash" if token.is_some() => ("fenced", &place.fair),
            "hash" => ("lock", &place.fair),
            _ if leases > 0 => ("semaphore", &place.semaphore),
            "none" if interval.is_some() => ("free", &place.fair),
            _ => continue,
        };
        let mut lock = Lock::outline(server, name, &place.fair.lock, kind, pttl);
        lock.listening = pairs(listening).get(&place_of_kind.channel).copied();
        lock.waiting = if kind == "fair" { line } else { lock.listening.unwrap_or(0) };
        (lock.token, lock.interval) = (token, interval);
        lock.held_by = match kind {
            "semaphore" => leases,
            _ => length.saturating_sub(u64::from(mode.is_some())),
        };
        if kind == "semaphore" {
            lock.key.clone_from(&place.semaphore.line);
        }
        seen.push(Sight { lock, fields: is_lock.then_some(length), semaphore: place.semaphore });
    }
    Ok(seen)
}

/// Reads the first holders. A key that turns out not to be a lock has none.
async fn read_holders(server: &Server, seen: &mut [Sight], now: u64) -> Result<(), Failure> {
    let (mut asked, most) = (pipe(), MOST_HOLDERS);
    for Sight { lock, fields, semaphore } in seen.iter() {
        match fields {
            Some(fields) if *fields > most as u64 => {
                asked.cmd("HSCAN").arg(&lock.key).arg(0).arg("COUNT").arg(most);
            }
            Some(_) => _ = asked.cmd("HGETALL").arg(&lock.key),
            None => {
                asked.cmd("ZRANGE").arg(&semaphore.line).arg("+inf").arg(format!("({now}"));
                asked.arg("BYSCORE").arg("REV").arg("LIMIT").arg(0).arg(most).arg("WITHSCORES");
            }
        }
    }
    let mut answers = server.ask(&asked).await?.into_iter();
    for Sight { lock, fields, .. } in seen {
        let answer = answers.next();
        match fields {
            Some(fields) if *fields > most as u64 => {
                let page: Option<(String, BTreeMap<String, String>)> = needed(answer)?;
                lock.take_owners(page.map(|(_, fields)| fields).unwrap_or_default());
            }
            Some(_) => lock.take_owners(needed(answer)?.unwrap_or_default()),
            None => lock.take_leases(scored(answer)?, now),
        }
    }
    Ok(())
}

/// Reads how many permits each holder of a semaphore has.
async fn read_permits(server: &Server, seen: &mut [Sight]) -> Result<(), Failure> {
    let mut semaphores: Vec<&mut Sight> = seen
        .iter_mut()
        .filter(|sight| !sight.lock.holders.is_empty() && sight.fields.is_none())
        .collect();
    let mut asked = pipe();
    for Sight { lock, semaphore, .. } in &semaphores {
        asked.cmd("HMGET").arg(&semaphore.notes);
        lock.holders.iter().for_each(|holder| _ = asked.arg(&holder.owner));
    }
    let answers = server.ask(&asked).await?;
    for (Sight { lock, .. }, answer) in semaphores.iter_mut().zip(answers) {
        let noted: Vec<Option<u64>> = value(Some(answer)).unwrap_or_default();
        for (holder, permits) in lock.holders.iter_mut().zip(noted) {
            holder.count = permits.unwrap_or(1);
        }
        let is_all = lock.held_by == lock.holders.len() as u64;
        lock.used = is_all.then(|| lock.holders.iter().map(|holder| holder.count).sum());
    }
    Ok(())
}

impl Lock {
    /// Takes the holders from the fields of a hash, if all of them are fields of a lock.
    fn take_owners(&mut self, mut fields: BTreeMap<String, String>) {
        if !are_owners(fields.keys().map(String::as_str)) {
            self.held_by = 0;
            return;
        }
        fields.remove(MODE);
        let all = self.held_by;
        self.take_fields(fields);
        self.held_by = all;
        self.holders.truncate(MOST_HOLDERS);
        if self.kind == "rw" {
            for holder in &mut self.holders {
                holder.mode = Some(if holder.owner.ends_with(":write") { "write" } else { "read" });
            }
        }
    }

    /// The leases of permits.
    fn take_leases(&mut self, leases: Vec<(String, f64)>, now: u64) {
        let holder = |(owner, ends): (String, f64)| Holder {
            owner,
            mode: None,
            count: 1,
            ttl: Some(Duration::from_millis((ends as u64).saturating_sub(now))),
        };
        self.holders = leases.into_iter().map(holder).collect();
        self.ttl = self.holders.iter().filter_map(|holder| holder.ttl).max().or(self.ttl);
    }
}

/// Whether these are the fields of a lock: owners, and for a read-write lock its mode.
fn are_owners<'a>(fields: impl Iterator<Item = &'a str>) -> bool {
    let mut owners = fields.filter(|field| *field != MODE).peekable();
    owners.peek().is_some() && owners.all(is_owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_of_somebody_else_is_no_lock() {
        let (owner, negative) =
            (format!("{}:77", "0".repeat(36)), format!("{}:-77", "0".repeat(36)));
        assert!(are_owners([owner.as_str(), MODE].into_iter()));
        assert!(are_owners([negative.as_str()].into_iter()));
        assert!(!are_owners([owner.as_str(), "email"].into_iter()));
        assert!(!are_owners([MODE].into_iter()));
        assert!(!are_owners([].into_iter()));
    }
}
