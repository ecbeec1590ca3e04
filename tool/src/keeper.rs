//! The keeper: the process that has the lock. It renews the lock, and tells the supervisor until when the lock is
//! valid.
//!
//! It is a separate process, so that each of the two can end the command if the other one is stopped or killed:
//!
//! 1. If the keeper falls silent, the supervisor ends the command in time: it knows the deadline.
//! 2. If the supervisor falls silent, the keeper still renews the lock. If it cannot, it ends the command itself.
//! 3. If the supervisor is gone, the keeper ends the command. It gives the lock back when no process of the command's
//!    group is left.

use std::io::{self, BufRead, Write};
use std::process;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use parklock::{Client, Error, Guard};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

use crate::args::{Lock, OnLost, Work};
use crate::launch::hear_all;
use crate::limits::Limits;
use crate::moment::{Moment, awake, slept};
use crate::words::{Order, Told};
use crate::{exit, lock};

/// The first word of the command line of this process.
pub(crate) const STAGE: &str = "--keep";

/// The longest time between two checks of whether the lock was renewed.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// The pause before another request for a renewal that was not answered.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the release may take. After that, the lease frees the lock.
const GIVING_BACK: Duration = Duration::from_secs(5);

/// Runs this process to its end.
pub(crate) fn keep(lock: &Lock, work: &Work) -> ! {
    let _ = hear_all();
    let (desk, writer) = Desk::open();
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(Keeper::new(lock, work, desk).run()),
        Err(error) => {
            desk.tell(Told::Failed(exit::BROKEN, error.to_string()));
            drop(desk);
        }
    }
    let _ = writer.join();
    // Do not wait for the thread that reads orders: it may read forever.
    process::exit(i32::from(exit::OK))
}

/// Where orders arrive and words leave. Each has its own thread, so that a stopped supervisor does not delay the
/// renewals.
struct Desk {
    orders: UnboundedReceiver<Order>,
    words: Sender<Told>,
}

impl Desk {
    fn open() -> (Self, JoinHandle<()>) {
        let (words, outbox) = channel::<Told>();
        let writer = thread::spawn(move || {
            while let Ok(first) = outbox.recv() {
                // If the supervisor was stopped for long, it needs only the last deadline.
                let words = outbox.try_iter().fold(vec![first], without_old_deadlines);
                let text = words.iter().map(|word| format!("{word}\n")).collect::<String>();
                let mut out = io::stdout().lock();
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
        });
        let (inbox, orders) = unbounded_channel();
        thread::spawn(move || {
            let lines = io::stdin().lock().lines().map_while(Result::ok);
            let mut orders = lines.filter_map(|line| Order::read(&line));
            // This ends when the keeper takes no more orders.
            let _ = orders.try_for_each(|order| inbox.send(order));
        });
        (Self { orders, words }, writer)
    }

    fn tell(&self, word: Told) {
        let _ = self.words.send(word);
    }
}

fn without_old_deadlines(mut words: Vec<Told>, next: Told) -> Vec<Told> {
    if let (Some(Told::Until(_)), Told::Until(_)) = (words.last(), &next) {
        words.pop();
    }
    words.push(next);
    words
}

struct Keeper<'a> {
    lock: &'a Lock,
    work: &'a Work,
    limits: Limits,
    desk: Desk,
    /// The process group of the command, once it runs.
    group: Option<Pid>,
}

/// Why the keeper stops keeping the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Over,
    /// The user does not want to wait until `--min-hold` is over.
    Now,
    Lost,
    Orphaned,
}

impl<'a> Keeper<'a> {
    fn new(lock: &'a Lock, work: &'a Work, desk: Desk) -> Self {
        let limits = Limits::new(lock.lease(), work.kill_after);
        Self { lock, work, limits, desk, group: None }
    }

    async fn run(mut self) {
        deaf();
        let (lock, app) = (self.lock, self.app());
        let client = tokio::select! {
            connected = lock::connect(lock, &app) => match connected {
                Ok(client) => client,
                Err(error) => return self.fail(&error),
            },
            // Any order here means that the lock is no longer wanted.
            _ = self.desk.orders.recv() => return,
        };
        self.desk.tell(Told::Connected);
        let granted = tokio::select! {
            granted = whole(&client, lock) => granted,
            _ = self.desk.orders.recv() => return close(&client).await,
        };
        match granted {
            Ok(Some(guard)) => return self.hold(&client, guard).await,
            Ok(None) => self.desk.tell(Told::Busy),
            Err(error) => self.fail(&error),
        }
        close(&client).await;
    }

    /// The name of the command, without its folder.
    fn app(&self) -> String {
        let program = self.work.command.first().map(|path| path.to_string_lossy());
        program.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned()
    }

    fn fail(&self, error: &Error) {
        self.desk.tell(Told::Failed(exit::of_error(error), error.to_string()));
    }

    async fn hold(&mut self, client: &Client, guard: Guard) {
        let since = Instant::now();
        let mut horizon = Horizon::new();
        let until = horizon.look(&guard).unwrap_or_else(Moment::now);
        self.desk.tell(Told::Granted { token: guard.token().get(), until });
        match self.keep(&guard, &mut horizon).await {
            End::Over => {
                self.stay(&guard, since).await;
                self.give_back(client, guard).await;
            }
            End::Now => self.give_back(client, guard).await,
            End::Lost => {
                self.desk.tell(Told::Gone);
                self.await_end().await;
                close(client).await;
            }
            // Without a group, the keeper cannot know whether the command has begun. So it leaves the lock to its
            // lease.
            End::Orphaned if self.group.is_none() => {}
            End::Orphaned => {
                self.end_group(&guard).await;
                self.give_back(client, guard).await;
            }
        }
    }

    async fn keep(&mut self, guard: &Guard, horizon: &mut Horizon) -> End {
        let mut ended = std::pin::pin!(guard.ended());
        loop {
            let look = LONGEST_LOOK.min(self.lock.lease() / 20);
            let spare = guard.remaining().saturating_sub(self.last_moment());
            tokio::select! {
                biased;
                order = self.desk.orders.recv() => match order {
                    Some(Order::Started(group)) => self.group = Some(Pid::from_raw(group)),
                    Some(Order::Over) => return End::Over,
                    Some(Order::Now) => return End::Now,
                    None => return End::Orphaned,
                },
                _ = &mut ended => {
                    self.kill();
                    return End::Lost;
                }
                () = sleep(look.min(spare).max(Duration::from_millis(1))) => {}
            }
            if let Some(until) = horizon.look(guard) {
                self.desk.tell(Told::Until(until));
            }
            if guard.remaining() <= self.last_moment() {
                self.kill();
            }
        }
    }

    /// How long before the deadline the keeper kills the command. The supervisor does so a little earlier, unless it is
    /// stopped.
    fn last_moment(&self) -> Duration {
        self.limits.margin / 2
    }

    fn kill(&self) {
        if self.work.on_lost != OnLost::Ignore {
            self.signal(Signal::SIGKILL);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = killpg(group, signal);
        }
    }

    /// Waits until the supervisor says that the command has ended. If the supervisor is gone, kills the command.
    async fn await_end(&mut self) {
        loop {
            match self.desk.orders.recv().await {
                Some(Order::Started(group)) => {
                    self.group = Some(Pid::from_raw(group));
                    self.kill();
                }
                Some(Order::Over | Order::Now) => return,
                None => return self.kill(),
            }
        }
    }

    /// Ends the command, since the supervisor is gone: TERM, and KILL after `--kill-after`, or before the deadline of
    /// the lock.
    async fn end_group(&self, guard: &Guard) {
        if self.work.on_lost != OnLost::Kill {
            self.signal(Signal::SIGTERM);
            self.signal(Signal::SIGCONT); // a stopped process does not act on TERM
        }
        let spare = guard.remaining().saturating_sub(self.limits.margin);
        let _ = timeout(spare.min(self.work.kill_after), self.nobody_left()).await;
        self.signal(Signal::SIGKILL);
        let _ = timeout(LONGEST_LOOK, self.nobody_left()).await;
    }

    async fn nobody_left(&self) {
        let is_there = |group| killpg(group, None) != Err(Errno::ESRCH);
        while self.group.is_some_and(is_there) {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Keeps others out until `--min-hold` is over.
    async fn stay(&mut self, guard: &Guard, since: Instant) {
        let rest = self.lock.min_hold.unwrap_or_default().saturating_sub(since.elapsed());
        tokio::select! {
            () = sleep(rest) => {}
            _ = guard.ended() => {}
            // The supervisor says that the keeper has to end now, or is gone.
            _ = self.desk.orders.recv() => {}
        }
    }

    async fn give_back(&self, client: &Client, guard: Guard) {
        let word = match timeout(GIVING_BACK, guard.unlock()).await {
            Ok(Ok(())) => Told::Freed,
            Ok(Err(Error::Lost)) => Told::Gone,
            Ok(Err(error)) => Told::Left(error.to_string()),
            Err(_) => Told::Left("redis did not answer".to_owned()),
        };
        close(client).await;
        self.desk.tell(word);
    }
}

/// Gets the lock with its whole lease. A grant by message lasts only for a moment, until a renewal confirms it. So this
/// renews the lock before the command begins.
async fn whole(client: &Client, lock: &Lock) -> parklock::Result<Option<Guard>> {
    let until = lock.wait.map(|wait| Instant::now() + wait);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let Some(guard) = lock::acquire(client, lock, left).await? else { return Ok(None) };
        if guard.remaining() > lock.lease() * 2 / 3 {
            return Ok(Some(guard));
        }
        match extended(&guard, lock.lease()).await {
            Ok(()) => return Ok(Some(guard)),
            Err(Error::Lost) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Extends the lease. The tool may have waited for the lock for long, so one answer that is missing must not cost it the
/// lock: this asks again, until the lock is lost.
async fn extended(guard: &Guard, lease: Duration) -> parklock::Result<()> {
    loop {
        match guard.extend(lease).await {
            Err(Error::Unavailable { .. } | Error::Indeterminate { .. }) => {
                sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
            }
            extended => return extended,
        }
    }
}

/// Waits until the client has given everything back.
async fn close(client: &Client) {
    let _ = timeout(GIVING_BACK, client.close()).await;
}

/// Ignores signals. The supervisor passes them on to the command, and decides when the keeper gives the lock back. A
/// signal to both processes must not end the keeper first.
fn deaf() {
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ];
    kinds.into_iter().for_each(|kind| drop(signal(kind)));
}

/// Until when the lock is valid, on the clock that the supervisor reads.
///
/// The library counts deadlines on a clock that stands still while the machine sleeps. The supervisor's clock does not.
/// So the keeper translates each deadline once, when it is new. It adds the sleep up to its previous check, not up to
/// now: if the machine slept while a renewal was in flight, that sleep does not count as time that is left.
struct Horizon {
    /// The last deadline, on the clock that stands still.
    until: Duration,
    slept: Duration,
}

impl Horizon {
    /// Two readings of one deadline differ by less than this.
    const SAME: Duration = Duration::from_millis(3);

    fn new() -> Self {
        Self { until: Duration::ZERO, slept: slept() }
    }

    /// The deadline, if it is a new one.
    fn look(&mut self, guard: &Guard) -> Option<Moment> {
        let slept_before = std::mem::replace(&mut self.slept, slept());
        // Read the clock first: then a late reading of the guard makes the deadline earlier, not later.
        let now = awake();
        let until = now + guard.remaining();
        if until <= self.until + Self::SAME {
            return None;
        }
        self.until = until;
        Some(Moment(until + slept_before))
    }
}
