//! Who runs when: exclusion, kinds, times, and `hold`.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::proxy::Proxy;
use crate::common::{Server, Watch, eventually};
use crate::scene::{LONG, PROGRAM, freed, held, in_line, is_free, tool, tool_at};

#[tokio::test]
async fn of_twenty_commands_at_once_exactly_one_runs() {
    let server = Server::start().await;
    let (ran, go) = (server.dir().join("ran"), server.dir().join("go"));
    let (ran_path, go_path) = (ran.display(), go.display());
    let script = format!("echo ran >>{ran_path}; while [ ! -e {go_path} ]; do sleep 0.05; done");
    let words = ["run", "-n", "-q", "a", "--", "sh", "-c", &script];
    let mut tools: Vec<_> = (0..20).map(|_| tool(&server, &words).start()).collect();
    let mut running = 20;
    let all_but_one = async || {
        running = tools.iter_mut().filter_map(|tool| tool.is_running().then_some(())).count();
        running <= 1
    };
    eventually(LONG, "all but one have ended", all_but_one).await;
    assert_eq!(running, 1);
    eventually(LONG, "it runs", async || ran.exists()).await;
    fs::write(&go, "").expect("a file");
    let mut codes = Vec::new();
    for tool in &mut tools {
        codes.push(tool.code().await);
    }
    codes.sort();
    assert_eq!(codes, [vec![0], vec![1; 19]].concat());
    assert_eq!(fs::read_to_string(&ran).expect("it ran"), "ran\n");
}

#[tokio::test]
async fn waiting_commands_run_one_after_the_other() {
    let server = Server::start().await;
    let log = server.dir().join("order");
    let path = log.display();
    let script = format!("echo in >>{path}; sleep 0.1; echo out >>{path}");
    let words = ["run", "a", "--", "sh", "-c", &script];
    let mut tools: Vec<_> = (0..5).map(|_| tool(&server, &words).start()).collect();
    for tool in &mut tools {
        assert_eq!(tool.code().await, 0);
    }
    assert_eq!(fs::read_to_string(&log).expect("they ran"), "in\nout\n".repeat(5));
}

#[tokio::test]
async fn the_command_is_told_what_it_holds() {
    let server = Server::start().await;
    let script = "echo $PARKLOCK_NAME $PARKLOCK_HELD $PARKLOCK_LEASE_MS $PARKLOCK_TOKEN";
    let words = ["run", "--watchdog", "7s", "my job", "--", "sh", "-c", script];
    let mut last = 0;
    for _ in 0..3 {
        let told = tool(&server, &words).output().await;
        let token =
            told.trim().strip_prefix("my job 1 7000 ").and_then(|token| token.parse::<u64>().ok());
        let token = token.unwrap_or_else(|| panic!("{told}"));
        assert!(token > last, "tokens grow");
        last = token;
    }
}

#[tokio::test]
async fn a_tool_that_waits_for_its_own_caller_says_so() {
    let server = Server::start().await;
    let nested = async |outer: &[&str], inner: &[&str]| {
        let words = [outer, &["--", PROGRAM], inner, &["--", "true"]].concat();
        let mut tool = tool(&server, &words).start();
        (tool.code().await, tool.complaint().contains("may wait for itself"))
    };
    assert_eq!(nested(&["run", "a"], &["run", "-w", "1", "a"]).await, (1, true));
    assert_eq!(nested(&["run", "a"], &["run", "-n", "a"]).await, (1, false), "it does not wait");
    let words = ["run", "a", "--", PROGRAM, "run", "-n", "a", "--", "true"];
    let mut refused = tool(&server, &words).start();
    assert_eq!(refused.code().await, 1);
    let told = refused.complaint();
    assert!(told.contains("under which this already runs"), "{told}");
    // Without a limit it would never end.
    assert_eq!(nested(&["run", "a"], &["run", "a"]).await, (64, false));
    assert_eq!(nested(&["run", "a"], &["run", "--namespace", "other", "a"]).await, (0, false));
    assert_eq!(nested(&["run", "a"], &["run", "b"]).await, (0, false));
    let read = ["run", "--kind", "read", "c"];
    assert_eq!(nested(&read, &read).await, (0, false));
    let write = ["run", "--kind", "write", "c"];
    assert_eq!(nested(&write, &read).await, (64, false));
    let one = ["run", "--kind", "semaphore", "s"];
    assert_eq!(nested(&one, &one).await, (64, false));
    let two = [&one[..], &["--permits", "2"]].concat();
    assert_eq!(nested(&two, &two).await, (0, false));
    let thrice = [&two[..], &["--", PROGRAM], &two].concat();
    assert_eq!(nested(&thrice, &two).await, (64, false));
    let between = ["run", "a", "--", PROGRAM, "run", "b"];
    assert_eq!(nested(&between, &["run", "-w", "1", "a"]).await, (1, true));
}

/// The first process of each container has the pid 1.
#[tokio::test]
async fn a_holder_on_another_host_is_not_the_outer_tool() {
    let server = Server::start().await;
    let mut holder = tool(&server, &["hold", "a"]).start();
    holder.says("token").await;
    let outer = format!(
        r#"PARKLOCK_OUTER=[{{"name":"a","kind":"lock","host":"elsewhere","pid":{}}}]"#,
        holder.pid()
    );
    let mut waiter = tool(&server, &["run", "a", "--", "true"]).start_by(&["env", &outer]);
    let warned = async || waiter.complaint().contains("may wait for itself");
    eventually(LONG, "it waits", warned).await;
    holder.signal("TERM");
    assert_eq!(holder.code().await, 0);
    assert_eq!(waiter.code().await, 0);
}

#[tokio::test]
async fn each_kind_lets_in_as_many_holders_as_it_allows() {
    let server = Server::start().await;
    let run = async |kind: &[&str], name: &str| {
        let words = [&["run", "-n", "-q"], kind, &[name, "--", "true"]].concat();
        tool(&server, &words).code().await
    };
    let hold = async |kind: &[&str], name: &str| {
        let holder = tool(&server, &[&["hold"], kind, &[name]].concat()).start();
        holder.says("token").await;
        holder
    };
    let (read, write) = (["--kind", "read"], ["--kind", "write"]);
    let reader = hold(&read, "rw").await;
    assert_eq!((run(&read, "rw").await, run(&write, "rw").await), (0, 1));
    drop(reader);
    let two = ["--kind", "semaphore", "--permits", "2"];
    let first = hold(&two, "s").await;
    assert_eq!(run(&two, "s").await, 0);
    let second = hold(&two, "s").await;
    assert_eq!(run(&two, "s").await, 1);
    drop((first, second));
    let fair = ["--kind", "fair"];
    let holder = hold(&fair, "f").await;
    assert_eq!(run(&fair, "f").await, 1);
    drop(holder);
    let java = ["--layout", "redisson"];
    let holder = hold(&java, "j").await;
    assert_eq!((run(&java, "j").await, run(&[], "j").await), (1, 0));
    drop(holder);
}

#[tokio::test]
async fn a_job_that_ends_early_keeps_others_out() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let began = Instant::now();
    let mut tool =
        tool(&server, &["run", "--min-hold", "1.5", "a", "--", "sh", "-c", "exit 3"]).start();
    held(&admin, "a").await;
    assert_eq!(tool.code().await, 3);
    assert!(began.elapsed().as_secs_f64() >= 1.5, "{:?}", began.elapsed());
    freed(&admin, "a").await;
}

/// It is written as text: `jq` and JavaScript round numbers of this size.
fn token_in(line: &Value) -> u64 {
    line["token"].as_str().and_then(|token| token.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn hold_prints_what_it_holds_and_gives_it_back_when_told() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let mut tool = tool(&server, &["hold", "--kind", "fair", "a"]).start();
    tool.says("\n").await;
    let line: Value = serde_json::from_str(&tool.output()).expect("a line of JSON");
    assert_eq!(
        (&line["name"], &line["kind"], &line["lease_ms"]),
        (&"a".into(), &"fair".into(), &30_000.into())
    );
    assert!(token_in(&line) > 0);
    assert!(!is_free(&admin, "a").await);
    tool.signal("TERM");
    assert_eq!(tool.code().await, 0);
    assert!(is_free(&admin, "a").await, "given back before it ends");
}

#[tokio::test]
async fn hold_says_that_the_lock_is_lost() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let mut tool = tool(&server, &["hold", "--watchdog", "2s", "a"]).start();
    tool.says("token").await;
    admin.cmd::<()>(&["DEL", "lock:{a}"]).await;
    assert_eq!(tool.code().await, 75);
    assert!(tool.complaint().contains("the lock a is lost: the server no longer has it"));
}

#[tokio::test]
async fn events_are_told_in_json() {
    let server = Server::start().await;
    let mut tool = tool(&server, &["run", "--json", "a", "--", "sh", "-c", "exit 2"]).start();
    assert_eq!(tool.code().await, 2);
    let events: Vec<Value> =
        tool.complaint().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<_> =
        events.iter().map(|event| event["event"].as_str().expect("a word")).collect();
    assert_eq!(names, ["granted", "ended", "released"]);
    assert_eq!(events[1]["code"], 2);
    assert!(token_in(&events[0]) > 0);
}

/// A proxy that knows the renewals of a plain lock.
async fn proxy_before(server: &Server) -> Proxy {
    let proxy = Proxy::before(server).await;
    proxy.name_script("renew", include_str!("../../../lua/lock/renew.lua"));
    proxy
}

#[tokio::test]
async fn one_renewal_without_an_answer_does_not_cost_the_lock() {
    let server = Server::start().await;
    let (admin, proxy) = (server.admin().await, proxy_before(&server).await);
    // A waiter whose sign of life finds the lock free has it with its whole lease, and renews nothing. So there is a next one.
    for _ in 0..5 {
        let mut holder = tool(&server, &["hold", "a"]).start();
        holder.says("token").await;
        let words = ["run", "a", "--", "true"];
        let mut waiter = tool_at(&proxy.url(), server.dir(), &words).start();
        in_line(&admin, "a", 1).await;
        // A waiter that hears nothing yet asks once more, and finds the lock with its whole lease, too.
        let channels =
            async || admin.cmd::<Vec<String>>(&["PUBSUB", "CHANNELS", "lock_channel:{a}*"]).await;
        eventually(LONG, "the waiter hears messages", async || channels().await.len() == 2).await;
        // A grant by message lasts for a moment only. So the tool renews the lock before it starts the command.
        let lost = proxy.script("renew").nth(1).cut_before();
        holder.signal("TERM");
        assert_eq!(holder.code().await, 0);
        assert_eq!(waiter.code().await, 0, "{}", waiter.complaint());
        if lost.fired() > 0 {
            return;
        }
        lost.lift();
    }
    panic!("no waiter has renewed its lock");
}

#[tokio::test]
async fn a_grant_that_was_taken_away_does_not_make_the_tool_wait_for_longer() {
    let server = Server::start().await;
    let (admin, proxy) = (server.admin().await, proxy_before(&server).await);
    let mut holder = tool(&server, &["hold", "a"]).start();
    holder.says("token").await;
    let (began, wait) = (Watch::start(), Duration::from_secs(12));
    let words = ["run", "-w", "12", "a", "--", "true"];
    let mut waiter = tool_at(&proxy.url(), server.dir(), &words).start();
    in_line(&admin, "a", 1).await;
    // Most of its time is over when it is granted the lock.
    let waited = Duration::from_secs(4);
    tokio::time::sleep(waited.saturating_sub(began.elapsed())).await;
    let held_back = proxy.script("renew").hold_request();
    holder.signal("TERM");
    assert_eq!(holder.code().await, 0);
    held_back.happened().await;
    admin.cmd::<()>(&["DEL", "lock:{a}"]).await;
    let other = tool(&server, &["hold", "a"]).start();
    other.says("token").await;
    held_back.lift();
    assert_eq!(waiter.code().await, 1);
    assert!(began.passed() < waited + wait, "{:?}", began.passed());
    drop(other);
}
