//! What a worker leaves behind: one line a fact, written at once, so that a killed process has told all it knew.

use std::fs::File;
use std::future::poll_fn;
use std::io::Write;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use parklock::{Ended, Guard, Hold, MultiGuard, RedGuard};

use crate::common::clock;
use crate::judge::operation;
use crate::settings::{self, SLACK, nanos, validity, watched};
use crate::worker::desk::Seat;

static RECORD: OnceLock<File> = OnceLock::new();
static NAMESPACE: OnceLock<Option<String>> = OnceLock::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

/// From now on lines are appended to this file. All locks are of this namespace.
pub fn open(path: &Path, namespace: Option<String>) {
    NAMESPACE.set(namespace).expect("opened once");
    let file = File::options().create(true).append(true).open(path).expect("a writable record");
    RECORD.set(file).expect("opened once");
}

/// One line, in one write: no other thread's line gets between. A kill leaves all of it or nothing, but for one that crosses the end of a page: of
/// that one the beginning may be left.
pub fn line(words: &str) {
    let Some(mut file) = RECORD.get() else { return };
    file.write_all(format!("{words}\n").as_bytes()).expect("the disk is not full");
}

fn label(lock: &str) -> String {
    settings::label(NAMESPACE.get().and_then(Option::as_deref), lock)
}

/// The server has told the client that it has this lock no more.
pub fn gone(lock: &str, token: &str) {
    line(&format!("e\t{}\t{token}\t{}", label(lock), clock::now()));
}

/// A path was taken.
pub fn reached(path: &str) {
    line(&format!("c\t{path}"));
}

/// Something that must never happen.
pub fn violation(what: &str) {
    line(&format!("v\t{}", what.replace(['\t', '\n'], " ")));
}

/// A call for several locks begins. In a cluster it may have some of them before it has all.
pub fn several(names: &[&str]) -> u64 {
    let id = next_id();
    let names: Vec<_> = names.iter().map(|name| label(name)).collect();
    line(&format!("m\t{id}\t{}\t{}", clock::now(), names.join("\t")));
    id
}

/// That call has ended: it has all of them, or none.
pub fn several_answered(id: u64) {
    line(&format!("n\t{id}\t{}", clock::now()));
}

pub fn next_id() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A call that has begun. Unless something else is said, nobody knows what became of it, also if this process ends.
#[derive(Debug)]
pub struct Question {
    id: u64,
    pub called: u64,
    answered: AtomicBool,
}

impl Question {
    pub fn begin(seat: u64, lock: &str, operation: &str, argument: &str) -> Self {
        let (id, called, lock) = (next_id(), clock::now(), label(lock));
        line(&format!("a\t{id}\t{seat}\t{called}\t{lock}\t{operation}\t{argument}"));
        Self { id, called, answered: AtomicBool::new(false) }
    }

    /// What it returned.
    pub fn answered(&self, outcome: &str) {
        if !self.answered.swap(true, Ordering::Relaxed) {
            line(&format!("r\t{}\t{}\t{outcome}", self.id, clock::now()));
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.answered("unknown");
    }
}

/// Waits for a release, and says when it has begun: its first poll is when the client learns of it. `say` is called then.
pub async fn released<T>(release: impl Future<Output = T>, say: impl FnOnce()) -> T {
    let (mut release, mut say) = (pin!(release), Some(say));
    poll_fn(|context| {
        let polled: Poll<T> = release.as_mut().poll(context);
        say.take().into_iter().for_each(|say| say());
        polled
    })
    .await
}

/// By now the client has learned that this hold is over.
fn left(id: u64) {
    line(&format!("b\t{id}\t{}", clock::now()));
}

/// Says so of what `run` held when this is dropped, which has to be when `run` is over.
#[derive(Debug)]
pub struct Leaving(u64);

impl Leaving {
    pub fn with(call: &Call) -> Self {
        Self(call.asked.id)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        left(self.0);
    }
}

/// A guard, or the view of one.
pub trait View: Send {
    fn token(&self) -> u64;
    fn remaining(&self) -> Duration;
    fn is_valid(&self) -> bool;
    fn ended(&self) -> impl Future<Output = Ended> + Send + 'static;
}

macro_rules! view {
    ($($kind:ty)*) => {$(
        impl View for $kind {
            fn token(&self) -> u64 {
                <$kind>::token(self).get()
            }
            fn remaining(&self) -> Duration {
                <$kind>::remaining(self)
            }
            fn is_valid(&self) -> bool {
                <$kind>::is_valid(self)
            }
            fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
                <$kind>::ended(self)
            }
        }
    )*};
}

view!(Guard Hold);

/// One of several locks that are held together. What is said of their time, is said of all.
pub struct Part<'a>(pub &'a MultiGuard, pub usize);

impl View for Part<'_> {
    fn token(&self) -> u64 {
        self.0.tokens()[self.1].get()
    }
    fn remaining(&self) -> Duration {
        self.0.remaining()
    }
    fn is_valid(&self) -> bool {
        self.0.is_valid()
    }
    fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.0.ended()
    }
}

impl View for RedGuard {
    /// It has none.
    fn token(&self) -> u64 {
        0
    }
    fn remaining(&self) -> Duration {
        Self::remaining(self)
    }
    fn is_valid(&self) -> bool {
        Self::is_valid(self)
    }
    fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        Self::ended(self)
    }
}

/// What a holder may believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Valid,
    /// Nobody may believe in it, and it may be valid again.
    Suspended,
    Lost,
}

impl State {
    pub fn of(view: &impl View) -> Self {
        match view.is_valid() {
            true => Self::Valid,
            false if view.ended().now_or_never().is_none() => Self::Suspended,
            false => Self::Lost,
        }
    }
}

/// When a hold can be believed until, as read at this moment.
struct Reading {
    at: u64,
    deadline: u64,
}

fn read(view: &impl View) -> Option<Reading> {
    loop {
        let (before, left, at) = (clock::now(), view.remaining(), clock::now());
        if left.is_zero() {
            return None;
        }
        // Stopped in between, it would tell a wrong deadline.
        if at - before < 1_000_000 {
            return Some(Reading { at, deadline: before + nanos(left) });
        }
    }
}

/// What was known when the acquire was called.
#[derive(Debug, Clone)]
pub struct Call {
    pub lock: &'static str,
    pub owner: String,
    /// A fixed one.
    pub lease: Option<Duration>,
    /// Whether what it is granted ends with a session.
    pub in_session: bool,
    /// A nested hold was confirmed when its outer one was.
    pub confirmed: Option<u64>,
    pub asked: Arc<Question>,
    /// The seat whose client was asked.
    pub seat: u64,
    /// How much was asked for, of how much.
    pub share: (u32, u32),
}

impl Call {
    pub fn begin(
        lock: &'static str,
        owner: String,
        lease: Option<Duration>,
        seat: &Seat,
        share: (u32, u32),
    ) -> Self {
        let argument = operation::argument((share.0.into(), share.1.into()), &owner);
        let asked = Arc::new(Question::begin(seat.id, lock, "acquire", &argument));
        let (in_session, seat) = (seat.in_session, seat.id);
        Self { lock, owner, lease, in_session, confirmed: None, asked, seat, share }
    }
}

/// One claim on the record, from the acquire's return to its end.
#[derive(Debug, Default)]
pub struct Claim {
    id: u64,
    deadline: u64,
    in_session: bool,
    /// When the request was sent with which Redis first confirmed it, at the latest.
    pub confirmed: u64,
    /// When the last such request was sent, at the earliest.
    last: u64,
    written_at: u64,
    open: bool,
    /// Whether it stands in the record. Otherwise nobody has believed in it.
    noted: bool,
}

impl Claim {
    /// To be called right after the acquire returned.
    pub fn begin(call: &Call, view: &impl View) -> Self {
        Self::begin_at(clock::now(), call, view)
    }

    /// The same for one of several that were acquired together, at that moment.
    pub fn begin_at(acquired: u64, call: &Call, view: &impl View) -> Self {
        let (id, called) = (call.asked.id, call.asked.called);
        let Some(Reading { deadline, .. }) = read(view) else {
            reached("over before it was looked at");
            return Self { id, in_session: call.in_session, ..Self::default() };
        };
        // A message may have granted it, for less than a lease and longer after its request than an answer comes. So the
        // deadline tells only when Redis confirmed it at the earliest.
        // A nested hold of a short lease has the deadline of its outer one.
        let lease =
            call.lease.filter(|_| call.confirmed.is_none()).unwrap_or(watched(call.in_session));
        let (confirmed, token) = (call.confirmed.unwrap_or(acquired), view.token());
        // A deadline that a session has brought nearer does not tell it. But what is not nested or handed on was asked for by this call.
        let is_asked_for = call.confirmed.is_none() && token % 1024 == 0;
        let last = match call.in_session && is_asked_for {
            true => called,
            false => deadline.saturating_sub(nanos(validity(lease))),
        };
        let Call { owner, seat, share: (part, of), .. } = call;
        call.asked.answered.store(true, Ordering::Relaxed);
        let lock = label(call.lock);
        let with_session = if call.in_session && call.lease.is_none() { "\tsession" } else { "" };
        line(&format!(
            "o\t{id}\t{lock}\t{owner}\t{token}\t{called}\t{acquired}\t{confirmed}\t{last}\t{deadline}\t{seat}\t{part}\t{of}{with_session}"
        ));
        let (in_session, written_at, open, noted) = (call.in_session, acquired, true, true);
        Self { id, deadline, in_session, confirmed, last, written_at, open, noted }
    }

    /// Takes note of the deadline, which a renewal may have moved.
    pub fn renew(&mut self, view: &impl View) {
        self.renew_after(view, 50_000_000);
    }

    /// The same at once: somebody is about to rely on it.
    pub fn renew_now(&mut self, view: &impl View) {
        self.renew_after(view, 0);
    }

    fn renew_after(&mut self, view: &impl View, pause: u64) {
        if let Some(Reading { at, deadline }) = read(view).filter(|_| self.open)
            && deadline > self.deadline
            && at > self.written_at + pause
        {
            if self.in_session && at > self.deadline {
                reached("valid again after it was suspended");
            }
            (self.deadline, self.written_at) = (deadline, at);
            let sent = deadline.saturating_sub(nanos(validity(watched(self.in_session)) + SLACK));
            self.last = self.last.max(sent);
            line(&format!("d\t{}\t{deadline}\t{}", self.id, self.last));
        }
    }

    /// To be called right before it is given back, or when it was lost. Returns whether it was valid to the end.
    pub fn end(&mut self, view: &impl View, closed: Option<u64>) -> bool {
        let (now, state) = (clock::now(), State::of(view));
        self.end_at(now, state, closed);
        state == State::Valid
    }

    /// The same, of a guard whose state it was at that moment.
    pub fn end_at(&mut self, now: u64, state: State, closed: Option<u64>) {
        if std::mem::take(&mut self.open) {
            self.say_end(now, state, closed);
        }
    }

    /// The guard is forgotten, and its loss has just been told.
    pub fn forgotten(&mut self, closed: Option<u64>) {
        self.end_at(clock::now(), State::Lost, closed);
    }

    fn say_end(&self, at: u64, state: State, closed: Option<u64>) {
        let (ended, how) = match (state, closed) {
            (State::Valid, _) => (at, "valid"),
            (_, Some(closed)) => (closed.min(self.deadline), "closed"),
            (State::Suspended, None) => (at.min(self.deadline), "suspended"),
            (State::Lost, None) => (at.min(self.deadline), "lost"),
        };
        line(&format!("x\t{}\t{ended}\t{how}\t{}", self.id, clock::now()));
    }

    /// The guard was dropped, or its release has begun: from now on its client refuses nobody for it.
    pub fn left(&self) {
        if self.noted {
            left(self.id);
        }
    }

    /// A release was answered: Redis has it no more.
    pub fn given_back(&self) {
        line(&format!("g\t{}\t{}", self.id, clock::now()));
    }

    /// It was valid, and then the release said that it had been lost before.
    pub fn unlock_said_lost(&self) {
        line(&format!("u\t{}\t{}", self.id, clock::now()));
    }
}
