//! The proxy knows what a connection is used for.

use crate::common::Class;
use crate::raw::Raw;
use crate::{ask, proxied};

#[tokio::test]
async fn a_connection_is_fresh_until_it_does_something() {
    let (_server, proxy, client) = proxied().await;
    assert_eq!(proxy.connections(Class::Fresh), 1);
    ask::<String>(&client, &["PING"]).await.unwrap();
    assert_eq!(proxy.connections(Class::Fresh), 1);

    ask::<()>(&client, &["SET", "key", "value"]).await.unwrap();

    assert_eq!((proxy.connections(Class::Fresh), proxy.connections(Class::Command)), (0, 1));
}

#[tokio::test]
async fn the_first_subscribe_of_any_kind_makes_a_subscriber() {
    let (_server, proxy, client) = proxied().await;
    ask::<()>(&client, &["SET", "key", "value"]).await.unwrap();
    let mut subscribers = Vec::new();
    for (number, command) in (1..).zip(["SUBSCRIBE", "psubscribe", "ssubscribe"]) {
        let mut raw = Raw::to(&proxy).await;
        raw.say(&[&format!("{command} news")]).await;
        let answer = raw.read().await.unwrap();
        // Version 6 has no sharded channels, which is nothing to the proxy.
        assert!(answer.starts_with(b"*3\r\n") || answer.starts_with(b"-ERR unknown command"));
        assert_eq!(proxy.connections(Class::Subscriber), number);
        subscribers.push(raw);
    }
    assert_eq!((proxy.connections(Class::Command), proxy.connections(None)), (1, 4));
}

#[tokio::test]
async fn a_class_can_be_reset_and_the_others_go_on() {
    let (_server, proxy, client) = proxied().await;
    let mut subscriber = Raw::to(&proxy).await;
    subscriber.say(&["SUBSCRIBE news"]).await;
    subscriber.hear("*3\r\n").await;
    subscriber.read().await.unwrap();

    assert_eq!(proxy.reset(Class::Subscriber).await, 1);

    subscriber.is_reset().await;
    assert_eq!(ask::<String>(&client, &["PING"]).await.unwrap(), "PONG");
    assert_eq!(proxy.connections(Class::Subscriber), 0);
}

#[tokio::test]
async fn a_rule_can_be_limited_to_a_class() {
    let (_server, proxy, client) = proxied().await;
    let on_subscribers = proxy.command("PING").class(Class::Subscriber).count();
    let on_commands = proxy.command("PING").class(Class::Command).count();

    ask::<()>(&client, &["SET", "key", "value"]).await.unwrap();
    ask::<String>(&client, &["PING"]).await.unwrap();
    let mut raw = Raw::to(&proxy).await;
    raw.say(&["PING", "SUBSCRIBE news", "PING", "PING"]).await;
    raw.hear("+PONG\r\n*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n").await;
    raw.hear("*2\r\n$4\r\npong\r\n$0\r\n\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n").await;

    assert_eq!((on_subscribers.fired(), on_commands.fired()), (2, 1));
}
