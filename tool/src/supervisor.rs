//! The supervisor: the process that has the command. It passes signals on, and ends the command before another caller
//! can get the lock.
//!
//! It has one thread. It waits for signals, for its alarm clock, and for the words of the keeper (`keeper.rs`), and
//! handles one of them after the other.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;
use serde_json::json;

use crate::args::{Lock, OUTER, OnLost, Work};
use crate::clock::{Alarm, Moment};
use crate::job::{Job, Report};
use crate::limits::Limits;
use crate::link::Link;
use crate::phase::{Next, Outcome, Phase, Running};
use crate::signals::{self, Signals, Who, ends, forgets_children};
use crate::terminal::Terminal;
use crate::text::printable;
use crate::voice::{NOT_THERE, NOT_THERE_OR_OVER, Voice};
use crate::words::{Order, Told};
use crate::{exit, stderr};

#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    lock: &'a Lock,
    work: &'a Work,
    /// The arguments of this process, which are those of the keeper.
    arguments: &'a [OsString],
    limits: Limits,
    voice: Voice,
    signals: Signals,
    alarm: Alarm,
    terminal: Option<Terminal>,
    /// The first signal that has asked the tool to end.
    ending: Option<Signal>,
    /// A keeper has reached Redis.
    has_connected: bool,
}

impl<'a> Supervisor<'a> {
    /// # Errors
    /// If a system call fails.
    pub(crate) fn new(
        lock: &'a Lock,
        work: &'a Work,
        arguments: &'a [OsString],
    ) -> io::Result<Self> {
        if forgets_children() {
            return Err(io::Error::other(
                "SIGCHLD is ignored: the tool could not learn how the command ends",
            ));
        }
        stderr::guard();
        Ok(Self {
            lock,
            work,
            arguments,
            limits: Limits::new(lock.lease(), work.kill_after),
            voice: Voice::of(lock),
            terminal: Terminal::on_stdin(),
            signals: Signals::take()?,
            alarm: Alarm::new()?,
            ending: None,
            has_connected: false,
        })
    }

    /// Whether a signal has asked the tool to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether a keeper has ever connected to Redis.
    pub(crate) fn has_connected(&self) -> bool {
        self.has_connected
    }

    /// Sleeps until a signal asks the tool to end, but no longer than this. Returns that signal. If it has already come,
    /// the call does not sleep.
    pub(crate) fn rest(&mut self, span: Duration) -> io::Result<Option<Signal>> {
        let until = Moment::now().after(span);
        self.alarm.set(Some(until))?;
        while self.ending.is_none() && !until.ahead().is_zero() {
            self.await_news(None, PollTimeout::NONE)?;
            while let Some(signal) = self.signals.next() {
                self.heed(signal);
            }
        }
        Ok(self.ending)
    }

    /// Gets the lock, runs the command, and gives the lock back: once.
    ///
    /// # Errors
    /// If a system call fails.
    pub(crate) fn hold_once(&mut self) -> io::Result<Outcome> {
        reap_all_but(None);
        let mut link = Link::start(self.arguments, &self.lock.server.url())?;
        let mut phase = Phase::Waiting;
        loop {
            if let Phase::Done(outcome) = phase {
                return Ok(outcome);
            }
            self.alarm.set(self.next_alarm(&phase))?;
            self.await_news(Some(&link), PollTimeout::NONE)?;
            // Read all words before the clock: while this process was stopped, the keeper may have renewed the lock.
            while !link.is_gone() && self.await_news(Some(&link), PollTimeout::ZERO)? {
                phase = match link.hear() {
                    Some(words) => words
                        .into_iter()
                        .fold(phase, |phase, told| self.told(told, phase, &mut link)),
                    None => self.keeper_gone(phase),
                };
            }
            phase = self.look_at_clock(phase);
            while let Some(signal) = self.signals.next() {
                phase = self.signalled(signal, phase, &mut link);
            }
        }
    }

    /// Waits until there is something to do, but not beyond a limit. Returns whether the keeper has said something.
    fn await_news(&self, link: Option<&Link>, limit: PollTimeout) -> io::Result<bool> {
        let (signals, alarm) = (self.signals.as_fd(), self.alarm.as_fd());
        let on = |fd| PollFd::new(fd, PollFlags::POLLIN);
        // A closed pipe would count as readable forever.
        let Some(link) = link.filter(|link| !link.is_gone()) else {
            wait_for(&mut [on(signals), on(alarm)], limit)?;
            return Ok(false);
        };
        let mut fds = [on(signals), on(alarm), on(link.as_fd())];
        wait_for(&mut fds, limit)?;
        Ok(fds[2].revents().is_some_and(|found| !found.is_empty()))
    }

    fn told(&mut self, told: Told, phase: Phase, link: &mut Link) -> Phase {
        match (told, phase) {
            (Told::Connected, phase) => {
                self.has_connected = true;
                phase
            }
            (told, Phase::Waiting) => self.told_in_line(told, link),
            (told, Phase::Running(running)) => self.told_of_lock(told, running, link),
            (told, Phase::GivingBack { code, urged }) => self.told_at_end(told, code, urged),
            (Told::Freed | Told::Left(_) | Told::Gone, Phase::Leaving(code)) => {
                Phase::Done(Outcome::Code(code))
            }
            (_, phase) => phase,
        }
    }

    fn told_in_line(&mut self, told: Told, link: &mut Link) -> Phase {
        match told {
            Told::Granted { token, until } => self.granted(token, until, link),
            // This process was stopped, so the keeper waits for its word before it waits for the lock again.
            Told::Paused => {
                link.order(Order::Wait);
                Phase::Waiting
            }
            Told::Busy(holders) => Phase::Done(Outcome::Code(self.voice.busy(self.lock, &holders))),
            Told::Failed(code, why) => {
                let why = self.lock.server.explained(code, &why);
                self.voice.fail(code, &why);
                Phase::Done(Outcome::Failed(code))
            }
            _ => Phase::Waiting,
        }
    }

    fn told_of_lock(&mut self, told: Told, running: Running, link: &mut Link) -> Phase {
        match told {
            Told::Begun => Phase::Running(Running { has_begun: true, ..running }),
            Told::Until(until) => {
                Phase::Running(Running { until: until.max(running.until), ..running })
            }
            Told::Gone => self.gone(running),
            Told::Paused => {
                let text = "the lock came while the tool was stopped, and is given back";
                self.voice.note("withdrawn", &json!({}), text);
                let phase = self.undo(running);
                self.told(Told::Paused, phase, link)
            }
            // The keeper has seen that the command has ended. This process was stopped.
            Told::Freed | Told::Left(_) => {
                let code = self.reap(running.job);
                let told = if running.is_lost { Told::Gone } else { told };
                self.told_at_end(told, code, false)
            }
            _ => Phase::Running(running),
        }
    }

    fn told_at_end(&self, told: Told, code: u8, urged: bool) -> Phase {
        match told {
            Told::Freed => self.voice.note("released", &json!({}), "the lock is given back"),
            Told::Left(why) => {
                let text = format!("the release of the lock failed, its lease will free it: {why}");
                self.voice.warn("left", &json!({}), &text);
            }
            Told::Gone => {
                self.voice.warn("lost", &json!({}), &self.voice.lost(NOT_THERE_OR_OVER));
                return Phase::Done(Outcome::Lost);
            }
            // There was no command, and there is no lock.
            Told::Paused => {}
            _ => return Phase::GivingBack { code, urged },
        }
        Phase::Done(Outcome::Code(code))
    }

    fn granted(&mut self, token: u64, until: Moment, link: &mut Link) -> Phase {
        let lease = self.lock.lease().as_millis();
        let details = json!({ "token": token.to_string(), "lease_ms": u64::try_from(lease).unwrap_or(u64::MAX) });
        self.voice.note("granted", &details, &format!("the lock is ours, with token {token}"));
        let variables = [
            ("PARKLOCK_NAME", self.lock.name.clone()),
            ("PARKLOCK_TOKEN", token.to_string()),
            ("PARKLOCK_LEASE_MS", lease.to_string()),
            ("PARKLOCK_HELD", "1".to_owned()),
            (OUTER, self.lock.tools_for_inner()),
        ];
        let if_orphaned =
            if self.work.on_lost == OnLost::Kill { Signal::SIGKILL } else { Signal::SIGTERM };
        match Job::start(&self.work.command, &variables, if_orphaned, self.terminal) {
            Ok(job) => {
                link.order(Order::Started(job.group().as_raw()));
                let next = match self.work.on_lost {
                    OnLost::Term => Next::Warn,
                    OnLost::Kill => Next::Kill,
                    OnLost::Ignore => Next::Report,
                };
                Phase::Running(Running { job, has_begun: false, until, next, is_lost: false })
            }
            Err(error) => {
                link.order(Order::Now);
                let text = format!("could not start the command: {error}");
                self.voice.fail(exit::BROKEN, &text);
                Phase::GivingBack { code: exit::BROKEN, urged: true }
            }
        }
    }

    /// Removes the process of a command that has not begun. Unless the user has asked the tool to end, it waits for the lock
    /// again.
    fn undo(&self, running: Running) -> Phase {
        running.job.signal(Signal::SIGKILL);
        running.job.reap();
        match self.ending {
            Some(signal) => Phase::Done(Outcome::Code(exit::of_signal(signal as i32))),
            None => Phase::Waiting,
        }
    }

    /// The lock is gone: another caller may have it already.
    fn gone(&self, running: Running) -> Phase {
        if running.is_lost && running.next == Next::Nothing {
            return Phase::Running(running);
        }
        let next = if running.next == Next::Report { Next::Report } else { Next::Kill };
        let is_over = running.until.ahead().is_zero();
        let why = if is_over { "it was not renewed in time" } else { NOT_THERE };
        Phase::Running(self.lose(Running { next, ..running }, &self.voice.lost(why)))
    }

    /// Nobody renews the lock any more.
    fn keeper_gone(&mut self, phase: Phase) -> Phase {
        match phase {
            Phase::Waiting => {
                let text = "the process that waits for the lock has ended";
                self.voice.fail(exit::BROKEN, text);
                Phase::Done(Outcome::Failed(exit::BROKEN))
            }
            Phase::Leaving(code) => Phase::Done(Outcome::Code(code)),
            Phase::Running(running) if running.has_begun => self.orphaned(running),
            Phase::Running(running) => {
                let phase = self.undo(running);
                self.keeper_gone(phase)
            }
            Phase::GivingBack { code, .. } => {
                self.voice.warn("left", &json!({}), "the lock is left to its lease");
                Phase::Done(Outcome::Code(code))
            }
            done @ Phase::Done(_) => done,
        }
    }

    fn orphaned(&self, running: Running) -> Phase {
        let mut running = running;
        if running.next == Next::Warn {
            // Do not wait for the deadline: nobody will renew the lock.
            let text = format!("the process that renews {} has ended", printable(&self.lock.name));
            running = self.lose(running, &text);
            let grace = self.work.kill_after + self.limits.margin;
            running.until = running.until.min(Moment::now().after(grace));
        }
        Phase::Running(running)
    }

    /// Does what a signal asks of the tool in any phase without a command.
    fn heed(&mut self, signal: Signal) {
        self.ending = self.ending.or(ends(signal).then_some(signal));
        match signal {
            Signal::SIGTSTP => signals::stop(Who::ThisProcess),
            Signal::SIGCHLD => reap_all_but(None),
            _ => {}
        }
    }

    fn signalled(&mut self, signal: Signal, phase: Phase, link: &mut Link) -> Phase {
        if let Phase::Running(running) = phase {
            return self.pass_on(signal, running, link);
        }
        if matches!(phase, Phase::Waiting) && signal == Signal::SIGTSTP {
            // While the tool is stopped, nobody could begin the command.
            link.order(Order::Pause);
        }
        self.heed(signal);
        match phase {
            Phase::Waiting if ends(signal) => {
                // The keeper leaves the line, or gives back what Redis may just have granted it.
                link.order(Order::Now);
                let code = exit::of_signal(signal as i32);
                self.voice.note(
                    "interrupted",
                    &json!({ "code": code }),
                    "interrupted while waiting",
                );
                Phase::Leaving(code)
            }
            Phase::Leaving(code) if ends(signal) => Phase::Done(Outcome::Code(code)),
            Phase::GivingBack { code, urged: false } if ends(signal) => {
                link.order(Order::Now);
                Phase::GivingBack { code, urged: true }
            }
            Phase::GivingBack { code, urged: true } if ends(signal) => {
                self.voice.warn(
                    "left",
                    &json!({}),
                    "the tool waits no longer: the lease will free the lock",
                );
                Phase::Done(Outcome::Code(code))
            }
            phase => phase,
        }
    }

    fn pass_on(&mut self, signal: Signal, mut running: Running, link: &mut Link) -> Phase {
        // INT and TERM ask for the end. A command may go on after HUP and QUIT: many read their settings again at HUP, and the JVM prints
        // its threads at QUIT.
        let asks_for_end = matches!(signal, Signal::SIGINT | Signal::SIGTERM);
        let is_end = if running.has_begun { asks_for_end } else { ends(signal) };
        self.ending = self.ending.or(is_end.then_some(signal));
        match signal {
            Signal::SIGCHLD => return self.look_at_job(running, link),
            Signal::SIGTSTP => running.job.stop(),
            Signal::SIGCONT => running.job.resume(),
            _ => running.job.signal(signal),
        }
        Phase::Running(running)
    }

    fn look_at_job(&mut self, mut running: Running, link: &mut Link) -> Phase {
        reap_all_but(Some(running.job.group()));
        match running.job.report() {
            Report::Nothing => {}
            Report::Stopped(by) => running.job.stop_with(by),
            Report::Ended => return self.ended(running, link),
        }
        Phase::Running(running)
    }

    fn ended(&mut self, running: Running, link: &mut Link) -> Phase {
        let is_late = self.end_of(&running).ahead().is_zero();
        let is_lost = running.is_lost || is_late;
        if is_lost && self.work.on_lost != OnLost::Ignore {
            // Kill the rest of its group too. Until the command is reaped, no other process gets its process id.
            running.job.signal(Signal::SIGKILL);
        }
        link.order(Order::Over);
        let code = self.reap(running.job);
        match is_lost {
            true => Phase::Done(Outcome::Lost),
            // The lock was valid to the end.
            false if link.is_gone() => self.keeper_gone(Phase::GivingBack { code, urged: true }),
            false => Phase::GivingBack { code, urged: false },
        }
    }

    fn reap(&self, job: Job) -> u8 {
        let code = job.reap();
        let text = format!("the command ended with {code}");
        self.voice.note("ended", &json!({ "code": code }), &text);
        reap_all_but(None); // the command has hidden those behind it
        code
    }

    /// A command that ends after this moment has ended too late. This process may have been stopped at that moment.
    fn end_of(&self, running: &Running) -> Moment {
        match self.work.on_lost {
            // Nobody kills the command, so it may use its lock to the end.
            OnLost::Ignore => running.until,
            // By then the keeper has killed the command.
            OnLost::Term | OnLost::Kill => self.limits.kill_at(running.until),
        }
    }

    fn next_alarm(&self, phase: &Phase) -> Option<Moment> {
        let Phase::Running(running) = phase else { return None };
        match running.next {
            Next::Warn => Some(self.limits.warn_at(running.until)),
            Next::Kill => Some(self.limits.kill_at(running.until)),
            Next::Report => Some(running.until),
            Next::Nothing => None,
        }
    }

    /// Does what is due now.
    fn look_at_clock(&self, phase: Phase) -> Phase {
        let due = self.next_alarm(&phase).is_some_and(|at| at.ahead().is_zero());
        match phase {
            Phase::Running(running) if due => {
                let name = printable(&self.lock.name);
                let text = match running.next {
                    _ if self.lock.lease.is_some() => format!("the lease of {name} runs out"),
                    // The keeper knows which of the two it is, and has no word for it.
                    _ if self.lock.max_hold.is_some() => format!(
                        "{name} is not renewed: its --max-hold is over, or Redis does not answer"
                    ),
                    Next::Warn => format!("{name} cannot be renewed: the command has to end"),
                    _ => format!("{name} could not be renewed"),
                };
                Phase::Running(self.lose(running, &text))
            }
            phase => phase,
        }
    }

    /// Takes the next step against a command whose lock is lost, or is about to be.
    fn lose(&self, running: Running, text: &str) -> Running {
        let next = match running.next {
            Next::Warn => {
                running.job.signal(Signal::SIGTERM);
                running.job.signal(Signal::SIGCONT); // a stopped process does not act on TERM
                Next::Kill
            }
            Next::Kill => {
                running.job.signal(Signal::SIGKILL);
                Next::Nothing
            }
            Next::Report | Next::Nothing => Next::Nothing,
        };
        // After the signal: nothing may delay it.
        if !running.is_lost {
            self.voice.warn("lost", &json!({}), text);
        }
        Running { next, is_lost: true, ..running }
    }
}

/// Reaps the children that have ended, except the command, whose exit code is wanted: keepers, and orphans if this is process 1
/// of a container. A command that has ended hides the children behind it until it is reaped.
fn reap_all_but(command: Option<Pid>) {
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let next = || waitid(Id::All, ended).ok().and_then(|status| status.pid());
    while let Some(child) = next().filter(|child| Some(*child) != command) {
        let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
    }
}

fn wait_for(fds: &mut [PollFd<'_>], limit: PollTimeout) -> io::Result<()> {
    match poll(fds, limit) {
        // EINTR: this process was stopped, and continues.
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
