//! The least that a server's user must be allowed, and what becomes of a lock with less.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::fixture::{LONG, SOON, key, lock_keys, parked};
use common::{Admin, Server, eventually};
use parklock::{Client, Config, Error};
use tokio::time::{sleep, timeout};

/// The channels and keys of the native layout: locks and the token counter, the lines of those who wait, and what the
/// other kinds know of them.
const PLACES: [&str; 5] =
    ["&lock_channel:*", "~lock:*", "~lock_turn:*", "~lock_queue:*", "~lock_notes:*"];

/// What the library sends and what its scripts call. HELLO and AUTH need no permission; a URL with a database needs
/// `select` as well. `del` is for `force_unlock`, `eval` for a server that has forgotten a script, and `type` for the
/// text of a `Conflict`.
const COMMANDS: [&str; 23] = [
    "del",
    "eval",
    "evalsha",
    "exists",
    "hdel",
    "hexists",
    "hget",
    "hset",
    "info",
    "pexpire",
    "pttl",
    "publish",
    "script|load",
    "set",
    "subscribe",
    "time",
    "type",
    "unsubscribe",
    "zadd",
    "zcard",
    "zrange",
    "zrem",
    "zscore",
];

/// What only the test sends, besides `script|flush`.
const OURS: [&str; 6] = ["acl", "config", "hello", "keys", "pubsub", "rpush"];

/// The URL of a user with these rules, from now on.
async fn user(server: &Server, places: &[&str], commands: &[&str]) -> String {
    let commands: Vec<_> = commands.iter().map(|command| format!("+{command}")).collect();
    let mut words = vec!["ACL", "SETUSER", "locks", "reset", "resetchannels", "on", ">sesame"];
    words.extend(places);
    words.extend(commands.iter().map(String::as_str));
    server.admin().await.cmd::<()>(&words).await;
    server.url().replace("://", "://locks:sesame@")
}

fn all_but<'a>(missing: &[&str]) -> Vec<&'a str> {
    COMMANDS.into_iter().filter(|command| !missing.contains(command)).collect()
}

async fn client(url: &str) -> Client {
    let config = Config::default().watchdog_timeout(Duration::from_secs(3)).max_park(LONG);
    let config = config.subscription_linger(Duration::from_millis(50));
    Client::connect_with(url, config).await.expect("the user may connect")
}

/// Waits for the lock that another client gives back, whether it is told or not.
async fn passes_from_client_to_client(url: &str) {
    let (ours, theirs) = (client(url).await, client(url).await);
    let held = theirs.lock("a").lock().await.expect("it is free");
    let lock = ours.lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    sleep(Duration::from_millis(100)).await;
    held.unlock().await.expect("it is given back");
    let granted = timeout(SOON, waiter).await.expect("in time").expect("no panic");
    granted.expect("it is free").unlock().await.expect("it is given back");
}

/// Everything there is to do with a plain lock.
async fn everything_plain(url: &str, admin: &Admin) {
    let (ours, theirs) = (client(url).await, client(url).await);
    let lock = ours.reentrant_lock("a");
    let outer = lock.lock().await.expect("it is free");
    let waiting = theirs.lock("a");
    let waiter = tokio::spawn(async move { waiting.lock().await });
    parked(admin, "a", 1).await;
    lock.lock().await.expect("it is ours").unlock().await.expect("it is ours");
    outer.extend(Duration::from_secs(4)).await.expect("it is ours");
    sleep(Duration::from_millis(1_500)).await; // a renewal and a heartbeat of each link
    outer.unlock().await.expect("it is ours");
    let guard =
        timeout(SOON, waiter).await.expect("in time").expect("no panic").expect("it is free");

    admin.script_flush().await;
    assert!(ours.lock("a").is_locked().await.expect("an answer"));
    assert!(ours.lock("a").force_unlock().await.expect("an answer"));
    assert!(matches!(guard.unlock().await, Err(Error::Lost)));
    admin.cmd::<i64>(&["RPUSH", &key("b"), "v"]).await;
    let conflict = ours.lock("b").lock().await;
    assert!(
        matches!(&conflict, Err(Error::Conflict { kind, .. }) if kind == "list"),
        "{conflict:?}"
    );
    eventually(SOON, "nobody listens", async || admin.channels().await.is_empty()).await;
}

/// Everything there is to do with what has a queue.
async fn everything_queued(url: &str, admin: &Admin) {
    let (ours, theirs) = (client(url).await, client(url).await);
    let (fair, rw, semaphore) = (ours.fair_lock("c"), ours.rw_lock("d"), ours.semaphore("e", 2));
    let guards = [
        fair.lock().await.expect("it is free"),
        rw.write().await.expect("it is free").into_guard(),
        semaphore.acquire_many(2).await.expect("it is free"),
    ];
    let nested = rw.read().await.expect("it is ours");
    let waiters = [
        tokio::spawn({
            let waiting = theirs.fair_lock("c");
            async move { waiting.lock().await }
        }),
        tokio::spawn({
            let waiting = theirs.rw_lock("d");
            async move { waiting.read().await }
        }),
        tokio::spawn({
            let waiting = theirs.semaphore("e", 2);
            async move { waiting.acquire().await }
        }),
    ];
    for name in ["c", "d", "e"] {
        parked(admin, name, 1).await;
    }
    nested.unlock().await.expect("it is ours");
    sleep(Duration::from_millis(1_500)).await; // a renewal of each
    for guard in guards {
        guard.extend(Duration::from_secs(4)).await.expect("it is ours");
        guard.unlock().await.expect("it is ours");
    }
    for waiter in waiters {
        let guard = timeout(SOON, waiter).await.expect("in time").expect("no panic");
        drop(guard.expect("it is free"));
    }
    admin.script_flush().await;
    let held = semaphore.acquire().await.expect("it is free");
    assert!(semaphore.set_permits(3).await.expect("an answer").try_acquire().await.is_ok());
    assert!(matches!(ours.fair_lock("e").lock().await, Err(Error::Conflict { .. })));
    assert!(semaphore.force_unlock().await.expect("an answer"));
    assert!(matches!(held.unlock().await, Err(Error::Lost)));
    eventually(SOON, "nobody listens", async || admin.channels().await.is_empty()).await;
    eventually(SOON, "nothing is left", async || lock_keys(admin).await == [key("b")]).await;
}

/// The first words of all commands that were run.
async fn commands_run(admin: &Admin) -> BTreeSet<String> {
    let stats: String = admin.cmd(&["INFO", "commandstats"]).await;
    // Valkey lists what was only refused, too.
    let run = stats.lines().filter(|line| !line.contains(":calls=0,"));
    let names = run.filter_map(|line| line.strip_prefix("cmdstat_")?.split([':', '|']).next());
    names.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_least_privileged_user_can_do_everything_and_has_nothing_to_spare() {
    let server = Server::start().await;
    let (admin, url) = (server.admin().await, user(&server, &PLACES, &COMMANDS).await);
    admin.reset_stats().await;
    everything_plain(&url, &admin).await;
    everything_queued(&url, &admin).await;

    let log: Vec<redis::Value> = admin.cmd(&["ACL", "LOG"]).await;
    let mut denied = log.iter().map(|entry| format!("{entry:?}"));
    // Since 7.2 the connection offers its library's name, and does not mind a refusal.
    assert!(denied.all(|entry| entry.contains("setinfo")), "{log:?}");
    let run = commands_run(&admin).await;
    let needed: BTreeSet<_> =
        run.iter().map(String::as_str).filter(|name| !OURS.contains(name)).collect();
    let allowed = COMMANDS.map(|command| command.split('|').next().unwrap());
    assert_eq!(needed, BTreeSet::from(allowed));
}

#[tokio::test]
async fn a_user_who_may_not_listen_nor_publish_nor_load_scripts_has_to_look() {
    let server = Server::start().await;
    for missing in [&["subscribe"][..], &["publish"], &["script|load"], &["eval"], &["type", "del"]]
    {
        passes_from_client_to_client(&user(&server, &PLACES, &all_but(missing)).await).await;
    }
    passes_from_client_to_client(&user(&server, &PLACES[1..], &COMMANDS).await).await;
}

#[tokio::test]
async fn scripts_that_somebody_else_has_loaded_can_be_called_without_the_right_to_any_other() {
    let server = Server::start().await;
    let _loaded = client(&server.url()).await;
    let url = user(&server, &PLACES, &all_but(&["eval", "script|load"])).await;
    passes_from_client_to_client(&url).await;
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_at_once_and_leaves_nothing_behind() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for missing in ["evalsha", "exists", "hset", "set", "pexpire"] {
        let client = client(&user(&server, &PLACES, &all_but(&[missing])).await).await;
        let refused = timeout(SOON, client.lock("a").lock()).await.expect(missing);
        assert!(matches!(refused, Err(Error::Permission { .. })), "{missing}: {refused:?}");
        assert!(lock_keys(&admin).await.is_empty(), "{missing}");
    }
    let client = client(&user(&server, &["~other:*"], &COMMANDS).await).await;
    let refused = timeout(SOON, client.lock("a").lock()).await.unwrap();
    assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
}

#[tokio::test]
async fn so_it_is_with_what_has_a_queue() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let missing =
        ["evalsha", "exists", "hget", "hset", "set", "pexpire", "zadd", "zcard", "zrange"];
    for missing in missing.into_iter().chain(["zscore", "zrem", "pttl", "del", "hdel"]) {
        let client = client(&user(&server, &PLACES, &all_but(&[missing])).await).await;
        let refused = timeout(SOON, client.semaphore("a", 2).acquire()).await.expect(missing);
        let refused = match refused {
            // It is noticed later by those whose script needs it.
            Ok(guard) => guard.unlock().await.map(|()| unreachable!("{missing} is not needed")),
            refused => refused,
        };
        assert!(matches!(refused, Err(Error::Permission { .. })), "{missing}: {refused:?}");
        for key in lock_keys(&admin).await {
            assert!(admin.pttl(&key).await > 0, "without {missing}, {key} would stay");
            admin.cmd::<()>(&["DEL", &key]).await;
        }
    }
}

#[tokio::test]
async fn whoever_may_not_release_is_told_and_its_lease_ends_the_lock() {
    let server = Server::start().await;
    let (admin, url) = (server.admin().await, user(&server, &PLACES, &all_but(&["hdel"])).await);
    let client = client(&url).await;
    let guard = client.lock("a").lock().await.unwrap();
    let refused = timeout(SOON, guard.unlock()).await.unwrap();
    assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
    assert!(admin.pttl(&key("a")).await > 0);
    eventually(SOON, "the lease ends it", async || lock_keys(&admin).await.is_empty()).await;
}

#[tokio::test]
async fn a_user_without_a_heartbeat_cannot_connect() {
    let server = Server::start().await;
    let url = user(&server, &PLACES, &all_but(&["time"])).await;
    let refused = timeout(SOON, Client::connect(url)).await.unwrap();
    assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
}
