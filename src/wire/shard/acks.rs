//! The acknowledging link: requests that count only when replicas have their writes.
//!
//! 1. `WAIT` blocks its connection. So these requests have a separate link, and no other request waits for a replica.
//! 2. `WAIT` applies to the connection that it is sent on. So it follows the scripts in the same pipe, and never a
//!    request that was sent elsewhere.
//! 3. Requests that arrive while one pipe is in flight share the next one: one `WAIT` serves all of them.
//! 4. On one connection requests run in the order of their arrival, including those that do not wait for replicas.
//! 5. If all connected replicas are to acknowledge (`Replicas::Connected`), the server says with each answer how many they are. If that
//!    is more than it has waited for, the same connection waits once more, for all of them.
//! 6. Requests for a connection that is lost are not sent. Otherwise each pipe of them would wait for an answer, and
//!    delay the requests on the next connection.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::config::{Config, Replicas};
use crate::error::said;
use crate::mutex::Mutex;
use crate::wakers::guarded;
use crate::wire::args::{Words, millis};
use crate::wire::fault::{self, Fault};
use crate::wire::link::{Link, Live};
use crate::wire::passwords::shown;
use crate::wire::replies::{field, strange};
use crate::wire::shard::reign::Reign;

/// The most requests in one pipe. They take the server some milliseconds.
const MOST: usize = 256;

/// Which replicas have to acknowledge, and how long they have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quorum {
    pub(crate) replicas: Replicas,
    pub(crate) timeout: Duration,
}

impl Quorum {
    /// `None`: no acknowledgement is needed.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        let (replicas, timeout) = (config.replicas, config.acks());
        (!replicas.is_none()).then_some(Self { replicas, timeout })
    }
}

/// A time in which too few replicas acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Shortage {
    pub(crate) since: Instant,
    /// When the last request failed. Replicas may have come back since then.
    pub(crate) seen: Instant,
    pub(crate) fault: Fault,
    /// Until then it counts, unless a request fails again. If nobody asks for a while, nobody knows.
    until: Instant,
}

/// A caller asks again after so long at the latest, besides the time that replicas have.
const PAUSES: Duration = Duration::from_secs(2);

/// The last shortage, if no request was acknowledged since.
type Short = Arc<Mutex<Option<Shortage>>>;

/// The senders' side of the acknowledging link of one server.
pub(crate) struct Acks {
    short: Short,
    pub(crate) link: Link,
    pub(crate) reign: Arc<Reign>,
    requests: mpsc::UnboundedSender<Request>,
}

/// One request, on the connection that its sender has seen.
struct Request {
    live: Live,
    /// Its commands, as the server reads them. The last one's answer is that of the request.
    bytes: Vec<u8>,
    commands: usize,
    waits: bool,
    told: oneshot::Sender<Result<Answer, Fault>>,
}

/// The answer to a request, and the fault if too few replicas acknowledged it.
type Answer = (Value, Option<Fault>);

impl Acks {
    /// The link, and the task that sends.
    pub(crate) fn new(link: Link, reign: Arc<Reign>, quorum: Quorum) -> (Self, Pipes) {
        let ((requests, queue), short) = (mpsc::unbounded_channel(), Short::default());
        let pipes = Pipes {
            queue,
            quorum,
            connected: (0, 0),
            link: link.clone(),
            short: Arc::clone(&short),
        };
        (Self { short, link, reign, requests }, pipes)
    }

    /// The shortage that goes on, if there is one.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        let short = self.short.lock();
        short.as_ref().filter(|short| Instant::now() < short.until).cloned()
    }

    /// Sends a request on this connection, after all that were sent before. `waits`: waits until replicas have its
    /// writes.
    ///
    /// # Cancel safety
    /// A request that is dropped before it was sent is never sent.
    pub(crate) async fn send(
        &self,
        live: Live,
        bytes: Vec<u8>,
        commands: usize,
        waits: bool,
    ) -> Result<Answer, Fault> {
        let (told, answer) = oneshot::channel();
        let request = Request { live, bytes, commands, waits, told };
        // If either fails, the client is closed.
        self.requests.send(request).map_err(|_| Fault::Closed)?;
        answer.await.unwrap_or(Err(Fault::Closed))
    }
}

/// The task that sends the requests, one pipe after the other.
pub(crate) struct Pipes {
    queue: mpsc::UnboundedReceiver<Request>,
    quorum: Quorum,
    /// The generation of the last connection, and how many replicas its server had.
    connected: (u64, u32),
    link: Link,
    short: Short,
}

impl Pipes {
    /// Sends requests forever.
    pub(crate) async fn run(mut self) {
        let mut requests = Vec::new();
        while self.queue.recv_many(&mut requests, MOST).await > 0 {
            // Nobody wants these any more. The gathering always waits for an acquire, so an acquire is sent although its caller
            // has left meanwhile, and then released.
            requests.retain(|request| !request.told.is_closed());
            let same = |one: &Request, next: &Request| one.live.generation == next.live.generation;
            let mut pipes: Vec<Vec<Request>> = Vec::new();
            for request in requests.drain(..) {
                match pipes.last_mut() {
                    Some(pipe) if same(&pipe[0], &request) => pipe.push(request),
                    _ => pipes.push(vec![request]),
                }
            }
            for pipe in pipes {
                let generation = pipe[0].live.generation;
                if self.link.live().is_ok_and(|live| live.generation == generation) {
                    self.send(pipe).await;
                } else {
                    refuse(pipe);
                }
            }
        }
    }

    async fn send(&mut self, requests: Vec<Request>) {
        let waits = requests.iter().any(|request| request.waits);
        let live = requests[0].live.clone();
        if self.connected.0 != live.generation {
            self.connected = (live.generation, 0);
        }
        let wanted = self.wanted();
        let (wait, more) = if waits { self.wait_for(wanted) } else { Default::default() };
        let write = |bytes: &mut Vec<u8>| {
            requests.iter().for_each(|request| bytes.extend_from_slice(&request.bytes));
            bytes.extend_from_slice(&wait);
        };
        let commands = requests.iter().map(|request| request.commands).sum::<usize>();
        let sent = Instant::now();
        let answers = live.socket.ask_written(&write, commands + more).await;
        let mut answers = answers.map_err(Fault::answering);
        let acknowledged = match &mut answers {
            Ok(answers) if waits => {
                let fault = self.acknowledged(answers.split_off(commands), wanted, &live).await;
                self.note(sent, fault.as_ref());
                fault
            }
            _ => None,
        };
        let mut answers = answers.map(Vec::into_iter);
        for Request { commands, waits, told, .. } in requests {
            let answer = match &mut answers {
                Ok(answers) => {
                    let answer = answers.nth(commands - 1);
                    let fault = acknowledged.clone().filter(|_| waits);
                    answer.map(|answer| (answer, fault)).ok_or_else(|| strange(&"nothing"))
                }
                Err(fault) => Err(fault.clone()),
            };
            // A caller that has left meanwhile releases what it may have been granted.
            guarded(|| _ = told.send(answer));
        }
    }

    /// All callers of the client wait for the same replicas: so they know since when.
    fn note(&self, sent: Instant, fault: Option<&Fault>) {
        let mut short = self.short.lock();
        let goes_on = short.as_ref().filter(|before| sent < before.until);
        let since = goes_on.map_or(sent, |before| before.since);
        let seen = Instant::now();
        let until = seen + self.quorum.timeout * 2 + PAUSES;
        *short = fault.map(|fault| Shortage { since, seen, fault: fault.clone(), until });
    }

    /// How many replicas have to acknowledge, as far as the client knows.
    fn wanted(&self) -> u32 {
        match self.quorum.replicas {
            Replicas::Count(count) => count,
            Replicas::Connected => self.connected.1,
        }
    }

    /// The commands that wait for so many replicas, as the server reads them, and how many commands they are.
    fn wait_for(&self, replicas: u32) -> (Vec<u8>, usize) {
        let mut bytes = Vec::new();
        Words::write(&mut bytes, |words| {
            words.arg("WAIT").arg(replicas).arg(millis(self.quorum.timeout));
        });
        if self.quorum.replicas != Replicas::Connected {
            return (bytes, 1);
        }
        Words::write(&mut bytes, |words| {
            words.arg("INFO").arg("replication");
        });
        (bytes, 2)
    }

    /// The fault, if fewer replicas have the writes than are required, or if nobody knows. Whatever it is, the scripts have run. `answers`:
    /// those to `WAIT` for so many replicas, and to INFO if the server was asked how many there are.
    async fn acknowledged(
        &mut self,
        mut answers: Vec<Value>,
        mut waited_for: u32,
        live: &Live,
    ) -> Option<Fault> {
        loop {
            if self.quorum.replicas == Replicas::Connected {
                // Asked after `WAIT`: a replica that has joined meanwhile has to acknowledge too.
                match connected(answers.get(1)) {
                    Ok(connected) => self.connected.1 = connected,
                    Err(fault) => return Some(unknown(&fault)),
                }
            }
            let wanted = self.wanted();
            let fault = self.judge(answers.first(), wanted, live.generation);
            if fault.is_none() || wanted <= waited_for {
                return fault;
            }
            let (wait, commands) = self.wait_for(wanted);
            let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(&wait);
            match live.socket.ask_written(&write, commands).await {
                Ok(again) => (answers, waited_for) = (again, wanted),
                Err(broken) => return Some(unknown(&Fault::answering(broken))),
            }
        }
    }

    fn judge(&self, answer: Option<&Value>, wanted: u32, generation: u64) -> Option<Fault> {
        let few = |has: i64, why: &str| {
            Some(Fault::Unacknowledged(said(format!("{why}{has} of {wanted} replicas have it"))))
        };
        match answer {
            Some(Value::Int(has)) if *has >= i64::from(wanted) => None,
            Some(Value::Int(has)) => few(*has, ""),
            Some(Value::ServerError(error)) => {
                // The server became a replica while it waited.
                if error.code().starts_with("UNBLOCKED")
                    || matches!(fault::entry(error), Fault::Distrusted(_))
                {
                    self.link.suspect(generation);
                }
                few(0, &format!("{}; ", fault::words(error)))
            }
            other => few(0, &format!("{}; ", shown(&format!("{other:?}")))),
        }
    }
}

/// The scripts have run, and the client cannot learn which replicas have what they wrote.
fn unknown(fault: &Fault) -> Fault {
    Fault::Unacknowledged(said(fault.to_string()))
}

/// How many replicas are connected, and have been sent their copy of the data.
pub(super) fn connected(info: Option<&Value>) -> Result<u32, Fault> {
    let states: Vec<_> =
        (0..).map_while(|number| field(info, &format!("slave{number}:"))).collect();
    match field(info, "connected_slaves:").map(str::parse::<usize>) {
        Some(Ok(connected)) if connected <= states.len() => {
            let is_online = |state: &&&str| state.contains("state=online");
            Ok(states.iter().filter(is_online).map(|_| 1).sum())
        }
        _ => Err(match info {
            Some(Value::ServerError(error)) => fault::entry(error),
            other => strange(&other),
        }),
    }
}

fn refuse(requests: Vec<Request>) {
    let fault =
        Fault::NotSent(said("the client gave the connection up before it sent the request"));
    for Request { told, .. } in requests {
        guarded(|| _ = told.send(Err(fault.clone())));
    }
}
