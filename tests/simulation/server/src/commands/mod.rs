//! The commands: a table of what each is called, how many words it has and what it may, and their work by family.

mod connection;
mod hash;
mod keyspace;
mod list;
mod operator;
mod pubsub;
mod set_options;
mod string;
pub(crate) mod subcommand;
mod zset;

use crate::keys::Database;
use crate::reply::Answer;
use crate::state::{Caller, State};
use crate::version::Version;

/// It changes keys: a replica refuses it.
pub(crate) const WRITE: u8 = 1;
/// It may need memory: refused when that is full.
pub(crate) const GROWS: u8 = 2;
/// No script may call it.
pub(crate) const NO_SCRIPT: u8 = 4;
/// Answered while the data is being loaded.
pub(crate) const LOADING: u8 = 8;
/// Answered while a script is running for too long.
pub(crate) const BUSY: u8 = 16;
/// Answered on a RESP2 connection that has subscribed to something.
pub(crate) const SUBSCRIBED: u8 = 32;

type Work = fn(&mut State, Caller, &[&[u8]]) -> Answer;

/// A command of the server.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// How many words it has, including its name; negative: at least this many.
    arity: i32,
    flags: u8,
    pub(crate) work: Work,
}

impl Command {
    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether it is carried out while the data is being loaded.
    pub(crate) fn may_while_loading(&self, version: Version) -> bool {
        self.is(LOADING) && !(version.is_6() && self.name == "echo")
    }

    pub(crate) fn takes(&self, words: usize, version: Version) -> bool {
        // NX, XX, GT and LT came with 7.0.
        let old = version.is_6() && matches!(self.name, "expire" | "pexpire");
        takes(if old { 3 } else { self.arity }, words)
    }
}

/// Whether an arity allows this number of words.
fn takes(arity: i32, words: usize) -> bool {
    let (arity, words) = (i64::from(arity), words as i64);
    if arity < 0 { words >= -arity } else { words == arity }
}

/// Finds a command by its name in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; 24];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let place = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower));
    place.ok().map(|place| &COMMANDS[place])
}

macro_rules! commands {
    ($($name:literal $arity:literal $flags:expr, $work:path;)*) => {
        &[$(Command { name: $name, arity: $arity, flags: $flags, work: $work },)*]
    };
}

/// By name.
static COMMANDS: &[Command] = commands! {
    "auth" -2 NO_SCRIPT | LOADING | BUSY, connection::auth;
    "client" -2 NO_SCRIPT | LOADING, connection::client;
    "dbsize" 1 0, keyspace::dbsize;
    "decr" 2 WRITE | GROWS, string::decr;
    "decrby" 3 WRITE | GROWS, string::decrby;
    "del" -2 WRITE, keyspace::del;
    "echo" 2 LOADING, connection::echo;
    "eval" -3 NO_SCRIPT, operator::script_in_script;
    "evalsha" -3 NO_SCRIPT, operator::script_in_script;
    "exists" -2 0, keyspace::exists;
    "expire" -3 WRITE, keyspace::expire;
    "flushall" -1 WRITE, keyspace::flushall;
    "flushdb" -1 WRITE, keyspace::flushdb;
    "get" 2 0, string::get;
    "hdel" -3 WRITE, hash::hdel;
    "hello" -1 NO_SCRIPT | LOADING | BUSY, connection::hello;
    "hexists" 3 0, hash::hexists;
    "hget" 3 0, hash::hget;
    "hgetall" 2 0, hash::hgetall;
    "hincrby" 4 WRITE | GROWS, hash::hincrby;
    "hkeys" 2 0, hash::hkeys;
    "hlen" 2 0, hash::hlen;
    "hmget" -3 0, hash::hmget;
    "hset" -4 WRITE | GROWS, hash::hset;
    "hvals" 2 0, hash::hvals;
    "incr" 2 WRITE | GROWS, string::incr;
    "incrby" 3 WRITE | GROWS, string::incrby;
    "info" -1 LOADING, operator::info;
    "keys" 2 0, keyspace::keys;
    "lindex" 3 0, list::lindex;
    "llen" 2 0, list::llen;
    "lpop" -2 WRITE, list::lpop;
    "lpos" -3 0, list::lpos;
    "lpush" -3 WRITE | GROWS, list::lpush;
    "lrange" 4 0, list::lrange;
    "lrem" 4 WRITE, list::lrem;
    "persist" 2 WRITE, keyspace::persist;
    "pexpire" -3 WRITE, keyspace::pexpire;
    "ping" -1 SUBSCRIBED, connection::ping;
    "pttl" 2 0, keyspace::pttl;
    "publish" 3 LOADING, pubsub::publish;
    "pubsub" -2 LOADING, pubsub::pubsub;
    "quit" -1 NO_SCRIPT | LOADING | BUSY | SUBSCRIBED, connection::quit;
    "reset" 1 NO_SCRIPT | LOADING | BUSY | SUBSCRIBED, connection::reset;
    "rpop" -2 WRITE, list::rpop;
    "rpush" -3 WRITE | GROWS, list::rpush;
    "scan" -2 0, keyspace::scan;
    "script" -2 NO_SCRIPT, operator::script_in_script;
    "select" 2 LOADING, connection::select;
    "set" -3 WRITE | GROWS, string::set;
    "subscribe" -2 NO_SCRIPT | LOADING | SUBSCRIBED, pubsub::subscribe;
    "time" 1 LOADING, operator::time;
    "ttl" 2 0, keyspace::ttl;
    "type" 2 0, keyspace::kind;
    "unsubscribe" -1 NO_SCRIPT | LOADING | SUBSCRIBED, pubsub::unsubscribe;
    "zadd" -4 WRITE | GROWS, zset::zadd;
    "zcard" 2 0, zset::zcard;
    "zcount" 4 0, zset::zcount;
    "zmscore" -3 0, zset::zmscore;
    "zrange" -4 0, zset::zrange;
    "zrem" -3 WRITE, zset::zrem;
    "zremrangebyscore" 4 WRITE, zset::zremrangebyscore;
    "zscore" 3 0, zset::zscore;
};

/// The caller's database and the time in ms.
fn there(state: &mut State, caller: Caller) -> (&mut Database, i64) {
    let now = state.now_ms();
    (state.database(caller), now)
}

fn owned(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

/// The places from `first` to `last`, both of which may count from the end; empty if there is nothing between them.
fn places(first: i64, last: i64, length: usize) -> std::ops::Range<usize> {
    let length = length as i64;
    let from_start = |place: i64| if place < 0 { place.saturating_add(length) } else { place };
    let (first, last) = (from_start(first).max(0), from_start(last).min(length - 1));
    if first > last { 0..0 } else { first as usize..last as usize + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_in_the_order_of_the_search() {
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
        assert!(
            COMMANDS
                .iter()
                .all(|command| find(command.name.to_ascii_uppercase().as_bytes()).is_some())
        );
    }
}
