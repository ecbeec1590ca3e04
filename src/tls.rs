//! Certificates for an encrypted connection, which `wire/address.rs` opens.

use std::borrow::Cow;
use std::path::PathBuf;
#[cfg(feature = "rustls-0_23")]
use std::sync::Arc;
use std::{fmt, fs};

/// Certificates for `rediss://`, in PEM. The client speaks TLS 1.2 and 1.3. See [`Config::tls`](crate::Config::tls).
///
/// The client reads the certificates when it connects, and then reports what is not PEM. It uses the cryptography
/// provider that the process has chosen for rustls. If there is none, it chooses `ring` for the whole process.
///
/// ```no_run
/// # async fn connected() -> Result<(), Box<dyn std::error::Error>> {
/// use parklock::{Client, Config, Tls};
///
/// let tls = Tls::new()
///     .ca_file("/etc/redis/ca.crt")
///     .identity_files("/etc/app/client.crt", "/etc/app/client.key"); // may be renewed while the service runs
/// let client = Client::connect_with("rediss://redis.internal", Config::default().tls(tls)).await?;
/// # drop(client);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "a setter does not change the certificates in place: it returns them"]
pub struct Tls {
    pub(crate) ca: Option<Pem>,
    pub(crate) identity: Option<Identity>,
    pub(crate) server_name: Option<String>,
    #[cfg(feature = "rustls-0_23")]
    pub(crate) rustls: Option<Arc<rustls::ClientConfig>>,
}

/// Text, or a file that each connection reads again.
#[derive(Clone)]
pub(crate) enum Pem {
    Text(Vec<u8>),
    File(PathBuf),
}

/// A client's certificate and private key.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: Pem,
    pub(crate) key: Pem,
}

impl Pem {
    /// # Errors
    /// Which file cannot be read, and why.
    pub(crate) fn text(&self) -> Result<Cow<'_, [u8]>, String> {
        match self {
            Self::Text(text) => Ok(Cow::Borrowed(text)),
            Self::File(path) => fs::read(path)
                .map(Cow::Owned)
                .map_err(|error| format!("{}: {error}", path.display())),
        }
    }
}

impl Tls {
    /// Trusts the public root certificates, and has no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these certificate authorities instead of the public root certificates.
    pub fn ca(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { ca: Some(Pem::Text(pem.into())), ..self }
    }

    /// Same as [`ca`](Self::ca), with a file. The client reads it again for each connection, so the authorities may change
    /// while the service runs. The system's own file works too: on Debian, `/etc/ssl/certs/ca-certificates.crt`.
    ///
    /// The file is read on the client's runtime, so it should be on a local disk.
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        Self { ca: Some(Pem::File(path.into())), ..self }
    }

    /// Identifies this client to the server by a certificate and its private key.
    pub fn identity(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let [certificate, key] = [certificate.into(), key.into()].map(Pem::Text);
        Self { identity: Some(Identity { certificate, key }), ..self }
    }

    /// Same as [`identity`](Self::identity), with files. The client reads them again for each connection. So a certificate
    /// that is renewed while the service runs is used from the next connection on.
    ///
    /// The files are read on the client's runtime, so they should be on a local disk. If a connection finds a new certificate beside an
    /// old key, it fails, and the client tries again.
    pub fn identity_files(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let [certificate, key] = [certificate.into(), key.into()].map(Pem::File);
        Self { identity: Some(Identity { certificate, key }), ..self }
    }

    /// Expects this name in the server's certificate, instead of the host of the URL. For a server that is reached by an
    /// address or through a tunnel. In a cluster and behind Sentinel, every server must have it in its certificate.
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self { server_name: Some(name.into()), ..self }
    }

    /// Uses this configuration of rustls 0.23, in place of certificates: for a company's own verifier, for keys in
    /// hardware, or for the roots of the system (the crates `rustls-platform-verifier` and `rustls-native-certs`).
    #[cfg(feature = "rustls-0_23")]
    pub fn from_rustls_0_23(config: impl Into<Arc<rustls::ClientConfig>>) -> Self {
        Self { rustls: Some(config.into()), ..Self::default() }
    }
}

/// Keeps the private key out of logs.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_is_not_shown() {
        let tls = Tls::new().identity("certificate", "secret");
        assert!(!format!("{tls:?}").contains("secret"));
    }
}
