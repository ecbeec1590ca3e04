//! A real Redis server for a test (feature `test-util`, on Unix).
//!
//! Locks are best tested against the server that they are made for: this starts one in a few milliseconds, for one
//! test alone, and ends it with the test. It needs `redis-server` (or `valkey-server`) to be installed.
//!
//! ```
//! use parklock::testing::RedisServer;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let server = RedisServer::start().await?;
//! let client = server.client().await?;
//! let guard = client.lock("orders:42").lock().await?;
//!
//! // What does my code do when its lock is taken away?
//! server.client().await?.lock("orders:42").force_unlock().await?;
//! assert!(guard.unlock().await.is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! | to see what your code does when | do |
//! |---|---|
//! | the lock is taken away | [`Lock::force_unlock`](crate::Lock::force_unlock) of another client |
//! | somebody else holds it | lock it by another client: [`RedisServer::client`] makes a new one each time |
//! | Redis hangs, and comes back | [`RedisServer::pause`], [`RedisServer::resume`] |
//! | Redis is gone | [`RedisServer::kill`] |
//! | Redis has forgotten everything | [`RedisServer::restart`] |
//!
//! A lease of 30 s is long for a test: [`RedisServer::client_with`] takes a
//! [`Config::watchdog_timeout`](crate::Config::watchdog_timeout) of 100 ms or more.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fs, io};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::config::Config;
use crate::error::{Error, Result};

/// How long the server may take until it answers.
const START: Duration = Duration::from_secs(20);

/// The shell looks after the server. It passes signals on to it, which is safe, since the shell alone can reap it: its
/// process id is not given to another process before. When our end of the pipe closes, the shell kills the server, also if
/// this process was killed and could not do it.
const KEEPER: &str = r#"
trap '' INT QUIT HUP
"$@" >log 2>&1 </dev/null & server=$!
runs() { # a server that has ended stays a zombie until the shell waits for it; without /proc, it counts as running
  [ -r "/proc/$server/stat" ] || return 0
  read -r _ _ state _ <"/proc/$server/stat" && [ "$state" != Z ]
}
echo started
while read -r signal; do
  if runs && kill -s "$signal" "$server" 2>/dev/null; then echo sent; else echo gone; fi
done
kill -s KILL "$server" 2>/dev/null
wait "$server" 2>/dev/null
"#;

/// What always holds: nothing is written to disk, and nobody else gets in.
const ALWAYS: [&str; 6] = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"];

/// A private Redis server on a free port of the loopback interface, empty, and without persistence.
///
/// When this is dropped, the server is killed and its directory removed. That also happens, but for the directory, if the
/// test process itself is killed.
#[derive(Debug)]
pub struct RedisServer {
    keeper: Option<Keeper>,
    program: PathBuf,
    arguments: Vec<OsString>,
    port: Port,
    dir: Dir,
}

impl RedisServer {
    /// Starts a server, and waits until it answers.
    ///
    /// It takes the program that the variable `PARKLOCK_SERVER` names, or `redis-server` or `valkey-server` on the path.
    ///
    /// # Cancel safety
    /// A dropped future leaves no server behind.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if none of these is installed. Otherwise whatever kept the server from answering; its
    /// log is in the error.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(Vec::<OsString>::new()).await
    }

    /// Starts a server with further arguments of `redis-server`, such as `["--maxmemory", "1mb"]`.
    ///
    /// # Cancel safety
    /// A dropped future leaves no server behind.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> io::Result<Self> {
        let mut server = Self {
            keeper: None,
            program: installed()?,
            arguments: arguments.into_iter().map(Into::into).collect(),
            port: Port::reserve()?,
            dir: Dir::create()?,
        };
        server.launch().await?;
        Ok(server)
    }

    /// Where it listens, for [`Client::connect`].
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.port.address)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.address.port()
    }

    /// A new client of this server: as another process would be. It tries until the server answers in time, for 20 s: the limits
    /// of a test are often short, and its machine busy.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn client(&self) -> Result<Client> {
        self.client_with(Config::default()).await
    }

    /// A new client with settings of your own: see [`client`](Self::client).
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// As [`Client::connect_with`].
    pub async fn client_with(&self, config: Config) -> Result<Client> {
        let limit = Instant::now() + START;
        loop {
            match Client::connect_with(self.url(), config.clone()).await {
                Err(Error::Unavailable { .. })
                    if self.keeper.is_some() && Instant::now() < limit =>
                {
                    sleep(Duration::from_millis(20)).await;
                }
                connected => return connected,
            }
        }
    }

    /// Stops the process (`SIGSTOP`): connections stay open, and nothing is answered.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have stopped it.
    ///
    /// # Errors
    /// If the server has ended.
    pub async fn pause(&mut self) -> io::Result<()> {
        self.signal("STOP").await
    }

    /// Continues the process after [`pause`](Self::pause): what came in meanwhile is done now.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have continued it.
    ///
    /// # Errors
    /// If the server has ended.
    pub async fn resume(&mut self) -> io::Result<()> {
        self.signal("CONT").await
    }

    /// Kills the server. Its port refuses connections until [`restart`](Self::restart), and nobody else gets it.
    ///
    /// # Cancel safety
    /// The server is killed even if the future is dropped.
    pub async fn kill(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.end().await;
        }
    }

    /// Kills the server if it runs, and starts it again on the same port. It has forgotten everything.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server may be down; call it again.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn restart(&mut self) -> io::Result<()> {
        self.kill().await;
        self.launch().await
    }

    async fn launch(&mut self) -> io::Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(&self.program).args(ALWAYS);
        command.args(["--port", &self.port().to_string()]).args(&self.arguments);
        self.keeper = Some(Keeper::start(command.current_dir(&self.dir.0)).await?);
        self.ready().await
    }

    async fn ready(&mut self) -> io::Result<()> {
        let limit = Instant::now() + START;
        while !answers(self.port.address).await.unwrap_or(false) {
            // Signal 0 asks whether the process is there.
            let has_ended = self.signal("0").await.is_err();
            if has_ended || Instant::now() > limit {
                let log = fs::read_to_string(self.dir.0.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("the server does not answer:\n{log}")));
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    async fn signal(&mut self, signal: &str) -> io::Result<()> {
        match &mut self.keeper {
            Some(keeper) => keeper.signal(signal).await,
            None => Err(gone()),
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the server does not run")
}

/// Whether a server answers there, and has loaded its data.
async fn answers(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"PING\r\n").await?;
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).await?;
    // Another refusal, such as NOAUTH, comes from a server that is up.
    Ok(length > 0 && !answer.starts_with(b"-LOADING"))
}

/// The server that is to be started.
fn installed() -> io::Result<PathBuf> {
    if let Some(program) = env::var_os("PARKLOCK_SERVER") {
        return Ok(program.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &PathBuf| program.is_file();
    let found = ["redis-server", "valkey-server"]
        .into_iter()
        .find_map(|name| env::split_paths(&path).map(|dir| dir.join(name)).find(is_there));
    found.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "neither redis-server nor valkey-server is on the path: install one of them, \
             or name one in the variable PARKLOCK_SERVER",
        )
    })
}

/// The shell that looks after the server.
#[derive(Debug)]
struct Keeper {
    shell: Child,
    signals: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Keeper {
    async fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn()?;
        let (signals, answers) = shell.stdin.take().zip(shell.stdout.take()).ok_or_else(gone)?;
        let mut keeper = Self { shell, signals, answers: BufReader::new(answers).lines() };
        keeper.hear("started").await?;
        Ok(keeper)
    }

    async fn signal(&mut self, signal: &str) -> io::Result<()> {
        self.signals.write_all(format!("{signal}\n").as_bytes()).await?;
        self.hear("sent").await
    }

    async fn hear(&mut self, expected: &str) -> io::Result<()> {
        match self.answers.next_line().await? {
            Some(answer) if answer == expected => Ok(()),
            _ => Err(gone()),
        }
    }

    /// Closes the pipe, and waits until the shell has killed the server.
    async fn end(self) {
        let Self { mut shell, signals, answers } = self;
        drop((signals, answers));
        let _ = shell.wait().await;
    }
}

/// A free port, kept by a socket that is bound and never listens.
///
/// While nobody listens, connections are refused. Two sockets may bind it only if both ask for `SO_REUSEADDR`, as
/// this one and the server do, and as no search for a free port does: so nobody gets it in between.
#[derive(Debug)]
struct Port {
    address: SocketAddr,
    _keeper: TcpSocket,
}

impl Port {
    fn reserve() -> io::Result<Self> {
        let keeper = TcpSocket::new_v4()?;
        keeper.set_reuseaddr(true)?;
        keeper.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Self { address: keeper.local_addr()?, _keeper: keeper })
    }
}

/// A directory in the system's place for such things, removed on drop.
#[derive(Debug)]
struct Dir(PathBuf);

impl Dir {
    fn create() -> io::Result<Self> {
        let name = format!("parklock-testing-{}-{:x}", std::process::id(), fastrand::u64(..));
        let path: &Path = &env::temp_dir().join(name);
        fs::create_dir(path)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
