//! Replies belong to their requests, whatever else the server says in between.

use crate::common::Server;
use crate::is_pending;
use crate::proxied;
use crate::raw::Raw;

/// A RESP3 connection that is subscribed to `news`, past its greetings.
async fn subscribed(raw: &mut Raw, protocol: u8) {
    raw.say(&[&format!("HELLO {protocol}"), "ECHO subscribed"]).await;
    let mut greeting = Vec::new();
    while !greeting.ends_with(b"subscribed\r\n") {
        greeting.extend(raw.read().await.expect("a greeting"));
    }
    raw.say(&["SUBSCRIBE news"]).await;
    let mark = if protocol == 3 { '>' } else { '*' };
    raw.hear(&format!("{mark}3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")).await;
}

async fn publish(server: &Server, message: &str) {
    let admin = server.admin().await;
    assert_eq!(admin.publish("news", message).await, 1);
}

#[tokio::test]
async fn pushes_are_not_taken_for_replies() {
    let (server, proxy, _client) = proxied().await;
    let mut raw = Raw::to(&proxy).await;
    subscribed(&mut raw, 3).await;
    let swallowed = proxy.command("ECHO").nth(2).swallow_reply();

    publish(&server, "one").await;
    raw.say(&["ECHO a", "ECHO b", "ECHO c"]).await;

    raw.hear(">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\none\r\n$1\r\na\r\n$1\r\nc\r\n").await;
    assert_eq!(swallowed.fired(), 1);
}

#[tokio::test]
async fn messages_can_be_swallowed_in_both_protocols() {
    for protocol in [2, 3] {
        let (server, proxy, _client) = proxied().await;
        let mut raw = Raw::to(&proxy).await;
        subscribed(&mut raw, protocol).await;
        let swallowed = proxy.messages().about("two").swallow_reply();

        publish(&server, "one").await;
        publish(&server, "two").await;
        publish(&server, "six").await;

        let mark = if protocol == 3 { '>' } else { '*' };
        raw.hear(&format!("{mark}3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\none\r\n")).await;
        raw.hear(&format!("{mark}3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\nsix\r\n")).await;
        assert_eq!(swallowed.fired(), 1);
    }
}

#[tokio::test]
async fn a_confirmation_can_be_held_back_while_the_server_has_subscribed() {
    for protocol in [2, 3] {
        let (server, proxy, _client) = proxied().await;
        let held = proxy.command("SUBSCRIBE").about("late").hold_reply();
        let mut raw = Raw::to(&proxy).await;
        subscribed(&mut raw, protocol).await;

        raw.say(&["SUBSCRIBE late"]).await;
        held.happened().await;
        assert_eq!(server.admin().await.subscribers("late").await, 1);
        assert!(is_pending(Box::pin(raw.read())).await);
        held.lift();

        let mark = if protocol == 3 { '>' } else { '*' };
        raw.hear(&format!("{mark}3\r\n$9\r\nsubscribe\r\n$4\r\nlate\r\n:2\r\n")).await;
    }
}

#[tokio::test]
async fn all_confirmations_of_a_subscribe_are_one_reply() {
    for protocol in [2, 3] {
        let (_server, proxy, _client) = proxied().await;
        let mut raw = Raw::to(&proxy).await;
        subscribed(&mut raw, protocol).await;
        let swallowed = proxy.command("SUBSCRIBE").swallow_reply();

        raw.say(&["SUBSCRIBE a b c", "UNSUBSCRIBE b"]).await;

        let mark = if protocol == 3 { '>' } else { '*' };
        raw.hear(&format!("{mark}3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:3\r\n")).await;
        assert_eq!(swallowed.fired(), 1);
    }
}

#[tokio::test]
async fn a_refused_subscribe_is_one_reply() {
    let (server, proxy, _client) = proxied().await;
    let admin = server.admin().await;
    admin
        .cmd::<()>(&["ACL", "SETUSER", "deaf", "on", ">pass", "~*", "+@all", "resetchannels"])
        .await;
    let swallowed = proxy.command("PING").swallow_reply();
    let mut raw = Raw::to(&proxy).await;

    raw.say(&["AUTH deaf pass", "SUBSCRIBE a b c", "PING", "ECHO end"]).await;

    raw.hear("+OK\r\n-NOPERM").await;
    let mut rest = Vec::new();
    while !rest.ends_with(b"end\r\n") {
        rest.extend(raw.read().await.unwrap());
    }
    assert!(!String::from_utf8(rest).unwrap().contains("PONG"));
    assert_eq!(swallowed.fired(), 1);
}

#[tokio::test]
async fn an_unsubscribe_of_everything_does_not_confuse_what_follows() {
    for protocol in [2, 3] {
        let (_server, proxy, _client) = proxied().await;
        let mut raw = Raw::to(&proxy).await;
        subscribed(&mut raw, protocol).await;
        raw.say(&["SUBSCRIBE more"]).await;
        let swallowed = proxy.command("ECHO").nth(1).swallow_reply();

        raw.say(&["UNSUBSCRIBE", "ECHO first", "ECHO second"]).await;

        let mut rest = Vec::new();
        while !rest.ends_with(b"second\r\n") {
            rest.extend(raw.read().await.unwrap());
        }
        let rest = String::from_utf8(rest).unwrap();
        assert_eq!((rest.matches("unsubscribe").count(), rest.contains("first")), (2, false));
        assert_eq!(swallowed.fired(), 1);
    }
}

#[tokio::test]
async fn bytes_that_are_not_resp_pass_unread() {
    let (_server, proxy, _client) = proxied().await;
    let mut raw = Raw::to(&proxy).await;
    raw.send(b"*1\r\n:1\r\n").await;
    let answer = raw.read().await.unwrap();
    assert!(answer.starts_with(b"-ERR Protocol error"), "{answer:?}");
}
