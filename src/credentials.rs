//! Credentials that change while a client lives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::error::Source;

/// A name and a password for the server, and how long they are good for. See
/// [`Config::credentials`](crate::Config::credentials).
///
/// ```
/// use std::time::Duration;
///
/// let token = parklock::Credentials::new("a token").user("app").valid_for(Duration::from_secs(900));
/// assert!(!format!("{token:?}").contains("a token"), "secrets stay out of logs");
/// ```
#[derive(Clone)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
    pub(crate) valid_for: Option<Duration>,
}

impl Credentials {
    /// The password of the default user, for as long as the connection lives.
    #[must_use]
    pub fn new(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into(), valid_for: None }
    }

    /// The password is this user's.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.user = Some(name.into());
        self
    }

    /// They are good for so long from now. Default: for ever. When three quarters of that time are over, the client asks for
    /// others, and sends them on the connections that live.
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
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

/// Whoever knows the credentials of the moment.
#[derive(Clone)]
pub(crate) struct Provider(Arc<dyn Fn() -> BoxFuture<'static, Answer> + Send + Sync>);

impl Provider {
    pub(crate) fn new(
        provider: impl Fn() -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(provider))
    }

    pub(crate) async fn ask(&self) -> Answer {
        (self.0)().await
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}
