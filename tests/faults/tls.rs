//! Encryption: a server that is not the one we trust is not talked to.

use std::fs;
use std::time::Duration;

use futures_util::future::join_all;
use parklock::{Client, Config, Error, Tls};

use crate::common::authority::{Authority, is_possible};
use crate::common::cluster::slot;
use crate::common::fixture::comes_in;
use crate::common::port::Port;
use crate::common::sentinels::{FAILOVER, SERVICE, follow, monitor, told};
use crate::common::{Admin, Cluster, Watched, eventually};
use crate::scene::is_version_6;
use crate::{A_WHILE, SOON, a_turn, brief, patient};

fn trusted(authority: &Authority, config: Config) -> Config {
    config.tls(Tls::new().ca(authority.read("ca.pem")))
}

fn encrypted(port: &Port) -> String {
    format!("rediss://127.0.0.1:{}", port.number())
}

/// Nothing that anybody sent was taken for a command.
async fn was_not_talked_to(admin: &Admin) {
    for command in ["evalsha", "hello", "script|load", "script|exists", "subscribe", "auth"] {
        let calls = admin.command_calls(command).await;
        // The test's own connection says hello once.
        assert!(calls <= u64::from(command == "hello"), "{calls} {command}");
    }
}

async fn refusal(url: &str, config: Config) -> String {
    match Client::connect_with(url, config).await {
        Err(Error::Unavailable { source }) => source.to_string(),
        other => panic!("{other:?}"),
    }
}

/// F88: the certificate is signed by another authority, for another host, or has expired.
#[tokio::test]
async fn a_certificate_that_does_not_fit_is_refused_and_the_error_says_why() {
    if !is_possible().await {
        return;
    }
    let (authority, strangers, port) = (Authority::create(), Authority::create(), Port::reserve());
    authority.issue("other", "DNS:elsewhere.example", 2);
    authority.issue("expired", "IP:127.0.0.1", 0);
    authority.issue("right", "IP:127.0.0.1", 2);
    tokio::time::sleep(Duration::from_millis(2_100)).await; // certificates count in seconds
    let url = encrypted(&port);
    for (name, trusted, why) in [
        ("right", trusted(&strangers, patient()), ["UnknownIssuer", "BadSignature"]),
        ("right", patient(), ["UnknownIssuer", "CaUsedAsEndEntity"]),
        ("other", trusted(&authority, patient()), ["NotValidForName", "not valid for name"]),
        ("expired", trusted(&authority, patient()), ["Expired", "expired"]),
    ] {
        let server = authority.server(&port, name).start().await;
        let admin = server.admin().await;
        let said = refusal(&url, trusted).await;
        assert!(why.iter().any(|why| said.contains(why)), "{name}: {said}");
        assert!(said.contains("certificate"), "{name}: {said}");
        was_not_talked_to(&admin).await;
    }

    let _server = authority.server(&port, "right").start().await;
    let client = comes_in(&url, trusted(&authority, patient())).await;
    a_turn(&client.lock("a")).await;
}

/// F88: one side speaks in the clear.
#[tokio::test]
async fn encryption_is_not_given_up_for_a_plain_port_nor_begun_without_being_asked_for() {
    if !is_possible().await {
        return;
    }
    let (authority, port) = (Authority::create(), Port::reserve());
    authority.issue("right", "IP:127.0.0.1", 2);
    let server = authority.server(&port, "right").start().await;
    let admin = server.admin().await;
    let quick = |config: Config| config.connect_timeout(Duration::from_secs(1));

    let plain = format!("rediss://{}", server.address());
    refusal(&plain, quick(trusted(&authority, patient()))).await;
    refusal(&plain, quick(patient())).await;
    was_not_talked_to(&admin).await;
    let clear = format!("redis://127.0.0.1:{}", port.number());
    refusal(&clear, quick(patient())).await;
    was_not_talked_to(&admin).await;

    // Certificates for a URL that does not use them: a mistake, not a wish.
    let mistaken = Client::connect_with(server.url(), trusted(&authority, patient())).await;
    assert!(matches!(mistaken, Err(Error::Config { .. })), "{mistaken:?}");
}

/// F88: after a reconnect, somebody else answers at the same address.
#[tokio::test]
async fn a_server_that_is_replaced_by_a_stranger_is_not_talked_to_again() {
    if !is_possible().await {
        return;
    }
    let (authority, strangers, port) = (Authority::create(), Authority::create(), Port::reserve());
    authority.issue("right", "IP:127.0.0.1", 2);
    strangers.issue("wrong", "IP:127.0.0.1", 2);
    let server = authority.server(&port, "right").start().await;
    let url = encrypted(&port);
    let client = comes_in(&url, trusted(&authority, brief())).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.kill();
    let stranger = strangers.server(&port, "wrong").start().await;
    let admin = stranger.admin().await;
    let knocks = async || stranger.log().contains("Error accepting a client connection");
    eventually(SOON, "the client knocks at the stranger's", knocks).await;

    assert_eq!(guard.ended().await, parklock::Ended::Lost);
    assert!(matches!(client.lock("a").try_lock().await, Err(Error::Unavailable { .. })));
    was_not_talked_to(&admin).await;
    assert_eq!(admin.keys().await, Vec::<String>::new());

    stranger.kill();
    server.start_again().await;
    let back = async || client.lock("a").try_lock().await.is_ok();
    eventually(SOON, "it goes on with the right one", back).await;
}

/// F88: the server wants to see a certificate of ours.
#[tokio::test]
async fn a_client_without_its_certificate_is_refused() {
    if !is_possible().await {
        return;
    }
    let (authority, strangers, port) = (Authority::create(), Authority::create(), Port::reserve());
    authority.issue("right", "IP:127.0.0.1", 2);
    authority.issue("me", "DNS:me", 2);
    strangers.issue("me", "DNS:me", 2);
    let server = authority.server(&port, "right").set("tls-auth-clients", "yes").start().await;
    let admin = server.admin().await;
    let identified = |by: &Authority| {
        let tls = Tls::new().ca(authority.read("ca.pem"));
        patient().tls(tls.identity(by.read("me.pem"), by.read("me.key")))
    };

    refusal(&encrypted(&port), trusted(&authority, patient())).await;
    refusal(&encrypted(&port), identified(&strangers)).await;
    was_not_talked_to(&admin).await;
    let client = comes_in(encrypted(&port), identified(&authority)).await;
    a_turn(&client.lock("a")).await;

    let broken = Tls::new().ca("not a certificate").identity("nor this", "nor that");
    let broken = Client::connect_with(encrypted(&port), patient().tls(broken)).await;
    assert!(matches!(broken, Err(Error::Config { .. })), "{broken:?}");
}

/// F88: server, client and authority get new certificates, as in a company where they live for hours.
#[tokio::test]
async fn certificates_in_files_may_change_while_the_client_runs() {
    if !is_possible().await {
        return;
    }
    let (servers, clients, port) = (Authority::create(), Authority::create(), Port::reserve());
    let renew = |folder: &Authority, from: &Authority| {
        for file in ["ca.pem", "me.pem", "me.key"] {
            fs::copy(from.path(file), folder.path(file)).expect("a file of ours");
        }
    };
    servers.issue("me", "IP:127.0.0.1", 2);
    renew(&clients, &servers);
    let server = servers.server(&port, "me").set("tls-auth-clients", "yes").start().await;
    let path = |file| clients.path(file);
    let tls = Tls::new().ca_file(path("ca.pem")).identity_files(path("me.pem"), path("me.key"));
    let config = brief().ride_out(SOON * 2).tls(tls);
    let client = comes_in(encrypted(&port), config.clone()).await;
    a_turn(&client.lock("a")).await;

    let new = Authority::create();
    new.issue("me", "IP:127.0.0.1", 2);
    renew(&servers, &new);
    server.restart().await;
    let admin = server.admin().await;
    let refused = client.lock("a").try_lock_for(A_WHILE).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. } | Error::Indeterminate { .. })));
    was_not_talked_to(&admin).await;
    renew(&clients, &new);
    // A bundle of authorities may have one that rustls does not understand.
    let broken = "-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n";
    let bundle = [broken.as_bytes(), &new.read("ca.pem")].concat();
    fs::write(clients.path("ca.pem"), bundle).expect("a file of ours");
    a_turn(&client.lock("a")).await;

    fs::remove_file(clients.path("me.key")).expect("it is there");
    match Client::connect_with(encrypted(&port), config).await {
        Err(Error::Config { reason }) => assert!(reason.contains("me.key"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// The URL has an address, and the certificate a name.
#[tokio::test]
async fn the_certificate_may_be_for_another_name_than_the_host_of_the_url() {
    if !is_possible().await {
        return;
    }
    let (authority, port) = (Authority::create(), Port::reserve());
    authority.issue("right", "DNS:redis.internal", 2);
    let _server = authority.server(&port, "right").start().await;
    let named =
        |name: &str| patient().tls(Tls::new().ca(authority.read("ca.pem")).server_name(name));
    refusal(&encrypted(&port), trusted(&authority, patient())).await;
    refusal(&encrypted(&port), named("another.internal")).await;
    a_turn(&comes_in(encrypted(&port), named("redis.internal")).await.lock("a")).await;

    let none = Client::connect_with(encrypted(&port), named("no name")).await;
    assert!(matches!(none, Err(Error::Config { .. })), "{none:?}");
}

#[cfg(feature = "rustls-0_23")]
#[tokio::test]
async fn a_configuration_of_rustls_decides_whom_the_client_trusts() {
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    if !is_possible().await {
        return;
    }
    let (authority, strangers, port) = (Authority::create(), Authority::create(), Port::reserve());
    authority.issue("right", "IP:127.0.0.1", 2);
    let _server = authority.server(&port, "right").start().await;
    let trusting = |authority: &Authority| {
        let ca = CertificateDer::from_pem_slice(&authority.read("ca.pem")).expect("a certificate");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca).expect("an authority");
        let provider = rustls::crypto::ring::default_provider();
        let rustls = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Tls::from_rustls_0_23(rustls)
    };
    refusal(&encrypted(&port), patient().tls(trusting(&strangers))).await;
    let client = comes_in(encrypted(&port), patient().tls(trusting(&authority))).await;
    a_turn(&client.lock("a")).await;

    let both = patient().tls(trusting(&authority).ca(authority.read("ca.pem")));
    let both = Client::connect_with(encrypted(&port), both).await;
    assert!(matches!(both, Err(Error::Config { .. })), "{both:?}");
}

/// A cluster whose nodes speak to each other and to clients encrypted, as its URL says, wherever they send a request on to.
#[tokio::test]
async fn a_cluster_is_reached_over_encrypted_links_alone() {
    if is_version_6() || !is_possible().await {
        eprintln!("LEFT OUT: version 6 cannot be told which port its bus has");
        return;
    }
    let authority = Authority::create();
    authority.issue("right", "IP:127.0.0.1", 2);
    let ports: Vec<_> = (0..2).map(|_| Port::reserve()).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let node = || {
        let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        authority.server(&ports[at], "right").set("tls-cluster", "yes").named_bus()
    };
    let cluster = Cluster::start_as(2, 2, node).await;
    let url = encrypted(&ports[0]).replace("rediss://", "rediss-cluster://");
    let (holder, other) = tokio::join!(
        comes_in(&url, trusted(&authority, patient())),
        comes_in(&url, trusted(&authority, patient()))
    );
    for at in 0..2 {
        let name = cluster.names_at(at, "tls:", 1).remove(0);
        let guard = holder.lock(&name).lock().await.expect("it is free");
        let waits = other.lock(&name);
        let waiter = tokio::spawn(async move { waits.lock().await });
        let admin = cluster.admin(at).await;
        let line = format!("lock_queue:{{{name}}}");
        let stands = async || admin.cmd::<usize>(&["ZCARD", &line]).await > 0;
        eventually(SOON, "somebody waits", stands).await;
        guard.unlock().await.expect("it is ours");
        let next = waiter.await.expect("no panic").expect("it is told");
        next.unlock().await.expect("it is ours");
    }
    // A slot that has moved is followed over an encrypted link too.
    let name = cluster.names_at(0, "moved:", 1).remove(0);
    cluster.open(slot(&name), 0, 1).await;
    cluster.close(slot(&name), 0, 1).await;
    a_turn(&holder.lock(&name)).await;
    // A URL that says so is never answered in the clear.
    let clear = cluster.url().replace("redis-cluster://", "rediss-cluster://");
    refusal(&clear, trusted(&authority, patient())).await;
}

/// A primary, its replica and three sentinels, which speak to each other and to clients encrypted.
async fn encrypted_service(authority: &Authority, ports: &[Port; 5]) -> Watched {
    let setup = |port: &Port| authority.server(port, "right").set("tls-replication", "yes");
    let primary = setup(&ports[0]).start().await;
    let replica = setup(&ports[1]).replica_of(ports[0].number()).start().await;
    follow(&primary, 1).await;
    let watch = monitor(ports[0].address());
    let sentinel = |port: &Port| setup(port).sentinel(watch.clone()).start();
    let sentinels = join_all(ports[2..].iter().map(sentinel)).await;
    let watched = Watched { servers: vec![primary, replica], sentinels };
    watched.settled(1).await;
    watched
}

#[tokio::test]
async fn an_encrypted_primary_is_found_through_encrypted_sentinels_before_and_after_a_failover() {
    if !is_possible().await {
        return;
    }
    let authority = Authority::create();
    authority.issue("right", "IP:127.0.0.1", 2);
    let ports = [(); 5].map(|()| Port::reserve());
    let watched = encrypted_service(&authority, &ports).await;
    let hosts: Vec<_> =
        ports[2..].iter().map(|port| format!("127.0.0.1:{}", port.number())).collect();
    let url = format!("rediss-sentinel://{}/{SERVICE}", hosts.join(","));
    let client = comes_in(&url, trusted(&authority, brief())).await;
    a_turn(&client.lock("before")).await;

    watched.fail_over().await;
    let new = ports[1].number().to_string();
    for sentinel in &watched.sentinels {
        let admin = sentinel.admin().await;
        let named = async || told(&admin, "port").await.as_deref() == Some(new.as_str());
        eventually(FAILOVER, "the sentinel names the replica", named).await;
    }
    let admin = watched.servers[1].admin().await;
    let here = async || {
        // One that the client still takes on the old primary is lost with it.
        drop(client.lock("after").try_lock().await);
        admin.command_calls("evalsha").await > 0
    };
    eventually(SOON, "the client takes its locks on the new primary", here).await;
    a_turn(&client.lock("at last")).await;

    // The sentinels' other ports are not encrypted.
    let clear = watched.url().replace("redis-sentinel://", "rediss-sentinel://");
    refusal(&clear, trusted(&authority, patient())).await;
}
