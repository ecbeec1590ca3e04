//! Held requests and replies: late truths and ghosts.

use crate::common::eventually;
use crate::raw::Raw;
use crate::{SOON, ask, is_pending, proxied, send};

#[tokio::test]
async fn a_held_request_waits_outside_the_server() {
    let (server, proxy, client) = proxied().await;
    let held = proxy.command("INCR").nth(1).hold_request();
    let mut answer = send::<u32>(&client, &["INCR", "counter"]);
    held.happened().await;
    assert_eq!(server.admin().await.command_calls("incr").await, 0);
    assert!(is_pending(&mut answer).await);

    held.lift();

    assert_eq!(answer.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn requests_after_a_held_one_wait_behind_it() {
    let (server, proxy, _client) = proxied().await;
    let held = proxy.command("ECHO").hold_request();
    let mut raw = Raw::to(&proxy).await;

    raw.say(&["PING", "ECHO held", "INCR counter"]).await;
    raw.hear("+PONG\r\n").await;
    held.happened().await;
    assert_eq!(server.admin().await.command_calls("incr").await, 0);
    held.lift();

    raw.hear("$4\r\nheld\r\n:1\r\n").await;
}

#[tokio::test]
async fn a_ghost_reaches_the_server_after_its_client_has_gone() {
    for go in [Raw::leave, Raw::vanish] {
        let (server, proxy, client) = proxied().await;
        let held = proxy.command("INCR").nth(1).hold_request();
        let mut raw = Raw::to(&proxy).await;
        raw.say(&["INCR counter"]).await;
        held.happened().await;

        go(raw);
        assert_eq!(ask::<u32>(&client, &["INCR", "counter"]).await.unwrap(), 1);
        held.lift();

        let admin = server.admin().await;
        let runs_late = async || admin.cmd::<u32>(&["GET", "counter"]).await == 2;
        eventually(SOON, "the old request runs", runs_late).await;
        let only_one_is_left = async || proxy.connections(None) == 1;
        eventually(SOON, "the old connection ends", only_one_is_left).await;
    }
}

#[tokio::test]
async fn a_held_reply_belongs_to_a_request_that_has_run() {
    let (server, proxy, client) = proxied().await;
    let held = proxy.command("INCR").hold_reply();
    let mut answer = send::<u32>(&client, &["INCR", "counter"]);
    held.happened().await;
    assert_eq!(server.admin().await.cmd::<u32>(&["GET", "counter"]).await, 1);
    assert!(is_pending(&mut answer).await);

    held.lift();

    assert_eq!(answer.await.unwrap().unwrap(), 1);
    assert_eq!(ask::<u32>(&client, &["INCR", "counter"]).await.unwrap(), 2);
    assert_eq!(held.fired(), 1);
}

#[tokio::test]
async fn two_held_replies_arrive_together() {
    let (_server, proxy, _client) = proxied().await;
    let held = proxy.command("PING").nth(1).hold_reply();
    let mut raw = Raw::to(&proxy).await;
    raw.say(&["PING", "ECHO second"]).await;
    held.happened().await;
    held.lift();
    raw.hear("+PONG\r\n$6\r\nsecond\r\n").await;
}

#[tokio::test]
async fn a_reset_drops_what_is_held() {
    let (server, proxy, client) = proxied().await;
    let held = proxy.command("INCR").hold_request();
    let call = send::<u32>(&client, &["INCR", "counter"]);
    held.happened().await;

    assert_eq!(proxy.reset(None).await, 1);
    held.lift();

    assert!(call.await.unwrap().is_err());
    assert_eq!(server.admin().await.command_calls("incr").await, 0);
}
