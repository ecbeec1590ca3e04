//! Who holds what: all locks whose names match a pattern, as the servers store them.
//!
//! It asks with SCAN and with pipelines of reads. It never asks with KEYS or MONITOR, which block a server, and it runs
//! no script. So the list comes from many moments, and a lock may change hands while the tool reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parklock::Layout;
use parklock::operator::{self, Part, Place};
use redis::{Value, pipe};
use serde_json::{Value as Json, json};

use crate::failure::Failure;
use crate::redisson;
use crate::servers::{Server, value};

/// How many names one pipeline asks about.
const BATCH: usize = 128;
/// How many holders of one lock the tool reads.
pub(crate) const MOST_HOLDERS: usize = 200;
/// The score of a lock's first member is the part in use minus this number. See lua/line/zset.lua.
const UNUSED: f64 = 4_503_599_627_370_496.0;

/// What the servers know.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) locks: Vec<Lock>,
    /// The clients that describe themselves, by their ids.
    pub(crate) clients: BTreeMap<String, Card>,
}

/// One lock.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lock {
    pub(crate) name: String,
    /// `lock`, `fair`, `rw`, `semaphore`, `latch`, or the type of the key if another program wrote it.
    pub(crate) kind: String,
    /// Another program wrote the key.
    pub(crate) is_strange: bool,
    /// The first holders.
    pub(crate) holders: Vec<Holder>,
    /// How many holders there are.
    pub(crate) held_by: u64,
    /// How many permits are in use. For a latch: the remaining count. `capacity`: how many permits there are.
    pub(crate) used: Option<u64>,
    pub(crate) capacity: Option<u64>,
    /// How long until the last lease is over. `None`: the key has no TTL, or does not exist.
    pub(crate) ttl: Option<Duration>,
    /// How many callers or clients wait.
    pub(crate) waiting: u64,
    /// The first waiters, if the caller asked for them.
    pub(crate) line: Vec<Waiter>,
    /// How many clients listen to the lock's channel.
    pub(crate) listening: Option<u64>,
    /// The last token, if Redis knows it.
    pub(crate) token: Option<u64>,
    /// The key of the holders.
    pub(crate) key: String,
    pub(crate) server: String,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Holder {
    /// `<client>:<number>`.
    pub(crate) owner: String,
    /// `read` or `write`.
    pub(crate) mode: Option<&'static str>,
    /// The hold count of a lock, the permits of a semaphore.
    pub(crate) count: u64,
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waiter {
    pub(crate) owner: String,
    /// For how long it has waited.
    pub(crate) waited: Duration,
}

/// A client's description of itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Card {
    pub(crate) app: String,
    pub(crate) host: String,
    pub(crate) pid: u64,
}

/// The client of an owner field.
pub(crate) fn client_of(owner: &str) -> &str {
    owner.split_once(':').map_or(owner, |(client, _)| client)
}

impl Card {
    fn read(text: &str) -> Option<Self> {
        let card: Json = serde_json::from_str(text).ok()?;
        let word = |name: &str| card[name].as_str().map(str::to_owned);
        Some(Self { app: word("app")?, host: word("host")?, pid: card["pid"].as_u64()? })
    }
}

impl Inventory {
    /// All locks whose names match a pattern, each with its first waiters.
    pub(crate) async fn load(
        servers: &[Server],
        layout: Layout,
        pattern: &str,
        waiters: usize,
    ) -> Result<Self, Failure> {
        let mut inventory = Self::default();
        for server in servers {
            let names = names(server, layout, pattern).await?;
            inventory.add(server, layout, &names, waiters).await?;
        }
        inventory.locks.sort_by(|a, b| a.name.cmp(&b.name));
        inventory.introduce(servers).await?;
        Ok(inventory)
    }

    /// One lock, if anything is known of it.
    pub(crate) async fn of_one(
        servers: &[Server],
        layout: Layout,
        name: &str,
        waiters: usize,
    ) -> Result<Self, Failure> {
        let mut inventory = Self::default();
        for server in servers {
            inventory.add(server, layout, &[name.to_owned()], waiters).await?;
        }
        inventory.introduce(servers).await?;
        Ok(inventory)
    }

    async fn add(
        &mut self,
        server: &Server,
        layout: Layout,
        names: &[String],
        waiters: usize,
    ) -> Result<(), Failure> {
        for batch in names.chunks(BATCH) {
            let found = match layout {
                Layout::Redisson => redisson::locks(server, batch).await?,
                _ => native(server, batch, waiters).await?,
            };
            self.locks.extend(found);
        }
        Ok(())
    }

    /// Asks who the clients are. In a cluster, one server has the key of a client, and the others refuse.
    async fn introduce(&mut self, servers: &[Server]) -> Result<(), Failure> {
        let holders = self.locks.iter().flat_map(|lock| &lock.holders).map(|holder| &holder.owner);
        let waiters = self.locks.iter().flat_map(|lock| &lock.line).map(|waiter| &waiter.owner);
        let clients: BTreeSet<_> =
            holders.chain(waiters).map(|owner| client_of(owner).to_owned()).collect();
        let clients: Vec<_> = clients.into_iter().collect();
        for server in servers {
            for batch in clients.chunks(BATCH) {
                let mut asked = pipe();
                batch
                    .iter()
                    .for_each(|client| _ = asked.cmd("GET").arg(operator::client_key(client)));
                for (client, answer) in batch.iter().zip(server.ask(&asked).await?) {
                    let card = value::<String>(Some(answer)).and_then(|text| Card::read(&text));
                    if let Some(card) = card {
                        self.clients.insert(client.clone(), card);
                    }
                }
            }
        }
        Ok(())
    }

    /// An owner as text: its client's description of itself, or else its id.
    pub(crate) fn who(&self, owner: &str) -> String {
        match self.clients.get(client_of(owner)) {
            Some(Card { app, host, pid }) => format!("{app}@{host}[{pid}]"),
            None => shortened(owner),
        }
    }
}

/// The beginning of a client's id, and the number of the owner field.
fn shortened(owner: &str) -> String {
    match owner.split_once(':') {
        Some((client, number)) if client.len() > 8 => {
            format!("{}..:{number}", client.chars().take(8).collect::<String>())
        }
        _ => owner.to_owned(),
    }
}

impl Lock {
    pub(crate) fn is_known(&self) -> bool {
        self.is_held() || self.waiting > 0 || self.is_strange
    }

    /// Whether somebody holds it. For a latch: whether it exists.
    pub(crate) fn is_held(&self) -> bool {
        self.held_by > 0 || self.kind == "latch"
    }

    /// The hold count, or how many permits are in use out of how many.
    pub(crate) fn count(&self) -> String {
        match (self.used, self.capacity) {
            (Some(used), Some(capacity)) => format!("{used}/{capacity}"),
            (Some(left), None) => left.to_string(),
            _ if self.kind == "rw" || self.holders.is_empty() => self.held_by.to_string(),
            _ => self.holders[0].count.to_string(),
        }
    }

    /// The kind; for `rw` also whether the holders read or write.
    pub(crate) fn kind_in_words(&self) -> String {
        match self.holders.first().and_then(|holder| holder.mode) {
            Some(mode) => format!("{} {mode}", self.kind),
            None => self.kind.clone(),
        }
    }

    pub(crate) fn json(&self, inventory: &Inventory) -> Json {
        let who = |owner: &str| {
            let card = inventory.clients.get(client_of(owner));
            card.map(|card| json!({ "app": card.app, "host": card.host, "pid": card.pid }))
        };
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let holder = |holder: &Holder| {
            json!({
                "owner": holder.owner, "mode": holder.mode, "count": holder.count,
                "ttl_ms": holder.ttl.map(ms), "who": who(&holder.owner),
            })
        };
        let waiter = |waiter: &Waiter| json!({ "owner": waiter.owner, "waited_ms": ms(waiter.waited), "who": who(&waiter.owner) });
        json!({
            "name": self.name, "kind": self.kind, "held_by": self.held_by,
            "holders": self.holders.iter().map(holder).collect::<Vec<_>>(),
            "used": self.used, "capacity": self.capacity, "ttl_ms": self.ttl.map(ms),
            "waiting": self.waiting, "line": self.line.iter().map(waiter).collect::<Vec<_>>(),
            "listening": self.listening, "token": self.token,
            "key": self.key, "server": self.server,
        })
    }
}

/// The names of a server that match a pattern, each once.
async fn names(server: &Server, layout: Layout, pattern: &str) -> Result<Vec<String>, Failure> {
    let mut names = match layout {
        Layout::Redisson => redisson::names(server, pattern).await?,
        _ => native_names(server, pattern).await?,
    };
    // Another program's key may have a name that no lock can have.
    names.retain(|name| operator::place(layout, "lock", name, server.database).is_ok());
    Ok(names.into_iter().collect())
}

async fn native_names(server: &Server, pattern: &str) -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::new();
    scan(server, &operator::pattern(pattern), None, |key| {
        if let Some((Part::Lock | Part::Line, name)) = operator::part_of(key) {
            names.insert(name);
        }
    })
    .await?;
    Ok(names)
}

/// Every key of a server that matches a pattern. SCAN may return a key twice.
pub(crate) async fn scan(
    server: &Server,
    pattern: &str,
    kind: Option<&str>,
    mut found: impl FnMut(&str),
) -> Result<(), Failure> {
    let mut cursor = "0".to_owned();
    loop {
        let mut words = vec!["SCAN", cursor.as_str(), "MATCH", pattern, "COUNT", "1000"];
        words.extend(kind.iter().flat_map(|kind| ["TYPE", *kind]));
        let (next, keys): (String, Vec<Vec<u8>>) = server.query(&words).await?;
        keys.iter().filter_map(|key| std::str::from_utf8(key).ok()).for_each(&mut found);
        if next == "0" {
            return Ok(());
        }
        cursor = next;
    }
}

fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// A lock of which only the type and the TTL of its key are known.
pub(crate) fn outline(server: &Server, name: &str, key: &str, kind: &str, pttl: i64) -> Lock {
    let kind = match kind {
        "hash" => "lock",
        "string" => "latch",
        "none" => "free",
        other => other,
    };
    let (name, kind, key) = (name.to_owned(), kind.to_owned(), key.to_owned());
    Lock { name, kind, ttl: millis(pttl), key, server: server.address.clone(), ..Lock::default() }
}

async fn native(server: &Server, names: &[String], waiters: usize) -> Result<Vec<Lock>, Failure> {
    let mut places = Vec::new();
    for name in names {
        places.push((name, operator::place(Layout::Native, "lock", name, server.database)?));
    }
    let mut asked = pipe();
    asked.cmd("TIME");
    asked.cmd("PUBSUB").arg(server.counts_listeners());
    places.iter().for_each(|(_, place)| _ = asked.arg(&place.channel));
    for (_, Place { lock, line, notes, .. }) in &places {
        asked.cmd("TYPE").arg(lock).cmd("PTTL").arg(lock);
        asked.cmd("ZCOUNT").arg(line).arg(0).arg("+inf").cmd("HGET").arg(notes).arg("kind");
        asked.cmd("ZRANGE").arg(line).arg(0).arg("+inf").arg("BYSCORE").arg("LIMIT").arg(0);
        asked.arg(waiters).arg("WITHSCORES");
    }
    let mut answers = server.ask(&asked).await?.into_iter();
    let (seconds, micros) = value::<(u64, u64)>(answers.next()).unwrap_or_default();
    let now = Duration::from_secs(seconds) + Duration::from_micros(micros);
    let listening: Vec<Value> = value(answers.next()).unwrap_or_default();
    let listening: BTreeMap<String, u64> = pairs(listening);
    let mut locks = Vec::new();
    for (name, place) in places {
        let kind: String = value(answers.next()).unwrap_or_default();
        let pttl: i64 = value(answers.next()).unwrap_or(-2);
        let mut lock = outline(server, name, &place.lock, &kind, pttl);
        lock.is_strange = !matches!(kind.as_str(), "hash" | "zset" | "string" | "none");
        let waiting: u64 = value(answers.next()).unwrap_or(0);
        let noted: Option<String> = value(answers.next()).unwrap_or_default();
        let line = scored(answers.next());
        lock.listening = listening.get(&place.channel).copied();
        // A line has a note of its kind. Without that note this is a latch, and the key has the requests that it has
        // carried out.
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
                let (alive, most) = (format!("({now}"), MOST_HOLDERS);
                asked.cmd("ZCOUNT").arg(key).arg(&alive).arg("+inf");
                asked
                    .cmd("ZRANGE")
                    .arg(key)
                    .arg(alive)
                    .arg("+inf")
                    .arg("BYSCORE")
                    .arg("LIMIT")
                    .arg(0);
                asked.arg(most).arg("WITHSCORES");
                asked
                    .cmd("ZRANGE")
                    .arg(key)
                    .arg("-inf")
                    .arg("(0")
                    .arg("BYSCORE")
                    .arg("LIMIT")
                    .arg(0);
                asked.arg(2 * most).arg("WITHSCORES");
            }
            _ => {}
        }
    }
    let mut answers = server.ask(&asked).await?.into_iter();
    for (lock, kind) in locks {
        match kind.as_str() {
            "hash" => lock.take_fields(value(answers.next()).unwrap_or_default()),
            "string" => lock.take_count(value(answers.next())),
            "zset" => {
                lock.held_by = value(answers.next()).unwrap_or(0);
                let holders = scored(answers.next());
                lock.take_members(holders, &scored(answers.next()), now);
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
            self.is_strange = true;
            "string".clone_into(&mut self.kind);
        }
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

/// Members and their scores, from a reply in RESP2 or RESP3.
pub(crate) fn scored(answer: Option<Value>) -> Vec<(String, f64)> {
    value(answer).unwrap_or_default()
}

/// Pairs of a name and a number, from a flat list.
pub(crate) fn pairs(items: Vec<Value>) -> BTreeMap<String, u64> {
    let mut items = items.into_iter();
    let next = || Some((value(items.next())?, value(items.next())?));
    std::iter::from_fn(next).collect()
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

    #[test]
    fn an_owner_is_named_or_shortened() {
        let mut inventory = Inventory::default();
        assert_eq!(inventory.who("0123456789abcdef:7"), "01234567..:7");
        let card = Card::read(r#"{"app":"billing","host":"web-1","pid":42,"since":7}"#);
        inventory.clients.insert("0123456789abcdef".to_owned(), card.expect("a card"));
        assert_eq!(inventory.who("0123456789abcdef:7"), "billing@web-1[42]");
    }
}
