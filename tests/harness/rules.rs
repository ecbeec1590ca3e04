//! A fault strikes what its rule says, and nothing else.

use std::time::Duration;

use crate::common::connect;
use crate::common::proxy::dice::Dice;
use crate::raw::Raw;
use crate::{ask, proxied};

const SCRIPT: &str = "-- the double\nreturn ARGV[1] * 2";

#[tokio::test]
async fn a_script_is_known_by_a_part_of_its_text() {
    let (_server, proxy, client) = proxied().await;
    proxy.name_script("double", "-- the double");
    let runs = proxy.script("double").count();

    let hash: String = ask(&client, &["SCRIPT", "LOAD", SCRIPT]).await.unwrap();
    ask::<String>(&client, &["SCRIPT", "LOAD", "return 1"]).await.unwrap();
    ask::<u32>(&client, &["EVALSHA", &hash, "0", "1"]).await.unwrap();
    ask::<u32>(&client, &["EVAL", SCRIPT, "0", "1"]).await.unwrap();
    ask::<u32>(&client, &["EVAL", "return 1", "0"]).await.unwrap();

    assert_eq!(runs.fired(), 2);
}

#[tokio::test]
async fn a_script_that_was_loaded_elsewhere_is_known_by_its_whole_text() {
    let (server, proxy, client) = proxied().await;
    let hash: String = server.admin().await.cmd(&["SCRIPT", "LOAD", SCRIPT]).await;
    proxy.name_script("double", SCRIPT);
    let runs = proxy.script("double").count();

    ask::<u32>(&client, &["EVALSHA", &hash, "0", "1"]).await.unwrap();

    assert_eq!(runs.fired(), 1);
}

#[tokio::test]
async fn a_script_can_be_named_after_it_was_seen() {
    let (_server, proxy, client) = proxied().await;
    let hash: String = ask(&client, &["SCRIPT", "LOAD", SCRIPT]).await.unwrap();
    proxy.name_script("double", "the double");
    let runs = proxy.script("double").count();
    ask::<u32>(&client, &["EVALSHA", &hash, "0", "1"]).await.unwrap();
    assert_eq!(runs.fired(), 1);
}

#[tokio::test]
async fn occurrences_are_counted_over_all_connections_from_the_installation_on() {
    let (_server, proxy, client) = proxied().await;
    ask::<u32>(&client, &["INCR", "counter"]).await.unwrap();
    let third = proxy.command("INCR").nth(3).cut_before();

    ask::<u32>(&client, &["INCR", "counter"]).await.unwrap();
    let other = connect(&proxy.url()).await;
    ask::<u32>(&other, &["INCR", "counter"]).await.unwrap();
    assert_eq!(third.fired(), 0);
    assert!(ask::<u32>(&client, &["INCR", "counter"]).await.is_err());

    assert_eq!(ask::<u32>(&other, &["INCR", "counter"]).await.unwrap(), 4);
    assert_eq!(third.fired(), 1);
}

#[tokio::test]
async fn a_rule_can_be_about_a_key() {
    let (_server, proxy, client) = proxied().await;
    let about_b = proxy.command("INCR").about("key:b").count();
    for key in ["key:a", "key:b", "key:b"] {
        ask::<u32>(&client, &["INCR", key]).await.unwrap();
    }
    assert_eq!(about_b.fired(), 2);
}

#[tokio::test]
async fn the_first_few_can_be_struck() {
    let (_server, proxy, _client) = proxied().await;
    let swallowed = proxy.command("ECHO").first(2).swallow_reply();
    let mut raw = Raw::to(&proxy).await;
    raw.say(&["ECHO a", "ECHO b", "ECHO c"]).await;
    raw.hear("$1\r\nc\r\n").await;
    assert_eq!(swallowed.fired(), 2);
}

#[tokio::test]
async fn a_lifted_fault_strikes_no_more() {
    let (_server, proxy, client) = proxied().await;
    let cut = proxy.everything().cut_before();
    assert!(ask::<String>(&client, &["PING"]).await.is_err());
    cut.lift();
    assert_eq!(ask::<String>(&connect(&proxy.url()).await, &["PING"]).await.unwrap(), "PONG");
}

#[tokio::test]
async fn several_faults_strike_one_request_in_order() {
    let (server, proxy, client) = proxied().await;
    let held = proxy.command("INCR").hold_reply();
    let cut = proxy.command("INCR").cut_after();
    let call = crate::send::<u32>(&client, &["INCR", "counter"]);

    held.happened().await;
    assert_eq!(cut.fired(), 0);
    held.lift();

    assert!(call.await.unwrap().is_err());
    assert_eq!(cut.fired(), 1);
    assert_eq!(server.admin().await.cmd::<u32>(&["GET", "counter"]).await, 1);
}

#[tokio::test]
#[should_panic(expected = "only 1 of 2 times")]
async fn a_fault_that_does_not_happen_is_named() {
    let (_server, proxy, client) = proxied().await;
    let pings = proxy.command("PING").count();
    ask::<String>(&client, &["PING"]).await.unwrap();
    pings.happened().await;
    tokio::time::pause(); // so that the wait is over at once
    pings.happened_times(2).await;
}

#[test]
fn a_seed_brings_the_same_jitter_back() {
    let (base, jitter) = (Duration::from_millis(50), Duration::from_millis(20));
    let mut dice = [7, 7, 8].map(Dice::seeded);
    let [first, again, other] =
        dice.each_mut().map(|dice| [(); 100].map(|()| dice.delay(base, jitter)));
    assert!(first == again && first != other);
    assert!(first.iter().all(|delay| (base..=base + jitter).contains(delay)));
    assert!(first.iter().any(|delay| *delay != first[0]));
}
