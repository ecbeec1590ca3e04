//! The sentinels that watch a primary, and what they say of it.
//!
//! 1. All of them are asked at once. Of those that answer at about the same time, the one with the greatest config epoch is
//!    believed: it has heard of the latest failover.
//! 2. They give addresses and nothing else. Whether a primary listens there, its own greeting says (`hello.rs`).
//! 3. Without any answer the client goes on with the address that it knows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Value, pipe};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::Config;
use crate::error::{Result, said};
use crate::wire::address::{Address, Addresses};
use crate::wire::fault::{self, Fault};
use crate::wire::node::Node;
use crate::wire::replies::{strange, word};
use crate::wire::target::Watched;

/// How long the others have to answer when one has.
const COMPANY: Duration = Duration::from_millis(300);

/// The longest that one sentinel may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// An answer so fresh serves a second link too that has to be made again.
const FRESH: Duration = Duration::from_millis(100);

/// Sentinels that others name, and that are asked too.
const MOST_LEARNT: usize = 16;

/// The sentinels of one service.
pub(crate) struct Sentinels {
    service: String,
    primaries: Addresses,
    sentinels: Addresses,
    patience: Duration,
    primary: watch::Sender<Option<Primary>>,
    roster: Mutex<Roster>,
    /// The last time that all were asked. One task asks at a time.
    round: tokio::sync::Mutex<Option<Round>>,
    /// Something casts doubt on the address.
    pub(crate) doubted: Notify,
    turn: AtomicUsize,
}

/// Where the primary is, and since which failover.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Primary {
    node: Node,
    epoch: u64,
}

/// What is known of the sentinels themselves.
#[derive(Default)]
struct Roster {
    /// Those that the others name, and the URL does not.
    learnt: Vec<Node>,
    /// Those that answered last, the quickest first, each with its epoch.
    answered: Vec<(Node, u64)>,
    /// The one that was chosen last to be listened to.
    listened_to: Option<Node>,
}

/// What one sentinel says.
#[derive(Debug)]
struct Told {
    /// `None`: it does not know the service.
    primary: Option<Primary>,
    /// The other sentinels of this service.
    others: Vec<Node>,
}

struct Round {
    began: Instant,
    answer: Result<Node, Fault>,
}

impl Sentinels {
    /// # Errors
    /// As [`Address::new`].
    pub(crate) fn new(watched: Watched, config: &Config) -> Result<Self> {
        // Those of the provider are for the primary.
        let mut plain = config.clone();
        plain.credentials = None;
        Ok(Self {
            service: watched.service,
            primaries: Addresses::new(&[watched.primary], config)?,
            sentinels: Addresses::new(&watched.sentinels, &plain)?,
            patience: config.connect_timeout.min(PATIENCE),
            primary: watch::Sender::default(),
            roster: Mutex::default(),
            round: tokio::sync::Mutex::default(),
            doubted: Notify::new(),
            turn: AtomicUsize::new(0),
        })
    }

    /// The same sentinels and primaries, reached over streams of the simulation.
    #[cfg(parklock_sim)]
    pub(crate) fn over(self, dial: &crate::wire::dial::Dial) -> Self {
        let (primaries, sentinels) = (self.primaries.over(dial), self.sentinels.over(dial));
        Self { primaries, sentinels, ..self }
    }

    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    /// The number of the database.
    pub(crate) fn database(&self) -> i64 {
        self.primaries.database()
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().expect("no panic under this lock")
    }

    /// How to reach the primary that is at this node.
    pub(crate) fn address(&self, node: &Node) -> Result<Address, Fault> {
        self.primaries.of(node).map_err(|error| Fault::NotSent(said(error.to_string())))
    }

    /// Asks where the primary is, or takes the answer that another link has just been given.
    pub(crate) async fn primary(&self) -> Result<Node, Fault> {
        self.primary_as_of(Instant::now().checked_sub(FRESH)).await
    }

    /// Asks where the primary is now.
    pub(crate) async fn primary_now(&self) -> Result<Node, Fault> {
        self.primary_as_of(Some(Instant::now())).await
    }

    /// An answer to a question that was asked at this time or later.
    async fn primary_as_of(&self, time: Option<Instant>) -> Result<Node, Fault> {
        let mut round = self.round.lock().await;
        if let Some(Round { began, answer }) = &*round
            && Some(*began) >= time
        {
            return answer.clone();
        }
        let began = Instant::now();
        let answer = self.ask_all().await;
        *round = Some(Round { began, answer: answer.clone() });
        answer
    }

    /// Waits until the primary is known to be elsewhere than at this node.
    pub(crate) async fn left(&self, node: &Node) {
        let is_elsewhere =
            |primary: &Option<Primary>| primary.as_ref().is_some_and(|now| now.node != *node);
        if self.primary.subscribe().wait_for(is_elsewhere).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// A sentinel to listen to: the one that answered first, and each further time the next one.
    pub(crate) fn any(&self) -> Result<Address, Fault> {
        let mut roster = self.roster();
        let mut nodes: Vec<_> = roster.answered.iter().map(|(node, _)| node.clone()).collect();
        for node in self.sentinels.seeds.iter().chain(&roster.learnt) {
            if !nodes.contains(node) {
                nodes.push(node.clone());
            }
        }
        let node = &nodes[self.turn.fetch_add(1, Ordering::Relaxed) % nodes.len()];
        roster.listened_to = Some(node.clone());
        self.sentinel(node)
    }

    /// Whether the sentinel that is listened to did not answer, or has not heard of the latest failover.
    pub(crate) fn is_behind(&self) -> bool {
        let roster = self.roster();
        let Some(newest) = roster.answered.iter().map(|(_, epoch)| *epoch).max() else {
            return false;
        };
        let ours = |(node, _): &&(Node, u64)| Some(node) == roster.listened_to.as_ref();
        roster.answered.iter().find(ours).is_none_or(|(_, epoch)| *epoch < newest)
    }

    fn sentinel(&self, node: &Node) -> Result<Address, Fault> {
        self.sentinels.of(node).map_err(|error| Fault::NotSent(said(error.to_string())))
    }

    fn everybody(&self) -> Vec<Node> {
        let (mut nodes, roster) = (self.sentinels.seeds.clone(), self.roster());
        nodes.extend(roster.learnt.iter().cloned());
        nodes
    }

    async fn ask_all(&self) -> Result<Node, Fault> {
        let ask = async |node: Node| {
            let told = self.ask(&node).await;
            (node, told)
        };
        let mut asked: FuturesUnordered<_> = self.everybody().into_iter().map(ask).collect();
        let (mut answers, mut until) = (Vec::new(), None);
        loop {
            let next = match until {
                Some(until) => timeout_at(until, asked.next()).await.ok().flatten(),
                None => asked.next().await,
            };
            let Some((node, told)) = next else { break };
            if until.is_none() && matches!(told, Ok(Told { primary: Some(_), .. })) {
                until = Some(Instant::now() + COMPANY);
            }
            answers.push((node, told));
        }
        drop(asked);
        self.take_note(&answers);
        self.believe(answers)
    }

    async fn ask(&self, node: &Node) -> Result<Told, Fault> {
        let asked = async {
            let mut dialled = self.sentinel(node)?.connect(|_| {}).await?;
            let mut pipe = pipe();
            pipe.cmd("SENTINEL").arg("MASTER").arg(&self.service);
            pipe.cmd("SENTINEL").arg("SENTINELS").arg(&self.service);
            let answers = dialled.conn.send_packed_commands(&pipe, 0, pipe.len()).await;
            Told::read(&answers.map_err(Fault::answering)?, node)
        };
        let limit = self.patience;
        let late = || Fault::NotSent(said(format!("{node} did not answer in {limit:?}")));
        timeout(limit, asked).await.unwrap_or_else(|_| Err(late()))
    }

    fn take_note(&self, answers: &[(Node, Result<Told, Fault>)]) {
        let told = || answers.iter().filter_map(|(node, told)| Some((node, told.as_ref().ok()?)));
        let mut roster = self.roster();
        let known = told().filter_map(|(node, told)| Some((node, told.primary.as_ref()?)));
        roster.answered = known.map(|(node, primary)| (node.clone(), primary.epoch)).collect();
        if roster.answered.is_empty() {
            return;
        }
        let mut learnt: Vec<Node> = Vec::new();
        for node in told().flat_map(|(_, told)| &told.others) {
            if !self.sentinels.seeds.contains(node) && !learnt.contains(node) {
                learnt.push(node.clone());
            }
        }
        learnt.truncate(MOST_LEARNT);
        roster.learnt = learnt;
    }

    fn believe(&self, answers: Vec<(Node, Result<Told, Fault>)>) -> Result<Node, Fault> {
        let told: Vec<_> = answers.iter().filter_map(|(_, told)| told.as_ref().ok()).collect();
        let primaries: Vec<_> = told.iter().filter_map(|told| told.primary.as_ref()).collect();
        let before = self.primary.borrow().clone();
        let majority = self.sentinels.seeds.len() / 2 + 1;
        let Some(primary) = chosen(&primaries, before.as_ref(), majority) else {
            let service = &self.service;
            let Some(before) = before else { return Err(self.nobody_knows(answers)) };
            tracing::warn!(%service, node = %before.node, "no sentinel knows the primary now: going on with the one before");
            return Ok(before.node);
        };
        let node = primary.node.clone();
        self.primary.send_if_modified(|known| {
            let is_news = known.as_ref() != Some(&primary);
            if is_news {
                let (service, epoch) = (&self.service, primary.epoch);
                tracing::info!(%service, node = %primary.node, epoch, "the sentinels name the primary");
                *known = Some(primary);
            }
            is_news
        });
        Ok(node)
    }

    /// Why there is no address at all.
    fn nobody_knows(&self, answers: Vec<(Node, Result<Told, Fault>)>) -> Fault {
        let mut faults = Vec::new();
        for (_, told) in answers {
            match told {
                // It answered, and does not know the service.
                Ok(_) => {
                    let service = &self.service;
                    return Fault::Config(format!(
                        "unknown service: no sentinel watches {service:?}"
                    ));
                }
                Err(fault) => faults.push(fault),
            }
        }
        // What waiting does not mend is more worth telling.
        match faults.into_iter().find(|fault| !fault.is_passing()) {
            Some(fault) => fault,
            None => Fault::NotSent(said("no sentinel answers")),
        }
    }
}

/// The primary to believe in. An answer that is older than what was known `before` is a sentinel's that was cut off, unless
/// a majority says so: then the sentinels were set up anew.
fn chosen(told: &[&Primary], before: Option<&Primary>, majority: usize) -> Option<Primary> {
    let newest = told.iter().map(|primary| primary.epoch).max()?;
    let mut candidates = told.iter().filter(|primary| primary.epoch == newest);
    match before {
        Some(before) if newest < before.epoch && told.len() < majority => Some(before.clone()),
        Some(before) if candidates.clone().any(|primary| *primary == before) => {
            Some(before.clone())
        }
        _ => candidates.next().map(|primary| (*primary).clone()),
    }
}

impl Told {
    fn read(answers: &[Value], node: &Node) -> Result<Self, Fault> {
        let [primary, others] = answers else { return Err(strange(&answers.len())) };
        let primary = match primary {
            Value::ServerError(error) if says(error, "No such master") => None,
            Value::ServerError(error) if says(error, "unknown command") => {
                return Err(Fault::Config(format!("{node} is no sentinel")));
            }
            Value::ServerError(error) => return Err(fault::entry(error)),
            answer => Some(Primary::read(answer).ok_or_else(|| strange(answer))?),
        };
        // Who may not ask for the others goes without them.
        let others = match others {
            Value::Array(others) => others.iter().filter_map(place).collect(),
            _ => Vec::new(),
        };
        Ok(Self { primary, others })
    }
}

impl Primary {
    fn read(answer: &Value) -> Option<Self> {
        let epoch = field(answer, "config-epoch")?.parse().ok()?;
        Some(Self { node: place(answer)?, epoch })
    }
}

fn says(error: &redis::ServerError, words: &str) -> bool {
    error.details().is_some_and(|details| details.contains(words))
}

/// Where something is that a sentinel describes.
fn place(answer: &Value) -> Option<Node> {
    let (host, port) = (field(answer, "ip")?, field(answer, "port")?.parse().ok()?);
    if host.is_empty() || port == 0 { None } else { Some(Node::new(host, port)) }
}

/// One field of what a sentinel describes: a map, or a list of names and values in turn.
fn field<'a>(answer: &'a Value, name: &str) -> Option<&'a str> {
    match answer {
        Value::Map(fields) => fields
            .iter()
            .find(|(key, _)| word(key) == Some(name))
            .and_then(|(_, value)| word(value)),
        Value::Array(items) => {
            let mut fields = items.chunks_exact(2);
            fields.find(|field| word(&field[0]) == Some(name)).and_then(|field| word(&field[1]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(port: u16, epoch: u64) -> Primary {
        Primary { node: Node::new("h", port), epoch }
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn the_greatest_epoch_is_believed() {
        let [old, new] = [primary(1, 3), primary(2, 4)];
        assert_eq!(chosen(&[&old, &new, &old], None, 2), Some(new.clone()));
        assert_eq!(chosen(&[&old, &new], Some(&old), 2), Some(new.clone()));
        assert_eq!(chosen(&[], Some(&old), 2), None);
        let other = primary(9, 4);
        assert_eq!(chosen(&[&other, &new], Some(&new), 2), Some(new), "of equals the one before");
    }

    #[test]
    fn a_sentinel_that_was_cut_off_does_not_undo_a_failover() {
        let [old, new] = [primary(1, 3), primary(2, 4)];
        assert_eq!(chosen(&[&old], Some(&new), 2), Some(new.clone()));
        assert_eq!(chosen(&[&old, &old], Some(&new), 2), Some(old), "they were set up anew");
    }

    #[test]
    fn an_answer_is_a_map_or_a_list() {
        let fields = [("name", "m"), ("ip", "10.0.0.1"), ("port", "7000"), ("config-epoch", "5")];
        let map = Value::Map(fields.iter().map(|(key, value)| (text(key), text(value))).collect());
        let list = fields.iter().flat_map(|(key, value)| [text(key), text(value)]).collect();
        let us = Node::new("s", 1);
        for answer in [map, Value::Array(list)] {
            let told = [answer.clone(), Value::Array(vec![answer, Value::Nil])];
            let told = Told::read(&told, &us).unwrap();
            let node = Node::new("10.0.0.1", 7000);
            assert_eq!(told.primary, Some(Primary { node: node.clone(), epoch: 5 }));
            assert_eq!(told.others, [node]);
        }
        for nonsense in [Value::Nil, Value::Array(vec![text("ip"), text("h")]), Value::Okay] {
            assert!(Told::read(&[nonsense, Value::Nil], &us).is_err());
        }
    }
}
