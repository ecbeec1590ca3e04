//! The lines of the log. A subscriber is the program's code, and may panic: so each line is written under
//! [`guarded`](crate::wakers::guarded). A panic there must not end a task of the client, leave a mutex poisoned, or lose a grant on its
//! way to the caller.

macro_rules! error {
    ($($line:tt)*) => {{ $crate::wakers::guarded(|| tracing::error!($($line)*)); }};
}

macro_rules! warns {
    ($($line:tt)*) => {{ $crate::wakers::guarded(|| tracing::warn!($($line)*)); }};
}

macro_rules! info {
    ($($line:tt)*) => {{ $crate::wakers::guarded(|| tracing::info!($($line)*)); }};
}

macro_rules! debug {
    (in $span:expr, $($line:tt)*) => {{
        $crate::wakers::guarded(|| $span.in_scope(|| tracing::debug!($($line)*)));
    }};
    ($($line:tt)*) => {{ $crate::wakers::guarded(|| tracing::debug!($($line)*)); }};
}

// `warn` is also the name of an attribute.
pub(crate) use {debug, error, info, warns as warn};
