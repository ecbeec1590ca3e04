//! Sorted sets.

use super::{places, there};
use crate::keys::Zset;
use crate::number;
use crate::reply::{Answer, Reply, refusal};
use crate::state::{Caller, State};
use crate::version::Version;

/// What ZADD is asked for beside its members.
#[derive(Debug, Default)]
struct Manner {
    only_new: bool,
    only_there: bool,
    greater: bool,
    less: bool,
    changed: bool,
    incr: bool,
}

impl Manner {
    /// The options, and how many words they are.
    fn parse(words: &[&[u8]]) -> (Self, usize) {
        let (mut manner, mut read) = (Self::default(), 0);
        for word in words {
            match &*word.to_ascii_uppercase() {
                b"NX" => manner.only_new = true,
                b"XX" => manner.only_there = true,
                b"GT" => manner.greater = true,
                b"LT" => manner.less = true,
                b"CH" => manner.changed = true,
                b"INCR" => manner.incr = true,
                _ => break,
            }
            read += 1;
        }
        (manner, read)
    }

    fn check(&self, members: usize) -> Result<(), Reply> {
        if self.only_new && self.only_there {
            return Err(Reply::error("ERR XX and NX options at the same time are not compatible"));
        }
        if self.greater && (self.only_new || self.less) || self.less && self.only_new {
            return Err(Reply::error(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.incr && members > 1 {
            return Err(Reply::error("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    fn allows(&self, before: Option<f64>, score: f64) -> bool {
        match before {
            None => !self.only_there,
            Some(before) => {
                !(self.only_new || self.greater && score <= before || self.less && score >= before)
            }
        }
    }
}

pub(super) fn zadd(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let version = state.version;
    let (keys, now) = there(state, caller);
    let (manner, options) = Manner::parse(&words[2..]);
    let pairs = &words[2 + options..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(refusal::syntax());
    }
    manner.check(pairs.len() / 2)?;
    let score = |pair: &[&[u8]]| number::double(pair[0], version).ok_or_else(refusal::not_a_float);
    let scores = pairs.chunks(2).map(score).collect::<Result<Vec<_>, _>>()?;
    let there_already = keys.get::<Zset>(words[1], now)?.is_some();
    if !there_already && manner.only_there {
        return Ok(if manner.incr { Reply::Nil } else { Reply::Integer(0) });
    }
    let zset = keys.get_or_create::<Zset>(words[1], now)?;
    let (mut added, mut updated, mut last) = (0, 0, None);
    for (pair, mut score) in pairs.chunks(2).zip(scores) {
        let before = zset.score(pair[1]);
        if let Some(before) = before.filter(|_| manner.incr && !manner.only_new) {
            score += before;
            if score.is_nan() {
                return Err(Reply::error("ERR resulting score is not a number (NaN)"));
            }
        }
        if !manner.allows(before, score) {
            continue;
        }
        last = Some(score);
        added += usize::from(before.is_none());
        if before != Some(score) {
            updated += usize::from(before.is_some());
            // A small set keeps a whole number as an integer, which has no minus zero; 6.2 keeps its text.
            zset.set(pair[1], if version.is_6() { score } else { score + 0.0 });
        }
    }
    keys.drop_if_empty(words[1]);
    if manner.incr {
        return Ok(last.map_or(Reply::Nil, Reply::Double));
    }
    Ok(Reply::count(if manner.changed { added + updated } else { added }))
}

pub(super) fn zcard(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    Ok(Reply::count(keys.get::<Zset>(words[1], now)?.map_or(0, Zset::len)))
}

pub(super) fn zscore(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let zset = keys.get::<Zset>(words[1], now)?;
    Ok(zset.and_then(|zset| zset.score(words[2])).map_or(Reply::Nil, Reply::Double))
}

pub(super) fn zmscore(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let zset = keys.get::<Zset>(words[1], now)?;
    let score = |member: &&[u8]| zset.and_then(|zset| zset.score(member));
    let scores = words[2..].iter().map(score);
    Ok(Reply::Array(scores.map(|score| score.map_or(Reply::Nil, Reply::Double)).collect()))
}

pub(super) fn zcount(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let span = Span::parse(words[2], words[3], state.version)?;
    let (keys, now) = there(state, caller);
    let members = keys.get::<Zset>(words[1], now)?.map_or(&[][..], Zset::members);
    Ok(Reply::count(members.iter().filter(|(_, score)| span.contains(*score)).count()))
}

pub(super) fn zrem(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let (keys, now) = there(state, caller);
    let Some(zset) = keys.get_mut::<Zset>(words[1], now)? else { return Ok(Reply::Integer(0)) };
    let gone = words[2..].iter().filter(|member| zset.remove(member)).count();
    keys.drop_if_empty(words[1]);
    Ok(Reply::count(gone))
}

pub(super) fn zremrangebyscore(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let span = Span::parse(words[2], words[3], state.version)?;
    let (keys, now) = there(state, caller);
    let Some(zset) = keys.get_mut::<Zset>(words[1], now)? else { return Ok(Reply::Integer(0)) };
    let gone = zset.remove_where(|score| span.contains(score));
    keys.drop_if_empty(words[1]);
    Ok(Reply::count(gone))
}

/// Scores from one to another, either of which may be left out.
#[derive(Debug)]
struct Span {
    least: (f64, bool),
    most: (f64, bool),
}

impl Span {
    fn parse(least: &[u8], most: &[u8], version: Version) -> Result<Self, Reply> {
        let end = |text: &[u8]| {
            let (text, left_out) =
                text.strip_prefix(b"(").map_or((text, false), |rest| (rest, true));
            Some((number::bound(text, version)?, left_out))
        };
        let ends = end(least).zip(end(most));
        let (least, most) = ends.ok_or_else(|| Reply::error("ERR min or max is not a float"))?;
        Ok(Self { least, most })
    }

    fn contains(&self, score: f64) -> bool {
        let above = if self.least.1 { score > self.least.0 } else { score >= self.least.0 };
        let below = if self.most.1 { score < self.most.0 } else { score <= self.most.0 };
        above && below
    }
}

/// What ZRANGE is asked for beside the ends.
#[derive(Debug, Default)]
struct Shape {
    scores: bool,
    by_score: bool,
    backwards: bool,
    limit: Option<(i64, i64)>,
}

impl Shape {
    fn parse(mut words: &[&[u8]]) -> Result<Self, Reply> {
        let mut shape = Self::default();
        while let Some((word, rest)) = words.split_first() {
            words = rest;
            match &*word.to_ascii_uppercase() {
                b"WITHSCORES" => shape.scores = true,
                b"BYSCORE" => shape.by_score = true,
                b"REV" => shape.backwards = true,
                b"LIMIT" if rest.len() >= 2 => {
                    let number = |word| number::integer(word).ok_or_else(refusal::not_an_integer);
                    shape.limit = Some((number(rest[0])?, number(rest[1])?));
                    words = &rest[2..];
                }
                _ => return Err(refusal::syntax()),
            }
        }
        // A LIMIT of -1 is as good as none.
        if shape.limit.is_some_and(|(_, count)| count != -1) && !shape.by_score {
            let text = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(Reply::error(text));
        }
        Ok(shape)
    }
}

pub(super) fn zrange(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let version = state.version;
    let (keys, now) = there(state, caller);
    let shape = Shape::parse(&words[4..])?;
    let found: Vec<(Vec<u8>, f64)> = if shape.by_score {
        let (least, most) =
            if shape.backwards { (words[3], words[2]) } else { (words[2], words[3]) };
        let span = Span::parse(least, most, version)?;
        let zset = keys.get::<Zset>(words[1], now)?;
        let members = zset.map_or(&[][..], Zset::members).iter();
        let inside = members.filter(|(_, score)| span.contains(*score)).cloned();
        let mut inside: Vec<_> = inside.collect();
        if shape.backwards {
            inside.reverse();
        }
        limited(inside, shape.limit)
    } else {
        let first = number::integer(words[2]).ok_or_else(refusal::not_an_integer)?;
        let last = number::integer(words[3]).ok_or_else(refusal::not_an_integer)?;
        let members = keys.get::<Zset>(words[1], now)?.map_or(&[][..], Zset::members);
        let range = places(first, last, members.len());
        match shape.backwards {
            true => members.iter().rev().skip(range.start).take(range.len()).cloned().collect(),
            false => members[range].to_vec(),
        }
    };
    Ok(match shape.scores {
        true => Reply::Scores(found),
        false => Reply::Array(found.into_iter().map(|(member, _)| Reply::Bulk(member)).collect()),
    })
}

fn limited<T>(items: Vec<T>, limit: Option<(i64, i64)>) -> Vec<T> {
    let Some((offset, count)) = limit else { return items };
    let Ok(offset) = usize::try_from(offset) else { return Vec::new() };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    items.into_iter().skip(offset).take(count).collect()
}
