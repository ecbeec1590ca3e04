//! Encrypted connections: a server is verified, or not talked to.
#![cfg(feature = "tls")]

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::authority::is_possible;
use common::fixture::{SOON, parked};
use common::port::Port;
use common::{Server, timeout};
use parklock::{Client, Config, Error, Tls};

const NEW_KEY: [&str; 6] =
    ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days"];

/// Certificates made by openssl, in a directory of their own.
struct Authority {
    dir: PathBuf,
}

impl Authority {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("parklock-tls-{:x}", fastrand::u64(..)));
        fs::create_dir(&dir).expect("a directory of our own");
        let authority = Self { dir };
        let mut args = vec!["req", "-x509"];
        args.extend(NEW_KEY);
        args.extend(["2", "-subj", "/CN=parklock test authority"]);
        args.extend(["-keyout", "ca.key", "-out", "ca.pem"]);
        authority.openssl(&args);
        authority
    }

    /// Makes `<name>.pem` and `<name>.key` for a server with this alternative name.
    fn issue(&self, name: &str, reached_as: &str) {
        let [key, request, certificate] = ["key", "csr", "pem"].map(|end| format!("{name}.{end}"));
        fs::write(self.path("extensions"), format!("subjectAltName={reached_as}")).expect("a file");
        let mut args = vec!["req", "-new"];
        args.extend(&NEW_KEY[..5]);
        args.extend(["-subj", "/CN=parklock test", "-keyout", &key, "-out", &request]);
        self.openssl(&args);
        let mut args = vec!["x509", "-req", "-in", &request, "-out", &certificate, "-days", "2"];
        args.extend(["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]);
        args.extend(["-extfile", "extensions"]);
        self.openssl(&args);
    }

    fn openssl(&self, args: &[&str]) {
        let mut openssl = Command::new("openssl");
        openssl.args(args).current_dir(&self.dir).stderr(Stdio::null());
        assert!(openssl.status().is_ok_and(|status| status.success()), "openssl {args:?}");
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.path(file)).expect("openssl has made it")
    }

    fn ca(&self) -> Tls {
        Tls::new().ca(self.read("ca.pem"))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A server that can be reached encrypted too, under this name.
struct Encrypted {
    server: Server,
    port: Port,
    authority: Authority,
}

impl Encrypted {
    async fn start(reached_as: &str, wants_certificates: bool) -> Self {
        Self::speaking("TLSv1.2 TLSv1.3", reached_as, wants_certificates).await
    }

    async fn speaking(protocols: &str, reached_as: &str, wants_certificates: bool) -> Self {
        let (authority, port) = (Authority::new(), Port::reserve());
        authority.issue("server", reached_as);
        let text = |path: &Path| path.to_str().expect("an ordinary path").to_owned();
        let server = Server::builder()
            .set("tls-protocols", protocols)
            .set("tls-port", &port.number().to_string())
            .set("tls-cert-file", &text(&authority.path("server.pem")))
            .set("tls-key-file", &text(&authority.path("server.key")))
            .set("tls-ca-cert-file", &text(&authority.path("ca.pem")))
            .set("tls-auth-clients", if wants_certificates { "yes" } else { "no" })
            .start()
            .await;
        Self { server, port, authority }
    }

    async fn connect(&self, tls: Tls) -> Result<Client, Error> {
        connect(&format!("rediss://{}", self.port.address()), Some(tls)).await
    }
}

async fn connect(url: &str, tls: Option<Tls>) -> Result<Client, Error> {
    // Encrypted without optimizations, on a machine that has other things to do: an answer may take long.
    let config = Config::default().watchdog_timeout(SOON * 4).response_timeout(SOON / 2);
    let config = config.connect_timeout(SOON / 2);
    let config = tls.into_iter().fold(config, Config::tls);
    timeout(SOON, Client::connect_with(url, config)).await.expect("within the connect timeout")
}

/// The words of the error with which a connection is refused.
fn refusal(connected: Result<Client, Error>) -> String {
    let error = connected.expect_err("this server is not to be talked to");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_server_is_verified_by_our_own_authority_and_locks_work_as_ever() {
    if !is_possible().await {
        return;
    }
    let there = Encrypted::start("IP:127.0.0.1", false).await;
    let [ours, theirs] =
        [there.connect(there.authority.ca()).await, there.connect(there.authority.ca()).await];
    let (guard, lock) = (ours.unwrap().lock("a").lock().await.unwrap(), theirs.unwrap().lock("a"));
    let waiter = tokio::spawn(async move { lock.lock().await });
    parked(&there.server.admin().await, "a", 1).await;
    guard.unlock().await.unwrap();
    timeout(SOON, waiter).await.unwrap().unwrap().unwrap().unlock().await.unwrap();
}

/// The certificates of a `redis::Client` cannot be read.
#[cfg(feature = "redis-1")]
#[tokio::test]
async fn a_redis_client_with_certificates_needs_them_in_our_settings_too() {
    if !is_possible().await {
        return;
    }
    let there = Encrypted::start("IP:127.0.0.1", false).await;
    let root_cert = Some(there.authority.read("ca.pem"));
    let certificates = redis::TlsCertificates { client_tls: None, root_cert };
    let url = format!("rediss://{}", there.port.address());
    let redis = redis::Client::build_with_tls(url, certificates).expect("its certificates");
    let builder = Client::builder().redis_1(redis.get_connection_info());

    let error = builder.clone().connect().await.expect_err("whom does it trust?");
    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(error.to_string().contains("Config::tls"), "{error}");
    let trusting = builder.config(Config::default().tls(there.authority.ca()));
    let client = trusting.connect().await.expect("the server is verified");
    client.lock("a").lock().await.unwrap().unlock().await.unwrap();
}

/// Some hosted servers know no newer version than 1.2.
#[tokio::test]
async fn both_versions_of_tls_that_are_safe_are_spoken() {
    if !is_possible().await {
        return;
    }
    for protocol in ["TLSv1.2", "TLSv1.3"] {
        let there = Encrypted::speaking(protocol, "IP:127.0.0.1", false).await;
        let client = there.connect(there.authority.ca()).await.expect(protocol);
        client.lock("a").lock().await.unwrap().unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused_with_a_clear_word() {
    if !is_possible().await {
        return;
    }
    let there = Encrypted::start("IP:127.0.0.1", false).await;
    for tls in [Authority::new().ca(), Tls::new()] {
        let words = refusal(there.connect(tls).await);
        assert!(words.to_lowercase().contains("certificate"), "{words}");
    }
    let url = format!("rediss://{}", there.port.address());
    let words = refusal(connect(&url, None).await);
    assert!(words.to_lowercase().contains("certificate"), "{words}");
}

#[tokio::test]
async fn a_server_with_another_name_is_refused_with_a_clear_word() {
    if !is_possible().await {
        return;
    }
    let there = Encrypted::start("DNS:elsewhere.example", false).await;
    let words = refusal(there.connect(there.authority.ca()).await);
    assert!(words.to_lowercase().contains("certificate"), "{words}");
}

#[tokio::test]
async fn a_server_that_wants_to_know_us_is_shown_a_certificate() {
    if !is_possible().await {
        return;
    }
    let there = Encrypted::start("IP:127.0.0.1", true).await;
    refusal(there.connect(there.authority.ca()).await);
    there.authority.issue("client", "DNS:client");
    let read = |file| there.authority.read(file);
    let tls = there.authority.ca().identity(read("client.pem"), read("client.key"));
    let client = there.connect(tls).await.unwrap();
    client.lock("a").lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn encryption_is_never_given_up_silently() {
    if !is_possible().await {
        return;
    }
    let there = Encrypted::start("IP:127.0.0.1", false).await;
    let (plain, tls) = (there.server.address(), there.port.address());
    refusal(connect(&format!("rediss://{plain}"), Some(there.authority.ca())).await);
    refusal(connect(&format!("redis://{tls}"), None).await);
    for (url, tls) in [
        (format!("redis://{plain}"), there.authority.ca()),
        (format!("rediss://{tls}/#insecure"), there.authority.ca()),
        (format!("rediss://{tls}"), Tls::new().ca("nonsense")),
        (format!("rediss://{tls}"), there.authority.ca().identity("nonsense", "nonsense")),
    ] {
        let error = connect(&url, Some(tls)).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{url}: {error}");
    }
}
