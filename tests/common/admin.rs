//! The test's own view of a server: raw commands, past the library under test.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisResult};

/// A plain connection that waits for its replies as long as the test does.
pub async fn connect(url: &str) -> MultiplexedConnection {
    let config =
        AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let client = Client::open(url).expect("a valid url");
    client.get_multiplexed_async_connection_with_config(&config).await.expect("the server is there")
}

/// Looks at a server and pokes it. It dies with the server: ask for a new one after a restart.
#[derive(Debug, Clone)]
pub struct Admin {
    connection: MultiplexedConnection,
}

impl Admin {
    pub async fn connect(url: &str) -> Self {
        Self { connection: connect(url).await }
    }

    /// Any command: `admin.cmd::<i64>(&["PTTL", key])`; panics with the server's error.
    pub async fn cmd<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let reply = self.try_cmd(words).await;
        reply.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub async fn try_cmd<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut cmd = redis::Cmd::new();
        cmd.arg(words);
        cmd.query_async(&mut self.connection.clone()).await
    }

    /// Every key, sorted.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.cmd(&["KEYS", "*"]).await;
        keys.sort();
        keys
    }

    pub async fn hgetall(&self, key: &str) -> BTreeMap<String, String> {
        self.cmd(&["HGETALL", key]).await
    }

    /// Milliseconds left; -1 without a limit, -2 without a key.
    pub async fn pttl(&self, key: &str) -> i64 {
        self.cmd(&["PTTL", key]).await
    }

    /// The channels that somebody is subscribed to, sorted.
    pub async fn channels(&self) -> Vec<String> {
        let mut channels: Vec<String> = self.cmd(&["PUBSUB", "CHANNELS"]).await;
        channels.sort();
        channels
    }

    pub async fn subscribers(&self, channel: &str) -> usize {
        let (_, count): (String, usize) = self.cmd(&["PUBSUB", "NUMSUB", channel]).await;
        count
    }

    /// How often a command has run since the start or the last [`reset_stats`](Self::reset_stats), inside scripts too.
    pub async fn command_calls(&self, command: &str) -> u64 {
        let stat = self.info("commandstats", &format!("cmdstat_{command}")).await;
        let calls = stat.as_deref().and_then(|stat| stat.strip_prefix("calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
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
