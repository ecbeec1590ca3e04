//! What operators ask.

use std::collections::HashMap;
use std::time::Duration;

use parklock::{Client, Config, Layout};
use serde_json::Value;

use crate::common::fixture::comes_in;
use crate::common::port::Port;
use crate::common::rights::{rules, user};
use crate::common::{Proxy, Server, eventually};
use crate::scene::{LONG, tool, tool_at};

/// The lines of JSON that a call prints.
async fn lines(server: &Server, words: &[&str]) -> Vec<Value> {
    let text = tool(server, words).output().await;
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

async fn client(server: &Server) -> Client {
    let config = Config::default().describe("billing");
    comes_in(server.url(), config).await
}

async fn redisson(server: &Server) -> Client {
    let config = Config::default().layout(Layout::Redisson);
    comes_in(server.url(), config).await
}

#[tokio::test]
async fn each_kind_is_listed_with_its_holder() {
    let server = Server::start().await;
    let (client, admin) = (client(&server).await, server.admin().await);
    let session = Config::default().session(Duration::from_secs(30));
    let session = comes_in(server.url(), session).await;
    let guards = (
        session.lock("session").lock().await.expect("free"),
        client.lock("plain").lock().await.expect("free"),
        client.fair_lock("fair").lock().await.expect("free"),
        client.rw_lock("read").read().await.expect("free"),
        client.rw_lock("written").write().await.expect("free"),
        client.semaphore("permits", 5).acquire_many(3).await.expect("free"),
    );
    client.count_down_latch("latch").set(7).await.expect("it is new");
    admin.cmd::<()>(&["SET", "lock:stranger", "1"]).await;
    let described = async || admin.cmd::<Vec<String>>(&["KEYS", "lock_client:*"]).await.len() == 1;
    eventually(LONG, "the client says who it is", described).await;

    let list = lines(&server, &["ls", "--json"]).await;
    let told: Vec<_> = list
        .iter()
        .map(|lock| [&lock["name"], &lock["kind"]].map(|v| v.as_str().expect("a word")))
        .collect();
    let all = [
        ["fair", "fair"],
        ["latch", "latch"],
        ["permits", "semaphore"],
        ["plain", "lock"],
        ["read", "rw"],
        ["session", "lock"],
        ["written", "rw"],
    ];
    assert_eq!(told, all);
    let of = |name: &str| list.iter().find(|lock| lock["name"] == name).expect("it is listed");
    for name in ["plain", "fair", "read", "written", "permits"] {
        let holder = &of(name)["holders"][0];
        assert_eq!(holder["who"]["app"], "billing", "{name}");
        assert_eq!(holder["who"]["pid"], std::process::id(), "{name}");
        let ttl = holder["ttl_ms"].as_u64().expect("it has a lease");
        assert!((1..=30_000).contains(&ttl), "{name}: {ttl}");
    }
    assert_eq!((&of("permits")["used"], &of("permits")["capacity"]), (&3.into(), &5.into()));
    assert_eq!(
        (&of("read")["holders"][0]["mode"], &of("written")["holders"][0]["mode"]),
        (&"read".into(), &"write".into())
    );
    assert_eq!(of("latch")["used"], 7);

    let table = tool(&server, &["ls", "p*"]).output().await;
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains("billing@") && table.contains("3/5"), "{table}");
    assert_eq!(tool(&server, &["top", "--once", "p*"]).output().await.lines().count(), 3);
    drop(guards);
}

#[tokio::test]
async fn waiters_are_listed_in_their_order() {
    let server = Server::start().await;
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let guard = holder.lock("a{b}%").lock().await.expect("free");
    let lock = waiter.lock("a{b}%");
    let waiting = tokio::spawn(async move { lock.lock().await });
    let mut info = String::new();
    let shown = async || {
        let mut asked = tool(&server, &["info", "a{b}%"]).start();
        let code = asked.code().await;
        info = asked.output();
        // The waiter listens a moment after it stands in line.
        let waits = info.contains("waiting    1") && info.contains("listening  1 client\n");
        code == 0 && waits && info.matches("billing@").count() == 2
    };
    eventually(LONG, "both are shown", shown).await;
    assert!(info.starts_with("name       a{b}%\nkind       lock\n"), "{info}");
    drop(guard);
    drop(waiting.await.expect("no panic").expect("it is granted"));
    assert_eq!(tool(&server, &["info", "nobody"]).code().await, 1);
}

#[tokio::test]
async fn a_lock_in_redissons_layout_is_listed() {
    let server = Server::start().await;
    let (admin, client) = (server.admin().await, redisson(&server).await);
    let guards = (
        client.lock("plain").lock().await.expect("free"),
        client.rw_lock("read").read().await.expect("free"),
        client.semaphore("permits", 2).acquire().await.expect("free"),
    );
    admin.cmd::<()>(&["HSET", "user:1", "email", "x"]).await;
    let list = lines(&server, &["ls", "--layout", "redisson", "--json"]).await;
    let told: Vec<_> =
        list.iter().map(|lock| (lock["name"].as_str(), lock["kind"].as_str())).collect();
    let all = [("permits", "semaphore"), ("plain", "lock"), ("read", "rw")];
    assert_eq!(told, all.map(|(name, kind)| (Some(name), Some(kind))));
    drop(guards);
}

#[tokio::test]
async fn nobody_waits_for_a_latch_that_was_counted_down_or_deleted() {
    let server = Server::start().await;
    let client = client(&server).await;
    let latch = client.count_down_latch("latch");
    latch.set(7).await.expect("it is new");
    latch.count_down().await.expect("it is set");
    let list = lines(&server, &["ls", "--json"]).await;
    assert_eq!((list.len(), &list[0]["used"], &list[0]["waiting"]), (1, &6.into(), &0.into()));
    latch.delete().await.expect("it is set");
    assert_eq!(lines(&server, &["ls", "--json"]).await, Vec::<Value>::new());
    assert_eq!(tool(&server, &["info", "latch"]).code().await, 1);
}

#[tokio::test]
async fn the_interval_that_a_job_has_used_is_shown_though_nobody_holds_its_lock() {
    let server = Server::start().await;
    for (layout, client) in
        [("native", client(&server).await), ("redisson", redisson(&server).await)]
    {
        let name = format!("reports {layout}");
        let job = client.every(&name, LONG);
        assert_eq!(job.run_if_due(async |_| ()).await.expect("an answer"), Some(()));
        let words = ["info", "--layout", layout, &name];
        let text = tool(&server, &words).output().await;
        assert!(text.contains("\ninterval   claimed by a job for another "), "{text}");
        assert!(text.contains("\nholders    0\n") && !text.contains("\nttl "), "{text}");
        let list = lines(&server, &[&words[..], &["--json"]].concat()).await;
        let left = list[0]["interval_ms"].as_u64().expect("a number");
        assert!((1..=600_000).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn a_key_of_somebody_else_is_shown_as_what_it_is() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin.cmd::<()>(&["SADD", "lock:{set}", "x"]).await;
    admin.cmd::<()>(&["SET", "lock:{word}", "x"]).await;
    admin.cmd::<()>(&["ZADD", "lock:{members}", "1", "x"]).await;
    admin.cmd::<()>(&["HSET", "lock:{fields}", "name", "bob", "age", "3"]).await;
    let kinds = [("fields", "hash"), ("set", "set"), ("word", "string"), ("members", "zset")];
    for (name, kind) in kinds {
        let info = tool(&server, &["info", name]).output().await;
        assert!(info.contains(&format!("kind       {kind}, which parklock has not")), "{info}");
        assert_eq!(tool(&server, &["unlock", "--force", "--yes", name]).code().await, 78);
    }
    assert_eq!(lines(&server, &["ls", "--json"]).await.len(), kinds.len());
}

#[tokio::test]
async fn a_name_that_no_lock_can_have_does_not_hide_the_locks() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (long, redisson) = ("n".repeat(1_100), redisson(&server).await);
    admin.cmd::<()>(&["HSET", &long, "x", "1"]).await;
    admin.cmd::<()>(&["HSET", &format!("lock:{{{long}}}"), "x", "1"]).await;
    let permit = redisson.semaphore("{orders}:limit", 2).acquire().await.expect("free");
    let list = lines(&server, &["ls", "--layout", "redisson", "--json"]).await;
    let names: Vec<_> = list.iter().map(|lock| lock["name"].as_str()).collect();
    assert_eq!(names, [Some("{orders}:limit")]);
    assert_eq!(lines(&server, &["ls", "--json"]).await, Vec::<Value>::new());
    drop(permit);
}

#[tokio::test]
async fn locks_in_redissons_layout_are_shown_with_their_waiters_and_permits() {
    let server = Server::start().await;
    let (admin, redisson) = (server.admin().await, redisson(&server).await);
    let uuid = "0".repeat(36);
    // A fair lock whose holder has gone, and whose waiter has not come yet.
    admin.cmd::<()>(&["RPUSH", "redisson_lock_queue:{free}", &format!("{uuid}:1")]).await;
    // What a reactive caller in Java writes: its number may be negative.
    admin.cmd::<()>(&["HSET", "negative", &format!("{uuid}:-7"), "1"]).await;
    // Many readers.
    let fields: Vec<_> = (0..300).map(|number| format!("{uuid}:{number}")).collect();
    let mut words = vec!["HSET", "read", "mode", "read"];
    words.extend(fields.iter().flat_map(|field| [field.as_str(), "1"]));
    admin.cmd::<()>(&words).await;
    // A semaphore: three permits in one hold, and a lease that has ended.
    let permits = redisson.semaphore("permits", 5).acquire_many(3).await.expect("free");
    admin.cmd::<()>(&["ZADD", "lock_permits:{permits}", "1", "ended:1"]).await;
    let writer = redisson.rw_lock("written").write().await.expect("free");
    let waiter = redisson.clone();
    let waiting = tokio::spawn(async move { waiter.rw_lock("written").read().await });

    let mut list = Vec::new();
    let listens = async || {
        list = lines(&server, &["ls", "--layout", "redisson", "--json"]).await;
        list.iter().any(|lock| lock["name"] == "written" && lock["waiting"] == 1)
    };
    eventually(LONG, "the reader is seen to wait", listens).await;
    let of = |name: &str| list.iter().find(|lock| lock["name"] == name).expect("it is listed");
    let told = |name: &str, fields: [&str; 3]| fields.map(|field| of(name)[field].clone());
    let fields = ["kind", "held_by", "waiting"];
    assert_eq!(told("free", fields), ["fair".into(), Value::from(0), Value::from(1)]);
    assert_eq!(told("negative", fields), ["lock".into(), Value::from(1), Value::from(0)]);
    assert_eq!(told("read", fields), ["rw".into(), Value::from(300), Value::from(0)]);
    assert_eq!(of("read")["holders"].as_array().map(Vec::len), Some(200));
    assert_eq!(of("permits")["held_by"], 1);
    assert_eq!(
        (&of("permits")["used"], &of("permits")["holders"][0]["count"]),
        (&3.into(), &3.into())
    );
    waiting.abort();
    drop((permits, writer));
}

#[tokio::test]
async fn a_list_in_redissons_layout_reads_the_keys_once_for_each_type() {
    let server = Server::start().await;
    let (admin, redisson) = (server.admin().await, redisson(&server).await);
    let uuid = "0".repeat(36);
    let mut permits = Vec::new();
    for name in ["a1", "a{2}", "b1", "{a}1"] {
        permits.push(redisson.semaphore(name, 2).acquire().await.expect("free"));
        let owner = format!("{uuid}:1");
        let queue = if name.contains('{') { format!("{name}f") } else { format!("{{{name}f}}") };
        admin.cmd::<()>(&["RPUSH", &format!("redisson_lock_queue:{queue}"), &owner]).await;
        admin.cmd::<()>(&["HSET", &format!("{name}h"), &owner, "1"]).await;
    }
    for (pattern, names) in [
        (
            "*",
            &[
                "a1", "a1f", "a1h", "a{2}", "a{2}f", "a{2}h", "b1", "b1f", "b1h", "{a}1", "{a}1f",
                "{a}1h",
            ][..],
        ),
        ("a*", &["a1", "a1f", "a1h", "a{2}", "a{2}f", "a{2}h"]),
        ("[^{]1", &["a1", "b1"]),
        ("?1?", &["a1f", "a1h", "b1f", "b1h"]),
        ("a\\{*f", &["a{2}f"]),
    ] {
        admin.reset_stats().await;
        let list = lines(&server, &["ls", "--layout", "redisson", "--json", pattern]).await;
        let listed: Vec<_> =
            list.iter().map(|lock| lock["name"].as_str().expect("a name")).collect();
        assert_eq!(listed, names, "{pattern}");
        assert_eq!(admin.command_calls("scan").await, 3, "hashes, sorted sets and lists");
    }
}

#[tokio::test]
async fn a_hash_of_somebody_else_is_not_read() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin.cmd::<()>(&["HSET", "user:1", "email", "x", "name", "y"]).await;
    admin.reset_stats().await;
    assert_eq!(
        lines(&server, &["ls", "--layout", "redisson", "--json"]).await,
        Vec::<Value>::new()
    );
    assert_eq!(admin.command_calls("hgetall").await, 0);
}

/// What the manual says that a user must be allowed: after these words, up to a full stop.
fn rights(words: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tool.md");
    let text = std::fs::read_to_string(path).expect("the manual");
    let (_, rest) = text.split_once(words).expect("the words");
    let (sentence, _) = rest.split_once(". ").expect("an end");
    let quoted = sentence.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
    quoted.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_user_with_the_rights_of_the_manual_sees_all() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (native, redisson) = (client(&server).await, redisson(&server).await);
    let guards = (
        native.lock("a").lock().await.expect("free"),
        redisson.rw_lock("read").read().await.expect("free"),
        redisson.semaphore("permits", 2).acquire().await.expect("free"),
    );
    admin.cmd::<()>(&["SET", "redisson_lock_token:{read}", "1"]).await;
    let some = rights("A user for `ls`, `top` and `info` needs");
    let more = rights("For Redisson's layout it also needs");
    let users = [
        ("some", some.clone(), vec![]),
        ("more", [some, more].concat(), vec!["--layout", "redisson"]),
    ];
    for (user, rights, options) in users {
        let words: Vec<&str> = rights.iter().map(String::as_str).collect();
        admin.cmd::<()>(&[&["ACL", "SETUSER", user, "on", ">x"], &words[..]].concat()).await;
        let url = format!("redis://{user}:x@{}", server.address());
        let list = lines(&server, &[&["ls", "--json", "--url", &url], &options[..]].concat()).await;
        assert!(!list.is_empty(), "{user}");
    }
    let refusals: String = admin.cmd(&["INFO", "errorstats"]).await;
    assert!(!refusals.contains("NOPERM"), "{refusals}");
    drop(guards);
}

/// The server refuses one of the tool's questions. That a lock is free is no answer then.
#[tokio::test]
async fn a_user_who_may_not_look_is_not_told_that_a_lock_is_free() {
    let server = Server::start().await;
    let (native, redisson) = (client(&server).await, redisson(&server).await);
    let guards = (
        native.lock("plain").lock().await.expect("free"),
        native.fair_lock("fair").lock().await.expect("free"),
        redisson.rw_lock("read").read().await.expect("free"),
        redisson.semaphore("permits", 2).acquire().await.expect("free"),
    );
    // So many that the tool reads the first of them only.
    let readers: Vec<_> = (0..300).map(|number| format!("{}:{number}", "0".repeat(36))).collect();
    let fields = readers.iter().flat_map(|reader| [reader.as_str(), "1"]);
    let words: Vec<_> = ["HSET", "many"].into_iter().chain(fields).collect();
    server.admin().await.cmd::<()>(&words).await;
    let mut wrong = Vec::new();
    for (refused, name, layout) in [
        ("type", "plain", "native"),
        ("hgetall", "plain", "native"),
        ("hget", "plain", "native"),
        ("zcount", "fair", "native"),
        ("zrange", "fair", "native"),
        ("type", "read", "redisson"),
        ("hlen", "read", "redisson"),
        ("hrandfield", "read", "redisson"),
        ("hgetall", "read", "redisson"),
        ("hscan", "many", "redisson"),
        ("llen", "read", "redisson"),
        ("zcount", "permits", "redisson"),
        ("zrange", "permits", "redisson"),
    ] {
        let rules = ["~*", "&*", "+@all", &format!("-{refused}")].map(str::to_owned);
        let url = user(&server, &rules).await;
        for words in [&["info", name][..], &["ls"], &["unlock", "--force", "--yes", name]] {
            let words = [words, &["--layout", layout]].concat();
            let mut asked = tool_at(&url, server.dir(), &words).start();
            let code = asked.code().await;
            let (output, why) = (asked.output(), asked.complaint());
            if (code, output.as_str()) != (77, "") || !why.contains(&format!("'{refused}'")) {
                wrong.push(format!("without {refused}, {words:?} is {code}: {output}{why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    drop(guards);
}

#[tokio::test]
async fn many_locks_are_listed_without_keys_or_monitor() {
    let server = Server::start().await;
    let (client, admin) = (client(&server).await, server.admin().await);
    let mut guards = Vec::new();
    for number in 0..1_000 {
        guards.push(client.lock(format!("n{number}")).lock().await.expect("free"));
    }
    admin.reset_stats().await;
    assert_eq!(tool(&server, &["ls"]).output().await.lines().count(), 1_001);
    assert_eq!(admin.command_calls("keys").await, 0);
    assert_eq!(admin.command_calls("monitor").await, 0);
    drop(guards);
}

#[tokio::test]
async fn a_lock_is_taken_away_from_a_holder_that_is_named() {
    let server = Server::start().await;
    let mut holder = tool(&server, &["run", "--watchdog", "2s", "a", "--", "sleep", "60"]).start();
    eventually(LONG, "it is held", async || {
        tool(&server, &["info", "a"]).start().code().await == 0
    })
    .await;
    let mut asked = tool(&server, &["unlock", "--force", "a"]).start();
    assert_eq!(asked.code().await, 64, "nobody can be asked");
    assert!(asked.output().contains("a is held by "), "{}", asked.output());
    assert!(holder.is_running());
    let said = tool(&server, &["unlock", "--force", "--yes", "a"]).output().await;
    assert!(said.contains("taken away"), "{said}");
    assert_eq!(holder.code().await, 75);
    assert_eq!(tool(&server, &["unlock", "--force", "--yes", "a"]).code().await, 1);
}

#[tokio::test]
async fn clients_that_wait_for_each_other_are_shown() {
    let server = Server::start().await;
    let (one, other) = (client(&server).await, client(&server).await);
    let guards =
        (one.lock("x").lock().await.expect("free"), other.lock("y").lock().await.expect("free"));
    let deadlocks = async || {
        let mut asked = tool(&server, &["top", "--deadlocks", "--interval", "200ms"]).start();
        (asked.code().await, asked.output())
    };
    assert_eq!(deadlocks().await.0, 0);
    let (x, y) = (other.lock("x"), one.lock("y"));
    let waiting =
        (tokio::spawn(async move { x.lock().await }), tokio::spawn(async move { y.lock().await }));
    let mut text = String::new();
    let found = async || {
        let (code, said) = deadlocks().await;
        text = said;
        code == 1
    };
    eventually(LONG, "the circle is found", found).await;
    assert!(text.contains("waits for x") && text.contains("waits for y"), "{text}");
    assert!(text.contains("billing@"), "{text}");
    waiting.0.abort();
    waiting.1.abort();
    drop(guards);
}

#[tokio::test]
async fn the_doctor_names_what_is_bad_and_what_to_do() {
    let well = Server::builder().append_only().start().await;
    let text = tool(&well, &["doctor"]).output().await;
    for check in
        ["version", "role", "maxmemory-policy", "scripts", "round trip", "messages", "clock"]
    {
        assert!(
            text.lines().any(|line| line.starts_with(&format!("ok    {check}:"))),
            "{check}: {text}"
        );
    }
    assert!(text.contains("ok    a lock, taken and given back"), "{text}");

    let ill = Server::builder()
        .set("maxmemory", "100mb")
        .set("maxmemory-policy", "allkeys-lru")
        .start()
        .await;
    let admin = ill.admin().await;
    admin.cmd::<()>(&["HSET", "lock:{\u{1b}[2J}", "x", "1"]).await;
    admin.config_set("timeout", "5").await;
    let mut asked = tool(&ill, &["doctor"]).start();
    assert_eq!(asked.code().await, 1);
    assert!(asked.output().contains("lock:{\\u{1b}[2J}"), "{}", asked.output());
    let mut asked = tool(&ill, &["doctor", "--json"]).start();
    assert_eq!(asked.code().await, 1);
    let found: Vec<Value> =
        asked.output().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let verdict = |check: &str| {
        let found = found.iter().find(|line| line["check"] == check).expect("it is checked");
        assert!(
            found["verdict"] == "ok"
                || found["remedy"].as_str().is_some_and(|text| !text.is_empty())
        );
        found["verdict"].as_str().expect("a word").to_owned()
    };
    assert_eq!(verdict("maxmemory-policy"), "bad");
    assert_eq!(verdict("keys without TTL"), "bad");
    assert_eq!(verdict("timeout"), "warn");
    assert_eq!(verdict("persistence"), "warn");
    assert_eq!(verdict("version"), "ok");
}

/// The verdict of each check of the doctor, as this user. None of them is bad.
async fn verdicts(server: &Server, url: &str, words: &[&str]) -> HashMap<String, String> {
    let words = [&["doctor", "--json"], words].concat();
    let mut asked = tool_at(url, server.dir(), &words).start();
    let code = asked.code().await;
    let text = asked.output();
    assert_eq!(code, 0, "{text}");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let word = |word: &Value| word.as_str().expect("a word").to_owned();
    lines.map(|line| (word(&line["check"]), word(&line["verdict"]))).collect()
}

#[tokio::test]
async fn the_doctor_finds_nothing_bad_as_the_user_of_the_documents() {
    let server = Server::start().await;
    for (document, words) in [
        ("../docs/operations.md", &[][..]),
        ("../docs/from-redisson.md", &["--layout", "redisson"]),
    ] {
        let url = user(&server, &rules(document)).await;
        let found = verdicts(&server, &url, words).await;
        for check in ["scripts", "round trip", "messages", "clock"] {
            assert_eq!(found[check], "ok", "{check} as the user of {document}");
        }
        for check in ["timeout", "keys without TTL"] {
            assert_eq!(found[check], "warn", "{check} as the user of {document}");
        }
    }
}

#[tokio::test]
async fn the_doctor_does_not_call_well_what_it_may_not_look_at() {
    let server = Server::start().await;
    server.admin().await.cmd::<()>(&["HSET", "lock:{old}", "x", "1"]).await;
    let mut rules = rules("../docs/operations.md");
    rules.retain(|rule| rule != "~lock:*");
    rules.extend(["+scan", "~lock:grants", "~lock:{parklock-doctor-*"].map(str::to_owned));
    let url = user(&server, &rules).await;
    assert_eq!(verdicts(&server, &url, &[]).await["keys without TTL"], "warn");
}

#[tokio::test]
async fn the_doctor_does_not_call_a_connection_that_carries_no_message_a_missing_right() {
    let server = Server::start().await;
    let remedy = async |url: &str| {
        let mut asked = tool_at(url, server.dir(), &["doctor", "--json"]).start();
        assert_eq!(asked.code().await, 1);
        let text = asked.output();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let found = lines.find(|line| line["check"] == "messages").expect("it is checked");
        found["remedy"].as_str().expect("a text").to_owned()
    };
    let proxy = Proxy::before(&server).await;
    let cut = proxy.command("SUBSCRIBE").about("doctor").cut_before();
    let said = remedy(&proxy.url()).await;
    cut.happened().await;
    assert!(said.starts_with("find out why no message arrives"), "{said}");
    let mut rules = rules("../docs/operations.md");
    rules.retain(|rule| rule != "+subscribe");
    let said = remedy(&user(&server, &rules).await).await;
    assert!(said.starts_with("the user needs"), "{said}");
}

#[tokio::test]
async fn the_doctor_names_who_may_publish_on_the_channels_of_locks() {
    let server = Server::builder().set("acl-pubsub-default", "allchannels").start().await;
    let (admin, url) = (server.admin().await, server.url());
    let checks = ["acl-pubsub-default", "users that only publish"];
    assert_eq!(verdicts(&server, &url, &[]).await[checks[0]], "warn");
    assert_eq!(verdicts(&server, &url, &[]).await[checks[1]], "ok");
    admin.config_set(checks[0], "resetchannels").await;
    user(&server, &rules("../docs/operations.md")).await;
    for (name, state) in [("eve", "on"), ("old", "off")] {
        let rules = ["resetkeys", "resetchannels", "&lock_channel:*", "-@all", "+publish"];
        admin.cmd::<()>(&[&["ACL", "SETUSER", name, state, ">e"], &rules[..]].concat()).await;
    }
    let found = verdicts(&server, &url, &[]).await;
    assert_eq!(checks.map(|check| found[check].as_str()), ["ok", "warn"]);
    let text = tool(&server, &["doctor"]).output().await;
    assert!(text.contains("users that only publish: 1, such as eve, may"), "{text}");
}

#[tokio::test]
async fn the_bench_compares_and_leaves_nothing_behind() {
    let server = Server::start().await;
    let text = tool(&server, &["bench", "--seconds", "2", "--clients", "3"]).output().await;
    for line in [
        "alone: parklock",
        "alone: simple lock",
        "contended, 3 clients: parklock",
        "poller, 100 ms",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let admin = server.admin().await;
    let tidy = async || admin.keys().await == ["lock:grants"];
    eventually(Duration::from_secs(40), "no key is left but the counter", tidy).await;
}

#[tokio::test]
async fn the_bench_works_as_the_user_of_the_documents_and_names_a_refusal() {
    let server = Server::start().await;
    let bench = async |url: &str, options: &[&str]| {
        let words = [&["bench", "--seconds", "1", "--clients", "2"], options].concat();
        let mut tool = tool_at(url, server.dir(), &words).start();
        (tool.code().await, tool.complaint())
    };
    let manual = rules("../docs/operations.md");
    let url = user(&server, &manual).await;
    let billing = ["--namespace", "billing"];
    assert_eq!(bench(&url, &[]).await, (0, String::new()));
    assert_eq!(bench(&url, &billing).await.0, 77);
    let url = user(&server, &rules("../docs/from-redisson.md")).await;
    assert_eq!(bench(&url, &["--layout", "redisson"]).await, (0, String::new()));
    let mut inside = manual.clone();
    inside.retain(|rule| !rule.starts_with(['~', '&']));
    inside.extend(["~billing:*", "&billing:*"].map(str::to_owned));
    let url = user(&server, &inside).await;
    assert_eq!(bench(&url, &billing).await, (0, String::new()));
    // The first question about the key of the pollers.
    let mut fewer = manual;
    fewer.retain(|rule| rule != "+exists");
    let url = user(&server, &fewer).await;
    let (code, said) = bench(&url, &[]).await;
    assert!(code == 77 && said.contains("exists"), "{code}: {said}");
}

#[tokio::test]
async fn there_are_completions_and_a_manual() {
    let server = Server::start().await;
    for shell in ["bash", "zsh", "fish"] {
        assert!(tool(&server, &["completions", shell]).output().await.contains("parklock"));
    }
    let page = tool(&server, &["man"]).output().await;
    assert!(page.starts_with(".") && page.contains("Exit codes"), "{page}");
    let folder = server.dir().join("man");
    tool(&server, &["man", "--to", &folder.display().to_string()]).output().await;
    for name in ["parklock", "parklock-run", "parklock-hold", "parklock-doctor"] {
        assert!(folder.join(format!("{name}.1")).exists(), "{name}");
    }
}

#[tokio::test]
async fn failures_are_json_if_the_answer_was_to_be() {
    let server = Server::start().await;
    let nobody = Port::reserve();
    let url = format!("redis://{}", nobody.address());
    let event = async |words: &[&str], code: i32| {
        let mut tool = tool_at(&url, server.dir(), words).start();
        assert_eq!(tool.code().await, code, "{words:?}: {}", tool.complaint());
        let complaint = tool.complaint();
        let event: Value = serde_json::from_str(&complaint).expect(&complaint);
        assert_eq!((&event["event"], &event["code"]), (&"failed".into(), &code.into()));
        assert!(event["text"].as_str().is_some_and(|text| !text.is_empty()), "{complaint}");
    };
    for words in [&["ls"][..], &["info", "a"], &["top"], &["doctor"], &["bench"], &["hold", "a"]] {
        event(&[words, &["--json"]].concat(), 69).await;
        event(&[words, &["--json", "--nonsense"]].concat(), 64).await;
    }
    event(&["ls", "--json", "--url", "http://localhost"], 78).await;
    let mut missing = tool(&server, &["run", "--json", "a", "--", "/no/such/program"]).start();
    assert_eq!(missing.code().await, 127);
    for line in missing.complaint().lines() {
        let event: Value = serde_json::from_str(line).expect(line);
        assert!(event["event"].is_string(), "{line}");
    }
    assert!(missing.complaint().contains("/no/such/program"), "{}", missing.complaint());
    // What follows the dashes is the command's.
    let mut plain = tool(&server, &["run", "a", "--", "/no/such/program", "--json"]).start();
    assert_eq!(plain.code().await, 127);
    assert!(plain.complaint().starts_with("parklock: "), "{}", plain.complaint());
}

#[tokio::test]
async fn a_benchmark_prints_one_object_for_each_case() {
    let server = Server::start().await;
    let cases = lines(&server, &["bench", "--seconds", "1", "--clients", "2", "--json"]).await;
    let parts: Vec<_> = cases.iter().map(|case| case["part"].as_str()).collect();
    assert_eq!(parts.len(), 5);
    assert_eq!((parts[0], parts[4]), (Some("alone"), Some("contended")));
    assert_eq!((&cases[0]["poll_ms"], &cases[4]["poll_ms"]), (&Value::Null, &100.0.into()));
    assert!(cases.iter().all(|case| case["turns_per_second"].is_f64()), "{cases:?}");
    assert!(cases.iter().all(|case| case["wait_ms"]["p50"].is_f64()), "{cases:?}");
}
