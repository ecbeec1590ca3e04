//! How replies are taken apart. That of a script is a single number, or an array: some items about one lock, or one or two for each
//! of several.

use std::fmt::{self, Debug, Write};
use std::time::Duration;

use redis::Value;

use crate::error::said;
use crate::wire::fault::{self, Fault};
use crate::wire::passwords::{SEARCHED, begin, shown};

/// The items of a script's answer.
pub(crate) fn items(reply: Value) -> Result<Vec<Value>, Fault> {
    match reply {
        Value::Array(items) => Ok(items),
        Value::ServerError(error) => Err(fault::entry(&error)),
        other => Err(strange(&other)),
    }
}

/// A string in the answer to a Redis command.
pub(crate) fn word(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// What has this name in an answer that is a map, or a list of alternating names and values.
pub(crate) fn named<'a>(answer: &'a Value, name: &str) -> Option<&'a str> {
    match answer {
        Value::Map(fields) => fields
            .iter()
            .find(|(key, _)| word(key) == Some(name))
            .and_then(|(_, value)| word(value)),
        Value::Array(items) => {
            let mut fields = items.chunks_exact(2);
            fields.find(|field| word(&field[0]) == Some(name)).and_then(|field| word(&field[1]))
        }
        _ => None,
    }
}

/// A field in the answer to INFO. `name` ends with a colon.
pub(crate) fn field<'a>(info: Option<&'a Value>, name: &str) -> Option<&'a str> {
    let text = match info? {
        Value::VerbatimString { text, .. } => text,
        other => word(other)?,
    };
    text.lines().find_map(|line| line.strip_prefix(name))
}

/// The only item of an answer, as a number. It may come without an array.
pub(crate) fn number(reply: Value) -> Result<i64, Fault> {
    if let Value::Int(number) = reply {
        return Ok(number);
    }
    match items(reply)?.as_slice() {
        [item] => entry(item),
        other => Err(strange(&other.len())),
    }
}

/// The items of an answer, as `N` numbers.
pub(crate) fn numbers<const N: usize>(reply: Value) -> Result<[i64; N], Fault> {
    let numbers: Vec<_> = items(reply)?.iter().map(entry).collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|numbers: Vec<i64>| strange(&numbers.len()))
}

/// One lock's item: a number, or a text with the reason for the refusal.
pub(crate) fn entry(item: &Value) -> Result<i64, Fault> {
    match item {
        Value::Int(number) => Ok(*number),
        Value::BulkString(text) => Err(Fault::from_text(&String::from_utf8_lossy(text))),
        other => Err(strange(other)),
    }
}

/// A time in milliseconds, as PTTL has it. It is negative if there is none.
pub(crate) fn time_left(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// The answer to a release: whether the caller still had it.
pub(crate) fn released(code: i64) -> Result<bool, Fault> {
    if code < 0 { Err(Fault::Unfinished { found: code == -2 }) } else { Ok(code == 1) }
}

/// An answer that our scripts never give: something else has run, with unknown effects.
pub(crate) fn strange(what: &impl Debug) -> Fault {
    let mut text = Begin(String::new());
    // It fails when there is enough.
    let _ = write!(text, "{what:?}");
    let Begin(text) = text;
    // What follows is a list of numbers: the bytes of a text that is not UTF-8, or of a number.
    let is_listed = ["binary-data", "big-number"];
    let end = is_listed.iter().filter_map(|word| text.find(word)).min();
    let text = &text[..end.unwrap_or(text.len())];
    Fault::Unanswered(said(format!("the server sent an unexpected reply: {}", shown(text))))
}

/// As much of a text as can be shown: an answer may be long.
struct Begin(String);

impl Write for Begin {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = SEARCHED.saturating_sub(self.0.len());
        self.0.push_str(begin(more, room));
        if more.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_number_is_an_answer_and_a_text_a_refusal() {
        let reply = Value::Array(vec![Value::Int(-2)]);
        assert_eq!(number(reply).unwrap(), -2);
        let refusal = Value::Array(vec![Value::BulkString(b"OOM command not allowed".to_vec())]);
        assert!(matches!(number(refusal), Err(Fault::Refused(_))));
    }

    #[test]
    fn a_release_whose_line_is_not_done_has_found_a_hold_or_not() {
        assert!(released(1).unwrap() && !released(0).unwrap());
        assert!(matches!(released(-2), Err(Fault::Unfinished { found: true })));
        assert!(matches!(released(-1), Err(Fault::Unfinished { found: false })));
    }

    #[test]
    fn an_unexpected_answer_leaves_the_outcome_unknown_and_does_not_panic() {
        for reply in [Value::Nil, Value::Okay, Value::Array(vec![]), Value::Array(vec![Value::Nil])]
        {
            assert!(number(reply).unwrap_err().may_have_run());
        }
    }

    #[test]
    fn a_long_answer_is_read_only_as_far_as_it_is_shown() {
        struct Long<'a>(&'a Cell<usize>);
        impl Debug for Long<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (0..SEARCHED * 10).try_for_each(|_| {
                    self.0.set(self.0.get() + 1);
                    f.write_str("ö")
                })
            }
        }
        let read = Cell::new(0);
        let fault = strange(&Long(&read));
        assert!(format!("{fault:?}").contains("ööö"), "{fault:?}");
        assert!(read.get() <= SEARCHED, "{}", read.get());
    }
}
