//! A real server of one's own, on a unix socket in its own directory.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use parklock_simulated_server::Version;

use crate::child::{self, Child};
use crate::frame::Frame;

const START: Duration = Duration::from_secs(10);

/// Hashes and sets stay small ones, whose order is that of their insertion.
const SETTINGS: [&str; 14] = [
    "--port",
    "0",
    "--save",
    "",
    "--appendonly",
    "no",
    "--unixsocket",
    "socket",
    "--hash-max-ziplist-entries",
    "100000",
    "--hash-max-ziplist-value",
    "100000",
    "--enable-debug-command",
    "yes",
];

/// Where the program of this version is, if it is installed.
pub fn program(version: Version) -> Option<PathBuf> {
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/servers");
    match version {
        Version::Redis7_0 => {
            let path = env::var_os("PATH")?;
            let mut programs = env::split_paths(&path).map(|dir| dir.join("redis-server"));
            programs.find(|program| {
                let said = process::Command::new(program).arg("--version").output();
                said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("v=7.0."))
            })
        }
        Version::Redis6_2 => {
            Some(servers.join("redis-6.2/redis-server")).filter(|program| program.exists())
        }
        Version::Redis8_2 => {
            Some(servers.join("redis-8.2/redis-server")).filter(|program| program.exists())
        }
        Version::Valkey9_1 => {
            Some(servers.join("valkey-9.1/redis-server")).filter(|program| program.exists())
        }
    }
}

/// A running server. Dropped, it is killed and its directory removed.
pub struct Real {
    // Declared first, hence dropped first: the process ends before its directory goes.
    _child: Child,
    dir: Dir,
}

impl Real {
    pub fn start(version: Version, program: &Path) -> Self {
        let begun = Instant::now();
        loop {
            if let Some(real) = Self::try_to_start(version, program, &[]) {
                return real;
            }
            assert!(begun.elapsed() < START, "the server does not start");
        }
    }

    /// As `start`, on a port too.
    pub fn start_with_port(version: Version, program: &Path) -> (Self, u16) {
        Self::start_on_a_port(version, program, Vec::new)
    }

    /// As `start`, a node of a cluster.
    pub fn start_node(version: Version, program: &Path) -> (Self, u16) {
        Self::start_on_a_port(version, program, || {
            let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "30000"];
            settings.map(str::to_owned).to_vec()
        })
    }

    fn start_on_a_port(
        version: Version,
        program: &Path,
        settings: impl Fn() -> Vec<String>,
    ) -> (Self, u16) {
        let begun = Instant::now();
        loop {
            // Below those that the kernel hands out, as is the one of the bus.
            let port = fastrand::u16(11_000..22_000);
            let own = [vec!["--port".to_owned(), port.to_string()], settings()].concat();
            if let Some(real) = Self::try_to_start(version, program, &own) {
                return (real, port);
            }
            assert!(begun.elapsed() < START, "the server does not start on any port");
        }
    }

    /// Nothing, if it ends at once: somebody has its port.
    fn try_to_start(version: Version, program: &Path, own: &[String]) -> Option<Self> {
        let dir = Dir(env::temp_dir().join(format!(
            "parklock-{}-{:x}",
            process::id(),
            fastrand::u64(..)
        )));
        fs::create_dir(&dir.0).expect("a directory of our own");
        let log = fs::File::create(dir.0.join("log")).expect("a log");
        let mut command = child::command(std::path::absolute(program).expect("a path"));
        let settings = if version == Version::Redis6_2 { &SETTINGS[..12] } else { &SETTINGS[..] };
        command
            .args(settings)
            .args(own)
            .current_dir(&dir.0)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null());
        let real = Self { _child: Child::start(command), dir };
        let begun = Instant::now();
        while UnixStream::connect(real.socket()).is_err() {
            let log = || fs::read_to_string(real.dir.0.join("log")).unwrap_or_default();
            if log().contains("Failed listening on port") || log().contains("in use") {
                return None;
            }
            assert!(begun.elapsed() < START, "the server does not start:\n{}", log());
            thread::sleep(Duration::from_millis(2));
        }
        Some(real)
    }

    fn socket(&self) -> PathBuf {
        self.dir.0.join("socket")
    }

    pub fn connect(&self) -> Wire {
        let stream = UnixStream::connect(self.socket()).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Wire { read: BufReader::new(stream.try_clone().expect("a second handle")), write: stream }
    }
}

struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What comes next on a connection.
#[derive(Debug)]
pub enum Next {
    Frame(Frame),
    End,
    Silence,
}

/// A connection to a real server.
pub struct Wire {
    read: BufReader<UnixStream>,
    write: UnixStream,
}

impl Wire {
    pub fn send(&mut self, bytes: &[u8]) {
        self.write.write_all(bytes).expect("the server reads");
    }

    /// For a server that may have closed the connection; what it said before can be read still.
    pub fn try_to_send(&mut self, bytes: &[u8]) {
        let _ = self.write.write_all(bytes);
    }

    pub fn frame(&mut self) -> Frame {
        Frame::read(&mut self.read).expect("the server answers")
    }

    /// One frame, or none if the server has closed the connection.
    pub fn next(&mut self) -> Next {
        match self.read.fill_buf() {
            Ok(_) => Frame::read(&mut self.read).map_or(Next::End, Next::Frame),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Next::Silence,
            Err(_) => Next::End,
        }
    }

    /// After how much silence there is nothing more to come.
    pub fn set_patience(&self, patience: Duration) {
        self.write.set_read_timeout(Some(patience)).expect("a timeout");
    }

    pub fn ask(&mut self, words: &[&str]) -> Frame {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.send(&request(&words));
        self.frame()
    }
}

/// A request in the wire's format.
pub fn request(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
