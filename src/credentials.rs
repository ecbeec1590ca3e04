//! Credentials that change during the life of a client.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::error::{Source, said};

/// A user name and a password for the server, and how long they are valid. See
/// [`Config::credentials`](crate::Config::credentials).
///
/// ```
/// use std::time::Duration;
///
/// let token = parklock::Credentials::new("a token").user("app").valid_for(Duration::from_secs(900));
/// assert!(!format!("{token:?}").contains("a token"), "secrets stay out of logs");
/// ```
#[derive(Clone)]
#[must_use = "a setter does not change the credentials in place: it returns them"]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
    pub(crate) valid_for: Option<Duration>,
}

impl Credentials {
    /// The password of the default user, with no time limit.
    pub fn new(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into(), valid_for: None }
    }

    /// Sets the user that the password belongs to.
    pub fn user(self, name: impl Into<String>) -> Self {
        Self { user: Some(name.into()), ..self }
    }

    /// How long they are valid from now. Default: no time limit. When three quarters of that time are over, the client
    /// asks for new ones, and sends them on its live connections. More than 24 h counts as 24 h. A shorter time than
    /// about a second makes the client ask once a second.
    pub fn valid_for(self, time: Duration) -> Self {
        Self { valid_for: Some(time), ..self }
    }
}

/// Keeps the password out of logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("valid_for", &self.valid_for)
            .finish_non_exhaustive()
    }
}

type Answer = Result<Credentials, Source>;

/// The provider of the current credentials.
#[derive(Clone)]
pub(crate) struct Provider(Arc<dyn Fn() -> BoxFuture<'static, Answer> + Send + Sync>);

impl Provider {
    pub(crate) fn new(
        provider: impl Fn() -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(provider))
    }

    /// A panic of the provider is an error of this one connection. Its text is not shown: it may have a secret.
    pub(crate) async fn ask(&self) -> Answer {
        let asked = AssertUnwindSafe(async { (self.0)().await }).catch_unwind();
        asked.await.unwrap_or_else(|_| Err(said("the provider of the credentials panicked")))
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}
