//! What random steps do not reach, said to both servers in a fixed order.

use std::path::Path;

use parklock_simulated_server::Version;

use crate::real::request;
use crate::stage::{Stage, Who};

type Dialogue = fn(&mut Stage);

/// Holds every dialogue; what differed.
pub fn hold(version: Version, program: &Path) -> Vec<String> {
    let mut stage = Stage::set(version, program);
    let dialogues: [(&str, Dialogue); 13] = [
        ("numbers", numbers),
        ("names", names),
        ("a listener in RESP2", listener_in_resp2),
        ("a listener in RESP3", listener_in_resp3),
        ("QUIT", quit),
        ("RESET", reset),
        ("CLIENT KILL", kill),
        ("malformed requests", malformed),
        ("pieces", pieces),
        ("INFO", info),
        ("a password", password),
        ("BUSY", busy),
        ("LOADING", loading),
    ];
    for (name, dialogue) in dialogues {
        stage.hold(name, dialogue);
    }
    stage.differences().to_vec()
}

const NUMBERS: [&str; 52] = [
    "0x10",
    "0X1f",
    "-0x10",
    "0x",
    "0x1g",
    " 1",
    "1 ",
    "+5",
    "",
    "1e400",
    "-1e400",
    "1e-400",
    "1e-320",
    "5e-324",
    "nan",
    "-nan",
    "inf",
    "+inf",
    "-inf",
    "INF",
    "iNf",
    "infinity",
    "in",
    "infx",
    "(1",
    "((1",
    "(",
    "( 1",
    "(inf",
    ".5",
    "5.",
    ".",
    "1e",
    "1e5",
    "1E5",
    "e5",
    "-",
    "+",
    "--1",
    "+-1",
    "00",
    "-0",
    "1_0",
    "1d",
    "0.1",
    "1e17",
    "1e21",
    "4611686018427387904",
    "5e18",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
];

/// What is a number, and for which command.
fn numbers(stage: &mut Stage) {
    for protocol in ["2", "3"] {
        let a = stage.client();
        stage.say(a, &["HELLO", protocol]);
        for number in NUMBERS {
            stage.say(a, &["RPUSH", "list", "x", "y"]);
            stage.say(a, &["ZADD", "zset", number, "m"]);
            stage.say(a, &["ZSCORE", "zset", "m"]);
            stage.say(a, &["ZADD", "zset", "NX", "7", "m"]);
            stage.say(a, &["ZADD", "zset", "GT", "CH", "7", "m"]);
            stage.say(a, &["ZADD", "zset", "XX", "LT", number, "m"]);
            stage.say(a, &["ZSCORE", "zset", "m"]);
            stage.say(a, &["ZADD", "zset", "INCR", number, "n"]);
            stage.say(a, &["ZRANGE", "zset", "0", "-1", "WITHSCORES"]);
            stage.say(a, &["ZRANGE", "zset", number, "+inf", "BYSCORE"]);
            stage.say(a, &["ZREMRANGEBYSCORE", "none", "0", number]);
            stage.say(a, &["ZRANGE", "zset", number, "-1"]);
            stage.say(a, &["INCRBY", "counter", number]);
            stage.say(a, &["DECRBY", "counter", number]);
            stage.say(a, &["PEXPIRE", "none", number]);
            stage.say(a, &["SET", "text", "x", "XX", "PX", number]);
            stage.say(a, &["LRANGE", "list", number, "1"]);
            stage.say(a, &["LINDEX", "list", number]);
            stage.say(a, &["LREM", "none", number, "x"]);
            stage.say(a, &["LREM", "list", number, "z"]);
            stage.say(a, &["LPOS", "list", "x", "RANK", number]);
            stage.say(a, &["LPOS", "list", "x", "COUNT", number]);
            stage.say(a, &["LPOP", "none", number]);
            stage.say(a, &["RPOP", "list", number]);
            stage.say(a, &["ZRANGE", "zset", "0", "-1", "LIMIT", "0", number]);
            stage.say(a, &["ZRANGE", "zset", "0", "-1", "LIMIT", number, "-1"]);
            stage.say(a, &["ZRANGE", "zset", "-inf", "+inf", "BYSCORE", "LIMIT", number, "1"]);
            stage.say(a, &["SET", "text", number]);
            stage.say(a, &["INCR", "text"]);
            stage.say(
                a,
                &[
                    "EVAL",
                    "return {tonumber(ARGV[1]) or 'none', tostring(tonumber(ARGV[1]))}",
                    "0",
                    number,
                ],
            );
            stage.say(
                a,
                &[
                    "EVAL",
                    "return redis.call('set', 'text', tonumber(ARGV[1]), 'GET')",
                    "0",
                    number,
                ],
            );
            stage.say(a, &["GET", "text"]);
            stage.say(
                a,
                &["EVAL", "return redis.call('zadd', 'zset', tonumber(ARGV[1]), 'o')", "0", number],
            );
            stage
                .say(a, &["EVAL", "return redis.call('zrange', 'zset', 0, -1, 'WITHSCORES')", "0"]);
            stage.say(a, &["EVAL", "return 1", number]);
            stage.say(a, &["DEL", "zset", "list", "counter", "text"]);
        }
    }
}

/// Names of clients, subcommands and options that are strange or long.
fn names(stage: &mut Stage) {
    let long = "x".repeat(300);
    let a = stage.client();
    for name in ["", "\0", "a\0 b", "a b", "a\n", "é", "~", &long] {
        stage.say(a, &["CLIENT", "SETNAME", name]);
        stage.say(a, &["CLIENT", "GETNAME"]);
        stage.say(a, &["HELLO", "2", "SETNAME", name]);
        stage.say(a, &["CLIENT", "GETNAME"]);
        stage.say(a, &["CLIENT", "SETINFO", "lib-name", name]);
        stage.say(a, &["CLIENT", "SETINFO", name, "1"]);
        stage.say(a, &["CLIENT", name]);
        stage.say(a, &["CLIENT", "KILL", "TYPE", name]);
        stage.say(a, &["SCRIPT", name]);
        stage.say(a, &["SCRIPT", name, "y"]);
        stage.say(a, &["PUBSUB", name]);
        stage.say(a, &["PEXPIRE", "none", "5", name]);
        stage.say(a, &["HELLO", "2", name]);
        stage.say(a, &[name, name, name]);
        stage.say(a, &["AUTH", name, name]);
        stage.say(a, &["SET", "text", "x", name]);
        stage.say(a, &["SELECT", name]);
        stage.say(a, &["EVAL", "return {KEYS[1], ARGV[1]}", "1", name, name]);
        stage.say(a, &["EVAL", "return redis.call(ARGV[1])", "0", name]);
        stage.say(a, &["EVAL", "return redis.error_reply(ARGV[1])", "0", name]);
        stage.say(a, &["EVAL", "return redis.status_reply(ARGV[1])", "0", name]);
        stage.say(a, &["EVAL", "return {err = ARGV[1]}", "0", name]);
        // Redis 8.2 ends the line of such an error too early.
        if !name.contains('\n') || stage.version != Version::Redis8_2 {
            stage.say(a, &["EVAL", "error(ARGV[1])", "0", name]);
        }
        stage.say(a, &["SCRIPT", "LOAD", name]);
    }
    for words in ["x y", "sync x", "", "sync", "ASYNC"] {
        let words: Vec<_> = ["SCRIPT", "FLUSH"].into_iter().chain(words.split(' ')).collect();
        stage.say(a, &words);
    }
    stage.say(a, &["SCRIPT", "EXISTS"]);
    for words in [["CHANNELS", "a", "b"], ["NUMPAT", "a", "b"], ["channels", "*", "x"]] {
        let words: Vec<_> = ["PUBSUB"].into_iter().chain(words).collect();
        stage.say(a, &words);
    }
    for error in ["true", "nil", "false", "{err='MY table'}", "{1}", "'text'", "7"] {
        // Redis 7.0 does not live through an uncaught table without `err`.
        if error != "{1}" || stage.version != Version::Redis7_0 {
            stage.say(a, &["EVAL", &format!("error({error})"), "0"]);
            stage.say(a, &["EVAL", &format!("local x = 1\nerror({error}, 0)"), "0"]);
        }
        stage.say(
            a,
            &["EVAL", &format!("local _, err = pcall(error, {error})\nreturn type(err)"), "0"],
        );
    }
    let hash = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    for hash in [hash, &hash.to_uppercase(), &hash[1..], &hash.replace('e', "z")] {
        stage.say(a, &["EVALSHA", hash, "0"]);
        stage.say(a, &["EVAL", "return 1", "0"]);
        stage.say(a, &["SCRIPT", "EXISTS", hash, "x"]);
        stage.say(a, &["EVALSHA", hash, "0"]);
        stage.say(a, &["EVALSHA", hash, "1"]);
        stage.say(a, &["EVALSHA", hash, "-1"]);
    }
}

fn listener_in_resp2(stage: &mut Stage) {
    let (a, b) = (stage.client(), stage.client());
    stage.say(a, &["UNSUBSCRIBE"]);
    stage.say(a, &["UNSUBSCRIBE", "one", "two"]);
    stage.say(a, &["SUBSCRIBE", "one", "two", "one"]);
    stage.say(b, &["PUBSUB", "NUMSUB", "one", "two", "three"]);
    stage.say(b, &["PUBLISH", "one", "text"]);
    stage.say(b, &["PUBLISH", "three", "text"]);
    for words in [
        "GET x",
        "PUBLISH one x",
        "HELLO 3",
        "AUTH x",
        "EVAL return 0",
        "CLIENT ID",
        "NOTHING",
        "GET",
        "SET x",
    ] {
        stage.say(a, &words.split(' ').collect::<Vec<_>>());
    }
    stage.say(a, &["PING", "text"]);
    stage.say(a, &["PING", "text", "text"]);
    stage.say(a, &["SUBSCRIBE"]);
    stage.say(a, &["UNSUBSCRIBE", "three"]);
    stage.say(a, &["UNSUBSCRIBE", "one", "one"]);
    stage.say(b, &["PUBLISH", "two", "\0"]);
    stage.say(a, &["UNSUBSCRIBE"]);
    stage.say(b, &["PUBLISH", "two", "nobody"]);
    stage.say(a, &["GET", "x"]);
    stage.say(a, &["SUBSCRIBE", "two"]);
    stage.say(b, &["EVAL", "return redis.call('publish', 'two', 'from a script')", "0"]);
    stage.say(a, &["RESET"]);
    stage.say(b, &["PUBSUB", "NUMSUB", "two"]);
    stage.say(a, &["GET", "x"]);
    stage.say(a, &["SUBSCRIBE", "two"]);
    stage.say(a, &["QUIT"]);
    stage.say(b, &["PUBLISH", "two", "gone"]);
}

fn listener_in_resp3(stage: &mut Stage) {
    let (a, b) = (stage.client(), stage.client());
    stage.say(a, &["HELLO", "3"]);
    stage.say(a, &["UNSUBSCRIBE"]);
    stage.say(a, &["SUBSCRIBE", "one"]);
    stage.say(a, &["GET", "x"]);
    stage.say(a, &["PING", "text"]);
    stage.say(a, &["PUBLISH", "one", "myself"]);
    stage.say(
        a,
        &[
            "EVAL",
            "redis.call('publish', 'one', 'in') return redis.call('publish', 'one', 'script')",
            "0",
        ],
    );
    stage.say(b, &["PUBLISH", "one", "text"]);
    stage.say(b, &["SUBSCRIBE", "one"]);
    stage.say(a, &["PUBLISH", "one", "both"]);
    stage.say(a, &["HELLO", "2"]);
    stage.say(a, &["GET", "x"]);
    stage.say(a, &["UNSUBSCRIBE"]);
    stage.say(a, &["GET", "x"]);
    stage.say(a, &["PUBLISH", "one", "the other"]);
}

fn quit(stage: &mut Stage) {
    for words in [&["QUIT"][..], &["quit", "now"]] {
        let a = stage.client();
        stage.say(a, words);
    }
    let a = stage.client();
    stage.send(
        a,
        b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n*3\r\n$3\r\nSET\r\n$4\r\ntext\r\n$1\r\nx\r\n",
    );
    let b = stage.client();
    stage.say(b, &["GET", "text"]);
    stage.send(b, b"QUIT\r\n");
}

fn reset(stage: &mut Stage) {
    let (a, b) = (stage.client(), stage.client());
    stage.say(a, &["HELLO", "3", "SETNAME", "name"]);
    stage.say(a, &["SELECT", "1"]);
    stage.say(a, &["SET", "text", "in 1"]);
    stage.say(a, &["SUBSCRIBE", "one"]);
    stage.say(a, &["RESET", "now"]);
    stage.say(a, &["RESET"]);
    stage.say(b, &["PUBLISH", "one", "nobody"]);
    stage.say(a, &["GET", "text"]);
    stage.say(a, &["CLIENT", "GETNAME"]);
    stage.say(a, &["HGETALL", "none"]);
}

fn kill(stage: &mut Stage) {
    let [a, b, c, d] = [(); 4].map(|()| stage.client());
    let kill_id = ["CLIENT", "KILL", "ID"];
    stage.say_of(a, &kill_id, a, &[]);
    stage.say_of(a, &kill_id, b, &[]);
    stage.say_of(a, &kill_id, b, &[]);
    stage.say(c, &["SUBSCRIBE", "one"]);
    stage.say_of(a, &kill_id, c, &["TYPE", "normal"]);
    stage.say_of(a, &kill_id, d, &["TYPE", "pubsub"]);
    stage.say(a, &["CLIENT", "KILL", "TYPE", "PUBSUB"]);
    stage.say(a, &["PUBLISH", "one", "nobody"]);
    stage.say_of(a, &kill_id, a, &["SKIPME", "maybe"]);
    stage.say(a, &["CLIENT", "KILL", "TYPE", "normal"]);
    stage.say_of(a, &kill_id, a, &["SKIPME", "no"]);
    let e = stage.client();
    stage.say_of(e, &["CLIENT", "KILL", "SKIPME", "no", "ID"], e, &[]);
}

/// Each of them goes to a client of its own, whose connection may be closed over it.
fn malformed(stage: &mut Stage) {
    let requests: [&[u8]; 44] = [
        b"PING\r\n",
        b"ping\n",
        b"\r\n",
        b"\n",
        b"   \r\n",
        b"PING text\r\n",
        b"  ECHO   text  \r\n",
        b"ECHO \"a b\"\r\n",
        b"ECHO 'a b'\r\n",
        b"ECHO \"\\x41\\x4g\\n\\r\\t\\b\\a\\\\\\\"\\q\"\r\n",
        b"ECHO 'it\\'s \\n'\r\n",
        b"ECHO \"open\r\n",
        b"ECHO 'open\r\n",
        b"ECHO \"a\"b\r\n",
        b"ECHO 'a'b\r\n",
        b"ECHO a\"b c\"\r\n",
        b"ECHO \"\"\r\n",
        b"ECHO a\0b\r\n",
        b"NOTHING\r\n",
        b"GET\r\n",
        b"\0\r\n",
        b"*x\r\n",
        b"*-1\r\n",
        b"*-5\r\n",
        b"*0\r\n",
        b"*\r\n",
        b"* 1\r\n",
        b"*1x\r\n",
        b"*+1\r\n",
        b"*01\r\n",
        b"*3000000000\r\n",
        b"*99999999999999999999\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$\r\n",
        b"*1\r\n+OK\r\n",
        b"*1\r\n:4\r\n",
        b"*1\r\n\r\n",
        b"*1\r\n$536870913\r\n",
        b"*1\r\n$9999999999\r\n",
        b"*1\r\n$0\r\n\r\n",
        b"*1\r\n$4\r\nPINGxx",
        b"*1\rx$4\rxPING\r\n",
        b"*2\r\n$4\r\nPING\r\n+OK\r\n",
    ];
    for request in requests {
        let client = stage.client();
        stage.send(client, request);
    }
    let long = vec![b'1'; 70_000];
    for begin in [&b""[..], b"*", b"*1\r\n$", b"*1\r\n"] {
        let client = stage.client();
        stage.send_part(client, &[begin, &long].concat());
    }
}

/// Requests in pieces, and several in one.
fn pieces(stage: &mut Stage) {
    let a = stage.client();
    let words =
        |words: &[&[u8]]| request(&words.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
    let some = [
        words(&[b"SET", b"text", b"a\r\nb"]),
        words(&[b"GET", b"text"]),
        b"PING inline\r\n".to_vec(),
    ]
    .concat();
    for byte in some.chunks(1) {
        stage.send_part(a, byte);
    }
    stage.send(a, &some.repeat(3));
    let big = vec![b'\n'; 300_000];
    for piece in words(&[b"SET", b"big", &big]).chunks(65_537) {
        stage.send_part(a, piece);
    }
    stage.say(a, &["GET", "big"]);
}

/// Only what the library and its users look at: see [`crate::pair::settle_order`].
fn info(stage: &mut Stage) {
    let a = stage.client();
    let ask = |stage: &mut Stage| {
        for section in [
            "memory",
            "MEMORY",
            "replication",
            "server",
            "persistence",
            "all",
            "default",
            "everything",
            "none",
        ] {
            stage.say(a, &["INFO", section]);
        }
        stage.say(a, &["INFO"]);
        stage.say(a, &["INFO", "memory", "replication"]);
        stage.say(a, &["EVAL", "return #redis.call('info', 'none')", "0"]);
    };
    ask(stage);
    stage.say(a, &["HELLO", "3"]);
    ask(stage);
    stage.order(&["CONFIG", "SET", "maxmemory", "1"]);
    stage.sim.set_memory_full(true);
    stage.say(a, &["INFO", "memory"]);
    stage.order(&["CONFIG", "SET", "maxmemory", "0"]);
    stage.sim.set_memory_full(false);
    stage.order(&["REPLICAOF", "127.0.0.1", "1"]);
    stage.sim.become_replica();
    stage.say(a, &["INFO", "replication"]);
    stage.say(a, &["HELLO"]);
    stage.order(&["REPLICAOF", "NO", "ONE"]);
    stage.sim.become_primary();
    stage.say(a, &["INFO", "replication"]);
}

fn password(stage: &mut Stage) {
    let (old, knows) = (stage.client(), stage.client());
    stage.order(&["CONFIG", "SET", "requirepass", "right"]);
    stage.sim.set_password(Some(b"right"));
    stage.say(old, &["GET", "x"]);
    let a = stage.stranger();
    for words in [
        "GET x",
        "PING",
        "NOTHING",
        "GET",
        "HELLO",
        "HELLO 3",
        "HELLO 3 AUTH default wrong",
        "HELLO 3 SETNAME x",
        "HELLO 9",
        "SUBSCRIBE x",
        "CLIENT ID",
        "CLIENT SETINFO lib-name x",
        "EVAL return 0",
        "RESET",
        "AUTH wrong",
        "AUTH default wrong",
        "AUTH nobody right",
        "AUTH",
        "AUTH a b c",
        "SELECT 0",
    ] {
        stage.say(a, &words.split(' ').collect::<Vec<_>>());
    }
    stage.say(a, &["AUTH", "right"]);
    stage.say(a, &["GET", "x"]);
    stage.say(a, &["RESET"]);
    stage.say(a, &["GET", "x"]);
    stage.say(a, &["AUTH", "default", "right"]);
    stage.say(a, &["AUTH", "wrong"]);
    stage.say(a, &["GET", "x"]);
    let b = stage.stranger();
    stage.say(b, &["HELLO", "3", "AUTH", "default", "right", "SETNAME", "me"]);
    stage.say(b, &["CLIENT", "GETNAME"]);
    for request in
        [&b"*11\r\n"[..], b"*10\r\n$3\r\nGET\r\n", b"*1\r\n$16385\r\n", b"*1\r\n$16384\r\n"]
    {
        let stranger = stage.stranger();
        stage.send(stranger, request);
    }
    let c = stage.stranger();
    stage.say(c, &["QUIT"]);
    stage.say(knows, &["AUTH", "right"]);
    let mut boss = stage.outsider();
    assert_eq!(boss.ask(&["AUTH", "right"]).text, b"OK");
    assert_eq!(boss.ask(&["CONFIG", "SET", "requirepass", ""]).text, b"OK");
    stage.sim.set_password(None);
    stage.say(a, &["GET", "x"]);
    let d = stage.client();
    stage.say(d, &["AUTH", "right"]);
    stage.say(d, &["AUTH", "default", "right"]);
    stage.say(d, &["AUTH", "nobody", "right"]);
}

/// What a server is asked that has no time.
const AT_A_BAD_TIME: [&str; 36] = [
    "PING",
    "PING x",
    "GET x",
    "GET",
    "SET x y",
    "NOTHING",
    "TYPE x",
    "DEL x",
    "EXISTS x",
    "TIME",
    "ECHO x",
    "DBSIZE",
    "EVAL return 0",
    "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
    "SCRIPT LOAD return",
    "SCRIPT EXISTS x",
    "SCRIPT NOTHING",
    "PUBLISH x y",
    "PUBSUB NUMSUB x",
    "PUBSUB NUMPAT",
    "INFO memory",
    "SELECT 1",
    "SELECT 0",
    "CLIENT ID x",
    "CLIENT SETNAME x",
    "CLIENT SETINFO lib-name x",
    "CLIENT NOTHING",
    "CLIENT KILL ID 99999",
    "AUTH x",
    "AUTH default x",
    "HELLO 9",
    "KEYS *",
    "SCAN 0",
    "UNSUBSCRIBE x",
    "CLIENT GETNAME",
    "SCRIPT KILL x",
];

fn ask_at_a_bad_time(stage: &mut Stage, a: Who, b: Who) {
    let words = |text: &str| {
        request(&text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
    };
    // All at once: it may not last.
    let all: Vec<u8> = AT_A_BAD_TIME.iter().flat_map(|text| words(text)).collect();
    stage.send_part(a, &all);
    stage.send_part(
        b,
        &[words("HELLO 3"), words("SUBSCRIBE x"), words("GET x"), words("RESET"), words("QUIT")]
            .concat(),
    );
}

fn busy(stage: &mut Stage) {
    let [a, b, c] = [(); 3].map(|()| stage.client());
    stage.order(&["CONFIG", "SET", "lua-time-limit", "1"]);
    let mut runner = stage.outsider();
    runner.send(&request(&["EVAL", "while true do end", "0"].map(|word| word.as_bytes().to_vec())));
    // Nobody is told that the script takes too long, before the server says so to somebody else.
    let mut boss = stage.outsider();
    while !boss.ask(&["PING"]).text.starts_with(b"BUSY") {}
    stage.sim.set_busy(true);
    ask_at_a_bad_time(stage, a, b);
    assert_eq!(boss.ask(&["SCRIPT", "KILL"]).text, b"OK");
    assert_eq!(runner.frame().kind, b'-');
    stage.sim.set_busy(false);
    stage.say(c, &["SCRIPT", "KILL"]);
    stage.order(&["CONFIG", "SET", "lua-time-limit", "5000"]);
}

fn loading(stage: &mut Stage) {
    let [a, b, c] = [(); 3].map(|()| stage.client());
    // Between two megabytes and the next, a server that loads listens to its clients.
    stage.order(&["CONFIG", "SET", "rdbcompression", "no"]);
    stage.order(&["DEBUG", "POPULATE", "4000", "key", "4096"]);
    stage.order(&["CONFIG", "SET", "key-load-delay", "400"]);
    let mut runner = stage.outsider();
    runner.send(&request(&["DEBUG", "RELOAD"].map(|word| word.as_bytes().to_vec())));
    let mut boss = stage.outsider();
    while !boss.ask(&["PING"]).text.starts_with(b"LOADING") {}
    stage.sim.set_loading(true);
    ask_at_a_bad_time(stage, a, b);
    boss.ask(&["CONFIG", "SET", "key-load-delay", "0"]);
    assert_eq!(runner.frame().text, b"OK");
    stage.sim.set_loading(false);
    stage.say(c, &["PING"]);
}
