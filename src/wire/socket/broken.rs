//! Why a request has no answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why a request has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Broken {
    /// The server has not got the whole request: it will not carry it out.
    #[error(
        "the request was not sent: the connection has ended, or has too many unanswered requests"
    )]
    Unsent,
    #[error("the server did not answer in {0:?}")]
    Late(Duration),
    #[error("the server closed the connection")]
    Closed,
    #[error("{0}")]
    Io(Arc<io::Error>),
    #[error("the answer is not of the Redis protocol: {0}")]
    Garbage(String),
    #[error("the connection has ended")]
    Ended,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}
