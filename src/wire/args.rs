//! How the client writes the arguments of scripts. It assembles most of them only while it writes the request.

use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};

use crate::keys::{Field, Key};

impl ToRedisArgs for Key<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

impl ToRedisArgs for Field<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

/// Two texts as one argument.
pub(crate) struct Joined<'a>(pub(crate) &'a str, pub(crate) &'a str);

impl ToRedisArgs for Joined<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(format_args!("{}{}", self.0, self.1));
    }
}

/// Whole milliseconds, at least one. The range of leases was checked before.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}
