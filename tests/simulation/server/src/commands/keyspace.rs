//! Keys, whatever they hold.

use super::set_options::invalid_expire;
use super::{owned, there};
use crate::glob;
use crate::number;
use crate::refusal::c_text;
use crate::reply::{Answer, Reply, refusal};
use crate::state::{Caller, State};

pub(super) fn del(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    Ok(Reply::count(words[1..].iter().filter(|key| keys.remove(key, now)).count()))
}

pub(super) fn exists(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    Ok(Reply::count(words[1..].iter().filter(|key| keys.any(key, now).is_some()).count()))
}

pub(super) fn kind(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let kind = keys.any(words[1], now).map_or("none", |value| value.kind());
    Ok(Reply::Status(kind.into()))
}

pub(super) fn pexpire(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    expire_in(state, caller, words, "pexpire", 1)
}

pub(super) fn expire(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    expire_in(state, caller, words, "expire", 1000)
}

fn expire_in(
    state: &mut State,
    caller: Caller,
    words: &[&[u8]],
    command: &str,
    unit: i64,
) -> Answer {
    let version = state.version;
    let (keys, now) = there(state, caller);
    let condition = Condition::parse(&words[3..])?;
    let amount = number::integer(words[2]).ok_or_else(refusal::not_an_integer)?;
    let ends = amount.checked_mul(unit).and_then(|ms| ms.checked_add(now));
    let ends = ends.ok_or_else(|| invalid_expire(command, version))?;
    let Some(before) = keys.ends(words[1], now) else { return Ok(Reply::Integer(0)) };
    if !condition.allows(before, ends) {
        return Ok(Reply::Integer(0));
    }
    if ends <= now {
        keys.remove(words[1], now);
    } else {
        keys.set_end(words[1], Some(ends));
    }
    Ok(Reply::Integer(1))
}

/// On what a new TTL depends.
#[derive(Debug, Default)]
struct Condition {
    none_yet: bool,
    one_already: bool,
    later: bool,
    earlier: bool,
}

impl Condition {
    fn parse(words: &[&[u8]]) -> Result<Self, Reply> {
        let mut condition = Self::default();
        for word in words {
            match &*word.to_ascii_uppercase() {
                b"NX" => condition.none_yet = true,
                b"XX" => condition.one_already = true,
                b"GT" => condition.later = true,
                b"LT" => condition.earlier = true,
                _ => {
                    let word = c_text(word, usize::MAX);
                    return Err(Reply::error(format!("ERR Unsupported option {word}")));
                }
            }
        }
        if condition.none_yet && (condition.one_already || condition.later || condition.earlier) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(Reply::error(text));
        }
        if condition.later && condition.earlier {
            return Err(Reply::error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(condition)
    }

    fn allows(&self, before: Option<i64>, ends: i64) -> bool {
        let refused = self.none_yet && before.is_some()
            || self.one_already && before.is_none()
            || self.later && before.is_none_or(|before| ends <= before)
            || self.earlier && before.is_some_and(|before| ends >= before);
        !refused
    }
}

pub(super) fn pttl(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    Ok(Reply::Integer(match keys.ends(words[1], now) {
        None => -2,
        Some(None) => -1,
        Some(Some(ends)) => ends - now,
    }))
}

pub(super) fn ttl(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let ms = pttl(state, caller, words)?;
    Ok(match ms {
        Reply::Integer(ms) if ms >= 0 => Reply::Integer(ms.saturating_add(500) / 1000),
        other => other,
    })
}

pub(super) fn persist(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let had_one = keys.ends(words[1], now).flatten().is_some();
    if had_one {
        keys.set_end(words[1], None);
    }
    Ok(had_one.into())
}

pub(super) fn dbsize(state: &mut State, caller: Caller, _: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    Ok(Reply::count(keys.iter(now).count()))
}

pub(super) fn flushall(state: &mut State, _: Caller, words: &[&[u8]]) -> Answer {
    check_flush(words)?;
    state.keys.iter_mut().for_each(|keys| keys.clear());
    Ok(Reply::ok())
}

pub(super) fn flushdb(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    check_flush(words)?;
    there(state, caller).0.clear();
    Ok(Reply::ok())
}

pub(super) fn check_flush(words: &[&[u8]]) -> Result<(), Reply> {
    let known = |word: &[u8]| matches!(&*word.to_ascii_uppercase(), b"ASYNC" | b"SYNC");
    let fine = words.len() == 1 || words.len() == 2 && known(words[1]);
    fine.then_some(()).ok_or_else(refusal::syntax)
}

pub(super) fn keys(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let matching = keys.iter(now).filter(|(key, ..)| glob::fits(words[1], key));
    Ok(Reply::Array(matching.map(|(key, ..)| Reply::Bulk(owned(key))).collect()))
}

/// All at once, whatever COUNT says: as a small key space is answered.
pub(super) fn scan(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let invalid = || Reply::error("ERR invalid cursor");
    let cursor = number::integer(words[1]).ok_or_else(invalid)?;
    let (mut pattern, mut kind) = (&b"*"[..], None);
    for option in words[2..].chunks(2) {
        let &[name, value] = option else { return Err(refusal::syntax()) };
        match &*name.to_ascii_uppercase() {
            b"MATCH" => pattern = value,
            b"COUNT" => {
                let count = number::integer(value).ok_or_else(refusal::not_an_integer)?;
                if count < 1 {
                    return Err(refusal::syntax());
                }
            }
            b"TYPE" => kind = Some(value.to_ascii_lowercase()),
            _ => return Err(refusal::syntax()),
        }
    }
    let found = keys.iter(now).filter(|(key, value, _)| {
        cursor == 0
            && glob::fits(pattern, key)
            && kind.as_ref().is_none_or(|kind| value.kind().as_bytes() == kind)
    });
    let found = found.map(|(key, ..)| Reply::Bulk(owned(key))).collect();
    Ok(Reply::Array(vec![Reply::bulk("0"), Reply::Array(found)]))
}
