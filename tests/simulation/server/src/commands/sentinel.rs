//! What a sentinel is asked.

use crate::reply::{Answer, Reply};
use crate::state::{Caller, State};

/// The commands that a sentinel has.
const ITS_OWN: [&str; 11] = [
    "auth",
    "client",
    "hello",
    "info",
    "ping",
    "publish",
    "quit",
    "reset",
    "sentinel",
    "subscribe",
    "unsubscribe",
];

/// Whether a server that is a sentinel, or is none, has a command.
pub(crate) fn has(is_sentinel: bool, command: &str) -> bool {
    if is_sentinel { ITS_OWN.contains(&command) } else { command != "sentinel" }
}

pub(super) fn sentinel(state: &mut State, _: Caller, words: &[&[u8]]) -> Answer {
    let Some(sentinel) = &state.sentinel else { return Err(state.unknown_subcommand(words)) };
    let asked = words[1].to_ascii_uppercase();
    if asked == b"MYID" && words.len() == 2 {
        return Ok(Reply::bulk(&sentinel.id));
    }
    let wants_name = matches!(&*asked, b"MASTER" | b"SENTINELS" | b"GET-MASTER-ADDR-BY-NAME")
        && words.len() == 3;
    if !wants_name {
        return Err(state.unknown_subcommand(words));
    }
    let watched = &sentinel.watched;
    let is_known = words[2] == watched.service.as_bytes();
    let bulk = |text: &str| Reply::bulk(text);
    match &*asked {
        b"GET-MASTER-ADDR-BY-NAME" if !is_known => Ok(Reply::NilArray),
        b"GET-MASTER-ADDR-BY-NAME" => {
            Ok(Reply::Array(vec![bulk(&watched.host), bulk(&watched.port.to_string())]))
        }
        _ if !is_known => Err(Reply::error("ERR No such master with that name")),
        b"MASTER" => Ok(described(&[
            ("name", &watched.service),
            ("ip", &sentinel.described.0),
            ("port", &sentinel.described.1.to_string()),
            ("flags", "master"),
            ("config-epoch", &watched.epoch.to_string()),
        ])),
        _ => {
            let one = |(host, port): &(String, u16)| {
                described(&[("ip", host), ("port", &port.to_string()), ("flags", "sentinel")])
            };
            Ok(Reply::Array(sentinel.others.iter().map(one).collect()))
        }
    }
}

fn described(fields: &[(&str, &str)]) -> Reply {
    let words = fields.iter().flat_map(|(name, value)| [*name, *value]);
    Reply::Map(words.map(Reply::bulk).collect())
}
