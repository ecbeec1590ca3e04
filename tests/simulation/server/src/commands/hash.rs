//! Hashes.

use super::{owned, there};
use crate::keys::Hash;
use crate::number;
use crate::reply::{Answer, Reply, refusal};
use crate::state::{Caller, State};

pub(super) fn hset(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    if !words.len().is_multiple_of(2) {
        return Err(Reply::error("ERR wrong number of arguments for 'hset' command"));
    }
    let (keys, now) = there(state, caller);
    keys.get::<Hash>(words[1], now)?;
    keys.wrote();
    let hash = keys.get_or_create::<Hash>(words[1], now)?;
    Ok(Reply::count(words[2..].chunks(2).filter(|pair| hash.set(pair[0], pair[1])).count()))
}

pub(super) fn hget(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let hash = keys.get::<Hash>(words[1], now)?;
    Ok(hash.and_then(|hash| hash.get(words[2])).map(owned).into())
}

pub(super) fn hmget(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let hash = keys.get::<Hash>(words[1], now)?;
    let value = |field: &&[u8]| hash.and_then(|hash| hash.get(field)).map(owned).into();
    Ok(Reply::Array(words[2..].iter().map(value).collect()))
}

pub(super) fn hdel(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let Some(hash) = keys.get_mut::<Hash>(words[1], now)? else { return Ok(Reply::Integer(0)) };
    let gone = words[2..].iter().filter(|field| hash.remove(field)).count();
    keys.drop_if_empty(words[1]);
    Ok(Reply::count(gone))
}

pub(super) fn hexists(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let hash = keys.get::<Hash>(words[1], now)?;
    Ok(hash.is_some_and(|hash| hash.get(words[2]).is_some()).into())
}

pub(super) fn hlen(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    Ok(Reply::count(keys.get::<Hash>(words[1], now)?.map_or(0, Hash::len)))
}

pub(super) fn hkeys(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    Ok(Reply::Array(pairs(state, caller, words)?.into_iter().map(|(field, _)| field).collect()))
}

pub(super) fn hvals(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    Ok(Reply::Array(pairs(state, caller, words)?.into_iter().map(|(_, value)| value).collect()))
}

pub(super) fn hgetall(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let pairs = pairs(state, caller, words)?;
    Ok(Reply::Map(pairs.into_iter().flat_map(|(field, value)| [field, value]).collect()))
}

fn pairs(state: &mut State, caller: Caller, words: &[&[u8]]) -> Result<Vec<(Reply, Reply)>, Reply> {
    let (keys, now) = there(state, caller);
    let bulk = |bytes: &[u8]| Reply::Bulk(owned(bytes));
    let hash = keys.get::<Hash>(words[1], now)?;
    let pairs = hash.into_iter().flat_map(Hash::iter);
    Ok(pairs.map(|(field, value)| (bulk(field), bulk(value))).collect())
}

pub(super) fn hincrby(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let by = number::integer(words[3]).ok_or_else(refusal::not_an_integer)?;
    let before = keys.get::<Hash>(words[1], now)?.map_or(Some(0), |hash| hash.number(words[2]));
    let before = before.ok_or_else(|| Reply::error("ERR hash value is not an integer"))?;
    let overflow = || Reply::error("ERR increment or decrement would overflow");
    let value = before.checked_add(by).ok_or_else(overflow)?;
    keys.get_or_create::<Hash>(words[1], now)?.set(words[2], value.to_string().as_bytes());
    Ok(Reply::Integer(value))
}
