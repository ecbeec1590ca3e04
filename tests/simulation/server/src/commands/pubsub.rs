//! Channels.

use super::owned;
use crate::glob;
use crate::refusal::c_text;
use crate::reply::{Answer, Reply};
use crate::state::{Caller, State};

pub(super) fn publish(state: &mut State, _: Caller, words: &[&[u8]]) -> Answer {
    Ok(Reply::count(state.publish(words[1], words[2], false)))
}

pub(super) fn spublish(state: &mut State, _: Caller, words: &[&[u8]]) -> Answer {
    Ok(Reply::count(state.publish(words[1], words[2], true)))
}

pub(super) fn subscribe(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    words[1..].iter().for_each(|channel| state.subscribe(caller, channel, false));
    Ok(Reply::Push(Vec::new()))
}

pub(super) fn ssubscribe(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    words[1..].iter().for_each(|channel| state.subscribe(caller, channel, true));
    Ok(Reply::Push(Vec::new()))
}

pub(super) fn unsubscribe(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    leave(state, caller, words, false)
}

pub(super) fn sunsubscribe(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    leave(state, caller, words, true)
}

fn leave(state: &mut State, caller: Caller, words: &[&[u8]], sharded: bool) -> Answer {
    let named: Vec<_> = words[1..].iter().map(|channel| owned(channel)).collect();
    let all = if named.is_empty() { state.subscribed(caller, sharded) } else { named };
    if all.is_empty() {
        state.unsubscribe(caller, None, sharded);
    }
    for channel in all {
        state.unsubscribe(caller, Some(&channel), sharded);
    }
    Ok(Reply::Push(Vec::new()))
}

pub(super) fn pubsub(state: &mut State, _: Caller, words: &[&[u8]]) -> Answer {
    let channels = &state.channels;
    match &*words[1].to_ascii_uppercase() {
        b"NUMSUB" => {
            let count = |channel: &[u8]| channels.get(channel).map_or(0, Vec::len);
            let each = words[2..]
                .iter()
                .flat_map(|channel| [Reply::Bulk(owned(channel)), Reply::count(count(channel))]);
            Ok(Reply::Array(each.collect()))
        }
        b"CHANNELS" if words.len() <= 3 => {
            let pattern = words.get(2).copied().unwrap_or(b"*");
            let matching = channels.keys().filter(|channel| glob::fits(pattern, channel));
            Ok(Reply::Array(matching.map(|channel| Reply::Bulk(channel.clone())).collect()))
        }
        b"CHANNELS" if !state.version.is_6() => {
            let named = c_text(words[1], 128);
            Err(Reply::error(format!(
                "ERR unknown subcommand or wrong number of arguments for '{named}'. Try PUBSUB HELP."
            )))
        }
        b"NUMPAT" if words.len() == 2 => Ok(Reply::Integer(0)),
        _ => Err(state.unknown_subcommand(words)),
    }
}
