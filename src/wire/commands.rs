//! The command link: a connection to a primary that knows our scripts and tells the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, Value, cmd, pipe};
use tokio::time::Instant;

use crate::config::Layout;
use crate::error::{Error, said};
use crate::keys::Keys;
use crate::wire::address::Address;
use crate::wire::clock::{PRECISE, ServerClock};
use crate::wire::fault::{self, Fault};
use crate::wire::link::{Duty, Keeper, Link, Live};
use crate::wire::replies::strange;
use crate::wire::scripts::{self, Script};

/// How many times the client reads the clock of a new server, if the answers are slow.
const READINGS: usize = 3;

/// The link over which all scripts are called.
#[derive(Clone)]
pub(crate) struct Commands {
    link: Link,
    clock: Arc<ServerClock>,
    terms: Arc<Terms>,
}

/// The arguments that every script of a client gets.
#[derive(Debug)]
pub(crate) struct Terms {
    /// This client's name, in lines and in the messages that it publishes.
    pub(crate) client: String,
    pub(crate) layout: Layout,
    /// How long the server keeps a line in which no client shows a sign of life. Most clients in a line sleep, but
    /// ask more often than this.
    pub(crate) line_ttl: Duration,
    /// For how long after its last sign of life a client in line counts as alive.
    pub(crate) waiter_ttl: Duration,
}

impl Terms {
    /// The message that a release publishes for us.
    pub(crate) fn message(&self) -> &str {
        self.layout.message(&self.client)
    }
}

impl Commands {
    pub(crate) fn new(address: Arc<Address>, terms: Terms) -> (Self, Keeper<impl Duty>) {
        let clock = Arc::new(ServerClock::default());
        let duty = CommandDuty {
            layout: terms.layout,
            clock: Arc::clone(&clock),
            warned_of_eviction: AtomicBool::new(false),
        };
        let (keeper, link) = Keeper::new(address, Arc::new(duty));
        (Self { link, clock, terms: Arc::new(terms) }, keeper)
    }

    /// The connection to send on, or the reason why there is none.
    pub(crate) fn connection(&self) -> Result<Connection<'_>, Fault> {
        self.link.live().map(|live| Connection { live, commands: self })
    }

    /// Takes note of a number that the server has granted.
    pub(crate) fn granted(&self, number: u64) {
        self.clock.granted(number, Instant::now());
    }

    /// Waits until there is a connection, or until there will never be one again.
    pub(crate) async fn up(&self) {
        self.link.up().await;
    }

    /// Waits until there is a newer connection than that of this generation.
    pub(crate) async fn newer_than(&self, generation: u64) {
        self.link.newer_than(generation).await;
    }

    /// Turns a fault into the error of a call about this lock. If a key has another type, it asks the server which
    /// one.
    pub(crate) async fn explained(&self, fault: Fault, keys: &Keys) -> Error {
        if !matches!(fault, Fault::WrongType) {
            return fault.into_error(&keys.lock().to_string());
        }
        for (key, expected) in keys.types() {
            let (key, Ok(connection)) = (key.to_string(), self.connection()) else { break };
            match connection.type_of(&key).await {
                Some(kind) if kind != expected && kind != "none" => {
                    return Error::Conflict { key, kind };
                }
                _ => {}
            }
        }
        fault.into_error(&keys.lock().to_string())
    }
}

/// One connection, for one request or for a few that belong together.
pub(crate) struct Connection<'a> {
    live: Live,
    commands: &'a Commands,
}

impl Connection<'_> {
    /// The generation of the connection. Requests of one generation reach the server in the order in which they were
    /// sent.
    pub(crate) fn generation(&self) -> u64 {
        self.live.generation
    }

    pub(crate) fn floor(&self, now: Instant) -> u64 {
        self.commands.clock.floor(now)
    }

    pub(crate) fn granted(&self, number: u64) {
        self.commands.granted(number);
    }

    pub(crate) fn terms(&self) -> Arc<Terms> {
        Arc::clone(&self.commands.terms)
    }

    /// The same connection, for another request at the same time.
    pub(crate) fn again(&self) -> Self {
        Self { live: self.live.clone(), commands: self.commands }
    }

    /// Calls a script. If the server does not know it, sends its text.
    pub(crate) async fn call(
        &mut self,
        script: &Script,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Value, Fault> {
        let answer = self.send(script.by_hash(), &fill).await;
        let answer = match answer {
            Err(Fault::NoScript) => self.send(script.by_text(), &fill).await,
            answer => answer,
        };
        if let Err(Fault::Distrusted(_)) = answer {
            self.distrust();
        }
        answer
    }

    /// An entry of an answer may report a fault of the whole server: then the link acts as if the whole answer did.
    pub(crate) fn heed(&self, fault: &Fault) {
        if matches!(fault, Fault::Distrusted(_)) {
            self.distrust();
        }
    }

    async fn send(&mut self, mut cmd: Cmd, fill: impl Fn(&mut Cmd)) -> Result<Value, Fault> {
        fill(&mut cmd);
        match self.live.conn.send_packed_command(&cmd).await {
            Ok(Value::ServerError(error)) => Err(fault::entry(&error)),
            Ok(value) => Ok(value),
            Err(error) => Err(Fault::answering(error)),
        }
    }

    fn distrust(&self) {
        self.commands.link.suspect(self.live.generation);
    }

    async fn type_of(mut self, key: &str) -> Option<String> {
        match self.live.conn.send_packed_command(cmd("TYPE").arg(key)).await {
            Ok(Value::SimpleString(kind)) => Some(kind),
            _ => None,
        }
    }
}

struct CommandDuty {
    layout: Layout,
    clock: Arc<ServerClock>,
    warned_of_eviction: AtomicBool,
}

impl Duty for CommandDuty {
    const NAME: &'static str = "command";

    async fn greet(&self, conn: &mut MultiplexedConnection, _: u64) -> Result<(), Fault> {
        let mut pipe = pipe();
        pipe.cmd("HELLO");
        pipe.cmd("INFO").arg("memory");
        scripts::load(&mut pipe, self.layout.never_calls());
        let answers = conn.send_packed_commands(&pipe, 0, pipe.len()).await;
        let answers = answers.map_err(Fault::connecting)?;
        primary(answers.first())?;
        self.warn_of_eviction(answers.get(1));
        for answer in &answers[2..] {
            loaded(answer)?;
        }
        self.clock.forget();
        for _ in 0..READINGS {
            if self.read_clock(conn).await? <= PRECISE {
                break;
            }
        }
        Ok(())
    }

    async fn heartbeat(&self, conn: &mut MultiplexedConnection) -> Result<(), Fault> {
        match self.read_clock(conn).await {
            // A server that answers is alive, even if it says that it is busy or broken.
            Ok(_) | Err(Fault::Refused(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    async fn work(&self, _: MultiplexedConnection) -> Fault {
        std::future::pending().await
    }

    fn hear(&self, _: u64, _: PushInfo) {}

    fn down(&self) {}
}

impl CommandDuty {
    /// How long it took.
    async fn read_clock(&self, conn: &mut MultiplexedConnection) -> Result<Duration, Fault> {
        let sent = Instant::now();
        let answer = conn.send_packed_command(&cmd("TIME")).await.map_err(Fault::answering)?;
        let answered = Instant::now();
        self.clock.learn(micros(answer)?, sent, answered);
        Ok(answered - sent)
    }

    /// Warns of a server that may evict keys: it may evict a lock that is held. If the user may not ask, there is no
    /// warning.
    fn warn_of_eviction(&self, info: Option<&Value>) {
        let Some(Value::VerbatimString { text, .. }) = info else { return };
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
        let limited = field("maxmemory:").is_some_and(|limit| limit != "0");
        let Some(policy) = field("maxmemory_policy:").filter(|policy| *policy != "noeviction")
        else {
            return;
        };
        if limited && !self.warned_of_eviction.swap(true, Ordering::Relaxed) {
            tracing::warn!(policy, "the server may evict locks that are held: set noeviction");
        }
    }
}

/// Checks that the server calls itself a primary in its reply to HELLO.
pub(crate) fn primary(hello: Option<&Value>) -> Result<(), Fault> {
    let Some(Value::Map(fields)) = hello else {
        return Err(strange(&hello));
    };
    match fields.iter().find(|(name, _)| said_as(name, "role")) {
        Some((_, role)) if said_as(role, "master") => Ok(()),
        _ => Err(Fault::Distrusted(said("the server is a replica"))),
    }
}

fn said_as(value: &Value, word: &str) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == word.as_bytes(),
        Value::SimpleString(text) => text == word,
        _ => false,
    }
}

/// Loads the scripts. A user that may not load scripts can still call them if another user has loaded them.
fn loaded(answer: &Value) -> Result<(), Fault> {
    match answer {
        Value::ServerError(error) => match fault::entry(error) {
            Fault::Permission(_) => Ok(()),
            fault => Err(fault),
        },
        _ => Ok(()),
    }
}

fn micros(time: Value) -> Result<u64, Fault> {
    if let Value::ServerError(error) = &time {
        return Err(fault::entry(error));
    }
    match redis::from_redis_value::<(u64, u64)>(time) {
        Ok((seconds, micros)) => {
            let time = seconds.checked_mul(1_000_000).and_then(|time| time.checked_add(micros));
            time.ok_or_else(|| strange(&seconds))
        }
        Err(error) => Err(strange(&error)),
    }
}
