//! Values on their way into Lua and out of it.

use mlua::{IntoLua, Lua, MultiValue, Table, Value};

use crate::admission::Barred;
use crate::number;
use crate::reply::Reply;
use crate::version::Version;

/// The arguments of a call, one behind the other; where each of them ends.
pub(super) fn words(
    args: &MultiValue,
    buffer: &mut Vec<u8>,
    version: Version,
) -> Result<Vec<usize>, Barred> {
    if args.is_empty() {
        return Err(Barred(match version {
            Version::Redis6_2 => "Please specify at least one argument for redis.call()".into(),
            Version::Redis7_0 | Version::Redis8_2 => {
                "Please specify at least one argument for this redis lib call".into()
            }
            Version::Valkey9_1 => "Please specify at least one argument for this call".into(),
        }));
    }
    let mut ends = Vec::with_capacity(args.len());
    for arg in args {
        match arg {
            Value::String(text) => buffer.extend_from_slice(&text.as_bytes()),
            Value::Integer(value) => number::argument(buffer, *value as f64, version),
            Value::Number(value) => number::argument(buffer, *value, version),
            _ => {
                return Err(Barred(match version {
                    Version::Redis6_2 => {
                        "Lua redis() command arguments must be strings or integers".into()
                    }
                    Version::Redis7_0 | Version::Redis8_2 => {
                        "Lua redis lib command arguments must be strings or integers".into()
                    }
                    Version::Valkey9_1 => "Command arguments must be strings or integers".into(),
                }));
            }
        }
        ends.push(buffer.len());
    }
    Ok(ends)
}

/// A reply as a script sees it: in RESP2, whatever the connection speaks.
pub(super) fn to_lua(lua: &Lua, reply: Reply, version: Version) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Integer(value) => Value::Number(value as f64),
        Reply::Bulk(bytes) | Reply::Text(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Nil | Reply::NilArray => Value::Boolean(false),
        Reply::Status(text) => single(lua, "ok", &text)?,
        Reply::Error(text) => single(lua, "err", &text)?,
        Reply::Double(value) => number::score(value, version).into_lua(lua)?,
        Reply::Array(items) | Reply::Map(items) | Reply::Push(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (place, item) in items.into_iter().enumerate() {
                table.raw_set(place + 1, to_lua(lua, item, version)?)?;
            }
            Value::Table(table)
        }
        Reply::Scores(items) => {
            let table = lua.create_table_with_capacity(items.len() * 2, 0)?;
            for (member, score) in items {
                table.raw_push(lua.create_string(member)?)?;
                table.raw_push(number::score(score, version))?;
            }
            Value::Table(table)
        }
    })
}

fn single(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// What a script returned.
pub(super) fn to_reply(value: &Value, version: Version) -> Reply {
    match value {
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Integer(value) => Reply::Integer(*value),
        Value::Number(value) => Reply::Integer(number::truncated(*value)),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => from_table(table, version),
        _ => Reply::Nil,
    }
}

fn from_table(table: &Table, version: Version) -> Reply {
    if let Some(text) = text_of(table, "err") {
        return Reply::Error(text);
    }
    if let Some(text) = text_of(table, "ok") {
        return Reply::Status(text);
    }
    let mut items = Vec::with_capacity(table.raw_len());
    for place in 1.. {
        match table.raw_get(place) {
            Ok(Value::Nil) | Err(_) => break,
            Ok(item) => items.push(to_reply(&item, version)),
        }
    }
    Reply::Array(items)
}

/// A text of a table, as C reads it: to its first NUL.
fn text_of(table: &Table, name: &str) -> Option<Vec<u8>> {
    match table.raw_get(name) {
        Ok(Value::String(text)) => Some(to_nul(&text.as_bytes()).to_vec()),
        _ => None,
    }
}

fn to_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// What a script is told whose error nobody caught.
pub(super) fn failure(error: &Value, hash: &str, version: Version) -> Reply {
    let mut text = Vec::new();
    match error {
        Value::String(message) => {
            text.extend_from_slice(
                format!("ERR Error running script (call to f_{hash}): ").as_bytes(),
            );
            text.extend_from_slice(to_nul(&message.as_bytes()));
        }
        Value::Table(table) => {
            text = text_of(table, "err").unwrap_or_else(|| b"ERR unknown error".to_vec());
            let source: Option<String> = table.raw_get("source").ok().flatten();
            let line: Option<i64> = table.raw_get("line").ok().flatten();
            if let Some((source, line)) = source.zip(line) {
                let script = if version.is_valkey() { String::new() } else { format!(" {hash},") };
                text.extend_from_slice(format!(" script:{script} on {source}:{line}.").as_bytes());
            }
        }
        _ => text.extend_from_slice(b"ERR execution failure"),
    }
    Reply::Error(text)
}

/// An error of the Lua side of the server, as it is handed to a script.
pub(super) fn barred(lua: &Lua, text: &str, version: Version, level: usize) -> mlua::Result<Value> {
    if !version.is_6() {
        let coded = text.strip_prefix('-').map_or_else(|| format!("ERR {text}"), str::to_owned);
        return single(lua, "err", coded.as_bytes());
    }
    let place = lua.inspect_stack(level, |debug| {
        let source = debug.source().source.map(|name| name.into_owned()).unwrap_or_default();
        (source, debug.current_line().map_or(-1, |line| line as i64))
    });
    let text =
        place.map_or_else(|| text.to_owned(), |(source, line)| format!("{source}: {line}: {text}"));
    single(lua, "err", text.as_bytes())
}

/// `redis.error_reply`
pub(super) fn error_reply(lua: &Lua, args: &MultiValue, version: Version) -> mlua::Result<Value> {
    let Some(text) = only_text(args) else { return wrong_arguments(lua, version) };
    if version.is_6() {
        return single(lua, "err", &text);
    }
    let bare = to_nul(text.strip_prefix(b"-").unwrap_or(&text));
    let code: &[u8] = if bare.contains(&b' ') { b"" } else { b"ERR " };
    single(lua, "err", &[code, bare].concat())
}

/// `redis.status_reply`
pub(super) fn status_reply(lua: &Lua, args: &MultiValue, version: Version) -> mlua::Result<Value> {
    only_text(args).map_or_else(|| wrong_arguments(lua, version), |text| single(lua, "ok", &text))
}

fn only_text(args: &MultiValue) -> Option<Vec<u8>> {
    match args.iter().collect::<Vec<_>>()[..] {
        [Value::String(text)] => Some(text.as_bytes().to_vec()),
        _ => None,
    }
}

fn wrong_arguments(lua: &Lua, version: Version) -> mlua::Result<Value> {
    barred(lua, "wrong number or type of arguments", version, 1)
}
