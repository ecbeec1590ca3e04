//! Lists.

use std::collections::VecDeque;

use super::{owned, places, there};
use crate::number;
use crate::reply::{Answer, Reply, refusal};
use crate::state::{Caller, State};
use crate::version::Version;

type List = VecDeque<Vec<u8>>;

pub(super) fn lpush(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    push(state, caller, words, List::push_front)
}

pub(super) fn rpush(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    push(state, caller, words, List::push_back)
}

fn push(state: &mut State, caller: Caller, words: &[&[u8]], at: fn(&mut List, Vec<u8>)) -> Answer {
    let (keys, now) = there(state, caller);
    let list = keys.get_or_create::<List>(words[1], now)?;
    words[2..].iter().for_each(|item| at(list, item.to_vec()));
    Ok(Reply::count(list.len()))
}

pub(super) fn lpop(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    pop(state, caller, words, List::pop_front)
}

pub(super) fn rpop(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    pop(state, caller, words, List::pop_back)
}

fn pop(
    state: &mut State,
    caller: Caller,
    words: &[&[u8]],
    at: fn(&mut List) -> Option<Vec<u8>>,
) -> Answer {
    let (keys, now) = there(state, caller);
    if words.len() > 3 {
        let name = String::from_utf8_lossy(words[0]).to_lowercase();
        return Err(Reply::error(format!("ERR wrong number of arguments for '{name}' command")));
    }
    let negative = || Reply::error("ERR value is out of range, must be positive");
    let count = words
        .get(2)
        .map(|word| number::integer(word).filter(|count| *count >= 0).ok_or_else(negative));
    let count = count.transpose()?;
    let Some(list) = keys.get_mut::<List>(words[1], now)? else {
        return Ok(if count.is_some() { Reply::NilArray } else { Reply::Nil });
    };
    let reply = match count {
        None => at(list).into(),
        Some(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(list.len());
            Reply::Array((0..count).filter_map(|_| at(list)).map(Reply::Bulk).collect())
        }
    };
    keys.drop_if_empty(words[1]);
    Ok(reply)
}

pub(super) fn llen(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    Ok(Reply::count(keys.get::<List>(words[1], now)?.map_or(0, List::len)))
}

pub(super) fn lindex(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let Some(list) = keys.get::<List>(words[1], now)? else { return Ok(Reply::Nil) };
    let place = number::integer(words[2]).ok_or_else(refusal::not_an_integer)?;
    let place = if place < 0 { place.saturating_add(list.len() as i64) } else { place };
    Ok(usize::try_from(place).ok().and_then(|place| list.get(place)).cloned().into())
}

pub(super) fn lrange(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let first = number::integer(words[2]).ok_or_else(refusal::not_an_integer)?;
    let last = number::integer(words[3]).ok_or_else(refusal::not_an_integer)?;
    let Some(list) = keys.get::<List>(words[1], now)? else { return Ok(Reply::Array(Vec::new())) };
    let range = places(first, last, list.len());
    Ok(Reply::Array(list.range(range).map(|item| Reply::Bulk(owned(item))).collect()))
}

/// What Valkey says of the one integer that has no negative.
fn out_of_range() -> Reply {
    let text = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    Reply::error(text)
}

pub(super) fn lrem(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let version = state.version;
    let (keys, now) = there(state, caller);
    let count = number::integer(words[2]).ok_or_else(refusal::not_an_integer)?;
    if version.is_recent() && count == i64::MIN {
        return Err(out_of_range());
    }
    let Some(list) = keys.get_mut::<List>(words[1], now)? else { return Ok(Reply::Integer(0)) };
    let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let before = list.len();
    let mut keep = |item: &Vec<u8>| {
        let goes = left > 0 && item == words[3];
        left -= u64::from(goes);
        !goes
    };
    if count < 0 {
        let mut kept: List = list.drain(..).rev().filter(|item| keep(item)).collect();
        kept.make_contiguous().reverse();
        *list = kept;
    } else {
        list.retain(keep);
    }
    let gone = before - list.len();
    keys.drop_if_empty(words[1]);
    Ok(Reply::count(gone))
}

pub(super) fn lpos(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let version = state.version;
    let (mut rank, mut count, mut most) = (1, None, 0);
    for option in words[3..].chunks(2) {
        let &[name, value] = option else { return Err(refusal::syntax()) };
        let positive = |name: &str| {
            let number = number::integer(value).filter(|number| *number >= 0);
            number.ok_or_else(|| Reply::error(format!("ERR {name} can't be negative")))
        };
        match &*name.to_ascii_uppercase() {
            b"RANK" if version.is_recent() && number::integer(value) == Some(i64::MIN) => {
                return Err(out_of_range());
            }
            b"RANK" => rank = number::integer(value).ok_or_else(refusal::not_an_integer)?,
            b"COUNT" => count = Some(positive("COUNT")?),
            b"MAXLEN" => most = positive("MAXLEN")?,
            _ => return Err(refusal::syntax()),
        }
        if rank == 0 {
            let text = match version {
                Version::Redis6_2 => {
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second, ..."
                }
                _ => {
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                        or use negative to start from the end of the list"
                }
            };
            return Err(Reply::error(text));
        }
    }
    let (keys, now) = there(state, caller);
    let Some(list) = keys.get::<List>(words[1], now)? else {
        return Ok(if count.is_some() { Reply::Array(Vec::new()) } else { Reply::Nil });
    };
    let as_many = |count: i64| {
        if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) }
    };
    let forward: Box<dyn Iterator<Item = (usize, &Vec<u8>)>> = match rank > 0 {
        true => Box::new(list.iter().enumerate()),
        false => Box::new(list.iter().enumerate().rev()),
    };
    // The negative of the least integer is itself, so that the first match is far enough.
    let skipped = usize::try_from(rank.wrapping_abs().max(1) - 1).unwrap_or(usize::MAX);
    let found = forward.take(as_many(most)).filter(|(_, item)| *item == words[2]).skip(skipped);
    let mut found = found.map(|(place, _)| Reply::count(place));
    Ok(match count {
        Some(count) => Reply::Array(found.take(as_many(count)).collect()),
        None => found.next().unwrap_or(Reply::Nil),
    })
}
