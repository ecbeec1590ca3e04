//! Texts, and the numbers in them.

use super::set_options::Options;
use super::there;
use crate::keys::Value;
use crate::number;
use crate::reply::{Answer, Reply, refusal};
use crate::state::{Caller, State};

pub(super) fn get(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    Ok(keys.get::<Vec<u8>>(words[1], now)?.cloned().into())
}

pub(super) fn set(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let version = state.version;
    let (keys, now) = there(state, caller);
    let options = Options::parse(&words[3..], now, version)?;
    let before = match options.get {
        true => keys.get::<Vec<u8>>(words[1], now)?.cloned(),
        false => None,
    };
    let is_there = keys.any(words[1], now).is_some();
    if options.only_if_there.is_some_and(|wanted| wanted != is_there) {
        return Ok(if options.get { before.into() } else { Reply::Nil });
    }
    let ends = if options.keep_ttl { keys.ends(words[1], now).flatten() } else { options.ends };
    keys.put(words[1], Value::Text(words[2].to_vec()), ends);
    if options.ends.is_some_and(|ends| ends < now) {
        keys.remove(words[1], now);
    }
    Ok(if options.get { before.into() } else { Reply::ok() })
}

pub(super) fn incr(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    add(state, caller, words[1], 1)
}

pub(super) fn decr(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    add(state, caller, words[1], -1)
}

pub(super) fn incrby(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let by = number::integer(words[2]).ok_or_else(refusal::not_an_integer)?;
    add(state, caller, words[1], by)
}

pub(super) fn decrby(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let by = number::integer(words[2]).ok_or_else(refusal::not_an_integer)?;
    let Some(by) = by.checked_neg() else {
        // To 6.2, the negative of the least integer is itself.
        return match state.version.is_6() {
            true => add(state, caller, words[1], by),
            false => Err(Reply::error("ERR decrement would overflow")),
        };
    };
    add(state, caller, words[1], by)
}

fn add(state: &mut State, caller: Caller, key: &[u8], by: i64) -> Answer {
    let (keys, now) = there(state, caller);
    let text = keys.get::<Vec<u8>>(key, now)?;
    let before =
        text.map_or(Some(0), |text| number::integer(text)).ok_or_else(refusal::not_an_integer)?;
    let overflow = || Reply::error("ERR increment or decrement would overflow");
    let value = before.checked_add(by).ok_or_else(overflow)?;
    *keys.get_or_create::<Vec<u8>>(key, now)? = value.to_string().into_bytes();
    Ok(Reply::Integer(value))
}
