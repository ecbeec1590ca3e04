//! The protocol of Redis, RESP3: a value out of the bytes of a server.
//!
//! What every answer consists of is read here. The `redis` crate reads the rest, once it is known where that ends: it
//! would begin anew with the first byte whenever more bytes arrive.

use redis::{PushKind, Value, parse_redis_value};

use crate::wire::passwords::shown;

/// How deep values may lie in each other.
const DEEPEST: usize = 32;

/// The most bytes of an answer that a server can mean. So no text has more bytes, and no list more items. `CLUSTER SLOTS` is the
/// longest that we ask for: 16,384 ranges of one slot, each with six nodes whose names are as long as DNS allows, have 34 MiB. A
/// server with the usual settings itself closes a connection to which it owes more than 32 MiB of messages.
pub(super) const LONGEST: usize = 64 << 20;

/// The most values in an answer: a value takes 56 bytes of memory, and may have three in the answer. That of `CLUSTER SLOTS` has
/// about 0.7 million.
const MOST_VALUES: usize = 2_000_000;

/// For how many items of a list memory is taken before they have come. A server may announce more.
const EXPECTED: usize = 1024;

/// The value at the beginning of these bytes, and how many of them it takes. `None`: its end is not among them. The error
/// says what is no value.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>, String> {
    let mut rest = Rest { bytes, at: 0, values: 0 };
    Ok(rest.value(0)?.map(|value| (value, rest.at)))
}

/// Bytes, up to `at` of which are parsed.
struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The values within those lists of which at least the length is parsed.
    values: usize,
}

/// `None`: the bytes end too early.
type Parsed<T> = Result<Option<T>, String>;

/// Returns `None` if the bytes end too early.
macro_rules! some {
    ($parsed:expr) => {
        match $parsed {
            Some(value) => value,
            None => return Ok(None),
        }
    };
}

impl<'a> Rest<'a> {
    fn value(&mut self, depth: usize) -> Parsed<Value> {
        let begin = self.at;
        let kind = *some!(self.bytes.get(begin));
        if depth > DEEPEST {
            return Err("values within values".to_owned());
        }
        if !b"+-:$*%~>|_#,(=!".contains(&kind) {
            return Err(quoted(&self.bytes[begin..]));
        }
        self.at += 1;
        let line = some!(self.line());
        Ok(Some(match kind {
            b'+' if line == b"OK" => Value::Okay,
            b'+' => Value::SimpleString(String::from_utf8_lossy(line).into_owned()),
            b':' => Value::Int(number(line)?),
            b'_' => Value::Nil,
            b'$' | b'*' if line == b"-1" => Value::Nil,
            b'$' => Value::BulkString(some!(self.text(line)?).to_vec()),
            b'*' => Value::Array(some!(self.items(count(line)?, depth)?)),
            b'~' => Value::Set(some!(self.items(count(line)?, depth)?)),
            b'%' => Value::Map(some!(self.pairs(line, depth)?)),
            b'>' => some!(self.push(line, depth)?),
            b'|' => {
                // An attribute says something about the value that follows it. Nothing that we ask has one.
                some!(self.pairs(line, depth)?);
                return self.value(depth + 1);
            }
            b'-' => {
                // An error may quote what lies in a key: so it need not be UTF-8.
                let text = String::from_utf8_lossy(&self.bytes[begin..self.at]);
                parse_redis_value(text.as_bytes()).map_err(|_| quoted(text.as_bytes()))?
            }
            _ => {
                if let b'=' | b'!' = kind {
                    some!(self.text(line)?);
                }
                let whole = &self.bytes[begin..self.at];
                parse_redis_value(whole).map_err(|_| quoted(whole))?
            }
        }))
    }

    /// The bytes up to the next end of a line.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        self.at += end + 2;
        Some(&rest[..end])
    }

    fn text(&mut self, length: &[u8]) -> Parsed<&'a [u8]> {
        let length = count(length)?;
        let rest = &self.bytes[self.at..];
        let text = some!(rest.get(..length + 2));
        if !text.ends_with(b"\r\n") {
            return Err(quoted(text));
        }
        self.at += length + 2;
        Ok(Some(&text[..length]))
    }

    fn items(&mut self, count: usize, depth: usize) -> Parsed<Vec<Value>> {
        self.values += count;
        if self.values > MOST_VALUES {
            return Err("too many values".to_owned());
        }
        let mut items = Vec::with_capacity(count.min(EXPECTED));
        for _ in 0..count {
            items.push(some!(self.value(depth + 1)?));
        }
        Ok(Some(items))
    }

    fn pairs(&mut self, line: &[u8], depth: usize) -> Parsed<Vec<(Value, Value)>> {
        let mut items = some!(self.items(count(line)? * 2, depth)?).into_iter();
        Ok(Some(std::iter::from_fn(|| items.next().zip(items.next())).collect()))
    }

    fn push(&mut self, line: &[u8], depth: usize) -> Parsed<Value> {
        let mut data = some!(self.items(count(line)?, depth)?).into_iter();
        let kind = match data.next() {
            Some(Value::BulkString(kind)) => kind,
            Some(Value::SimpleString(kind)) => kind.into_bytes(),
            _ => return Err("a push of no kind".to_owned()),
        };
        let kind = match &*kind {
            b"message" => PushKind::Message,
            b"smessage" => PushKind::SMessage,
            b"subscribe" => PushKind::Subscribe,
            b"ssubscribe" => PushKind::SSubscribe,
            b"unsubscribe" => PushKind::Unsubscribe,
            b"sunsubscribe" => PushKind::SUnsubscribe,
            b"invalidate" => PushKind::Invalidate,
            other => PushKind::Other(String::from_utf8_lossy(other).into_owned()),
        };
        Ok(Some(Value::Push { kind, data: data.collect() }))
    }
}

fn number(line: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(line).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| quoted(line))
}

fn count(line: &[u8]) -> Result<usize, String> {
    let count = usize::try_from(number(line)?).ok();
    count.filter(|count| *count <= LONGEST).ok_or_else(|| quoted(line))
}

/// The begin of bytes that are no value, for an error. Whether a password is among them is seen before they are cut.
fn quoted(bytes: &[u8]) -> String {
    let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]);
    format!("{:?}", shown(&begin).chars().take(60).collect::<String>())
}

#[cfg(test)]
mod tests {
    use redis::VerbatimFormat;

    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    /// What a server may answer, byte for byte, and what that is.
    fn answers() -> Vec<(&'static str, Value)> {
        let error = |text: &[u8]| parse_redis_value(text).expect("an error is a value");
        vec![
            ("+OK\r\n", Value::Okay),
            ("+hash\r\n", Value::SimpleString("hash".to_owned())),
            (":-12\r\n", Value::Int(-12)),
            ("$5\r\na\r\nbc\r\n", text("a\r\nbc")),
            ("$0\r\n\r\n", text("")),
            ("$-1\r\n", Value::Nil),
            ("*-1\r\n", Value::Nil),
            ("_\r\n", Value::Nil),
            ("*0\r\n", Value::Array(vec![])),
            (
                "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
                Value::Array(vec![Value::Int(1), Value::Array(vec![text("x")])]),
            ),
            ("~1\r\n:1\r\n", Value::Set(vec![Value::Int(1)])),
            (
                "%1\r\n+role\r\n$6\r\nmaster\r\n",
                Value::Map(vec![(Value::SimpleString("role".to_owned()), text("master"))]),
            ),
            ("|1\r\n+a\r\n:1\r\n:2\r\n", Value::Int(2)),
            (
                ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
                Value::Push { kind: PushKind::Message, data: vec![text("c"), text("m")] },
            ),
            ("#t\r\n", Value::Boolean(true)),
            (",1.5\r\n", Value::Double(1.5)),
            (
                "=8\r\ntxt:a\r\nb\r\n",
                Value::VerbatimString { format: VerbatimFormat::Text, text: "a\r\nb".to_owned() },
            ),
            ("-NOPERM no permissions\r\n", error(b"-NOPERM no permissions\r\n")),
            ("!6\r\nERR no\r\n", error(b"-ERR no\r\n")),
        ]
    }

    #[test]
    fn an_answer_is_understood_wherever_it_is_cut() {
        for (bytes, value) in answers() {
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes.as_bytes()[..end]), Ok(None), "{bytes:?} up to {end}");
            }
            let followed = format!("{bytes}+more");
            assert_eq!(parse(followed.as_bytes()), Ok(Some((value, bytes.len()))), "{bytes:?}");
        }
    }

    #[test]
    fn the_redis_crate_understands_the_same() {
        for (bytes, value) in answers() {
            // It returns an attribute beside its value.
            if !bytes.starts_with('|') {
                assert_eq!(parse_redis_value(bytes.as_bytes()).ok(), Some(value), "{bytes:?}");
            }
        }
    }

    #[test]
    fn a_text_that_is_no_utf8_is_an_answer_all_the_same() {
        let texts: [&[u8]; 4] =
            [b"-ERR \xFF\r\n", b"+ERR \xFF\r\n", b"!1\r\n\xFF\r\n", b"*1\r\n-\xFF\r\n"];
        for bytes in texts {
            let parsed = parse(bytes);
            assert!(matches!(parsed, Ok(Some((_, at))) if at == bytes.len()), "{parsed:?}");
        }
        let Ok(Some((Value::ServerError(error), _))) = parse(b"-CONFLICT \xFF 1\r\n") else {
            panic!("it is an error");
        };
        assert_eq!((error.code(), error.details()), ("CONFLICT", Some("\u{FFFD} 1")));
    }

    #[test]
    fn what_is_no_answer_is_refused_at_once() {
        let deep = "*1\r\n".repeat(DEEPEST + 2);
        for bytes in [
            "HTTP/1.1 400 Bad Request",
            "\r\n",
            ":x\r\n",
            ":\r\n",
            "$x\r\n",
            "$-2\r\n",
            "$99999999999\r\n",
            "*99999999999999999999\r\n",
            "$1\r\nab\r\n",
            ">1\r\n:1\r\n",
            ">0\r\n",
            "#x\r\n",
            &deep,
        ] {
            assert!(parse(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_list_that_is_announced_takes_no_memory() {
        let announced = |length: usize| format!("*{length}\r\n").repeat(2) + ":1\r\n";
        assert_eq!(parse(announced(MOST_VALUES / 2).as_bytes()), Ok(None));
        assert!(parse(announced(MOST_VALUES / 2 + 1).as_bytes()).is_err());
    }

    #[test]
    fn an_answer_of_many_small_values_is_refused() {
        let many =
            format!("*100\r\n{}", format!("*{}\r\n{}", 25_000, "_\r\n".repeat(25_000)).repeat(100));
        assert!(many.len() < LONGEST && parse(many.as_bytes()).is_err());
    }
}
