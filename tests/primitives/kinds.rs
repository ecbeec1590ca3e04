//! One name, one kind: who asks for another is told, and whoever holds it notices nothing.

use crate::common;

use std::time::{Duration, Instant};

use common::fixture::{
    A_WHILE, SOON, client, client_with, comes_in, lock_keys, quick, server_and_client,
};
use common::{Admin, Proxy, Server, eventually};
use parklock::{Client, Config, Ended, Error, Guard, Result};
use tokio::time::{sleep, timeout};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lock,
    Fair,
    Read,
    Write,
    Semaphore(u32),
}

use Kind::{Fair, Lock, Read, Semaphore, Write};

const KINDS: [Kind; 6] = [Lock, Fair, Read, Write, Semaphore(1), Semaphore(3)];

impl Kind {
    async fn lock(self, client: &Client) -> Result<Guard> {
        match self {
            Lock => client.lock("a").lock().await,
            Fair => client.fair_lock("a").lock().await,
            Read => client.rw_lock("a").read().await,
            Write => Ok(client.rw_lock("a").write().await?.into_guard()),
            Semaphore(permits) => client.semaphore("a", permits).acquire().await,
        }
    }

    async fn try_lock(self, client: &Client) -> Result<Option<Guard>> {
        match self {
            Lock => client.lock("a").try_lock().await,
            Fair => client.fair_lock("a").try_lock().await,
            Read => client.rw_lock("a").try_read().await,
            Write => Ok(client.rw_lock("a").try_write().await?.map(|guard| guard.into_guard())),
            Semaphore(permits) => client.semaphore("a", permits).try_acquire().await,
        }
    }

    async fn force_unlock(self, client: &Client) -> Result<bool> {
        match self {
            Lock => client.lock("a").force_unlock().await,
            Fair => client.fair_lock("a").force_unlock().await,
            Read | Write => client.rw_lock("a").force_unlock().await,
            Semaphore(permits) => client.semaphore("a", permits).force_unlock().await,
        }
    }

    async fn look(self, client: &Client) -> Result<()> {
        match self {
            Lock => client.lock("a").is_locked().await.map(drop),
            Fair => client.fair_lock("a").is_locked().await.map(drop),
            Read => client.rw_lock("a").is_locked().await.map(drop),
            Write => client.rw_lock("a").is_write_locked().await.map(drop),
            Semaphore(permits) => {
                client.semaphore("a", permits).available_permits().await.map(drop)
            }
        }
    }

    /// Whether the two can share a name: what reads and what writes is one.
    fn is(self, other: Self) -> bool {
        self == other || matches!((self, other), (Read | Write, Read | Write))
    }
}

/// Each kind and each other one.
fn pairs() -> impl Iterator<Item = (Kind, Kind)> {
    let pairs = KINDS.into_iter().flat_map(|held| KINDS.map(|asked| (held, asked)));
    pairs.filter(|(held, asked)| !held.is(*asked))
}

fn is_conflict<T: std::fmt::Debug>(what: &str, pair: (Kind, Kind), answer: Result<T>) {
    assert!(matches!(answer, Err(Error::Conflict { .. })), "{pair:?}, {what}: {answer:?}");
}

/// All that lies there.
async fn dump(admin: &Admin) -> Vec<(String, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    for key in lock_keys(admin).await {
        let value = admin.cmd(&["DUMP", &key]).await;
        all.push((key, value));
    }
    all
}

async fn nothing_left(admin: &Admin) {
    eventually(SOON, "nothing is left", async || lock_keys(admin).await.is_empty()).await;
}

async fn is_free_for(kind: Kind, client: &Client) {
    let guard = timeout(SOON, kind.lock(client)).await.expect("in time").expect("it is free");
    guard.unlock().await.expect("it is ours");
}

/// F77: a name is one kind's while somebody holds it.
#[tokio::test]
async fn a_name_that_one_kind_holds_is_no_other_kinds() {
    let (server, ours) = server_and_client().await;
    let (admin, theirs) = (server.admin().await, client(&server).await);
    for pair @ (held, asked) in pairs() {
        let guard = held.lock(&theirs).await.unwrap();
        let before = dump(&admin).await;
        is_conflict("lock", pair, timeout(SOON, asked.lock(&ours)).await.expect("at once"));
        is_conflict("try", pair, asked.try_lock(&ours).await);
        if !matches!((held, asked), (Semaphore(_), Semaphore(_))) {
            is_conflict("look", pair, asked.look(&ours).await);
            is_conflict("force", pair, asked.force_unlock(&ours).await);
        }
        assert_eq!(dump(&admin).await, before, "{pair:?}: something was written");
        guard.extend(Duration::from_secs(31)).await.unwrap();
        guard.unlock().await.unwrap_or_else(|error| panic!("{pair:?}: {error}"));
        is_free_for(asked, &ours).await;
        nothing_left(&admin).await;
    }
}

/// F77: so it is while somebody waits, who gets it all the same.
#[tokio::test]
async fn a_waiter_is_not_disturbed_by_another_kind() {
    let (server, ours) = server_and_client().await;
    let (admin, theirs) = (server.admin().await, client(&server).await);
    for pair @ (held, asked) in pairs().filter(|(held, _)| matches!(held, Lock | Fair | Write)) {
        let guard = held.lock(&theirs).await.unwrap();
        let waiting = theirs.clone();
        let waiter = tokio::spawn(async move { held.lock(&waiting).await });
        sleep(A_WHILE / 2).await;
        is_conflict("try", pair, asked.try_lock(&ours).await);
        guard.unlock().await.unwrap();
        let next = timeout(SOON, waiter).await.expect("in time").unwrap().unwrap();
        is_conflict("try again", pair, asked.try_lock(&ours).await);
        next.unlock().await.unwrap();
        nothing_left(&admin).await;
    }
}

/// A client behind a proxy that can make it fall silent.
async fn mortal(server: &Server) -> (Proxy, Client) {
    let proxy = Proxy::before(server).await;
    // What is called in is held for so long at the least.
    let config = Config::default().waiter_ttl(SHORT / 2);
    let client = comes_in(proxy.url(), config).await;
    (proxy, client)
}

const SHORT: Duration = Duration::from_millis(300);

/// Takes it with a long lease, then with a short one, and falls silent when it has only the latter.
async fn falls_silent(kind: Kind, server: &Server) -> (Proxy, Client, Guard) {
    let (proxy, client) = mortal(server).await;
    let long = Duration::from_secs(600);
    let guard = match kind {
        Semaphore(permits) => {
            let semaphore = client.semaphore("a", permits);
            let first = semaphore.clone().lease(long).acquire().await.expect("it is free");
            let next = semaphore.lease(SHORT).acquire().await.expect("it is free");
            first.unlock().await.expect("it is ours");
            next
        }
        _ => {
            let first = client.fair_lock("a").lease(long).lock().await.expect("it is free");
            let next = client.fair_lock("a").lease(SHORT);
            let waiter = tokio::spawn(async move { next.lock().await });
            sleep(A_WHILE).await;
            first.unlock().await.expect("it is ours");
            waiter.await.expect("no panic").expect("it was called in")
        }
    };
    proxy.blackhole(None);
    (proxy, client, guard)
}

/// A name is any kind's when the lease of its last holder is over, whoever had a longer one before.
#[tokio::test]
async fn a_name_whose_holder_fell_silent_is_any_kinds_when_its_lease_is_over() {
    let (server, ours) = server_and_client().await;
    for held in [Fair, Semaphore(3)] {
        for asked in KINDS {
            let silent = falls_silent(held, &server).await;
            sleep(SHORT * 2).await;
            is_free_for(asked, &ours).await;
            drop(silent);
        }
    }
    nothing_left(&server.admin().await).await;
}

/// Notes may be evicted or deleted. Nobody enters beside those who hold it, and whoever waits is let in all the same.
#[tokio::test]
async fn who_holds_is_alone_when_the_notes_are_gone() {
    let (server, ours) = server_and_client().await;
    let (admin, lock) = (server.admin().await, ours.rw_lock("a"));
    let readers = [lock.read().await.unwrap(), lock.read().await.unwrap()];
    let (writer, early) = (client(&server).await, client(&server).await);
    let waits = writer.clone();
    let waits = tokio::spawn(async move { Write.lock(&waits).await });
    let in_line = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == 1;
    eventually(SOON, "it stands in line", in_line).await;
    assert_eq!(admin.cmd::<usize>(&["DEL", "lock_notes:{a}"]).await, 1);
    let [first, second] = readers;
    first.unlock().await.unwrap();
    let asked = early.rw_lock("a").try_write().await.unwrap();
    assert!(asked.is_none(), "somebody writes while somebody reads");
    second.unlock().await.unwrap();
    timeout(SOON, waits).await.expect("in time").unwrap().unwrap().unlock().await.unwrap();
    nothing_left(&admin).await;
}

/// Whoever of its own client took it away, a holder whose client listens is told at once.
#[tokio::test]
async fn a_holder_is_told_when_its_own_client_forces_it_out() {
    let (server, ours) = server_and_client().await;
    for kind in [Fair, Write, Semaphore(1)] {
        let guard = kind.lock(&ours).await.unwrap();
        let waiting = ours.clone();
        let waiter = tokio::spawn(async move {
            kind.lock(&waiting).await.unwrap().unlock().await.unwrap();
        });
        sleep(A_WHILE * 2).await;
        let forced = Instant::now();
        assert!(kind.force_unlock(&ours).await.unwrap());
        assert_eq!(timeout(SOON, guard.ended()).await.expect("it is told"), Ended::Lost);
        // It would be renewed in five seconds at the earliest.
        assert!(forced.elapsed() < Duration::from_secs(4), "{kind:?}: {:?}", forced.elapsed());
        waiter.await.unwrap();
    }
    nothing_left(&server.admin().await).await;
}

/// F77: a key of another type is no lock, and is left as it is.
#[tokio::test]
async fn a_key_that_holds_something_else_is_left_alone() {
    let server = Server::start().await;
    let (admin, ours) = (server.admin().await, client_with(&server, quick()).await);
    for key in ["lock:{a}", "lock_queue:{a}", "lock_notes:{a}"] {
        admin.cmd::<()>(&["SET", key, "theirs"]).await;
        for kind in [Fair, Read, Write, Semaphore(3)] {
            let answer = kind.try_lock(&ours).await;
            assert!(
                matches!(&answer, Err(Error::Conflict { key: at, .. }) if at == key),
                "{kind:?}: {answer:?}"
            );
        }
        assert_eq!(lock_keys(&admin).await, [key]);
        assert_eq!(admin.cmd::<String>(&["GETDEL", key]).await, "theirs");
    }
}
