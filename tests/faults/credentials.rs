//! Credentials that change: a provider that is asked at each connection, and again before they end.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use parklock::{Client, Config, Credentials, Error, HandOff};
use tokio::time::sleep;
use tracing::Level;

use crate::common::{Admin, Server, eventually};
use crate::log::Log;
use crate::scene::*;

/// The credentials of the moment, as a service would know them.
#[derive(Clone, Default)]
struct Vault {
    user: Arc<Mutex<(String, String)>>,
    asked: Arc<AtomicUsize>,
}

impl Vault {
    fn set(&self, user: &str, password: &str) {
        let new = (user.to_owned(), password.to_owned());
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = new;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn config(&self, valid_for: Option<Duration>) -> Config {
        let vault = self.clone();
        patient().credentials(move || {
            vault.asked.fetch_add(1, Ordering::Relaxed);
            let (user, password) =
                vault.user.lock().unwrap_or_else(PoisonError::into_inner).clone();
            async move {
                if password.is_empty() {
                    return Err(std::io::Error::other("the vault is shut"));
                }
                let credentials = Credentials::new(password).user(user);
                Ok(match valid_for {
                    Some(time) => credentials.valid_for(time),
                    None => credentials,
                })
            }
        })
    }
}

async fn allow(admin: &Admin, user: &str, password: &str) {
    let password = format!(">{password}");
    let words = ["ACL", "SETUSER", user, "on", "resetpass", &password, "~*", "&*", "+@all"];
    admin.cmd::<()>(&words).await;
}

/// The ids of the connections of a user.
async fn connections(admin: &Admin, user: &str) -> Vec<String> {
    let mark = format!("user={user} ");
    let lines = admin.clients().await;
    let of_user = lines.iter().filter(|line| line.contains(&mark));
    let mut ids: Vec<_> =
        of_user.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect();
    ids.sort();
    ids
}

/// The live connections change to the new user before the old user is removed. No connection is reopened, and nothing
/// is lost.
#[tokio::test]
async fn living_connections_are_given_new_credentials_before_the_old_ones_end() {
    let server = Server::start().await;
    let admin = server.admin().await;
    allow(&admin, "monday", "one").await;
    let vault = Vault::default();
    vault.set("monday", "one");
    let config = vault.config(Some(Duration::from_secs(3)));
    let (ours, theirs) =
        (client(&server.url(), config.clone()).await, client(&server.url(), config).await);
    let guard = ours.lock("a").lock().await.expect("it is free");
    let waiter = waiting(theirs.lock("a"));
    let before = connections(&admin, "monday").await;
    assert_eq!(before.len(), 4, "two of each");

    allow(&admin, "tuesday", "two").await;
    vault.set("tuesday", "two");
    let moved = async || connections(&admin, "tuesday").await.len() == 4;
    eventually(SOON, "the connections have the new user", moved).await;
    assert_eq!(connections(&admin, "tuesday").await, before, "they are the same ones");
    // It ends the connections of the user.
    admin.cmd::<()>(&["ACL", "DELUSER", "monday"]).await;

    guard.extend(LONG).await.expect("it is ours");
    guard.unlock().await.expect("it is ours");
    granted(waiter).await.unlock().await.expect("it is ours");
    assert_eq!(connections(&admin, "tuesday").await, before);
}

/// A password changes while a client lives: the next connection has the new one.
#[tokio::test]
async fn each_connection_asks_for_the_password_of_the_moment() {
    let server = Server::start().await;
    let admin = server.admin().await;
    allow(&admin, "app", "one").await;
    let vault = Vault::default();
    vault.set("app", "one");
    let client = client(&server.url(), vault.config(None)).await;
    assert_eq!(vault.asked(), 2);
    let guard = client.lock("a").lock().await.expect("it is free");

    allow(&admin, "app", "two").await;
    vault.set("app", "two");
    for id in connections(&admin, "app").await {
        let id = id.trim_start_matches("id=");
        admin.cmd::<()>(&["CLIENT", "KILL", "ID", id]).await;
    }
    soon(guard.unlock()).await.expect("it is ours");
    let back = async || connections(&admin, "app").await.len() == 2;
    eventually(SOON, "both are back", back).await;
    assert_eq!(vault.asked(), 4, "once for each, and not before");

    // While the vault is shut, those that live go on, and nobody else comes in.
    vault.set("app", "");
    let error = Client::connect_with(server.url(), vault.config(None)).await.expect_err("shut");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("the vault is shut"), "{error}");
    client.lock("a").lock().await.expect("free").unlock().await.expect("it is ours");
    vault.set("app", "of nobody");
    let error = Client::connect_with(server.url(), vault.config(None)).await.expect_err("wrong");
    assert!(matches!(error, Error::Permission { .. }), "{error}");
    assert!(!error.to_string().contains("of nobody"), "{error}");
}

/// If the server refuses the credentials, or the provider fails, the live connections stay as they are.
#[tokio::test]
async fn a_refusal_leaves_the_living_connections_as_they_are() {
    let (log, _listening) = Log::of(Level::WARN);
    let server = Server::start().await;
    let admin = server.admin().await;
    allow(&admin, "app", "one").await;
    let vault = Vault::default();
    vault.set("app", "one");
    let client = client(&server.url(), vault.config(Some(Duration::from_secs(2)))).await;
    let before = connections(&admin, "app").await;
    vault.set("app", "of nobody");
    let asked = vault.asked();
    eventually(SOON, "it asks again", async || vault.asked() >= asked + 4).await;
    vault.set("app", "");
    let asked = vault.asked();
    eventually(SOON, "it asks again", async || vault.asked() >= asked + 4).await;
    client.lock("a").lock().await.expect("free").unlock().await.expect("it is ours");
    assert_eq!(connections(&admin, "app").await, before);
    // Not all the time, though.
    let asked = vault.asked();
    sleep(Duration::from_secs(2)).await;
    assert!(vault.asked() - asked <= 10, "{} times", vault.asked() - asked);
    let warned = log.lines_with("could not replace the credentials");
    assert!((1..=2).contains(&warned), "one for each connection: {}", log.text());
    assert_eq!(log.lines_with("NotSent("), 0, "{}", log.text());
    vault.set("app", "one");
    let again = async || log.lines_with("can replace the credentials again") == warned;
    eventually(SOON, "each of them is over", again).await;
}

/// Redis 8.2 does not send the refusal of new credentials behind other answers (redis/redis#15640). No caller takes the answer of
/// another one for its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_the_server_leaves_out_shifts_no_answer() {
    let Some(program) = installed("redis-8.2") else {
        let missing = "Redis 8.2 is not installed (scripts/servers installs it)";
        assert!(env::var_os("PARKLOCK_REQUIRE_SERVERS").is_none(), "{missing}");
        return println!("skipped: {missing}");
    };
    let server = Server::builder().program(program).start().await;
    let admin = server.admin().await;
    allow(&admin, "app", "one").await;
    let vault = Vault::default();
    vault.set("app", "one");
    let never = HandOff { max_consecutive: 0, max_time: Duration::ZERO };
    let config = vault.config(Some(Duration::from_secs(2))).hand_off(never);
    let client = client(&server.url(), config).await;
    let done = Arc::<AtomicBool>::default();
    let callers: Vec<_> = (0..32)
        .map(|caller| {
            // Each of them has its name for itself.
            let lock = client.lock(format!("own:{caller}"));
            let done = Arc::clone(&done);
            tokio::spawn(async move {
                let mut last = None;
                while !done.load(Ordering::Relaxed) {
                    let outcome = async {
                        let guard = lock.lock().await?;
                        assert!(last < Some(guard.token()), "{last:?} and {guard:?}");
                        last = Some(guard.token());
                        guard.unlock().await
                    };
                    match outcome.await {
                        Ok(()) => {}
                        Err(Error::Unavailable { .. } | Error::Permission { .. }) => {
                            sleep(A_WHILE).await;
                        }
                        Err(error) => panic!("caller {caller}: {error}"),
                    }
                }
            })
        })
        .collect();
    vault.set("app", "of nobody");
    let before = admin.command_calls("auth").await;
    let refused = async || admin.command_calls("auth").await > before + 2;
    eventually(SOON, "the server refuses them", refused).await;
    vault.set("app", "one");
    let back = async || connections(&admin, "app").await.len() == 2;
    eventually(SOON, "both connections are there", back).await;
    sleep(A_WHILE).await;
    done.store(true, Ordering::Relaxed);
    for caller in callers {
        soon(caller).await.expect("no answer of another one");
    }
}

/// A URL may name a user without a password: the client acts as that user, and not as the default one.
#[tokio::test]
async fn a_user_without_a_password_is_that_user() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin.cmd::<()>(&["ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all"]).await;
    let url = |user: &str| server.url().replace("redis://", &format!("redis://{user}@"));
    let client = client(&url("app"), patient()).await;
    let guard = client.lock("a").lock().await.expect("it is free");
    assert_eq!(connections(&admin, "app").await.len(), 2);
    guard.unlock().await.expect("it is ours");

    let error = Client::connect_with(url("stranger"), patient()).await.expect_err("no such user");
    assert!(matches!(error, Error::Permission { .. }), "{error}");
}

/// A provider that panics has failed: the client tells its callers so, and asks again.
#[tokio::test]
async fn a_provider_that_panics_does_not_close_the_client() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (asked, panics) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let config = patient().credentials({
        let (asked, panics) = (Arc::clone(&asked), Arc::clone(&panics));
        move || {
            asked.fetch_add(1, Ordering::Relaxed);
            let panics = panics.load(Ordering::Relaxed);
            async move {
                assert!(!panics, "the vault is broken");
                Ok::<_, std::io::Error>(Credentials::new("").user("default"))
            }
        }
    });
    admin.cmd::<()>(&["ACL", "SETUSER", "default", "on", "nopass"]).await;
    let client = client(&server.url(), config.clone()).await;
    let guard = client.lock("a").lock().await.expect("it is free");

    panics.store(true, Ordering::Relaxed);
    let before = asked.load(Ordering::Relaxed);
    admin.cmd::<()>(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    let again = async || asked.load(Ordering::Relaxed) >= before + 3;
    eventually(SOON, "it asks again and again", again).await;
    let error = Client::connect_with(server.url(), config).await.expect_err("it panics");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(!error.to_string().contains("broken"), "{error}");

    panics.store(false, Ordering::Relaxed);
    soon(guard.unlock()).await.expect("it is ours");
}

/// A call of the provider that does not return costs one attempt to connect: the next attempt asks again.
#[tokio::test]
async fn a_provider_that_never_answers_costs_one_attempt() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin.cmd::<()>(&["ACL", "SETUSER", "default", "on", "nopass"]).await;
    let (asked, next) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let provider = {
        let (asked, next) = (Arc::clone(&asked), Arc::clone(&next));
        move || {
            asked.fetch_add(1, Ordering::Relaxed);
            let is_silent = next.swap(false, Ordering::Relaxed);
            async move {
                if is_silent {
                    return std::future::pending().await;
                }
                Ok::<_, std::io::Error>(Credentials::new("").user("default"))
            }
        }
    };
    let config = patient().connect_timeout(Duration::from_secs(1)).credentials(provider);
    let client = client(&server.url(), config).await;
    let guard = client.lock("a").lock().await.expect("it is free");

    next.store(true, Ordering::Relaxed);
    let before = asked.load(Ordering::Relaxed);
    admin.cmd::<()>(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    admin.cmd::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    let again = async || asked.load(Ordering::Relaxed) >= before + 3;
    eventually(SOON, "both connections ask, and one asks again", again).await;
    let back = async || connections(&admin, "default").await.len() >= 3; // one is the test's
    eventually(SOON, "both are back", back).await;
    soon(guard.unlock()).await.expect("it is ours");
}

#[tokio::test]
async fn credentials_of_the_url_and_of_a_provider_exclude_each_other() {
    let vault = Vault::default();
    vault.set("app", "one");
    for url in ["redis://app:secret@127.0.0.1:1", "redis-sentinel://:secret@127.0.0.1:1/orders"] {
        let error = Client::connect_with(url, vault.config(None)).await.expect_err("both");
        assert!(matches!(error, Error::Config { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
