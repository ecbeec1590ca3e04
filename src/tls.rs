//! Certificates for an encrypted connection, which `wire/address.rs` opens.

use std::fmt;

/// Certificates for `rediss://`, in PEM. The client speaks TLS 1.2 and 1.3. See [`Config::tls`](crate::Config::tls).
///
/// The client reads the certificates when it connects, and then reports what is not PEM. It uses the cryptography
/// provider that the process has chosen for rustls. If there is none, it chooses `ring` for the whole process.
///
/// ```no_run
/// # async fn connected() -> Result<(), Box<dyn std::error::Error>> {
/// use parklock::{Client, Config, Tls};
/// use std::fs;
///
/// let tls = Tls::new()
///     .ca(fs::read("/etc/redis/ca.crt")?)
///     .identity(fs::read("/etc/app/client.crt")?, fs::read("/etc/app/client.key")?);
/// let client = Client::connect_with("rediss://redis.internal", Config::default().tls(tls)).await?;
/// # drop(client);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) identity: Option<Identity>,
}

/// A client's certificate and private key, in PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Tls {
    /// Trusts the public root certificates, and has no client certificate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts this certificate authority instead of the public root certificates.
    #[must_use]
    pub fn ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Identifies this client to the server by a certificate and its private key.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some(Identity { certificate: certificate.into(), key: key.into() });
        self
    }
}

/// Keeps the private key out of logs.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
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
