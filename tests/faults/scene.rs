//! What a fault needs: a server, a proxy before it, clients on both sides of the proxy, and a look at the server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, fs};

use futures_util::future::join_all;
use parklock::{Client, Config, Error, Guard, Lock};
use tokio::task::JoinHandle;

use crate::common::fixture::comes_in;
use crate::common::server::Setup;
use crate::common::{Admin, Fault, Proxy, Server, eventually, timeout};

/// As long as a background effect may take on a machine that has other things to do.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// As long as we look at what should not happen. If it is too short, a test cannot fail, but neither can it flake.
pub(crate) const A_WHILE: Duration = Duration::from_millis(100);

/// Far beyond [`SOON`]: nothing that a test sees comes from the end of it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

const SCRIPTS: [(&str, &str); 4] = [
    ("release", include_str!("../../lua/line/release.lua")),
    ("renew", include_str!("../../lua/lock/renew.lua")),
    ("status", include_str!("../../lua/lock/status.lua")),
    ("force_unlock", include_str!("../../lua/line/force_unlock.lua")),
];

/// No lease ends and no park ends by itself while a test runs.
pub(crate) fn patient() -> Config {
    Config::default().watchdog_timeout(LONG).max_park(LONG)
}

/// The same, and a missing answer is noticed soon.
pub(crate) fn attentive() -> Config {
    patient().response_timeout(Duration::from_millis(500))
}

/// A renewal each second, a missing answer noticed in half of one, a lease of three. Callers ask again for longer than that.
pub(crate) fn brisk() -> Config {
    let config = Config::default().watchdog_timeout(Duration::from_secs(3)).ride_out(SOON);
    config.response_timeout(Duration::from_millis(500))
}

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    pub(crate) admin: Admin,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::on(Server::start().await).await
    }

    pub(crate) async fn on(server: Server) -> Self {
        let proxy = Proxy::before(&server).await;
        proxy.name_acquires();
        proxy.name_counts();
        for (name, text) in SCRIPTS {
            proxy.name_script(name, text);
        }
        let admin = server.admin().await;
        Self { server, proxy, admin }
    }

    /// A client behind the proxy: the faults are for this client.
    pub(crate) async fn client(&self, config: Config) -> Client {
        client(&self.proxy.url(), config).await
    }

    /// A client that the proxy does not see.
    pub(crate) async fn other(&self) -> Client {
        client(&self.server.url(), patient()).await
    }

    /// A waiter that listens and stands in line: a release will be told to it.
    pub(crate) async fn parked(
        &self,
        client: &Client,
        name: &str,
    ) -> JoinHandle<Result<Guard, Error>> {
        let waiter = waiting(client.lock(name));
        let line = format!("lock_queue:{{{name}}}");
        let listens = async || {
            let last: Vec<String> = self.admin.cmd(&["ZRANGE", &line, "-1", "-1"]).await;
            let Some((client, _)) = last.first().and_then(|field| field.split_once(':')) else {
                return false;
            };
            self.admin.subscribers(&format!("{}:{client}", channel(name))).await > 0
        };
        eventually(SOON, "the waiter stands in line and listens", listens).await;
        waiter
    }

    /// SIGSTOP, and the server has stopped when this returns.
    pub(crate) async fn stop(&self) {
        self.server.pause();
        let stat = Path::new("/proc").join(self.server.pid().to_string()).join("stat");
        let stopped = async || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
        eventually(SOON, "the server stops", stopped).await;
    }

    /// Every key of the locks but the token counter is gone, long before a lease is over.
    pub(crate) async fn is_clean(&self) {
        let clean = async || self.admin.keys().await.iter().all(|key| key == COUNTER);
        eventually(SOON, "nothing is left", clean).await;
    }
}

pub(crate) async fn client(url: &str, config: Config) -> Client {
    comes_in(url, config).await
}

/// The one key that stays.
pub(crate) const COUNTER: &str = "lock:grants";

pub(crate) fn key(name: &str) -> String {
    format!("lock:{{{name}}}")
}

pub(crate) fn channel(name: &str) -> String {
    format!("lock_channel:{{{name}}}")
}

/// The lock. On a busy machine, the grant of a short lease may arrive too late, again and again.
pub(crate) async fn in_time(lock: &Lock) -> Guard {
    let granted = async {
        loop {
            match lock.lock().await {
                Err(Error::Unavailable { .. }) => {}
                granted => return granted.expect("it is free"),
            }
        }
    };
    soon(granted).await
}

/// Asserts that somebody holds the lock, and holds it once.
pub(crate) async fn is_held_once(admin: &Admin, name: &str) {
    let holders = admin.hgetall(&key(name)).await;
    assert_eq!(holders.values().collect::<Vec<_>>(), ["1"], "{holders:?}");
    assert!(admin.pttl(&key(name)).await > 0, "without a TTL");
}

pub(crate) async fn is_free(admin: &Admin, name: &str) -> bool {
    admin.pttl(&key(name)).await == -2
}

/// A server of scripts/servers, if it is installed.
pub(crate) fn installed(server: &str) -> Option<PathBuf> {
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/servers");
    Some(servers.join(server).join("redis-server")).filter(|program| program.exists())
}

/// Waits until this replica has what its primary has.
pub(crate) async fn replicated(primary: &Server, replica: &Server) {
    let offset = async |server: &Server, field: &str| {
        let said = server.admin().await.info("replication", field).await;
        said.and_then(|text| text.parse::<u64>().ok())
    };
    let wanted = offset(primary, "master_repl_offset").await.expect("a number");
    let has = async || offset(replica, "slave_repl_offset").await.is_some_and(|has| has >= wanted);
    eventually(SOON, "the replica has heard of it", has).await;
}

/// How many grants the server has made since its start: each writes its field.
pub(crate) async fn grants(admin: &Admin) -> u64 {
    admin.command_calls("hset").await
}

pub(crate) fn waiting(lock: Lock) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(async move { lock.lock().await })
}

/// The output of a future, which must come soon.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("it ends soon")
}

/// The guard of a waiter, which must get the lock soon.
pub(crate) async fn granted<T>(waiter: JoinHandle<Result<T, Error>>) -> T {
    soon(waiter).await.expect("no panic").expect("the lock")
}

pub(crate) async fn is_pending(future: impl Future + Unpin) -> bool {
    timeout(A_WHILE, future).await.is_err()
}

/// Until when a guard believes to hold; a little less, if we were interrupted just now.
pub(crate) fn deadline(guard: &Guard) -> Instant {
    Instant::now() + guard.remaining()
}

/// Each holder is renewed and has never lost its lock. Each gives it back to the waiter behind it, whose token is greater.
pub(crate) async fn all_go_on(guards: Vec<Guard>, waiters: Vec<JoinHandle<Result<Guard, Error>>>) {
    join_all(guards.iter().map(is_renewed)).await;
    let tokens: Vec<_> = guards.iter().map(Guard::token).collect();
    for ((guard, waiter), token) in guards.into_iter().zip(waiters).zip(tokens) {
        soon(guard.unlock()).await.expect("it was never lost");
        let next = granted(waiter).await;
        assert!(next.token() > token);
        next.unlock().await.expect("it is ours");
    }
}

/// The call is told that the servers refuse for now, in these words.
pub(crate) fn is_unavailable<T: std::fmt::Debug>(answer: Result<T, Error>, words: &str) {
    match answer {
        Err(Error::Unavailable { source }) if source.to_string().contains(words) => {}
        other => panic!("not {words}: {other:?}"),
    }
}

/// Waits until a renewal has been answered that was not when this began. One may have been answered just before: the next one is
/// due a third of the lease later.
pub(crate) async fn is_renewed(guard: &Guard) {
    let (before, lease) = (deadline(guard), guard.remaining());
    let renewed = async || deadline(guard) > before + Duration::from_millis(200);
    eventually(SOON.max(lease), "the lease is renewed", renewed).await;
    assert!(guard.is_valid());
}

/// Asserts the kind of an error, showing the error if it is another.
macro_rules! assert_err {
    ($result:expr, $kind:pat) => {
        match $result {
            Err($kind) => {}
            other => panic!("not {}: {other:?}", stringify!($kind)),
        }
    };
}
pub(crate) use assert_err;

/// How often a link that is refused may be made again in a second: it backs off from 10 ms, and each of two links
/// says HELLO twice.
pub(crate) async fn assert_no_storm(redials: &Fault) {
    let (before, began) = (redials.fired(), Instant::now());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (redialled, seconds) = (redials.fired() - before, began.elapsed().as_secs_f64());
    assert!(redialled as f64 <= 40.0 * seconds, "{redialled} greetings in {seconds} s");
}

// --- Servers of different makes ------------------------------------------------------------------------------------

/// What the server's binary says of itself.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let program = env::var_os("PARKLOCK_SERVER").unwrap_or("redis-server".into());
    let said = std::process::Command::new(program).arg("--version").output();
    String::from_utf8_lossy(&said.expect("a server's binary").stdout).into_owned()
});

pub(crate) fn is_version_6() -> bool {
    VERSION.contains("v=6.")
}

/// A server with the DEBUG command, which version 7 locked away.
pub(crate) fn debuggable() -> Setup {
    match is_version_6() {
        true => Server::builder(),
        false => Server::builder().set("enable-debug-command", "yes"),
    }
}

/// The server's answer to a bare PING, whatever state it is in.
pub(crate) async fn ping(server: &Server) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let answer: io::Result<String> = async {
        let mut stream = tokio::net::TcpStream::connect(server.address()).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut answer = [0; 256];
        let length = stream.read(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }
    .await;
    answer.unwrap_or_else(|error| error.to_string())
}
