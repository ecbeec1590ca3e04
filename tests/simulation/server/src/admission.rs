//! Which commands may be called: by a client, and by a script.

use crate::cluster::{Asked, Elsewhere};
use crate::commands::subcommand::{self, Subcommand};
use crate::commands::{self, Command};
use crate::denial::Denial;
use crate::refusal::{OUT_OF_MEMORY, READ_ONLY, wrong_arity};
use crate::reply::{Reply, flatten};
use crate::state::{Caller, State};
use crate::version::Version;

/// A script that is running.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    caller: Caller,
    pub(crate) database: usize,
    /// It has written something: from then on it may write until its end, though the memory is full.
    wrote: bool,
}

/// Why a script's call was not carried out, in the words of the server's Lua side, which are wrapped as such.
#[derive(Debug)]
pub(crate) struct Barred(pub(crate) String);

/// A command, and its name with that of its subcommand, as newer servers say it.
#[derive(Clone, Copy, Debug)]
struct Found {
    command: &'static Command,
    name: &'static str,
}

impl Found {
    /// Whether the server runs it while a script runs for too long. Valkey lets a client identify itself then.
    fn may_while_busy(self, version: Version) -> bool {
        let greets = matches!(
            self.name,
            "select" | "client|id" | "client|getname" | "client|setname" | "client|setinfo"
        );
        self.command.is(commands::BUSY) || greets && version.is_valkey()
    }
}

/// Why a request is no command.
#[derive(Debug)]
enum Missing {
    Command,
    Subcommand,
    /// The command has another number of words.
    Words(&'static str),
}

impl State {
    /// Finds a command and whatever forbids it now.
    pub(crate) fn admit(&self, caller: Caller, words: &[&[u8]]) -> Result<&'static Command, Reply> {
        // Valkey tells a stranger nothing, not even that a command is not there.
        if self.version.is_valkey() {
            self.check_login(caller, commands::find(words[0]))?;
        }
        let found = self.find(words).map_err(|missing| match missing {
            Missing::Command => self.unknown(words),
            Missing::Subcommand => self.unknown_subcommand(words),
            Missing::Words(name) => wrong_arity(name),
        })?;
        self.check(caller, found, words)?;
        Ok(found.command)
    }

    fn find(&self, words: &[&[u8]]) -> Result<Found, Missing> {
        let (version, is_sentinel) = (self.version, self.sentinel.is_some());
        let command = commands::find(words[0]).filter(|it| it.is_there(version, is_sentinel));
        let command = command.ok_or(Missing::Command)?;
        if !command.takes(words.len(), self.version) {
            return Err(Missing::Words(command.name));
        }
        let all = if self.version.is_6() { &[] } else { subcommand::of(command.name) };
        if all.is_empty() {
            return Ok(Found { command, name: command.name });
        }
        let named = all.iter().find(|subcommand| subcommand.is(words[1], self.version));
        let Subcommand { name, .. } = named.ok_or(Missing::Subcommand).and_then(|it| {
            if it.takes(words.len()) { Ok(it) } else { Err(Missing::Words(it.name)) }
        })?;
        Ok(Found { command, name })
    }

    fn check_login(&self, caller: Caller, command: Option<&Command>) -> Result<(), Reply> {
        let for_strangers = command.is_some_and(|command| match command.name {
            "auth" | "hello" | "quit" => true,
            "reset" => !self.version.is_6(),
            _ => false,
        });
        if for_strangers || self.is_logged_in(caller) {
            return Ok(());
        }
        Err(Reply::error("NOAUTH Authentication required."))
    }

    fn check(&self, caller: Caller, found: Found, words: &[&[u8]]) -> Result<(), Reply> {
        let command = found.command;
        self.check_login(caller, Some(command))?;
        if let Some(denial) = self.denial(caller, found, words) {
            return Err(Reply::error(denial.to_client(self.version)));
        }
        if let (Some(cluster), Some(_)) = (&self.cluster, caller.conn) {
            self.is_at_home(caller, command, words).map_err(|other| cluster.to_client(other))?;
        }
        if self.memory_full && command.is(commands::GROWS) {
            return Err(Reply::error(OUT_OF_MEMORY));
        }
        if self.replica && command.is(commands::WRITE) && caller.conn.is_some() {
            return Err(Reply::error(READ_ONLY));
        }
        if self.listens_in_resp2(caller) && !command.is(commands::SUBSCRIBED) {
            let kinds = if self.version.is_6() { "P" } else { "P|S" };
            let name = found.name;
            return Err(Reply::error(format!(
                "ERR Can't execute '{name}': only ({kinds})SUBSCRIBE / ({kinds})UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context"
            )));
        }
        if self.loading && !command.may_while_loading(self.version) && caller.conn.is_some() {
            let name = self.version.name();
            return Err(Reply::error(format!("LOADING {name} is loading the dataset in memory")));
        }
        if self.busy && !found.may_while_busy(self.version) && caller.conn.is_some() {
            let name = self.version.name();
            return Err(Reply::error(format!(
                "BUSY {name} is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            )));
        }
        Ok(())
    }

    /// Whether this node has the keys of a command.
    fn is_at_home(
        &self,
        caller: Caller,
        command: &Command,
        words: &[&[u8]],
    ) -> Result<(), Elsewhere> {
        // To Redis 8.2, a channel that is unsubscribed is a key that is not there.
        let is_key = self.version == Version::Redis8_2 && command.name == "sunsubscribe";
        let (keys, are_channels) = (command.keys(words), command.is_about_channels() && !is_key);
        let is_asking = self.connection(caller).is_some_and(|connection| connection.asking);
        self.is_here(&Asked { keys, are_channels, is_asking })
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
        let found = match self.find(words) {
            Ok(found) => found,
            Err(Missing::Command | Missing::Subcommand) => {
                return barred(match self.version {
                    Version::Redis6_2 => "Unknown Redis command called from Lua script",
                    Version::Redis7_0 | Version::Redis8_2 => {
                        "Unknown Redis command called from script"
                    }
                    Version::Valkey9_1 => "Unknown command called from script",
                });
            }
            Err(Missing::Words(_)) => {
                return barred(match self.version {
                    Version::Redis6_2 => {
                        "Wrong number of args calling Redis command From Lua script"
                    }
                    Version::Redis7_0 | Version::Redis8_2 => {
                        "Wrong number of args calling Redis command from script"
                    }
                    Version::Valkey9_1 => "Wrong number of args calling command from script",
                });
            }
        };
        let command = found.command;
        // Within a script it does not wait.
        let waits_not = command.name == "wait" && self.version.is_recent();
        if command.is(commands::NO_SCRIPT) && !waits_not {
            return barred(match self.version {
                Version::Redis6_2 => "This Redis command is not allowed from scripts",
                Version::Redis7_0 | Version::Redis8_2 => {
                    "This Redis command is not allowed from script"
                }
                Version::Valkey9_1 => "This Valkey command is not allowed from script",
            });
        }
        if let Some(denial) = self.denial(run.caller, found, words) {
            return Err(Barred(denial.to_script(self.version)));
        }
        if self.replica && command.is(commands::WRITE) && run.caller.conn.is_some() {
            return barred(&self.shared(READ_ONLY));
        }
        if self.memory_full && command.is(commands::GROWS) && !run.wrote {
            return barred(&self.shared(OUT_OF_MEMORY));
        }
        if run.caller.conn.is_some() {
            let elsewhere = self.is_at_home(run.caller, command, words);
            elsewhere.map_err(|other| Barred(other.to_script(self.version)))?;
        }
        Ok(command)
    }

    /// A reply of the server's own, which 6.2 hands to scripts as it is, and the others without its end.
    fn shared(&self, text: &str) -> String {
        if self.version.is_6() { format!("-{text}\r\n") } else { format!("-{text}") }
    }

    fn denial(&self, caller: Caller, found: Found, words: &[&[u8]]) -> Option<Denial> {
        caller.conn?;
        if self.denied_commands.contains(found.command.name) {
            return Some(Denial::Command(found.name));
        }
        let channels = match found.command.name {
            "publish" | "spublish" => &words[1..2],
            "subscribe" | "ssubscribe" => &words[1..],
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
}
