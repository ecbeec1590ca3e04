//! The sentinels that watch a primary, and what they report about it.
//!
//! 1. All of them are asked at once. Of those that answer at about the same time, the client believes the one with the
//!    greatest config epoch: it knows of the latest failover.
//! 2. The sentinel that leads a failover has the new epoch in `SENTINEL MASTER`, but for a while still the old address.
//!    So the client takes the address from `GET-MASTER-ADDR-BY-NAME`.
//! 3. Sentinels only give addresses. The greeting of the server itself says whether it is a primary (`hello.rs`).
//! 4. If no sentinel answers, the client keeps the address that it knows.

use std::mem::replace;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Value, pipe};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::config::Config;
use crate::error::{Result, said};
use crate::log;
use crate::mutex::Mutex;
use crate::pause::in_time;
use crate::wire::address::{Address, Addresses};
use crate::wire::fault::{self, Fault};
use crate::wire::node::Node;
use crate::wire::replies::{named, strange, word};
use crate::wire::target::Watched;

/// How long the others have to answer once one has answered.
const COMPANY: Duration = Duration::from_millis(300);

/// The longest time that one sentinel may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// An answer no older than this also serves a second link that has to reconnect.
const FRESH: Duration = Duration::from_millis(100);

/// The most sentinels that are asked because others named them.
const MOST_LEARNT: usize = 16;

/// The sentinels of one service.
pub(crate) struct Sentinels {
    service: String,
    pub(crate) primaries: Addresses,
    sentinels: Addresses,
    patience: Duration,
    primary: watch::Sender<Option<Primary>>,
    roster: Mutex<Roster>,
    /// The last round of asking all sentinels. Only one task asks at a time.
    round: tokio::sync::Mutex<Option<Round>>,
    /// The address may be wrong.
    pub(crate) doubted: Notify,
}

/// The address of the primary, and the failover since which it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Primary {
    node: Node,
    epoch: u64,
}

/// What is known of the sentinels.
#[derive(Default)]
struct Roster {
    /// Sentinels that others name and the URL does not.
    learnt: Vec<Node>,
    /// Those that answered last, the fastest first, each with its epoch.
    answered: Vec<(Node, u64)>,
    /// The sentinel that the client last chose to listen to.
    listened_to: Option<Node>,
    /// How often it has chosen one.
    turns: usize,
    /// The log says that no sentinel knows the primary.
    is_unknown: bool,
}

/// The answer of one sentinel.
#[derive(Debug)]
struct Report {
    /// Which sentinel it is: several names may lead to one.
    id: String,
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
    /// Same as [`Address::new`].
    pub(crate) fn new(watched: Watched, config: &Config) -> Result<Self> {
        // The provider's credentials are for the primary.
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
        })
    }

    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    /// The database number.
    pub(crate) fn database(&self) -> i64 {
        self.primaries.database()
    }

    /// Asks where the primary is, or reuses a fresh answer that another link got.
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

    /// Waits until the primary is known to be at another node than this one.
    pub(crate) async fn left(&self, node: &Node) {
        let is_elsewhere =
            |primary: &Option<Primary>| primary.as_ref().is_some_and(|now| now.node != *node);
        if self.primary.subscribe().wait_for(is_elsewhere).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// A sentinel to listen to: the one that answered first, and the next one on each further call.
    pub(crate) fn any(&self) -> Address {
        let mut roster = self.roster.lock();
        let mut nodes: Vec<_> = roster.answered.iter().map(|(node, _)| node.clone()).collect();
        for node in self.sentinels.seeds.iter().chain(&roster.learnt) {
            if !nodes.contains(node) {
                nodes.push(node.clone());
            }
        }
        let node = &nodes[roster.turns % nodes.len()];
        roster.turns += 1;
        roster.listened_to = Some(node.clone());
        self.sentinels.of(node)
    }

    /// Whether the sentinel that the client listens to did not answer, or does not know of the latest failover.
    pub(crate) fn is_behind(&self) -> bool {
        let roster = self.roster.lock();
        let Some(newest) = roster.answered.iter().map(|(_, epoch)| *epoch).max() else {
            return false;
        };
        let ours = |(node, _): &&(Node, u64)| Some(node) == roster.listened_to.as_ref();
        roster.answered.iter().find(ours).is_none_or(|(_, epoch)| *epoch < newest)
    }

    fn everybody(&self) -> Vec<Node> {
        let (mut nodes, roster) = (self.sentinels.seeds.clone(), self.roster.lock());
        nodes.extend(roster.learnt.iter().cloned());
        nodes
    }

    async fn ask_all(&self) -> Result<Node, Fault> {
        let ask = async |node: Node| {
            let report = self.ask(&node).await;
            (node, report)
        };
        let mut asked: FuturesUnordered<_> = self.everybody().into_iter().map(ask).collect();
        let (mut answers, mut until) = (Vec::new(), None);
        loop {
            let next = in_time(until, asked.next()).await.flatten();
            let Some((node, report)) = next else { break };
            if until.is_none() && matches!(report, Ok(Report { primary: Some(_), .. })) {
                until = Some(Instant::now() + COMPANY);
            }
            answers.push((node, report));
        }
        drop(asked);
        self.take_note(&answers);
        self.believe(answers)
    }

    async fn ask(&self, node: &Node) -> Result<Report, Fault> {
        let asked = async {
            let dialled = self.sentinels.of(node).connect_for_once().await?;
            let mut pipe = pipe();
            pipe.cmd("SENTINEL").arg("MASTER").arg(&self.service);
            pipe.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
            pipe.cmd("SENTINEL").arg("SENTINELS").arg(&self.service);
            pipe.cmd("SENTINEL").arg("MYID");
            let answers = dialled.socket.ask_each(&pipe).await;
            Report::read(&answers.map_err(Fault::answering)?, node)
        };
        Fault::unless_in(self.patience, node, asked).await
    }

    fn take_note(&self, answers: &[(Node, Result<Report, Fault>)]) {
        let reports =
            || answers.iter().filter_map(|(node, report)| Some((node, report.as_ref().ok()?)));
        let mut roster = self.roster.lock();
        let known = reports().filter_map(|(node, report)| Some((node, report.primary.as_ref()?)));
        roster.answered = known.map(|(node, primary)| (node.clone(), primary.epoch)).collect();
        if roster.answered.is_empty() {
            return;
        }
        let mut learnt: Vec<Node> = Vec::new();
        for node in reports().flat_map(|(_, report)| &report.others) {
            if !self.sentinels.seeds.contains(node) && !learnt.contains(node) {
                learnt.push(node.clone());
            }
        }
        learnt.truncate(MOST_LEARNT);
        roster.learnt = learnt;
    }

    fn believe(&self, answers: Vec<(Node, Result<Report, Fault>)>) -> Result<Node, Fault> {
        let reports: Vec<_> =
            answers.iter().filter_map(|(_, report)| report.as_ref().ok()).collect();
        let primaries: Vec<_> =
            reports.iter().filter_map(|report| report.primary.as_ref()).collect();
        let before = self.primary.borrow().clone();
        let are_majority = are_majority(&reports, self.sentinels.seeds.len());
        let Some(primary) = chosen(&primaries, before.as_ref(), are_majority) else {
            let service = &self.service;
            let Some(before) = before else { return Err(self.nobody_knows(answers)) };
            if !replace(&mut self.roster.lock().is_unknown, true) {
                log::warn!(%service, node = %before.node, "no sentinel knows the primary now: the client keeps the previous one");
            }
            return Ok(before.node);
        };
        let node = primary.node.clone();
        self.roster.lock().is_unknown = false;
        self.primary.send_if_modified(|known| {
            let is_news = known.as_ref() != Some(&primary);
            if is_news {
                let (service, epoch) = (&self.service, primary.epoch);
                log::info!(%service, node = %primary.node, epoch, "the sentinels name the primary");
                *known = Some(primary);
            }
            is_news
        });
        Ok(node)
    }

    /// Why there is no address at all.
    fn nobody_knows(&self, answers: Vec<(Node, Result<Report, Fault>)>) -> Fault {
        let mut faults = Vec::new();
        for (_, report) in answers {
            match report {
                // It answered, but does not know the service.
                Ok(_) => {
                    let service = &self.service;
                    return Fault::Config(format!(
                        "unknown service: no sentinel watches {service:?}"
                    ));
                }
                Err(fault) => faults.push(fault),
            }
        }
        // A permanent error is more useful to report.
        match faults.into_iter().find(|fault| !fault.is_passing()) {
            Some(fault) => fault,
            None => Fault::NotSent(said("no sentinel answers")),
        }
    }
}

/// The primary to believe in. An answer that is older than `before` comes from a sentinel that was cut off, unless a
/// majority gives it: then the sentinels were set up again.
fn chosen(primaries: &[&Primary], before: Option<&Primary>, are_majority: bool) -> Option<Primary> {
    let newest = primaries.iter().map(|primary| primary.epoch).max()?;
    let mut candidates = primaries.iter().filter(|primary| primary.epoch == newest);
    match before {
        Some(before) if newest < before.epoch && !are_majority => Some(before.clone()),
        Some(before) if candidates.clone().any(|primary| *primary == before) => {
            Some(before.clone())
        }
        _ => candidates.next().map(|primary| (*primary).clone()),
    }
}

/// Whether most of the sentinels know the service. The URL may name only some of them, or all of them by one name.
fn are_majority(reports: &[&Report], seeds: usize) -> bool {
    let mut ids: Vec<_> =
        reports.iter().filter(|report| report.primary.is_some()).map(|report| &report.id).collect();
    ids.sort_unstable();
    ids.dedup();
    let all = reports.iter().map(|report| report.others.len() + 1).fold(seeds, usize::max);
    ids.len() > all / 2
}

impl Report {
    fn read(answers: &[Value], node: &Node) -> Result<Self, Fault> {
        let [primary, address, others, id] = answers else { return Err(strange(&answers.len())) };
        let primary = match primary {
            Value::ServerError(error) if fault::says(error, "No such master") => None,
            Value::ServerError(error) if fault::says(error, "unknown command") => {
                return Err(Fault::Config(format!(
                    "{node} is not a sentinel: the URL of a single server begins with redis:// or rediss://"
                )));
            }
            Value::ServerError(error) => return Err(fault::entry(error)),
            answer => Some(Primary::read(answer, address)?),
        };
        // If the user may not ask for the others, do without them.
        let others = match others {
            Value::Array(others) => others.iter().filter_map(place).collect(),
            _ => Vec::new(),
        };
        // If the user may not ask for the id, the sentinel's address has to do.
        let id = word(id).map_or_else(|| format!("{}:{}", node.host, node.port), str::to_owned);
        Ok(Self { id, primary, others })
    }
}

impl Primary {
    fn read(described: &Value, address: &Value) -> Result<Self, Fault> {
        let epoch = named(described, "config-epoch").and_then(|epoch| epoch.parse().ok());
        let node = match address {
            // A user without the right to ask for it goes without it.
            Value::ServerError(error) => match fault::entry(error) {
                Fault::Permission(_) => place(described),
                fault => return Err(fault),
            },
            Value::Array(address) => match address.as_slice() {
                [host, port] => node(word(host), word(port)),
                _ => None,
            },
            _ => None,
        };
        let node = node.ok_or_else(|| strange(address))?;
        Ok(Self { node, epoch: epoch.ok_or_else(|| strange(described))? })
    }
}

/// The address in a sentinel's description.
fn place(answer: &Value) -> Option<Node> {
    node(named(answer, "ip"), named(answer, "port"))
}

fn node(host: Option<&str>, port: Option<&str>) -> Option<Node> {
    let (host, port) = (host?, port?.parse().ok()?);
    if host.is_empty() || port == 0 { None } else { Some(Node::new(host, port)) }
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

    fn report(id: &str, others: usize) -> Report {
        let others = (0..others).map(|at| Node::new("s", at as u16 + 1)).collect();
        Report { id: id.to_owned(), primary: Some(primary(1, 3)), others }
    }

    #[test]
    fn the_greatest_epoch_is_believed() {
        let [old, new] = [primary(1, 3), primary(2, 4)];
        assert_eq!(chosen(&[&old, &new, &old], None, true), Some(new.clone()));
        assert_eq!(chosen(&[&old, &new], Some(&old), true), Some(new.clone()));
        assert_eq!(chosen(&[], Some(&old), true), None);
        let other = primary(9, 4);
        assert_eq!(
            chosen(&[&other, &new], Some(&new), true),
            Some(new),
            "of equals the one before"
        );
    }

    #[test]
    fn a_sentinel_that_was_cut_off_does_not_undo_a_failover() {
        let [old, new] = [primary(1, 3), primary(2, 4)];
        assert_eq!(chosen(&[&old], Some(&new), false), Some(new.clone()));
        assert_eq!(chosen(&[&old, &old], Some(&new), true), Some(old), "they were set up anew");
    }

    #[test]
    fn a_sentinel_counts_once_however_many_names_it_has() {
        let [a, b] = [report("a", 2), report("b", 2)];
        assert!(!are_majority(&[&a, &a], 3));
        assert!(are_majority(&[&a, &b, &a], 3));
        // The URL names all three sentinels by one name.
        assert!(!are_majority(&[&a], 1));
        let silent = Report { primary: None, ..report("c", 2) };
        assert!(!are_majority(&[&a, &silent], 3));
        assert!(are_majority(&[&report("a", 0)], 1), "it is the only one");
    }

    fn description(fields: &[(&str, &str)]) -> [Value; 2] {
        let map = Value::Map(fields.iter().map(|(key, value)| (text(key), text(value))).collect());
        let list = fields.iter().flat_map(|(key, value)| [text(key), text(value)]).collect();
        [map, Value::Array(list)]
    }

    #[test]
    fn an_answer_is_a_map_or_a_list() {
        let fields = [("name", "m"), ("ip", "10.0.0.1"), ("port", "7000"), ("config-epoch", "5")];
        let (us, address) = (Node::new("s", 1), Value::Array(vec![text("10.0.0.1"), text("7000")]));
        for answer in description(&fields) {
            let others = Value::Array(vec![answer.clone(), Value::Nil]);
            let report = Report::read(&[answer, address.clone(), others, text("me")], &us).unwrap();
            let node = Node::new("10.0.0.1", 7000);
            assert_eq!(report.primary, Some(Primary { node: node.clone(), epoch: 5 }));
            assert_eq!((report.id, report.others), ("me".to_owned(), vec![node]));
        }
        for nonsense in [Value::Nil, Value::Array(vec![text("ip"), text("h")]), Value::Okay] {
            assert!(
                Report::read(&[nonsense, address.clone(), Value::Nil, Value::Nil], &us).is_err()
            );
        }
    }

    /// The one that leads a failover has the new epoch before it gives the new address in its description.
    #[test]
    fn the_address_is_not_that_of_the_description() {
        let fields = [("ip", "10.0.0.1"), ("port", "7000"), ("config-epoch", "6")];
        let [_, description] = description(&fields);
        let address = Value::Array(vec![text("10.0.0.2"), text("7001")]);
        let report =
            Report::read(&[description, address, Value::Nil, Value::Nil], &Node::new("s", 1));
        let primary = Primary { node: Node::new("10.0.0.2", 7001), epoch: 6 };
        let report = report.unwrap();
        assert_eq!(report.primary, Some(primary));
        assert_eq!(report.id, "s:1");
    }
}
