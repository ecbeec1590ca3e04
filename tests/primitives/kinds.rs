//! One name, one kind: a caller that asks for another kind is told, and the holder notices nothing.

use crate::common;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::fixture::{
    A_WHILE, LONG, SOON, client, client_with, comes_in, lock_keys, quick, server_and_client,
};
use common::{Admin, Proxy, Site, Watch, eventually, judged, timeout};
use parklock::{Client, Config, Ended, Error, Guard, Layout, Result};
use tokio::task::JoinHandle;
use tokio::time::sleep;

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

    /// What errors call it. A key with the holders of a plain lock is a hash, with those of another kind a sorted set.
    fn called(self) -> &'static str {
        match self {
            Lock => "lock",
            Fair => "fair lock",
            Read | Write => "read-write lock",
            Semaphore(1) => "semaphore of 1 permit",
            Semaphore(3) => "semaphore of 3 permits",
            Semaphore(_) => "semaphore",
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
    let Err(error @ Error::Conflict { .. }) = answer else {
        panic!("{pair:?}, {what}: {answer:?}")
    };
    let (held, asked) = (pair.0.called(), pair.1.called());
    let says = |kind| {
        let key = "the key \"lock:{a}\"";
        format!(
            "the caller asked for a {asked}, but {key} holds a {kind}: a name has one kind at a time"
        )
    };
    let holders = if pair.0 == Lock { "hash, as a plain lock does" } else { "zset" };
    let said = error.to_string();
    assert!(said == says(held) || said == says(holders), "{pair:?}, {what}: {said}");
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
async fn a_name_in_use_is_a_conflict_for_other_kinds() {
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

/// F77: the same while somebody waits. The waiter still gets the lock.
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
async fn mortal(server: &Site) -> (Proxy, Client) {
    let proxy = Proxy::before(server).await;
    // A waiter that a message lets in holds for at least this long.
    let config = Config::default().waiter_ttl(SHORT / 2);
    let client = comes_in(proxy.url(), config).await;
    (proxy, client)
}

const SHORT: Duration = Duration::from_millis(300);

/// Takes the lock with a long lease, then with a short one, and falls silent when it holds only the second.
async fn falls_silent(kind: Kind, server: &Site) -> (Proxy, Client, Guard) {
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

/// A name is free for any kind when the lease of its last holder is over, even if another holder had a longer one
/// before.
#[tokio::test]
async fn a_name_is_free_for_any_kind_when_the_lease_of_its_holder_is_over() {
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

/// Notes may be evicted or deleted. Nobody enters beside the holders, and a waiter is let in all the same.
#[tokio::test]
async fn nobody_enters_beside_a_holder_when_the_notes_are_gone() {
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

/// A holder whose client listens is told at once, also if its own client took the lock away.
#[tokio::test]
async fn a_holder_is_told_when_its_own_client_forces_it_out() {
    let server = Site::start().await;
    // It would be renewed after minutes.
    let ours = client_with(&server, Config::default().watchdog_timeout(LONG)).await;
    let admin = server.admin().await;
    for kind in [Fair, Write, Semaphore(1)] {
        let guard = kind.lock(&ours).await.unwrap();
        let waiting = ours.clone();
        let waiter = tokio::spawn(async move {
            kind.lock(&waiting).await.unwrap().unlock().await.unwrap();
        });
        common::fixture::parked(&admin, "a", 1).await;
        assert!(kind.force_unlock(&ours).await.unwrap());
        assert_eq!(timeout(SOON, guard.ended()).await.expect("it is told"), Ended::Lost);
        waiter.await.unwrap();
    }
    nothing_left(&server.admin().await).await;
}

/// The same for callers that hold it side by side, while nobody of their client listens.
#[tokio::test]
async fn holders_side_by_side_are_told_when_their_own_client_forces_them_out() {
    let server = Site::start().await;
    // They would be renewed after minutes.
    let ours = client_with(&server, Config::default().watchdog_timeout(LONG)).await;
    for kind in [Read, Semaphore(200)] {
        let guards = [kind.lock(&ours).await.unwrap(), kind.lock(&ours).await.unwrap()];
        assert!(kind.force_unlock(&ours).await.unwrap());
        for guard in guards {
            assert_eq!(timeout(SOON, guard.ended()).await.expect("it is told"), Ended::Lost);
        }
    }
}

/// F77: a key of another type is no lock, and is left as it is.
#[tokio::test]
async fn a_key_that_holds_something_else_is_left_alone() {
    let server = Site::start().await;
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

// A caller whose future is not polled stops nobody. The lease is half a minute: if a lock is free much sooner, the
// lease has not freed it.

const LAYOUTS: [Layout; 2] = [Layout::Native, Layout::Redisson];

/// The kinds that let in one caller at a time, and reads, which let in all readers.
const ONE_BY_ONE: [Kind; 5] = [Lock, Fair, Read, Write, Semaphore(1)];

/// Two clients of one server, which give a caller little time to be polled.
async fn two_clients(server: &Site, layout: Layout) -> (Client, Client) {
    // A grant by message lasts longer than a busy machine stands still.
    let config =
        Config::default().waiter_ttl(Duration::from_secs(6)).pickup_timeout(SHORT).layout(layout);
    let ours = comes_in(server.url(), config.clone()).await;
    (ours, comes_in(server.url(), config).await)
}

type Asked = Pin<Box<dyn Future<Output = Result<Option<Guard>>> + Send>>;

/// A caller that only the test polls.
struct Asleep(Asked);

impl Asleep {
    fn asks(kind: Kind, client: &Client) -> Self {
        let client = client.clone();
        Self(Box::pin(async move { kind.lock(&client).await.map(Some) }))
    }

    fn tries(kind: Kind, client: &Client) -> Self {
        let client = client.clone();
        Self(Box::pin(
            async move { kind.try_lock(&client).await.map(|got| Some(got.expect("free"))) },
        ))
    }

    fn unlocks(guard: Guard) -> Self {
        Self(Box::pin(async move { guard.unlock().await.map(|()| None) }))
    }

    fn polled(mut self) -> Self {
        let polled = self.0.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending), "{polled:?}");
        self
    }

    /// Polled until it sleeps: it has asked, and waits in line.
    async fn parked(mut self) -> Self {
        assert!(timeout(A_WHILE * 3, self.0.as_mut()).await.is_err(), "somebody has it");
        self
    }

    /// The caller's guard, unless the client has given the lock back.
    async fn wakes(self) -> Option<Guard> {
        timeout(SOON, self.0).await.expect("it is polled").expect("its turn comes")
    }
}

/// Callers of one name. All of them finish, and no two are inside at the same time.
#[derive(Clone)]
struct Crowd {
    kind: Kind,
    inside: Arc<AtomicUsize>,
}

impl Crowd {
    fn of(kind: Kind) -> Self {
        Self { kind, inside: Arc::default() }
    }

    fn caller(&self, client: &Client) -> JoinHandle<()> {
        let (crowd, client) = (self.clone(), client.clone());
        tokio::spawn(async move {
            let guard = crowd.kind.lock(&client).await.expect("its turn comes");
            crowd.visit(guard).await;
        })
    }

    async fn visit(&self, guard: Guard) {
        let before = self.inside.fetch_add(1, Ordering::SeqCst);
        let most = match self.kind {
            Read => usize::MAX,
            Semaphore(permits) => permits as usize,
            _ => 1,
        };
        assert!(before < most, "{before} others are inside");
        sleep(A_WHILE / 4).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        guard.unlock().await.expect("it is ours");
    }
}

async fn all_come(what: &str, callers: Vec<JoinHandle<()>>) {
    for caller in callers {
        let came = timeout(SOON, caller).await;
        let ended =
            came.unwrap_or_else(|_| panic!("{what}: stopped by a caller that is not polled"));
        ended.expect("it has the lock, and gives it back");
    }
}

/// In Redisson's layout only the number of free permits stays for good.
async fn all_is_free(admin: &Admin, layout: Layout) {
    let left = async || {
        let keys = lock_keys(admin).await;
        keys.iter().all(|key| layout == Layout::Redisson && key == "a")
    };
    eventually(SOON, "nothing is left", left).await;
}

/// Runs a scene for each kind in each layout. Callers that sleep are polled again afterwards, or dropped.
async fn nobody_is_stopped_by(
    scene: impl AsyncFn(&Crowd, Client, Client) -> (String, Vec<Asleep>),
) {
    nobody_of(&ONE_BY_ONE, scene).await;
}

async fn nobody_of(
    kinds: &[Kind],
    scene: impl AsyncFn(&Crowd, Client, Client) -> (String, Vec<Asleep>),
) {
    let server = Site::start().await;
    let admin = server.admin().await;
    for layout in LAYOUTS {
        for &kind in kinds {
            for wakes in [true, false] {
                let (ours, theirs) = two_clients(&server, layout).await;
                let crowd = Crowd::of(kind);
                let (what, asleep) = scene(&crowd, ours, theirs).await;
                eprintln!("{kind:?} in {layout:?}: {what}");
                for sleeper in asleep.into_iter().filter(|_| wakes) {
                    if let Some(guard) = sleeper.wakes().await {
                        crowd.visit(guard).await;
                    }
                }
                all_is_free(&admin, layout).await;
                // The number of permits that it had in Redisson's layout.
                admin.cmd::<()>(&["FLUSHALL"]).await;
            }
        }
    }
}

/// What keeps the others waiting until it is given back.
async fn taken(kind: Kind, client: &Client) -> Guard {
    let kind = if kind == Read { Write } else { kind };
    timeout(SOON, kind.lock(client)).await.expect("in time").expect("it is free")
}

/// P9: the client hands the lock on to a caller of the queue that is not polled.
#[tokio::test]
async fn a_caller_that_is_not_polled_in_the_queue_stops_nobody() {
    nobody_is_stopped_by(async |crowd, ours, theirs| {
        let guard = taken(crowd.kind, &ours).await;
        let asleep = [(); 3].map(|()| Asleep::asks(crowd.kind, &ours).polled()).into();
        let callers = vec![crowd.caller(&ours), crowd.caller(&theirs), crowd.caller(&ours)];
        sleep(A_WHILE).await;
        guard.unlock().await.expect("it is ours");
        let what = "in the queue".to_owned();
        all_come(&what, callers).await;
        (what, asleep)
    })
    .await;
}

/// P9: callers that were woken and are not polled delay another client once, and not after each hold.
#[tokio::test]
async fn callers_that_are_not_polled_in_the_queue_delay_another_client_once() {
    judged(async || {
        tokio::join!(delays_another_client_once(Lock), delays_another_client_once(Write));
    })
    .await;
}

async fn delays_another_client_once(kind: Kind) {
    // Longer than a busy machine takes to wake a waiter.
    const PICKUP: Duration = Duration::from_secs(3);
    let server = Site::start().await;
    let config = Config::default().pickup_timeout(PICKUP);
    let ours = comes_in(server.url(), config.clone()).await;
    let theirs = comes_in(server.url(), config).await;
    // Longer than from one look to the next.
    let holds = async |guard: Guard| {
        sleep(PICKUP / 3).await;
        guard.unlock().await.expect("it is ours");
    };

    let guard = taken(kind, &ours).await;
    let asleep = [(); 2].map(|()| Asleep::asks(kind, &ours).polled());
    let comes = async { holds(taken(kind, &ours).await).await };
    let gives_back = async {
        sleep(A_WHILE).await;
        guard.unlock().await.expect("it is ours");
    };
    tokio::join!(comes, gives_back);
    for round in 0..3 {
        let guard = taken(kind, &ours).await;
        let waiter = Crowd::of(kind).caller(&theirs);
        holds(guard).await;
        let free = Watch::start();
        all_come("in the queue", vec![waiter]).await;
        let took = free.passed();
        assert!(round == 0 || took < PICKUP / 2, "{kind:?}, round {round}: {took:?}");
    }
    drop(asleep);
}

/// P9: the contender was told that it has the lock, or that the lock is free, and is not polled.
#[tokio::test]
async fn a_contender_that_is_not_polled_in_the_line_stops_nobody() {
    nobody_is_stopped_by(async |crowd, ours, theirs| {
        let guard = taken(crowd.kind, &theirs).await;
        let asleep = vec![Asleep::asks(crowd.kind, &ours).parked().await];
        let callers = vec![crowd.caller(&ours), crowd.caller(&theirs), crowd.caller(&ours)];
        sleep(A_WHILE).await;
        guard.unlock().await.expect("it is ours");
        let what = "in the line".to_owned();
        all_come(&what, callers).await;
        (what, asleep)
    })
    .await;
}

/// P9: the contender has an answer that it does not read: the lock is its own for a whole lease.
#[tokio::test]
async fn a_contender_that_does_not_read_its_answer_stops_nobody() {
    for (what, behind) in [("behind it", true), ("elsewhere", false)] {
        nobody_is_stopped_by(async |crowd, ours, theirs| {
            let asleep = vec![Asleep::asks(crowd.kind, &ours).polled()];
            sleep(A_WHILE).await;
            let mut callers = vec![crowd.caller(&theirs)];
            callers.extend(behind.then(|| crowd.caller(&ours)));
            all_come(what, callers).await;
            (what.to_owned(), asleep)
        })
        .await;
    }
}

/// P9: the same if another caller, which was cancelled before the contender came, is dropped.
#[tokio::test]
async fn a_cancelled_caller_that_is_dropped_does_not_hide_the_next_one() {
    hides_nobody("a dropped caller", async |kind, ours| Asleep::asks(kind, ours)).await;
}

/// P9: the same if the cancelled call was an unlock.
#[tokio::test]
async fn a_cancelled_unlock_that_is_dropped_does_not_hide_the_next_caller() {
    hides_nobody("a dropped unlock", async |kind, ours| Asleep::unlocks(taken(kind, ours).await))
        .await;
}

async fn hides_nobody(what: &str, former: impl AsyncFn(Kind, &Client) -> Asleep) {
    nobody_of(&[Lock, Write, Semaphore(1)], async |crowd, ours, theirs| {
        let former = former(crowd.kind, &ours).await.polled();
        // It is cancelled meanwhile.
        sleep(SHORT * 3).await;
        let asleep = vec![Asleep::asks(crowd.kind, &ours).polled()];
        drop(former);
        all_come(what, vec![crowd.caller(&theirs)]).await;
        (what.to_owned(), asleep)
    })
    .await;
}

/// P9: the same for a call that does not wait.
#[tokio::test]
async fn a_call_that_does_not_wait_and_is_not_polled_stops_nobody() {
    nobody_is_stopped_by(async |crowd, ours, theirs| {
        let asleep = vec![Asleep::tries(crowd.kind, &ours).polled()];
        sleep(A_WHILE).await;
        let what = "a call that does not wait".to_owned();
        all_come(&what, vec![crowd.caller(&ours), crowd.caller(&theirs)]).await;
        (what, asleep)
    })
    .await;
}

/// P9: the same for callers of one client that have asked side by side.
#[tokio::test]
async fn permits_that_nobody_takes_up_stop_nobody() {
    nobody_of(&[Semaphore(2), Semaphore(3)], async |crowd, ours, theirs| {
        let asleep: Vec<_> = (0..3).map(|_| Asleep::asks(crowd.kind, &ours).polled()).collect();
        sleep(A_WHILE).await;
        let what = "permits that nobody takes up".to_owned();
        all_come(&what, vec![crowd.caller(&theirs), crowd.caller(&ours)]).await;
        (what, asleep)
    })
    .await;
}

/// P9: the client gives the lock back, and the caller does not read the answer.
#[tokio::test]
async fn an_unlock_that_is_not_polled_stops_nobody() {
    nobody_is_stopped_by(async |crowd, ours, theirs| {
        let guard = timeout(SOON, crowd.kind.lock(&ours)).await.expect("in time").expect("free");
        let asleep = vec![Asleep::unlocks(guard).polled()];
        sleep(A_WHILE).await;
        let what = "an unlock".to_owned();
        let callers = vec![crowd.caller(&ours), crowd.caller(&theirs), crowd.caller(&ours)];
        all_come(&what, callers).await;
        (what, asleep)
    })
    .await;
}

/// P9: the same if the request of the unlock is lost: the releaser of its client repeats it.
#[tokio::test]
async fn an_unlock_that_is_not_polled_and_whose_request_is_lost_stops_nobody() {
    let server = Site::start().await;
    let theirs = client(&server).await;
    for kind in ONE_BY_ONE {
        let proxy = Proxy::before(&server).await;
        proxy.name_script("release", include_str!("../../lua/line/release.lua"));
        let ours = comes_in(proxy.url(), Config::default().pickup_timeout(SHORT)).await;
        let guard = kind.lock(&ours).await.expect("free");
        let lost = proxy.script("release").nth(1).cut_before();
        let asleep = Asleep::unlocks(guard).polled();
        lost.happened().await;
        let asks = Crowd::of(if kind == Read { Write } else { kind });
        all_come(&format!("{kind:?}: an unlock"), vec![asks.caller(&theirs)]).await;
        drop(asleep);
    }
}

/// P9: while an unlock is not polled, readers of its client do not follow one another without end if a writer waits.
#[tokio::test]
async fn an_unlock_that_is_not_polled_does_not_let_readers_keep_a_writer_out() {
    let server = Site::start().await;
    let (ours, theirs) = two_clients(&server, Layout::Native).await;
    let guard = Read.lock(&ours).await.expect("free");
    let asleep = Asleep::unlocks(guard).polled();
    let reads = async {
        loop {
            let read = Read.lock(&ours).await.expect("its turn comes");
            sleep(A_WHILE * 2).await;
            read.unlock().await.expect("it is ours");
        }
    };
    let writes = async {
        sleep(A_WHILE).await;
        all_come("an unlock", vec![Crowd::of(Write).caller(&theirs)]).await;
    };
    tokio::select! {
        () = reads => unreachable!("the readers go on"),
        () = writes => {}
    }
    drop(asleep);
}

/// P9: a caller that was granted the lock by a message stops nobody either, even if its sign of life lasts for long.
#[tokio::test]
async fn a_grant_by_message_that_nobody_takes_stops_nobody() {
    let server = Site::start().await;
    for kind in ONE_BY_ONE {
        let config =
            Config::default().watchdog_timeout(SOON * 4).waiter_ttl(SOON * 2).pickup_timeout(SHORT);
        let ours = comes_in(server.url(), config.clone()).await;
        let theirs = comes_in(server.url(), config).await;
        let other = if kind == Read { Write } else { kind };
        let held = other.lock(&theirs).await.expect("free");
        let asleep = Asleep::asks(kind, &ours).parked().await;
        held.unlock().await.expect("it is ours");
        all_come(&format!("{kind:?}: a grant"), vec![Crowd::of(other).caller(&theirs)]).await;
        drop(asleep);
    }
}

/// P9: a caller in line that does not fit in stops nobody either, although another caller of its client shows signs of
/// life, now or later. A caller with its own lease has its own place in line.
#[tokio::test]
async fn a_caller_that_does_not_fit_in_and_is_not_polled_stops_nobody() {
    judged(async || {
        let (reads, permits) = ((Read, Write, Read), (Semaphore(5), Semaphore(5), Semaphore(5)));
        for (inside, large, small) in [reads, permits] {
            for (later, leased) in [(false, false), (true, false), (false, true)] {
                let server = Site::start().await;
                let (ours, theirs) = two_clients(&server, Layout::Native).await;
                let held = part_of(theirs.clone(), inside, 1, false).await.expect("free");
                let waits = part_of(ours.clone(), large, 5, leased);
                let asleep = Asleep(Box::pin(async move { waits.await.map(Some) })).parked().await;
                if later {
                    sleep(SHORT * 4).await;
                }
                let beside = tokio::spawn(part_of(ours.clone(), small, 1, false));
                let another = tokio::spawn(part_of(theirs.clone(), small, 1, false));
                for caller in [another, beside] {
                    let came = timeout(SOON, caller).await.expect("it fits in");
                    let guard = came.expect("no panic").expect("its turn comes");
                    guard.unlock().await.expect("it is ours");
                }
                held.unlock().await.expect("it is ours");
                drop(asleep);
            }
        }
    })
    .await;
}

/// So many permits, or a read or a write.
async fn part_of(client: Client, kind: Kind, permits: u32, leased: bool) -> Result<Guard> {
    let lease = SOON * 2;
    match kind {
        Semaphore(of) if leased => {
            client.semaphore("a", of).lease(lease).acquire_many(permits).await
        }
        Semaphore(of) => client.semaphore("a", of).acquire_many(permits).await,
        Write if leased => {
            client.rw_lock("a").lease(lease).write().await.map(|guard| guard.into_guard())
        }
        kind => kind.lock(&client).await,
    }
}

/// P9: one caller of a client asks for all of its callers that are far from the front. That caller is not polled, and
/// all waiters before it die together.
#[tokio::test]
async fn a_caller_that_asks_for_others_and_is_not_polled_stops_nobody() {
    judged(async || {
        const LIFE: Duration = Duration::from_secs(2);
        let server = Site::start().await;
        let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
        let config = || Config::default().watchdog_timeout(LIFE * 2).waiter_ttl(LIFE);
        let dies = comes_in(proxy.url(), config()).await;
        let _held = taken(Fair, &dies).await;
        let in_line = async |waiters: usize| {
            let all = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == waiters;
            eventually(SOON, &format!("{waiters} wait"), all).await;
        };
        let near = [(); 4].map(|()| {
            let dies = dies.clone();
            tokio::spawn(async move { Fair.lock(&dies).await })
        });
        in_line(near.len()).await;

        let (crowd, ours) = (Crowd::of(Fair), client_with(&server, config()).await);
        let asleep = Asleep::asks(Fair, &ours).parked().await;
        let caller = crowd.caller(&ours);
        in_line(near.len() + 2).await;
        let _silent = proxy.blackhole(None);
        all_come("it asks for all", vec![caller]).await;
        drop(asleep);
        near.iter().for_each(JoinHandle::abort);
    })
    .await;
}
