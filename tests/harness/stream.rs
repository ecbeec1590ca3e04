//! The proxy as a mere wire: what goes in comes out, late or in pieces if it was told so, and not otherwise.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use tokio::time::Instant;

use crate::common::proxy::Rule;
use crate::common::{Class, Proxy, Server, connect, eventually, timeout};
use crate::raw::Raw;
use crate::{SOON, ask, is_pending, proxied, send};

const LATE: Duration = Duration::from_millis(80);

#[tokio::test]
async fn traffic_passes_unchanged_in_both_protocols() {
    let (_server, proxy, resp2) = proxied().await;
    let resp3 = connect(&format!("{}?protocol=resp3", proxy.url())).await;
    let big = "\r\n*$>é".repeat(100_000);

    ask::<()>(&resp2, &["SET", "big", &big]).await.unwrap();
    ask::<()>(&resp2, &["HSET", "hash", "field", &big]).await.unwrap();

    for client in [&resp2, &resp3] {
        assert!(ask::<String>(client, &["GET", "big"]).await.unwrap() == big);
        assert_eq!(
            ask::<Vec<(String, String)>>(client, &["HGETALL", "hash"]).await.unwrap().len(),
            1
        );
        assert_eq!(ask::<Option<String>>(client, &["GET", "none"]).await.unwrap(), None);
        assert!(ask::<String>(client, &["GET", "hash"]).await.is_err());
    }
}

#[tokio::test]
async fn a_long_pipeline_is_answered_in_order() {
    let (_server, _proxy, mut client) = proxied().await;
    let mut pipeline = redis::pipe();
    for _ in 0..20_000 {
        pipeline.cmd("INCR").arg("counter");
    }
    let answers: Vec<u32> = pipeline.query_async(&mut client).await.unwrap();
    assert!(answers.into_iter().eq(1..=20_000));
}

#[tokio::test]
async fn the_network_goes_on_while_the_test_blocks_its_runtime() {
    let (_server, proxy, _client) = proxied().await;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    let mut answer = [0; 7];
    stream.write_all(b"PING\r\n").unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[tokio::test]
async fn a_request_or_a_reply_can_be_late() {
    let (_server, proxy, client) = proxied().await;
    for install in [Rule::delay_request, Rule::delay_reply] {
        let delay = install(proxy.command("INCR"), LATE, LATE);
        let sent = Instant::now();
        ask::<u32>(&client, &["INCR", "counter"]).await.unwrap();
        assert!(sent.elapsed() >= LATE);
        assert_eq!(delay.fired(), 1);
        delay.lift();
    }
}

#[tokio::test]
async fn a_delayed_stream_is_late_but_not_slow() {
    let (_server, proxy, client) = proxied().await;
    let latency = proxy.everything().delay_reply(LATE, Duration::ZERO);
    let sent = Instant::now();
    let answers: Vec<_> = (0..200).map(|_| send::<u32>(&client, &["INCR", "counter"])).collect();
    for (expected, answer) in (1..).zip(answers) {
        assert_eq!(answer.await.unwrap().unwrap(), expected);
    }
    assert_eq!(latency.fired(), 200);
    assert!(sent.elapsed() < 100 * LATE, "one after the other: {:?}", sent.elapsed());
}

#[tokio::test]
async fn a_reply_can_come_in_slices() {
    let (_server, proxy, client) = proxied().await;
    let value = "0123456789".repeat(20);
    ask::<()>(&client, &["SET", "key", &value]).await.unwrap();
    let slices = proxy.command("GET").slice_reply(1);

    assert_eq!(ask::<String>(&client, &["GET", "key"]).await.unwrap(), value);
    let (mut raw, mut heard, mut reads) = (Raw::to(&proxy).await, Vec::new(), 0);
    raw.say(&["GET key"]).await;
    while heard.len() < "$200\r\n\r\n".len() + value.len() {
        heard.extend(raw.read().await.unwrap());
        reads += 1;
    }

    assert!(reads > 1, "in one piece");
    assert_eq!(heard, format!("$200\r\n{value}\r\n").into_bytes());
    assert_eq!(slices.fired(), 2);
}

#[tokio::test]
async fn a_blackhole_keeps_everything_until_it_is_lifted() {
    let (_server, proxy, client) = proxied().await;
    let hole = proxy.blackhole(None);
    let mut answer = send::<u32>(&client, &["INCR", "counter"]);
    hole.happened().await;
    assert!(is_pending(&mut answer).await);
    assert_eq!(proxy.connections(None), 1);

    hole.lift();

    assert_eq!(answer.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_blackhole_hides_the_death_of_the_server() {
    let (server, proxy, _client) = proxied().await;
    let mut raw = Raw::to(&proxy).await;
    raw.say(&["PING"]).await;
    raw.hear("+PONG\r\n").await;
    let hole = proxy.blackhole(None);

    server.kill();
    hole.happened().await;
    assert!(is_pending(Box::pin(raw.read())).await);
    hole.lift();

    assert!(raw.read().await.is_ok_and(|rest| rest.is_empty()));
}

#[tokio::test]
async fn a_blackhole_of_one_class_leaves_the_others_alone() {
    let (_server, proxy, client) = proxied().await;
    let mut subscriber = Raw::to(&proxy).await;
    subscriber.say(&["SUBSCRIBE news"]).await;
    subscriber.hear("*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n").await;
    let hole = proxy.blackhole(Class::Subscriber);

    assert_eq!(ask::<u32>(&client, &["PUBLISH", "news", "hello"]).await.unwrap(), 1);
    hole.happened().await;
    assert!(is_pending(Box::pin(subscriber.read())).await);
    hole.lift();

    subscriber.hear("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n").await;
}

#[tokio::test]
async fn new_connections_can_be_refused() {
    let (_server, proxy, client) = proxied().await;

    proxy.refuse().await;
    let refused = Raw::connect(proxy.port()).await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask::<String>(&client, &["PING"]).await.unwrap(), "PONG");
    proxy.accept_again().await;

    assert_eq!(ask::<String>(&connect(&proxy.url()).await, &["PING"]).await.unwrap(), "PONG");
}

#[tokio::test]
async fn a_client_is_reset_while_there_is_no_server_and_served_when_there_is() {
    let (server, proxy, _client) = proxied().await;
    server.kill();
    match Raw::connect(proxy.port()).await {
        Ok(mut accepted) => accepted.is_reset().await,
        Err(sooner) => assert_eq!(sooner.kind(), ErrorKind::ConnectionReset),
    }
    server.start_again().await;
    assert_eq!(ask::<String>(&connect(&proxy.url()).await, &["PING"]).await.unwrap(), "PONG");
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_port_and_its_connections() {
    let (server, proxy, _client) = proxied().await;
    let (mut raw, port) = (Raw::to(&proxy).await, proxy.port());
    raw.say(&["PING"]).await;
    raw.hear("+PONG\r\n").await;

    drop(proxy);

    // The runtime drops the task that listens a moment later.
    let closed = async || Raw::connect(port).await.is_err();
    eventually(SOON, "the port is closed", closed).await;
    assert!(timeout(SOON, raw.read()).await.unwrap().map_or(true, |rest| rest.is_empty()));
    let admin = server.admin().await;
    eventually(SOON, "the server sees it", async || admin.clients().await.len() == 1).await;
}

#[tokio::test]
async fn a_replica_can_be_cut_off_from_its_primary() {
    let primary = Server::start().await;
    let proxy = Proxy::before(&primary).await;
    let replica = Server::builder().replica_of(proxy.port()).start().await;
    let (there, here) = (primary.admin().await, replica.admin().await);
    there.cmd::<()>(&["SET", "one", "1"]).await;
    eventually(SOON, "the key arrives", async || here.keys().await == ["one"]).await;

    let hole = proxy.blackhole(Class::Replica);
    there.cmd::<()>(&["SET", "two", "2"]).await;
    hole.happened().await;
    assert_eq!(here.keys().await, ["one"]);
    hole.lift();

    eventually(SOON, "the other key arrives", async || here.keys().await == ["one", "two"]).await;
}
