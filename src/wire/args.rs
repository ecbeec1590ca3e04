//! Arguments that are assembled only when they are written.

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
