//! How a client is made: its connections, its tasks, and what happens when one of its tasks ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::Config;
use crate::core::budget::Budget;
use crate::engine::calls::Calls;
use crate::engine::grant::Loss;
use crate::engine::keep;
use crate::engine::outages::Outages;
use crate::engine::owned::Owned;
use crate::engine::releaser::{Job, JobRequests, Outbox, Releaser};
use crate::engine::shared::{Engine, Memory, Shared};
use crate::engine::unpolled::look_out;
use crate::engine::watchdog::Watchdog;
use crate::error::{Error, Result};
use crate::keys::{Space, channel_prefix, of_client, record_of_session};
use crate::log;
use crate::meters;
use crate::pause::jittered;
use crate::wire::{
    Acquire, Address, Addresses, Answer, Card, Cluster, Commands, CommonArgs, Crew, Destination,
    Endpoint, Fault, Heard, OnChange, Requests, Sentinels, Session, Subscriber, Target,
    watch_failovers,
};

/// The pauses between attempts to connect to a server that is not there yet.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The least time between two warnings that it is not there yet.
const WARNINGS_APART: Duration = Duration::from_secs(5);

impl Engine {
    /// Starts the client's tasks on the current runtime, which connect.
    pub(crate) fn connect_lazy(endpoint: &Endpoint, config: Config) -> Result<Arc<Self>> {
        config.check()?;
        let connecting =
            Self::connect_to(To::of(endpoint, &config)?, client_id(), config, First::Later);
        connecting.now_or_never().expect("it waits for no connection")
    }

    /// Connects, and starts the client's tasks on the current runtime. Tries again for [`Config::start_timeout`] while no server is
    /// there. The client has this id, or one of its own.
    pub(crate) async fn connect(
        endpoint: &Endpoint,
        id: Option<String>,
        config: Config,
    ) -> Result<Arc<Self>> {
        config.check()?;
        let client = id.unwrap_or_else(client_id);
        let began = Instant::now();
        let (mut pause, mut warn_at) = (SHORTEST_PAUSE, began);
        loop {
            // Boxed: otherwise the compiler looks into the futures of all layers wherever a program connects, and may find
            // them too deep.
            let connecting: BoxFuture<'_, _> = Box::pin(Self::connect_to(
                To::of(endpoint, &config)?,
                client.clone(),
                config.clone(),
                First::Now,
            ));
            let error = match connecting.await {
                Err(error) if error.is_transient() => error,
                connected => return connected,
            };
            let left = config.start_timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(error);
            }
            if Instant::now() >= warn_at {
                warn_at = Instant::now() + WARNINGS_APART;
                log::warn!(%error, ?left, "the client cannot connect yet: it tries again");
            }
            sleep(jittered(pause).min(left)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect_to(to: To, client: String, config: Config, first: First) -> Result<Arc<Self>> {
        meters::describe();
        let client = keep::id_of(client, !config.keep.is_zero());
        let (client, session) = to.in_session(client, &config)?;
        let (layout, life) = (config.layout, config.life());
        let common =
            CommonArgs::new(client.clone(), layout, life, line_ttl(&config), session.clone());
        let (releaser, jobs) = mpsc::unbounded_channel();
        let memory = Arc::new(Memory::new(client, (config, to.space()), releaser));
        let stop = CancellationToken::new();
        // If an attempt fails, it leaves no task behind.
        let ends = stop.clone().drop_guard();
        let [hears, hears_changes] = [(); 2].map(|()| Arc::clone(&memory));
        let heard = move |channel: &str, heard: Heard<'_>| hears.hear(channel, heard);
        let on_change: OnChange = Arc::new(move |changed| hears_changes.hear_change(changed));
        let crew = crew(&memory, stop.clone());
        let linked = to.link(common, crew, &memory.config, (heard, on_change), first).await;
        let (commands, subscriber) = linked.map_err(Fault::into_outage)?;

        let (waiters, closing) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
        let outages = Outages::new(Arc::clone(&waiters), matches!(memory.space, Space::Cluster(_)));
        let engine = Self::new(Shared {
            requests: Requests::new(&commands, orphans(memory.outbox.clone())),
            job_requests: JobRequests::new(&commands, &memory.outbox, &closing),
            commands,
            subscriber,
            session,
            owned: Owned::default(),
            budget: Budget::new(&memory.config),
            orders: AtomicU64::new(0),
            outages: Arc::new(outages),
            waiters,
            calls: Calls::default(),
            cut_off: Arc::default(),
            closing,
            runtime: Handle::current(),
            memory,
        });
        ends.disarm();
        engine.start(jobs, stop);
        Ok(Arc::new(engine))
    }

    /// Starts the tasks that need no link of their own.
    fn start(&self, jobs: UnboundedReceiver<Job>, stop: CancellationToken) {
        let watchdog = Watchdog {
            commands: self.commands.clone(),
            outbox: self.outbox.clone(),
            outages: Arc::clone(&self.outages),
            rhythm: self.rhythm,
            session: self.session.clone(),
        };
        let releaser = Releaser {
            jobs,
            job_requests: self.job_requests.clone(),
            commands: self.commands.clone(),
            debts: self.outbox.debts.clone(),
            patience: self.config.response(),
        };
        self.spawn(watchdog.run(stop.clone()));
        let (requests, gathering) = (self.requests.clone(), stop.clone());
        self.spawn(async move { _ = gathering.run_until_cancelled(requests.run()).await });
        self.spawn(releaser.run(self.closing.clone(), stop.clone()));
        if let Some(app) = &self.config.describe {
            let key = of_client(&self.config.prefix, &self.client);
            let in_cluster = matches!(self.space, Space::Cluster(_));
            let card = Card::new(app, self.config.pid, key, in_cluster);
            self.spawn(describe(card, self.commands.clone(), stop.clone()));
        }
        self.spawn(look_out(self.weak(), stop));
        self.tasks.close();
    }

    /// Starts a task that the client needs to continue.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(LastWord::new(&self.memory).after(task));
    }
}

/// Keeps links on the current runtime, even if a task of another runtime requests them.
fn crew(memory: &Arc<Memory>, stop: CancellationToken) -> Crew {
    let (runtime, memory) = (Handle::current(), Arc::clone(memory));
    let spawn = move |task: BoxFuture<'static, ()>| {
        memory.tasks.spawn_on(LastWord::new(&memory).unless_done(task), &runtime);
    };
    Crew { spawn: Box::new(spawn), stop }
}

/// When a client opens its first connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// Before it is there: so its maker learns at once why there are none.
    Now,
    /// After it is there, as it replaces lost ones.
    Later,
}

/// Where a client connects to.
enum To {
    One(Box<Address>),
    Cluster(Box<Addresses>),
    /// The primary that these sentinels watch.
    Sentinel(Box<Sentinels>),
}

impl To {
    fn of(endpoint: &Endpoint, config: &Config) -> Result<Self> {
        #[cfg_attr(
            not(feature = "redis-1"),
            expect(clippy::infallible_destructuring_match, reason = "the feature adds a kind")
        )]
        let url = match endpoint {
            Endpoint::Url(url) => url,
            #[cfg(feature = "redis-1")]
            Endpoint::Redis(info) => return Ok(Self::One(Box::new(Address::given(info, config)?))),
        };
        Ok(match Target::of(url)? {
            Target::Single => Self::One(Box::new(Address::new(url, config)?)),
            Target::Cluster(urls) => Self::Cluster(Box::new(Addresses::new(&urls, config)?)),
            Target::Sentinel(watched) => Self::Sentinel(Box::new(Sentinels::new(watched, config)?)),
        })
    }

    fn space(&self) -> Space {
        match self {
            Self::One(address) => Space::Database(address.database()),
            Self::Cluster(addresses) => Space::Cluster(addresses.database()),
            Self::Sentinel(sentinels) => Space::Database(sentinels.database()),
        }
    }

    /// The session of this client, if it is to have one, and the id that says so.
    ///
    /// # Errors
    /// In a cluster, a client listens to one node, and has locks at others.
    fn in_session(
        &self,
        client: String,
        config: &Config,
    ) -> Result<(String, Option<Arc<Session>>)> {
        let Some(patience) = config.patience() else { return Ok((client, None)) };
        if matches!(self, Self::Cluster(_)) {
            return Err(Error::config("session must not be set in a cluster"));
        }
        // Whoever waits for a lock of this client has to know its patience: see lua/line/sessions.lua.
        let client = format!("{client}+{}", patience.as_millis());
        let channels = channel_prefix(self.space(), &config.prefix);
        let record = record_of_session(&config.prefix, &client);
        let session = Session::new(&channels, &client, record, patience);
        Ok((client, Some(session)))
    }

    /// Opens the first connections if they are wanted now, and has the crew maintain them.
    async fn link(
        self,
        common: CommonArgs,
        crew: Crew,
        config: &Config,
        (heard, on_change): (impl Fn(&str, Heard<'_>) + Send + Sync + 'static, OnChange),
        first: First,
    ) -> Result<(Commands, Subscriber), Fault> {
        let (destination, watched) = match self {
            Self::One(address) => (Destination::Fixed(Arc::new(*address)), None),
            Self::Sentinel(sentinels) => {
                let sentinels = Arc::new(*sentinels);
                (Destination::Primary(Arc::clone(&sentinels)), Some(sentinels))
            }
            Self::Cluster(addresses) => {
                let cluster = Arc::new(Cluster::new(*addresses, config, crew, on_change));
                if first == First::Now {
                    cluster.get_map().await?;
                }
                let linger = config.linger();
                let subscriber = Subscriber::in_cluster(Arc::clone(&cluster), linger, heard);
                cluster.run(|stop| Arc::clone(&cluster).keep_map(subscriber.clone(), stop));
                return Ok((Commands::in_cluster(cluster, common), subscriber));
            }
        };
        let session = common.session.clone();
        let (commands, mut command_link) =
            Commands::new(destination.clone(), common, config, on_change);
        let (subscriber, mut subscriber_link) =
            Subscriber::new(destination, config.linger(), session, heard);
        if first == First::Now {
            tokio::try_join!(command_link.start(), subscriber_link.start())?;
        }
        (crew.spawn)(Box::pin(command_link.run(crew.stop.clone())));
        (crew.spawn)(Box::pin(subscriber_link.run(crew.stop.clone())));
        if let Some(sentinels) = watched {
            (crew.spawn)(Box::pin(watch_failovers(sentinels, crew.stop.clone())));
        }
        Ok((commands, subscriber))
    }
}

/// A random id: a UUID of version 8. Redisson's ids have version 4. So in a queue that both share, our scripts can tell
/// our clients from Redisson's.
fn client_id() -> String {
    let random = *Uuid::new_v4().as_bytes();
    uuid::Builder::from_custom_bytes(random).into_uuid().to_string()
}

/// Undoes requests whose callers have gone.
fn orphans(outbox: Outbox) -> impl Fn(&Acquire, Option<Answer>) + Send + Sync {
    move |question, answer| {
        let under_way = outbox.releases.expected(&question.keys, question.id);
        if let Some(job) = Job::for_orphan(question, answer, under_way) {
            outbox.put(job);
        }
    }
}

/// How long a line is kept in which no client shows a sign of life. One contender of each client asks at least once in
/// `max_park`. A stalled server hears no signs, so the line also outlasts a stall in which no client dies.
fn line_ttl(config: &Config) -> Duration {
    config.max_park.max(config.life()) * 2
}

/// Writes to Redis who this client is, periodically until `stop`. The key then expires.
async fn describe(mut card: Card, commands: Commands, stop: CancellationToken) {
    let mut period = interval(Card::period());
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(period.tick()).await.is_some() {
        let shown = stop.run_until_cancelled(commands.show(&mut card)).await;
        if let Some(Err(fault)) = shown {
            // Nothing depends on it.
            log::debug!(?fault, "could not write the description of the client");
        }
    }
}

/// Closes the client when a task ends, since the client cannot continue without it. Waiters are rejected and tenures
/// are lost, however the task ended: by `close`, by a panic, or with its runtime.
struct LastWord {
    memory: Arc<Memory>,
    /// The task has ended regularly: the client is not closed.
    is_said: bool,
}

impl LastWord {
    fn new(memory: &Arc<Memory>) -> Self {
        Self { memory: Arc::clone(memory), is_said: false }
    }

    async fn after(self, task: impl Future<Output = ()>) {
        task.await;
    }

    /// For a task that may end by itself because its server has left the cluster.
    async fn unless_done(mut self, task: impl Future<Output = ()>) {
        task.await;
        self.is_said = true;
    }
}

impl Drop for LastWord {
    fn drop(&mut self) {
        if self.is_said {
            return;
        }
        self.memory.table.close();
        for tenure in self.memory.outbox.timetable.close() {
            drop(tenure.lose(Loss::Closed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_outlasts_the_place_of_a_waiter_however_often_it_looks() {
        let config = Config::default().waiter_ttl(Duration::from_secs(3));
        let often = config.clone().max_park(Duration::from_millis(500));
        assert_eq!(line_ttl(&often), Duration::from_secs(6));
        assert_eq!(line_ttl(&config), Duration::from_secs(20));
    }
}
