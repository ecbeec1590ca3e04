//! The test's own view of a server: raw commands, past the library under test.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisResult, Value};
use tokio::time::sleep;

use super::cluster::{home, slot_of};

/// A plain connection that waits for its replies as long as the test does.
pub async fn connect(url: &str) -> MultiplexedConnection {
    let config =
        AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let client = Client::open(url).expect("a valid url");
    loop {
        match client.get_multiplexed_async_connection_with_config(&config).await {
            // A sentinel that demotes a server breaks all connections to it, also one that has just begun.
            Err(error) if error.is_connection_dropped() && !error.is_connection_refusal() => {
                sleep(Duration::from_millis(10)).await;
            }
            connected => return connected.expect("the server is there"),
        }
    }
}

/// Looks at a server and pokes it. It dies with the server: ask for a new one after a restart. Of a cluster whose slots
/// stay where they are, it asks the primary that has the key, or all of them where there is no key.
#[derive(Debug, Clone)]
pub struct Admin {
    /// In the order of their slots.
    primaries: Vec<MultiplexedConnection>,
    /// Whether channels belong to slots.
    is_sharded: bool,
}

impl Admin {
    pub async fn connect(url: &str) -> Self {
        let hosts = |list: &str| -> Vec<String> {
            list.split(',').map(|host| format!("redis://{host}")).collect()
        };
        if let Some(nodes) = url.strip_prefix("redis-cluster://") {
            return Self::of_cluster(&hosts(nodes)).await;
        }
        if let Some((sentinels, service)) =
            url.strip_prefix("redis-sentinel://").and_then(|rest| rest.split_once('/'))
        {
            let mut asked = connect(&hosts(sentinels)[0]).await;
            let ask = words(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service]);
            let (host, port): (String, u16) = ask.query_async(&mut asked).await.expect("a primary");
            return Self::of_one(&format!("redis://{host}:{port}")).await;
        }
        Self::of_one(url).await
    }

    async fn of_one(url: &str) -> Self {
        Self { primaries: vec![connect(url).await], is_sharded: false }
    }

    /// Of a cluster whose primaries have equal parts of the slots, in the order of these URLs.
    async fn of_cluster(urls: &[String]) -> Self {
        let mut primaries = Vec::new();
        for url in urls {
            let mut node = connect(url).await;
            let role: Vec<Value> = words(&["ROLE"]).query_async(&mut node).await.expect("its role");
            if role.first() == Some(&Value::BulkString(b"master".to_vec())) {
                primaries.push(node);
            }
        }
        let cmd = words(&["PUBSUB", "SHARDCHANNELS"]);
        let is_sharded = cmd.query_async::<Value>(&mut primaries[0].clone()).await.is_ok();
        Self { primaries, is_sharded }
    }

    /// Any command: `admin.cmd::<i64>(&["PTTL", key])`; panics with the server's error.
    pub async fn cmd<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let reply = self.try_cmd(words).await;
        reply.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub async fn try_cmd<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        if let [only] = &self.primaries[..] {
            return words(command).query_async(&mut only.clone()).await;
        }
        let (command, key) = self.in_cluster(command);
        let cmd = words(&command);
        let answer = match key {
            Some(key) => {
                let at = home(slot_of(&key), self.primaries.len());
                cmd.query_async(&mut self.primaries[at].clone()).await?
            }
            None => {
                let ask = async |primary: &MultiplexedConnection| {
                    cmd.query_async::<Value>(&mut primary.clone()).await
                };
                merged(try_join_all(self.primaries.iter().map(ask)).await?)
            }
        };
        Ok(T::from_redis_value(answer)?)
    }

    /// The command as a cluster takes it, and its key if it has one.
    fn in_cluster(&self, command: &[&str]) -> (Vec<String>, Option<String>) {
        let mut command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        let at = |at: usize| command.get(at).cloned();
        let key = match command[0].as_str() {
            "KEYS" | "INFO" | "CLIENT" | "CONFIG" | "SCRIPT" | "FLUSHALL" => None,
            // Their clocks are one: that of this machine.
            "TIME" | "ECHO" => Some(String::new()),
            "EVAL" | "EVALSHA" if at(2).is_some_and(|keys| keys == "0") => None,
            "EVAL" | "EVALSHA" => at(3),
            "MEMORY" => at(2),
            "PUBSUB" if self.is_sharded => {
                command[1].insert_str(0, "SHARD");
                command.get(2).cloned()
            }
            "PUBSUB" => None,
            "PUBLISH" if self.is_sharded => {
                command[0] = "SPUBLISH".to_owned();
                command.get(1).cloned()
            }
            _ => at(1),
        };
        (command, key)
    }

    /// Every key, sorted. The counters of tokens, of which a cluster has one for each slot, have the name of the only one.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.cmd(&["KEYS", "*"]).await;
        if self.primaries.len() > 1 {
            let counters = keys.iter_mut().filter(|key| key.starts_with("lock:grants:{"));
            counters.for_each(|key| *key = "lock:grants".to_owned());
        }
        keys.sort();
        keys.dedup();
        keys
    }

    pub async fn hgetall(&self, key: &str) -> BTreeMap<String, String> {
        self.cmd(&["HGETALL", key]).await
    }

    /// Milliseconds left; -1 without a limit, -2 without a key.
    pub async fn pttl(&self, key: &str) -> i64 {
        self.cmd(&["PTTL", key]).await
    }

    /// The channels that somebody is subscribed to, sorted, but for that of the sentinels.
    pub async fn channels(&self) -> Vec<String> {
        let mut channels: Vec<String> = self.cmd(&["PUBSUB", "CHANNELS"]).await;
        channels.retain(|channel| channel != "__sentinel__:hello");
        channels.sort();
        channels
    }

    /// How many listen on a channel. Where channels belong to slots, some may listen on that of the whole cluster instead.
    pub async fn subscribers(&self, channel: &str) -> usize {
        let listening = async |admin: &Self| {
            let counts: Vec<(String, usize)> = admin.cmd(&["PUBSUB", "NUMSUB", channel]).await;
            counts.iter().map(|(_, count)| count).sum::<usize>()
        };
        let of_slots = if self.is_sharded { listening(self).await } else { 0 };
        of_slots + listening(&Self { is_sharded: false, ..self.clone() }).await
    }

    /// How often a command has run since the start or the last [`reset_stats`](Self::reset_stats), inside scripts too.
    /// Where channels belong to slots, `publish` and `subscribe` are what clients do instead.
    pub async fn command_calls(&self, command: &str) -> u64 {
        let of_channels = ["publish", "subscribe", "unsubscribe"].contains(&command);
        let sharded = if of_channels && self.is_sharded { "s" } else { "" };
        let field = format!("cmdstat_{sharded}{command}:calls=");
        let text: String = self.cmd(&["INFO", "commandstats"]).await;
        let counts = text.lines().filter_map(|line| line.strip_prefix(&field)?.split(',').next());
        counts.map(|count| count.parse::<u64>().expect("a number")).sum()
    }

    pub async fn reset_stats(&self) {
        self.cmd(&["CONFIG", "RESETSTAT"]).await
    }

    /// One field of one section of INFO.
    pub async fn info(&self, section: &str, field: &str) -> Option<String> {
        let text: String = self.cmd(&["INFO", section]).await;
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned())
    }

    pub async fn config_set(&self, name: &str, value: &str) {
        self.cmd(&["CONFIG", "SET", name, value]).await
    }

    pub async fn script_flush(&self) {
        self.cmd(&["SCRIPT", "FLUSH"]).await
    }

    /// Kills the connections of a type (`normal`, `pubsub`, `replica`, `master`), except this one; how many.
    pub async fn client_kill(&self, kind: &str) -> usize {
        self.cmd(&["CLIENT", "KILL", "TYPE", kind]).await
    }

    /// One line of CLIENT LIST for each connection, this one among them.
    pub async fn clients(&self) -> Vec<String> {
        let list: String = self.cmd(&["CLIENT", "LIST"]).await;
        list.lines().map(str::to_owned).collect()
    }

    pub async fn publish(&self, channel: &str, message: &str) -> usize {
        self.cmd(&["PUBLISH", channel, message]).await
    }
}

fn words(words: &[impl redis::ToRedisArgs]) -> redis::Cmd {
    let mut cmd = redis::Cmd::new();
    words.iter().for_each(|word| _ = cmd.arg(word));
    cmd
}

/// What several servers answered, as one of them would: lists and texts one after the other, numbers added up.
fn merged(answers: Vec<Value>) -> Value {
    let join = |all: Value, next: Value| match (all, next) {
        (Value::Array(mut all), Value::Array(next)) => {
            all.extend(next);
            Value::Array(all)
        }
        (Value::BulkString(mut all), Value::BulkString(next)) => {
            all.extend(next);
            Value::BulkString(all)
        }
        (Value::Int(all), Value::Int(next)) => Value::Int(all + next),
        (_, next) => next,
    };
    answers.into_iter().reduce(join).unwrap_or(Value::Nil)
}
