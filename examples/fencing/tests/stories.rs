//! Each example tells its story on a real resource, with a process that is really paused.

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use parklock::testing::RedisServer;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::spawn_blocking;

/// Runs an example to its end, and checks what it says.
async fn told(program: &str, variable: (&str, &str)) {
    let redis = RedisServer::start().await.expect("a server");
    let mut command = Command::new(program);
    command.env("REDIS_URL", redis.url()).env(variable.0, variable.1);
    let ran = spawn_blocking(move || command.output()).await.unwrap().expect("it runs");
    let (words, errors) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{words}\n{errors}");
    let (blind, fenced) = words.split_once("fenced: the account has 100").expect("two parts");

    // Without tokens the late write destroys the other one. With them it is refused.
    assert!(blind.contains("which makes 130") && blind.contains("wakes up and writes;"), "{words}");
    assert!(blind.contains("blind: the account has 150"), "{words}");
    assert!(
        fenced.contains("which makes 130") && fenced.contains("its write is refused;"),
        "{words}"
    );
    assert!(fenced.contains("fenced: the account has 130"), "{words}");
    assert_eq!(words.matches("the lock was lost").count(), 2, "{words}");
}

/// A directory that is removed on drop.
struct Dir(PathBuf);

impl Dir {
    fn create(name: &str) -> Self {
        let path = env::temp_dir().join(format!("parklock-fencing-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a directory of our own");
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn sqlite_refuses_a_late_write() {
    let dir = Dir::create("sqlite");
    let place = dir.0.join("account.sqlite");
    told(env!("CARGO_BIN_EXE_sqlite"), ("ACCOUNT", place.to_str().expect("a plain path"))).await;
}

#[tokio::test]
async fn a_file_refuses_a_late_write() {
    let dir = Dir::create("file");
    let place = dir.0.join("account.txt");
    told(env!("CARGO_BIN_EXE_file"), ("ACCOUNT", place.to_str().expect("a plain path"))).await;
}

#[tokio::test]
async fn postgres_refuses_a_late_write() {
    let dir = Dir::create("postgres");
    let Some(postgres) = Postgres::start(&dir.0) else { return };
    told(env!("CARGO_BIN_EXE_postgres"), ("DATABASE_URL", &postgres.url())).await;
}

/// A private PostgreSQL server, that listens at a socket in its directory only.
struct Postgres {
    server: Child,
    dir: PathBuf,
}

impl Postgres {
    /// `None` if it is not installed; then it says so, or fails with `PARKLOCK_REQUIRE_POSTGRES`.
    fn start(dir: &Path) -> Option<Self> {
        let Some(programs) = installed() else {
            let missing = "PostgreSQL is not installed (Debian: apt-get install postgresql)";
            assert!(env::var_os("PARKLOCK_REQUIRE_POSTGRES").is_none(), "{missing}");
            // Not by a macro, whose words nobody sees when the test passes.
            let _ = writeln!(stderr(), "\nleft out: {missing}");
            return None;
        };
        let is_root = rustix::process::getuid().is_root();
        // It refuses to run as root. Debian's package has a user for it.
        let command = |program: &str| {
            let program = programs.join(program);
            let mut command = if is_root {
                let mut command = Command::new("setpriv");
                command.args([
                    "--reuid",
                    "postgres",
                    "--regid",
                    "postgres",
                    "--clear-groups",
                    "--",
                ]);
                command.arg(program);
                command
            } else {
                Command::new(program)
            };
            command.current_dir(dir).stdin(Stdio::null());
            command
        };
        if is_root {
            let owned = Command::new("chown").arg("postgres").arg(dir).status();
            assert!(owned.is_ok_and(|status| status.success()), "the directory is the user's");
        }
        let data = dir.join("data");
        let mut initdb = command("initdb");
        initdb
            .args(["--auth", "trust", "--username", "postgres", "--locale=C", "--encoding=UTF8"])
            .args(["--no-sync", "-D"])
            .arg(&data);
        let made = initdb.output().expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut server = command("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(dir).args(["-c", "listen_addresses="]);
        server.args(["-c", "fsync=off"]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = server.spawn().expect("postgres starts");
        let mut postgres = Self { server, dir: dir.to_owned() };
        postgres.wait_until_it_listens();
        Some(postgres)
    }

    fn wait_until_it_listens(&mut self) {
        let limit = Instant::now() + Duration::from_secs(60);
        let is_up = |dir: &Path| {
            let file = fs::read_to_string(dir.join("data/postmaster.pid")).unwrap_or_default();
            file.lines().nth(7).is_some_and(|status| status.trim() == "ready")
        };
        while !is_up(&self.dir) {
            let ended = self.server.try_wait().expect("our own child");
            assert!(ended.is_none() && Instant::now() < limit, "it does not start: {ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn url(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.dir.display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT ends its own children too, which SIGKILL would leave behind.
        let pid = i32::try_from(self.server.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::QUIT));
        let _ = self.server.wait();
    }
}

/// Where its programs are: on the path, or where Debian puts them, the newest version first.
fn installed() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = env::split_paths(&path).collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |dir: &PathBuf| dir.file_name()?.to_str()?.parse::<f32>().ok();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path()).collect();
    versions.sort_by(|a, b| number(b).partial_cmp(&number(a)).expect("numbers compare"));
    places.extend(versions.into_iter().map(|version| version.join("bin")));
    places.into_iter().find(|dir| dir.join("initdb").is_file() && dir.join("postgres").is_file())
}
