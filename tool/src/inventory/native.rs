//! Locks in the native layout.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parklock::Layout;
use parklock::operator::{self, Namespaces, Part, Place};
use redis::{Pipeline, Value, pipe};

use crate::failure::Failure;
use crate::inventory::lock::{FullName, Holder, Lock, MOST_HOLDERS, Waiter, is_owner, millis};
use crate::inventory::scan::{pairs, scan, scored};
use crate::servers::{Server, needed, time, value};

/// The score of a lock's first member is the part in use minus this number. See lua/line/zset.lua.
const UNUSED: f64 = 4_503_599_627_370_496.0;

/// The names of a server that match a pattern.
pub(crate) async fn names(
    server: &Server,
    namespaces: &Namespaces,
    pattern: &str,
) -> Result<BTreeSet<FullName>, Failure> {
    let mut names = BTreeSet::new();
    scan(server, &namespaces.pattern(pattern), None, |key| {
        let (namespace, key) = operator::within(key);
        if let (true, Some((Part::Lock | Part::Line, name))) =
            (namespaces.has(namespace), operator::part_of(key))
        {
            names.insert((namespace.map(str::to_owned), name));
        }
    })
    .await?;
    Ok(names)
}

pub(crate) async fn locks(
    server: &Server,
    names: &[FullName],
    waiters: usize,
) -> Result<Vec<Lock>, Failure> {
    let mut places = Vec::new();
    for name in names {
        let (namespace, its) = name;
        let its = (namespace.as_deref(), its.as_str());
        places.push((name, operator::place(Layout::Native, "lock", its, server.space)?));
    }
    let mut asked = pipe();
    asked.cmd("TIME");
    asked.cmd("PUBSUB").arg(server.counts_listeners());
    places.iter().for_each(|(_, place)| _ = asked.arg(&place.channel));
    for (_, Place { lock, line, notes, interval, .. }) in &places {
        asked.cmd("TYPE").arg(lock).cmd("PTTL").arg(lock);
        asked.cmd("ZCOUNT").arg(line).arg(0).arg("+inf").cmd("HGET").arg(notes).arg("kind");
        ask_for_members(&mut asked, line, ("0", "+inf"), waiters);
        asked.cmd("PTTL").arg(interval);
    }
    let mut answers = server.ask(&asked).await?.into_iter();
    let now = time(answers.next()).unwrap_or_default();
    let listening: Vec<Value> = value(answers.next()).unwrap_or_default();
    let listening: BTreeMap<String, u64> = pairs(listening);
    let mut locks = Vec::new();
    for (name, place) in places {
        // A node of a cluster that does not have the slot knows of no key.
        let kind = needed(answers.next())?.map_or("none".to_owned(), operator::shown_type);
        let pttl: i64 = needed(answers.next())?.unwrap_or(-2);
        let mut lock = Lock::outline(server, name, &place.lock, &kind, pttl);
        lock.is_strange = !matches!(kind.as_str(), "hash" | "zset" | "string" | "none");
        let waiting: u64 = needed(answers.next())?.unwrap_or(0);
        let noted: Option<String> = needed(answers.next())?.flatten();
        let line = scored(answers.next())?;
        lock.interval = needed(answers.next())?.and_then(millis);
        lock.listening = listening.get(&place.channel).copied();
        // A line has a note of its kind. Without that note this is a latch, or nobody knows what these waiters wait for.
        if let Some((kind, capacity)) = noted.as_deref().and_then(kind_and_capacity) {
            lock.waiting = waiting;
            lock.line = line.into_iter().map(|entry| waiter(entry, now)).collect();
            if !lock.is_strange {
                lock.take_kind(kind, capacity);
            }
        }
        locks.push((lock, kind));
    }
    read_holders(server, &mut locks, now).await?;
    Ok(locks.into_iter().map(|(lock, _)| lock).filter(Lock::is_known).collect())
}

/// Asks for the first members whose scores are within these bounds.
fn ask_for_members(asked: &mut Pipeline, key: &str, (from, to): (&str, &str), most: usize) {
    asked.cmd("ZRANGE").arg(key).arg(from).arg(to).arg("BYSCORE");
    asked.arg("LIMIT").arg(0).arg(most).arg("WITHSCORES");
}

fn waiter((owner, place): (String, f64), now: Duration) -> Waiter {
    // A place is the time at which the waiter came, in microseconds.
    let came = Duration::from_micros(place.max(0.0) as u64);
    Waiter { owner, waited: now.saturating_sub(came) }
}

fn kind_and_capacity(text: &str) -> Option<(&str, u64)> {
    let (kind, capacity) = text.trim_start_matches('#').split_once(' ')?;
    Some((kind, capacity.parse().ok()?))
}

impl Lock {
    fn take_kind(&mut self, kind: &str, capacity: u64) {
        kind.clone_into(&mut self.kind);
        if kind == "semaphore" {
            self.capacity = Some(capacity);
            self.used = self.used.or(Some(0));
        }
    }
}

/// Asks for the holders of locks whose types are known.
async fn read_holders(
    server: &Server,
    locks: &mut [(Lock, String)],
    now: Duration,
) -> Result<(), Failure> {
    let (mut asked, now) = (pipe(), now.as_millis() as u64);
    for (Lock { key, .. }, kind) in locks.iter() {
        match kind.as_str() {
            "hash" => _ = asked.cmd("HGETALL").arg(key),
            "string" => _ = asked.cmd("GET").arg(key),
            "zset" => {
                let alive = format!("({now}");
                asked.cmd("ZCOUNT").arg(key).arg(&alive).arg("+inf");
                ask_for_members(&mut asked, key, (&alive, "+inf"), MOST_HOLDERS);
                ask_for_members(&mut asked, key, ("-inf", "(0"), 2 * MOST_HOLDERS);
            }
            _ => {}
        }
    }
    let mut answers = server.ask(&asked).await?.into_iter();
    for (lock, kind) in locks {
        match kind.as_str() {
            "hash" => lock.take_hash(needed(answers.next())?.unwrap_or_default()),
            "string" => lock.take_count(needed(answers.next())?),
            "zset" => {
                lock.held_by = needed(answers.next())?.unwrap_or(0);
                let holders = scored(answers.next())?;
                lock.take_members(holders, &scored(answers.next())?, now);
            }
            _ => {}
        }
    }
    Ok(())
}

impl Lock {
    /// The count of a latch. If the value is not a number, another program wrote it.
    fn take_count(&mut self, count: Option<u64>) {
        self.used = count;
        if count.is_none() {
            self.is_of_another_program("string");
        }
    }

    /// The fields of a hash. If one of them is no owner, another program wrote it.
    fn take_hash(&mut self, fields: BTreeMap<String, String>) {
        if fields.keys().all(|field| is_owner(field)) {
            self.take_fields(fields);
        } else {
            self.is_of_another_program("hash");
        }
    }

    fn is_of_another_program(&mut self, kind: &str) {
        self.is_strange = true;
        kind.clone_into(&mut self.kind);
    }

    /// The fields of a hash: owners and their hold counts.
    pub(crate) fn take_fields(&mut self, fields: BTreeMap<String, String>) {
        self.held_by = fields.len() as u64;
        let holder = |(owner, count): (String, String)| Holder {
            owner,
            count: count.parse().unwrap_or(1),
            ttl: self.ttl,
            mode: None,
        };
        self.holders = fields.into_iter().map(holder).collect();
    }

    /// The members of a sorted set: the holders with the ends of their leases, and the other members (see
    /// lua/line/zset.lua).
    fn take_members(&mut self, holders: Vec<(String, f64)>, others: &[(String, f64)], now: u64) {
        let score =
            |name: &str| others.iter().find(|(member, _)| member == name).map(|(_, score)| *score);
        let says =
            others.iter().find(|(member, _)| member.starts_with('#') && member.contains(' '));
        let known =
            says.and_then(|(member, used)| Some((kind_and_capacity(member)?, used + UNUSED)));
        self.is_strange = known.is_none();
        let ((kind, capacity), used) = known.unwrap_or((("zset", 1), 0.0));
        self.take_kind(kind, capacity);
        if kind == "semaphore" {
            self.used = Some(used.max(0.0) as u64);
        }
        let holder = |(owner, ends): (String, f64)| {
            let part = score(&format!("={owner}")).map_or(1, |part| -part as u64);
            let writes = part >= capacity;
            Holder {
                ttl: Some(Duration::from_millis((ends as u64).saturating_sub(now))),
                mode: (kind == "rw").then_some(if writes { "write" } else { "read" }),
                count: if kind == "semaphore" { part } else { 1 },
                owner,
            }
        };
        self.holders = holders.into_iter().map(holder).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_a_lock_are_told_apart() {
        let mut lock = Lock::default();
        let holders = vec![("c:1".to_owned(), 5_000.0), ("c:2".to_owned(), 9_000.0)];
        let others = [
            ("#semaphore 5".to_owned(), 4.0 - UNUSED),
            ("#line".to_owned(), -2_251_799_813_685_248.0),
            ("=c:2".to_owned(), -3.0),
        ];
        lock.take_members(holders, &others, 1_000);
        assert_eq!((lock.kind.as_str(), lock.used, lock.capacity), ("semaphore", Some(4), Some(5)));
        assert_eq!(lock.holders.iter().map(|holder| holder.count).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(lock.holders[0].ttl, Some(Duration::from_secs(4)));
    }

    #[test]
    fn a_writer_takes_all_and_a_reader_takes_one() {
        let mut lock = Lock::default();
        let others =
            [("#rw 1073741824".to_owned(), -UNUSED), ("=w:1".to_owned(), -1_073_741_824.0)];
        lock.take_members(vec![("w:1".to_owned(), 1.0), ("r:1".to_owned(), 1.0)], &others, 0);
        let modes: Vec<_> = lock.holders.iter().filter_map(|holder| holder.mode).collect();
        assert_eq!(modes, ["write", "read"]);
        assert_eq!(lock.kind_in_words(), "rw write");
    }
}
