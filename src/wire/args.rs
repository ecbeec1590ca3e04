//! How the client writes the arguments of scripts. It assembles most of them only while it writes the request.

use std::fmt::Arguments;
use std::io::Write;
use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};

use crate::keys::{Field, Key};

impl ToRedisArgs for Key<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let mut argument = out.writer_for_next_arg();
        for part in self.parts() {
            // Only memory is written here, so it does not fail.
            let _ = argument.write_all(part.as_bytes());
        }
    }
}

impl ToRedisArgs for Field<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

/// Several texts and numbers as one argument.
pub(crate) struct Joined<'a>(pub(crate) Arguments<'a>);

impl ToRedisArgs for Joined<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self.0);
    }
}

/// Whole milliseconds, at least one. The range of leases was checked before.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Same as [`millis`], for a time that must not be shorter in Redis than here.
pub(crate) fn millis_at_least(time: Duration) -> u64 {
    millis(time.saturating_add(Duration::from_nanos(999_999)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_no_shorter_in_redis() {
        for (micros, expected) in [(10_000, 10), (10_001, 11), (10_100, 11), (10_999, 11)] {
            let interval = Duration::from_micros(micros);
            assert_eq!(millis_at_least(interval), expected, "{interval:?}");
        }
        assert_eq!(millis_at_least(Duration::from_nanos(10_000_001)), 11);
    }
}
