//! A real `redis-server` of one's own: started, paused, killed, started again.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, io, process};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::admin::Admin;
use super::child::{self, Child};
use super::port::{Host, Port};
use super::wait::{eventually, timeout};

/// A busy machine may take this long to load a file.
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(10);

/// What always holds: nothing is written unless asked for, nobody else gets in, and replicas need not wait.
const ALWAYS: [&str; 8] = [
    "--save",
    "",
    "--appendonly",
    "no",
    "--protected-mode",
    "no",
    "--repl-diskless-sync-delay",
    "0",
];

/// The ports of a server and of a sentinel on a host of their own.
const SERVER: u16 = 6379;
const SENTINEL: u16 = 26_379;

/// A server that is answering, in its own directory, on its own port. Dropped, it is killed and its directory removed.
#[derive(Debug)]
pub struct Server {
    // Declared first, hence dropped first: the process ends before its directory goes.
    child: Mutex<Option<Child>>,
    setup: Setup,
    port: Port,
    /// Of a node of a cluster.
    bus: Option<Port>,
    dir: Dir,
}

/// How a server is to be started.
#[derive(Debug, Default)]
pub struct Setup {
    args: Vec<String>,
    program: Option<PathBuf>,
    variables: Vec<(String, String)>,
    is_node: bool,
    /// Of a sentinel: the lines of its file besides the port.
    sentinel: Option<String>,
    names_bus: bool,
    host: Option<Host>,
}

impl Setup {
    /// A setting as in redis.conf: `.set("maxmemory", "1mb")`.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.args.extend([format!("--{name}"), value.to_owned()]);
        self
    }

    /// Every write is on disk before it is answered, and is there again after [`Server::restart`].
    pub fn append_only(self) -> Self {
        self.set("appendonly", "yes").set("appendfsync", "always")
    }

    /// Listens on a unix socket too: [`Server::unix_url`].
    pub fn unix_socket(self) -> Self {
        self.set("unixsocket", "socket")
    }

    /// Follows the primary on this port, which may be a proxy's.
    pub fn replica_of(self, port: u16) -> Self {
        self.replica_at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Follows the primary at this address.
    pub fn replica_at(mut self, primary: SocketAddr) -> Self {
        // Version 6 takes a setting's values as arguments of their own only.
        let (address, port) = (primary.ip().to_string(), primary.port().to_string());
        self.args.extend(["--replicaof".into(), address, port]);
        self
    }

    /// A node of a cluster, which it does not know yet.
    pub fn node(mut self) -> Self {
        self.is_node = true;
        self.set("cluster-enabled", "yes")
            .set("cluster-node-timeout", "1000")
            .set("cluster-require-full-coverage", "no")
    }

    /// A sentinel, with these lines in its file.
    pub fn sentinel(self, lines: String) -> Self {
        Self { sentinel: Some(lines), ..self }
    }

    /// The node is told which port its bus has, which it cannot guess if its own port is another. Not in version 6.
    pub fn named_bus(self) -> Self {
        Self { names_bus: true, ..self }
    }

    /// On a host of its own, on the port that servers of its kind have.
    pub fn on(self, host: Host) -> Self {
        Self { host: Some(host), ..self }
    }

    /// Another program than the one that all tests run with.
    pub fn program(self, program: PathBuf) -> Self {
        Self { program: Some(program), ..self }
    }

    /// A variable of the process's environment.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub async fn start(self) -> Server {
        let (port, bus) = match &self.host {
            Some(host) if self.sentinel.is_some() => (Port::at(host, SENTINEL), None),
            Some(host) => (Port::at(host, SERVER), None),
            None if self.is_node => {
                let (port, bus) = Port::reserve_pair();
                (port, Some(bus))
            }
            None => (Port::reserve(), None),
        };
        let (child, dir) = (Mutex::default(), Dir::create());
        let server = Server { child, setup: self, port, bus, dir };
        server.start_again().await;
        server
    }
}

impl Server {
    /// An empty server that keeps nothing on disk.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    pub fn builder() -> Setup {
        Setup::default()
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.dir.0.join("socket").display())
    }

    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn dir(&self) -> &Path {
        &self.dir.0
    }

    /// The process that runs now; panics if it was killed or stopped.
    pub fn pid(&self) -> u32 {
        self.process().as_ref().expect("the server runs").pid()
    }

    /// A connection of the test's own, for looking and poking.
    pub async fn admin(&self) -> Admin {
        Admin::connect(&self.url()).await
    }

    /// SIGSTOP: connections stay open, the kernel still accepts new ones, nothing is answered.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// SIGCONT: whatever came in meanwhile is run now.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// `kill -9`. The port refuses until [`start_again`](Self::start_again).
    pub fn kill(&self) {
        *self.process() = None;
    }

    /// SIGTERM, and waits for the end: the server says goodbye properly.
    pub async fn stop(&self) {
        self.signal("TERM");
        let ended = async || !self.is_running();
        eventually(STOP, "the server stops", ended).await;
        self.kill();
    }

    /// Starts in the same directory on the same port, after [`kill`](Self::kill) or [`stop`](Self::stop).
    pub async fn start_again(&self) {
        self.launch();
        self.ready().await;
    }

    /// `kill -9`, then starts again: all data that was not on disk is lost.
    pub async fn restart(&self) {
        self.kill();
        self.start_again().await;
    }

    /// Starts the process without waiting for it: to watch it load.
    pub fn launch(&self) {
        let mut process = self.process();
        assert!(process.is_none(), "the server runs already");
        *process = Some(Child::start(self.command().expect("the directory is writable")));
    }

    /// Waits until PING is answered and the data is loaded; the server's log is in the panic if that fails.
    pub async fn ready(&self) {
        let up = async {
            while !self.answers().await.unwrap_or(false) {
                assert!(self.is_running(), "the server ended at once:\n{}", self.log());
                sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = timeout(START, up).await;
        assert!(waited.is_ok(), "the server does not answer:\n{}", self.log());
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.0.join("log")).unwrap_or_else(|none| format!("no log: {none}"))
    }

    fn command(&self) -> io::Result<process::Command> {
        let log = File::options().create(true).append(true).open(self.dir.0.join("log"))?;
        let everybodys = || env::var_os("PARKLOCK_SERVER").unwrap_or("redis-server".into());
        let Setup { args, program, variables, host, .. } = &self.setup;
        let program = program.clone().map_or_else(everybodys, PathBuf::into_os_string);
        let mut command = match host {
            Some(host) => host.command(program),
            None => child::command(program),
        };
        let (address, port) = (self.address().ip().to_string(), self.port().to_string());
        if let (true, Some(bus)) = (self.setup.names_bus, &self.bus) {
            command.args(["--cluster-port", &bus.number().to_string()]);
        }
        match &self.setup.sentinel {
            None => {
                let place = ["--bind", &address, "--port", &port];
                let args = args.iter().map(String::as_str);
                let words = ALWAYS.into_iter().chain(place).chain(args);
                if host.is_some() {
                    // A sentinel has it write there whom it follows, so that it knows when it is started again.
                    let file = self.dir.0.join("redis.conf");
                    if !file.exists() {
                        fs::write(&file, lines(words))?;
                    }
                    command.arg("redis.conf");
                } else {
                    command.args(words);
                }
            }
            Some(lines) => {
                let file = self.dir.0.join("sentinel.conf");
                // It writes what it learns into its file, and goes on from there.
                if !file.exists() {
                    let place = format!("port {port}\nbind {address}\nprotected-mode no");
                    fs::write(&file, format!("{place}\n{lines}\n"))?;
                }
                command.arg("sentinel.conf").arg("--sentinel").args(args);
            }
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command
            .current_dir(self.dir())
            .stdin(process::Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log);
        Ok(command)
    }

    async fn answers(&self) -> io::Result<bool> {
        let mut stream = TcpStream::connect(self.address()).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut answer = [0; 64];
        let length = stream.read(&mut answer).await?;
        // Any other refusal, such as NOAUTH, comes from a server that is up.
        Ok(length > 0 && !answer.starts_with(b"-LOADING"))
    }

    /// Whether it runs, and was not killed.
    pub fn is_up(&self) -> bool {
        self.is_running()
    }

    fn is_running(&self) -> bool {
        self.process().as_mut().is_some_and(Child::is_running)
    }

    fn signal(&self, name: &str) {
        self.process().as_ref().expect("the server runs").signal(name);
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A directory in the system's place for such things, removed on drop.
#[derive(Debug)]
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn create() -> Self {
        let name = format!("parklock-{}-{:x}", process::id(), fastrand::u64(..));
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory of our own");
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Arguments as a file has them.
fn lines<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let line = |word: &str| match word.strip_prefix("--") {
        Some(name) => format!("\n{name}"),
        None => format!(" \"{word}\""),
    };
    words.map(line).collect::<String>() + "\n"
}
