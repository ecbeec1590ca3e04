//! One connection, which the client re-establishes forever.
//!
//! A [`LinkTask`] is the task: it connects, greets, keeps the connection alive, and starts again when it fails. A
//! [`Link`] is the view of other tasks: the live connection, or why there is none.
//!
//! 1. Other tasks see a connection only after its first requests have succeeded (`Duty::greet`).
//! 2. Each connection has its own generation. So a late answer from an older connection is recognized.
//! 3. Only the task gives a connection up. It ends with the last request that still waits for its answer.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::PushInfo;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::error::said;
use crate::failures::Failures;
use crate::log;
use crate::meters;
use crate::mutex::Mutex;
use crate::pause::jittered;
use crate::wire::address::{Address, Dialled, Hello, Login};
use crate::wire::destination::{Destination, Found};
use crate::wire::fault::Fault;
use crate::wire::socket::Socket;

/// The first pause after a connection failed. The pause doubles up to a maximum, until a connection has lived for
/// longer than the next pause would be. So the client does not connect a hundred times a second to a server that
/// accepts connections and drops them at once. Nor does it stay away for long from a server that drops a connection now
/// and then.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a connection may be gone before its duty learns that no messages arrive. Usually there is a new one within
/// milliseconds.
const NOTICED: Duration = Duration::from_millis(250);

/// The shortest time between two credentials, plus or minus half.
const SHORTEST_VALIDITY: Duration = Duration::from_secs(1);

/// The pause between heartbeats. The client detects a stopped server after this plus one response timeout at most.
const LONGEST_PAUSE_BETWEEN_HEARTBEATS: Duration = Duration::from_secs(1);

/// The duty of a connection: what it is for. Its futures are boxed, so that a link is compiled once, and not once for each duty.
pub(crate) trait Duty: Send + Sync {
    /// The link's name in the log.
    fn name(&self) -> &'static str;

    /// Does what is required of a connection before it may be used. `hello`: what the server has said about itself.
    fn greet<'a>(&'a self, socket: &'a Socket, hello: &'a Hello, generation: u64) -> Greeted<'a>;

    /// Asks the server for a sign of life.
    fn heartbeat<'a>(&'a self, socket: &'a Socket) -> Greeted<'a>;

    /// The connection may be used from now on.
    fn up(&self) {}

    /// Works as long as the connection lives, and returns why the connection has ended.
    fn work<'a>(&'a self, _socket: &'a Socket) -> BoxFuture<'a, Fault> {
        Box::pin(pending())
    }

    /// Receives the server's pushes, on the task that reads the connection. It must not block.
    fn hear(&self, _generation: u64, _push: PushInfo) {}

    /// The connection is gone.
    fn down(&self) {}

    /// The connection has been gone for a while.
    fn stays_down(&self) {}
}

/// Whether the server is one that this duty can be done at.
pub(crate) type Greeted<'a> = BoxFuture<'a, Result<(), Fault>>;

/// The generation of the next connection, of whichever client. 0 is none.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A live connection.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) generation: u64,
    pub(crate) socket: Socket,
    /// The one with which the connection began. Whoever waits for an answer may read it after the link has ended.
    login: Login,
}

/// The live connection, or why there is none.
type State = Result<Live, Fault>;

/// A time without a connection.
#[derive(Debug, Clone, Copy)]
struct Downtime {
    /// The server has answered nothing that was asked since then.
    since: Instant,
    /// When an attempt to connect last failed.
    tried: Option<Instant>,
}

/// For so long after an attempt to connect has failed, callers take its outcome for that of their own.
const TRIED: Duration = Duration::from_millis(100);

/// A view of a connection that another task maintains.
#[derive(Clone)]
pub(crate) struct Link {
    state: watch::Receiver<State>,
    shared: Arc<Shared>,
}

/// What the task and its views share.
#[derive(Default)]
struct Shared {
    /// The newest generation whose server must not be trusted: it answers like a replica, or is behind.
    suspects: watch::Sender<u64>,
    /// Signalled when the server is worth another try at once.
    worth_a_try: Notify,
    outage: Mutex<Option<Downtime>>,
}

impl Link {
    /// The live connection, or why there is none.
    pub(crate) fn live(&self) -> State {
        self.state.borrow().clone()
    }

    /// Waits until there is a live connection, or until waiting does not help: then `live` says why.
    pub(crate) async fn up(&self) {
        let settled = |state: &State| !state.as_ref().is_err_and(Fault::is_passing);
        // An error means that the task has ended.
        let _ = self.state.clone().wait_for(settled).await;
    }

    /// Since when the server has answered nothing, if there is no connection.
    pub(crate) fn down_since(&self) -> Option<Instant> {
        self.shared.outage.lock().map(|outage| outage.since)
    }

    /// Waits until there is a connection, or an attempt to connect has just failed. Has the task try now, if it pauses.
    pub(crate) async fn tried_now(&self) {
        let mut state = self.state.clone();
        let tried = || self.shared.outage.lock().and_then(|outage| outage.tried);
        while state.borrow_and_update().as_ref().is_err_and(Fault::is_passing) {
            match tried() {
                Some(tried) if tried.elapsed() < TRIED => return,
                Some(_) => self.try_now(),
                None => {}
            }
            if state.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until the task has tried to connect for the first time.
    pub(crate) async fn tried(&self) {
        let _ = self.state.clone().changed().await;
    }

    /// Has the task try at once to connect to a server that it could not use. Otherwise it pauses for up to a second
    /// between two tries: so a replica that becomes a primary would be out of reach for that long.
    pub(crate) fn try_now(&self) {
        self.shared.worth_a_try.notify_one();
    }

    /// Has the task replace a connection whose server must not be trusted.
    pub(crate) fn suspect(&self, generation: u64) {
        self.shared.suspects.send_if_modified(|newest| {
            let newer = generation > *newest;
            *newest = generation.max(*newest);
            newer
        });
    }
}

/// The task that maintains one connection.
pub(crate) struct LinkTask {
    destination: Destination,
    /// The target of the last connection.
    found: Option<Found>,
    duty: Arc<dyn Duty>,
    state: watch::Sender<State>,
    shared: Arc<Shared>,
    pause: Duration,
    first: Option<Fresh>,
    was_up: bool,
}

/// A connection, and where it leads.
struct Fresh {
    live: Live,
    found: Found,
}

impl LinkTask {
    pub(crate) fn new(destination: Destination, duty: Arc<dyn Duty>) -> (Self, Link) {
        let (state, seen) = watch::channel(Err(Fault::NotSent(said("not connected yet"))));
        let link = Link { state: seen, shared: Arc::default() };
        let task = Self {
            destination,
            found: None,
            duty,
            state,
            shared: Arc::clone(&link.shared),
            pause: SHORTEST_PAUSE,
            first: None,
            was_up: false,
        };
        (task, link)
    }

    /// Opens the first connection, so that a caller learns at once why there is none.
    pub(crate) async fn start(&mut self) -> Result<(), Fault> {
        let fresh = self.establish().await?;
        self.show(Ok(fresh.live.clone()));
        self.first = Some(fresh);
        Ok(())
    }

    /// Maintains a connection until `stop`, whatever happens to it.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let forever = async {
            loop {
                let fresh = match self.first.take() {
                    Some(first) => first,
                    None => self.establish_or_tell().await,
                };
                self.keep(fresh).await;
            }
        };
        stop.run_until_cancelled(forever).await;
    }

    async fn establish(&mut self) -> Result<Fresh, Fault> {
        let generation = NEXT.fetch_add(1, Ordering::Relaxed);
        let found = self.destination.find().await?;
        self.found = Some(found.clone());
        let (address, limit) = (&found.address, found.address.connect_timeout());
        tokio::select! {
            biased;
            made = Fault::unless_in(limit, address, self.connect(&found, generation)) => made,
            () = self.destination.left(Some(&found)) => Err(elsewhere()),
        }
    }

    async fn connect(&self, found: &Found, generation: u64) -> Result<Fresh, Fault> {
        let (address, state) = (&found.address, self.state.clone());
        let duty = Arc::clone(&self.duty);
        let hear = move |push| duty.hear(generation, push);
        // Before a caller learns that its request failed: otherwise it would ask again on the broken connection.
        let ended = move || {
            let mut broken = Err(Fault::NotSent(said("the connection broke")));
            state.send_if_modified(|state| {
                let is_it = state.as_ref().is_ok_and(|live| live.generation == generation);
                if is_it {
                    std::mem::swap(state, &mut broken);
                }
                is_it
            });
        };
        let dialled = address.connect(Box::new(hear), Box::new(ended)).await;
        let Dialled { socket, hello, login } = dialled.map_err(|fault| fault.of(address))?;
        let greeted = self.duty.greet(&socket, &hello, generation).await;
        greeted.map_err(|fault| fault.of(address))?;
        Ok(Fresh { live: Live { generation, socket, login }, found: found.clone() })
    }

    /// Same as [`establish_again`](Self::establish_again), but notifies the duty if that takes a while.
    async fn establish_or_tell(&mut self) -> Fresh {
        let duty = Arc::clone(&self.duty);
        let tell = async move {
            sleep(NOTICED).await;
            duty.stays_down();
            pending::<Infallible>().await
        };
        tokio::select! {
            fresh = self.establish_again() => fresh,
            never = tell => match never {},
        }
    }

    /// Tries until it succeeds. After each failure it records for callers why there is no connection.
    async fn establish_again(&mut self) -> Fresh {
        loop {
            // Jitter: otherwise all clients of a restarted server would connect at the same moment.
            let pause = sleep(self.pause.mul_f64(0.5 + fastrand::f64() / 2.0));
            tokio::select! {
                biased;
                () = pause => {}
                // There is no reason to wait for a server that has not been tried.
                () = self.destination.left(self.found.as_ref()) => {}
                () = self.shared.worth_a_try.notified() => self.pause = SHORTEST_PAUSE,
            }
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            match self.establish().await {
                Ok(fresh) => return fresh,
                Err(fault) => {
                    let now = Instant::now();
                    self.is_down(now, Some(now));
                    self.show(Err(unsent(fault)));
                }
            }
        }
    }

    /// Publishes the connection, and stays with it until it fails.
    async fn keep(&mut self, fresh: Fresh) {
        let (Fresh { live, found }, name) = (fresh, self.duty.name());
        let login = live.login.clone();
        let (generation, socket, server) = (live.generation, live.socket.clone(), &found.address);
        log::info!(link = name, generation, %server, "connected");
        meters::connected(name, std::mem::replace(&mut self.was_up, true));
        let since = Instant::now();
        *self.shared.outage.lock() = None;
        self.show(Ok(live));
        self.duty.up();
        let fault = tokio::select! {
            // Within: as long as the credentials that are being sent are known, no error shows them.
            fault = async { Fault::answering(socket.ended().await) } => fault,
            fault = self.heartbeats(&socket, server.response_timeout()) => fault,
            never = authenticate(&socket, server, login) => match never {},
            fault = self.duty.work(&socket) => fault,
            fault = self.suspected(generation) => fault,
            () = self.destination.left(Some(&found)) => elsewhere(),
        };
        log::info!(link = name, generation, %server, %fault, "disconnected");
        self.is_down(Instant::now(), None);
        self.show(Err(unsent(fault.of(server))));
        self.duty.down();
        if since.elapsed() > self.pause {
            self.pause = SHORTEST_PAUSE;
        }
    }

    /// The server has answered nothing since then, or since an earlier time that is known.
    fn is_down(&self, since: Instant, tried: Option<Instant>) {
        let mut outage = self.shared.outage.lock();
        let since = outage.map_or(since, |outage| outage.since);
        *outage = Some(Downtime { since, tried });
    }

    fn show(&self, state: State) {
        drop(self.state.send_replace(state));
    }

    async fn heartbeats(&self, socket: &Socket, response: Duration) -> Fault {
        let mut heartbeat = interval(LONGEST_PAUSE_BETWEEN_HEARTBEATS.min(response / 2));
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            heartbeat.tick().await;
            let asked = Instant::now();
            if let Err(fault) = self.duty.heartbeat(socket).await {
                self.is_down(asked, None);
                return fault;
            }
        }
    }

    async fn suspected(&self, generation: u64) -> Fault {
        // This task has the sender, too.
        let _ = self.shared.suspects.subscribe().wait_for(|newest| *newest >= generation).await;
        Fault::Distrusted(said("the server can no longer be trusted"))
    }
}

/// Replaces the credentials of a connection before they expire, again and again.
async fn authenticate(socket: &Socket, server: &Address, mut login: Login) -> Infallible {
    let mut failures = Failures::of_server("replace the credentials", server);
    while let Some(at) = login.renew_at {
        sleep_until(at).await;
        let answer = server.authenticate(socket).await;
        // Whatever validity it reports, a provider is not called continuously.
        let again = Instant::now() + jittered(SHORTEST_VALIDITY);
        match answer {
            Ok(next) => {
                failures.succeeds();
                login = next;
                login.renew_at = login.renew_at.map(|next| next.max(again));
            }
            Err(fault) => {
                failures.fails(&fault);
                login.renew_at = Some(again);
            }
        }
    }
    pending().await
}

/// The server may still answer, and call itself a primary.
fn elsewhere() -> Fault {
    Fault::Distrusted(said("the sentinels name another primary"))
}

/// However the connection ended, requests from now on are not sent.
fn unsent(fault: Fault) -> Fault {
    match fault {
        Fault::Unanswered(source) => Fault::NotSent(source),
        fault => fault,
    }
}

impl Drop for LinkTask {
    fn drop(&mut self) {
        self.show(Err(Fault::Closed));
    }
}
