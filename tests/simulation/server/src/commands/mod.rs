//! The commands: a table of what each is called, how many words it has and what it may, and their work by family.

mod cluster;
mod connection;
mod hash;
mod keyspace;
mod list;
mod operator;
mod pubsub;
mod replication;
pub(crate) mod sentinel;
mod set_options;
mod string;
pub(crate) mod subcommand;
mod zset;

use crate::keys::Database;
use crate::number;
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
/// Its first word is a key, or a channel that belongs to a slot.
pub(crate) const KEY: u8 = 64;
/// All of its words are.
pub(crate) const KEYS: u8 = 128;

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

    /// Whether this server has it: some are not there on older servers, and a sentinel has few.
    pub(crate) fn is_there(&self, version: Version, is_sentinel: bool) -> bool {
        let newer = matches!(self.name, "spublish" | "ssubscribe" | "sunsubscribe");
        !(newer && version.is_6()) && sentinel::has(is_sentinel, self.name)
    }

    /// The keys that a request with these words names, or the channels.
    pub(crate) fn keys<'a>(&self, words: &[&'a [u8]]) -> Vec<&'a [u8]> {
        if self.is(KEYS) {
            return words[1..].to_vec();
        }
        if matches!(self.name, "eval" | "evalsha") {
            let many = number::integer(words[2]).and_then(|many| usize::try_from(many).ok());
            return words[3..].iter().copied().take(many.unwrap_or(0)).collect();
        }
        if self.is(KEY) { vec![words[1]] } else { Vec::new() }
    }

    /// Whether it is about channels that belong to a slot.
    pub(crate) fn is_about_channels(&self) -> bool {
        matches!(self.name, "spublish" | "ssubscribe" | "sunsubscribe")
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
    "asking" 1 0, cluster::asking;
    "auth" -2 NO_SCRIPT | LOADING | BUSY, connection::auth;
    "client" -2 NO_SCRIPT | LOADING, connection::client;
    "cluster" -2 0, cluster::cluster;
    "dbsize" 1 0, keyspace::dbsize;
    "decr" 2 WRITE | GROWS | KEY, string::decr;
    "decrby" 3 WRITE | GROWS | KEY, string::decrby;
    "del" -2 WRITE | KEYS, keyspace::del;
    "echo" 2 LOADING, connection::echo;
    "eval" -3 NO_SCRIPT, operator::script_in_script;
    "evalsha" -3 NO_SCRIPT, operator::script_in_script;
    "exists" -2 KEYS, keyspace::exists;
    "expire" -3 WRITE | KEY, keyspace::expire;
    "flushall" -1 WRITE, keyspace::flushall;
    "flushdb" -1 WRITE, keyspace::flushdb;
    "get" 2 KEY, string::get;
    "hdel" -3 WRITE | KEY, hash::hdel;
    "hello" -1 NO_SCRIPT | LOADING | BUSY, connection::hello;
    "hexists" 3 KEY, hash::hexists;
    "hget" 3 KEY, hash::hget;
    "hgetall" 2 KEY, hash::hgetall;
    "hincrby" 4 WRITE | GROWS | KEY, hash::hincrby;
    "hkeys" 2 KEY, hash::hkeys;
    "hlen" 2 KEY, hash::hlen;
    "hmget" -3 KEY, hash::hmget;
    "hset" -4 WRITE | GROWS | KEY, hash::hset;
    "hvals" 2 KEY, hash::hvals;
    "incr" 2 WRITE | GROWS | KEY, string::incr;
    "incrby" 3 WRITE | GROWS | KEY, string::incrby;
    "info" -1 LOADING, operator::info;
    "keys" 2 0, keyspace::keys;
    "lindex" 3 KEY, list::lindex;
    "llen" 2 KEY, list::llen;
    "lpop" -2 WRITE | KEY, list::lpop;
    "lpos" -3 KEY, list::lpos;
    "lpush" -3 WRITE | GROWS | KEY, list::lpush;
    "lrange" 4 KEY, list::lrange;
    "lrem" 4 WRITE | KEY, list::lrem;
    "persist" 2 WRITE | KEY, keyspace::persist;
    "pexpire" -3 WRITE | KEY, keyspace::pexpire;
    "ping" -1 SUBSCRIBED, connection::ping;
    "pttl" 2 KEY, keyspace::pttl;
    "publish" 3 LOADING, pubsub::publish;
    "pubsub" -2 LOADING, pubsub::pubsub;
    "quit" -1 NO_SCRIPT | LOADING | BUSY | SUBSCRIBED, connection::quit;
    "reset" 1 NO_SCRIPT | LOADING | BUSY | SUBSCRIBED, connection::reset;
    "rpop" -2 WRITE | KEY, list::rpop;
    "rpush" -3 WRITE | GROWS | KEY, list::rpush;
    "scan" -2 0, keyspace::scan;
    "script" -2 NO_SCRIPT, operator::script_in_script;
    "select" 2 LOADING, connection::select;
    "sentinel" -2 NO_SCRIPT, sentinel::sentinel;
    "set" -3 WRITE | GROWS | KEY, string::set;
    "spublish" 3 LOADING | KEY, pubsub::spublish;
    "ssubscribe" -2 NO_SCRIPT | LOADING | SUBSCRIBED | KEYS, pubsub::ssubscribe;
    "subscribe" -2 NO_SCRIPT | LOADING | SUBSCRIBED, pubsub::subscribe;
    "sunsubscribe" -1 NO_SCRIPT | LOADING | SUBSCRIBED | KEYS, pubsub::sunsubscribe;
    "time" 1 LOADING, operator::time;
    "ttl" 2 KEY, keyspace::ttl;
    "type" 2 KEY, keyspace::kind;
    "unsubscribe" -1 NO_SCRIPT | LOADING | SUBSCRIBED, pubsub::unsubscribe;
    "wait" 3 NO_SCRIPT, replication::wait;
    "zadd" -4 WRITE | GROWS | KEY, zset::zadd;
    "zcard" 2 KEY, zset::zcard;
    "zcount" 4 KEY, zset::zcount;
    "zmscore" -3 KEY, zset::zmscore;
    "zrange" -4 KEY, zset::zrange;
    "zrem" -3 WRITE | KEY, zset::zrem;
    "zremrangebyscore" 4 WRITE | KEY, zset::zremrangebyscore;
    "zscore" 3 KEY, zset::zscore;
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
