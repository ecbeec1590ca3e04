//! An encrypted stream to a server that must prove who it is.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::{Error, Result};
use crate::tls::{Identity, Pem, Tls};

/// How the client and the servers prove who they are.
#[derive(Clone)]
pub(crate) struct Encryption {
    tls: Tls,
    /// `None` if certificates lie in files, which may change: each connection reads them.
    config: Option<Arc<ClientConfig>>,
}

impl Encryption {
    /// # Errors
    /// [`Error::Config`] if a certificate or the key cannot be read, is not PEM, or they do not fit together, or if the name of the
    /// server is none.
    pub(super) fn new(tls: Option<&Tls>) -> Result<Self> {
        if CryptoProvider::get_default().is_none() {
            // This fails if another task was quicker: then the process has a provider already.
            let _ = ring::default_provider().install_default();
        }
        let tls = tls.cloned().unwrap_or_default();
        if let Some(name) = &tls.server_name {
            let unknown = |_| Error::config(format!("{name:?} is not the name of a server"));
            ServerName::try_from(name.as_str()).map_err(unknown)?;
        }
        let config = configured(&tls)?;
        let parts = [tls.ca.as_ref(), tls.identity.as_ref().map(|identity| &identity.certificate)];
        let changes = parts.into_iter().flatten().any(|pem| matches!(pem, Pem::File(_)));
        Ok(Self { tls, config: (!changes).then_some(config) })
    }

    pub(super) async fn encrypted(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let host = self.tls.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let config = match &self.config {
            Some(config) => Arc::clone(config),
            None => configured(&self.tls).map_err(io::Error::other)?,
        };
        TlsConnector::from(config).connect(name, stream).await
    }
}

fn configured(tls: &Tls) -> Result<Arc<ClientConfig>> {
    #[cfg(feature = "rustls-0_23")]
    if let Some(config) = &tls.rustls {
        return match (&tls.ca, &tls.identity) {
            (None, None) => Ok(Arc::clone(config)),
            _ => Err(Error::config("tls has certificates beside a configuration of rustls")),
        };
    }
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(ca) => {
            // A bundle of the system may have a certificate that rustls does not understand. Without any, everybody would be
            // refused.
            let authorities = certificates(&ca.text().map_err(unusable)?)?;
            if roots.add_parsable_certificates(authorities).0 == 0 {
                return Err(Error::config("the CA of tls is not a certificate in PEM"));
            }
        }
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    Ok(Arc::new(match &tls.identity {
        None => config.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = certificates(&certificate.text().map_err(unusable)?)?;
            let key = key.text().map_err(unusable)?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(unusable)?;
            config.with_client_auth_cert(chain, key).map_err(unusable)?
        }
    }))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<_, _>>().map_err(unusable)
}

fn unusable(error: impl fmt::Display) -> Error {
    Error::config(format!("the certificates cannot be used: {error}"))
}
