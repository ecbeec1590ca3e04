//! One connection to a server. Requests go out in the order in which they come, and the server answers in that order.
//!
//! 1. A caller writes its request to the stream itself. A request that comes while another task writes goes with that
//!    task's bytes.
//! 2. The driver, a task of the client, reads the answers and passes them on, or does what is to be done with them
//!    ([`Then`]). It also writes what a full stream has not taken.
//! 3. Requests are due in the order in which they were sent. So the driver needs one timer, and the callers none.
//! 4. A request that has been sent keeps its place until it is answered, whether or not its caller has left.
//! 5. When the connection ends, a request that no task had begun to write does not run, and its caller learns so. Any
//!    other one may have run: a stream may have sent what it reports as failed.
//! 6. The connection ends only after everything that the server has answered is read.

mod broken;
mod resp;

use std::collections::VecDeque;
use std::mem::{replace, swap, take};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use redis::{Cmd, Pipeline, PushInfo, ServerError, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, SetOnce, oneshot};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::mutex::Mutex;
use crate::wakers::guarded;

pub(crate) use broken::Broken;

/// How many requests may be unanswered before callers wait to send theirs.
const MOST_UNANSWERED: usize = 1024;

/// The size of a buffer for usual requests and answers. A larger one is given back after its use.
const USUAL: usize = 8 * 1024;

/// How much the driver reads before it looks at the time, and other tasks have their turn: a server may send without a pause.
const FILLS_A_TURN: usize = 16;
const VALUES_A_TURN: usize = 256;

/// The two directions of a stream.
pub(crate) type Halves = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

/// Receives the pushes of the server, on the task that reads. It must not block.
pub(crate) type Hear = Box<dyn Fn(PushInfo) + Send + Sync>;

/// Is called when the connection has broken, before any request fails for that. It must not block.
pub(crate) type OnEnd = Box<dyn Fn() + Send + Sync>;

/// A connection. It ends when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct Socket(Arc<Driven>);

/// What a connection consists of, and its driver.
struct Driven {
    shared: Arc<Shared>,
    _driver: AbortOnDropHandle<()>,
}

impl Socket {
    /// Requests over this stream. Each is answered within `patience` after it was sent, or fails.
    pub(crate) fn new(
        (reads, writes): Halves,
        patience: Duration,
        hear: Hear,
        on_end: OnEnd,
    ) -> Self {
        let alarm = Arc::<Alarm>::default();
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            writer: Mutex::new(Writer {
                half: writes,
                bytes: Vec::new(),
                at: 0,
                is_blocked: false,
                failed: None,
            }),
            room: Semaphore::new(MOST_UNANSWERED),
            driver: Waker::from(Arc::clone(&alarm)),
            on_end,
            patience,
            ended: SetOnce::new(),
        });
        let driver = Driver {
            shared: Arc::clone(&shared),
            alarm,
            reader: Reader::new(reads),
            hear,
            has_begun: false,
        };
        let driver = tokio::spawn(driver.run());
        Self(Arc::new(Driven { shared, _driver: AbortOnDropHandle::new(driver) }))
    }

    /// Sends a command and waits for its answer, which may be an error of the server.
    ///
    /// # Cancel safety
    /// If the future is dropped before the command is sent, the server never gets it. Afterwards the server carries it out.
    pub(crate) async fn ask(&self, cmd: &Cmd) -> Result<Value, Broken> {
        let write = |bytes: &mut Vec<u8>| cmd.write_packed_command(bytes);
        let mut answers = self.0.shared.ask(&write, Until::Count(1)).await?;
        Ok(answers.pop().unwrap_or(Value::Nil))
    }

    /// Sends commands in one piece, and waits for the answers, one for each.
    pub(crate) async fn ask_each(&self, pipe: &Pipeline) -> Result<Vec<Value>, Broken> {
        if pipe.is_empty() {
            return Ok(Vec::new());
        }
        let write = |bytes: &mut Vec<u8>| {
            pipe.cmd_iter().for_each(|cmd| cmd.write_packed_command(bytes));
        };
        self.0.shared.ask(&write, Until::Count(pipe.len())).await
    }

    /// Sends an AUTH. Returns its answer; `None` if there is none: behind other answers, Redis from 7.2 on does not send the
    /// refusal (redis/redis#15640). Without the HELLO, each request would then get the answer of the next one.
    pub(crate) async fn log_in(&self, auth: &Cmd) -> Result<Option<Value>, Broken> {
        let answers = self.ask_before_hello(|bytes| auth.write_packed_command(bytes), 1).await?;
        Ok(answers.into_iter().next())
    }

    /// Same as [`ask_each`](Self::ask_each), for so many commands that `write` writes as the server reads them.
    pub(crate) async fn ask_written(
        &self,
        write: &(dyn Fn(&mut Vec<u8>) + Sync),
        commands: usize,
    ) -> Result<Vec<Value>, Broken> {
        self.0.shared.ask(write, Until::Count(commands)).await
    }

    /// Sends one command. `write` writes it, and returns what is done with the answer. So nobody has to wait for it.
    pub(crate) fn send(&self, write: impl FnOnce(&mut Vec<u8>) -> Then) {
        let shared = &self.0.shared;
        let Ok(room) = shared.room.try_acquire() else {
            return write(&mut Vec::new())(Err(Broken::Unsent));
        };
        room.forget();
        shared.send(Until::Count(1), |bytes| Caller::Then(write(bytes)));
    }

    /// Sends commands that the server answers with pushes, and returns its errors.
    ///
    /// No push says which command it answers: the server also sends one of its own accord when it ends a channel.
    pub(crate) async fn ask_for_pushes(&self, pipe: &Pipeline) -> Result<Vec<ServerError>, Broken> {
        let write = |bytes: &mut Vec<u8>| {
            pipe.cmd_iter().for_each(|cmd| cmd.write_packed_command(bytes));
        };
        let answers = self.ask_before_hello(write, pipe.len()).await?;
        let error = |answer| match answer {
            Value::ServerError(error) => Some(error),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(error).collect())
    }

    /// Listens to this channel. Returns the error of the server if it refuses.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<Option<ServerError>, Broken> {
        let mut pipe = redis::pipe();
        pipe.cmd("SUBSCRIBE").arg(channel);
        Ok(self.ask_for_pushes(&pipe).await?.into_iter().next())
    }

    /// Sends so many commands, which may have fewer answers, and a HELLO behind them, in one piece. Any user may send that, and
    /// its answer is the only map: what comes before it answers the commands, and by then the server has carried them out.
    async fn ask_before_hello(
        &self,
        commands: impl Fn(&mut Vec<u8>) + Sync,
        most: usize,
    ) -> Result<Vec<Value>, Broken> {
        let write = |bytes: &mut Vec<u8>| {
            commands(bytes);
            redis::cmd("HELLO").write_packed_command(bytes);
        };
        let mut answers = self.0.shared.ask(&write, Until::Map { most }).await?;
        answers.pop();
        Ok(answers)
    }

    /// Waits until the connection has broken.
    pub(crate) async fn ended(&self) -> Broken {
        self.0.shared.ended.wait().await.clone()
    }
}

/// Wakes the driver, whichever task writes to the stream.
#[derive(Default)]
struct Alarm(AtomicWaker);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}

/// What the callers and the driver share.
struct Shared {
    requests: Mutex<Requests>,
    writer: Mutex<Writer>,
    /// For requests that are not answered yet.
    room: Semaphore,
    driver: Waker,
    on_end: OnEnd,
    patience: Duration,
    /// Why the connection has ended. It is set under the mutex of the requests, so that none is sent afterwards.
    ended: SetOnce<Broken>,
}

/// The requests of a connection.
#[derive(Default)]
struct Requests {
    /// In the order in which they were sent.
    unanswered: VecDeque<Request>,
    /// The bytes of the newest requests, which no task has begun to write, and how many requests these are.
    unsent: Vec<u8>,
    unsent_requests: usize,
    /// Some task writes, or the driver will when the stream has room.
    is_writing: bool,
    /// The driver's timer is set, or the driver has been woken to set it.
    is_timed: bool,
}

struct Request {
    due: Instant,
    until: Until,
    answers: Vec<Value>,
    /// `None`: its caller was told that the answer is late.
    caller: Option<Caller>,
}

/// Who gets the answers.
enum Caller {
    Waits(oneshot::Sender<Result<Vec<Value>, Broken>>),
    /// Nobody waits: the driver does this.
    Then(Then),
}

/// What is done with the answers to a request, on the task that reads. It must not block.
pub(crate) type Then = Box<dyn FnOnce(Result<Vec<Value>, Broken>) + Send>;

/// The answers that a request gets.
#[derive(Clone, Copy)]
enum Until {
    Count(usize),
    /// Those up to the first map, and at most so many before it.
    Map {
        most: usize,
    },
}

impl Request {
    fn is_answered(&self) -> bool {
        match self.until {
            Until::Count(count) => self.answers.len() >= count,
            Until::Map { .. } => self.ends_in_map(),
        }
    }

    fn ends_in_map(&self) -> bool {
        matches!(self.answers.last(), Some(Value::Map(_)))
    }

    /// Whether the map does not come: a server could fill the memory with other answers.
    fn has_too_many(&self) -> bool {
        matches!(self.until, Until::Map { most } if self.answers.len() > most && !self.ends_in_map())
    }
}

impl Requests {
    /// Gives an answer to the request that it belongs to. Returns that request if it has all of its answers now.
    fn answer(&mut self, value: Value) -> Result<Option<Request>, Broken> {
        let Some(first) = self.unanswered.front_mut() else {
            return Err(Broken::Garbage("it answers no request".to_owned()));
        };
        first.answers.push(value);
        if first.has_too_many() {
            return Err(Broken::Garbage("it answers more than was asked".to_owned()));
        }
        Ok(if first.is_answered() { self.unanswered.pop_front() } else { None })
    }

    /// The time at which the next answer is late. `None`: no caller waits.
    fn next_due(&mut self) -> Option<Instant> {
        let next = self.unanswered.iter().find(|request| request.caller.is_some());
        let due = next.map(|request| request.due);
        self.is_timed = due.is_some();
        due
    }

    /// The callers whose answers are late by now. Their requests may still run, and be answered.
    fn late(&mut self, now: Instant) -> Vec<Caller> {
        let late = self.unanswered.iter_mut().take_while(|request| request.due <= now);
        late.filter_map(|request| request.caller.take()).collect()
    }
}

struct Writer {
    half: Box<dyn AsyncWrite + Send + Unpin>,
    bytes: Vec<u8>,
    /// How many of them are written.
    at: usize,
    /// The stream was full, and wakes the driver when it has room.
    is_blocked: bool,
    /// The stream takes no more, and the driver has been woken to end the connection.
    failed: Option<Broken>,
}

impl Shared {
    async fn ask(
        &self,
        write: &(dyn Fn(&mut Vec<u8>) + Sync),
        until: Until,
    ) -> Result<Vec<Value>, Broken> {
        let room = match self.room.try_acquire() {
            Ok(room) => room,
            // Boxed: only a request that has to wait for room needs the space for it.
            Err(_) => match Box::pin(timeout(self.patience, self.room.acquire())).await {
                Ok(Ok(room)) => room,
                Ok(Err(_)) | Err(_) => return Err(Broken::Unsent),
            },
        };
        // The request has the room until it is answered, also without its caller.
        room.forget();
        let (caller, answered) = oneshot::channel();
        self.send(until, |bytes| {
            write(bytes);
            Caller::Waits(caller)
        });
        // A caller is always told, unless the driver has panicked with its request in hand.
        answered.await.unwrap_or(Err(Broken::Ended))
    }

    fn send(&self, until: Until, write: impl FnOnce(&mut Vec<u8>) -> Caller) {
        let mut requests = self.requests.lock();
        if self.ended.initialized() {
            drop(requests);
            return tell(Some(write(&mut Vec::new())), Err(Broken::Unsent));
        }
        let caller = write(&mut requests.unsent);
        requests.unsent_requests += 1;
        let due = Instant::now() + self.patience;
        let answers = match until {
            Until::Count(count) => Vec::with_capacity(count),
            Until::Map { .. } => Vec::new(),
        };
        let request = Request { due, until, answers, caller: Some(caller) };
        requests.unanswered.push_back(request);
        let sets_timer = !replace(&mut requests.is_timed, true);
        let writes = !replace(&mut requests.is_writing, true);
        drop(requests);
        if writes {
            self.write();
        }
        if sets_timer {
            self.driver.wake_by_ref();
        }
    }

    /// Writes whatever is unsent. If the stream is full or broken, the driver goes on.
    fn write(&self) {
        let mut writer = self.writer.lock();
        if let Err(broken) = self.write_to(&mut writer) {
            writer.failed = Some(broken);
            self.driver.wake_by_ref();
        }
    }

    fn write_to(&self, writer: &mut Writer) -> Result<(), Broken> {
        let Writer { half, bytes, at, is_blocked, .. } = writer;
        // Whoever writes, the stream wakes the driver.
        let mut driver = Context::from_waker(&self.driver);
        loop {
            if *at == bytes.len() {
                *at = 0;
                bytes.clear();
                bytes.shrink_to(USUAL);
                let mut requests = self.requests.lock();
                if !requests.unsent.is_empty() {
                    swap(&mut requests.unsent, bytes);
                    requests.unsent_requests = 0;
                    continue;
                }
                // A stream that encrypts has bytes of its own to write.
                *is_blocked = Pin::new(&mut *half).poll_flush(&mut driver)?.is_pending();
                requests.is_writing = *is_blocked;
                return Ok(());
            }
            match Pin::new(&mut *half).poll_write(&mut driver, &bytes[*at..])? {
                Poll::Ready(0) => return Err(Broken::Closed),
                Poll::Ready(written) => *at += written,
                Poll::Pending => {
                    *is_blocked = true;
                    return Ok(());
                }
            }
        }
    }

    /// Goes on writing after the stream was full. Returns why the stream has failed, if it has.
    fn write_on(&self) -> Option<Broken> {
        let mut writer = self.writer.lock();
        if take(&mut writer.is_blocked)
            && let Err(broken) = self.write_to(&mut writer)
        {
            return Some(broken);
        }
        writer.failed.take()
    }

    fn end(&self, broken: &Broken) {
        if self.ended.initialized() {
            return;
        }
        (self.on_end)();
        let mut requests = self.requests.lock();
        if self.ended.set(broken.clone()).is_err() {
            return;
        }
        // Whoever is writing must find nothing more.
        requests.unsent.clear();
        let failed = take(&mut requests.unanswered);
        let sent = failed.len().saturating_sub(requests.unsent_requests);
        drop(requests);
        // Behind a waker that panics, others may still wait for room.
        while !guarded(|| self.room.close()) {}
        self.driver.wake_by_ref();
        for (place, request) in failed.into_iter().enumerate() {
            let broken = if place < sent { broken } else { &Broken::Unsent };
            tell(request.caller, Err(broken.clone()));
        }
    }
}

/// A caller that has left is not there to be told. If the waker of one panics, the others are told all the same: some of them have to
/// give a lock back.
fn tell(caller: Option<Caller>, outcome: Result<Vec<Value>, Broken>) {
    guarded(|| match caller {
        Some(Caller::Waits(caller)) => _ = caller.send(outcome),
        Some(Caller::Then(then)) => then(outcome),
        None => {}
    });
}

struct Reader {
    half: Box<dyn AsyncRead + Send + Unpin>,
    buffer: Vec<u8>,
    /// The part of the buffer that is read and not parsed.
    begin: usize,
    end: usize,
    /// That part may contain a whole value.
    has_more: bool,
}

impl Reader {
    fn new(half: Box<dyn AsyncRead + Send + Unpin>) -> Self {
        Self { half, buffer: vec![0; USUAL], begin: 0, end: 0, has_more: false }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
            self.buffer.truncate(USUAL);
            self.buffer.shrink_to(USUAL);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.begin.., 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            if self.end == resp::LONGEST {
                return Poll::Ready(Err(Broken::Garbage("it is too long".to_owned())));
            }
            if self.end * 2 > self.buffer.len() {
                self.buffer.resize((self.buffer.len() * 2).min(resp::LONGEST), 0);
            }
        }
        let mut space = ReadBuf::new(&mut self.buffer[self.end..]);
        let Poll::Ready(read) = Pin::new(&mut self.half).poll_read(cx, &mut space) else {
            return Poll::Pending;
        };
        let length = space.filled().len();
        self.end += length;
        Poll::Ready(match read {
            Ok(()) if length == 0 => Err(Broken::Closed),
            Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }

    fn parse(&mut self) -> Result<Option<Value>, Broken> {
        let parsed = resp::parse(&self.buffer[self.begin..self.end]).map_err(Broken::Garbage)?;
        Ok(parsed.map(|(value, length)| {
            self.begin += length;
            value
        }))
    }
}

/// The task that reads a connection. The connection ends with it, also when its runtime shuts down.
struct Driver {
    shared: Arc<Shared>,
    alarm: Arc<Alarm>,
    reader: Reader,
    hear: Hear,
    /// There was a request.
    has_begun: bool,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.end(&Broken::Ended);
    }
}

impl Driver {
    async fn run(mut self) {
        let mut timer = pin!(sleep(self.shared.patience));
        let mut is_set = false;
        let mut failed = None;
        std::future::poll_fn(|cx| {
            self.alarm.0.register(cx.waker());
            failed = failed.take().or_else(|| self.shared.write_on());
            // Read all in any case: the server may have answered before the stream broke.
            let broken = match self.read() {
                Ok(true) => failed.take(),
                Ok(false) => {
                    cx.waker().wake_by_ref();
                    None
                }
                Err(broken) => Some(broken),
            };
            if let Some(broken) = broken {
                self.shared.end(&broken);
                return Poll::Ready(());
            }
            self.shared.look_at_time(timer.as_mut(), &mut is_set, cx);
            if self.shared.ended.initialized() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Reads what there is, up to a bound, and passes it on: answers to their callers, pushes to the listener. Returns whether
    /// that was all.
    fn read(&mut self) -> Result<bool, Broken> {
        let Self { shared, reader, hear, has_begun, .. } = self;
        // A server that refuses a client says so at once: that is the answer to the first request.
        *has_begun = *has_begun || shared.requests.lock().is_timed;
        if !*has_begun {
            return Ok(true);
        }
        let mut context = Context::from_waker(&shared.driver);
        let mut values = 0;
        for _ in 0..FILLS_A_TURN {
            if !take(&mut reader.has_more) {
                let Poll::Ready(filled) = reader.poll_fill(&mut context) else { return Ok(true) };
                filled?;
            }
            while let Some(value) = reader.parse()? {
                values += 1;
                if let Value::Push { kind, data } = value {
                    hear(PushInfo { kind, data });
                } else {
                    let answered = shared.requests.lock().answer(value)?;
                    if let Some(request) = answered {
                        guarded(|| shared.room.add_permits(1));
                        tell(request.caller, Ok(request.answers));
                    }
                }
                if values == VALUES_A_TURN {
                    reader.has_more = true;
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }
}

impl Shared {
    /// Tells callers whose answers are late, and sets the timer to the time at which the next answer is.
    fn look_at_time(&self, mut timer: Pin<&mut Sleep>, is_set: &mut bool, cx: &mut Context<'_>) {
        loop {
            if !*is_set {
                let Some(due) = self.requests.lock().next_due() else { return };
                timer.as_mut().reset(due);
                *is_set = true;
            }
            // A timer of Tokio is never ready in a task that has used up its turn, as by reading.
            let is_due = Instant::now() >= timer.deadline();
            if !is_due && timer.as_mut().poll(cx).is_pending() {
                return;
            }
            *is_set = false;
            let late = self.requests.lock().late(Instant::now());
            for caller in late {
                tell(Some(caller), Err(Broken::Late(self.patience)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use futures_util::poll;
    use redis::{cmd, pipe};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
    use tokio::task::yield_now;

    use super::*;
    use crate::wakers::tests::panicking;

    const PATIENCE: Duration = Duration::from_secs(2);

    /// A connection over a pipe with this much room, the server's end of it, and how many pushes were heard.
    fn connected(room: usize) -> (Socket, Server, Arc<AtomicUsize>) {
        let (ours, stream) = duplex(room);
        let (reads, writes) = split(ours);
        let heard = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&heard);
        let hear = move |_| _ = counted.fetch_add(1, Ordering::Relaxed);
        let socket = Socket::new(
            (Box::new(reads), Box::new(writes)),
            PATIENCE,
            Box::new(hear),
            Box::new(|| {}),
        );
        (socket, Server { stream, read: Vec::new() }, heard)
    }

    struct Server {
        stream: DuplexStream,
        read: Vec<u8>,
    }

    impl Server {
        /// The words of the next command. `None`: the client has closed the connection.
        async fn next(&mut self) -> Option<Vec<String>> {
            loop {
                // A command is a list of texts, like many an answer.
                if let Some((Value::Array(words), length)) = resp::parse(&self.read).unwrap() {
                    self.read.drain(..length);
                    let word = |word| redis::from_redis_value(word).unwrap();
                    return Some(words.into_iter().map(word).collect());
                }
                if self.stream.read_buf(&mut self.read).await.unwrap() == 0 {
                    return None;
                }
            }
        }

        async fn say(&mut self, text: &str) {
            self.stream.write_all(text.as_bytes()).await.unwrap();
        }

        /// Answers each command with its last word, until the client closes the connection.
        async fn echo(mut self) {
            while let Some(words) = self.next().await {
                self.say(&format!("+{}\r\n", words.last().unwrap())).await;
            }
        }
    }

    fn echo(word: impl ToString) -> Cmd {
        let mut echo = cmd("ECHO");
        echo.arg(word.to_string());
        echo
    }

    fn word(word: impl ToString) -> Value {
        Value::SimpleString(word.to_string())
    }

    #[tokio::test]
    async fn each_caller_gets_its_own_answer() {
        // Narrower than a request: so writes are cut, and the driver goes on with them.
        let (socket, server, _) = connected(16);
        let server = tokio::spawn(server.echo());
        let callers = (0..100).map(|caller| {
            let socket = socket.clone();
            tokio::spawn(async move {
                for round in 0..20 {
                    let said = caller * 100 + round;
                    assert_eq!(socket.ask(&echo(said)).await.unwrap(), word(said));
                }
            })
        });
        join_all(callers).await.into_iter().for_each(|ended| ended.unwrap());
        let mut pipe = pipe();
        pipe.cmd("ECHO").arg("a").cmd("ECHO").arg("b");
        assert_eq!(socket.ask_each(&pipe).await.unwrap(), [word("a"), word("b")]);
        drop(socket);
        server.await.expect("the connection has ended with its last user");
    }

    #[tokio::test]
    async fn a_caller_that_is_not_polled_keeps_nobody_from_an_answer() {
        let (socket, server, _) = connected(1024);
        tokio::spawn(server.echo());
        let (lone, other) = (echo("lone"), echo("other"));
        let mut lone = pin!(socket.ask(&lone));
        assert!(poll!(lone.as_mut()).is_pending(), "it reads the stream from now on");
        assert_eq!(socket.ask(&other).await.unwrap(), word("other"));
        assert_eq!(lone.await.unwrap(), word("lone"));
    }

    #[tokio::test]
    async fn the_answer_of_a_caller_that_has_left_is_nobody_elses() {
        let (socket, mut server, heard) = connected(1024);
        for is_answered_first in [false, true] {
            {
                let left = echo("left");
                let mut left = pin!(socket.ask(&left));
                assert!(poll!(left.as_mut()).is_pending());
                server.next().await.unwrap();
                if is_answered_first {
                    server.say("+left\r\n").await;
                }
            }
            if !is_answered_first {
                server.say("+left\r\n").await;
            }
            // Nobody waits, and a push is heard all the same.
            let before = heard.load(Ordering::Relaxed);
            server.say(">2\r\n+message\r\n+x\r\n").await;
            while heard.load(Ordering::Relaxed) == before {
                yield_now().await;
            }
            let next = echo("next");
            let (answer, ()) = tokio::join!(socket.ask(&next), async {
                server.next().await.unwrap();
                server.say("+next\r\n").await;
            });
            assert_eq!(answer.unwrap(), word("next"));
            assert!(socket.0.shared.requests.lock().unanswered.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_is_not_taken_for_that_of_another_request() {
        let (socket, mut server, _) = connected(1024);
        let begin = Instant::now();
        let (first, second) = (echo("first"), echo("second"));
        let late = tokio::join!(socket.ask(&first), socket.ask(&second));
        assert!(matches!(late, (Err(Broken::Late(_)), Err(Broken::Late(_)))), "{late:?}");
        assert_eq!(begin.elapsed().as_secs(), PATIENCE.as_secs());
        let alone = socket.ask(&first).await;
        assert!(matches!(alone, Err(Broken::Late(_))), "{alone:?}");
        assert_eq!(begin.elapsed().as_secs(), 2 * PATIENCE.as_secs());
        let (answer, ()) = tokio::join!(socket.ask(&second), async {
            for said in ["first", "second", "first", "second"] {
                server.next().await.unwrap();
                server.say(&format!("+{said}\r\n")).await;
            }
        });
        assert_eq!(answer.unwrap(), word("second"));
        assert!(socket.0.shared.requests.lock().unanswered.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_bound_wait_until_there_is_room() {
        let (socket, mut server, _) = connected(1 << 20);
        let mut callers = Vec::new();
        for caller in 0..MOST_UNANSWERED + 100 {
            let socket = socket.clone();
            callers.push(tokio::spawn(async move {
                assert_eq!(socket.ask(&echo(caller)).await.unwrap(), word(caller));
            }));
        }
        for _ in 0..MOST_UNANSWERED + 100 {
            // The runtime is idle: whoever can send has sent.
            sleep(Duration::from_millis(1)).await;
            assert!(socket.0.shared.requests.lock().unanswered.len() <= MOST_UNANSWERED);
            let words = server.next().await.unwrap();
            server.say(&format!("+{}\r\n", words[1])).await;
        }
        join_all(callers).await.into_iter().for_each(|ended| ended.unwrap());
        assert_eq!(socket.0.shared.room.available_permits(), MOST_UNANSWERED);
    }

    /// A stream that always has another message.
    struct Messages;

    impl AsyncRead for Messages {
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            space: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            // As the streams of Tokio do.
            std::task::ready!(pin!(tokio::task::consume_budget()).poll(cx));
            let message = b">2\r\n+message\r\n+x\r\n";
            while space.remaining() > message.len() {
                space.put_slice(message);
            }
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn an_answer_is_late_although_messages_come_without_a_pause() {
        let halves: Halves = (Box::new(Messages), Box::new(tokio::io::sink()));
        let patience = Duration::from_millis(20);
        let socket = Socket::new(halves, patience, Box::new(|_| {}), Box::new(|| {}));
        let echo = echo("x");
        let asked = timeout(PATIENCE * 10, socket.ask(&echo)).await;
        assert!(matches!(asked, Ok(Err(Broken::Late(_)))), "{asked:?}");
    }

    /// A waker may be the user's own.
    #[tokio::test(start_paused = true)]
    async fn a_waker_that_panics_keeps_nobody_from_being_told() {
        for is_late in [false, true] {
            let (socket, mut server, _) = connected(1024);
            let told = Arc::<AtomicUsize>::default();
            for number in 0..3 {
                let told = Arc::clone(&told);
                socket.send(|bytes| {
                    echo(number).write_packed_command(bytes);
                    Box::new(move |_| {
                        told.fetch_add(1, Ordering::Relaxed);
                        assert!(number > 0, "this panic belongs to the test");
                    })
                });
            }
            server.next().await.unwrap();
            match is_late {
                true => sleep(PATIENCE * 2).await,
                false => drop(server),
            }
            while told.load(Ordering::Relaxed) < 3 {
                sleep(PATIENCE).await;
            }
        }
    }

    #[tokio::test]
    async fn a_waker_of_a_caller_without_room_that_panics_keeps_nobody_from_being_told() {
        let panics = panicking();
        for is_answered in [false, true] {
            let (socket, mut server, _) = connected(1 << 20);
            let told = Arc::<AtomicUsize>::default();
            for number in 0..MOST_UNANSWERED {
                let told = Arc::clone(&told);
                socket.send(|bytes| {
                    echo(number).write_packed_command(bytes);
                    Box::new(move |_| _ = told.fetch_add(1, Ordering::Relaxed))
                });
            }
            // Otherwise the runtime itself would wake what Tokio wants to yield.
            yield_now().await;
            let (echo, mut context) = (echo("x"), Context::from_waker(&panics));
            let (mut one, mut other) = (pin!(socket.ask(&echo)), pin!(socket.ask(&echo)));
            assert!(one.as_mut().poll(&mut context).is_pending());
            assert!(other.as_mut().poll(&mut context).is_pending());
            if is_answered {
                server.say("+0\r\n").await;
                while told.load(Ordering::Relaxed) == 0 {
                    yield_now().await;
                }
                assert!(!socket.0.shared.ended.initialized(), "the connection goes on");
            }
            drop(server);
            socket.ended().await;
            while told.load(Ordering::Relaxed) < MOST_UNANSWERED {
                yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn commands_that_are_answered_by_pushes_are_done_when_hello_is_answered() {
        let (socket, mut server, heard) = connected(1024);
        let mut pipe = pipe();
        pipe.cmd("SSUBSCRIBE").arg("a").cmd("SSUBSCRIBE").arg("b");
        let answering = async {
            for expected in ["SSUBSCRIBE", "SSUBSCRIBE", "HELLO", "ECHO"] {
                assert_eq!(server.next().await.unwrap()[0], expected);
            }
            // The server ends another channel in between.
            server.say(">3\r\n+sunsubscribe\r\n+z\r\n:0\r\n").await;
            server.say("-MOVED 1 h:1\r\n>3\r\n+ssubscribe\r\n+b\r\n:1\r\n").await;
            server.say("%1\r\n+role\r\n+master\r\n+next\r\n").await;
        };
        let next = echo("next");
        let (errors, answer, ()) =
            tokio::join!(socket.ask_for_pushes(&pipe), socket.ask(&next), answering);
        let errors = errors.unwrap();
        assert!(errors.len() == 1 && errors[0].code() == "MOVED", "{errors:?}");
        assert_eq!(answer.unwrap(), word("next"));
        assert_eq!(heard.load(Ordering::Relaxed), 2);
    }

    /// Redis 8.2 leaves out the refusal of an AUTH behind other answers.
    #[tokio::test]
    async fn a_refusal_of_auth_that_is_left_out_shifts_no_answer() {
        let mut auth = cmd("AUTH");
        auth.arg("wrong");
        for answer in ["+OK\r\n", "-WRONGPASS invalid\r\n", ""] {
            let (socket, mut server, _) = connected(1024);
            let next = echo("next");
            let (logged_in, next, ()) =
                tokio::join!(socket.log_in(&auth), socket.ask(&next), async {
                    server.next().await.unwrap();
                    server.say(&format!("{answer}%1\r\n+proto\r\n:3\r\n+next\r\n")).await;
                });
            assert_eq!(logged_in.unwrap().is_some(), !answer.is_empty(), "{answer}");
            assert_eq!(next.unwrap(), word("next"));
        }
    }

    #[tokio::test]
    async fn a_server_that_answers_more_than_was_asked_is_left_before_it_fills_the_memory() {
        let mut auth = cmd("AUTH");
        auth.arg("wrong");
        let (socket, mut server, _) = connected(1024);
        let (logged_in, ()) = tokio::join!(socket.log_in(&auth), async {
            server.next().await.unwrap();
            server.say("+OK\r\n+OK\r\n").await;
        });
        assert!(matches!(logged_in, Err(Broken::Garbage(_))), "{logged_in:?}");
    }

    #[tokio::test]
    async fn a_broken_connection_fails_all_requests_and_takes_no_more() {
        for nonsense in ["", "HTTP/1.1 400\r\n"] {
            let (socket, mut server, _) = connected(1024);
            let (one, other) = (echo("one"), echo("other"));
            let (failed, other, why, ()) =
                tokio::join!(socket.ask(&one), socket.ask(&other), socket.ended(), async {
                    server.next().await.unwrap();
                    server.say(nonsense).await;
                    drop(server);
                });
            for failed in [failed.unwrap_err(), other.unwrap_err(), why] {
                let is_named = match nonsense {
                    "" => matches!(failed, Broken::Closed),
                    _ => matches!(failed, Broken::Garbage(_)),
                };
                assert!(is_named, "{failed:?}");
            }
            assert!(socket.ask(&one).await.is_err());
            assert!(socket.0.shared.requests.lock().unanswered.is_empty());
        }
    }

    #[test]
    fn an_answer_without_an_end_breaks_the_connection_before_it_takes_all_memory() {
        let mut reader = Reader::new(Box::new(tokio::io::repeat(b'x')));
        let mut context = Context::from_waker(Waker::noop());
        let ended = loop {
            let (filled, length) = (reader.poll_fill(&mut context), reader.buffer.len());
            assert!(length <= resp::LONGEST, "{length} bytes are kept");
            if let Poll::Ready(Err(broken)) = filled {
                break broken;
            }
        };
        assert!(matches!(ended, Broken::Garbage(_)), "{ended:?}");
    }

    #[tokio::test]
    async fn a_request_that_was_not_sent_is_known_not_to_run() {
        // The first requests fill the pipe in part, and the last one waits behind them.
        let (socket, mut server, _) = connected(64);
        let mut pipe = pipe();
        pipe.cmd("ECHO").arg("short").cmd("ECHO").arg("x".repeat(1000));
        let last = echo("last");
        let (cut, unsent, ()) = tokio::join!(socket.ask_each(&pipe), socket.ask(&last), async {
            assert_eq!(server.next().await.unwrap()[1], "short", "it may have run");
            drop(server);
        });
        assert!(matches!(cut, Err(Broken::Closed | Broken::Io(_))), "{cut:?}");
        for failed in [unsent, socket.ask(&last).await] {
            assert!(matches!(failed, Err(Broken::Unsent)), "{failed:?}");
        }
    }

    /// The end of the connection is met while a task writes, and the answer to an earlier request has arrived.
    #[tokio::test]
    async fn an_answer_that_came_before_the_connection_broke_is_passed_on() {
        for messages in [0, VALUES_A_TURN * 2] {
            let (socket, mut server, _) = connected(1 << 20);
            let (first, second) = (echo("first"), echo("second"));
            let mut answered = pin!(socket.ask(&first));
            assert!(poll!(answered.as_mut()).is_pending());
            server.next().await.unwrap();
            server.say(&">2\r\n+message\r\n+x\r\n".repeat(messages)).await;
            server.say("+first\r\n").await;
            drop(server);
            let (answer, failed) = tokio::join!(answered, socket.ask(&second));
            assert_eq!(answer.unwrap(), word("first"));
            assert!(failed.is_err());
        }
    }

    /// As a server that has too many clients does.
    #[tokio::test]
    async fn what_a_server_says_first_is_the_answer_to_the_first_request() {
        let (socket, mut server, _) = connected(1024);
        server.say("-ERR max number of clients reached\r\n").await;
        drop(server);
        yield_now().await;
        let answer = socket.ask(&echo("first")).await;
        assert!(matches!(answer, Ok(Value::ServerError(_))), "{answer:?}");
    }

    #[test]
    fn requests_fail_when_the_runtime_of_the_connection_ends() {
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let of_connection = runtime();
        let (socket, _server, _) = of_connection.block_on(async { connected(1024) });
        runtime().block_on(async {
            let lone = echo("lone");
            let mut lone = pin!(socket.ask(&lone));
            assert!(poll!(lone.as_mut()).is_pending());
            of_connection.shutdown_background();
            assert!(matches!(lone.await, Err(Broken::Ended)));
        });
    }
}
