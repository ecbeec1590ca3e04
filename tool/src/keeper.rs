//! The keeper: the process that has the lock. It renews the lock, and tells the supervisor until when the lock is
//! valid.
//!
//! It is a separate process, so that each of the two can end the command if the other one is stopped or killed:
//!
//! 1. If the keeper falls silent, the supervisor ends the command in time: it knows the deadline.
//! 2. If the supervisor falls silent, the keeper still renews the lock. If it cannot, it ends the command itself.
//! 3. If the supervisor is gone, the keeper ends the command. It gives the lock back when no process of the command's
//!    group is left.
//! 4. If the supervisor falls silent when there is no command, the keeper gives the lock back: nobody would use it.

use std::fs;
use std::future::pending;
use std::process;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getppid};
use parklock::{Client, Error, Guard};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use crate::args::{Lock, OnLost, Work};
use crate::clock::Moment;
use crate::desk::Desk;
use crate::horizon::Horizon;
use crate::limits::Limits;
use crate::signals::{go, hear_all_but};
use crate::voice::Voice;
use crate::words::{Order, Told};
use crate::{exit, holders, lock, stderr};

/// The first word of the command line of this process.
pub(crate) const STAGE: &str = "--keep";

/// The longest time between two checks of whether the lock was renewed.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// How long the lock is held without a command for a supervisor that does not say what it does.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause before another request for a renewal that was not answered.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the release may take. After that, the lease frees the lock.
const GIVING_BACK: Duration = Duration::from_secs(5);

/// Runs this process to its end.
pub(crate) fn keep(lock: &Lock, work: &Work) -> ! {
    // TTOU would stop this background process when it writes its log to the terminal.
    let _ = hear_all_but(&[Signal::SIGTTOU]);
    stderr::guard();
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

struct Keeper<'a> {
    lock: &'a Lock,
    work: &'a Work,
    limits: Limits,
    desk: Desk,
    /// The supervisor wants the lock, and can begin the command.
    is_wanted: bool,
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
    /// The command has not begun.
    Withdrawn,
}

impl<'a> Keeper<'a> {
    fn new(lock: &'a Lock, work: &'a Work, desk: Desk) -> Self {
        let limits = Limits::new(lock.lease(), work.kill_after);
        Self { lock, work, limits, desk, is_wanted: true, group: None }
    }

    async fn run(mut self) {
        deaf();
        let Some(client) = self.connect().await else { return };
        self.desk.tell(Told::Connected);
        let until = self.lock.wait.map(|wait| Instant::now() + wait);
        while let Some(guard) = self.wait(&client, until).await {
            if self.hold(&client, guard).await != End::Withdrawn {
                return;
            }
            self.is_wanted = false;
            self.desk.tell(Told::Paused);
        }
        close(&client).await;
    }

    async fn connect(&mut self) -> Option<Client> {
        let (lock, app) = (self.lock, self.app());
        let supervisor = getppid().as_raw().cast_unsigned();
        let mut connected = std::pin::pin!(lock::connect(lock, &app, supervisor));
        loop {
            tokio::select! {
                connected = &mut connected => {
                    return connected.inspect_err(|error| self.fail(error)).ok();
                }
                order = self.desk.orders.recv() => if self.has_to_end(order) { return None },
            }
        }
    }

    /// Waits for the lock while it is wanted. `None`: the keeper has to end.
    async fn wait(&mut self, client: &Client, until: Option<Instant>) -> Option<Guard> {
        let voice = Voice::of(self.lock);
        loop {
            let (lock, is_wanted) = (self.lock, self.is_wanted);
            let granted = async {
                if !is_wanted {
                    return pending().await;
                }
                voice.waits(lock, whole(client, lock, until)).await
            };
            tokio::select! {
                granted = granted => match granted {
                    Ok(Some(guard)) => return Some(guard),
                    Ok(None) => self.desk.tell(Told::Busy(holders::of(lock).await)),
                    Err(error) => self.fail(&error),
                },
                order = self.desk.orders.recv() => if self.has_to_end(order) { return None } else { continue },
            }
            return None;
        }
    }

    /// Follows an order that comes while the keeper does not have the lock.
    fn has_to_end(&mut self, order: Option<Order>) -> bool {
        match order {
            Some(Order::Wait) => self.is_wanted = true,
            Some(Order::Pause) => {
                self.is_wanted = false;
                self.desk.tell(Told::Paused);
            }
            // The answer to a grant that the keeper has given back meanwhile. The supervisor removes that process.
            Some(Order::Started(_)) => {}
            Some(Order::Over | Order::Now) | None => return true,
        }
        false
    }

    /// The name of the command, without its folder.
    fn app(&self) -> String {
        let program = self.work.command.first().map(|path| path.to_string_lossy());
        program.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned()
    }

    fn fail(&self, error: &Error) {
        self.desk.tell(Told::Failed(exit::of_error(error), error.to_string()));
    }

    async fn hold(&mut self, client: &Client, guard: Guard) -> End {
        let since = Instant::now();
        let mut horizon = Horizon::new();
        let until = horizon.look(&guard).unwrap_or_else(Moment::now);
        self.desk.tell(Told::Granted { token: guard.token().get(), until });
        let end = self.keep(&guard, &mut horizon).await;
        match end {
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
            End::Orphaned => {
                self.end_group(&guard).await;
                self.give_back(client, guard).await;
            }
            // If the release fails, the client repeats it.
            End::Withdrawn => drop(timeout(GIVING_BACK, guard.unlock()).await),
        }
        end
    }

    async fn keep(&mut self, guard: &Guard, horizon: &mut Horizon) -> End {
        let mut ended = std::pin::pin!(guard.ended());
        // Since when no command has needed the lock. The supervisor begins one, or says that it has ended.
        let mut idle_since = Some(Instant::now());
        loop {
            let look = LONGEST_LOOK.min(self.lock.lease() / 20);
            let spare = guard.remaining().saturating_sub(self.last_moment());
            tokio::select! {
                biased;
                _ = &mut ended => {
                    self.kill();
                    return if self.group.is_some() { End::Lost } else { End::Withdrawn };
                }
                order = self.desk.orders.recv() => match order {
                    // The supervisor would end the command at once.
                    Some(Order::Started(_)) if guard.remaining() <= self.limits.warn => return End::Withdrawn,
                    Some(Order::Started(group)) => self.begin(Pid::from_raw(group)),
                    Some(Order::Pause) if self.group.is_none() => return End::Withdrawn,
                    Some(Order::Over) => return End::Over,
                    Some(Order::Now) => return End::Now,
                    Some(Order::Pause | Order::Wait) => {}
                    None => return End::Orphaned,
                },
                () = sleep(look.min(spare).max(Duration::from_millis(1))) => {}
            }
            if let Some(until) = horizon.look(guard) {
                self.desk.tell(Told::Until(until));
            }
            if guard.remaining() <= self.last_moment() {
                self.kill();
            }
            let is_idle = self.group.is_none_or(has_ended);
            idle_since = is_idle.then(|| idle_since.unwrap_or_else(Instant::now));
            if idle_since.is_some_and(|since| since.elapsed() >= PATIENCE) {
                return if self.group.is_some() { End::Over } else { End::Withdrawn };
            }
        }
    }

    /// Lets the command begin.
    fn begin(&mut self, group: Pid) {
        self.group = Some(group);
        go(group);
        self.desk.tell(Told::Begun);
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
                Some(Order::Over | Order::Now) => return,
                Some(_) => {}
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
        let ordered = async {
            // The supervisor may say only now that the command has ended. Otherwise the keeper has to end now, or the
            // supervisor is gone.
            while self.desk.orders.recv().await == Some(Order::Over) {}
        };
        tokio::select! {
            () = sleep(rest) => {}
            _ = guard.ended() => {}
            () = ordered => {}
        }
    }

    async fn give_back(&self, client: &Client, guard: Guard) {
        let word = match timeout(GIVING_BACK, guard.unlock()).await {
            Ok(Ok(())) => Told::Freed,
            Ok(Err(Error::Lost { .. })) => Told::Gone,
            Ok(Err(error)) => Told::Left(error.to_string()),
            Err(_) => Told::Left("redis did not answer".to_owned()),
        };
        close(client).await;
        self.desk.tell(word);
    }
}

/// Gets the lock with its whole lease. A grant by message lasts only for a moment, until a renewal confirms it. So this
/// renews the lock before the command begins.
async fn whole(
    client: &Client,
    lock: &Lock,
    until: Option<Instant>,
) -> parklock::Result<Option<Guard>> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let Some(guard) = lock::acquire(client, lock, left).await? else { return Ok(None) };
        if guard.remaining() > lock.lease() * 2 / 3 {
            return Ok(Some(guard));
        }
        match extended(&guard, lock.lease()).await {
            Ok(()) => return Ok(Some(guard)),
            Err(Error::Lost { .. }) => {}
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

/// Whether a process has ended, and its parent has not reaped it yet. The first thread of a process may end before the
/// others.
fn has_ended(process: Pid) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program, in brackets, stands before the state. The number of threads is the 18th word from there.
    let Some((_, rest)) = text.rsplit_once(") ") else { return false };
    let mut words = rest.split(' ');
    words.next() == Some("Z") && words.nth(16) == Some("1")
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
