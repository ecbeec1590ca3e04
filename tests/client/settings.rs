//! Settings that stand in a file: what is understood, and what an error says.

use crate::common;

use std::time::Duration;

use common::{Server, Worker, WorkerSide};
use parklock::{Client, Config, Error, HandOff, Layout, Replicas, Settings};

fn refusal(file: &str) -> String {
    toml::from_str::<Settings>(file).expect_err("it is refused").to_string()
}

/// What is wrong with a file that has only this in its table `config`.
fn refusal_of(config: &str) -> String {
    refusal(&format!("url = \"redis://h\"\n[config]\n{config}\n"))
}

/// As a file would have it.
fn written(config: &Config) -> String {
    toml::to_string(config).expect("it can be written")
}

/// The block in the page about settings that begins with a line of this language.
fn block(language: &str) -> String {
    let page = include_str!("../../docs/settings.md");
    let (_, block) = page.split_once(&format!("```{language}\n")).expect("a block");
    block.split("```").next().expect("its end").to_owned()
}

#[test]
fn the_lines_in_the_page_about_settings_tune_the_watchdog() {
    let lines = block("toml");
    let Settings { url, config, .. } = toml::from_str(&lines).expect("they are understood");
    assert!(url.starts_with("redis://"));
    let tuned = Config::default()
        .watchdog_timeout(Duration::from_secs(10))
        .response_timeout(Duration::from_secs(1))
        .max_hold(Duration::from_secs(300));
    assert_eq!(written(&config), written(&tuned));
    assert_eq!(lines.lines().filter(|line| !line.trim().is_empty()).count(), 5);
}

#[test]
fn what_is_written_is_read_again() {
    let hand_off = HandOff { max_consecutive: 7, max_time: Duration::from_micros(1500) };
    let all = Config::default()
        .watchdog_timeout(Duration::from_secs(90))
        .max_hold(Duration::from_secs(3600))
        .connect_timeout(Duration::from_millis(1500))
        .start_timeout(Duration::from_secs(61))
        .response_timeout(Duration::from_secs(3))
        .ride_out(Duration::from_secs(7))
        .max_park(Duration::from_secs(4))
        .waiter_ttl(Duration::from_millis(800))
        .pickup_timeout(Duration::from_millis(90))
        .subscription_linger(Duration::ZERO)
        .ack_timeout(Duration::from_millis(20))
        .max_waiters(5)
        .replicas(2)
        .layout(Layout::Redisson)
        .plain_channels(true)
        .describe("billing")
        .namespace("billing:eu")
        .hand_off(hand_off);
    let file = written(&all);
    let again: Config = toml::from_str(&file).expect("it is understood");
    assert_eq!(written(&again), file);
    assert_eq!(format!("{again:?}"), format!("{all:?}"), "nothing was left out");
    assert!(file.contains("watchdog_timeout = \"1m 30s\""), "{file}");
    assert!(!written(&Config::default()).contains("ride_out"), "it follows from another setting");
}

/// TOML has no number greater than this one, which is no limit either.
#[test]
fn the_greatest_limit_of_waiters_can_be_written_and_read() {
    let file = written(&Config::default().max_waiters(usize::MAX));
    assert!(file.contains(&format!("max_waiters = {}\n", i64::MAX)), "{file}");
    let again: Config = toml::from_str(&file).expect("it is understood");
    assert_eq!(written(&again), file);
}

#[test]
fn settings_that_are_not_named_keep_their_defaults() {
    let Settings { config, .. } = toml::from_str("url = \"redis://h\"").expect("it is enough");
    assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
    let Settings { config, .. } =
        toml::from_str("url = \"redis://h\"\n[config.hand_off]\nmax_consecutive = 3").expect("too");
    let hand_off = HandOff { max_consecutive: 3, ..HandOff::default() };
    assert_eq!(format!("{config:?}"), format!("{:?}", Config::default().hand_off(hand_off)));
}

#[test]
fn an_error_names_the_field_and_what_it_should_be() {
    for (config, words) in [
        ("watchdog_timeout = 30", ["watchdog_timeout", "\"30s\""]),
        ("watchdog_timeout = \"30\"", ["watchdog_timeout", "not \"30\""]),
        ("watchdog_timeout = \"soon\"", ["watchdog_timeout", "not \"soon\""]),
        ("max_hold = true", ["max_hold", "not true"]),
        ("max_park = [\"1s\"]", ["max_park", "not a list"]),
        ("ride_out = { secs = 3 }", ["ride_out", "not a table"]),
        ("max_waiters = -1", ["max_waiters", "whole number"]),
        ("max_waiters = 2.5", ["max_waiters", "not 2.5"]),
        ("replicas = 5000000000", ["replicas", "too large"]),
        ("layout = \"jedis\"", ["layout", "\"redisson\""]),
        ("plain_channels = \"yes\"", ["plain_channels", "true or false, not \"yes\""]),
        ("hand_off = { max_time = 2 }", ["hand_off.max_time", "\"500ms\""]),
        ("watchdog = \"30s\"", ["unknown field", "watchdog_timeout"]),
        ("hand_off = { time = \"2ms\" }", ["unknown field", "max_time"]),
        // Relations, by the check of `connect_with`.
        ("response_timeout = \"9s\"", ["response_timeout", "a quarter of watchdog_timeout"]),
        ("max_hold = \"1s\"", ["max_hold", "at least watchdog_timeout"]),
        ("max_waiters = 0", ["max_waiters", "at least 1"]),
        ("namespace = 7", ["namespace must be a string", "not 7"]),
        ("namespace = \"a b\"", ["namespace", "no blanks"]),
    ] {
        let refusal = refusal_of(config);
        assert!(words.iter().all(|word| refusal.contains(word)), "{config}: {refusal}");
    }
    assert!(refusal("url = \"redis://h\"\nlease = \"3s\"").contains("unknown field `lease`"));
    assert!(refusal("[config]\nmax_waiters = 1").contains("url"));
}

#[tokio::test]
async fn a_file_is_refused_for_the_same_reason_as_code() {
    let config = Config::default().watchdog_timeout(Duration::from_millis(7));
    let Err(Error::Config { reason }) = Client::connect_with("redis://127.0.0.1:1", config).await
    else {
        panic!("it contradicts itself")
    };
    assert!(refusal_of("watchdog_timeout = \"7ms\"").contains(&reason));
}

#[test]
fn the_password_in_a_url_is_not_shown() {
    let file = "url = \"redis://user:sesame@host?sentinelPassword=open\"";
    let settings: Settings = toml::from_str(file).expect("it is understood");
    let shown = format!("{settings:?}");
    assert!(!shown.contains("sesame") && !shown.contains("open"), "{shown}");
    assert!(shown.contains("redis://.."), "{shown}");
    assert!(settings.url.contains("sesame"), "it is for connecting");
}

/// In variables of the environment everything is text, and programs that read them pass it on as such.
#[test]
fn numbers_and_truths_may_be_text() {
    let all = "max_waiters = \"1000\"\nreplicas = \"2\"\nplain_channels = \"true\"\n\
               hand_off = { max_consecutive = \"7\" }";
    let config: Config = toml::from_str(all).expect("it is understood");
    let hand_off = HandOff { max_consecutive: 7, ..HandOff::default() };
    let same = Config::default().max_waiters(1000).replicas(2).plain_channels(true);
    assert_eq!(written(&config), written(&same.hand_off(hand_off)));
    let connected: Config = toml::from_str("replicas = \"connected\"").expect("it is understood");
    assert_eq!(written(&connected), written(&Config::default().replicas(Replicas::Connected)));
    assert!(refusal_of("replicas = \"all\"").contains("must be \"connected\", or"));
    for wrong in ["max_waiters = \"many\"", "max_waiters = \"-1\"", "plain_channels = \"yes\""] {
        let field = wrong.split(' ').next().expect("a field");
        assert!(refusal_of(wrong).contains(field), "{wrong}");
    }
}

#[tokio::test]
async fn a_program_connects_as_its_environment_says() {
    let server = Server::start().await;
    let (url, admin) = (server.url(), server.admin().await);
    let wait = ("PARKLOCK_START_TIMEOUT", "600s");
    let variables = [("PARKLOCK_URL", &*url), ("PARKLOCK_NAMESPACE", "billing"), wait];
    let mut worker = Worker::start("settings::locks_with_its_environment", &variables);
    assert_eq!(worker.hear().await, "held");
    let keys = admin.keys().await;
    assert!(keys.contains(&"billing:lock:{a}".to_owned()), "{keys:?}");

    let variables = [("PARKLOCK_URL", &*url), ("PARKLOCK_WATCHDOG_TIMEOUT", "30")];
    let mut worker = Worker::start("settings::locks_with_its_environment", &variables);
    let told = worker.hear().await;
    assert!(told.contains("PARKLOCK_WATCHDOG_TIMEOUT") && told.contains("not \"30\""), "{told}");
}

#[tokio::test]
#[ignore = "a worker process"]
async fn locks_with_its_environment() {
    let Some(mut boss) = WorkerSide::here() else { return };
    match Client::from_env().await {
        Ok(client) => {
            let _guard = client.lock("a").lock().await.expect("it is free");
            boss.tell("held");
            boss.order().await;
        }
        Err(error) => boss.tell(&error.to_string()),
    }
}
