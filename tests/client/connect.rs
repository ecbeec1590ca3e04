//! How a client finds its server, and what it says when there is none.

use crate::common;

use std::time::{Duration, Instant};

use common::fixture::{
    LONG, SOON, client, client_with, comes_in, is_pending, key, lock_keys, parked, quick,
};
use common::port::{Port, listen};
use common::{Admin, Proxy, Server, Site, eventually, judged, timeout};
use parklock::{Client, Config, Error};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

/// A time limit that a test waits for, and what the machine may add to it.
const LIMIT: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_secs(2);

/// An error with all that is below it, as a log would show it.
fn all_words(error: &Error) -> String {
    let mut words = format!("{error} {error:?}");
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        words += &format!(" {source} {source:?}");
        next = source.source();
    }
    words
}

async fn works(client: &Client) {
    let guard = timeout(SOON, client.lock("works").lock()).await.expect("in time");
    guard.expect("a lock").unlock().await.expect("and its end");
}

/// A call fails as unavailable, after about this time.
async fn unavailable<T>(
    call: impl Future<Output = Result<T, Error>>,
    least: Duration,
    most: Duration,
) {
    let asked = Instant::now();
    let answer = timeout(most + SLACK, call).await.expect("an answer in time");
    let Err(error @ Error::Unavailable { .. }) = answer else { panic!("{:?}", answer.err()) };
    let said = error.to_string();
    // The limit of a call may end before the client knows what the server does.
    assert!(
        said.contains("://") || said.contains("no answer within"),
        "it names no server: {said}"
    );
    assert!(asked.elapsed() >= least, "it gave up after {:?}", asked.elapsed());
}

fn connecting(url: &str) -> impl Future<Output = Result<Client, Error>> {
    Client::connect_with(url.to_owned(), Config::default().connect_timeout(LIMIT))
}

#[tokio::test]
async fn a_url_that_cannot_be_understood_is_refused_and_not_quoted() {
    for url in
        ["", "redis", "http://localhost", "redis://:sesame@:x", "redis://u:sesame@h/db", "unix:"]
    {
        let error = Client::connect(url).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{url}: {error}");
        assert!(!all_words(&error).contains("sesame"), "{error}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_said_at_once_and_shown_nowhere() {
    let server = Server::builder().set("requirepass", "right").start().await;
    let patient = Config::default().connect_timeout(LONG).start_timeout(LONG);
    for user in ["", "default:", ":sesame@", ":", "nobody:sesame@", ":wrong-sesame@"] {
        let user = user.replace("default:", "default:sesame@").replace("::", ":");
        let url = server.url().replace("://", &format!("://{user}"));
        let connecting = Client::connect_with(&url, patient.clone());
        let Ok(refused) = timeout(SOON, connecting).await else { panic!("{url}: it waits") };
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Permission { .. } | Error::Config { .. }), "{url}: {error}");
        assert!(!all_words(&error).contains("sesame"), "{error}");
    }
    let right = comes_in(server.url().replace("://", "://:right@"), Config::default()).await;
    works(&right).await;
    assert!(!format!("{right:?} {:?}", right.lock("a")).contains("right"));
}

#[tokio::test]
async fn a_password_that_was_changed_is_a_permission_error_at_once() {
    let server = Server::start().await;
    let client = client(&server).await;
    let admin = server.admin().await;
    admin.config_set("requirepass", "new").await;
    admin.client_kill("normal").await;
    admin.client_kill("pubsub").await;
    let refused = async || matches!(client.lock("a").lock().await, Err(Error::Permission { .. }));
    eventually(SOON, "the lock is refused", refused).await;
    admin.config_set("requirepass", "").await;
    let granted = async || client.lock("a").lock().await.is_ok();
    eventually(SOON, "the lock is granted again", granted).await;
}

#[tokio::test]
async fn without_a_server_connecting_fails_within_its_limit() {
    let port = Port::reserve();
    unavailable(connecting(&format!("redis://{}", port.address())), Duration::ZERO, LIMIT).await;
    let no_socket = "redis+unix:///nowhere/parklock.sock";
    unavailable(connecting(no_socket), Duration::ZERO, LIMIT).await;
}

#[tokio::test]
async fn a_server_that_never_answers_makes_connecting_fail_at_its_limit() {
    let port = Port::reserve();
    let _deaf = listen(port.address()); // the kernel accepts for it
    unavailable(connecting(&format!("redis://{}", port.address())), LIMIT, LIMIT).await;
}

#[tokio::test]
async fn a_server_that_speaks_another_language_makes_connecting_fail() {
    let port = Port::reserve();
    let listener = listen(port.address());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    unavailable(connecting(&format!("redis://{}", port.address())), Duration::ZERO, LIMIT).await;
}

#[tokio::test]
async fn a_paused_server_makes_connecting_fail_at_its_limit() {
    let server = Server::start().await;
    server.pause();
    unavailable(connecting(&server.url()), LIMIT, LIMIT).await;
    server.resume();
    works(&client(&server).await).await;
}

#[tokio::test]
async fn a_replica_is_not_taken_for_a_server() {
    let primary = Server::start().await;
    let replica = Server::builder().replica_of(primary.port()).start().await;
    unavailable(connecting(&replica.url()), Duration::ZERO, LIMIT).await;
}

#[tokio::test]
async fn a_lock_outlives_a_dead_server_for_ride_out_and_a_limit_comes_first() {
    let server = Server::start().await;
    let client = client_with(&server, Config::default().ride_out(LIMIT)).await;
    let patient = client_with(&server, Config::default().ride_out(LONG)).await;
    works(&client).await;
    server.kill();
    unavailable(client.lock("a").lock(), LIMIT / 2, LIMIT).await;
    unavailable(client.lock("a").try_lock_for(LONG), LIMIT / 2, LIMIT).await;
    unavailable(patient.lock("a").try_lock_for(LIMIT), LIMIT, LIMIT).await;
    unavailable(client.lock("a").is_locked(), Duration::ZERO, LIMIT * 2).await;
    unavailable(client.lock("a").try_lock(), Duration::ZERO, LIMIT * 2).await;
}

#[tokio::test]
async fn a_lock_outlives_a_silent_server_for_ride_out_and_a_limit_comes_first() {
    let server = Server::start().await;
    let config = Config::default().response_timeout(LIMIT / 4);
    let client = client_with(&server, config.clone().ride_out(LIMIT)).await;
    let patient = client_with(&server, config.ride_out(LONG)).await;
    server.pause();
    unavailable(client.lock("a").lock(), LIMIT / 2, LIMIT).await;
    unavailable(patient.lock("a").try_lock_for(LIMIT), LIMIT, LIMIT).await;
    server.resume();
    works(&client).await;
    works(&patient).await;
}

#[tokio::test]
async fn a_nested_call_gives_up_at_its_limit_too() {
    let server = Server::start().await;
    let config = Config::default().watchdog_timeout(SOON * 8).response_timeout(SOON * 2);
    let client = client_with(&server, config).await;
    let lock = client.reentrant_lock("a");
    let _outer = lock.lock().await.unwrap();
    server.pause();
    let nested = timeout(SOON, lock.try_lock_for(LIMIT)).await.expect("it waits beyond its limit");
    assert!(nested.is_err(), "nobody could tell");
    server.resume();
}

#[tokio::test]
async fn an_unlock_without_a_server_says_that_nobody_knows_within_ride_out() {
    let server = Server::start().await;
    let client = client_with(&server, Config::default().ride_out(LIMIT)).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.kill();
    let unlocked = timeout(LIMIT + SLACK, guard.unlock()).await.expect("an answer in time");
    assert!(matches!(unlocked, Err(Error::Indeterminate { .. })), "{unlocked:?}");
}

#[tokio::test]
async fn everything_goes_on_when_the_server_is_back() {
    let server = Server::start().await;
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let held = theirs.lock("a").lock().await.unwrap();
    let lock = ours.lock("a");
    let mut waiter = tokio::spawn(async move { lock.lock().await });
    parked(&server.admin().await, "a", 1).await;

    server.kill();
    assert!(is_pending(&mut waiter).await);
    server.start_again().await; // and has forgotten everything

    let granted = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
    let unlocked = held.unlock().await;
    assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    assert!(granted.is_valid());
    granted.unlock().await.unwrap();
    works(&ours).await;
    works(&theirs).await;
}

#[tokio::test]
async fn a_lock_is_kept_over_the_restart_of_a_server_that_remembers() {
    judged(async || {
        let server = Server::builder().append_only().start().await;
        let client = client_with(&server, quick()).await;
        let guard = client.lock("a").lock().await.unwrap();
        server.restart().await;
        sleep(Duration::from_secs(4)).await; // longer than the lease
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_told_again() {
    judged(async || {
        let server = Server::start().await;
        let (client, admin) = (client_with(&server, quick()).await, server.admin().await);
        let flushed = async || admin.script_flush().await;
        let lock = client.reentrant_lock("a");
        flushed().await;
        let outer = lock.lock().await.unwrap();
        flushed().await;
        let inner = lock.lock().await.unwrap();
        flushed().await;
        assert!(lock.is_locked().await.unwrap());
        flushed().await;
        inner.unlock().await.unwrap();
        flushed().await;
        sleep(Duration::from_secs(4)).await; // longer than the lease: it was renewed
        assert!(outer.is_valid());
        flushed().await;
        outer.unlock().await.unwrap();
        assert!(lock_keys(&admin).await.is_empty());
        let _guard = lock.lock().await.unwrap();
        flushed().await;
        assert!(lock.force_unlock().await.unwrap());
    })
    .await;
}

/// Clients come back all at once after a failover, and the texts are long.
#[tokio::test]
async fn a_script_that_the_server_knows_is_not_sent_again() {
    let server = Server::start().await;
    let (admin, proxy) = (server.admin().await, Proxy::before(&server).await);
    let first = client_with(&server, Config::default()).await;
    // One question, and no text.
    let asked = proxy.command("SCRIPT").count();
    let second = comes_in(proxy.url(), Config::default()).await;
    works(&second).await;
    assert_eq!(asked.fired(), 1);
    first.close().await; // it would come back too, and may load them first
    admin.script_flush().await;
    admin.client_kill("normal").await;
    eventually(SOON, "it loads them again", async || asked.fired() > 10).await;
    works(&second).await;
}

#[tokio::test]
async fn a_unix_socket_works_like_tcp() {
    let server = Server::builder().unix_socket().start().await;
    works(&comes_in(server.unix_url(), Config::default()).await).await;
    let user = ["ACL", "SETUSER", "me", "on", ">sesame", "~*", "&*", "+@all"];
    server.admin().await.cmd::<()>(&user).await;
    let url = format!("{}?db=2&user=me&pass=sesame", server.unix_url());
    let client = comes_in(url, Config::default()).await;
    let _guard = client.lock("a").lock().await.unwrap();
    let there = Admin::connect(&format!("{}/2", server.url())).await;
    assert_eq!(lock_keys(&there).await, [key("a")]);
}

#[tokio::test]
async fn locks_of_two_databases_are_two_locks() {
    let server = Server::start().await;
    let [one, two] = [1, 2].map(|db| format!("{}/{db}", server.url()));
    let (first, second) =
        (comes_in(&one, Config::default()).await, comes_in(&two, Config::default()).await);
    let _one = first.lock("a").lock().await.unwrap();
    let guard = second.lock("a").try_lock().await.unwrap().expect("it is free here");
    assert!(lock_keys(&server.admin().await).await.is_empty());
    assert_eq!(lock_keys(&Admin::connect(&two).await).await, [key("a")]);
    let lock = comes_in(&two, Config::default()).await.lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await });
    let admin = server.admin().await;
    let listens = async || admin.subscribers("lock_channel:2:{a}").await == 1;
    eventually(SOON, "the waiter listens", listens).await;
    guard.unlock().await.unwrap();
    assert!(timeout(SOON, waiter).await.unwrap().unwrap().is_ok());
}

/// To wait for it would not help.
#[tokio::test]
async fn connecting_to_a_database_that_does_not_exist_fails_at_once() {
    let server = Server::start().await;
    let config = Config::default().start_timeout(LONG);
    let connecting = Client::connect_with(format!("{}/99", server.url()), config);
    let error = timeout(SOON, connecting).await.expect("at once").unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(error.to_string().contains("no database 99"), "{error}");
}

/// A service may start before Redis does.
#[tokio::test]
async fn a_client_with_a_start_timeout_waits_for_a_server_that_comes_later() {
    for site in [Site::One(Server::start().await), Site::watched().await] {
        site.kill();
        let config = || Config::default().connect_timeout(LIMIT);
        let impatient = Client::connect_with(site.url(), config()).await;
        assert!(matches!(impatient, Err(Error::Unavailable { .. })), "{impatient:?}");
        let connecting = Client::connect_with(site.url(), config().start_timeout(LONG));
        let mut connecting = Box::pin(connecting);
        assert!(is_pending(&mut connecting).await);
        site.start_again().await;
        let client = timeout(LONG, connecting).await.expect("it is there now").expect("a client");
        works(&client).await;
    }
}

/// The service serves other requests until Redis is there.
#[tokio::test]
async fn a_lazy_client_is_there_before_its_server() {
    for site in [Site::One(Server::start().await), Site::watched().await] {
        site.kill();
        let client = Client::connect_lazy(site.url(), Config::default()).expect("a client");
        let early = client.lock("a").try_lock_for(LIMIT).await;
        assert!(matches!(early, Err(Error::Unavailable { .. })), "{early:?}");
        site.start_again().await;
        works(&client).await;
    }
    works(&Client::connect_lazy(Site::cluster().await.url(), Config::default()).unwrap()).await;
    let nobody = format!("redis-cluster://{}", Port::reserve().address());
    let client = Client::connect_lazy(nobody, Config::default().ride_out(LIMIT)).expect("a client");
    unavailable(client.lock("a").lock(), LIMIT, LIMIT * 4).await;
}

#[tokio::test]
async fn a_lazy_client_reports_at_its_calls_what_another_one_reports_when_it_connects() {
    let server = Server::builder().set("requirepass", "right").start().await;
    let client = Client::connect_lazy(server.url(), Config::default()).expect("a client");
    let refused = timeout(SOON, client.lock("a").lock()).await.expect("at once");
    assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");

    let cluster = Site::cluster().await;
    let node = cluster.primaries()[0].url();
    let client = Client::connect_lazy(node, Config::default()).expect("a client");
    let refused = timeout(SOON, client.lock("a").lock()).await.expect("at once");
    assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
    let wrong = Client::connect_lazy("nonsense://", Config::default());
    assert!(matches!(wrong, Err(Error::Config { .. })), "{wrong:?}");
}

#[tokio::test]
async fn a_client_waits_for_a_server_no_longer_than_its_start_timeout_and_not_for_a_password() {
    let server = Server::builder().set("requirepass", "right").start().await;
    let refused = Client::connect_with(server.url(), Config::default().start_timeout(LONG));
    let refused = timeout(SOON, refused).await.expect("at once");
    assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
    server.kill();
    let config = Config::default().start_timeout(LIMIT);
    unavailable(Client::connect_with(server.url(), config), LIMIT, LIMIT).await;
}
