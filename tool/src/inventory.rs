//! Who holds what: all locks whose names match a pattern, as the servers store them.
//!
//! It asks with SCAN and with pipelines of reads. It never asks with KEYS or MONITOR, which block a server, and it runs
//! no script. So the list comes from many moments, and a lock may change hands while the tool reads it.

#[path = "../../tests/simulation/server/src/glob.rs"]
mod glob;
mod lock;
mod native;
mod redisson;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use parklock::Layout;
use parklock::operator::{self, Namespaces};
use redis::pipe;
use serde_json::{Value as Json, json};

use crate::args::Realm;
use crate::failure::Failure;
use crate::servers::{Server, time, value};
use crate::span::short;

pub(crate) use lock::{FullName, Holder, Lock, Waiter};
pub(crate) use scan::scan;

/// How many names one pipeline asks about.
const BATCH: usize = 128;

/// What the servers know.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) locks: Vec<Lock>,
    /// The locks may be of several namespaces.
    pub(crate) is_of_all: bool,
    /// The clients that describe themselves, by their ids.
    pub(crate) clients: BTreeMap<String, Card>,
}

/// A client's description of itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Card {
    pub(crate) app: String,
    pub(crate) host: String,
    pub(crate) pid: u64,
    /// For how long it has been connected.
    pub(crate) connected: Option<Duration>,
}

/// The client of an owner field.
pub(crate) fn client_of(owner: &str) -> &str {
    owner.split_once(':').map_or(owner, |(client, _)| client)
}

impl Card {
    /// Reads it at this time of the server's clock.
    fn read(text: &str, now: Duration) -> Option<Self> {
        let card: Json = serde_json::from_str(text).ok()?;
        let word = |name: &str| card[name].as_str().map(str::to_owned);
        let since = card["since"].as_u64().filter(|since| *since > 0).map(Duration::from_millis);
        let connected = since.map(|since| now.saturating_sub(since));
        Some(Self { app: word("app")?, host: word("host")?, pid: card["pid"].as_u64()?, connected })
    }
}

impl Inventory {
    /// All locks whose names match a pattern, each with its first waiters.
    pub(crate) async fn load(
        servers: &[Server],
        realm: &Realm,
        pattern: &str,
        waiters: usize,
    ) -> Result<Self, Failure> {
        Self::load_what_answers(servers, realm, pattern, waiters).await.whole()
    }

    /// The same from the servers that answer.
    pub(crate) async fn load_what_answers(
        servers: &[Server],
        realm: &Realm,
        pattern: &str,
        waiters: usize,
    ) -> Partial {
        let mut found = Partial::of(servers, async |server| {
            let names = names(server, realm, pattern).await?;
            locks(server, realm.layout, &names, waiters).await
        })
        .await;
        found.inventory.is_of_all = realm.namespaces == Namespaces::All;
        found
    }

    /// One lock, if anything is known of it.
    pub(crate) async fn of_one(
        servers: &[Server],
        realm: &Realm,
        name: &str,
        waiters: usize,
    ) -> Result<Self, Failure> {
        let name = [(realm.namespaces.name().map(str::to_owned), name.to_owned())];
        Partial::of(servers, async |server| locks(server, realm.layout, &name, waiters).await)
            .await
            .whole()
    }

    /// The ids of all clients that hold or wait, each with its namespace.
    fn ids(&self) -> Vec<FullName> {
        let owners = self.locks.iter().flat_map(|lock| {
            let holders = lock.holders.iter().map(|holder| &holder.owner);
            let waiters = lock.line.iter().map(|waiter| &waiter.owner);
            holders.chain(waiters).map(|owner| (lock.namespace.as_deref(), client_of(owner)))
        });
        let ids: BTreeSet<_> = owners.collect();
        let owned =
            |(namespace, id): (Option<&str>, &str)| (namespace.map(str::to_owned), id.to_owned());
        ids.into_iter().map(owned).collect()
    }

    /// An owner as text: its client's description of itself, or else its id.
    pub(crate) fn who(&self, owner: &str) -> String {
        match self.clients.get(client_of(owner)) {
            Some(Card { app, host, pid, .. }) => format!("{app}@{host}[{pid}]"),
            None => shortened(owner),
        }
    }

    /// The same, and for how long that client has been connected: it has held the lock for no longer than that.
    pub(crate) fn who_since(&self, owner: &str) -> String {
        let card = self.clients.get(client_of(owner));
        let connected = card.and_then(|card| card.connected).map(short);
        let since = connected.map(|span| format!(", connected for {span}")).unwrap_or_default();
        self.who(owner) + &since
    }

    /// A lock as JSON.
    pub(crate) fn json(&self, lock: &Lock) -> Json {
        let who = |owner: &str| {
            let card = self.clients.get(client_of(owner));
            card.map(|card| {
                let connected = card.connected.map(ms);
                json!({ "app": card.app, "host": card.host, "pid": card.pid, "connected_ms": connected })
            })
        };
        let holder = |holder: &Holder| {
            json!({
                "owner": holder.owner, "mode": holder.mode, "count": holder.count,
                "ttl_ms": holder.ttl.map(ms), "who": who(&holder.owner),
            })
        };
        let waiter = |waiter: &Waiter| json!({ "owner": waiter.owner, "waited_ms": ms(waiter.waited), "who": who(&waiter.owner) });
        json!({
            "name": lock.name, "namespace": lock.namespace, "kind": lock.kind, "held_by": lock.held_by,
            "holders": lock.holders.iter().map(holder).collect::<Vec<_>>(),
            "used": lock.used, "capacity": lock.capacity, "ttl_ms": lock.ttl.map(ms),
            "waiting": lock.waiting, "line": lock.line.iter().map(waiter).collect::<Vec<_>>(),
            "listening": lock.listening, "token": lock.token.map(|token| token.to_string()),
            "interval_ms": lock.interval.map(ms),
            "key": lock.key, "server": lock.server,
        })
    }
}

/// What the servers that answer know, and why the others do not answer.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    pub(crate) inventory: Inventory,
    /// One for each question that a server has not answered.
    pub(crate) failures: Vec<Failure>,
    /// At least one server has listed its locks.
    pub(crate) has_looked: bool,
}

impl Partial {
    /// Reads the locks of all servers side by side, so that a server that hangs does not delay the others.
    async fn of(
        servers: &[Server],
        look: impl AsyncFn(&Server) -> Result<Vec<Lock>, Failure>,
    ) -> Self {
        let (mut found, mut answering) = (Self::default(), Vec::new());
        let looks = join_all(servers.iter().map(|server| look(server))).await;
        for (server, looked) in servers.iter().zip(looks) {
            if let Some(locks) = found.heard(server, looked) {
                found.inventory.locks.extend(locks);
                answering.push(server);
            }
        }
        found.has_looked = !answering.is_empty();
        found.inventory.locks.sort_by(|a, b| a.full_name().cmp(&b.full_name()));
        let ids = found.inventory.ids();
        let asked = join_all(answering.iter().map(|server| cards(server, &ids))).await;
        for (server, cards) in answering.into_iter().zip(asked) {
            let cards = found.heard(server, cards).unwrap_or_default();
            found.inventory.clients.extend(cards);
        }
        found
    }

    fn heard<T>(&mut self, server: &Server, answer: Result<T, Failure>) -> Option<T> {
        answer.map_err(|failure| self.failures.push(failure.of_server(&server.address))).ok()
    }

    fn whole(self) -> Result<Inventory, Failure> {
        self.failures.into_iter().next().map_or(Ok(self.inventory), Err)
    }
}

async fn locks(
    server: &Server,
    layout: Layout,
    names: &[FullName],
    waiters: usize,
) -> Result<Vec<Lock>, Failure> {
    let mut locks = Vec::new();
    for batch in names.chunks(BATCH) {
        locks.extend(match layout {
            Layout::Redisson => redisson::locks(server, batch).await?,
            _ => native::locks(server, batch, waiters).await?,
        });
    }
    Ok(locks)
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// What the clients with these ids say of themselves. In a cluster, one server has the key of a client, and the others
/// refuse.
async fn cards(server: &Server, ids: &[FullName]) -> Result<Vec<(String, Card)>, Failure> {
    let mut cards = Vec::new();
    for batch in ids.chunks(BATCH) {
        let mut asked = pipe();
        asked.cmd("TIME");
        for (namespace, id) in batch {
            asked.cmd("GET").arg(operator::client_key(namespace.as_deref(), id));
        }
        let mut answers = server.ask(&asked).await?.into_iter();
        let now = time(answers.next()).unwrap_or_default();
        for ((_, id), answer) in batch.iter().zip(answers) {
            let card = value::<String>(Some(answer)).and_then(|text| Card::read(&text, now));
            cards.extend(card.map(|card| (id.clone(), card)));
        }
    }
    Ok(cards)
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

/// The names of a server that match a pattern, each once.
async fn names(server: &Server, realm: &Realm, pattern: &str) -> Result<Vec<FullName>, Failure> {
    let Realm { layout, namespaces } = realm;
    let mut names = match layout {
        Layout::Redisson => redisson::names(server, namespaces, pattern).await?,
        _ => native::names(server, namespaces, pattern).await?,
    };
    // Another program's key may have a name that no lock can have.
    let is_possible = |(namespace, name): &FullName| {
        let name = (namespace.as_deref(), name.as_str());
        operator::place(*layout, "lock", name, server.space).is_ok()
    };
    names.retain(is_possible);
    Ok(names.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_named_or_shortened() {
        let mut inventory = Inventory::default();
        assert_eq!(inventory.who("0123456789abcdef:7"), "01234567..:7");
        let text = r#"{"app":"billing","host":"web-1","pid":42,"since":7000}"#;
        let card = Card::read(text, Duration::from_secs(19));
        inventory.clients.insert("0123456789abcdef".to_owned(), card.expect("a card"));
        assert_eq!(inventory.who("0123456789abcdef:7"), "billing@web-1[42]");
        let since = "billing@web-1[42], connected for 12.0s";
        assert_eq!(inventory.who_since("0123456789abcdef:7"), since);
        assert_eq!(inventory.who_since("unknown:7"), "unknown:7");
    }
}
