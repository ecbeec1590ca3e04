//! Holds end with the process of their client (`Config::session`): soon after its death, and never while another one could believe in them.

use crate::common;

use std::pin::pin;
use std::time::{Duration, Instant};

use common::fixture::{LONG, SOON, comes_in, is_pending, key, parked};
use common::rights::{rules, user};
use common::{Admin, Server, Worker, WorkerSide, eventually, judged, timeout};
use parklock::{Client, Config, Ended, Error, Guard, MultiLock};
use tokio::time::sleep;

const GRACE: Duration = Duration::from_secs(2);

/// For how long waiters see nobody listen.
const PATIENCE: Duration = Duration::from_millis(1_660);

/// No test sees the end of a lease.
fn without() -> Config {
    Config::default().watchdog_timeout(LONG)
}

fn within(grace: Duration) -> Config {
    without().session(grace)
}

/// Locks as it is told, and says so; then answers whether it believes to hold the lock.
#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_holds() {
    let Some(mut boss) = WorkerSide::here() else { return };
    let grace: u64 = boss.variable("GRACE").parse().unwrap();
    let config = if grace == 0 { without() } else { within(Duration::from_millis(grace)) };
    let client = comes_in(boss.variable("URL"), config).await;
    let kind = boss.variable("KIND");
    if kind == "leader" {
        let leadership = client.election("a").campaign().await.unwrap();
        boss.tell("granted");
        while leadership.is_leader() && boss.order().await.is_some() {}
        return;
    }
    let guard = locked(&client, &kind).await;
    boss.tell("granted");
    while let Some(order) = boss.order().await {
        assert_eq!(order, "valid?");
        boss.tell(&guard.is_valid().to_string());
    }
}

/// A hold of this kind, to which every other one of its kind is in the way.
async fn locked(client: &Client, kind: &str) -> Guard {
    match kind {
        "lock" => client.lock("a").lock().await,
        "fair" => client.fair_lock("a").lock().await,
        "write" => client.rw_lock("a").write().await.map(Guard::from),
        "permits" => client.semaphore("a", 3).acquire_many(2).await,
        other => panic!("what is {other}?"),
    }
    .expect("it is granted")
}

async fn holder(server: &Server, kind: &str, grace: Duration) -> Worker {
    let grace = grace.as_millis().to_string();
    let variables = [("URL", server.url()), ("GRACE", grace), ("KIND", kind.to_owned())];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, &**value)).collect();
    let mut worker = Worker::start("session::worker_that_holds", &variables);
    assert_eq!(timeout(SOON, worker.hear()).await.expect("it is granted"), "granted");
    worker
}

/// The note of those to whom nobody listens.
async fn silent(admin: &Admin) -> Option<String> {
    admin.cmd(&["HGET", "lock_notes:{a}", "silent"]).await
}

#[tokio::test]
async fn the_lock_of_a_killed_process_is_free_long_before_its_lease_is_over() {
    for kind in ["lock", "fair", "write", "permits"] {
        let server = Server::start().await;
        let admin = server.admin().await;
        let mut holder = holder(&server, kind, GRACE).await;
        let client = comes_in(server.url(), without()).await;
        let waiter = tokio::spawn(async move { locked(&client, kind).await });
        parked(&admin, "a", 1).await;

        let killed = Instant::now();
        holder.kill9();

        let guard = timeout(SOON, waiter).await.expect("soon").unwrap();
        let took = killed.elapsed();
        println!("{kind}: {took:?} after the death");
        assert!(took >= PATIENCE, "{kind}: {took:?}");
        assert!(guard.is_valid());
    }
}

#[tokio::test]
async fn another_candidate_leads_soon_after_the_death_of_a_leader() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let mut leader = holder(&server, "leader", GRACE).await;
    let client = comes_in(server.url(), within(GRACE)).await;
    let next = tokio::spawn(async move { client.election("a").campaign().await });
    parked(&admin, "a", 1).await;

    leader.kill9();

    let leadership = timeout(SOON, next).await.expect("soon").unwrap().unwrap();
    assert!(leadership.is_leader());
}

/// The name of the channel has both in it, in the client and in the scripts.
#[tokio::test]
async fn a_holder_in_a_namespace_and_another_database_is_heard() {
    judged(async || {
        let server = Server::start().await;
        let url = format!("{}/3", server.url().trim_end_matches('/'));
        let config = within(Duration::from_secs(1)).namespace("billing");
        let ours = comes_in(&url, config.clone()).await;
        let guard = ours.lock("a b%").lock().await.unwrap();
        let theirs = comes_in(&url, config).await;
        let waiter = tokio::spawn(async move { theirs.lock("a b%").lock().await });
        sleep(Duration::from_secs(3)).await;
        assert!(!waiter.is_finished() && guard.is_valid());
        let channels: Vec<String> = server
            .admin()
            .await
            .cmd(&["PUBSUB", "CHANNELS", "billing:lock_channel:3:session:*"])
            .await;
        assert_eq!(channels.len(), 2, "{channels:?}");
    })
    .await;
}

#[tokio::test]
async fn the_lock_of_a_stopped_process_stays_its_own() {
    judged(async || {
        let grace = Duration::from_secs(4);
        let server = Server::start().await;
        let admin = server.admin().await;
        let mut holder = holder(&server, "lock", grace).await;
        let client = comes_in(server.url(), without()).await;
        let waiter = tokio::spawn(async move { locked(&client, "lock").await });
        parked(&admin, "a", 1).await;

        holder.stop_process();
        sleep(grace * 3 / 2).await;
        assert!(!waiter.is_finished(), "its connection is still there");
        holder.continue_process();

        eventually(SOON, "it believes again", async || holder.ask("valid?").await == "true").await;
        assert!(!waiter.is_finished());
    })
    .await;
}

#[tokio::test]
async fn a_holder_whose_connection_breaks_keeps_its_lock() {
    judged(async || {
        let server = Server::start().await;
        let admin = server.admin().await;
        let grace = Duration::from_secs(3);
        let ours = comes_in(server.url(), within(grace)).await;
        let guard = ours.lock("a").lock().await.unwrap();
        let client = comes_in(server.url(), without()).await;
        let waiter = tokio::spawn(async move { locked(&client, "lock").await });
        parked(&admin, "a", 1).await;

        for _ in 0..4 {
            assert!(admin.client_kill("pubsub").await > 0);
            sleep(grace / 2).await;
            eventually(SOON, "it is valid", async || guard.is_valid()).await;
        }

        assert!(!waiter.is_finished());
        guard.unlock().await.unwrap();
        assert!(timeout(SOON, waiter).await.expect("soon").unwrap().is_valid());
    })
    .await;
}

/// A user that may listen or not, as the test wants it.
struct Listener {
    server: Server,
    admin: Admin,
    client: Client,
}

impl Listener {
    async fn new() -> Self {
        Self::with(within(GRACE)).await
    }

    async fn with(config: Config) -> Self {
        let server = Server::start().await;
        let url = user(&server, &rules("docs/operations.md")).await;
        let client = comes_in(url, config).await;
        Self { admin: server.admin().await, server, client }
    }

    /// The server ends its connection for messages, and lets it listen no more.
    async fn is_cut_off(&self) {
        self.admin.cmd::<()>(&["ACL", "SETUSER", "locks", "resetchannels"]).await;
    }

    async fn is_back(&self) {
        self.admin.cmd::<()>(&["ACL", "SETUSER", "locks", "&lock_channel:*"]).await;
    }
}

#[tokio::test]
async fn a_hold_that_is_not_heard_is_suspended_and_then_valid_again() {
    judged(async || {
        let listener = Listener::new().await;
        let guard = listener.client.lock("a").lock().await.unwrap();
        assert!(guard.is_valid() && guard.remaining() <= PATIENCE);

        listener.is_cut_off().await;
        eventually(SOON, "it is suspended", async || !guard.is_valid()).await;
        assert!(is_pending(guard.ended()).await, "it is not lost");
        assert_eq!(guard.remaining(), Duration::ZERO);

        listener.is_back().await;
        eventually(SOON, "it is valid again", async || guard.is_valid()).await;
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Nobody has taken them, so a renewal finds each of them.
#[tokio::test]
async fn suspended_locks_that_are_held_together_can_be_extended() {
    let listener = Listener::new().await;
    let both = listener.client.multi_lock(["a", "b"]).lock().await.unwrap();

    listener.is_cut_off().await;
    eventually(SOON, "they are suspended", async || !both.is_valid()).await;
    both.extend(LONG).await.expect("they are not lost");
    assert!(is_pending(both.ended()).await);

    listener.is_back().await;
    eventually(SOON, "they are valid again", async || both.is_valid()).await;
    both.unlock().await.unwrap();
}

/// As a lock alone is. They are suspended, and not lost: nobody else has them.
#[tokio::test]
async fn a_client_that_is_not_heard_gets_locks_that_are_held_together() {
    let listener = Listener::new().await;
    let guard = listener.client.lock("a").lock().await.unwrap();
    let other = comes_in(listener.server.url(), without()).await;
    listener.is_cut_off().await;
    eventually(SOON, "it is suspended", async || !guard.is_valid()).await;

    let together = listener.client.multi_lock(["b", "c"]);
    let apart = MultiLock::new([listener.client.lock("d"), other.lock("e")]);
    for locks in [together, apart] {
        let both = timeout(SOON, locks.lock()).await.expect("they are free").unwrap();
        assert!(!both.is_valid() && is_pending(both.ended()).await);
        both.unlock().await.unwrap();
        let both = locks.try_lock().await.unwrap().expect("they are free");
        assert!(!both.is_valid() && is_pending(both.ended()).await);
        both.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn locks_that_are_held_together_are_asked_for_when_the_client_is_heard() {
    judged(async || {
        let listener = Listener::with(within(GRACE).response_timeout(SOON)).await;
        let guard = listener.client.lock("a").lock().await.unwrap();
        listener.is_cut_off().await;
        eventually(SOON, "it is suspended", async || !guard.is_valid()).await;

        let locks = listener.client.multi_lock(["b", "c"]);
        let mut asking = pin!(locks.lock());
        assert!(is_pending(&mut asking).await);
        listener.is_back().await;
        let both = timeout(SOON, asking).await.expect("it is heard").unwrap();
        assert!(both.is_valid());
        both.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_suspended_hold_that_another_client_has_taken_is_lost() {
    let listener = Listener::new().await;
    let guard = listener.client.lock("a").lock().await.unwrap();
    let others = comes_in(listener.server.url(), within(GRACE)).await;
    let waiter = tokio::spawn(async move { (locked(&others, "lock").await, others) });
    parked(&listener.admin, "a", 1).await;

    listener.is_cut_off().await;
    let (theirs, _others) = timeout(SOON, waiter).await.expect("soon").unwrap();
    assert!(!guard.is_valid(), "before anybody else has it");
    assert!(theirs.token() > guard.token());

    listener.is_back().await;
    assert_eq!(timeout(SOON, guard.ended()).await, Ok(Ended::Lost));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
}

/// Otherwise the next break, however short, would be the end of the hold: whoever looks then finds an old note.
#[tokio::test]
async fn a_hold_is_valid_again_only_when_the_note_that_nobody_listens_is_erased() {
    let listener = Listener::new().await;
    let (admin, client) = (&listener.admin, &listener.client);
    let guards = [locked(client, "lock").await, client.fair_lock("b").lock().await.unwrap()];
    listener.is_cut_off().await;
    for guard in &guards {
        eventually(SOON, "it is suspended", async || !guard.is_valid()).await;
    }
    for name in ["a", "b"] {
        let holder = match name {
            "a" => admin.cmd::<Vec<String>>(&["HKEYS", &key("a")]).await.pop(),
            _ => admin.cmd::<Vec<String>>(&["ZRANGE", &key("b"), "-1", "-1"]).await.pop(),
        };
        let note = format!("{} 1", holder.unwrap());
        let notes = format!("lock_notes:{{{name}}}");
        admin.cmd::<()>(&["HSET", &notes, "silent", &note]).await;
    }

    listener.is_back().await;
    for (guard, name) in guards.iter().zip(["a", "b"]) {
        eventually(SOON, "it is valid again", async || guard.is_valid()).await;
        let notes = format!("lock_notes:{{{name}}}");
        assert!(!admin.cmd::<bool>(&["HEXISTS", &notes, "silent"]).await, "{name}");
    }
}

#[tokio::test]
async fn each_break_is_noted_anew() {
    judged(async || {
        let listener = Listener::new().await;
        let guard = listener.client.lock("a").lock().await.unwrap();
        let others = comes_in(listener.server.url(), without()).await;
        let waiter = tokio::spawn(async move { locked(&others, "lock").await });
        parked(&listener.admin, "a", 1).await;
        let since = async |note: String| -> u64 {
            note.rsplit(' ').next().and_then(|since| since.parse().ok()).expect("a time")
        };
        let mut noted = Vec::new();
        for _ in 0..2 {
            listener.is_cut_off().await;
            eventually(SOON, "it is noted", async || silent(&listener.admin).await.is_some()).await;
            noted.push(since(silent(&listener.admin).await.expect("a note")).await);
            listener.is_back().await;
            eventually(SOON, "no more", async || silent(&listener.admin).await.is_none()).await;
            eventually(SOON, "it is valid", async || guard.is_valid()).await;
        }
        assert!(noted[0] < noted[1], "{noted:?}");
        assert!(!waiter.is_finished());
    })
    .await;
}

#[tokio::test]
async fn a_client_without_a_session_keeps_its_lock_for_its_lease() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let mut holder = holder(&server, "lock", Duration::ZERO).await;
    let client = comes_in(server.url(), within(Duration::from_secs(1))).await;
    let waiter = tokio::spawn(async move { locked(&client, "lock").await });
    parked(&admin, "a", 1).await;
    holder.kill9();
    sleep(Duration::from_secs(3)).await;
    assert!(!waiter.is_finished() && silent(&admin).await.is_none());
}

#[tokio::test]
async fn there_is_no_session_in_a_cluster() {
    let url = "redis-cluster://127.0.0.1:1";
    let refused = Client::connect_with(url, within(GRACE)).await.expect_err("refused");
    assert!(matches!(refused, Error::Config { .. }), "{refused}");
}

#[tokio::test]
async fn a_user_that_may_not_listen_gets_no_session() {
    let server = Server::start().await;
    let mut rules = rules("docs/operations.md");
    rules.retain(|rule| !rule.starts_with('&'));
    let url = user(&server, &rules).await;
    let config = within(GRACE).start_timeout(LONG);
    let refused = Client::connect_with(url, config).await.expect_err("refused");
    assert!(matches!(refused, Error::Permission { .. }), "{refused}");
}
