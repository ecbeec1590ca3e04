//! What moves, and knows no primitive: waiting, ownership, renewal, giving back.

mod backlog;
mod claim;
mod contest;
mod debts;
mod entry;
mod hold;
mod insist;
mod job;
mod line;
mod lookout;
mod moment;
mod owned;
mod releaser;
mod returns;
mod shared;
mod sign;
mod stint;
mod tenure;
mod timetable;
mod together;
mod turn;
mod unsaid;
mod wait;
mod watchdog;
mod wheel;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub(crate) use stint::Stint;
pub use tenure::Ended;
pub(crate) use tenure::Lease;
pub(crate) use together::{Together, acquire_all};
pub(crate) use wait::{Patience, Wish, acquire};

use crate::config::{Config, HandOff, Layout};
use crate::engine::debts::Debts;
use crate::engine::entry::{Entry, Outbox, Table, Turn, Visit};
use crate::engine::job::Job;
use crate::engine::line::{Event, PushedGrant, Rules};
use crate::engine::owned::Owned;
use crate::engine::releaser::Releaser;
use crate::engine::returns::Returns;
use crate::engine::sign::Signs;
use crate::engine::tenure::{Budget, Grant, Holder, Tenure};
use crate::engine::timetable::Timetable;
use crate::engine::watchdog::{Rhythm, Watchdog};
use crate::error::{Error, Result};
use crate::keys::{Keys, Kind, TenureId};
use crate::owner::OwnerId;
use crate::wire::{
    Acquired, Acquires, Address, Commands, Connection, Fault, Heard, Landed, Requests, Subscriber,
    Terms, What, publisher, words,
};

/// The pause before something that failed is tried again, give or take a half.
const PAUSE: Duration = Duration::from_millis(100);

/// The part of a reconnect's rush that each waited-for lock adds to its length.
const SPREAD: Duration = Duration::from_micros(50);

/// All that the handles of one client share.
pub(crate) struct Engine {
    pub(crate) config: Config,
    database: i64,
    pub(crate) commands: Commands,
    requests: Requests,
    pub(crate) client: String,
    subscriber: Subscriber,
    table: Arc<Table>,
    timetable: Arc<Timetable>,
    owned: Owned,
    signs: Arc<Signs>,
    rhythm: Rhythm,
    budget: Budget,
    started: Instant,
    orphaned: AtomicBool,
    tenures: AtomicU64,
    orders: AtomicU64,
    waiters: AtomicUsize,
    debts: Debts,
    returns: Arc<Returns>,
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl Engine {
    /// Connects, and starts the client's tasks on the current runtime.
    pub(crate) async fn connect(url: &str, config: Config) -> Result<Arc<Self>> {
        config.check()?;
        let address = Address::new(url, &config)?;
        Self::connect_to(address, client_id(), config).await
    }

    /// Connects over streams of the simulation's, as the client that it names.
    #[cfg(parklock_sim)]
    pub(crate) async fn connect_over(
        dial: crate::wire::Dial,
        client: String,
        config: Config,
    ) -> Result<Arc<Self>> {
        config.check()?;
        Self::connect_to(Address::over(dial, &config)?, client, config).await
    }

    async fn connect_to(address: Address, client: String, config: Config) -> Result<Arc<Self>> {
        let address = Arc::new(address);
        let database = address.database();
        let started = Instant::now();
        let (releaser, jobs) = mpsc::unbounded_channel();
        let (timetable, returns) = (Arc::new(Timetable::new(started)), Arc::<Returns>::default());
        let outbox = Outbox {
            releaser: releaser.clone(),
            returns: Arc::clone(&returns),
            timetable: Arc::clone(&timetable),
        };
        let table = Arc::new(Table::new(outbox));
        let terms = Terms {
            client: client.clone(),
            layout: config.layout,
            line_ttl: line_ttl(&config),
            waiter_ttl: config.claim(),
        };
        let (commands, mut command_link) = Commands::new(Arc::clone(&address), terms);
        let signs = Arc::new(Signs::new(started));
        let ears = Listener {
            table: Arc::clone(&table),
            timetable: Arc::clone(&timetable),
            signs: Arc::clone(&signs),
            client: client.clone(),
            rules: rules(&config, config.claim()),
        };
        let heard = move |channel: &str, heard: Heard<'_>| ears.hear(channel, heard);
        let (subscriber, mut subscriber_link) =
            Subscriber::new(address, config.subscription_linger, heard);
        tokio::try_join!(command_link.start(), subscriber_link.start())
            .map_err(|fault| fault.into_outage(""))?;

        let (rhythm, budget) = (rhythm(&config), budget(&config));
        let (closing, stop) = (CancellationToken::new(), CancellationToken::new());
        let watchdog = Watchdog {
            timetable: Arc::clone(&timetable),
            commands: commands.clone(),
            releaser: releaser.clone(),
            rhythm,
            started,
        };
        let debts = Debts::default();
        let give_back = Releaser {
            jobs,
            commands: commands.clone(),
            debts: debts.clone(),
            patience: config.response(),
        };
        let orphans = orphanage(releaser.clone());
        let requests = Requests::new(&commands, orphans);

        let tasks = TaskTracker::new();
        let last_word =
            || LastWord { table: Arc::clone(&table), timetable: Arc::clone(&timetable) };
        tasks.spawn(last_word().after(command_link.run(stop.clone())));
        tasks.spawn(last_word().after(subscriber_link.run(stop.clone())));
        tasks.spawn(last_word().after(watchdog.run(stop.clone())));
        tasks.spawn(last_word().after(gather(requests.clone(), stop.clone())));
        tasks.spawn(last_word().after(give_back.run(closing.clone(), stop.clone())));
        let (lookout, last_word) = (Arc::clone(table.lookout()), last_word());

        let engine = Arc::new(Self {
            config,
            database,
            commands,
            requests,
            client,
            subscriber,
            table,
            timetable,
            owned: Owned::default(),
            signs,
            rhythm,
            budget,
            started,
            orphaned: AtomicBool::new(false),
            tenures: AtomicU64::new(0),
            orders: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            debts,
            returns,
            closing,
            tasks,
        });
        // It must not keep the client alive.
        let looking = lookout.run(Arc::downgrade(&engine), stop);
        engine.tasks.spawn(last_word.after(looking));
        engine.tasks.close();
        Ok(engine)
    }

    /// Sends waiters away, tells guards that they have lost, gives back what is held, and waits for
    /// the client's tasks to end.
    pub(crate) async fn close(&self) {
        // A debt of its own: the releaser goes on until all that ends here has been handed over to it.
        let handing_over = self.debts.tidying();
        self.debts.close();
        for entry in self.table.close() {
            if let Some(id) = entry.leave_line() {
                self.leave_line(&entry.keys, id);
            }
            self.give_back_former(&entry);
        }
        for tenure in self.timetable.close() {
            self.give_up(&tenure);
        }
        drop(handing_over);
        self.closing.cancel();
        self.tasks.wait().await;
    }

    /// Ends a tenure of a client that is closed.
    fn give_up(&self, tenure: &Tenure) {
        if let Some(stay) = tenure.close() {
            self.later(Job::release(tenure, stay));
        }
    }

    /// Where something of this name lies.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub(crate) fn keys(&self, kind: Kind, name: String) -> Result<Keys> {
        Keys::in_database(self.database, self.config.layout, kind, name)
    }

    /// The request's lease, in time.
    pub(crate) fn lease(&self, lease: Lease) -> Duration {
        match lease {
            Lease::Watched => self.config.watchdog_timeout,
            Lease::Fixed(lease) => lease,
        }
    }

    /// What this owner has of something, by our own account.
    pub(crate) fn held_by(&self, owner: OwnerId, keys: &Keys) -> Option<Stint> {
        let tenure = if keys.is_plain() {
            self.table.find(keys.id())?.tenure()?
        } else {
            self.owned.find(owner, keys)?
        };
        let turn = tenure.stint_of(owner)?;
        Some(Stint::new(tenure, turn))
    }

    /// The entry in which a caller waits: that of all who ask for the same, or one of its own, where it
    /// waits for none of the others: they may be waiting for it.
    fn visit(&self, keys: &Arc<Keys>, part: u32, alone: bool) -> Result<Visit> {
        let visit = if alone || keys.waits_alone() {
            let id = self.next_tenure();
            self.table.place(keys, keys.channel_of(id.of(&self.client)), id)
        } else {
            self.table.visit(keys, part)
        };
        visit.map_err(|fault| fault.into_error(&keys.lock().to_string()))
    }

    /// A tenure that has never been and never will be again.
    fn next_tenure(&self) -> TenureId {
        TenureId(self.tenures.fetch_add(1, Ordering::Relaxed))
    }

    /// The number of something that is to be done once. They are dense, since the server remembers many that
    /// follow each other in one place.
    fn next_order(&self) -> u64 {
        self.orders.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins a tenure, and has it watched.
    fn begin(&self, turn: Turn, grant: Grant, holder: Holder) -> Result<Stint> {
        let renew_at = self.rhythm.first(self.started, grant.sent);
        let visit = turn.entry().has_seats().then(|| turn.visit().clone());
        let stint = self.begun(Tenure::begin(turn, grant, holder, renew_at), holder);
        // What rests may have been left for this caller.
        visit.iter().for_each(|visit| self.look_after(visit));
        stint
    }

    /// As [`begin`](Self::begin), of what was got beside the contender.
    fn begin_beside(&self, visit: Visit, grant: Grant, holder: Holder) -> Result<Stint> {
        let renew_at = self.rhythm.first(self.started, grant.sent);
        visit.entry.take();
        self.begun(Tenure::begin_beside(visit, grant, holder, renew_at), holder)
    }

    fn begun(&self, stint: Stint, holder: Holder) -> Result<Stint> {
        if stint.tenure.is_over() {
            // Whoever has passed a latch holds nothing.
            return Ok(stint);
        }
        if let (Some(owner), false) = (holder.owner, stint.tenure.keys.is_plain()) {
            self.owned.enter(owner, &stint.tenure);
        }
        if self.timetable.enter(&stint.tenure, stint.tenure.next_look(self.rhythm.claim)) {
            return Ok(stint);
        }
        // The client was closed in between.
        self.give_up(&stint.tenure);
        Err(Error::Closed)
    }

    /// The connection to send on. One that has just broken is given the time to come back.
    pub(crate) async fn connected(&self) -> Result<Connection<'_>, Fault> {
        if self.commands.connection().is_err() {
            let _ = tokio::time::timeout(self.config.response(), self.commands.up()).await;
        }
        self.commands.connection()
    }

    /// The turn, if nobody of this client has it or waits for it. What this client has given up itself is
    /// waited for until the server has answered.
    async fn turn_now(&self, visit: &Visit) -> Option<Turn> {
        let is_held = || visit.entry.tenure().is_some_and(|tenure| !tenure.is_over());
        if !is_held() && !visit.entry.is_awaited() {
            self.returns.ended(&visit.entry.keys).await;
        }
        visit.try_turn()
    }

    /// Has something done in the background.
    fn later(&self, job: Job) {
        let is_left = self.table.outbox().is_some_and(|outbox| outbox.put(job));
        if !is_left && !self.orphaned.swap(true, Ordering::Relaxed) {
            tracing::warn!("the client is closed: what it still held is left to its lease");
        }
    }

    /// Gives back what a contender may have got under the owner fields that it had before.
    fn give_back_former(&self, entry: &Entry) {
        entry.take_held_back().into_iter().for_each(|job| self.later(job));
    }

    /// A random part of the time over which all waited-for locks are to be asked for again.
    fn spread(&self) -> Duration {
        (SPREAD * u32::try_from(self.table.len()).unwrap_or(u32::MAX)).mul_f64(fastrand::f64())
    }

    /// A sign of life for a contender, and when it was made. Where there is no line, nobody needs one.
    fn sign(&self, keys: &Keys) -> (u64, Instant) {
        let now = Instant::now();
        if keys.has_line() { self.signs.make(now, &keys.channel) } else { (0, now) }
    }

    fn count_waiter(&self) -> Result<Counted<'_>> {
        let limit = self.config.max_waiters;
        let counted = |waiters| (waiters < limit).then_some(waiters + 1);
        match self.waiters.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted) {
            Ok(_) => Ok(Counted(&self.waiters)),
            Err(_) => Err(Error::TooManyWaiters { limit }),
        }
    }

    /// Counts one that has been counted before, and waits on.
    fn count_again(&self) -> Counted<'_> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        Counted(&self.waiters)
    }
}

/// Random, as a UUID of version 8: Redisson's have version 4, and in the queues that we share with it our
/// scripts tell us from its clients by that.
fn client_id() -> String {
    let random = *Uuid::new_v4().as_bytes();
    uuid::Builder::from_custom_bytes(random).into_uuid().to_string()
}

/// One caller that waits.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a client does with what it hears.
struct Listener {
    table: Arc<Table>,
    timetable: Arc<Timetable>,
    signs: Arc<Signs>,
    client: String,
    rules: Rules,
}

impl Listener {
    fn hear(&self, channel: &str, heard: Heard<'_>) {
        let (name_channel, is_own) = shared_channel(channel, &self.client);
        match heard {
            Heard::Message(message) if is_own => self.hear_words(name_channel, message),
            Heard::Message(message) => self.hear_of_all(channel, message),
            // Live, or out of reach: either way those who wait have to look.
            Heard::Live | Heard::Deaf => {
                for entry in self.table.all_of(name_channel) {
                    entry.step(Event::Roused, self.rules);
                }
            }
        }
    }

    /// A message to this client alone.
    fn hear_words(&self, channel: &str, message: &[u8]) {
        let now = Instant::now();
        for word in words(message, &self.client) {
            let Some(entry) = self.table.find_waiting(channel, word.id) else { continue };
            match word.what {
                What::Granted { number, secret } => {
                    // A grant without a sign of ours may be anybody's message. It wakes, and does no more.
                    let event = match self.signs.time_of(secret, now, channel) {
                        Some(signed) => Event::Told(PushedGrant { id: word.id, number, signed }),
                        None => Event::Roused,
                    };
                    entry.step(event, self.rules);
                }
                What::Near { at_once } => entry.step(Event::Near { at_once }, self.rules),
                // Whoever did it, it is us that it speaks of.
                What::Out => {
                    entry.holder(word.id).iter().for_each(|tenure| self.timetable.hasten(tenure));
                }
            }
        }
    }

    /// A message to everybody: somebody used force, or found that a lock was lost.
    fn hear_of_all(&self, channel: &str, message: &[u8]) {
        let is_anothers = publisher(message) != self.client.as_bytes();
        let is_force = publisher(message) == b"force_unlock";
        let names_holders = is_force && message.contains(&b' ');
        for entry in self.table.all_of(channel) {
            // Whoever used force has let in the next. Whoever found a lock gone may have found the line gone too, and
            // with it what was known of those far from the front.
            entry.step(if is_force { Event::Stirred } else { Event::Roused }, self.rules);
            // Redisson's channels tell of every release. Of what several hold, that says nothing to the others.
            let is_doubtful = !entry.keys.is_shared() || entry.keys.has_line();
            if let Some(tenure) =
                entry.tenure().filter(|_| is_anothers && is_doubtful && !names_holders)
            {
                self.timetable.hasten(&tenure);
            }
        }
        self.hear_words(channel, message);
    }
}

/// The channel of a name that this channel belongs to; whether it is that of this client alone.
fn shared_channel<'a>(channel: &'a str, client: &str) -> (&'a str, bool) {
    let shared = channel.strip_suffix(client).and_then(|channel| channel.strip_suffix(':'));
    (shared.unwrap_or(channel), shared.is_some())
}

/// Without handles and guards, what is being given back is given back, and the tasks end.
impl Drop for Engine {
    fn drop(&mut self) {
        self.debts.close();
    }
}

/// What was done for a caller that has gone is undone: the lock is given back, or its place in line.
fn orphanage(releaser: mpsc::UnboundedSender<Job>) -> impl Fn(Landed<Acquires>) + Send + Sync {
    move |Landed { question, answer }| {
        let granted = matches!(answer.result, Ok(Acquired::Granted { .. }));
        let waits = matches!(answer.result, Ok(Acquired::Waits { .. }));
        let open = answer.result.is_err_and(|fault| fault.is_open());
        // A failure means that the client is closed: then the TTL does it.
        if granted || open {
            let _ = releaser.send(Job::ghost(&question, answer.sent_on));
        } else if waits {
            let debt = question.debt.clone();
            let _ = releaser.send(Job::leave_line(&question.keys, question.id, debt));
        }
    }
}

async fn gather(requests: Requests, stop: CancellationToken) {
    stop.run_until_cancelled(requests.run()).await;
}

/// How long a line is kept in which nobody shows a sign of life: one contender of each client looks more often.
fn line_ttl(config: &Config) -> Duration {
    config.max_park * 2
}

/// How contenders wait for a lease of this length.
fn rules(config: &Config, lease: Duration) -> Rules {
    let waiter_ttl = config.claim();
    let rests = config.layout == Layout::Native;
    Rules { waiter_ttl, pushed_lease: waiter_ttl.min(lease), max_park: config.max_park, rests }
}

fn rhythm(config: &Config) -> Rhythm {
    let Config { watchdog_timeout: timeout, max_hold, .. } = *config;
    Rhythm { timeout, max_hold, claim: config.claim() }
}

fn budget(config: &Config) -> Budget {
    let HandOff { max_consecutive: turns, max_time: time } = config.hand_off;
    // A renewal is late when less than this is left.
    let lease = config.watchdog_timeout;
    Budget { turns, time, reserve: lease / 3, lease }
}

/// A task's last word: without it the client cannot go on. Waiters are sent away and tenures lost,
/// however the task came to its end: by `close`, a panic, or the end of its runtime.
struct LastWord {
    table: Arc<Table>,
    timetable: Arc<Timetable>,
}

impl LastWord {
    async fn after(self, task: impl Future<Output = ()>) {
        task.await;
    }
}

impl Drop for LastWord {
    fn drop(&mut self) {
        self.table.close();
        for tenure in self.timetable.close() {
            tenure.lose("the client has ended");
        }
    }
}
