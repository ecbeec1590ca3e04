//! Servers that repeat what they were sent: nothing of it shows the password, whatever was asked, and of whom.

use std::error::Error as _;
use std::fmt::{Debug, Display};
use std::time::Duration;

use futures_util::future::join_all;
use parklock::{Client, Config, Credentials, Error};

use crate::common::{Parrot, Quote, Role, eventually};
use crate::log::Log;
use crate::scene::{LONG, SOON, client, patient};

/// Each form of it shows the word: its begin and its end have no character that is ever escaped.
const PASSWORD: &str = "sesame\"@ \t'%41\\ö/sesame";

/// A password that can be the address of a node. Nobody listens there.
const HOST: &str = "127.0.83.83";

/// The requests whose answers repeat what was sent.
const REQUESTS: [&str; 11] = [
    "HELLO",
    "SETINFO",
    "SETNAME",
    "SELECT",
    "INFO",
    "SCRIPT",
    "TIME",
    "EVALSHA",
    "SUBSCRIBE",
    "SET",
    "TYPE",
];

/// One of each kind of answer.
const SOME: [Quote; 5] =
    [Quote::Escaped, Quote::Text, Quote::Host, Quote::Malformed, Quote::Pushes];

fn hurried() -> Config {
    patient().response_timeout(LONG / 4).ride_out(Duration::from_millis(300)).describe("app")
}

/// The password as in a URL.
fn encoded(password: &str) -> String {
    password.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn password_for(quote: Quote) -> &'static str {
    if quote == Quote::Host { HOST } else { PASSWORD }
}

/// All that an error says, and all that its sources say.
fn all(error: &Error) -> String {
    let mut text = shown(error);
    let mut source = error.source();
    while let Some(error) = source {
        text += &shown(error);
        source = error.source();
    }
    text
}

fn shown(error: &(impl Display + Debug + ?Sized)) -> String {
    format!("{error} {error:?} {error:#?}\n")
}

/// Has a client call whatever it can until something was repeated, and returns all that it says.
async fn said(url: &str, config: Config, parrot: &Parrot) -> String {
    let mut text = String::new();
    let client = loop {
        match Client::connect_with(url, config.clone()).await {
            Ok(client) => break client,
            Err(error) => text += &all(&error),
        }
        // A busy machine may not answer in time.
        if parrot.repeated() > 0 {
            return text;
        }
    };
    text += &format!("{client:?}\n");
    let mut note = |error: Option<Error>| text += &error.map_or(String::new(), |error| all(&error));
    loop {
        let (plain, fair) = (client.lock("a"), client.fair_lock("b"));
        let waiting = async { tokio::join!(plain.lock(), fair.lock()) };
        tokio::select! {
            (one, other) = waiting => [one.err(), other.err()].map(&mut note),
            () = eventually(SOON, "it is repeated", async || parrot.repeated() > 0) => break,
        };
    }
    let (lock, fair) = (client.lock("a"), client.fair_lock("b"));
    let (permits, latch) = (client.semaphore("c", 3), client.count_down_latch("d"));
    let (one, other, permit, look, force, count) = tokio::join!(
        lock.try_lock(),
        fair.try_lock(),
        permits.try_acquire(),
        lock.is_locked(),
        lock.force_unlock(),
        latch.count_down(),
    );
    for error in [one.err(), other.err(), permit.err(), look.err(), force.err(), count.err()] {
        note(error);
    }
    text
}

/// What shows the password, each time that something did.
#[derive(Debug, Default)]
struct Leaks(Vec<String>);

impl Leaks {
    /// Looks at a text, and at what was logged since the last look.
    fn look(&mut self, what: impl Debug, text: &str, log: &Log) {
        for (place, text) in [("error", text), ("log", &log.taken())] {
            if let Some(line) =
                text.lines().find(|line| line.contains("sesame") || line.contains("83.83"))
            {
                self.0.push(format!("{what:?}, {place}: {line}"));
            }
        }
    }
}

impl Drop for Leaks {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{} leaks: {:#?}", self.0.len(), self.0);
        }
    }
}

/// Connects to a parrot of each kind at once, and has the clients call whatever they can.
async fn each(
    requests: &[&'static str],
    quotes: &[Quote],
    role: impl Fn() -> Role,
    url: impl Fn(&Parrot, &str) -> String,
    config: impl Fn(&str) -> Config,
) {
    let (log, _listening) = Log::here();
    let pairs = requests.iter().flat_map(|at| quotes.iter().map(|quote| (*at, *quote)));
    let asked = pairs.map(async |(request, quote)| {
        let parrot = Parrot::start(role(), request, quote);
        let password = password_for(quote);
        let said = said(&url(&parrot, password), config(password), &parrot).await;
        assert!(parrot.repeated() > 0, "{request} {quote:?}: {said}");
        (request, quote, said)
    });
    let mut leaks = Leaks::default();
    for (request, quote, said) in join_all(asked).await {
        leaks.look((request, quote), &said, &log);
    }
}

#[tokio::test]
async fn a_server_that_repeats_what_it_was_sent_shows_no_password() {
    let url = |parrot: &Parrot, password: &str| {
        format!("redis://app:{}@127.0.0.1:{}/1", encoded(password), parrot.port())
    };
    each(&REQUESTS, &Quote::ALL, || Role::Alone, url, |_| hurried()).await;
}

#[tokio::test]
async fn a_server_that_repeats_what_it_was_sent_shows_no_password_of_a_provider() {
    let url = |parrot: &Parrot, _: &str| format!("redis://127.0.0.1:{}", parrot.port());
    let config = |password: &str| {
        let password = password.to_owned();
        hurried().credentials(move || {
            let token = Credentials::new(password.clone()).user("app");
            async { Ok::<_, Error>(token) }
        })
    };
    each(&["HELLO", "TIME", "EVALSHA"], &SOME, || Role::Alone, url, config).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_that_repeats_what_it_was_sent_shows_no_password() {
    let url = |parrot: &Parrot, password: &str| {
        format!("redis-cluster://app:{}@127.0.0.1:{}", encoded(password), parrot.port())
    };
    let requests = ["HELLO", "CLUSTER", "SCRIPT", "TIME", "EVALSHA", "SSUBSCRIBE"];
    each(&requests, &SOME, || Role::Node, url, |_| hurried()).await;
}

#[tokio::test]
async fn a_server_that_repeats_what_it_was_sent_in_place_of_acknowledging_shows_no_password() {
    let url = |parrot: &Parrot, password: &str| {
        format!("redis://app:{}@127.0.0.1:{}", encoded(password), parrot.port())
    };
    each(&["WAIT"], &SOME, || Role::Alone, url, |_| hurried().replicas(1)).await;
}

#[tokio::test]
async fn a_sentinel_that_repeats_what_it_was_sent_shows_no_password() {
    let primary = Parrot::start(Role::Alone, "never", Quote::Plain);
    let url = |parrot: &Parrot, password: &str| {
        let (port, password) = (parrot.port(), encoded(password));
        format!("redis-sentinel://app:{password}@127.0.0.1:{port}/m?sentinelPassword={password}")
    };
    let requests = ["HELLO", "MASTER", "GET-MASTER-ADDR-BY-NAME", "SENTINELS", "SUBSCRIBE", "PING"];
    each(&requests, &SOME, || Role::Sentinel(primary.port()), url, |_| hurried()).await;
}

/// The token is sent again and again on the connections that live.
#[tokio::test]
async fn a_server_that_repeats_new_credentials_shows_none() {
    let (log, _listening) = Log::here();
    let mut leaks = Leaks::default();
    let asked = Quote::ALL.map(async |quote| {
        let parrot = Parrot::start(Role::Alone, "AUTH", quote);
        let config = hurried().credentials(move || {
            let token = Credentials::new(password_for(quote)).user("app");
            async move { Ok::<_, Error>(token.valid_for(Duration::from_millis(1))) }
        });
        let url = format!("redis://127.0.0.1:{}", parrot.port());
        let client = client(&url, config).await;
        eventually(SOON, "it is asked twice", async || parrot.repeated() > 1).await;
        client.close().await;
    });
    join_all(asked).await;
    assert!(log.lines_with("could not replace the credentials") > 0, "{}", log.text());
    leaks.look("AUTH", "", &log);
}
