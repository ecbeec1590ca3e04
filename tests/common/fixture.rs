//! The beginnings of most tests of the library: clients, names, and how to tell that a caller waits.

use std::pin::pin;
use std::time::Duration;

use parklock::{Client, Config, Error, Result};
use tokio::time::sleep;

use super::{Admin, Front, Site, eventually, timeout};

/// As long as a background effect may take on a machine that has other things to do; far less than a default lease.
pub const SOON: Duration = Duration::from_secs(20);

/// How long a test watches for something that should not happen. If this is too short, a test may miss a failure, but
/// it cannot flake.
pub const A_WHILE: Duration = Duration::from_millis(60);

/// Longer than any test takes: if something comes sooner, nobody waited for this to be over.
pub const LONG: Duration = Duration::from_secs(600);

/// Locks that outlive a silent holder by three seconds. A server has less time to answer then than by default. If the machine does
/// not run it meanwhile, callers ask again.
pub fn quick() -> Config {
    Config::default().watchdog_timeout(Duration::from_secs(3)).ride_out(SOON)
}

/// With the default lease of thirty seconds: if a lock is free much sooner, the lease has not freed it.
pub async fn client(server: &impl Front) -> Client {
    client_with(server, Config::default()).await
}

pub async fn client_with(server: &impl Front, config: Config) -> Client {
    comes_in(server.url(), config).await
}

/// A client of a server that is there. One that gives it little time to answer may have to try again on a machine that
/// is busy: the limits are for what comes after.
pub async fn comes_in(url: impl AsRef<str>, config: Config) -> Client {
    let connected = timeout(LONG, async {
        loop {
            match Client::connect_with(url.as_ref(), config.clone()).await {
                Err(Error::Unavailable { .. }) => sleep(A_WHILE).await,
                connected => return connected,
            }
        }
    });
    connected.await.expect("the server is there").expect("it takes us")
}

/// Why a server does not take a client. One that answers late, on a machine that is busy, is asked again.
pub async fn refusal(url: impl AsRef<str>) -> Error {
    let connecting = Client::connect_with(url, Config::default().start_timeout(LONG));
    timeout(SOON, connecting).await.expect("in time").expect_err("it is refused")
}

pub async fn server_and_client() -> (Site, Client) {
    let server = Site::start().await;
    let client = client(&server).await;
    (server, client)
}

/// The key of a lock, as long as its name has neither `%` nor a brace.
pub fn key(name: &str) -> String {
    format!("lock:{{{name}}}")
}

pub fn channel(name: &str) -> String {
    format!("lock_channel:{{{name}}}")
}

/// Waits until so many clients have subscribed: their contenders found the lock held.
pub async fn parked(admin: &Admin, name: &str, clients: usize) {
    let channel = channel(name);
    let listen = async || admin.subscribers(&channel).await == clients;
    eventually(SOON, &format!("{clients} clients listen"), listen).await;
}

/// Every key that is more than the counter of the tokens.
pub async fn lock_keys(admin: &Admin) -> Vec<String> {
    admin.keys().await.into_iter().filter(|key| key != "lock:grants").collect()
}

/// Whether the future stays pending for a while. This drops the future afterwards, unless it is given by reference.
pub async fn is_pending(future: impl Future) -> bool {
    timeout(A_WHILE, pin!(future)).await.is_err()
}

/// That an attempt with a short limit got nothing. On a busy machine it may have had no answer either.
pub fn got_nothing<T>(tried: Result<Option<T>>) {
    let unanswered =
        |error: &Error| matches!(error, Error::Unavailable { .. } | Error::Indeterminate { .. });
    let refused = tried.as_ref().map_or_else(unanswered, Option::is_none);
    assert!(refused, "{:?}", tried.map(|granted| granted.is_some()));
}

/// How many scripts have been run.
pub async fn scripts(admin: &Admin) -> u64 {
    admin.command_calls("evalsha").await + admin.command_calls("eval").await
}

/// How many scripts have been run, when no more have come for a while.
pub async fn settled(admin: &Admin) -> u64 {
    loop {
        let before = scripts(admin).await;
        sleep(Duration::from_millis(500)).await;
        if scripts(admin).await == before {
            return before;
        }
    }
}
