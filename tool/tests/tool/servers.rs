//! A cluster, a primary behind Sentinel, a unix socket.

use std::fs;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use parklock::{Config, Layout};
use serde_json::Value;

use crate::common::authority::{Authority, is_possible};
use crate::common::cluster::slot_of;
use crate::common::fixture::comes_in;
use crate::common::port::Port;
use crate::common::rights::{as_user, in_a_cluster, rules, user};
use crate::common::sentinels::SERVICE;
use crate::common::{Cluster, Parrot, Proxy, Quote, Role, Server, Watched, eventually, timeout};
use crate::scene::{LONG, tool_at};

/// Runs commands under locks of several names, and lists them meanwhile.
async fn serves(url: &str, server: &Server, names: &[&str]) {
    let call = |words: &[&str]| tool_at(url, server.dir(), words);
    let mut holders = Vec::new();
    for name in names {
        let mut holder = call(&["hold", name]).start();
        holder.says("token").await;
        assert_eq!(call(&["unlock", "--force", "--yes", name]).code().await, 0, "{name}");
        assert_eq!(holder.code().await, 75, "{name}");
        let holder = call(&["run", name, "--", "sh", "-c", "echo held; exec sleep 60"]).start();
        holder.says("held").await;
        holders.push(holder);
        let mut busy = call(&["run", "-n", name, "--", "true"]).start();
        assert_eq!(busy.code().await, 1, "{name}");
        assert!(!busy.complaint().contains("somebody else"), "{}", busy.complaint());
    }
    let mut listed = Vec::new();
    let named = async || {
        let text = call(&["ls", "--json"]).output().await;
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        listed = all.filter(|lock| lock["holders"][0]["who"]["app"] == "sh").collect();
        listed.iter().map(|lock| lock["name"].as_str().expect("a name")).eq(names.iter().copied())
    };
    eventually(LONG, "all are listed, each with its holder", named).await;
    let facts = |lock: &Value| {
        let owner = lock["holders"][0]["owner"].clone();
        (owner, ["kind", "key", "server", "held_by"].map(|fact| lock[fact].clone()))
    };
    for lock in &listed {
        let name = lock["name"].as_str().expect("a name");
        let info = call(&["info", "--json", name]).output().await;
        assert_eq!(facts(&serde_json::from_str(&info).expect("JSON")), facts(lock), "{info}");
    }
    assert_eq!(call(&["info", "nobody"]).code().await, 1);
    for holder in &mut holders {
        holder.signal("TERM");
        assert_eq!(holder.code().await, 143);
    }
    assert_eq!(call(&["ls"]).output().await.lines().count(), 1);
    let mut doctor = call(&["doctor"]).start();
    assert_eq!(doctor.code().await, 0, "{}", doctor.output());
}

#[tokio::test]
async fn a_cluster_is_served() {
    let cluster = Cluster::start().await;
    let url = format!("redis-cluster://{}", cluster.nodes[1].address());
    serves(&url, &cluster.nodes[0], &["a", "b", "c"]).await;
    for node in &cluster.nodes {
        // One of them takes it. Its keys would lie in several slots.
        let _ = node.admin().await.try_cmd::<()>(&["HSET", "a}b", "x", "1"]).await;
    }
    let list = tool_at(&url, cluster.nodes[0].dir(), &["ls", "--layout", "redisson"]);
    assert_eq!(list.output().await.lines().count(), 1, "no lock can have this name");
    for database in ["", "/3"] {
        let url = cluster.nodes[0].url() + database;
        let mut alone = tool_at(&url, cluster.nodes[0].dir(), &["ls"]).start();
        assert_eq!(alone.code().await, 78, "{}", alone.complaint());
        assert!(alone.complaint().contains("write redis-cluster://"), "{}", alone.complaint());
    }
}

/// The slot's old node has none of its keys any more, and the new one does not have the slot yet.
#[tokio::test]
async fn a_lock_whose_slot_is_moving_is_found() {
    let cluster = Cluster::start().await;
    let url = format!("redis-cluster://{}", cluster.nodes[0].address());
    let call = |words: &[&str]| tool_at(&url, cluster.nodes[0].dir(), words);
    let mut holder = call(&["hold", "a"]).start();
    holder.says("token").await;
    let (slot, from) = (slot_of("a"), cluster.home("a"));
    let to = (from + 1) % cluster.nodes.len();
    cluster.open(slot, from, to).await;
    while cluster.move_keys(slot, from, to, 10).await > 0 {}
    let info: Value =
        serde_json::from_str(&call(&["info", "--json", "a"]).output().await).expect("JSON");
    assert_eq!((&info["kind"], &info["held_by"]), (&"lock".into(), &1.into()), "{info}");
    assert_eq!(call(&["ls"]).output().await.lines().count(), 2);
    cluster.close(slot, from, to).await;
    assert_eq!(call(&["unlock", "--force", "--yes", "a"]).code().await, 0);
    assert_eq!(holder.code().await, 75);
}

/// Valkey has them from version 9 on.
#[tokio::test]
async fn a_database_of_a_cluster_is_served() {
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/servers");
    let program = servers.join("valkey-9.1/redis-server");
    if !program.exists() {
        let missing = "Valkey 9.1 is not installed (scripts/servers installs it)";
        assert!(std::env::var_os("PARKLOCK_REQUIRE_SERVERS").is_none(), "{missing}");
        return println!("skipped: {missing}");
    }
    let setup = || Server::builder().program(program.clone()).set("cluster-databases", "16");
    let cluster = Cluster::start_as(3, 3, setup).await;
    let url = format!("redis-cluster://{}/3", cluster.nodes[1].address());
    serves(&url, &cluster.nodes[0], &["a", "b", "c"]).await;
    let holder = tool_at(&url, cluster.nodes[0].dir(), &["hold", "a"]).start();
    holder.says("token").await;
    let zero = url.strip_suffix("/3").expect("the database");
    let list = tool_at(zero, cluster.nodes[0].dir(), &["ls"]);
    assert_eq!(list.output().await.lines().count(), 1, "it lies in another database");
}

#[tokio::test]
async fn the_doctor_finds_nothing_bad_in_a_cluster_as_the_user_of_the_manual() {
    let cluster = Cluster::start().await;
    let info: String = cluster.admin(0).await.cmd(&["INFO", "server"]).await;
    let rules = in_a_cluster(rules("../docs/operations.md"), &info);
    for node in &cluster.nodes {
        user(node, &rules).await;
    }
    let url = as_user(&cluster.url());
    let mut doctor = tool_at(&url, cluster.nodes[0].dir(), &["doctor"]).start();
    let (code, text) = (doctor.code().await, doctor.output());
    assert_eq!(code, 0, "{text}");
    for check in ["ok    messages:", "warn  cluster:"] {
        assert_eq!(text.matches(check).count(), cluster.nodes.len(), "{text}");
    }
}

#[tokio::test]
async fn a_primary_behind_sentinel_is_served() {
    let watched = Watched::start().await;
    serves(&watched.url(), &watched.servers[0], &["a", "b"]).await;
    let refused = async |url: String, why: &str| {
        for words in [&["ls"][..], &["run", "-n", "a", "--", "true"]] {
            let mut tool = tool_at(&url, watched.servers[0].dir(), words).start();
            let code = tool.code().await;
            assert_eq!(code, 78, "{words:?}: {}", tool.complaint());
            assert!(tool.complaint().contains(why), "{words:?}: {}", tool.complaint());
        }
    };
    refused(watched.url().replace(SERVICE, "nobody"), "unknown service: no sentinel").await;
    let server = watched.servers[0].address();
    let why = format!("{server} is not a sentinel: the URL of a single server begins with");
    refused(format!("redis-sentinel://{server}/{SERVICE}"), &why).await;
    for database in ["", "/3"] {
        let url = format!("redis://{}{database}", watched.sentinels[0].address());
        refused(url, "the server is a sentinel").await;
    }
}

#[tokio::test]
async fn a_unix_socket_is_served() {
    let server = Server::builder().unix_socket().start().await;
    serves(&server.unix_url(), &server, &["a"]).await;
}

#[tokio::test]
async fn a_database_of_a_server_is_served() {
    let server = Server::start().await;
    serves(&(server.url() + "/3"), &server, &["a"]).await;
    let zero = tool_at(&server.url(), server.dir(), &["info", "a"]);
    let holder = tool_at(&(server.url() + "/3"), server.dir(), &["hold", "a"]).start();
    holder.says("token").await;
    assert_eq!(zero.code().await, 1, "it lies in another database");
}

#[tokio::test]
async fn one_primary_that_is_away_does_not_hide_the_locks_of_the_others() {
    let cluster = Cluster::start().await;
    let url = format!("redis-cluster://{}", cluster.nodes[1].address());
    let call = |words: &[&str]| tool_at(&url, cluster.nodes[1].dir(), words);
    let here = cluster.names_at(1, "here:", 1).remove(0);
    let away = cluster.names_at(0, "away:", 1).remove(0);
    let holder = call(&["hold", &here]).start();
    holder.says("token").await;
    cluster.nodes[0].kill();
    cluster.notices_the_dead().await;
    let mut list = call(&["ls"]).start();
    assert_eq!(list.code().await, 69);
    assert!(list.output().contains(&here), "{}", list.output());
    let gone = cluster.nodes[0].address().to_string();
    assert!(list.complaint().contains(&gone), "{}", list.complaint());
    assert_eq!(call(&["info", &here]).code().await, 0);
    assert_eq!(call(&["info", &away]).code().await, 69, "nobody knows");
    // With this setting, a node refuses all keys while one slot is not served. An empty list would be wrong.
    let admin = cluster.admin(1).await;
    admin.config_set("cluster-require-full-coverage", "yes").await;
    let is_down = async || {
        // This changes nothing, but the node thinks about its state.
        admin.cmd::<()>(&["CLUSTER", "SETSLOT", "0", "STABLE"]).await;
        admin.cmd::<String>(&["CLUSTER", "INFO"]).await.contains("cluster_state:fail")
    };
    eventually(LONG, "the cluster is down", is_down).await;
    let mut list = call(&["ls"]).start();
    assert_eq!((list.code().await, list.output()), (69, String::new()));
    assert!(list.complaint().contains("the cluster is down"), "{}", list.complaint());
    drop(holder);
}

#[tokio::test]
async fn a_node_without_an_address_is_a_primary_that_does_not_answer() {
    let cluster = Cluster::start().await;
    for (at, node) in cluster.nodes.iter().enumerate() {
        let admin = node.admin().await;
        let by_name = ["CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname"];
        if admin.try_cmd::<()>(&by_name).await.is_err() {
            return; // before Redis 7, nodes have no names
        }
        if at > 0 {
            admin.config_set("cluster-announce-hostname", "localhost").await;
        }
    }
    let admin = cluster.admin(1).await;
    let told = async || {
        let slots: redis::Value = admin.cmd(&["CLUSTER", "SLOTS"]).await;
        format!("{slots:?}").matches("localhost").count() == 2
    };
    eventually(LONG, "two nodes have a name, and one has none", told).await;
    let url = cluster.url_of(1);
    let call = |words: &[&str]| tool_at(&url, cluster.nodes[1].dir(), words);
    let [away, here] = [0, 2].map(|at| cluster.names_at(at, "n:", 1).remove(0));
    assert_eq!(call(&["info", &here]).code().await, 1, "nobody holds it");
    assert_eq!(call(&["info", &away]).code().await, 69, "nobody knows");
    let mut list = call(&["ls"]).start();
    assert_eq!(list.code().await, 69, "{}", list.output());
    assert!(list.complaint().contains("does not say where"), "{}", list.complaint());
}

/// What the doctor finds, one JSON object for each check, and its exit code.
async fn examined(url: &str, node: &Server) -> (i32, Vec<Value>) {
    let mut doctor = tool_at(url, node.dir(), &["doctor", "--json"]).start();
    let code = doctor.code().await;
    let lines = doctor.output();
    let found = lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    (code, found.collect())
}

#[tokio::test]
async fn the_doctor_names_a_primary_that_is_away_and_examines_the_others() {
    let cluster = Cluster::start().await;
    let (url, node) = (cluster.url_of(1), &cluster.nodes[1]);
    cluster.nodes[0].kill();
    let (code, found) = examined(&url, node).await;
    assert_eq!(code, 1, "{found:?}");
    let of = |at: usize| {
        let address = cluster.nodes[at].address().to_string();
        found.iter().filter(move |line| line["server"] == address.as_str()).collect::<Vec<_>>()
    };
    let away = of(0);
    assert_eq!(
        (away.len(), &away[0]["check"], &away[0]["verdict"]),
        (1, &"answers".into(), &"bad".into())
    );
    for at in [1, 2] {
        assert!(of(at).iter().any(|line| line["check"] == "scripts" && line["verdict"] == "ok"));
    }
    let mut bench = tool_at(&url, node.dir(), &["bench", "--seconds", "1"]).start();
    assert_eq!(bench.code().await, 69);
    assert!(bench.complaint().contains("needs every primary"), "{}", bench.complaint());
}

#[tokio::test]
async fn the_doctor_does_not_call_a_lost_connection_a_missing_right() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::before(&cluster).await;
    // From then on, this primary answers nothing.
    let cut = proxy.command("SCAN").nth(1).cut_before();
    let (code, found) = examined(&proxy.url(), &cluster.nodes[0]).await;
    cut.happened().await;
    assert_eq!(code, 0, "{found:?}");
    for check in ["keys without TTL", "cluster"] {
        let lines = found.iter().filter(|line| line["check"] == check && line["verdict"] != "ok");
        let remedies: Vec<_> = lines.map(|line| line["remedy"].as_str()).collect();
        assert_eq!(remedies, [Some("find out why the server does not answer")], "{check}");
    }
}

#[tokio::test]
async fn the_doctor_does_not_call_a_connection_that_breaks_a_user_who_may_not_ask() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    // The first one is of the connection, and comes before the doctor's first question.
    let cut = proxy.command("INFO").nth(2).cut_before();
    let (code, found) = examined(&proxy.url(), &server).await;
    cut.happened().await;
    assert_eq!(code, 1, "{found:?}");
    let checks: Vec<_> = found.iter().map(|line| line["check"].as_str()).collect();
    assert_eq!(checks, [Some("answers"), Some("a lock, taken and given back")], "{found:?}");
    assert_eq!(found[0]["remedy"], "find out why the server does not answer");
}

#[tokio::test]
async fn clients_that_wait_in_redissons_layout_are_counted_in_a_cluster() {
    let cluster = Cluster::start().await;
    let config = Config::default().layout(Layout::Redisson);
    let connect = || comes_in(cluster.url(), config.clone());
    let (holder, waiter) = (connect().await, connect().await);
    let (mut guards, mut waiting) = (Vec::new(), Vec::new());
    let names: Vec<_> = (0..3).map(|at| cluster.names_at(at, "wanted:", 1).remove(0)).collect();
    for name in &names {
        guards.push(holder.lock(name.as_str()).lock().await.expect("free"));
        let lock = waiter.lock(name.as_str());
        waiting.push(tokio::spawn(async move { lock.lock().await }));
    }
    let words = ["ls", "--layout", "redisson", "--json"];
    let mut list = String::new();
    let counted = async || {
        list = tool_at(&cluster.url(), cluster.nodes[0].dir(), &words).output().await;
        let locks: Vec<Value> =
            list.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        locks.len() == names.len()
            && locks.iter().all(|lock| lock["listening"] == 1 && lock["waiting"] == 1)
    };
    eventually(LONG, "each lock shows the client that listens", counted).await;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn the_doctor_tries_plain_channels_for_a_program_that_needs_them() {
    let cluster = Cluster::start().await;
    let info: String = cluster.admin(0).await.cmd(&["INFO", "server"]).await;
    if info.contains("redis_version:6") {
        return; // all channels are plain
    }
    let rules = in_a_cluster(rules("../docs/from-redisson.md"), &info);
    let plain = ["+publish", "+subscribe", "+unsubscribe"].map(str::to_owned);
    let messages = async |rules: &[String], words: &[&str]| {
        for node in &cluster.nodes {
            user(node, rules).await;
        }
        let words = [&["doctor", "--layout", "redisson"], words].concat();
        let url = as_user(&cluster.url());
        let mut doctor = tool_at(&url, cluster.nodes[0].dir(), &words).start();
        doctor.code().await;
        ["ok    messages", "BAD   messages"].map(|line| doctor.output().matches(line).count())
    };
    let all = cluster.nodes.len();
    assert_eq!(messages(&rules, &[]).await, [all, 0]);
    assert_eq!(messages(&rules, &["--plain-channels"]).await, [0, all]);
    let both = [&rules[..], &plain[..]].concat();
    assert_eq!(messages(&both, &["--plain-channels"]).await, [all, 0]);
    let native = tool_at(&cluster.url(), cluster.nodes[0].dir(), &["doctor", "--plain-channels"]);
    assert_eq!(native.code().await, 78, "only a Redisson needs them");
}

/// Whatever asks a server.
const CALLS: [&[&str]; 9] = [
    &["ls"],
    &["info", "a"],
    &["doctor"],
    &["unlock", "--force", "--yes", "a"],
    &["run", "-n", "a", "--", "true"],
    &["elect", "-n", "a", "--", "true"],
    &["hold", "-n", "a"],
    &["top", "--once"],
    &["bench", "--seconds", "1", "--clients", "2"],
];

/// The tool connects by itself, and as the library does. Makes each call of a server that repeats the password when it is asked
/// for one of these.
async fn shows_no_password(
    role: Role,
    asked: &[&'static str],
    quotes: &[Quote],
    url: impl Fn(&Parrot) -> String,
) {
    let dir = Server::start().await;
    let (dir, url) = (dir.dir(), &url);
    let asks = || asked.iter().flat_map(|at| quotes.iter().map(move |quote| (*at, *quote)));
    let each = CALLS.iter().flat_map(|words| asks().map(|(at, quote)| (*words, at, quote)));
    let mut leaks = Vec::new();
    let said = each.map(async |(words, at, quote)| {
        let parrot = Parrot::start(role, at, quote);
        let mut tool = tool_at(&url(&parrot), dir, words).start();
        let over = async || !tool.is_running() || parrot.repeated() > 0;
        eventually(LONG, "it is asked", over).await;
        // A server like this one may keep it waiting.
        _ = timeout(Duration::from_secs(3), tool.code()).await;
        ((words, at, quote), parrot.repeated(), tool.output() + &tool.complaint())
    });
    let mut said = futures_util::stream::iter(said).buffer_unordered(6);
    let mut repeated: Vec<_> = asked.iter().map(|at| (*at, 0)).collect();
    while let Some((what, times, said)) = said.next().await {
        let of_this = repeated.iter_mut().find(|(asked, _)| *asked == what.1);
        let of_this = of_this.expect("it is one of them");
        of_this.1 += times;
        leaks.extend(
            said.lines()
                .find(|line| line.contains("sesame"))
                .map(|line| format!("{what:?}: {line}")),
        );
    }
    assert!(leaks.is_empty(), "{} leaks: {leaks:#?}", leaks.len());
    let never: Vec<_> = repeated.iter().filter(|(_, times)| *times == 0).collect();
    assert!(never.is_empty(), "no call asks for {never:?}");
}

#[tokio::test]
async fn a_server_that_repeats_what_it_was_sent_shows_no_password() {
    let url = |parrot: &Parrot| format!("redis://app:sesame%40sesame@127.0.0.1:{}", parrot.port());
    let asked = ["HELLO", "SETINFO", "INFO", "TIME", "SCAN", "SCRIPT", "EVALSHA", "TYPE"];
    let quotes = [Quote::Plain, Quote::Status, Quote::Text];
    shows_no_password(Role::Alone, &asked, &quotes, url).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_that_repeats_what_it_was_sent_shows_no_password() {
    let url = |parrot: &Parrot| {
        format!("redis-cluster://app:sesame%40sesame@127.0.0.1:{}", parrot.port())
    };
    let asked = ["HELLO", "CLUSTER", "INFO", "TIME", "SCRIPT", "EVALSHA"];
    shows_no_password(Role::Node, &asked, &[Quote::Plain], url).await;
}

#[tokio::test]
async fn a_sentinel_that_repeats_what_it_was_sent_shows_no_password() {
    let primary = Parrot::start(Role::Alone, "never", Quote::Plain);
    let url = |parrot: &Parrot| {
        let (port, password) = (parrot.port(), "sesame%40sesame");
        format!("redis-sentinel://app:{password}@127.0.0.1:{port}/m?sentinelPassword={password}")
    };
    let asked = ["HELLO", "MASTER", "GET-MASTER-ADDR-BY-NAME", "SENTINELS"];
    shows_no_password(Role::Sentinel(primary.port()), &asked, &[Quote::Plain], url).await;
}

#[tokio::test]
async fn an_encrypted_server_is_reached_with_its_owners_authority() {
    if !is_possible().await {
        return;
    }
    let (authority, port) = (Authority::create(), Port::reserve());
    authority.issue("right", "IP:127.0.0.1", 2);
    let server = authority.server(&port, "right").start().await;
    let url = format!("rediss://{}", port.address());
    let trusting = |file: &str| format!("PARKLOCK_CA={}", authority.path(file).display());
    for words in [&["run", "a", "--", "true"][..], &["ls"], &["top", "--once"], &["doctor"]] {
        let tool = |before: &[&str]| tool_at(&url, server.dir(), words).start_by(before);
        assert_eq!(tool(&["env", &trusting("ca.pem")]).code().await, 0, "{words:?}");
        assert_eq!(tool(&[]).code().await, 69, "{words:?}: nobody knows this authority");
        assert_eq!(tool(&["env", &trusting("none.pem")]).code().await, 78, "{words:?}: no file");
    }
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_reached_with_that_of_the_environment() {
    if !is_possible().await {
        return;
    }
    let (authority, port) = (Authority::create(), Port::reserve());
    authority.issue("right", "IP:127.0.0.1", 2);
    authority.issue("me", "DNS:me", 2);
    let server = authority.server(&port, "right").set("tls-auth-clients", "yes").start().await;
    let url = format!("rediss://{}", port.address());
    let file = |name: &str, file: &str| format!("{name}={}", authority.path(file).display());
    let ca = file("PARKLOCK_CA", "ca.pem");
    let (cert, key) = (file("PARKLOCK_CERT", "me.pem"), file("PARKLOCK_KEY", "me.key"));
    for words in [&["run", "a", "--", "true"][..], &["ls"], &["doctor"]] {
        let tool = |before: &[&str]| tool_at(&url, server.dir(), words).start_by(before);
        assert_eq!(tool(&["env", &ca, &cert, &key]).code().await, 0, "{words:?}");
        assert_eq!(tool(&["env", &ca]).code().await, 69, "{words:?}: it has no certificate");
        assert_eq!(tool(&["env", &ca, &cert]).code().await, 78, "{words:?}: the key is missing");
    }
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_left_out_of_a_bundle_or_78() {
    if !is_possible().await {
        return;
    }
    let (authority, port) = (Authority::create(), Port::reserve());
    authority.issue("right", "IP:127.0.0.1", 2);
    let server = authority.server(&port, "right").start().await;
    let url = format!("rediss://{}", port.address());
    // In the form of a certificate, but none: rustls cannot read each one of a system's bundle.
    let strange = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let bundle = [strange.as_bytes(), &authority.read("ca.pem"), strange.as_bytes()].concat();
    fs::write(authority.path("bundle.pem"), bundle).expect("a file");
    fs::write(authority.path("strange.pem"), strange).expect("a file");
    let file = |name: &str, file: &str| format!("{name}={}", authority.path(file).display());
    let ca = file("PARKLOCK_CA", "ca.pem");
    let no_key = [file("PARKLOCK_CERT", "right.pem"), file("PARKLOCK_KEY", "right.pem")];
    for words in [&["run", "a", "--", "true"][..], &["ls"]] {
        let code = async |before: &[&str]| {
            let words = tool_at(&url, server.dir(), words);
            words.start_by(&[&["env"], before].concat()).code().await
        };
        assert_eq!(code(&[&file("PARKLOCK_CA", "bundle.pem")]).await, 0, "{words:?}");
        for empty in ["strange.pem", "right.key"] {
            assert_eq!(code(&[&file("PARKLOCK_CA", empty)]).await, 78, "{words:?}: {empty}");
        }
        assert_eq!(code(&[&ca, &no_key[0], &no_key[1]]).await, 78, "{words:?}: that is no key");
    }
}
