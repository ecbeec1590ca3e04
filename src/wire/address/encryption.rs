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
use crate::tls::Tls;

/// The certificates of a client, understood.
#[derive(Clone)]
pub(crate) struct Encryption(Arc<ClientConfig>);

impl Encryption {
    /// # Errors
    /// [`Error::Config`] if a certificate or the key is not PEM, or they do not fit together.
    pub(super) fn new(tls: Option<&Tls>) -> Result<Self> {
        if CryptoProvider::get_default().is_none() {
            // This fails if another task was quicker: then the process has a provider already.
            let _ = ring::default_provider().install_default();
        }
        let mut roots = RootCertStore::empty();
        match tls.and_then(|tls| tls.ca.as_deref()) {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(pem) => {
                let authorities = certificates(pem)?;
                // A file without any certificate would make an authority of it that trusts nobody.
                if authorities.is_empty() {
                    return Err(Error::config("the CA of tls is not a certificate in PEM"));
                }
                authorities.into_iter().try_for_each(|ca| roots.add(ca)).map_err(unusable)?;
            }
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = match tls.and_then(|tls| tls.identity.as_ref()) {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let chain = certificates(&identity.certificate)?;
                let key = PrivateKeyDer::from_pem_slice(&identity.key).map_err(unusable)?;
                config.with_client_auth_cert(chain, key).map_err(unusable)?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    pub(super) async fn encrypted(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<_, _>>().map_err(unusable)
}

fn unusable(error: impl fmt::Display) -> Error {
    Error::config(format!("the certificates cannot be used: {error}"))
}
