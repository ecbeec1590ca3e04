//! Cut connections and lost replies: what the server did, and what the client saw.

use crate::common::proxy::Rule;
use crate::common::{connect, eventually};
use crate::raw::Raw;
use crate::{SOON, ask, proxied};

#[tokio::test]
async fn a_request_that_is_cut_before_the_server_never_runs() {
    let (server, proxy, client) = proxied().await;
    let cut = proxy.command("INCR").cut_before();

    assert!(ask::<u32>(&client, &["INCR", "counter"]).await.is_err());

    cut.happened().await;
    assert_eq!(server.admin().await.command_calls("incr").await, 0);
}

#[tokio::test]
async fn a_request_that_is_cut_after_the_server_has_run() {
    let (server, proxy, client) = proxied().await;
    let cut = proxy.command("INCR").cut_after();

    assert!(ask::<u32>(&client, &["INCR", "counter"]).await.is_err());

    cut.happened().await;
    assert_eq!(server.admin().await.cmd::<u32>(&["GET", "counter"]).await, 1);
}

#[tokio::test]
async fn a_cut_is_a_reset_that_follows_the_earlier_replies() {
    let (_server, proxy, _client) = proxied().await;
    for install in [Rule::cut_before, Rule::cut_after] {
        let cut = install(proxy.command("ECHO"));
        let mut raw = Raw::to(&proxy).await;
        raw.say(&["PING"]).await;
        raw.hear("+PONG\r\n").await;
        raw.say(&["ECHO lost"]).await;
        raw.is_reset().await;
        assert_eq!(cut.fired(), 1);
        cut.lift();
    }
}

#[tokio::test]
async fn nothing_that_follows_a_cut_reaches_the_server() {
    let (server, proxy, _client) = proxied().await;
    let cut = proxy.command("ECHO").cut_before();
    let mut raw = Raw::to(&proxy).await;

    raw.say(&["INCR a", "ECHO lost", "INCR b"]).await;
    cut.happened().await;

    let only_the_other_is_left = async || proxy.connections(None) == 1;
    eventually(SOON, "the connection ends", only_the_other_is_left).await;
    let admin = server.admin().await;
    eventually(SOON, "the earlier requests have run", async || admin.keys().await == ["a"]).await;
}

#[tokio::test]
async fn cut_within_a_reply_after_so_many_bytes() {
    let (_server, proxy, client) = proxied().await;
    let cut = proxy.command("GET").cut_within(4);
    ask::<()>(&client, &["SET", "key", "value"]).await.unwrap();

    assert!(ask::<String>(&client, &["GET", "key"]).await.is_err());
    let mut raw = Raw::to(&proxy).await;
    raw.say(&["GET key"]).await;
    raw.hear("$5\r\n").await;
    raw.is_reset().await;

    assert_eq!(cut.fired(), 2);
}

#[tokio::test]
async fn a_swallowed_reply_is_missing_and_nothing_else() {
    let (_server, proxy, _client) = proxied().await;
    let swallowed = proxy.command("ECHO").nth(2).swallow_reply();
    let mut raw = Raw::to(&proxy).await;

    raw.say(&["ECHO a", "ECHO b", "PING", "ECHO c"]).await;

    raw.hear("$1\r\na\r\n+PONG\r\n$1\r\nc\r\n").await;
    assert_eq!(swallowed.fired(), 1);
    raw.say(&["PING"]).await;
    raw.hear("+PONG\r\n").await;
}

#[tokio::test]
async fn after_a_cut_the_next_connection_is_whole() {
    let (_server, proxy, client) = proxied().await;
    proxy.command("INCR").nth(1).cut_after();
    assert!(ask::<u32>(&client, &["INCR", "counter"]).await.is_err());
    let again = connect(&proxy.url()).await;
    assert_eq!(ask::<u32>(&again, &["INCR", "counter"]).await.unwrap(), 2);
}
