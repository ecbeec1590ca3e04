//! Certificates for encrypted servers.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::Server;
use crate::common::port::Port;
use crate::common::server::Setup;

/// A folder of certificates, made by openssl.
pub struct Authority(PathBuf);

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Authority {
    pub fn create() -> Self {
        let name = format!("parklock-ca-{}-{:x}", std::process::id(), fastrand::u64(..));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).expect("a directory of our own");
        let authority = Self(dir);
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
             -keyout ca.key -out ca.pem -subj /CN=authority",
        );
        authority
    }

    /// A certificate `name.pem` with `name.key`, for this host, for so many days.
    pub fn issue(&self, name: &str, host: &str, days: u32) {
        fs::write(self.path("extensions"), format!("subjectAltName={host}\n")).expect("a file");
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
             -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} \
             -extfile extensions -out {name}.pem"
        ));
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        command.args(arguments.split_whitespace()).current_dir(&self.0);
        let output = command.output().expect("openssl is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {said}");
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    pub fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.path(file)).expect("openssl has written it")
    }

    /// A server with this certificate, which also listens in the clear for the test itself.
    pub fn server(&self, port: &Port, name: &str) -> Setup {
        let path = |file: String| self.path(&file).display().to_string();
        Server::builder()
            .set("tls-port", &port.number().to_string())
            .set("tls-cert-file", &path(format!("{name}.pem")))
            .set("tls-key-file", &path(format!("{name}.key")))
            .set("tls-ca-cert-file", &path("ca.pem".to_owned()))
            .set("tls-auth-clients", "no")
    }
}

/// Some builds of the server are without encryption: then there is nothing to test.
pub async fn is_possible() -> bool {
    let (authority, port) = (Authority::create(), Port::reserve());
    authority.issue("right", "IP:127.0.0.1", 2);
    let started = tokio::spawn(async move { drop(authority.server(&port, "right").start().await) });
    let Err(panic) = started.await else { return true };
    let panic = panic.into_panic();
    let said = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(said.to_lowercase().contains("tls"), "another reason: {said}");
    eprintln!("not tested: this server cannot encrypt");
    false
}
