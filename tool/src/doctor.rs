//! `parklock doctor`: is this server fit for locks?

mod users;

use std::time::{Duration, Instant};

use parklock::operator::{self, Namespaces, Part, Space};
use parklock::{Client, Layout};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value, pipe};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::args::{Doctor, Realm};
use crate::clock::on_the_wall;
use crate::failure::Failure;
use crate::inventory::scan;
use crate::servers::{Info, Missing, Server};
use crate::span::{in_ms, short};
use crate::text::{counted, printable};
use crate::{exit, output, servers};

/// How many round trips the doctor measures.
const ROUND_TRIPS: usize = 20;
/// A waiter near the front shows three signs of life a second.
const SLOW: Duration = Duration::from_millis(50);
const STUCK: Duration = Duration::from_secs(1);
/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many keys without a TTL the doctor names.
const NAMED: usize = 3;
/// How many channels the doctor tries until one lies in a slot of the server.
const CHANNELS: usize = 50_000;
const CHANNELS_AT_ONCE: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Ok,
    Warn,
    Bad,
}

/// What one check has found.
#[derive(Debug, Clone)]
struct Finding {
    verdict: Verdict,
    check: &'static str,
    found: String,
    /// What to do. Empty if the check is ok.
    remedy: &'static str,
}

impl Finding {
    /// What was found may quote a text of the server, and that may quote what it was sent.
    fn new(
        verdict: Verdict,
        check: &'static str,
        found: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self { verdict, check, found: operator::shown(&found.into()), remedy }
    }

    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(Verdict::Ok, check, found, "")
    }

    fn warn(check: &'static str, found: impl Into<String>, remedy: &'static str) -> Self {
        Self::new(Verdict::Warn, check, found, remedy)
    }

    fn bad(check: &'static str, found: impl Into<String>, remedy: &'static str) -> Self {
        Self::new(Verdict::Bad, check, found, remedy)
    }

    /// The user lacks the permission to ask.
    fn unknown(check: &'static str) -> Self {
        Self::warn(
            check,
            "this user may not ask",
            "run the doctor as a user with +info and +config|get",
        )
    }

    fn text(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Bad => "BAD ",
        };
        let arrow = if self.remedy.is_empty() { "" } else { "\n       -> " };
        format!("{verdict}  {}: {}{arrow}{}\n", self.check, self.found, self.remedy)
    }

    fn json(&self, server: &str) -> String {
        let verdict = format!("{:?}", self.verdict).to_lowercase();
        let Self { check, found, remedy, .. } = self;
        let line = json!({
            "server": server, "verdict": verdict, "check": check, "found": found, "remedy": remedy,
        });
        format!("{line}\n")
    }
}

pub(crate) async fn doctor(asked: &Doctor) -> Result<u8, Failure> {
    if asked.plain_channels && asked.server.layout != Layout::Redisson {
        return Err(Failure::config("--plain-channels is only for --layout redisson"));
    }
    let reached = servers::reach(&asked.server.url()).await?;
    let mut worst = Verdict::Ok;
    for Missing { address, failure, .. } in &reached.missing {
        worst = worst.max(report(asked, address, &[no_answer(failure)]));
    }
    for server in &reached.servers {
        let findings = examine(server, asked).await;
        worst = worst.max(report(asked, &server.address, &findings));
    }
    worst = worst.max(report(asked, "all", &[a_lock(asked).await]));
    Ok(if worst == Verdict::Bad { exit::BUSY } else { exit::OK })
}

/// Prints the findings about a server. Returns the worst verdict.
fn report(asked: &Doctor, server: &str, findings: &[Finding]) -> Verdict {
    if !asked.json {
        output::put(&format!("{server}\n"));
    }
    for finding in findings {
        output::put(&if asked.json { finding.json(server) } else { finding.text() });
    }
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
}

/// The only thing to say about a server that does not answer.
fn no_answer(failure: &Failure) -> Finding {
    let right = "let the user log in there as on the other servers";
    Finding::bad("answers", failure.to_string(), remedy(failure, right))
}

/// What to do about a question that has failed. If the server refuses, the user lacks this right.
fn remedy(failure: &Failure, right: &'static str) -> &'static str {
    match failure {
        failure if failure.is_refusal() => right,
        Failure { is_answer: true, .. } => "see what the server says, and why",
        _ => "find out why the server does not answer",
    }
}

async fn examine(server: &Server, asked: &Doctor) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(failure) = check_all(server, asked, &mut findings).await {
        findings.push(no_answer(&failure));
    }
    findings
}

/// # Errors
/// If the server does not answer one of the questions for which a user may lack the permission: the next ones would have
/// no answer either, and the doctor must not call that a missing permission.
async fn check_all(
    server: &Server,
    asked: &Doctor,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    // Any answer will do, even a refusal. Each further question to a server that hangs would wait as long.
    server.ask(pipe().cmd("TIME")).await?;
    findings.push(version(&server.info("server").await?));
    let replication = server.info("replication").await?;
    findings.push(role(&replication));
    let memory = server.info("memory").await?;
    findings.extend([eviction(&memory), room(&memory)]);
    let about = server.info("clients").await?;
    let limit = match about.number("maxclients") {
        Some(limit) => Some(limit),
        // Servers before 7.0 have it in CONFIG alone.
        None => server.setting("maxclients").await?.and_then(|text| text.parse().ok()),
    };
    findings.push(clients(about.number("connected_clients"), limit));
    findings.push(evicted(&server.info("stats").await?));
    findings.push(persistence(server).await?);
    findings.extend(replicas(server, &replication).await?);
    findings.push(idle_limit(server).await?);
    findings.push(users::new_users(server).await?);
    findings.push(scripts(server).await);
    findings.push(round_trip(server).await);
    let realm = asked.server.realm()?;
    findings.extend(users::publishers(server, &realm).await);
    findings.push(message(server, asked).await);
    findings.push(clock(server).await);
    findings.push(immortal(server, &realm.namespaces).await);
    if matches!(server.space, Space::Cluster(_)) {
        findings.push(cluster(server).await);
    }
    Ok(())
}

fn version(about: &Info) -> Finding {
    let check = "version";
    let (name, version) = match (about.get("valkey_version"), about.get("redis_version")) {
        (Some(valkey), _) => ("Valkey", valkey),
        (None, Some(redis)) => ("Redis", redis),
        (None, None) => return Finding::unknown(check),
    };
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let found = format!("{name} {version}");
    if number >= (6, 2) {
        Finding::ok(check, found)
    } else {
        Finding::bad(check, found, "parklock needs Redis 6.2 or later, or Valkey")
    }
}

fn role(replication: &Info) -> Finding {
    match replication.get("role") {
        Some("master") => Finding::ok("role", "primary"),
        None => Finding::unknown("role"),
        Some(_) => Finding::bad(
            "role",
            "a replica",
            "connect to its primary, or name the sentinels or the cluster in the URL",
        ),
    }
}

fn eviction(memory: &Info) -> Finding {
    let check = "maxmemory-policy";
    match (memory.get("maxmemory_policy"), memory.number("maxmemory")) {
        (None, _) => Finding::unknown(check),
        (Some("noeviction"), _) => Finding::ok(check, "noeviction"),
        (Some(policy), Some(0)) => Finding::warn(
            check,
            format!("{policy}, without maxmemory: nothing is evicted now"),
            "set maxmemory-policy noeviction before anybody sets maxmemory",
        ),
        (Some(policy), _) => Finding::bad(
            check,
            format!("{policy}: locks that are held can be evicted"),
            "set maxmemory-policy noeviction, or keep locks on a server of their own",
        ),
    }
}

fn room(memory: &Info) -> Finding {
    let check = "memory";
    match (memory.number("used_memory"), memory.number("maxmemory")) {
        (Some(used), Some(0)) => Finding::ok(check, format!("{} MiB used, no limit", used >> 20)),
        (Some(used), Some(limit)) => {
            let percent = used * 100 / limit;
            let found = format!("{percent} % of {} MiB used", limit >> 20);
            if percent < 90 {
                Finding::ok(check, found)
            } else {
                Finding::warn(check, found, "a full server refuses new locks: raise maxmemory")
            }
        }
        _ => Finding::unknown(check),
    }
}

fn clients(connected: Option<u64>, limit: Option<u64>) -> Finding {
    let check = "clients";
    match (connected, limit) {
        (Some(connected), Some(limit @ 1..)) => {
            let found = format!("{connected} of {}", counted(limit, "connection"));
            if connected * 100 / limit < 90 {
                Finding::ok(check, found)
            } else {
                let remedy = "a full server closes new connections at once: raise maxclients";
                Finding::warn(check, found, remedy)
            }
        }
        (Some(connected), _) => Finding::ok(check, counted(connected, "connection")),
        _ => Finding::unknown(check),
    }
}

fn evicted(stats: &Info) -> Finding {
    match stats.number("evicted_keys") {
        None => Finding::unknown("evicted keys"),
        Some(0) => Finding::ok("evicted keys", "none since the server was started"),
        Some(keys) => Finding::warn(
            "evicted keys",
            format!("{keys} since the server was started"),
            "locks may have been among them: set maxmemory-policy noeviction",
        ),
    }
}

async fn persistence(server: &Server) -> Result<Finding, Failure> {
    let info = server.info("persistence").await?;
    let (fsync, save) = (server.setting("appendfsync").await?, server.setting("save").await?);
    Ok(kept(&info, fsync.as_deref(), save.as_deref()))
}

/// What a restart keeps. The settings are `None` if the user may not ask for them.
fn kept(info: &Info, fsync: Option<&str>, save: Option<&str>) -> Finding {
    let check = "persistence";
    match (info.get("aof_enabled"), fsync, save) {
        (None, ..) => Finding::unknown(check),
        (Some("1"), Some("no"), _) => Finding::warn(
            check,
            "append-only file, flushed whenever the operating system chooses",
            "set appendfsync everysec: a crash of the machine then loses one second of locks",
        ),
        (Some("1"), fsync, _) => Finding::ok(
            check,
            format!("append-only file, flushed {}", fsync.unwrap_or("as configured")),
        ),
        (Some(_), _, Some(save)) if !save.is_empty() => Finding::warn(
            check,
            "snapshots alone: a restart forgets the locks since the last one",
            "set appendonly yes if locks should outlive a restart",
        ),
        (Some(_), _, None) => Finding::warn(
            check,
            "no append-only file, and this user may not ask for snapshots: a restart forgets the locks since the last one, or all",
            "set appendonly yes if locks should outlive a restart",
        ),
        (Some(_), ..) => Finding::warn(
            check,
            "none: a restart forgets all locks",
            "set appendonly yes if locks should outlive a restart",
        ),
    }
}

async fn replicas(server: &Server, replication: &Info) -> Result<Vec<Finding>, Failure> {
    let none = "none: if this server fails, nobody gets a lock";
    Ok(match replication.number("connected_slaves") {
        None => vec![Finding::unknown("replicas")],
        Some(0) => vec![Finding::ok("replicas", none)],
        Some(connected) => vec![lag(replication, connected), least_replicas(server).await?],
    })
}

fn lag(replication: &Info, connected: u64) -> Finding {
    let lag = |replica: &&str| {
        replica.split(',').find_map(|part| part.strip_prefix("lag="))?.parse::<u64>().ok()
    };
    let worst = replication.numbered("slave").iter().filter_map(lag).max().unwrap_or(0);
    let found = format!("{connected}, the slowest {worst} s behind");
    if worst <= 1 {
        Finding::ok("replicas", found)
    } else {
        Finding::warn(
            "replicas",
            found,
            "a failover now would forget the locks of the last seconds: find out why the replica is slow",
        )
    }
}

async fn least_replicas(server: &Server) -> Result<Finding, Failure> {
    let check = "min-replicas-to-write";
    Ok(match server.setting(check).await?.as_deref() {
        None => Finding::unknown(check),
        Some("0") => Finding::warn(
            check,
            "0: a primary that was cut off continues to grant locks until it learns that it was replaced",
            "set min-replicas-to-write 1 and min-replicas-max-lag 10, or use Config::replicas",
        ),
        Some(least) => Finding::ok(check, least),
    })
}

async fn idle_limit(server: &Server) -> Result<Finding, Failure> {
    Ok(match server.setting("timeout").await?.and_then(|text| text.parse::<u64>().ok()) {
        None => Finding::unknown("timeout"),
        Some(0) => Finding::ok("timeout", "0: idle connections stay open"),
        Some(seconds @ 1..10) => Finding::warn(
            "timeout",
            format!("{seconds} s: the server closes connections that are idle for that long"),
            "set timeout 0, or at least 10: clients send a heartbeat each second",
        ),
        Some(seconds) => {
            Finding::ok("timeout", format!("{seconds} s, more than between two heartbeats"))
        }
    })
}

async fn scripts(server: &Server) -> Finding {
    let check = "scripts";
    let (mut asked, text) = (pipe(), "return 1");
    asked.cmd("EVAL").arg(text).arg(0).cmd("SCRIPT").arg("LOAD").arg(text);
    let failure = match server.ask(&asked).await {
        Err(failure) => Some(failure),
        Ok(answers) => answers.iter().find_map(refusal),
    };
    match failure {
        None => Finding::ok(check, "may be loaded and called"),
        Some(failure) => {
            let right = "the user needs +eval +evalsha +script|load: see docs/operations.md";
            Finding::bad(check, failure.to_string(), remedy(&failure, right))
        }
    }
}

/// The failure that this answer reports, if it is one.
fn refusal(answer: &Value) -> Option<Failure> {
    match answer {
        Value::ServerError(error) => Some(redis::RedisError::from(error.clone()).into()),
        _ => None,
    }
}

async fn round_trip(server: &Server) -> Finding {
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let sent = Instant::now();
        if let Err(failure) = server.query::<Value>(&["TIME"]).await {
            return Finding::bad(
                "round trip",
                failure.to_string(),
                remedy(&failure, "the user needs +time"),
            );
        }
        times.push(sent.elapsed());
    }
    times.sort();
    let (middle, worst) = (times[ROUND_TRIPS / 2], times[ROUND_TRIPS - 1]);
    let found = format!("{}, the slowest of {ROUND_TRIPS} {}", in_ms(middle), in_ms(worst));
    if middle < SLOW && worst < STUCK {
        Finding::ok("round trip", found)
    } else {
        Finding::warn(
            "round trip",
            found,
            "slow commands of other programs delay locks (SLOWLOG), or the network is slow: set waiter_ttl to more than ten round trips",
        )
    }
}

/// Publishes a message, and waits until it arrives.
async fn message(server: &Server, asked: &Doctor) -> Finding {
    let check = "messages";
    match carried(server, asked).await {
        Ok(time) => Finding::ok(check, format!("heard after {}", in_ms(time))),
        Err(failure) => Finding::bad(
            check,
            failure.to_string(),
            if failure.is_refusal() {
                "the user needs the commands and the channels of docs/operations.md; without messages, waiters only ask from time to time"
            } else {
                "find out why no message arrives; without messages, waiters only ask from time to time"
            },
        ),
    }
}

async fn carried(server: &Server, asked: &Doctor) -> Result<Duration, Failure> {
    // On a server with sharded channels this publishes on them. A program with plain channels does both.
    let channel = channel(server, &asked.server.realm()?).await?;
    let (subscribe, publish) = if server.is_sharded && !asked.plain_channels {
        ("SSUBSCRIBE", "SPUBLISH")
    } else {
        ("SUBSCRIBE", "PUBLISH")
    };
    let (tell, mut heard) = mpsc::unbounded_channel();
    let hear = move |push: PushInfo| {
        if matches!(push.kind, PushKind::Message | PushKind::SMessage) {
            let _ = tell.send(());
        }
        Ok::<(), std::convert::Infallible>(())
    };
    let mut listener = server.listen(AsyncConnectionConfig::new().set_push_sender(hear)).await?;
    redis::cmd(subscribe).arg(&channel).query_async::<Value>(&mut listener).await?;
    let sent = Instant::now();
    server.query::<u64>(&[publish, &channel, "doctor"]).await?;
    match timeout(PATIENCE, heard.recv()).await {
        Ok(Some(())) => Ok(sent.elapsed()),
        _ => Err(Failure::unavailable(format!(
            "the doctor published a message, and did not receive it within {}",
            short(PATIENCE)
        ))),
    }
}

/// A channel that this server carries. In a cluster of version 7 or later, that depends on the slot of its name.
async fn channel(server: &Server, realm: &Realm) -> Result<String, Failure> {
    if !server.is_sharded {
        return any_channel(server, realm);
    }
    for _ in 0..CHANNELS / CHANNELS_AT_ONCE {
        let channels = (0..CHANNELS_AT_ONCE).map(|_| any_channel(server, realm));
        let channels = channels.collect::<Result<Vec<_>, _>>()?;
        let mut asked = pipe();
        channels.iter().for_each(|channel| _ = asked.cmd("SPUBLISH").arg(channel).arg("doctor"));
        let answers = server.ask(&asked).await?;
        let mut here = channels.into_iter().zip(answers).filter(|(_, answer)| !is_moved(answer));
        if let Some((channel, answer)) = here.next() {
            return refusal(&answer).map_or(Ok(channel), Err);
        }
    }
    Err(Failure::unavailable(format!("none of {CHANNELS} channels belongs to this server")))
}

/// The channel of a name that nobody uses.
fn any_channel(server: &Server, realm: &Realm) -> Result<String, Failure> {
    let name = format!("parklock-doctor-{:x}", fastrand::u64(..));
    let name = (realm.namespaces.name(), name.as_str());
    Ok(operator::place(realm.layout, "lock", name, server.space)?.channel)
}

fn is_moved(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "MOVED")
}

async fn clock(server: &Server) -> Finding {
    let check = "clock";
    let before = on_the_wall();
    let there = match server.clock().await {
        Ok(there) => there,
        Err(failure) => {
            let remedy = remedy(&failure, "the user needs +time");
            return Finding::bad(check, failure.to_string(), remedy);
        }
    };
    let after = on_the_wall();
    let here = before + after.saturating_sub(before) / 2;
    let apart = here.abs_diff(there);
    let found = format!("{} away from this machine's clock", short(apart));
    if apart < Duration::from_secs(1) {
        Finding::ok(check, found)
    } else {
        Finding::warn(
            check,
            found,
            "leases do not depend on this difference, but a clock that is set forward ends them early: synchronize both (NTP)",
        )
    }
}

/// Keys that no lease will ever end.
async fn immortal(server: &Server, namespaces: &Namespaces) -> Finding {
    let check = "keys without TTL";
    let mut keys = Vec::new();
    let pattern = namespaces.pattern("*");
    let scanned = scan(server, &pattern, None, |key| {
        let (namespace, rest) = operator::within(key);
        let is_its = matches!(operator::part_of(rest), Some((part, _)) if part != Part::Permits);
        if namespaces.has(namespace) && is_its {
            keys.push(key.to_owned());
        }
    });
    if let Err(failure) = scanned.await {
        let remedy = remedy(&failure, "run the doctor as a user with +scan");
        return Finding::warn(check, failure.to_string(), remedy);
    }
    match forever(server, &keys).await {
        (found, None) if found.is_empty() => Finding::ok(check, format!("none of {}", keys.len())),
        (found, Some(failure)) if found.is_empty() => {
            let remedy = remedy(&failure, "run the doctor as a user with +pttl and ~lock*");
            Finding::warn(check, failure.to_string(), remedy)
        }
        (mut found, _) => {
            let count = found.len();
            found.sort();
            found.truncate(NAMED);
            let named: Vec<String> = found.iter().map(|key| printable(key)).collect();
            Finding::bad(
                check,
                format!("{count}, such as {}", named.join(", ")),
                "another program wrote them: they block these names until somebody deletes them",
            )
        }
    }
}

/// The keys that have no TTL, and the reason if the server did not report the TTLs of all keys.
async fn forever<'a>(server: &Server, keys: &'a [String]) -> (Vec<&'a str>, Option<Failure>) {
    let (mut found, mut unknown) = (Vec::new(), None);
    for batch in keys.chunks(500) {
        let mut asked = pipe();
        batch.iter().for_each(|key| _ = asked.cmd("PTTL").arg(key));
        let answers = match server.ask(&asked).await {
            Ok(answers) => answers,
            Err(failure) => return (found, Some(failure)),
        };
        unknown = unknown.or_else(|| answers.iter().find_map(refusal));
        let forever = batch.iter().zip(answers).filter(|(_, ttl)| *ttl == Value::Int(-1));
        found.extend(forever.map(|(key, _)| key.as_str()));
    }
    (found, unknown)
}

async fn cluster(server: &Server) -> Finding {
    let check = "cluster";
    match server.query::<String>(&["CLUSTER", "INFO"]).await {
        Err(failure) => {
            let remedy = remedy(&failure, "run the doctor as a user with +cluster|info");
            Finding::warn(check, failure.to_string(), remedy)
        }
        Ok(text) if text.contains("cluster_state:ok") => Finding::ok(check, "all slots are served"),
        Ok(_) => Finding::bad(check, "not all slots are served", "see `redis-cli --cluster check`"),
    }
}

/// Takes a lock and gives it back, as a program would.
async fn a_lock(asked: &Doctor) -> Finding {
    let check = "a lock, taken and given back";
    let name = format!("parklock-doctor-{:x}", fastrand::u64(..));
    let began = Instant::now();
    let done = async {
        let config = asked.server.config().plain_channels(asked.plain_channels);
        let client = Client::connect_with(asked.server.url(), config).await?;
        let guard = client.lock(name).try_lock().await?;
        if let Some(guard) = guard {
            guard.unlock().await?;
        }
        client.close().await;
        Ok::<(), parklock::Error>(())
    };
    match done.await {
        Ok(()) => {
            Finding::ok(check, format!("in {}, including the connection", short(began.elapsed())))
        }
        Err(error) => Finding::bad(
            check,
            error.to_string(),
            "fix what is bad above; docs/operations.md lists the rights",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> Info {
        Info::of(text)
    }

    #[test]
    fn a_server_that_answers_with_an_error_is_not_called_silent() {
        let remedy = |answer: &[u8]| {
            let answer = redis::parse_redis_value(answer).expect("an answer");
            remedy(&refusal(&answer).expect("an error"), "a right")
        };
        assert_eq!(remedy(b"-NOPERM no\r\n"), "a right");
        for answer in ["-BUSY a script\r\n", "-LOADING the data\r\n", "-CLUSTERDOWN no\r\n"] {
            assert_eq!(remedy(answer.as_bytes()), "see what the server says, and why", "{answer}");
        }
    }

    #[test]
    fn old_versions_are_bad() {
        assert_eq!(version(&info("redis_version:6.0.9")).verdict, Verdict::Bad);
        assert_eq!(version(&info("redis_version:7.0.15")).verdict, Verdict::Ok);
        let valkey = version(&info("redis_version:7.2.4\r\nvalkey_version:9.1.0"));
        assert_eq!((valkey.verdict, valkey.found.as_str()), (Verdict::Ok, "Valkey 9.1.0"));
    }

    #[test]
    fn a_server_that_may_evict_locks_is_bad() {
        let evicting = "maxmemory:1000\r\nmaxmemory_policy:allkeys-lru";
        assert_eq!(eviction(&info(evicting)).verdict, Verdict::Bad);
        assert_eq!(
            eviction(&info("maxmemory:0\r\nmaxmemory_policy:allkeys-lru")).verdict,
            Verdict::Warn
        );
        assert_eq!(
            eviction(&info("maxmemory:9\r\nmaxmemory_policy:noeviction")).verdict,
            Verdict::Ok
        );
        assert_eq!(room(&info("maxmemory:100\r\nused_memory:95")).verdict, Verdict::Warn);
    }

    #[test]
    fn a_server_that_is_nearly_full_of_clients_is_a_warning() {
        assert_eq!(clients(Some(89), Some(100)).verdict, Verdict::Ok);
        assert_eq!(clients(Some(90), Some(100)).verdict, Verdict::Warn);
        assert_eq!(clients(Some(1), None).found, "1 connection");
    }

    #[test]
    fn a_user_who_may_not_ask_for_settings_is_not_told_that_there_are_no_snapshots() {
        let off = info("aof_enabled:0");
        let found = |save| kept(&off, None, save).found;
        assert!(found(None).starts_with("no append-only file, and this user may not ask"));
        assert!(found(Some("")).starts_with("none:"));
        assert!(found(Some("3600 1")).starts_with("snapshots alone"));
        assert_eq!(kept(&info("aof_enabled:1"), None, None).verdict, Verdict::Ok);
    }

    /// A server may repeat what it was sent wherever it likes.
    #[test]
    fn no_finding_shows_a_password() {
        let _sent = operator::Password::new("sesame42");
        let finding = version(&info("redis_version:7.0.sesame42"));
        assert!(!finding.text().contains("sesame42"), "{}", finding.text());
        assert!(!finding.json("here").contains("sesame42"));
    }

    #[test]
    fn the_slowest_replica_counts() {
        let two = "slave0:ip=a,port=1,state=online,offset=9,lag=0\r\nslave1:ip=b,lag=7\r\nslave_read_only:1";
        let finding = lag(&info(two), 2);
        assert_eq!(
            (finding.verdict, finding.found.as_str()),
            (Verdict::Warn, "2, the slowest 7 s behind")
        );
    }

    #[test]
    fn what_is_not_well_comes_with_a_remedy() {
        for finding in
            [role(&info("role:slave")), evicted(&info("evicted_keys:3")), Finding::unknown("x")]
        {
            assert!(finding.verdict > Verdict::Ok && !finding.remedy.is_empty());
            assert!(finding.text().contains("\n       -> "));
        }
    }
}
