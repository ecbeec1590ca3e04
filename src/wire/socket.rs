//! One connection, and who drives it: who writes what is queued, and reads the answers.
//!
//! The `redis` crate leaves that to a future, the *driver*. A task of its own polls it as long as several requests are on their way.
//! But then a lone request costs two switches of tasks: to the driver, which writes it, and back from the driver, which has read
//! the answer. So a lone request drives the connection itself, in its caller's future, until it has its answer or another
//! request comes: rueidis does the same for Go (`pipe.go`).
//!
//! A caller's future may not be polled for long. That harms nobody else: the next request, if only a heartbeat, leaves the
//! driving to the task.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, ToRedisArgs, Value};
use tokio_util::task::AbortOnDropHandle;

/// A connection that many requests share. It ends with its last clone.
#[derive(Clone)]
pub(crate) struct Socket {
    conn: MultiplexedConnection,
    /// `None`: the `redis` crate drives it.
    driven: Option<Arc<Driven>>,
}

struct Driven {
    seat: Arc<Seat>,
    _task: AbortOnDropHandle<()>,
}

impl Socket {
    /// A connection that a task of the `redis` crate drives.
    pub(crate) fn driven_elsewhere(conn: MultiplexedConnection) -> Self {
        Self { conn, driven: None }
    }

    pub(crate) fn new(
        conn: MultiplexedConnection,
        driver: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let seat = Arc::new(Seat::new(Box::pin(driver)));
        let task = Arc::clone(&seat);
        let task = tokio::spawn(async move { poll_fn(|cx| task.poll_in_task(cx)).await });
        let driven = Driven { seat, _task: AbortOnDropHandle::new(task) };
        Self { conn, driven: Some(Arc::new(driven)) }
    }

    /// Whether no request can be sent any more. The request that drives learns this before any other task does.
    pub(crate) fn has_ended(&self) -> bool {
        let driven = self.driven.as_deref();
        driven.is_some_and(|driven| driven.seat.has_ended.load(Ordering::Acquire))
    }

    pub(crate) async fn send_packed_command(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        let Self { conn, driven } = self;
        while_driving(driven.as_deref(), pin!(conn.send_packed_command(cmd))).await
    }

    pub(crate) async fn send_packed_commands(
        &mut self,
        cmds: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let Self { conn, driven } = self;
        let request = pin!(conn.send_packed_commands(cmds, offset, count));
        while_driving(driven.as_deref(), request).await
    }

    pub(crate) async fn subscribe(&mut self, channels: impl ToRedisArgs) -> RedisResult<()> {
        let Self { conn, driven } = self;
        while_driving(driven.as_deref(), pin!(conn.subscribe(channels))).await
    }

    pub(crate) async fn unsubscribe(&mut self, channels: impl ToRedisArgs) -> RedisResult<()> {
        let Self { conn, driven } = self;
        while_driving(driven.as_deref(), pin!(conn.unsubscribe(channels))).await
    }
}

async fn while_driving<T>(
    driven: Option<&Driven>,
    mut request: Pin<&mut impl Future<Output = T>>,
) -> T {
    let Some(Driven { seat, .. }) = driven else { return request.await };
    let part = seat.take_part();
    poll_fn(|cx| part.poll(request.as_mut(), cx)).await
}

/// Where the driver of one connection is polled.
struct Seat {
    /// `None`: the connection has ended.
    driver: Mutex<Option<BoxFuture<'static, ()>>>,
    has_ended: AtomicBool,
    turn: Arc<Turn>,
    /// The only waker that the driver ever gets: it wakes whoever drives.
    waker: Waker,
    /// The waker of the request that drives. Its answer wakes nobody: the request reads it itself. With its caller's waker, each
    /// answer would have the caller's runtime poll the caller once more.
    answered: Waker,
}

/// Whose turn it is to drive. Nobody is woken, and no waker dropped, while this is locked: a waker may be of any runtime.
#[derive(Default)]
struct Turn(Mutex<State>);

#[derive(Default)]
struct State {
    /// How many requests wait for their answers.
    requests: usize,
    /// The lone request that drives, by its number, and its waker once it was polled. `None`: the task drives.
    lone: Option<(u64, Option<Waker>)>,
    task: Option<Waker>,
    next: u64,
    /// The driver is being polled. Whoever polls it looks afterwards whether it was woken meanwhile.
    is_polled: bool,
    was_woken: bool,
    /// The same for the request that drives.
    was_answered: bool,
}

impl Turn {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic under this lock")
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let driving = {
            let mut state = self.state();
            if state.is_polled {
                state.was_woken = true;
                return;
            }
            match &state.lone {
                Some((_, lone)) => lone.clone(),
                None => state.task.clone(),
            }
        };
        driving.iter().for_each(Waker::wake_by_ref);
    }
}

struct Answered(Arc<Turn>);

impl Wake for Answered {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let lone = {
            let mut state = self.0.state();
            if state.is_polled {
                state.was_answered = true;
                return;
            }
            // If it does not drive any more, it was woken, and waits with its caller's waker.
            state.lone.as_ref().and_then(|(_, lone)| lone.clone())
        };
        lone.iter().for_each(Waker::wake_by_ref);
    }
}

impl State {
    fn is_driven_by(&self, number: u64) -> bool {
        self.lone.as_ref().is_some_and(|(lone, _)| *lone == number)
    }
}

impl Seat {
    fn new(driver: BoxFuture<'static, ()>) -> Self {
        let turn = Arc::<Turn>::default();
        let waker = Waker::from(Arc::clone(&turn));
        let answered = Waker::from(Arc::new(Answered(Arc::clone(&turn))));
        let has_ended = AtomicBool::new(false);
        Self { driver: Mutex::new(Some(driver)), has_ended, turn, waker, answered }
    }

    fn driver(&self) -> MutexGuard<'_, Option<BoxFuture<'static, ()>>> {
        self.driver.lock().expect("no panic under this lock")
    }

    fn poll(&self, driver: &mut Option<BoxFuture<'static, ()>>) {
        let mut cx = Context::from_waker(&self.waker);
        if let Some(future) = driver
            && future.as_mut().poll(&mut cx).is_ready()
        {
            *driver = None;
            self.has_ended.store(true, Ordering::Release);
        }
    }

    fn poll_in_task(&self, cx: &mut Context<'_>) -> Poll<()> {
        let (before, is_ours) = {
            let mut state = self.turn.state();
            (state.task.replace(cx.waker().clone()), state.lone.is_none())
        };
        drop(before);
        if !is_ours {
            return Poll::Pending;
        }
        let mut driver = self.driver();
        self.turn.state().is_polled = true;
        self.poll(&mut driver);
        let was_woken = {
            let mut state = self.turn.state();
            state.is_polled = false;
            std::mem::take(&mut state.was_woken)
        };
        if was_woken {
            cx.waker().wake_by_ref();
        }
        if driver.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// A request begins. If it is alone, it drives. Otherwise the task does.
    fn take_part(&self) -> Part<'_> {
        let (number, before, task) = {
            let mut state = self.turn.state();
            let number = state.next;
            state.next += 1;
            state.requests += 1;
            let is_alone = state.requests == 1;
            let lone = is_alone.then_some((number, None));
            let before = std::mem::replace(&mut state.lone, lone);
            let task = before.as_ref().and_then(|_| state.task.clone());
            (number, before, task)
        };
        task.iter().for_each(Waker::wake_by_ref);
        if let Some((_, Some(lone))) = before {
            lone.wake();
        }
        Part { seat: self, number }
    }
}

/// A request's part in driving.
struct Part<'a> {
    seat: &'a Seat,
    number: u64,
}

impl Part<'_> {
    fn poll<T>(
        &self,
        mut request: Pin<&mut impl Future<Output = T>>,
        cx: &mut Context<'_>,
    ) -> Poll<T> {
        let Seat { turn, .. } = self.seat;
        if !turn.state().is_driven_by(self.number) {
            return request.poll(cx);
        }
        let mut driver = self.seat.driver();
        let mut own = Context::from_waker(&self.seat.answered);
        // What the request queues wakes nobody: the driver is polled next.
        turn.state().is_polled = true;
        let mut answer = request.as_mut().poll(&mut own);
        if answer.is_pending() {
            turn.state().was_woken = false;
            self.seat.poll(&mut driver);
            turn.state().was_answered = false;
            answer = request.poll(&mut own);
        }
        let goes_on = answer.is_pending() && driver.is_some();
        let (before, task, is_woken) = {
            let mut state = turn.state();
            state.is_polled = false;
            let was_woken = std::mem::take(&mut state.was_woken);
            let was_answered = std::mem::take(&mut state.was_answered);
            let is_ours = state.is_driven_by(self.number);
            let lone = goes_on.then(|| (self.number, Some(cx.waker().clone())));
            let before = if is_ours { std::mem::replace(&mut state.lone, lone) } else { None };
            let drives_on = is_ours && goes_on;
            let task = state.task.clone().filter(|_| !drives_on && (was_woken || driver.is_none()));
            (before, task, !drives_on || was_woken || was_answered)
        };
        task.iter().for_each(Waker::wake_by_ref);
        if answer.is_pending() && is_woken {
            cx.waker().wake_by_ref();
        }
        drop(before);
        answer
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let (before, task) = {
            let mut state = self.seat.turn.state();
            state.requests -= 1;
            // It may have been woken to drive, and leaves before it does.
            let before = if state.is_driven_by(self.number) { state.lone.take() } else { None };
            let task = before.as_ref().and_then(|_| state.task.clone());
            (before, task)
        };
        task.iter().for_each(Waker::wake_by_ref);
        drop(before);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use redis::{
        AsyncConnectionConfig, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, cmd,
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::task::JoinSet;

    use super::*;

    /// How many requests these bytes begin.
    fn requests(bytes: &[u8]) -> usize {
        String::from_utf8_lossy(bytes).lines().filter(|line| line.starts_with('*')).count()
    }

    /// Answers everything with OK.
    async fn serve(stream: &mut DuplexStream) {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut bytes).await {
            let answers = "+OK\r\n".repeat(requests(&bytes[..read]));
            stream.write_all(answers.as_bytes()).await.unwrap();
        }
    }

    /// The connection, its server's end after the greeting, and what is pushed.
    async fn connected() -> (Socket, DuplexStream, UnboundedReceiver<PushInfo>) {
        let (near, mut far) = duplex(1 << 20);
        let settings = "redis://server/".into_connection_info().unwrap();
        let settings = settings.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let (pushed, pushes) = unbounded_channel();
        let push = move |info| {
            let _ = pushed.send(info);
            Ok::<(), Infallible>(())
        };
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        let made = MultiplexedConnection::new_with_config(&settings, near, config);
        let greeted = tokio::select! {
            made = made => made.unwrap(),
            () = serve(&mut far) => unreachable!("the client has not left"),
        };
        let (conn, driver) = greeted;
        (Socket::new(conn, driver), far, pushes)
    }

    async fn ping(mut socket: Socket) -> RedisResult<Value> {
        socket.send_packed_command(&cmd("PING")).await
    }

    async fn poll_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
    }

    #[tokio::test]
    async fn a_lone_request_needs_no_task() {
        let (socket, mut far, _) = connected().await;
        socket.driven.as_ref().unwrap()._task.abort();
        tokio::spawn(async move { serve(&mut far).await });
        for _ in 0..10 {
            assert_eq!(ping(socket.clone()).await.unwrap(), Value::Okay);
        }
    }

    #[tokio::test]
    async fn a_request_that_is_not_polled_is_in_nobodys_way() {
        let (socket, mut far, _) = connected().await;
        let mut silent = pin!(ping(socket.clone()));
        assert!(poll_once(silent.as_mut()).await.is_pending());
        tokio::spawn(async move { serve(&mut far).await });
        for _ in 0..10 {
            assert_eq!(ping(socket.clone()).await.unwrap(), Value::Okay);
        }
        assert_eq!(silent.await.unwrap(), Value::Okay);
    }

    #[tokio::test]
    async fn a_push_is_heard_after_the_request_that_drove_was_dropped() {
        let (socket, mut far, mut pushes) = connected().await;
        {
            let mut dropped = pin!(ping(socket.clone()));
            assert!(poll_once(dropped.as_mut()).await.is_pending());
            far.write_all(b"+OK\r\n>2\r\n+invalidate\r\n_\r\n").await.unwrap();
        }
        assert_eq!(pushes.recv().await.unwrap().kind, PushKind::Invalidate);
        tokio::spawn(async move { serve(&mut far).await });
        assert_eq!(ping(socket).await.unwrap(), Value::Okay);
    }

    #[tokio::test]
    async fn the_end_of_an_idle_connection_is_heard() {
        let (socket, mut far, mut pushes) = connected().await;
        let mut answered = pin!(ping(socket.clone()));
        assert!(poll_once(answered.as_mut()).await.is_pending());
        far.write_all(b"+OK\r\n").await.unwrap();
        assert_eq!(answered.await.unwrap(), Value::Okay);
        drop(far);
        assert_eq!(pushes.recv().await.unwrap().kind, PushKind::Disconnection);
        assert!(ping(socket.clone()).await.is_err() && socket.has_ended());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn many_that_come_and_go_are_all_answered() {
        let (socket, mut far, _) = connected().await;
        tokio::spawn(async move { serve(&mut far).await });
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let socket = socket.clone();
            tasks.spawn(async move {
                for _ in 0..5_000 {
                    if fastrand::bool() {
                        let mut dropped = pin!(ping(socket.clone()));
                        let _ = poll_once(dropped.as_mut()).await;
                    }
                    assert_eq!(ping(socket.clone()).await.unwrap(), Value::Okay);
                    if fastrand::u8(..8) == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    }
}
