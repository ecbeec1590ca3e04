//! Scripts: Lua 5.1 with the server's sandbox around it.

mod convert;
mod packing;
mod source;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};

use crate::admission::Barred;
use crate::reply::Reply;
use crate::state::{Caller, State};
use crate::version::Version;

/// The name by which errors call a script.
const SCRIPT: &str = "@user_script";
const PRELUDE: &str = "=prelude";

/// A script that was loaded. It compiles; what came of it is kept from its first call on, since a client loads ten times
/// as many as it calls, and the collector of Lua's garbage walks through all that is kept.
struct Script {
    text: Vec<u8>,
    compiled: OnceCell<Function>,
}

/// The interpreter and the scripts that it knows.
pub(crate) struct Scripts {
    lua: Lua,
    run: Function,
    /// Lua's own, which says in bytes what it does not understand.
    loadstring: Function,
    known: BTreeMap<String, Script>,
    version: Version,
    state: Rc<RefCell<State>>,
}

impl std::fmt::Debug for Scripts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripts").field("known", &self.known.len()).finish_non_exhaustive()
    }
}

impl Scripts {
    pub(crate) fn new(version: Version, state: Rc<RefCell<State>>) -> Self {
        let (lua, run, loadstring) = sandbox(version, &state).expect("the prelude is sound");
        Self { lua, run, loadstring, known: BTreeMap::new(), version, state }
    }

    /// Keeps a script, if it is new and compiles; its hash.
    pub(crate) fn load(&mut self, text: &[u8]) -> Result<String, Reply> {
        let hash = sha1_smol::Sha1::from(text).digest().to_string();
        if !self.known.contains_key(&hash) {
            let text = source::without_tail_calls(text).into_owned();
            self.compile(&text)?;
            self.known.insert(hash.clone(), Script { text, compiled: OnceCell::new() });
        }
        Ok(hash)
    }

    fn compile(&self, text: &[u8]) -> Result<Function, Reply> {
        type Compiled = (Option<Function>, Option<mlua::LuaString>);
        let text = self.lua.create_string(text);
        let compiled = text.and_then(|text| self.loadstring.call::<Compiled>((text, SCRIPT)));
        match compiled {
            Ok((Some(script), _)) => Ok(script),
            Ok((None, Some(message))) => Err(does_not_compile(&message.as_bytes())),
            Ok((None, None)) => Err(does_not_compile(b"")),
            Err(error) => Err(does_not_compile(error.to_string().as_bytes())),
        }
    }

    fn compiled<'a>(&self, script: &'a Script) -> Result<&'a Function, Reply> {
        if let Some(compiled) = script.compiled.get() {
            return Ok(compiled);
        }
        let compiled = self.compile(&script.text)?;
        Ok(script.compiled.get_or_init(|| compiled))
    }

    pub(crate) fn knows(&self, hash: &[u8]) -> bool {
        self.find(hash).is_some()
    }

    fn find(&self, hash: &[u8]) -> Option<(&String, &Script)> {
        let hash = std::str::from_utf8(hash).ok()?.to_ascii_lowercase();
        self.known.get_key_value(&hash)
    }

    pub(crate) fn flush(&mut self) {
        self.known.clear();
    }

    /// Runs a script that is known; nothing if it is not.
    pub(crate) fn run(
        &self,
        caller: Caller,
        hash: &[u8],
        keys: &[&[u8]],
        argv: &[&[u8]],
    ) -> Option<Reply> {
        let (hash, script) = self.find(hash)?;
        let script = match self.compiled(script) {
            Ok(script) => script,
            Err(refusal) => return Some(refusal),
        };
        self.state.borrow_mut().begin_script(caller);
        let outcome = self.call(script, keys, argv);
        self.state.borrow_mut().end_script();
        Some(match outcome {
            Ok((true, value)) => convert::to_reply(&value, self.version),
            Ok((false, error)) => convert::failure(&error, hash, self.version),
            Err(error) => Reply::error(format!("ERR Error running script: {error}")),
        })
    }

    fn call(
        &self,
        script: &Function,
        keys: &[&[u8]],
        argv: &[&[u8]],
    ) -> mlua::Result<(bool, Value)> {
        self.run.call((script, self.table(keys)?, self.table(argv)?))
    }

    fn table(&self, words: &[&[u8]]) -> mlua::Result<Table> {
        // A `str` goes straight onto Lua's stack, and nearly every word is one.
        let texts = words.iter().map(|word| std::str::from_utf8(word));
        if let Ok(texts) = texts.collect::<Result<Vec<_>, _>>() {
            return self.lua.create_sequence_from(texts);
        }
        let table = self.lua.create_table_with_capacity(words.len(), 0)?;
        for (place, word) in words.iter().enumerate() {
            table.raw_set(place + 1, self.lua.create_string(word)?)?;
        }
        Ok(table)
    }
}

fn does_not_compile(message: &[u8]) -> Reply {
    Reply::Error([b"ERR Error compiling script (new function): ", message].concat())
}

fn sandbox(
    version: Version,
    state: &Rc<RefCell<State>>,
) -> mlua::Result<(Lua, Function, Function)> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
    let redis = lua.create_table()?;
    // How far up the stack the script is: `redis.call` has a wrapper in Lua.
    let (direct, wrapped) = (1, 2);
    redis.set("pcall", caller_of_commands(&lua, version, state, direct)?)?;
    let call = caller_of_commands(&lua, version, state, wrapped)?;
    let sha1hex = |lua: &Lua, text: mlua::LuaString| {
        lua.create_string(sha1_smol::Sha1::from(&*text.as_bytes()).digest().to_string())
    };
    redis.set("sha1hex", lua.create_function(sha1hex)?)?;
    redis.set(
        "error_reply",
        lua.create_function(move |lua, text: MultiValue| {
            convert::error_reply(lua, &text, version)
        })?,
    )?;
    redis.set(
        "status_reply",
        lua.create_function(move |lua, text: MultiValue| {
            convert::status_reply(lua, &text, version)
        })?,
    )?;
    redis.set("log", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    redis.set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    for (level, name) in
        ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"].into_iter().enumerate()
    {
        redis.set(name, level)?;
    }
    lua.globals().set("redis", redis)?;
    lua.globals().set("struct", packing::library(&lua)?)?;
    let place = lua.create_function(|lua, ()| Ok(raised_at(lua)))?;
    let prelude = lua.load(include_str!("prelude.lua")).set_name(PRELUDE);
    let run =
        prelude.into_function()?.call((call, place, Value::Nil, Value::Nil, version.is_6()))?;
    let loadstring = lua.globals().get("loadstring")?;
    Ok((lua, run, loadstring))
}

/// The function by which scripts call commands. It returns errors as tables and raises none.
fn caller_of_commands(
    lua: &Lua,
    version: Version,
    state: &Rc<RefCell<State>>,
    level: usize,
) -> mlua::Result<Function> {
    let state = Rc::clone(state);
    let mut buffer = Vec::new();
    lua.create_function_mut(move |lua, args: MultiValue| {
        buffer.clear();
        let reply = match convert::words(&args, &mut buffer, version) {
            Err(Barred(text)) => Err(Barred(text)),
            Ok(ends) => {
                let mut start = 0;
                let words: Vec<&[u8]> = ends
                    .iter()
                    .map(|&end| &buffer[std::mem::replace(&mut start, end)..end])
                    .collect();
                state.borrow_mut().call_in_script(&words)
            }
        };
        match reply {
            Ok(reply) => convert::to_lua(lua, reply, version),
            Err(Barred(text)) => convert::barred(lua, &text, version, level),
        }
    })
}

/// Where an error was raised: the source and the line of the script's function, seen from the handler.
fn raised_at(lua: &Lua) -> (Option<String>, Option<i64>) {
    // 0 is this function, 1 the handler, 2 the function that raised it: C's `error`, the prelude's `redis.call`, or
    // the script.
    for level in 2..8 {
        let place = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let is_c = source.what == "C";
            let name = source.source.map(|name| name.into_owned()).unwrap_or_default();
            (is_c || name == PRELUDE, name, debug.current_line().map_or(-1, |line| line as i64))
        });
        match place {
            Some((true, ..)) => {}
            Some((false, name, line)) => return (Some(name), Some(line)),
            None => break,
        }
    }
    (None, None)
}
