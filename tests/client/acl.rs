//! The least that a server's user must be allowed, and what becomes of a lock with less.

use crate::common;
use crate::everything::{
    Way, client_of, everything, everything_counted_down, everything_queued, everything_together,
};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::fixture::{SOON, key, lock_keys, refusal};
use common::rights::{as_user, commands_in_scripts, in_a_cluster, rules, rules_of, user};
use common::{Admin, Cluster, Server, eventually, judged, timeout};
use futures_util::future::join_all;
use parklock::{Client, Config, Error};
use tokio::time::sleep;

/// Where the user of a layout stands, and the scripts that it calls.
const NATIVE: (&str, &[&str]) =
    ("docs/operations.md", &["lock", "line", "latch", "marks", "condition"]);
const REDISSON: (&str, &[&str]) =
    ("docs/from-redisson.md", &["lock", "latch", "marks", "redisson"]);

/// A namespace, and the rows of the manual that confine a user to it.
const NAMESPACE: &str = "billing";
const CONFINED: &str = "| `Config::namespace(\"billing\")` |";
const CONFINED_WITH_REDISSON: &str = "| `Config::namespace(\"billing\")` in Redisson's layout |";

/// What only the test sends, besides `script|flush`.
const OURS: [&str; 6] = ["acl", "config", "hello", "keys", "pubsub", "sadd"];

/// The manual's user, but not for these commands.
async fn user_without(server: &Server, missing: &[&str]) -> String {
    let mut rules = rules(NATIVE.0);
    rules.retain(|rule| !missing.contains(&rule.trim_start_matches('+')));
    user(server, &rules).await
}

/// The same user, but confined to a namespace, as these rows of the manual say.
fn confined(rules: Vec<String>, rows: &str) -> Vec<String> {
    let commands = rules.into_iter().filter(|rule| rule.starts_with('+'));
    commands.chain(rules_of(rows).0).collect()
}

async fn client(url: &str) -> Client {
    client_of(url, Way::NATIVE).await
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

/// The first words of all commands that were run.
async fn commands_run(admin: &Admin) -> BTreeSet<String> {
    let stats: String = admin.cmd(&["INFO", "commandstats"]).await;
    // Valkey also lists commands that were only refused.
    let run = stats.lines().filter(|line| !line.contains(":calls=0,"));
    let names = run.filter_map(|line| line.strip_prefix("cmdstat_")?.split([':', '|']).next());
    names.map(str::to_owned).collect()
}

/// Since 7.2 the connection offers its library's name, and does not mind a refusal. Version 6 does not know that command, refuses it too, and
/// notes only that it was one of CLIENT.
async fn is_denied_nothing(admin: &Admin) {
    let log: Vec<BTreeMap<String, redis::Value>> = admin.cmd(&["ACL", "LOG"]).await;
    let version = admin.info("server", "redis_version").await.expect("it has one");
    let refused = if version.starts_with("6.") { "client" } else { "client|setinfo" };
    let is_refused = |value: &redis::Value| {
        redis::from_redis_value_ref::<String>(value).is_ok_and(|object| object == refused)
    };
    assert!(log.iter().all(|entry| is_refused(&entry["object"])), "{log:?}");
}

/// Does everything as a user with these rules: Redis denies it nothing, and the client uses every right that it has.
async fn has_what_it_needs(server: &Server, rules: Vec<String>, way: Way) {
    let admin = server.admin().await;
    let url = user(server, &rules).await;
    admin.reset_stats().await;
    everything(&url, way, &admin).await;

    is_denied_nothing(&admin).await;
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
    judged(async || {
        has_what_it_needs(&Server::start().await, rules(NATIVE.0), Way::NATIVE).await;
    })
    .await;
}

#[tokio::test]
async fn a_user_who_is_confined_to_a_namespace_can_do_everything_there_and_nothing_elsewhere() {
    judged(async || {
        let (server, way) = (Server::start().await, Way::NATIVE.within(NAMESPACE));
        has_what_it_needs(&server, confined(rules(NATIVE.0), CONFINED), way).await;
        is_refused_elsewhere(&server, Way::NATIVE).await;
    })
    .await;
}

#[tokio::test]
async fn in_redissons_layout_a_user_can_be_confined_to_a_namespace_too() {
    judged(async || {
        let (server, way) = (Server::start().await, Way::REDISSON.within(NAMESPACE));
        let admin = server.admin().await;
        admin.cmd::<i64>(&["RPUSH", "redisson_lock_queue:{billing:c}", "dead"]).await;
        admin.cmd::<i64>(&["ZADD", "redisson_lock_timeout:{billing:c}", "1", "dead"]).await;
        let rules = confined(rules(REDISSON.0), CONFINED_WITH_REDISSON);
        has_what_it_needs(&server, rules, way).await;
        is_refused_elsewhere(&server, Way::REDISSON).await;
    })
    .await;
}

/// The user of the server cannot lock without its namespace, nor in another one.
async fn is_refused_elsewhere(server: &Server, way: Way) {
    for elsewhere in [way, way.within("orders"), way.within("billin")] {
        let client = client_of(&as_user(&server.url()), elsewhere).await;
        for refused in [
            timeout(SOON, client.lock("a").lock()).await.expect("in time").map(drop),
            timeout(SOON, client.fair_lock("b").lock()).await.expect("in time").map(drop),
            timeout(SOON, client.semaphore("c", 2).acquire()).await.expect("in time").map(drop),
            timeout(SOON, client.count_down_latch("d").set(1)).await.expect("in time").map(drop),
        ] {
            assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn redissons_layout_needs_no_more_than_its_least_privileged_user() {
    judged(async || {
        let server = Server::start().await;
        // Somebody of Redisson's died at the head of a queue.
        let admin = server.admin().await;
        admin.cmd::<i64>(&["RPUSH", "redisson_lock_queue:{c}", "dead"]).await;
        admin.cmd::<i64>(&["ZADD", "redisson_lock_timeout:{c}", "1", "dead"]).await;
        has_what_it_needs(&server, rules(REDISSON.0), Way::REDISSON).await;
    })
    .await;
}

/// Also the commands that only a rare case calls.
#[test]
fn the_least_privileged_user_may_call_every_command_in_the_scripts() {
    for (document, folders) in [NATIVE, REDISSON] {
        let mut rules = rules(document);
        rules.extend(rules_of("| `Config::session`").0);
        for command in folders.iter().flat_map(|folder| commands_in_scripts(folder)) {
            let is_it = |rule: &String| rule.split('|').next() == Some(&format!("+{command}"));
            assert!(rules.iter().any(is_it), "{command} is missing in {document}");
        }
    }
}

#[tokio::test]
async fn a_user_of_latches_needs_less() {
    judged(async || {
        let server = Server::start().await;
        let (admin, (rules, _)) = (server.admin().await, rules_of("| `count_down_latch`"));
        let url = user(&server, &rules).await;
        everything_counted_down(&url, Way::NATIVE, &admin).await;
        is_denied_nothing(&admin).await;
    })
    .await;
}

#[tokio::test]
async fn a_user_of_all_but_latches_needs_less() {
    judged(async || {
        let server = Server::start().await;
        let (admin, (spared, _)) = (server.admin().await, rules_of("| `fair_lock`"));
        let spared: Vec<_> = spared.iter().map(|rule| rule.trim_start_matches('+')).collect();
        let url = user_without(&server, &spared).await;
        everything_together(&url, Way::NATIVE, &admin).await;
        everything_queued(&url, Way::NATIVE, &admin).await;
        is_denied_nothing(&admin).await;
    })
    .await;
}

#[test]
fn the_manual_names_the_user_of_plain_locks_as_the_faults_do() {
    let (named, _) = rules_of("| `lock`, ");
    let tested = rules("docs/faults.md");
    assert_eq!(BTreeSet::from_iter(named), BTreeSet::from_iter(tested));
}

#[tokio::test]
async fn a_user_of_another_database_needs_what_the_manual_adds() {
    let server = Server::start().await;
    let mut rules = rules(NATIVE.0);
    let url = format!("{}/3", user(&server, &rules).await);
    let refused = refusal(&url).await;
    assert!(matches!(refused, Error::Permission { .. }), "{refused:?}");
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
    let refused = refusal(&url).await;
    assert!(
        matches!(refused, Error::Permission { .. }),
        "it may not ask for the slots: {refused:?}"
    );

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
        is_denied_nothing(&node.admin().await).await;
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
        let _waits = tokio::spawn(async move { waiting.lock().await });
        let (admin, pattern) =
            (server.admin().await, place.trim_start_matches(['~', '&']).trim_end_matches('*'));
        let is_refused = async || {
            let log: Vec<redis::Value> = admin.cmd(&["ACL", "LOG"]).await;
            log.iter().any(|entry| format!("{entry:?}").contains(pattern))
        };
        eventually(SOON, &format!("a need for {place}"), is_refused).await;
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
            assert!(admin.pttl(&key).await != -1, "without {missing}, {key} would stay");
            admin.cmd::<()>(&["DEL", &key]).await;
        }
    }
}

#[tokio::test]
async fn an_order_to_a_latch_that_may_not_set_an_expiry_leaves_no_eternal_key() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let client = client(&user_without(&server, &["pexpire"]).await).await;
    let refused = timeout(SOON, client.count_down_latch("a").set(1)).await.unwrap();
    assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
    for key in lock_keys(&admin).await {
        assert!(admin.pttl(&key).await != -1, "{key} would stay");
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
    assert!(admin.pttl(&key("a")).await != -1);
    eventually(SOON, "the lease ends it", async || lock_keys(&admin).await.is_empty()).await;
}

#[tokio::test]
async fn a_user_without_a_heartbeat_cannot_connect() {
    let server = Server::start().await;
    let url = user_without(&server, &["time"]).await;
    let refused = refusal(url).await;
    assert!(matches!(refused, Error::Permission { .. }), "{refused:?}");
}
