//! Random words for commands and scripts, by what they stand for. The pools are small, so that what one step writes
//! is what another finds.

use fastrand::Rng;

const ABSURD: [&[u8]; 44] = [
    b"",
    b"-1",
    b"0",
    b"1",
    b"2",
    b"1.5",
    b"-0",
    b"-0.0",
    b"1e18",
    b"1e3",
    b"9007199254740991",
    b"9007199254740993",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"18446744073709551616",
    b"abc",
    b"\0",
    b"a\0b",
    b"1\0",
    b"0x10",
    b" 1",
    b"1 ",
    b"nan",
    b"inf",
    b"-inf",
    b"+inf",
    b"(1",
    b"1e400",
    b"1e-400",
    b"00",
    b"+5",
    b"\xff\xfe\r\n",
    b"-",
    b"mode",
    b"parklock:nobody",
    b"lock:{1}",
    b"all",
    b"line",
    b"86400001",
    b"3.0",
    b"0.1",
    b"1234567890123456789012345678901234567890",
    b"1e15",
];

/// Owner fields: ours, as the version of their UUID says, among them those of a client that keeps locks and of one with a session, and
/// Redisson's.
const FIELDS: [&str; 7] = [
    "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:1",
    "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:2",
    "bbbbbbbb-bbbb-8bbb-8bbb-bbbbbbbbbbbb:1",
    "cccccccc-cccc-4ccc-8ccc-cccccccccccc:30",
    "dddddddd-dddd-4ddd-8ddd-dddddddddddd:31",
    "eeeeeeee-eeee-8fee-8eee-eeeeeeeeeeee:1",
    "ffffffff-ffff-8fff-8fff-ffffffffffff+20:1",
];

/// The client of the last one, whose patience is 20 ms.
pub const IN_SESSION: &str = "ffffffff-ffff-8fff-8fff-ffffffffffff+20";

pub const CHANNELS: [&str; 6] = [
    "channel:1",
    "channel:2",
    "channel:1:aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa",
    "channel:1:aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:1",
    "channel:1:eeeeeeee-eeee-8fee-8eee-eeeeeeeeeeee",
    "odd",
];

/// The roles of keys. Each has two names, one a family: what belongs together has the same number, in braces as a lock's name.
pub const KEYS: [&str; 26] = [
    "tokens",
    "fenced",
    "lock",
    "line",
    "line_notes",
    "leader",
    "interval",
    "holders",
    "queue",
    "notes",
    "fair",
    "fair_queue",
    "deadlines",
    "rw",
    "unused",
    "readers",
    "free",
    "leases",
    "permits",
    "notified",
    "waiters",
    "waiter_notes",
    "latch",
    "requests",
    "text",
    "counter",
];

pub fn absurd(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..60) {
        0 => vec![b'x'; 300],
        1 => vec![b'9'; 70],
        2..6 => key(rng).into_bytes(),
        _ => ABSURD[rng.usize(..ABSURD.len())].to_vec(),
    }
}

pub fn key(rng: &mut Rng) -> String {
    format!("{}:{{{}}}", pick(rng, &KEYS), rng.u8(1..=2))
}

pub fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

/// A word of this kind; the kind itself, if it is none.
pub fn word(rng: &mut Rng, kind: &str, family: u8, now: u64) -> Vec<u8> {
    if KEYS.contains(&kind) {
        return format!("{kind}:{{{family}}}").into_bytes();
    }
    let text: String = match kind {
        "key" => key(rng),
        "field" | "beneath" if kind == "field" || rng.bool() => pick(rng, &FIELDS).into(),
        "beneath" => String::new(),
        "terms" => {
            let patience = pick(rng, &["2", "20", "500", "5000", "60000"]);
            format!("{} {patience} client:a chan", floor(rng, now))
        }
        "line_terms" => {
            let patience = pick(rng, &["2", "20", "500", "5000", "60000"]);
            format!("{patience} {} client:a chan", pick(rng, &["100", "5000", "100000", "0"]))
        }
        "waiter" => {
            let patience = pick(rng, &["2", "20", "500", "5000", "60000"]);
            let ttl = pick(rng, &["1", "2", "10", "100", "5000", "100000", "0", "-5"]);
            let client = pick(rng, &["client:a", "client:b", "client:a", "client:b", ""]);
            let secret = pick(rng, &["7", "12345", "18446744073709551615", ""]);
            format!("{patience} {ttl} {client} {secret} {}", pick(rng, &CHANNELS))
        }
        "old" if rng.u8(..4) == 0 => pick(rng, &FIELDS).into(),
        "old" => String::new(),
        "said" => {
            format!("{:020} {} somebody", pick(rng, &[5_u64, 7, u64::MAX]), pick(rng, &FIELDS))
        }
        "writer" => format!("{}:write", pick(rng, &FIELDS)),
        "client" => pick(rng, &["client:a", "client:b", "client:a", "client:b", ""]).into(),
        "floor" => floor(rng, now).to_string(),
        "named" => {
            let kind = word(rng, "kind", family, now);
            format!("{} {}", String::from_utf8_lossy(&kind), pick(rng, &["3", "3", "3", "1"]))
        }
        "condition_named" => "condition 1073741824".into(),
        "wish" => {
            let words = ["lease", "part", "named"].map(|kind| word(rng, kind, family, now));
            words.map(|word| String::from_utf8_lossy(&word).into_owned()).join(" ")
        }
        "lease_and_count" => {
            let count = pick(rng, &["", "", " 1", " 2"]);
            String::from_utf8_lossy(&word(rng, "lease", family, now)).into_owned() + count
        }
        "lease_in_set" => {
            String::from_utf8_lossy(&word(rng, "lease", family, now)).into_owned() + " set"
        }
        "lease" => pick(rng, &["1", "3", "10", "100", "1000", "30000", "86400000"]).into(),
        "patience" => pick(rng, &["2", "20", "500", "5000", "60000"]).into(),
        "manner" => pick(rng, &["rest", "wait", "wait", "wait", "once"]).into(),
        "channel" => pick(rng, &CHANNELS).into(),
        "message" => pick(rng, &["free", "aaaaaaaa", "0", "1"]).into(),
        "kind" if rng.u8(..8) == 0 => pick(rng, &["fair", "rw", "semaphore"]).into(),
        "kind" => if family == 1 { "rw" } else { "semaphore" }.into(),
        "skind" => if family == 1 { "semaphore" } else { "expirable" }.into(),
        "capacity" => pick(rng, &["3", "3", "3", "3", "3", "3", "1", "5"]).into(),
        "part" => pick(rng, &["1", "1", "1", "2", "3"]).into(),
        "place" => place(rng, now).to_string(),
        "secret" => pick(rng, &["7", "12345", "18446744073709551615"]).into(),
        "count" => pick(rng, &["1", "2", "3", "0"]).into(),
        "request" => format!("request:{}", rng.u8(1..=6)),
        "order" => pick(rng, &["set", "count_down", "count_down", "delete"]).into(),
        "whom" => pick(rng, &["one", "one", "all"]).into(),
        "keep" => pick(rng, &["5", "100", "10000"]).into(),
        "value" => pick(rng, &["x", "7", "42", "-3", "read", "write", "1700000000000000"]).into(),
        "int" => pick(rng, &["0", "1", "2", "3", "-1", "-2", "5", "10"]).into(),
        "ttl" => pick(rng, &["1", "2", "10", "100", "5000", "100000", "0", "-5"]).into(),
        "score" => {
            pick(rng, &["1", "2", "2.5", "-1", "1700000000000", "1e3", "inf", "0.1", "3"]).into()
        }
        "bound" => pick(rng, &["-inf", "+inf", "0", "(1", "2", "(2.5", "1700000000001"]).into(),
        other => other.into(),
    };
    text.into_bytes()
}

/// Where somebody has waited before; mostly it never has.
fn place(rng: &mut Rng, now: u64) -> u64 {
    match rng.u8(..8) {
        0..4 => 0,
        4 => rng.u64(1..1000),
        5 => now + 3_600_000_000,
        _ => now - 1_000_000 * rng.u64(1..600),
    }
}

/// Far from the clock, so that no count on from it meets a stamp of the server's.
fn floor(rng: &mut Rng, now: u64) -> u64 {
    const HOUR: u64 = 3_600_000_000;
    match rng.u8(..12) {
        0 => 0,
        1 => 9_007_199_254_740_990,
        2..6 => now / HOUR * HOUR - HOUR,
        6..10 => now / HOUR * HOUR + 2 * HOUR + rng.u64(..3),
        10 => now / HOUR * HOUR + (1 << 40) + 2 * HOUR,
        _ => now / HOUR * HOUR - HOUR + rng.u64(..1000),
    }
}

/// Words by a pattern: a kind for each, and groups in brackets that come once to three times, together with the other
/// groups. The numbers of their families differ. Of a group in square brackets come the first words, or none.
pub fn fill(rng: &mut Rng, pattern: &str, family: u8, times: u8, now: u64) -> Vec<Vec<u8>> {
    let (mut words, mut rest) = (Vec::new(), pattern.trim());
    while !rest.is_empty() {
        if let Some((group, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let most = group.split_whitespace().count();
            let kinds = group.split_whitespace().take(rng.usize(..=most));
            words.extend(kinds.map(|kind| word(rng, kind, family, now)));
            rest = after.trim_start();
            continue;
        }
        let (part, after) = match rest.strip_prefix('(') {
            Some(group) => group.split_once(")+").expect("a group has an end"),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        let rounds = if rest.starts_with('(') { times } else { 1 };
        for round in 0..rounds {
            let family = (family - 1 + round) % 3 + 1;
            words.extend(part.split_whitespace().map(|kind| word(rng, kind, family, now)));
        }
        rest = after.trim_start();
    }
    words
}

/// Makes some of the words absurd, in some of the steps.
pub fn spoil(rng: &mut Rng, words: &mut Vec<Vec<u8>>, from: usize) {
    if rng.bool() {
        return;
    }
    for word in words.iter_mut().skip(from) {
        if rng.u8(..5) == 0 {
            *word = absurd(rng);
        }
    }
    match rng.u8(..30) {
        0 if words.len() > from => words.truncate(rng.usize(from..words.len())),
        1 => words.push(absurd(rng)),
        _ => {}
    }
}
