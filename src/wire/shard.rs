//! One server that a client sends scripts to: a primary that has them cached, and reports its time.

mod acks;
mod clock;
mod reign;

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Pipeline, PushInfo, Value, cmd, pipe};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{Layout, Replicas};
use crate::error::said;
use crate::log;
use crate::wire::address::{Expected, Hello};
use crate::wire::destination::Destination;
use crate::wire::fault::{self, Fault};
use crate::wire::link::{Duty, Greeted, Link, LinkTask};
use crate::wire::node::Node;
use crate::wire::passwords::shown;
use crate::wire::replies::{field, strange};
use crate::wire::scripts::{Dialect, Library};
use crate::wire::session::Session;
use crate::wire::socket::Socket;
use crate::wire::tracking::{OnChange, Tracking};

pub(crate) use acks::{Acks, Quorum, Shortage};
pub(crate) use clock::ServerClock;
pub(crate) use reign::Reign;

use acks::Pipes;
use clock::PRECISE;

/// What a server that is not a node of a cluster says.
pub(crate) const NO_CLUSTER: &str = "cluster support disabled";

/// How often the client reads the clock of a new server, if the answers are slow.
const READINGS: usize = 3;

/// One server, as other tasks see it.
pub(crate) struct Shard {
    /// `None`: it is the only one.
    pub(crate) node: Option<Node>,
    pub(crate) link: Link,
    pub(crate) reign: Arc<Reign>,
    /// The acknowledging link, if replicas have to acknowledge.
    pub(crate) acks: Option<Acks>,
    pub(crate) tracking: Arc<Tracking>,
    facts: Arc<Facts>,
}

impl Shard {
    /// The shard, and the tasks that keep its links.
    pub(crate) fn new(
        (node, destination): (Option<Node>, Destination),
        mut duty: CommandDuty,
        quorum: Option<Quorum>,
    ) -> (Self, ShardTasks) {
        let (facts, tracking) = (Arc::clone(&duty.facts), Arc::clone(&duty.tracking));
        let reign = Arc::clone(&duty.reign);
        let acks = quorum.map(|quorum| {
            let duty = Arc::new(duty.for_acks(quorum));
            let reign = Arc::clone(&duty.reign);
            let (task, link) = LinkTask::new(destination.clone(), duty);
            let (acks, pipes) = Acks::new(link, reign, quorum);
            (acks, (task, pipes))
        });
        let (acks, acks_task) = acks.unzip();
        duty.tracks = acks.is_none();
        let (commands, link) = LinkTask::new(destination, Arc::new(duty));
        let tasks = ShardTasks { commands, acks: acks_task };
        (Self { node, link, reign, acks, tracking, facts }, tasks)
    }

    /// Its connections.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        iter::once(&self.link).chain(self.acks.as_ref().map(|acks| &acks.link))
    }

    /// Waits until all connections to it exist, or waiting does not help.
    pub(crate) async fn up(&self) {
        for link in self.links() {
            link.up().await;
        }
    }

    /// How its scripts publish.
    pub(crate) fn dialect(&self) -> Dialect {
        self.facts.dialect()
    }
}

/// The tasks that maintain the links of a shard.
pub(crate) struct ShardTasks {
    commands: LinkTask,
    acks: Option<(LinkTask, Pipes)>,
}

impl ShardTasks {
    /// Opens the first connections, so that a caller learns at once why there are none.
    pub(crate) async fn start(&mut self) -> Result<(), Fault> {
        match &mut self.acks {
            None => self.commands.start().await,
            Some((acks, _)) => {
                tokio::try_join!(self.commands.start(), acks.start()).map(|((), ())| ())
            }
        }
    }

    /// Maintains the connections until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Some((acks, pipes)) = self.acks else { return self.commands.run(stop).await };
        let sending = stop.run_until_cancelled(pipes.run());
        tokio::join!(self.commands.run(stop.clone()), acks.run(stop.clone()), sending);
    }
}

/// What a server reported about itself.
#[derive(Default)]
pub(crate) struct Facts {
    is_sharded: AtomicBool,
    tells_both: AtomicBool,
}

impl Facts {
    pub(crate) fn dialect(&self) -> Dialect {
        match self.is_sharded.load(Ordering::Relaxed) {
            false => Dialect::Plain,
            true if self.tells_both.load(Ordering::Relaxed) => Dialect::Both,
            true => Dialect::Sharded,
        }
    }

    /// Records what a server reports about itself. On a server that is not a node of a cluster, all channels are plain.
    pub(crate) fn learn(&self, hello: &Hello, expected: Expected) {
        let Expected::Node { plain_channels } = expected else { return };
        self.tells_both.store(plain_channels, Ordering::Relaxed);
        self.is_sharded.store(hello.is_sharded(), Ordering::Relaxed);
    }
}

/// Checks a server that does not call itself a node. When a node is gone, its address may soon belong to a server of its own, which
/// grants every lock. But services that have the protocol of a cluster may call themselves whatever they like: so what counts is
/// whether the server has slots.
async fn has_slots(socket: &Socket) -> Result<(), Fault> {
    let answer = socket.ask(cmd("CLUSTER").arg("SLOTS")).await;
    match answer.map_err(Fault::connecting)? {
        Value::ServerError(error) if fault::says(&error, NO_CLUSTER) => {
            Err(Fault::Distrusted(said("the server is not a node of a cluster")))
        }
        _ => Ok(()),
    }
}

/// The duty of a link for scripts.
#[derive(Clone)]
pub(crate) struct CommandDuty {
    pub(crate) layout: Layout,
    reign: Arc<Reign>,
    pub(crate) expected: Expected,
    /// Signalled with each new connection.
    pub(crate) changes: watch::Sender<()>,
    /// Signalled when the connection is gone.
    pub(crate) lost: Arc<Notify>,
    facts: Arc<Facts>,
    tracking: Arc<Tracking>,
    /// Whether the holds are read on this link, so that the server tracks their keys for it.
    tracks: bool,
    /// The links to one server warn of it once.
    warned_of_eviction: Arc<AtomicBool>,
    /// For the link for scripts that replicas have to acknowledge: which ones.
    acks: Option<Replicas>,
    session: Option<Arc<Session>>,
}

impl CommandDuty {
    pub(crate) fn new(
        layout: Layout,
        clock: ServerClock,
        expected: Expected,
        changes: watch::Sender<()>,
        lost: Arc<Notify>,
        on_change: OnChange,
        session: Option<Arc<Session>>,
    ) -> Self {
        Self {
            layout,
            reign: Arc::new(Reign::new(clock)),
            expected,
            changes,
            lost,
            facts: Arc::default(),
            tracking: Arc::new(Tracking::new(on_change)),
            tracks: true,
            warned_of_eviction: Arc::default(),
            acks: None,
            session,
        }
    }

    /// The duty of a second link to the same server. It learns the primary separately: for a moment the two links may
    /// lead to two servers. (It has no session: `config/relations.rs` refuses one together with replicas.)
    fn for_acks(&self, quorum: Quorum) -> Self {
        Self {
            reign: Arc::new(Reign::new(self.reign.clock.beside())),
            acks: Some(quorum.replicas),
            ..self.clone()
        }
    }
}

impl Duty for CommandDuty {
    fn name(&self) -> &'static str {
        if self.acks.is_some() { "acknowledging" } else { "command" }
    }

    fn greet<'a>(&'a self, socket: &'a Socket, hello: &'a Hello, generation: u64) -> Greeted<'a> {
        Box::pin(async move {
            hello.accepted(self.expected)?;
            let is_node = matches!(self.expected, Expected::Node { .. });
            if is_node && !hello.is_node() {
                has_slots(socket).await?;
            }
            self.facts.learn(hello, self.expected);
            if let Some(session) = &self.session {
                session.runs_scripts_on(socket).await?;
            }
            let dialect = is_node.then(|| self.facts.dialect());
            let library = Library::new(self.layout.never_calls(), dialect);
            let mut pipe = pipe();
            pipe.cmd("INFO").arg("memory").cmd("INFO").arg("replication");
            pipe.add_command(library.question());
            if self.tracks {
                pipe.add_command(Tracking::question());
            }
            let answers = socket.ask_each(&pipe).await.map_err(Fault::connecting)?;
            let mut answers = answers.iter();
            self.warn_of_eviction(answers.next());
            let replication = answers.next();
            self.reign.learn(replication, generation);
            let known = answers.next();
            if self.tracks {
                self.tracking.learn(answers.next());
            }
            load(socket, &library.load_missing(known)).await?;
            if !matches!(self.expected, Expected::Alone) {
                // There may be another server than before.
                self.reign.clock.hand_on(Instant::now());
            }
            self.reign.clock.forget();
            for _ in 0..READINGS {
                if self.read_clock(socket).await? <= PRECISE {
                    break;
                }
            }
            // A user without the permissions learns so now.
            if self.acks.is_some() {
                // With zero replicas it does not wait.
                fault::answered(socket.ask(cmd("WAIT").arg(0).arg(1)).await)?;
            }
            if self.acks == Some(Replicas::Connected) {
                acks::connected(replication)?;
            }
            Ok(())
        })
    }

    fn heartbeat<'a>(&'a self, socket: &'a Socket) -> Greeted<'a> {
        Box::pin(async {
            let looked = match &self.session {
                Some(session) => session.still_runs_scripts_on(socket).await,
                None => Ok(()),
            };
            let read = self.read_clock(socket).await;
            fault::alive(looked)?;
            fault::alive(read)
        })
    }

    fn up(&self) {
        if self.tracks {
            self.tracking.comes_up();
        }
        self.changes.send_replace(());
    }

    fn hear(&self, _generation: u64, push: PushInfo) {
        self.tracking.hear(push);
    }

    fn down(&self) {
        self.lost.notify_one();
    }

    /// The first connection of all may fail too: a node that has become a replica before this client uses it is refused.
    fn stays_down(&self) {
        if self.acks.is_none() {
            self.lost.notify_one();
        }
    }
}

impl CommandDuty {
    /// Reads the clock. Returns how long that took.
    async fn read_clock(&self, socket: &Socket) -> Result<Duration, Fault> {
        let sent = Instant::now();
        let answer = socket.ask(&cmd("TIME")).await;
        let answered = Instant::now();
        self.reign.clock.learn(micros(fault::answered(answer)?)?, sent, answered);
        Ok(answered - sent)
    }

    /// Warns of a server that may evict keys: it could evict a lock that is held. If the user may not ask, there is no
    /// warning.
    fn warn_of_eviction(&self, info: Option<&Value>) {
        let limited = field(info, "maxmemory:").is_some_and(|limit| limit != "0");
        let policy = field(info, "maxmemory_policy:").filter(|policy| *policy != "noeviction");
        let Some(policy) = policy else { return };
        if limited && !self.warned_of_eviction.swap(true, Ordering::Relaxed) {
            let policy = shown(policy);
            log::warn!(policy, "the server may evict locks that are held: set noeviction");
        }
    }
}

/// Loads scripts. A user that may not load them can still call them if another user has loaded them.
async fn load(socket: &Socket, scripts: &Pipeline) -> Result<(), Fault> {
    let answers = socket.ask_each(scripts).await;
    let refusal = |answer| match answer {
        Value::ServerError(error) => Some(fault::entry(&error)),
        _ => None,
    };
    let mut refusals = answers.map_err(Fault::connecting)?.into_iter().filter_map(refusal);
    refusals.find(|fault| !matches!(fault, Fault::Permission(_))).map_or(Ok(()), Err)
}

fn micros(time: Value) -> Result<u64, Fault> {
    match redis::from_redis_value::<(u64, u64)>(time) {
        Ok((seconds, micros)) => {
            let time = seconds.checked_mul(1_000_000).and_then(|time| time.checked_add(micros));
            // The numbers of our scripts end there.
            time.filter(|time| *time < 1 << 53).ok_or_else(|| strange(&seconds))
        }
        Err(error) => Err(strange(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_no_script_could_use_is_none() {
        let time = |seconds| micros(Value::Array(vec![Value::Int(seconds), Value::Int(7)]));
        assert_eq!(time(1_800_000_000).unwrap(), 1_800_000_000_000_007);
        for seconds in [(1 << 53) / 1_000_000 + 1, i64::MAX, -1] {
            assert!(time(seconds).is_err(), "{seconds}");
        }
    }
}
