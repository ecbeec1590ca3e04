//! A real Redis server for a test (feature `test-util`, on Unix).
//!
//! For tests of what only a real server has. This module starts one in a few milliseconds, for one test alone, and stops it
//! with the test. `redis-server` (or `valkey-server`) must be installed. Other tests are quicker with the crate
//! `parklock-testing`, which has a server inside the test.
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
//! | to test what your code does when | do this |
//! |---|---|
//! | the lock is taken away | [`Lock::force_unlock`](crate::Lock::force_unlock) of another client |
//! | another client holds the lock | lock it with another client: [`RedisServer::client`] makes a new one each time |
//! | Redis hangs, and comes back | [`RedisServer::pause`], [`RedisServer::resume`] |
//! | Redis is gone | [`RedisServer::kill`] |
//! | Redis has forgotten everything | [`RedisServer::restart`] |
//!
//! Do not pause Tokio's clock (`start_paused = true`): Tokio then skips the time in which the server would answer, and connecting ends
//! as `Unavailable`, "timed out". With `parklock-testing` the clock may be paused.
//!
//! A lease of 30 s is long for a test: [`RedisServer::client_with`] takes a
//! [`Config::watchdog_timeout`](crate::Config::watchdog_timeout) of 100 ms or more.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf, absolute};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fs, io};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout_at};

use crate::client::Client;
use crate::config::Config;
use crate::error::{Error, Result};

/// How long the server may take to answer after it was started.
const START: Duration = Duration::from_secs(20);

/// The shell supervises the server. It passes signals on to the server. When our end of the pipe closes, the shell kills the
/// server, even if this process was killed and could not do so.
///
/// A shell may reap a child that has ended at any time, and then another process may get its process id. So before it sends a signal, the
/// shell looks whether that process is its own child. It cannot know without a `/proc` that shows the server as its child at first.
const KEEPER: &str = r#"
trap '' INT QUIT HUP
"$@" >log 2>&1 </dev/null & server=$!
look() { # what is behind the program's name, which may have blanks: the state and the parent
  read -r stat 2>/dev/null <"/proc/$server/stat" && set -- ${stat##*) } && state=$1 && [ "$2" = "$$" ]
}
look && sees=yes || sees=
runs() { [ -z "$sees" ] || { look && [ "$state" != Z ]; }; }
echo started
while read -r signal; do
  if runs && kill -s "$signal" "$server" 2>/dev/null; then echo sent; else echo gone; fi
done
runs && kill -s KILL "$server" 2>/dev/null
wait "$server" 2>/dev/null
"#;

/// The arguments of every server: it writes nothing to disk, and accepts only local connections.
const ALWAYS: [&str; 6] = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"];

/// A private, empty Redis server on a free port of the loopback interface, without persistence.
///
/// Dropping it kills the server and removes its directory. If the test process itself is killed, the server is killed
/// too, but its directory stays.
///
/// ```
/// use parklock::testing::RedisServer;
/// use parklock::{Config, Ended};
/// use std::time::Duration;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mut server = RedisServer::start().await?;
/// let short = Config::default().watchdog_timeout(Duration::from_secs(1));
/// let client = server.client_with(short).await?;
/// let guard = client.lock("orders:42").lock().await?;
///
/// server.pause().await?;
/// assert_eq!(guard.ended().await, Ended::Lost); // within a second
/// server.resume().await?;
///
/// server.restart().await?; // empty
/// assert!(!server.client().await?.lock("orders:42").is_locked().await?);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
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
    /// It runs the program named by the variable `PARKLOCK_SERVER`, or `redis-server` or `valkey-server` from the path. A
    /// relative name of a program begins at the current directory.
    ///
    /// # Cancel safety
    /// A dropped future leaves no server behind.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if none of these is installed. Otherwise the reason why the server did not answer,
    /// with its log.
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(Vec::<OsString>::new()).await
    }

    /// Starts a server with additional arguments for `redis-server`, such as `["--maxmemory", "1mb"]`.
    ///
    /// # Cancel safety
    /// A dropped future leaves no server behind.
    ///
    /// # Errors
    /// Same as [`start`](Self::start).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
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

    /// The server's URL, for [`Client::connect`].
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.port.address)
    }

    /// The server's port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.address.port()
    }

    /// A new client of this server, independent of the others like that of another process. It retries for up to 20 s
    /// until the server answers in time, since tests often have short limits and busy machines.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// Same as [`Client::connect`].
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
    pub async fn client(&self) -> Result<Client> {
        self.client_with(Config::default()).await
    }

    /// A new client with your own settings: see [`client`](Self::client).
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// Same as [`Client::connect_with`].
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
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

    /// Stops the process (`SIGSTOP`): its connections stay open, and it answers nothing.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have stopped it.
    ///
    /// # Errors
    /// If the server has ended.
    pub async fn pause(&mut self) -> io::Result<()> {
        self.signal("STOP").await
    }

    /// Continues the process after [`pause`](Self::pause): it now handles everything that arrived meanwhile.
    ///
    /// # Cancel safety
    /// A dropped future may or may not have continued it.
    ///
    /// # Errors
    /// If the server has ended.
    pub async fn resume(&mut self) -> io::Result<()> {
        self.signal("CONT").await
    }

    /// Kills the server. Its port refuses connections until [`restart`](Self::restart), and no other process gets the
    /// port.
    ///
    /// # Cancel safety
    /// The server is killed even if the future is dropped.
    pub async fn kill(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.end().await;
        }
    }

    /// Kills the server if it runs, and starts it again on the same port, with no data.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server may be down; call it again.
    ///
    /// # Errors
    /// Same as [`start`](Self::start).
    ///
    /// # Panics
    /// Outside a Tokio runtime with time and I/O enabled.
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
        // A server that is stopped accepts, and answers nothing.
        while !matches!(timeout_at(limit, answers(self.port.address)).await, Ok(Ok(true))) {
            // Signal 0 checks whether the process exists.
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

/// Whether a server answers at this address, and has loaded its data.
async fn answers(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"PING\r\n").await?;
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).await?;
    // Another refusal, such as NOAUTH, comes from a server that is up.
    Ok(length > 0 && !answer.starts_with(b"-LOADING"))
}

/// The program to start. Its name does not depend on the current directory: the server runs in another one.
fn installed() -> io::Result<PathBuf> {
    let (found, none) = match env::var_os("PARKLOCK_SERVER").map(PathBuf::from) {
        Some(program) if program.components().count() > 1 => return absolute(program),
        Some(name) => {
            let none = format!("PARKLOCK_SERVER names {name:?}, which is not on the path");
            (on_path(&name), none)
        }
        None => {
            let none = "neither redis-server nor valkey-server is on the path: install one of \
                        them, or name one in the variable PARKLOCK_SERVER";
            (["redis-server", "valkey-server"].iter().find_map(on_path), none.to_owned())
        }
    };
    absolute(found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, none))?)
}

/// The program of this name in the first directory of the path that has one.
fn on_path(name: &impl AsRef<Path>) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// The shell that supervises the server.
#[derive(Debug)]
struct Keeper {
    shell: Child,
    signals: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// How many answers will come. The future that was to read one may have been dropped.
    unread: usize,
}

impl Keeper {
    async fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn()?;
        let (signals, answers) = shell.stdin.take().zip(shell.stdout.take()).ok_or_else(gone)?;
        let answers = BufReader::new(answers).lines();
        let mut keeper = Self { shell, signals, answers, unread: 1 };
        keeper.hear("started").await?;
        Ok(keeper)
    }

    async fn signal(&mut self, signal: &str) -> io::Result<()> {
        // The shell gets the line as a whole or not at all, since it is far shorter than what a pipe takes at once.
        self.signals.write_all(format!("{signal}\n").as_bytes()).await?;
        self.unread += 1;
        self.hear("sent").await
    }

    /// Reads the last of the answers that will come.
    async fn hear(&mut self, expected: &str) -> io::Result<()> {
        loop {
            let answer = self.answers.next_line().await?.ok_or_else(gone)?;
            self.unread -= 1;
            if self.unread == 0 {
                return if answer == expected { Ok(()) } else { Err(gone()) };
            }
        }
    }

    /// Closes the pipe, and waits until the shell has killed the server.
    async fn end(self) {
        let Self { mut shell, signals, answers, .. } = self;
        drop((signals, answers));
        let _ = shell.wait().await;
    }
}

/// A free port, kept by a socket that is bound and never listens.
///
/// While nobody listens, connections are refused. Two sockets may bind the port only if both set `SO_REUSEADDR`: this
/// one and the server do, but no search for a free port does. So no other process gets the port in between.
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

/// A directory in the system's temporary directory, removed on drop.
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
