//! All that the server knows, without the scripts: keys, connections, channels, and what it refuses.

use std::collections::{BTreeMap, BTreeSet};

use crate::commands::{self, Command};
use crate::connection::{Conn, Connection};
use crate::keys::{DATABASES, Database};
use crate::reply::{Answer, Reply};
use crate::resp::{self, Protocol};
use crate::version::Version;

/// On whose behalf a command runs: a connection's, or the operator's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) conn: Option<Conn>,
}

/// A script that is running.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    caller: Caller,
    database: usize,
    /// It has written something: from then on it may write until its end, though the memory is full.
    wrote: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) version: Version,
    /// In microseconds since the Unix epoch.
    pub(crate) now: u64,
    pub(crate) keys: Vec<Database>,
    pub(crate) connections: BTreeMap<Conn, Connection>,
    /// Who listens, in the order in which they came.
    pub(crate) channels: BTreeMap<Vec<u8>, Vec<Conn>>,
    pub(crate) outbox: Vec<(Conn, Vec<u8>)>,
    pub(crate) hang_ups: Vec<Conn>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) memory_full: bool,
    pub(crate) loading: bool,
    pub(crate) busy: bool,
    pub(crate) replica: bool,
    pub(crate) denied_commands: BTreeSet<String>,
    pub(crate) denies_channels: bool,
    /// Whose command is being carried out, and what is to be sent to it behind the reply.
    serving: Option<Conn>,
    behind_the_reply: Vec<Vec<u8>>,
    run: Option<Run>,
}

/// Why a script's call was not carried out, in the words of the server's Lua side, which are wrapped as such.
#[derive(Debug)]
pub(crate) struct Barred(pub(crate) String);

impl State {
    pub(crate) fn new(version: Version) -> Self {
        Self {
            version,
            now: 0,
            keys: vec![Database::default(); DATABASES],
            connections: BTreeMap::new(),
            channels: BTreeMap::new(),
            outbox: Vec::new(),
            hang_ups: Vec::new(),
            password: None,
            memory_full: false,
            loading: false,
            busy: false,
            replica: false,
            denied_commands: BTreeSet::new(),
            denies_channels: false,
            serving: None,
            behind_the_reply: Vec::new(),
            run: None,
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        (self.now / 1000) as i64
    }

    pub(crate) fn database(&mut self, caller: Caller) -> &mut Database {
        let number = match self.run {
            Some(run) => run.database,
            None => self.connection(caller).map_or(0, |connection| connection.database),
        };
        &mut self.keys[number]
    }

    fn connection(&self, caller: Caller) -> Option<&Connection> {
        self.connections.get(&caller.conn?)
    }

    fn connection_mut(&mut self, caller: Caller) -> Option<&mut Connection> {
        self.connections.get_mut(&caller.conn?)
    }

    // What may be called.

    /// Finds a command and whatever forbids it now.
    pub(crate) fn admit(&self, caller: Caller, words: &[&[u8]]) -> Result<&'static Command, Reply> {
        let command = commands::find(words[0]).ok_or_else(|| self.unknown(words))?;
        if !command.takes(words.len(), self.version) {
            return Err(wrong_arity(command.name));
        }
        self.check(caller, command, words)?;
        Ok(command)
    }

    fn check(&self, caller: Caller, command: &Command, words: &[&[u8]]) -> Result<(), Reply> {
        if !self.is_logged_in(caller)
            && !matches!(command.name, "auth" | "hello" | "quit" | "reset")
        {
            return Err(Reply::error("NOAUTH Authentication required."));
        }
        if let Some(denial) = self.denial(caller, command, words) {
            return Err(Reply::error(denial.to_client(self.version)));
        }
        if self.memory_full && command.is(commands::GROWS) {
            return Err(Reply::error(OUT_OF_MEMORY));
        }
        if self.replica && command.is(commands::WRITE) && caller.conn.is_some() {
            return Err(Reply::error(READ_ONLY));
        }
        if self.listens_in_resp2(caller) && !command.is(commands::SUBSCRIBED) {
            let kinds = if self.version.is_6() { "P" } else { "P|S" };
            let name = command.name;
            return Err(Reply::error(format!(
                "ERR Can't execute '{name}': only ({kinds})SUBSCRIBE / ({kinds})UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context"
            )));
        }
        if self.loading && !command.is(commands::LOADING) && caller.conn.is_some() {
            let name = self.version.name();
            return Err(Reply::error(format!("LOADING {name} is loading the dataset in memory")));
        }
        if self.busy && !command.is(commands::BUSY) && caller.conn.is_some() {
            let name = self.version.name();
            return Err(Reply::error(format!(
                "BUSY {name} is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            )));
        }
        Ok(())
    }

    /// A command within a script.
    pub(crate) fn call_in_script(&mut self, words: &[&[u8]]) -> Result<Reply, Barred> {
        let Some(run) = self.run else { return Err(Barred("no script is running".into())) };
        let command = self.admit_in_script(run, words)?;
        if let Some(run) = &mut self.run {
            run.wrote |= command.is(commands::WRITE);
        }
        Ok(flatten((command.work)(self, run.caller, words)))
    }

    fn admit_in_script(&self, run: Run, words: &[&[u8]]) -> Result<&'static Command, Barred> {
        let barred = |text: &str| Err(Barred(text.into()));
        let Some(command) = commands::find(words[0]) else {
            return barred(match self.version {
                Version::Redis6_2 => "Unknown Redis command called from Lua script",
                Version::Redis7_0 => "Unknown Redis command called from script",
                Version::Valkey9_1 => "Unknown command called from script",
            });
        };
        if !command.takes(words.len(), self.version) {
            return barred(match self.version {
                Version::Redis6_2 => "Wrong number of args calling Redis command From Lua script",
                Version::Redis7_0 => "Wrong number of args calling Redis command from script",
                Version::Valkey9_1 => "Wrong number of args calling command from script",
            });
        }
        if command.is(commands::NO_SCRIPT) {
            return barred(match self.version {
                Version::Redis6_2 => "This Redis command is not allowed from scripts",
                Version::Redis7_0 => "This Redis command is not allowed from script",
                Version::Valkey9_1 => "This Valkey command is not allowed from script",
            });
        }
        if let Some(denial) = self.denial(run.caller, command, words) {
            return Err(Barred(denial.to_script(self.version)));
        }
        if self.replica && command.is(commands::WRITE) && run.caller.conn.is_some() {
            return barred(&self.shared(READ_ONLY));
        }
        if self.memory_full && command.is(commands::GROWS) && !run.wrote {
            return barred(&self.shared(OUT_OF_MEMORY));
        }
        Ok(command)
    }

    /// A reply of the server's own, which 6.2 hands to scripts as it is, and the others without its end.
    fn shared(&self, text: &str) -> String {
        if self.version.is_6() { format!("-{text}\r\n") } else { format!("-{text}") }
    }

    fn denial<'a>(
        &self,
        caller: Caller,
        command: &'a Command,
        words: &[&[u8]],
    ) -> Option<Denial<'a>> {
        caller.conn?;
        if self.denied_commands.contains(command.name) {
            return Some(Denial::Command(command.name));
        }
        let channels = match command.name {
            "publish" => &words[1..2],
            "subscribe" => &words[1..],
            _ => return None,
        };
        let channel = self.denies_channels.then(|| channels.first()).flatten()?;
        Some(Denial::Channel(String::from_utf8_lossy(channel).into_owned()))
    }

    pub(crate) fn begin_script(&mut self, caller: Caller) {
        let database = self.connection(caller).map_or(0, |connection| connection.database);
        self.run = Some(Run { caller, database, wrote: false });
    }

    pub(crate) fn end_script(&mut self) {
        self.run = None;
    }

    // Connections.

    pub(crate) fn is_logged_in(&self, caller: Caller) -> bool {
        self.connection(caller).is_none_or(|connection| connection.logged_in)
    }

    pub(crate) fn log_in(&mut self, caller: Caller, user: &[u8], password: &[u8]) -> Answer {
        let fits =
            user == b"default" && self.password.as_deref().is_none_or(|wanted| wanted == password);
        if !fits {
            return Err(Reply::error(
                "WRONGPASS invalid username-password pair or user is disabled.",
            ));
        }
        if let Some(connection) = self.connection_mut(caller) {
            connection.logged_in = true;
        }
        Ok(Reply::ok())
    }

    pub(crate) fn protocol(&self, caller: Caller) -> Protocol {
        self.connection(caller).map_or(Protocol::Resp2, |connection| connection.protocol)
    }

    pub(crate) fn set_protocol(&mut self, caller: Caller, protocol: Protocol) {
        if let Some(connection) = self.connection_mut(caller) {
            connection.protocol = protocol;
        }
    }

    pub(crate) fn name(&self, caller: Caller) -> Option<Vec<u8>> {
        self.connection(caller).map(|connection| connection.name.clone())
    }

    pub(crate) fn set_name(&mut self, caller: Caller, name: &[u8]) {
        if let Some(connection) = self.connection_mut(caller) {
            connection.name = name.to_vec();
        }
    }

    pub(crate) fn select(&mut self, caller: Caller, database: usize) {
        if let Some(run) = &mut self.run {
            run.database = database;
        } else if let Some(connection) = self.connection_mut(caller) {
            connection.database = database;
        }
    }

    pub(crate) fn reset(&mut self, caller: Caller) {
        for channel in self.subscribed(caller) {
            self.leave(caller, &channel);
        }
        let logged_in = self.password.is_none();
        if let Some(connection) = self.connection_mut(caller) {
            let parser = std::mem::take(&mut connection.parser);
            *connection = Connection { parser, ..Connection::new(logged_in) };
        }
    }

    /// Closes a connection from the server's side, behind what is in its outbox.
    pub(crate) fn close_after_reply(&mut self, caller: Caller) {
        let Some(conn) = caller.conn else { return };
        if !self.hang_ups.contains(&conn) {
            self.hang_ups.push(conn);
        }
    }

    /// Forgets a connection.
    pub(crate) fn drop_connection(&mut self, conn: Conn) {
        for channel in self.subscribed(Caller { conn: Some(conn) }) {
            self.leave(Caller { conn: Some(conn) }, &channel);
        }
        self.connections.remove(&conn);
    }

    pub(crate) fn kill(&mut self, chosen: impl Fn(Conn, &Connection) -> bool) -> usize {
        let open = self.connections.iter().filter(|(conn, _)| !self.hang_ups.contains(conn));
        let killed: Vec<_> = open
            .filter(|(conn, connection)| chosen(**conn, connection))
            .map(|(conn, _)| *conn)
            .collect();
        for conn in &killed {
            self.close_after_reply(Caller { conn: Some(*conn) });
        }
        killed.len()
    }

    // Channels.

    pub(crate) fn listens_in_resp2(&self, caller: Caller) -> bool {
        let connection = self.connection(caller);
        connection.is_some_and(|it| it.protocol == Protocol::Resp2 && !it.channels.is_empty())
    }

    pub(crate) fn subscribed(&self, caller: Caller) -> Vec<Vec<u8>> {
        self.connection(caller).map_or(Vec::new(), |connection| connection.channels.clone())
    }

    pub(crate) fn subscribe(&mut self, caller: Caller, channel: &[u8]) {
        let Some(conn) = caller.conn else { return };
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if !connection.channels.iter().any(|known| known == channel) {
            connection.channels.push(channel.to_vec());
            self.channels.entry(channel.to_vec()).or_default().push(conn);
        }
        self.confirm(conn, "subscribe", Some(channel));
    }

    pub(crate) fn unsubscribe(&mut self, caller: Caller, channel: Option<&[u8]>) {
        let Some(conn) = caller.conn else { return };
        if let Some(channel) = channel {
            self.leave(caller, channel);
        }
        self.confirm(conn, "unsubscribe", channel);
    }

    fn leave(&mut self, caller: Caller, channel: &[u8]) {
        let Some(conn) = caller.conn else { return };
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.channels.retain(|known| known != channel);
        }
        if let Some(listeners) = self.channels.get_mut(channel) {
            listeners.retain(|listener| *listener != conn);
            if listeners.is_empty() {
                self.channels.remove(channel);
            }
        }
    }

    fn confirm(&mut self, conn: Conn, what: &str, channel: Option<&[u8]>) {
        let left = self.connections.get(&conn).map_or(0, |connection| connection.channels.len());
        let channel = channel.map_or(Reply::Nil, Reply::bulk);
        self.send(conn, &Reply::Push(vec![Reply::bulk(what), channel, Reply::count(left)]));
    }

    /// How many got it.
    pub(crate) fn publish(&mut self, _: Caller, channel: &[u8], message: &[u8]) -> usize {
        let listeners = self.channels.get(channel).cloned().unwrap_or_default();
        if listeners.is_empty() {
            return 0;
        }
        let push =
            Reply::Push(vec![Reply::bulk("message"), Reply::bulk(channel), Reply::bulk(message)]);
        for listener in &listeners {
            // Newer servers let nothing come between a command and its reply.
            if self.version.is_valkey() && self.serving == Some(*listener) {
                let encoded = self.encode(*listener, &push);
                self.behind_the_reply.push(encoded);
            } else {
                self.send(*listener, &push);
            }
        }
        listeners.len()
    }

    // What is sent.

    fn encode(&self, conn: Conn, reply: &Reply) -> Vec<u8> {
        let mut bytes = Vec::new();
        resp::write(&mut bytes, reply, self.protocol(Caller { conn: Some(conn) }), self.version);
        bytes
    }

    pub(crate) fn send(&mut self, conn: Conn, reply: &Reply) {
        let protocol = self.protocol(Caller { conn: Some(conn) });
        if self.outbox.last().is_none_or(|(last, _)| *last != conn) {
            self.outbox.push((conn, Vec::new()));
        }
        if let Some((_, bytes)) = self.outbox.last_mut() {
            resp::write(bytes, reply, protocol, self.version);
        }
    }

    /// A command of this connection begins.
    pub(crate) fn serve(&mut self, conn: Conn) {
        self.serving = Some(conn);
    }

    /// It ends with this reply. What SUBSCRIBE and UNSUBSCRIBE answer was sent already.
    pub(crate) fn served(&mut self, conn: Conn, reply: &Reply) {
        self.serving = None;
        if !matches!(reply, Reply::Push(_)) {
            self.send(conn, reply);
        }
        for push in std::mem::take(&mut self.behind_the_reply) {
            self.outbox.push((conn, push));
        }
    }

    // Refusals that several commands share.

    fn unknown(&self, words: &[&[u8]]) -> Reply {
        let name = c_text(words[0], 128);
        let (open, close, behind) =
            if self.version.is_6() { ('`', '`', ", ") } else { ('\'', '\'', " ") };
        let mut args = String::new();
        for word in &words[1..] {
            if args.len() >= 128 {
                break;
            }
            args += &format!("{open}{}{close}{behind}", c_text(word, 128 - args.len()));
        }
        Reply::error(format!(
            "ERR unknown command {open}{name}{close}, with args beginning with: {args}"
        ))
    }

    /// A subcommand that is not there, or not with so many words.
    pub(crate) fn unknown_subcommand(&self, words: &[&[u8]]) -> Reply {
        let most = if self.version.is_6() { usize::MAX } else { 128 };
        let text = c_text(words.get(1).copied().unwrap_or_default(), most);
        let command = String::from_utf8_lossy(words[0]).to_lowercase();
        let upper = command.to_uppercase();
        if self.version.is_6() {
            let text = format!(
                "ERR Unknown subcommand or wrong number of arguments for '{text}'. Try {upper} HELP."
            );
            return Reply::error(text);
        }
        let known: &[&str] = match &*command {
            "script" => &["load", "exists", "flush", "kill"],
            "client" => &["id", "getname", "setname", "kill"],
            "pubsub" => &["channels", "numsub", "numpat"],
            _ => &[],
        };
        let lower = text.to_lowercase();
        if known.contains(&&*lower) || self.version.is_valkey() && lower == "setinfo" {
            return wrong_arity(&format!("{command}|{lower}"));
        }
        Reply::error(format!("ERR unknown subcommand '{text}'. Try {upper} HELP."))
    }
}

/// As C prints it: to its first NUL, and no longer than this. Each byte is a character: see [`Reply::error`].
pub(crate) fn c_text(bytes: &[u8], most: usize) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes[..end.min(most)].iter().copied().map(char::from).collect()
}

const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

fn wrong_arity(name: &str) -> Reply {
    Reply::error(format!("ERR wrong number of arguments for '{name}' command"))
}

/// An answer and an error are both something to send.
pub(crate) fn flatten(answer: Answer) -> Reply {
    answer.unwrap_or_else(|error| error)
}

/// What the access list forbids.
#[derive(Debug)]
enum Denial<'a> {
    Command(&'a str),
    Channel(String),
}

impl Denial<'_> {
    fn to_client(&self, version: Version) -> String {
        match (self, version) {
            (Self::Command(name), Version::Redis6_2) => {
                format!("NOPERM this user has no permissions to run the '{name}' command or its subcommand")
            }
            (Self::Command(name), Version::Redis7_0) => {
                format!("NOPERM this user has no permissions to run the '{name}' command")
            }
            (Self::Channel(..), Version::Redis6_2 | Version::Redis7_0) => {
                "NOPERM this user has no permissions to access one of the channels used as arguments".into()
            }
            (Self::Channel(_), Version::Valkey9_1) => "NOPERM No permissions to access a channel".into(),
            (_, Version::Valkey9_1) => format!("NOPERM {}", self.valkey()),
        }
    }

    fn to_script(&self, version: Version) -> String {
        match (self, version) {
            (Self::Command(_), Version::Redis6_2 | Version::Redis7_0) => {
                "The user executing the script can't run this command or subcommand".into()
            }
            (Self::Channel(..), Version::Redis6_2) => {
                "The user executing the script can't publish to the channel mentioned in the command".into()
            }
            (Self::Channel(..), Version::Redis7_0) => {
                "The user executing the script can't publish to the channel mentioned in the command".into()
            }
            (Self::Channel(_), Version::Valkey9_1) => {
                "ACL failure in script: No permissions to access a channel".into()
            }
            (_, Version::Valkey9_1) => format!("ACL failure in script: {}", self.valkey()),
        }
    }

    fn valkey(&self) -> String {
        match self {
            Self::Command(name) => {
                format!("User default has no permissions to run the '{name}' command")
            }
            Self::Channel(channel) => {
                format!("User default has no permissions to access the '{channel}' channel")
            }
        }
    }
}
