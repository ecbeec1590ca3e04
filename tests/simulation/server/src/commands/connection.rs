//! Commands about the connection itself: its client, and its protocol.

use super::owned;
use crate::keys::DATABASES;
use crate::number;
use crate::refusal::c_text;
use crate::reply::{Answer, Reply, refusal};
use crate::resp::Protocol;
use crate::state::{Caller, State};
use crate::version::Version;

pub(super) fn ping(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    if words.len() > 2 {
        return Err(Reply::error("ERR wrong number of arguments for 'ping' command"));
    }
    let text = words.get(1).map(|text| Reply::Bulk(owned(text)));
    if state.listens_in_resp2(caller) {
        return Ok(Reply::Array(vec![Reply::bulk("pong"), text.unwrap_or(Reply::bulk(""))]));
    }
    Ok(text.unwrap_or(Reply::Status(b"PONG".to_vec())))
}

pub(super) fn echo(_: &mut State, _: Caller, words: &[&[u8]]) -> Answer {
    Ok(Reply::Bulk(owned(words[1])))
}

pub(super) fn select(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let number = number::integer(words[1]).ok_or_else(refusal::not_an_integer)?;
    if i32::try_from(number).is_err() {
        let text = "ERR value is out of range, value must between -2147483648 and 2147483647";
        return Err(Reply::error(text));
    }
    let database = usize::try_from(number).ok().filter(|database| *database < DATABASES);
    let database = database.ok_or_else(|| Reply::error("ERR DB index is out of range"))?;
    if state.cluster.is_some() && database > 0 {
        // Valkey's nodes may have several databases, and have one.
        let none = "ERR DB index is out of range";
        let valkey = state.version.is_valkey();
        let text = if valkey { none } else { "ERR SELECT is not allowed in cluster mode" };
        return Err(Reply::error(text));
    }
    state.select(caller, database);
    Ok(Reply::ok())
}

pub(super) fn auth(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    match words {
        [_, password] if state.password.is_none() => {
            let _ = password;
            let text = "ERR AUTH <password> called without any password configured for the default user. \
                        Are you sure your configuration is correct?";
            Err(Reply::error(text))
        }
        [_, password] => state.log_in(caller, b"default", password),
        [_, user, password] => state.log_in(caller, user, password),
        _ => Err(refusal::syntax()),
    }
}

pub(super) fn quit(state: &mut State, caller: Caller, _: &[&[u8]]) -> Answer {
    state.close_after_reply(caller);
    Ok(Reply::ok())
}

pub(super) fn reset(state: &mut State, caller: Caller, _: &[&[u8]]) -> Answer {
    state.reset(caller);
    Ok(Reply::Status(b"RESET".to_vec()))
}

pub(super) fn hello(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    let mut protocol = None;
    if let Some(wanted) = words.get(1) {
        let not_a_number =
            || Reply::error("ERR Protocol version is not an integer or out of range");
        protocol = Some(match number::integer(wanted).ok_or_else(not_a_number)? {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(Reply::error("NOPROTO unsupported protocol version")),
        });
    }
    let (mut rest, mut user, mut name) = (words.get(2..).unwrap_or(&[]), None, None);
    while let Some((option, after)) = rest.split_first() {
        rest = match (&*option.to_ascii_uppercase(), after) {
            (b"AUTH", [who, password, after @ ..]) => {
                user = Some((*who, *password));
                after
            }
            (b"SETNAME", [wanted, after @ ..]) => {
                check_name(wanted, state.version)?;
                name = Some(*wanted);
                after
            }
            _ => {
                let option = c_text(option, usize::MAX);
                return Err(Reply::error(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        };
    }
    if let Some((who, password)) = user {
        state.log_in(caller, who, password)?;
    }
    if !state.is_logged_in(caller) {
        let protocol = if state.version.is_recent() { "<proto> " } else { "" };
        return Err(Reply::error(format!(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO {protocol}AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
             the same time"
        )));
    }
    if let Some(name) = name {
        state.set_name(caller, name);
    }
    if let Some(protocol) = protocol {
        state.set_protocol(caller, protocol);
    }
    Ok(greeting(state, caller))
}

fn greeting(state: &State, caller: Caller) -> Reply {
    let version = state.version;
    let mut items = Vec::new();
    let mut say = |name: &str, value: Reply| items.extend([Reply::bulk(name), value]);
    say("server", Reply::bulk(if version.is_valkey() { "valkey" } else { "redis" }));
    say("version", Reply::bulk(version.number()));
    say("proto", Reply::Integer(if state.protocol(caller) == Protocol::Resp3 { 3 } else { 2 }));
    say("id", Reply::Integer(caller.conn.map_or(0, |conn| conn.0 as i64)));
    say("mode", Reply::bulk(state.mode()));
    if state.sentinel.is_none() {
        say("role", Reply::bulk(if state.replica { "replica" } else { "master" }));
    }
    say("modules", Reply::Array(Vec::new()));
    Reply::Map(items)
}

/// Valkey looks at no more than comes before the first NUL.
fn check_name(name: &[u8], version: Version) -> Result<(), Reply> {
    let end = name.iter().position(|byte| *byte == 0 && version.is_recent());
    let fine = name[..end.unwrap_or(name.len())].iter().all(|byte| (b'!'..=b'~').contains(byte));
    fine.then_some(()).ok_or_else(|| {
        Reply::error("ERR Client names cannot contain spaces, newlines or special characters.")
    })
}

pub(super) fn client(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    match (&*words[1].to_ascii_uppercase(), &words[2..]) {
        (b"ID", []) => Ok(Reply::Integer(caller.conn.map_or(0, |conn| conn.0 as i64))),
        (b"GETNAME", []) => Ok(state.name(caller).filter(|name| !name.is_empty()).into()),
        (b"SETNAME", [name]) => {
            check_name(name, state.version)?;
            state.set_name(caller, name);
            Ok(Reply::ok())
        }
        (b"SETINFO", [_, _]) if state.version.is_recent() => set_info(words, state.version),
        (b"KILL", [_address]) => Err(Reply::error("ERR No such client")),
        (b"KILL", []) if state.version.is_6() => Err(refusal::syntax()),
        (b"KILL", filters) if !filters.is_empty() => kill(state, caller, filters),
        _ => Err(state.unknown_subcommand(words)),
    }
}

fn set_info(words: &[&[u8]], version: Version) -> Answer {
    let named = c_text(words[2], usize::MAX);
    let attribute = named.to_ascii_lowercase();
    if !matches!(&*attribute, "lib-name" | "lib-ver") {
        return Err(Reply::error(format!("ERR Unrecognized option '{named}'")));
    }
    if check_name(words[3], version).is_err() {
        return Err(Reply::error(format!(
            "ERR {attribute} cannot contain spaces, newlines or special characters."
        )));
    }
    Ok(Reply::ok())
}

/// By `ID`, by `TYPE normal` or `TYPE pubsub`, with `SKIPME`.
fn kill(state: &mut State, caller: Caller, filters: &[&[u8]]) -> Answer {
    let (mut id, mut listens, mut skip_me) = (None, None, true);
    for filter in filters.chunks(2) {
        let &[name, value] = filter else { return Err(refusal::syntax()) };
        let value = value.to_ascii_lowercase();
        match (&*name.to_ascii_uppercase(), &*value) {
            (b"ID", value) => {
                let number = number::integer(value);
                // To 6.2, 0 is any client.
                if !(state.version.is_6() && number == Some(0)) {
                    let text = "ERR client-id should be greater than 0";
                    let number = number.filter(|id| *id > 0);
                    id = Some(number.ok_or_else(|| Reply::error(text))? as u64);
                }
            }
            (b"TYPE", b"normal") => listens = Some(false),
            (b"TYPE", b"pubsub") => listens = Some(true),
            (b"TYPE", _) => {
                let unknown = c_text(filter[1], usize::MAX);
                return Err(Reply::error(format!("ERR Unknown client type '{unknown}'")));
            }
            (b"SKIPME", b"yes") => skip_me = true,
            (b"SKIPME", b"no") => skip_me = false,
            _ => return Err(refusal::syntax()),
        }
    }
    let killed = state.kill(|conn, connection| {
        id.is_none_or(|id| conn.0 == id)
            && listens.is_none_or(|listens| listens != connection.channels.is_empty())
            && !(skip_me && caller.conn == Some(conn))
    });
    Ok(Reply::count(killed))
}
