//! A client that is told its server by a `redis::Client`.

use crate::common;

use common::fixture::{LONG, SOON, key};
use common::rights::user;
use common::{Admin, Server, eventually, timeout};
use parklock::{Client, Config, Credentials, Error};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// The settings of a client that a service has.
fn settings(params: impl IntoConnectionInfo) -> ConnectionInfo {
    redis::Client::open(params).expect("it is understood").get_connection_info().clone()
}

/// Waits for a server that is busy.
fn patient(settings: &ConnectionInfo) -> parklock::ClientBuilder {
    Client::builder().redis_1(settings).config(Config::default().start_timeout(LONG))
}

/// Takes a lock, and returns whether it lies at this URL.
async fn locks_at(client: &Client, url: String) -> bool {
    let guard = client.lock("a").lock().await.expect("a lock");
    let is_there = Admin::connect(&url).await.keys().await.contains(&key("a"));
    guard.unlock().await.expect("and its end");
    is_there
}

fn refusal(connected: Result<Client, Error>) -> String {
    let error = connected.expect_err("it is refused");
    assert!(matches!(error, Error::Config { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn the_address_the_database_the_user_and_the_password_are_taken_over() {
    let server = Server::start().await;
    let url = user(&server, &["~*", "&*", "+@all"].map(String::from)).await;
    let settings = settings(format!("{url}/3"));

    let client = patient(&settings).connect().await.expect("it is taken over");
    assert!(locks_at(&client, format!("{}/3", server.url())).await, "in database 3");
    let clients = server.admin().await.clients().await;
    assert_eq!(clients.iter().filter(|client| client.contains("user=locks")).count(), 2);

    let builder = patient(&settings);
    assert!(!format!("{builder:?}").contains("sesame"), "secrets stay out of logs");
    let info = settings.redis_settings().clone().set_password("wrong-sesame");
    let wrong = patient(&settings.set_redis_settings(info)).connect().await;
    let error = wrong.expect_err("a wrong password");
    assert!(matches!(error, Error::Permission { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("sesame"));
}

#[tokio::test]
async fn a_unix_socket_is_taken_over() {
    let server = Server::builder().unix_socket().start().await;
    let settings = settings(server.unix_url());
    assert!(matches!(settings.addr(), ConnectionAddr::Unix(_)));
    let client = patient(&settings).connect().await.expect("it is taken over");
    assert!(locks_at(&client, server.url()).await);
}

#[tokio::test]
async fn the_settings_of_parklock_stand_beside_those_of_the_redis_client() {
    let server = Server::start().await;
    let config = Config::default().namespace("billing").start_timeout(LONG);
    let builder = Client::builder().redis_1(&settings(server.url())).config(config);
    let client = builder.connect().await.expect("it is taken over");
    let _guard = client.lock("a").lock().await.expect("a lock");
    assert!(server.admin().await.keys().await.contains(&format!("billing:{}", key("a"))));
}

#[tokio::test]
async fn a_lazy_client_waits_for_the_server_of_a_redis_client() {
    let server = Server::start().await;
    server.stop().await;
    let settings = settings((server.address().ip().to_string(), server.port()));
    let config = Config::default().ride_out(SOON);
    let client = Client::builder().redis_1(&settings).config(config).connect_lazy().expect("lazy");
    let asks = tokio::spawn(async move { client.lock("a").lock().await });
    server.start_again().await;
    let is_held = async || server.admin().await.keys().await.contains(&key("a"));
    eventually(SOON, "the lock is held", is_held).await;
    let guard = timeout(SOON, asks).await.expect("in time").expect("no panic").expect("a lock");
    guard.unlock().await.expect("and its end");
}

#[cfg(feature = "blocking")]
#[test]
fn a_blocking_client_is_built_as_well() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let client = patient(&settings(server.url())).connect_blocking().expect("it is taken over");
    client.lock("a").lock().expect("a lock").unlock().expect("and its end");
}

#[tokio::test]
async fn what_cannot_be_taken_over_is_an_error_that_says_so() {
    let connect = async |url: &str, config| {
        Client::builder().redis_1(&settings(url)).config(config).connect().await
    };
    let why = refusal(connect("rediss://h/#insecure", Config::default()).await);
    let word = if cfg!(feature = "tls") { "verified" } else { "feature `tls`" };
    assert!(why.contains(word), "{why}");

    let token = async || Ok::<_, std::io::Error>(Credentials::new("a token"));
    let why = refusal(connect("redis://:sesame@h", Config::default().credentials(token)).await);
    assert!(why.contains("redis::Client") && why.contains("password"), "{why}");

    #[cfg(feature = "tls")]
    {
        let tls = Config::default().tls(parklock::Tls::new());
        let why = refusal(connect("redis://h", tls).await);
        assert!(why.contains("not an encrypted one"), "{why}");
    }
}

#[tokio::test]
async fn a_builder_without_a_server_is_refused() {
    assert!(refusal(Client::builder().connect().await).contains("no server"));
    assert!(refusal(Client::builder().connect_lazy()).contains("no server"));
}
