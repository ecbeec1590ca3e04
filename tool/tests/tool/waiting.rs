//! What the tool says of the holders of a lock that it does not have.

use std::time::Duration;

use parklock::Config;
use serde_json::Value;
use tokio::time::sleep;

use crate::common::fixture::comes_in;
use crate::common::rights::user;
use crate::common::{Admin, Server, eventually, judged};
use crate::scene::{LONG, Tool, held, in_line, tool, tool_at};

/// Waits until so many clients have written to Redis who they are.
async fn described(admin: &Admin, clients: usize) {
    let all = async || admin.cmd::<Vec<String>>(&["KEYS", "lock_client:*"]).await.len() == clients;
    eventually(LONG, &format!("{clients} clients say who they are"), all).await;
}

/// What the tool prints on stderr when it has ended with this code.
async fn complaint(mut tool: Tool, code: i32) -> String {
    assert_eq!(tool.code().await, code, "{}", tool.complaint());
    tool.complaint()
}

#[tokio::test]
async fn a_busy_lock_names_its_holder_by_the_pid_that_the_user_knows() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for words in [&["hold", "a"][..], &["run", "a", "--", "sleep", "600"]] {
        let holder = tool(&server, words).start();
        held(&admin, "a").await;
        described(&admin, 1).await;
        let pid = holder.pid();
        for words in [&["run", "-n", "a", "--", "true"][..], &["hold", "-w", "1", "a"]] {
            let text = complaint(tool(&server, words).start(), 1).await;
            assert!(text.starts_with("parklock: a is held by "), "{text}");
            assert!(text.contains(&format!("[{pid}], connected for ")), "{pid}: {text}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
        let event =
            complaint(tool(&server, &["run", "-n", "--json", "a", "--", "true"]).start(), 1).await;
        let event: Value = serde_json::from_str(&event).expect("one line of JSON");
        assert_eq!((&event["event"], &event["code"]), (&"busy".into(), &1.into()));
        assert_eq!(event["holders"][0]["who"]["pid"], pid, "{event}");
        assert!(event["holders"][0]["who"]["connected_ms"].is_u64(), "{event}");
        drop(holder);
        admin.cmd::<()>(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn several_holders_are_named_and_those_who_say_nothing_have_their_ids() {
    let server = Server::start().await;
    let client = comes_in(server.url(), Config::default()).await;
    let permits = client.semaphore("p", 3).acquire_many(1).await.expect("free");
    let more = client.semaphore("p", 3).acquire_many(2).await.expect("free");
    let words = ["run", "-n", "--kind", "semaphore", "--permits", "3", "p", "--", "true"];
    let text = complaint(tool(&server, &words).start(), 1).await;
    assert!(text.contains("..:") && text.contains(" and "), "{text}");
    drop((permits, more));
}

#[tokio::test]
async fn a_user_who_may_not_ask_learns_only_that_the_lock_is_busy() {
    let server = Server::start().await;
    let rules = ["~lock*", "&lock*", "+@all", "-type"].map(str::to_owned);
    let url = user(&server, &rules).await;
    let holder = tool(&server, &["hold", "a"]).start();
    held(&server.admin().await, "a").await;
    let text =
        complaint(tool_at(&url, server.dir(), &["run", "-n", "a", "--", "true"]).start(), 1).await;
    assert_eq!(text, "parklock: a is held by somebody else\n");
    drop(holder);
}

#[tokio::test]
async fn a_tool_that_waits_for_long_says_for_whom_if_it_is_asked_to_say_more() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let holder = tool(&server, &["hold", "a"]).start();
    held(&admin, "a").await;
    described(&admin, 1).await;
    let named = format!("[{}], connected for ", holder.pid());
    for words in [
        &["run", "-v", "a", "--", "true"][..],
        &["elect", "--json", "a", "--", "true"],
        &["hold", "-v", "a"],
    ] {
        let waiter = tool(&server, words).start();
        let said = async || {
            let text = waiter.complaint();
            text.contains("waiting for a, held by ") && text.contains(&named)
        };
        eventually(LONG, "the holder is named", said).await;
        assert_eq!(waiter.complaint().lines().count(), 1, "{}", waiter.complaint());
    }
    // Not at a terminal, and nobody has asked for more: nothing is printed but the end.
    let waiter = tool(&server, &["run", "-w", "4", "a", "--", "true"]).start();
    let text = complaint(waiter, 1).await;
    assert!(text.starts_with("parklock: a is held by ") && text.lines().count() == 1, "{text}");
    let waiter = tool(&server, &["run", "-q", "-w", "4", "a", "--", "true"]).start();
    assert_eq!(complaint(waiter, 1).await, "");
    drop(holder);
}

#[tokio::test]
async fn a_wait_that_ends_soon_is_not_worth_a_word() {
    judged(async || {
        let server = Server::start().await;
        let admin = server.admin().await;
        let holder = tool(&server, &["hold", "a"]).start();
        held(&admin, "a").await;
        let waiter = tool(&server, &["run", "-v", "a", "--", "true"]).start();
        in_line(&admin, "a", 1).await;
        sleep(Duration::from_millis(500)).await;
        holder.signal("TERM");
        let text = complaint(waiter, 0).await;
        assert!(!text.contains("waiting for"), "{text}");
    })
    .await;
}
