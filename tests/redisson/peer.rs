//! Redisson in a JVM of its own: the program in `java/`, built once, driven line by line.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, str, thread};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::common::child::{self, Child};
use crate::common::fixture::A_WHILE;
use crate::common::timeout;
use crate::version::Version;

/// Longer than any answer takes, a start of the JVM on a busy machine among them.
const PATIENCE: Duration = Duration::from_secs(120);

/// Another version of Redisson than that of `java/pom.xml`, such as `3.52.0`: see `./scripts/test-matrix --redisson`.
static VERSION: LazyLock<Option<String>> = LazyLock::new(|| env::var("REDISSON_VERSION").ok());

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redisson/java");

/// Options for tests that take seconds: the JVM starts sooner, and leaves some of the machine to other processes.
/// Without `-Xlog:disable` the JVM may warn of its archive of classes on stdout, where we expect answers.
const JVM: [&str; 4] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Xlog:disable"];

/// The program, and the archive of its loaded classes, with which it starts in half the time.
#[derive(Debug)]
struct Program {
    jar: PathBuf,
    classes: PathBuf,
}

/// The place of the program, or `None` if it could not be built.
static PROGRAM: OnceCell<Option<Program>> = OnceCell::const_new();

/// A JVM that starts keeps a processor busy. More of them at once than there are processors would only make all of
/// them late, and the tests that run already with them.
static STARTS: LazyLock<Semaphore> = LazyLock::new(|| {
    Semaphore::new(thread::available_parallelism().map_or(2, |processors| processors.get()))
});

/// Builds the program, or says why not. The server is one to connect to while the classes are archived.
fn program(url: &str) -> Option<Program> {
    let found = ["javac", "mvn"].map(|tool| (tool, runs(tool)));
    let missing: Vec<&str> =
        found.iter().filter(|(_, runs)| !runs).map(|(tool, _)| *tool).collect();
    if missing.is_empty() {
        return Some(built(url));
    }
    leave_out(&missing.join(" and "));
    None
}

fn runs(tool: &str) -> bool {
    let mut command = Command::new(tool);
    command.arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Past the test harness, which shows only what failing tests print.
fn leave_out(missing: &str) {
    let required = ["CI", "PARKLOCK_REQUIRE_REDISSON"];
    let demanding =
        required.iter().find(|name| env::var_os(name).is_some_and(|set| !set.is_empty()));
    if let Some(name) = demanding {
        panic!("{name} is set, but without {missing} there is no Redisson to test with");
    }
    let _ = writeln!(io::stderr(), "LEFT OUT: all tests with Redisson, for want of {missing}");
}

/// The program, packaged again if its sources have changed. Other test processes wait meanwhile.
fn built(url: &str) -> Program {
    let version = VERSION.as_ref().map(|version| format!("-{version}")).unwrap_or_default();
    let home =
        Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(format!("redisson-peer{version}"));
    fs::create_dir_all(&home).expect("a directory of ours");
    let one_at_a_time = File::create(home.join("building")).expect("a file of ours");
    one_at_a_time.lock().expect("file locks");
    let (stamp, sources) = (home.join("built-from"), sources());
    let program =
        Program { jar: home.join("redisson-peer.jar"), classes: home.join("classes.jsa") };
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&sources) {
        package(&home);
        fs::write(&stamp, sources).expect("a file of ours");
        let _ = fs::remove_file(&program.classes);
    }
    if !program.classes.exists() {
        archive_classes(&program, url);
    }
    program
}

/// Runs the program once, up to its end of input. A JVM that finds the archive missing or unfit loads the classes.
fn archive_classes(program: &Program, url: &str) {
    let archive = format!("-XX:ArchiveClassesAtExit={}", program.classes.display());
    let mut command = child::command("java");
    command.args(JVM).arg(archive).arg("-jar").arg(&program.jar).args([url, "30000", "300000"]);
    let said = command.stdin(Stdio::null()).output().expect("java starts");
    assert!(said.status.success(), "the classes cannot be archived: {said:?}");
}

/// Everything that the program is made of.
fn sources() -> String {
    let code = Path::new(SOURCES).join("src/main/java/parklock/peer");
    let listed = fs::read_dir(code).expect("a readable folder");
    let mut files: Vec<PathBuf> =
        listed.map(|file| file.expect("a readable entry").path()).collect();
    files.push(Path::new(SOURCES).join("pom.xml"));
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).expect("a readable file")).collect()
}

/// What Maven has fetched once is enough; only without it does it need the network.
fn package(home: &Path) {
    let said = maven(home, &["--offline"]);
    let said = if said.status.success() { said } else { maven(home, &[]) };
    let text = str::from_utf8(&said.stdout).unwrap_or_default();
    assert!(said.status.success(), "Redisson's side cannot be built:\n{text}");
}

fn maven(home: &Path, further: &[&str]) -> Output {
    let mut command = child::command("mvn");
    command.args(["--quiet", "--batch-mode", "package"]).args(further);
    command.arg(format!("-Dpeer.target={}", home.display()));
    command.args(VERSION.iter().map(|version| format!("-Dredisson.version={version}")));
    command.current_dir(SOURCES).stdin(Stdio::null()).output().expect("mvn starts")
}

/// A process with one Redisson client. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Jvm {
    process: Child,
    orders: Arc<tokio::sync::Mutex<ChildStdin>>,
    inboxes: Inboxes,
    version: Version,
    watch: tokio::sync::Mutex<Thread>,
}

/// Where the answers of each thread go.
#[derive(Debug, Clone, Default)]
struct Inboxes(Arc<Mutex<HashMap<String, UnboundedSender<String>>>>);

impl Inboxes {
    fn thread(&self, name: &str, orders: &Arc<tokio::sync::Mutex<ChildStdin>>) -> Thread {
        let (inbox, answers) = unbounded_channel();
        let twice = self.map(|inboxes| inboxes.insert(name.to_owned(), inbox));
        assert!(twice.is_none(), "there is a thread {name} already");
        Thread { name: name.to_owned(), orders: Arc::clone(orders), answers }
    }

    /// Reads until the JVM ends. Then it tells all that still wait for an answer.
    async fn fill(self, mut lines: Lines<BufReader<ChildStdout>>) {
        while let Ok(Some(line)) = lines.next_line().await {
            let named = line.strip_prefix('@').and_then(|line| line.split_once(' '));
            let Some((thread, answer)) = named else { continue };
            self.map(|inboxes| inboxes.get(thread).map(|inbox| inbox.send(answer.to_owned())));
        }
        self.map(HashMap::clear);
    }

    fn map<T>(&self, work: impl FnOnce(&mut HashMap<String, UnboundedSender<String>>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Jvm {
    /// `None`, with a message, if the program could not be built.
    pub(crate) async fn start(url: &str, watchdog: Duration, fair_wait: Duration) -> Option<Self> {
        Self::start_mapped(url, watchdog, fair_wait, "").await
    }

    /// A Redisson that puts this prefix before all names.
    pub(crate) async fn start_mapped(
        url: &str,
        watchdog: Duration,
        fair_wait: Duration,
        prefix: &str,
    ) -> Option<Self> {
        let build = async || {
            let url = url.to_owned();
            spawn_blocking(move || program(&url)).await.expect("no panic")
        };
        let Program { jar, classes } = PROGRAM.get_or_init(build).await.as_ref()?;
        let _turn = STARTS.acquire().await.expect("never closed");
        let mut command = child::command("java");
        command.args(JVM).arg(format!("-XX:SharedArchiveFile={}", classes.display()));
        command.arg("-jar").arg(jar);
        let [watchdog, fair_wait] = [watchdog, fair_wait].map(|time| time.as_millis().to_string());
        command.args([url, &watchdog, &fair_wait, prefix]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Child::start(command);
        let (orders, lines) = process.pipes();
        let orders = ChildStdin::from_std(orders).expect("a pipe");
        let lines = ChildStdout::from_std(lines).expect("a pipe");
        let mut lines = BufReader::new(lines).lines();
        // The JVM prints its own warnings first.
        let ready = async {
            loop {
                let line = lines.next_line().await.expect("a readable pipe");
                let line = line.expect("the JVM has not ended");
                if let Some(version) = line.strip_prefix("ready ") {
                    break Version::parse(version).expect("a version of Redisson");
                }
            }
        };
        let version = timeout(PATIENCE, ready).await.expect("it is ready");
        let inboxes = Inboxes::default();
        tokio::spawn(inboxes.clone().fill(lines));
        let orders = Arc::new(tokio::sync::Mutex::new(orders));
        let watch = tokio::sync::Mutex::new(inboxes.thread("watch", &orders));
        Some(Self { process, orders, inboxes, version, watch })
    }

    /// Of Redisson there.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// A new thread there: to Redisson, an owner.
    pub(crate) fn thread(&self, name: &str) -> Thread {
        self.inboxes.thread(name, &self.orders)
    }

    /// Waits until this many threads there are parked.
    pub(crate) async fn parked(&self, threads: usize) {
        self.watch.lock().await.ask(&format!("parked {threads}")).await;
    }

    /// SIGKILL; the process is gone when this returns. On a busy machine a JVM takes seconds to die, and whoever holds a lock
    /// has to renew it meanwhile.
    pub(crate) async fn kill9(&mut self) {
        self.process.signal("KILL");
        while self.process.is_running() {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// One thread of a JVM. It carries out one order at a time.
#[derive(Debug)]
pub(crate) struct Thread {
    name: String,
    orders: Arc<tokio::sync::Mutex<ChildStdin>>,
    answers: UnboundedReceiver<String>,
}

/// The result of an order.
#[derive(Debug)]
pub(crate) struct Answer {
    /// How long it took there.
    pub(crate) took: Duration,
    /// When we read of it.
    pub(crate) heard: Instant,
    /// The output, or an empty string.
    pub(crate) result: String,
}

impl Thread {
    /// Sends an order. [`answer`](Self::answer) has what becomes of it.
    pub(crate) async fn order(&self, order: &str) {
        let line = format!("@{} {order}\n", self.name);
        self.orders.lock().await.write_all(line.as_bytes()).await.expect("the JVM is there");
    }

    pub(crate) async fn ask(&mut self, order: &str) -> Answer {
        self.order(order).await;
        self.answer().await
    }

    /// The result alone.
    pub(crate) async fn result(&mut self, order: &str) -> String {
        self.ask(order).await.result
    }

    /// The class of the exception that the order ends with.
    pub(crate) async fn refusal(&mut self, order: &str) -> String {
        self.order(order).await;
        let answer = self.next().await;
        let error = answer.strip_prefix("error ").unwrap_or_else(|| panic!("{order}: {answer}"));
        error.split(' ').next().unwrap_or_default().to_owned()
    }

    /// The outcome of the order. Panics if it failed.
    pub(crate) async fn answer(&mut self) -> Answer {
        let answer = self.next().await;
        let heard = Instant::now();
        let done = answer.strip_prefix("ok ").unwrap_or_else(|| panic!("{}: {answer}", self.name));
        let (took, result) = done.split_once(' ').unwrap_or((done, ""));
        let took = Duration::from_millis(took.parse().expect("milliseconds"));
        Answer { took, heard, result: result.to_owned() }
    }

    /// Whether there is no answer for a while.
    pub(crate) async fn is_busy(&mut self) -> bool {
        match timeout(A_WHILE, self.answers.recv()).await {
            Ok(answer) => panic!("{} is done: {answer:?}", self.name),
            Err(_) => true,
        }
    }

    async fn next(&mut self) -> String {
        let answer = timeout(PATIENCE, self.answers.recv()).await;
        answer.expect("the thread answers").expect("the JVM has not ended")
    }
}
