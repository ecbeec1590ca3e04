//! The least that a server's user must be allowed, and what becomes of a lock with less.

use crate::common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::fixture::{LONG, SOON, key, lock_keys};
use common::rights::{as_user, commands_in_scripts, in_a_cluster, rules, rules_of, user};
use common::{Admin, Cluster, Server, eventually, timeout};
use futures_util::future::join_all;
use parklock::{Client, Config, Error, Layout, Owner};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Where the user of a layout stands, and the scripts that it calls.
const NATIVE: (&str, &[&str]) =
    ("docs/operations.md", &["lock", "line", "latch", "marks", "condition"]);
const REDISSON: (&str, &[&str]) =
    ("docs/from-redisson.md", &["lock", "latch", "marks", "redisson"]);

/// What only the test sends, besides `script|flush`.
const OURS: [&str; 6] = ["acl", "config", "hello", "keys", "pubsub", "sadd"];

/// The manual's user, but not for these commands.
async fn user_without(server: &Server, missing: &[&str]) -> String {
    let mut rules = rules(NATIVE.0);
    rules.retain(|rule| !missing.contains(&rule.trim_start_matches('+')));
    user(server, &rules).await
}

async fn client(url: &str) -> Client {
    client_of(url, Layout::Native).await
}

async fn client_of(url: &str, layout: Layout) -> Client {
    let config = Config::default().watchdog_timeout(Duration::from_secs(3)).max_park(LONG);
    let config = config.layout(layout);
    let config = config.subscription_linger(Duration::from_millis(50));
    common::fixture::comes_in(url, config).await
}

/// One client waits for a lock that another gives back. The waiter may or may not get a message.
async fn passes_from_client_to_client(url: &str) {
    passes_between(&client(url).await, &client(url).await).await;
}

async fn passes_between(ours: &Client, theirs: &Client) {
    let held = theirs.lock("a").lock().await.expect("it is free");
    let lock = ours.lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    sleep(Duration::from_millis(100)).await;
    held.unlock().await.expect("it is given back");
    let granted = timeout(SOON, waiter).await.expect("in time").expect("no panic");
    granted.expect("it is free").unlock().await.expect("it is given back");
}

/// Waits until somebody listens at a channel of this name.
async fn awaited(admin: &Admin, name: &str) {
    let tag = format!("{{{name}}}");
    let listens = async || admin.channels().await.iter().any(|channel| channel.contains(&tag));
    eventually(SOON, &format!("somebody waits for {name}"), listens).await;
}

async fn nobody_listens(admin: &Admin) {
    eventually(SOON, "nobody listens", async || admin.channels().await.is_empty()).await;
}

async fn granted<T>(waiter: JoinHandle<parklock::Result<T>>) -> T {
    timeout(SOON, waiter).await.expect("in time").expect("no panic").expect("it is free")
}

/// Everything there is to do with plain locks.
async fn everything_plain(url: &str, layout: Layout, admin: &Admin) {
    let (ours, theirs) = (client_of(url, layout).await, client_of(url, layout).await);
    let lock = ours.reentrant_lock("a");
    let outer = lock.lock().await.expect("it is free");
    let waiting = theirs.lock("a");
    let waiter = tokio::spawn(async move { waiting.lock().await });
    awaited(admin, "a").await;
    lock.lock().await.expect("it is ours").unlock().await.expect("it is ours");
    outer.extend(Duration::from_secs(4)).await.expect("it is ours");
    sleep(Duration::from_millis(1_500)).await; // a renewal and a heartbeat of each link
    outer.unlock().await.expect("it is ours");
    let guard = granted(waiter).await;

    admin.script_flush().await;
    assert!(ours.lock("a").is_locked().await.expect("an answer"));
    assert!(ours.lock("a").force_unlock().await.expect("an answer"));
    assert!(matches!(guard.unlock().await, Err(Error::Lost)));
    let fenced = ours.redisson().fenced_lock("a").lock().await.expect("it is free");
    fenced.unlock().await.expect("it is ours");
    let strange = if layout == Layout::Native { key("b") } else { "b".to_owned() };
    admin.cmd::<i64>(&["SADD", &strange, "v"]).await;
    let conflict = ours.lock("b").lock().await;
    assert!(
        matches!(&conflict, Err(Error::Conflict { kind, .. }) if kind == "set"),
        "{conflict:?}"
    );
    nobody_listens(admin).await;
}

/// Everything there is to do with several locks at once.
async fn everything_together(url: &str, layout: Layout, admin: &Admin) {
    let (ours, theirs) = (client_of(url, layout).await, client_of(url, layout).await);
    let both = ours.multi_lock(["m", "n"]);
    let held = both.lock().await.expect("they are free");
    let waiting = theirs.multi_lock(["n", "o"]);
    let waiter = tokio::spawn(async move { waiting.lock().await });
    awaited(admin, "n").await;
    assert!(theirs.multi_lock(["m", "o"]).try_lock().await.expect("an answer").is_none());
    sleep(Duration::from_millis(1_500)).await; // a renewal
    held.unlock().await.expect("they are ours");
    granted(waiter).await.unlock().await.expect("they are ours");
    let held = both.lock().await.expect("they are free");
    assert!(both.is_locked().await.expect("an answer"));
    assert!(both.force_unlock().await.expect("an answer"));
    assert!(held.unlock().await.is_err());
    nobody_listens(admin).await;
}

/// Everything there is to do with what has a queue, or would have one.
async fn everything_queued(url: &str, layout: Layout, admin: &Admin) {
    let (ours, theirs) = (client_of(url, layout).await, client_of(url, layout).await);
    let (fair, semaphore) = (ours.fair_lock("c"), ours.semaphore("e", 2));
    let rw = ours.rw_lock("d").owned_by(&Owner::new());
    let expirable = ours.redisson().expirable_semaphore("f", 2);
    let guards = [
        fair.lock().await.expect("it is free"),
        rw.write().await.expect("it is free").into_guard(),
        semaphore.acquire_many(2).await.expect("it is free"),
        expirable.acquire_many(2).await.expect("it is free"),
    ];
    let nested = rw.read().await.expect("it is ours");
    let mut waiters = Vec::new();
    for _ in 0..2 {
        let waiting = theirs.fair_lock("c");
        waiters.push(tokio::spawn(async move { waiting.lock().await }));
    }
    let waiting = theirs.rw_lock("d");
    waiters.push(tokio::spawn(async move { waiting.read().await }));
    for waiting in [theirs.semaphore("e", 2), theirs.redisson().expirable_semaphore("f", 2)] {
        waiters.push(tokio::spawn(async move { waiting.acquire().await }));
    }
    for name in ["c", "d", "e", "f"] {
        awaited(admin, name).await;
    }
    assert!(fair.is_locked().await.expect("an answer"));
    assert!(rw.is_write_locked().await.expect("an answer"));
    assert_eq!(semaphore.available_permits().await.expect("an answer"), 0);
    assert_eq!(expirable.available_permits().await.expect("an answer"), 0);
    nested.unlock().await.expect("it is ours");
    sleep(Duration::from_millis(1_500)).await; // a renewal of each
    for guard in guards {
        guard.extend(Duration::from_secs(4)).await.expect("it is ours");
        guard.unlock().await.expect("it is ours");
    }
    for waiter in waiters {
        granted(waiter).await.unlock().await.expect("it is ours");
    }

    admin.script_flush().await;
    let written = rw.write().await.expect("it is free");
    let read = written.downgrade().await.expect("it is ours");
    assert!(rw.force_unlock().await.expect("an answer"));
    assert!(matches!(read.unlock().await, Err(Error::Lost)));
    let held = fair.lock().await.expect("it is free");
    assert!(fair.force_unlock().await.expect("an answer"));
    assert!(matches!(held.unlock().await, Err(Error::Lost)));
    let held = semaphore.acquire().await.expect("it is free");
    assert!(matches!(ours.fair_lock("e").lock().await, Err(Error::Conflict { .. })));
    held.unlock().await.expect("it is ours");
    for semaphore in [semaphore, expirable] {
        let held = semaphore.acquire().await.expect("it is free");
        semaphore.set_permits(3).await.expect("an answer");
        assert!(semaphore.try_acquire().await.is_ok());
        assert!(semaphore.force_unlock().await.expect("an answer"));
        assert!(matches!(held.unlock().await, Err(Error::Lost)));
    }
    admin.cmd::<usize>(&["DEL", "lock_notes:{e}", "lock_notes:{f}"]).await; // the numbers that were set
    nobody_listens(admin).await;
}

/// Everything there is to do with a latch.
async fn everything_counted_down(url: &str, layout: Layout, admin: &Admin) {
    let (ours, theirs) = (client_of(url, layout).await, client_of(url, layout).await);
    let latch = ours.count_down_latch("l");
    assert!(latch.set(2).await.expect("an answer"));
    let waiting = theirs.count_down_latch("l");
    let waiter = tokio::spawn(async move { waiting.wait().await });
    awaited(admin, "l").await;
    assert_eq!(latch.count().await.expect("an answer"), Some(2));
    assert_eq!(latch.count_down().await.expect("an answer"), 1);
    admin.script_flush().await;
    assert_eq!(latch.count_down().await.expect("an answer"), 0);
    granted(waiter).await;
    assert!(latch.set(1).await.expect("an answer"));
    assert!(latch.delete().await.expect("an answer"));
    nobody_listens(admin).await;
}

/// Everything there is to do with a condition.
async fn everything_notified(url: &str, admin: &Admin) {
    let (ours, theirs) =
        (client_of(url, Layout::Native).await, client_of(url, Layout::Native).await);
    let condition = ours.condition("n");
    for all in [false, true] {
        let (lock, awaited_for) = (theirs.fair_lock("c"), theirs.condition("n"));
        let waiter = tokio::spawn(async move { lock.lock().await?.wait(&awaited_for).await });
        awaited(admin, "n").await;
        let held = ours.fair_lock("c").lock().await.expect("it is free");
        if all {
            condition.notify_all().await.expect("an answer");
        } else {
            condition.notify_one().await.expect("an answer");
        }
        sleep(Duration::from_millis(1_500)).await; // a renewal of the notification
        held.unlock().await.expect("it is ours");
        granted(waiter).await.unlock().await.expect("it is ours");
    }
    nobody_listens(admin).await;
    admin.cmd::<usize>(&["DEL", "lock_notes:{n}:requests"]).await;
}

/// Everything there is to do with an election, and with a job that runs now and then.
async fn everything_agreed(url: &str, layout: Layout, admin: &Admin) {
    let ours = client_of(url, layout).await;
    let election = ours.election("g").identity("ours");
    let leadership = election.campaign().await.expect("it is free");
    let leads = async || election.leader().await.expect("an answer").is_some();
    eventually(SOON, "it has said who it is", leads).await;
    leadership.step_down().await.expect("it led");
    let job = ours.every("h", LONG);
    assert_eq!(job.run_if_due(async |_| 1).await.expect("an answer"), Some(1));
    assert_eq!(job.run_if_due(async |_| 1).await.expect("an answer"), None);
    admin.cmd::<usize>(&["DEL", "lock_notes:{g}:leader", "lock_notes:{h}:interval"]).await;
}

async fn everything(url: &str, layout: Layout, admin: &Admin) {
    everything_plain(url, layout, admin).await;
    everything_agreed(url, layout, admin).await;
    everything_together(url, layout, admin).await;
    everything_queued(url, layout, admin).await;
    if layout == Layout::Native {
        everything_notified(url, admin).await;
        eventually(SOON, "nothing is left", async || lock_keys(admin).await == [key("b")]).await;
    }
    everything_counted_down(url, layout, admin).await;
}

/// The first words of all commands that were run.
async fn commands_run(admin: &Admin) -> BTreeSet<String> {
    let stats: String = admin.cmd(&["INFO", "commandstats"]).await;
    // Valkey also lists commands that were only refused.
    let run = stats.lines().filter(|line| !line.contains(":calls=0,"));
    let names = run.filter_map(|line| line.strip_prefix("cmdstat_")?.split([':', '|']).next());
    names.map(str::to_owned).collect()
}

/// Does everything as the user of a document: Redis denies it nothing, and the client uses every right that it has.
async fn has_what_it_needs(server: &Server, document: &str, layout: Layout) {
    let (admin, rules) = (server.admin().await, rules(document));
    let url = user(server, &rules).await;
    admin.reset_stats().await;
    everything(&url, layout, &admin).await;

    let log: Vec<redis::Value> = admin.cmd(&["ACL", "LOG"]).await;
    let mut denied = log.iter().map(|entry| format!("{entry:?}"));
    // Since 7.2 the connection offers its library's name, and does not mind a refusal.
    assert!(denied.all(|entry| entry.contains("setinfo")), "{log:?}");
    let run = commands_run(&admin).await;
    let needed: BTreeSet<_> =
        run.iter().map(String::as_str).filter(|name| !OURS.contains(name)).collect();
    let commands = rules.iter().filter_map(|rule| rule.strip_prefix('+'));
    let allowed =
        commands.map(|command| command.split_once('|').map_or(command, |(first, _)| first));
    assert_eq!(needed, allowed.collect());
}

#[tokio::test]
async fn the_least_privileged_user_can_do_everything_and_has_nothing_to_spare() {
    has_what_it_needs(&Server::start().await, NATIVE.0, Layout::Native).await;
}

#[tokio::test]
async fn redissons_layout_needs_no_more_than_its_least_privileged_user() {
    let server = Server::start().await;
    // Somebody of Redisson's died at the head of a queue.
    let admin = server.admin().await;
    admin.cmd::<i64>(&["RPUSH", "redisson_lock_queue:{c}", "dead"]).await;
    admin.cmd::<i64>(&["ZADD", "redisson_lock_timeout:{c}", "1", "dead"]).await;
    has_what_it_needs(&server, REDISSON.0, Layout::Redisson).await;
}

/// Also the commands that only a rare case calls.
#[test]
fn the_least_privileged_user_may_call_every_command_in_the_scripts() {
    for (document, folders) in [NATIVE, REDISSON] {
        let rules = rules(document);
        for command in folders.iter().flat_map(|folder| commands_in_scripts(folder)) {
            assert!(rules.contains(&format!("+{command}")), "{command} is missing in {document}");
        }
    }
}

#[tokio::test]
async fn a_user_of_latches_needs_less() {
    let server = Server::start().await;
    let (admin, (rules, _)) = (server.admin().await, rules_of("| `count_down_latch`"));
    let url = user(&server, &rules).await;
    everything_counted_down(&url, Layout::Native, &admin).await;
    let log: Vec<redis::Value> = admin.cmd(&["ACL", "LOG"]).await;
    assert!(log.iter().all(|entry| format!("{entry:?}").contains("setinfo")), "{log:?}");
}

#[tokio::test]
async fn a_user_of_all_but_latches_needs_less() {
    let server = Server::start().await;
    let (admin, (spared, _)) = (server.admin().await, rules_of("| `fair_lock`"));
    let spared: Vec<_> = spared.iter().map(|rule| rule.trim_start_matches('+')).collect();
    let url = user_without(&server, &spared).await;
    everything_together(&url, Layout::Native, &admin).await;
    everything_queued(&url, Layout::Native, &admin).await;
    let log: Vec<redis::Value> = admin.cmd(&["ACL", "LOG"]).await;
    assert!(log.iter().all(|entry| format!("{entry:?}").contains("setinfo")), "{log:?}");
}

#[test]
fn the_manual_names_the_user_of_plain_locks_as_the_faults_do() {
    let (named, _) = rules_of("| `lock`, ");
    let tested = rules("docs/faults-2.md");
    assert_eq!(BTreeSet::from_iter(named), BTreeSet::from_iter(tested));
}

#[tokio::test]
async fn a_user_of_another_database_needs_what_the_manual_adds() {
    let server = Server::start().await;
    let mut rules = rules(NATIVE.0);
    let url = format!("{}/3", user(&server, &rules).await);
    let refused = timeout(SOON, Client::connect(&url)).await.expect("in time");
    assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
    rules.extend(rules_of("| a database other than 0").0);
    user(&server, &rules).await;
    timeout(SOON, passes_from_client_to_client(&url)).await.expect("it may choose a database");
}

#[tokio::test]
async fn a_user_of_a_cluster_needs_what_the_manual_adds() {
    let cluster = Cluster::start().await;
    let info: String = cluster.admin(0).await.cmd(&["INFO", "server"]).await;
    let url = as_user(&cluster.url());
    let allowed = |rules: Vec<String>| {
        let cluster = &cluster;
        async move { join_all(cluster.nodes.iter().map(|node| user(node, &rules))).await }
    };
    allowed(rules(NATIVE.0)).await;
    let refused = timeout(SOON, Client::connect(&url)).await.expect("in time");
    assert!(refused.is_err(), "it may not ask for the slots");

    allowed(in_a_cluster(rules(NATIVE.0), &info)).await;
    join_all(cluster.nodes.iter().map(async |node| {
        node.admin().await.cmd::<()>(&["ACL", "LOG", "RESET"]).await;
    }))
    .await;
    // Leases of thirty seconds: a cluster beside many other tests may take some for its first answers.
    let connect = async || common::fixture::comes_in(&url, Config::default()).await;
    let client = connect().await;
    passes_between(&client, &connect().await).await;
    let (fair, semaphore) = (client.fair_lock("b"), client.semaphore("c", 2));
    for guard in [
        fair.lock().await,
        semaphore.acquire().await,
        client.rw_lock("d").write().await.map(|w| w.into_guard()),
    ] {
        guard.expect("it is free").unlock().await.expect("it is ours");
    }
    for node in &cluster.nodes {
        let log: Vec<redis::Value> = node.admin().await.cmd(&["ACL", "LOG"]).await;
        let mut denied = log.iter().map(|entry| format!("{entry:?}"));
        assert!(denied.all(|entry| entry.contains("setinfo")), "{log:?}");
    }
}

/// If any one of these patterns is missing, Redis refuses something.
#[tokio::test]
async fn the_user_needs_each_of_its_key_and_channel_patterns() {
    let places = rules(NATIVE.0).into_iter().filter(|rule| !rule.starts_with('+'));
    for place in places {
        let server = Server::start().await;
        let rules: Vec<_> = rules(NATIVE.0).into_iter().filter(|rule| *rule != place).collect();
        let url = user(&server, &rules).await;
        let client = client(&url).await;
        let _lock = client.lock("a").try_lock().await;
        let _fair = client.fair_lock("b").try_lock().await;
        let waiting = client.fair_lock("b");
        let _waited = timeout(SOON, waiting.try_lock_for(Duration::from_millis(700))).await;
        let log: Vec<redis::Value> = server.admin().await.cmd(&["ACL", "LOG"]).await;
        let pattern = place.trim_start_matches(['~', '&']).trim_end_matches('*').to_owned();
        assert!(
            log.iter().any(|entry| format!("{entry:?}").contains(&pattern)),
            "{place}: {log:?}"
        );
    }
}

#[tokio::test]
async fn a_user_that_may_not_listen_publish_or_load_scripts_still_gets_locks() {
    let server = Server::start().await;
    for missing in [
        &["subscribe"][..],
        &["publish"],
        &["script|load"],
        &["script|exists"],
        &["script|load", "script|exists"],
        &["eval"],
        &["type"],
    ] {
        passes_from_client_to_client(&user_without(&server, missing).await).await;
    }
    passes_from_client_to_client(&user_without(&server, &["&lock_channel:*"]).await).await;
}

#[tokio::test]
async fn a_user_without_script_load_can_call_scripts_that_another_user_has_loaded() {
    let server = Server::start().await;
    let _loaded = client(&server.url()).await;
    let url = user_without(&server, &["eval", "script|load"]).await;
    passes_from_client_to_client(&url).await;
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_at_once_and_leaves_nothing_behind() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for missing in ["evalsha", "exists", "hset", "incrby", "set", "pexpire"] {
        let client = client(&user_without(&server, &[missing]).await).await;
        // A script writes the counter of tokens only if it is lost or behind the clock, and counts it up otherwise.
        admin.cmd::<u32>(&["DEL", "lock:grants"]).await;
        let refused = timeout(SOON, client.lock("a").lock()).await.expect(missing);
        assert!(matches!(refused, Err(Error::Permission { .. })), "{missing}: {refused:?}");
        assert!(lock_keys(&admin).await.is_empty(), "{missing}");
    }
    let mut rules = rules(NATIVE.0);
    rules.retain(|rule| !rule.starts_with('~'));
    let client = client(&user(&server, &rules).await).await;
    let refused = timeout(SOON, client.lock("a").lock()).await.unwrap();
    assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_missing_permission_of_a_kind_with_a_line_is_told_and_leaves_no_eternal_key() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let missing = ["evalsha", "exists", "hmget", "set", "pexpire", "zadd", "del"];
    for missing in missing {
        let client = client(&user_without(&server, &[missing]).await).await;
        let refused = timeout(SOON, client.semaphore("a", 2).acquire()).await.expect(missing);
        let refused = match refused {
            // Only a later script needs this permission.
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
async fn a_forbidden_release_is_an_error_and_the_lease_ends_the_lock() {
    let server = Server::start().await;
    let (admin, url) = (server.admin().await, user_without(&server, &["hdel"]).await);
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
    let url = user_without(&server, &["time"]).await;
    let refused = timeout(SOON, Client::connect(url)).await.unwrap();
    assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
}
