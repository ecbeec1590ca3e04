//! Plain commands, well-formed and otherwise.

use crate::words;
use fastrand::Rng;

const COMMANDS: &[&str] = &[
    "GET key", "GET text", "SET text value", "SET key value px ttl", "SET text value ex ttl", "SET key value nx",
    "SET text value xx get", "SET counter int", "SET text value keepttl", "SET key value get", "SET text value nx get",
    "SET text value px ttl nx", "SET text value xx keepttl get", "SET text value ex ttl px ttl", "SET text value nx xx",
    "SET text value pxat 99999999999999", "SET text value exat 1", "INCR counter", "INCR key", "INCRBY counter int",
    "DECR counter", "DECRBY counter int", "INCRBY tokens int",
    "DEL key", "DEL key key", "EXISTS key", "EXISTS key key key", "PEXPIRE key ttl", "EXPIRE key ttl",
    "PEXPIRE key ttl nx", "PEXPIRE key ttl xx", "PEXPIRE key ttl gt", "EXPIRE key ttl lt", "PEXPIRE key ttl nx xx",
    "PEXPIRE key ttl gt lt", "PTTL key", "TTL key", "PERSIST key", "TYPE key",     "KEYS *", "KEYS lock*", "KEYS *:[12]", "KEYS ?ock:?", "SCAN 0 MATCH l* COUNT 1000",     "HSET lock field value", "HSET key field value field value", "HGET lock field", "HGET key field", "HDEL lock field",
    "HDEL key field field", "HEXISTS lock field", "HLEN key", "HKEYS lock", "HVALS lock", "HGETALL lock", "HGETALL notes",
    "HGETALL key", "HINCRBY lock field int", "HINCRBY key field int", "HSET rw mode value", "HSET rw writer 1",
    "HSET rw field int", "HSET lock mode value",
    "RPUSH fair_queue field", "RPUSH key value value", "LPUSH fair_queue field", "LPOP fair_queue", "RPOP fair_queue",
    "LPOP key int", "RPOP key int", "LLEN key", "LINDEX fair_queue int", "LRANGE fair_queue int int", "LRANGE key 0 -1",
    "LREM fair_queue int field", "LREM key int value", "LPOS fair_queue field", "LPOS fair_queue field rank int",
    "LPOS fair_queue field COUNT int", "LPOS fair_queue field maxlen int", "LPOS key value rank int COUNT int maxlen int",
    "ZADD deadlines score field", "ZADD line score client", "ZADD key score value score value", "ZADD key nx score value",
    "ZADD key xx score value", "ZADD deadlines gt score field", "ZADD deadlines lt ch score field", "ZADD key xx ch score value",
    "ZADD deadlines incr score field", "ZADD deadlines nx xx score field", "ZADD deadlines nx gt score field",
    "ZADD holders score field", "ZCARD key", "ZSCORE deadlines field", "ZSCORE key value", "ZREM deadlines field",
    "ZREM key value value", "ZRANGE deadlines int int", "ZRANGE deadlines int int withscores", "ZRANGE key 0 -1 withscores",
    "ZRANGE deadlines bound bound byscore", "ZRANGE deadlines bound bound byscore withscores LIMIT int int",
    "ZRANGE deadlines bound bound byscore rev", "ZRANGE deadlines int int rev withscores", "ZRANGE key 0 1 LIMIT 0 1",
    "ZREMRANGEBYSCORE deadlines bound bound", "ZREMRANGEBYSCORE key bound bound",
    "PUBLISH channel message", "PUBSUB numsub channel channel", "PUBSUB channels", "PUBSUB channels c*", "PUBSUB numpat",
    "PUBSUB nothing", "SELECT 0", "SELECT 0", "SELECT 1", "SELECT 99", "SELECT x", "PING", "PING value", "PING value value", "ECHO value",
    "CLIENT getname", "CLIENT setname value", "CLIENT setinfo lib-name value", "CLIENT setinfo lib-ver 1.0",
    "CLIENT setinfo nothing value", "CLIENT nothing", "AUTH value", "AUTH default value", "AUTH nobody value",
    "SCRIPT exists 0123456789012345678901234567890123456789", "SCRIPT nothing", "SCRIPT flush nothing", "SCRIPT load",
    "SCRIPT kill", "SCRIPT", "NOTHING", "NOTHING value int", "CLIENT", "CLIENT kill id 999999", 
    "CLIENT kill type nothing", "CLIENT kill 1.2.3.4:5", "CLIENT setname", "CLIENT kill", "FLUSHALL nothing",
    "GET", "SET", "HSET lock field", "ZADD key", "LPOP", "EXPIRE key", "EVAL", "EVALSHA", "PUBLISH channel", "SUBSCRIBE",
    "EVALSHA 0123456789012345678901234567890123456789 0", "EVALSHA value 0", "FLUSHDB value value",
    "HELLO 4", "HELLO x", "HELLO 2 nothing", "HELLO 2 setname", "INFO memory nothing nothing2",
];

/// Two things are left out: `error({})` ends Redis 7.0, and to 6.2 `CLIENT KILL ID 0` means every client.
///
/// Small scripts for what ours do not reach: errors, conversions, globals.
const SCRIPTS: &[&str] = &[
    "return redis.call('nothing', 1)", "return redis.pcall('nothing', 1)", "return redis.call('get')",
    "return redis.call()", "return redis.pcall()", "return redis.call('get', {})", "return redis.call('subscribe', 'x')",
    "return redis.pcall('eval', 'return 1', 0)", "local x = redis.call('incr', 'text:1')\nreturn x",
    "return {1, 2.9, 'three', false, 5}", "return {1, nil, 3}", "return true", "return false", "return nil",
    "return {true, {ok='FINE'}, {err='BAD thing'}}", "return {ok='FINE'}", "return {err='BAD thing'}", "return {err='BAD'}",
    "return redis.error_reply('MY own')", "return redis.error_reply('-MY own')", "return redis.error_reply('MY')",
    "return redis.error_reply(1)", "return redis.error_reply()", "return redis.status_reply('GOOD')", "return redis.status_reply('a', 'b')",
    "error('plain')", "error('plain', 0)", "error({err='TABLE error'})", "error({err='TABLE'})", "error(nil)", "error(7)",
    "x = 1", "return x", "return nothing.at.all", "local x = nil\n\nreturn x.y", "return 1 + {}",     "return 2^53", "return 2^53 + 1", "return 1e300", "return -1e300", "return 0/0", "return 1/0", "return -3.7",
    "return tostring(2^53)", "return tostring(1e15)", "return tostring(0.1)", "return string.format('%.17g', 0.1)",
    "return redis.call('set', 'text:1', 2^53)", "return redis.call('set', 'text:1', 1e17)", "return redis.call('set', 'text:1', 1e21)",
    "return redis.call('set', 'text:1', 0.1)", "return redis.call('set', 'text:1', 1e-7)", "return redis.call('set', 'text:1', -0.0)",
    "return redis.call('set', 'text:1', 1/0)", "return redis.call('set', 'text:1', 0/0)", "return redis.call('set', 'text:1', 123456789.125)",
    "return redis.call('set', 'text:1', 1.5e300)", "return redis.call('set', 'text:1', 100000000000000000000)",
    "return redis.call('pexpire', 'text:1', 1.5)", "return redis.call('pexpire', 'text:1', 1e18)",
    "return redis.call('zadd', 'line:1', 0.1, 'm', 2^60, 'n', 1e21, 'o', -1e-9, 'p')", "return redis.call('zrange', 'line:1', 0, -1, 'withscores')",
    "return redis.call('zscore', 'line:1', 'm')", "return redis.call('hgetall', 'lock:1')", "return type(redis.call('get', 'none'))",
    "return {redis.call('type', 'lock:1'), redis.call('type', 'line:1').ok}", "return redis.sha1hex('abc')", "return redis.sha1hex('')",
    "return {#KEYS, #ARGV}", "return {pcall(redis.call, 'get', 'lock:1')}", "local fine, err = pcall(redis.call, 'incr', 'lock:1')\nreturn type(err)",
    "local fine, err = pcall(redis.call, 'incr', 'lock:1')\nreturn type(err) == 'table' and err.err or err",
    "local reply = redis.pcall('incr', 'lock:1')\nreturn type(reply) == 'table' and reply.err or reply",
    "local fine, err = pcall(error, {err='MY table'}, 0)\nreturn err", "local fine, err = pcall(function() error('inside') end)\nreturn err",
    "local function f()\n  return redis.call('get', 'lock:1')\nend\nlocal x = f()\nreturn x", "return (", "return return", "local x = 'open",
    "redis.call('publish', 'odd', 'one')\nredis.call('publish', 'channel:1', 'two')\nreturn redis.call('publish', 'odd', 'three')",
    "return redis.call('select', 1)", "redis.call('select', 1)\nreturn redis.call('exists', 'lock:1')", "return {unpack({1, 2, 3})}",
    "return redis.call('del', 'text:1', 'text:2')", "redis.log(redis.LOG_WARNING, 'hello')\nreturn redis.LOG_WARNING",
    "return redis.replicate_commands()", "redis.call('del', 'text:1')\nreturn redis.call('set', 'text:1', 'x')",
    "redis.pcall('set', 'text:1', 'x')\nreturn redis.call('set', 'text:2', 'x')", "return redis.pcall('pexpire', 'text:1', 'x')",
    "return redis.call('hset', 'lock:1', 'a')", "return redis.call('ping')", "return redis.call('echo', 'x')", "return redis.call('keys', 'none*')",
    "return math.floor(-3.5)", "return string.rep('x', 3)", "return table.concat({1, 2, 'x'}, ' ')", "return tonumber('0x10')", "return tonumber('1e3')",
    "return tonumber('')", "return {tonumber('10', 2), tonumber(' 5 ')}", "return math.max(1, '3')", "return math.max(1, 'x')", "return 10 == '10'",
    "return '10' + 5", "return 'x' + 5", "return #ARGV[1]", "return select('#', 1, 2, nil)", "return _G == nil",
    "return redis.call('lpos', 'fair_queue:1', 'x')", "return redis.call('lpop', 'none')", "return redis.call('lpop', 'none', 2)",
    "return redis.call('info', 'nothing')", "return redis.call('time')[3]", "return redis.call('set', 'text:1', true)", "return redis.call('get', nil)",
];

/// One command; well-formed in more than half of the cases.
pub fn command(rng: &mut Rng, now: u64) -> Vec<Vec<u8>> {
    if rng.u8(..5) == 0 {
        let text = words::pick(rng, SCRIPTS).as_bytes().to_vec();
        let mut words = vec![b"eval".to_vec(), text, b"0".to_vec()];
        for _ in 0..rng.u8(..3) {
            words.push(words::absurd(rng));
        }
        return words;
    }
    let family = rng.u8(1..=2);
    let pattern = words::pick(rng, COMMANDS);
    let mut words = words::fill(rng, pattern, family, 1, now);
    // A spoilt CLIENT KILL might find somebody.
    if !pattern.starts_with("CLIENT kill") {
        words::spoil(rng, &mut words, 1);
    }
    if rng.u8(..10) == 0 {
        words[0].make_ascii_lowercase();
    }
    words
}
