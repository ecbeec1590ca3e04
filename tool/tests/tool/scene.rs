//! A tool that runs, and what its command leaves behind.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::child::{self, Child};
use crate::common::{Admin, Server, eventually};

/// Longer than anything takes on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// The tool, ended when its test ends.
pub struct Tool {
    child: Child,
    files: PathBuf,
}

/// A call of the tool that is not made yet.
pub struct Call {
    words: Vec<String>,
    url: String,
    files: PathBuf,
}

/// A call with these words, to this server. What it prints goes into files beside those of the server.
pub fn tool(server: &Server, words: &[&str]) -> Call {
    tool_at(&server.url(), server.dir(), words)
}

pub fn tool_at(url: &str, dir: &Path, words: &[&str]) -> Call {
    let files = dir.join(format!("tool-{:x}", fastrand::u64(..)));
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Call { words, url: url.to_owned(), files }
}

/// A shell in the background begins programs with INT and QUIT ignored, and `nohup` with HUP. The tool leaves ignored signals
/// so. Its tests have to go the same way wherever they run.
pub const AS_IN_THE_FOREGROUND: [&str; 2] = ["env", "--default-signal"];

/// The path of the tool.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_parklock");

impl Call {
    pub fn start(self) -> Tool {
        self.start_by(&[])
    }

    /// Another program runs the tool: these words come first.
    pub fn start_by(self, before: &[&str]) -> Tool {
        let command = self.command(before);
        self.started(command)
    }

    fn command(&self, before: &[&str]) -> Command {
        let all: Vec<&str> = AS_IN_THE_FOREGROUND
            .into_iter()
            .chain(before.iter().copied())
            .chain([PROGRAM])
            .chain(self.words.iter().map(String::as_str))
            .collect();
        let mut command = child::command(all[0]);
        command.args(&all[1..]).env("PARKLOCK_URL", &self.url).env_remove("REDIS_URL");
        command
    }

    /// As a shell with job control starts it: stop signals stop no process whose group has no parent outside of it.
    pub fn start_in_its_own_group(self) -> Tool {
        let mut command = self.command(&[]);
        command.process_group(0);
        self.started(command)
    }

    /// What it prints on stderr goes there.
    pub fn start_with_stderr(self, stderr: impl Into<Stdio>) -> Tool {
        let command = self.command(&[]);
        self.started_with(command, stderr)
    }

    fn started(self, command: Command) -> Tool {
        let stderr = File::create(self.files.with_extension("err")).expect("a file");
        self.started_with(command, stderr)
    }

    fn started_with(self, mut command: Command, stderr: impl Into<Stdio>) -> Tool {
        let stdout = File::create(self.files.with_extension("out")).expect("a file");
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        Tool { child: Child::start(command), files: self.files }
    }

    /// Runs it to its end: the exit code.
    pub async fn code(self) -> i32 {
        self.start().code().await
    }

    /// Runs it to its end: what it prints, if all is well.
    pub async fn output(self) -> String {
        let mut tool = self.start();
        let code = tool.code().await;
        assert_eq!(code, 0, "{}", tool.complaint());
        tool.output()
    }
}

impl Tool {
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub fn signal(&self, name: &str) {
        self.child.signal(name);
    }

    /// Its exit code, as a shell tells it.
    pub async fn code(&mut self) -> i32 {
        let mut status = None;
        let ended = async || {
            status = self.child.ended();
            status.is_some()
        };
        eventually(LONG, "the tool ends", ended).await;
        let status = status.expect("it has ended");
        status.code().unwrap_or_else(|| 128 + status.signal().expect("one of both"))
    }

    pub fn is_running(&mut self) -> bool {
        self.child.is_running()
    }

    pub fn output(&self) -> String {
        fs::read_to_string(self.files.with_extension("out")).expect("a file")
    }

    pub fn complaint(&self) -> String {
        fs::read_to_string(self.files.with_extension("err")).expect("a file")
    }

    /// Waits until its command has printed these words.
    pub async fn says(&self, words: &str) {
        let said = async || self.output().contains(words);
        eventually(LONG, &format!("{words:?} is printed"), said).await;
    }

    /// Its keeper, and its command until that has ended.
    pub fn children(&self) -> Vec<u32> {
        children(self.pid())
    }

    /// The process that has the lock.
    pub fn keeper(&self) -> u32 {
        let of_us = self.children().into_iter();
        let mut keepers = of_us.filter(|pid| command_line(*pid).contains("--keep"));
        keepers.next().expect("it has a keeper")
    }
}

fn children(parent: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

pub fn command_line(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// What a process does: `T` is stopped, `Z` has ended and is not reaped. `None`: there is none.
pub fn state(pid: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in brackets before it.
    text.rsplit_once(") ")?.1.chars().next()
}

/// Sends a signal to one process, if it is still there.
pub fn signal(pid: u32, name: &str) {
    let line = format!("kill -{name} {pid} 2>/dev/null || true");
    Command::new("sh").args(["-c", &line]).status().expect("there is a shell");
}

/// The seconds since the machine was started, in hundredths.
pub fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").expect("there is such a file");
    text.split(' ').next().and_then(|seconds| seconds.parse().ok()).expect("a number")
}

/// A shell command that shows signs of life in a file, again and again, whatever TERM says to it. It prints `ready` first, and
/// `term` if it is asked to end.
pub fn stubborn(life: &Path) -> String {
    let life = life.display();
    format!(
        "trap 'echo term' TERM; echo ready; \
         while :; do read up rest </proc/uptime; echo $up >>{life}; sleep 0.02; done"
    )
}

/// The last sign of life in the file of a [`stubborn`] command, when no more come.
pub async fn last_sign(life: &Path) -> f64 {
    let read = || {
        let text = fs::read_to_string(life).unwrap_or_default();
        text.lines().last().and_then(|line| line.parse::<f64>().ok()).expect("it has lived")
    };
    let quiet = async || uptime() - read() > 4.0;
    eventually(LONG, "the command shows no more signs of life", quiet).await;
    read()
}

/// Waits until a name is held.
pub async fn held(admin: &Admin, name: &str) {
    let key = format!("lock:{{{name}}}");
    let is_held = async || admin.pttl(&key).await > 0;
    eventually(LONG, &format!("{name} is held"), is_held).await;
}

pub async fn is_free(admin: &Admin, name: &str) -> bool {
    admin.pttl(&format!("lock:{{{name}}}")).await == -2
}

/// Waits until nobody holds a name; far sooner than the lease of thirty seconds would free it.
pub async fn freed(admin: &Admin, name: &str) {
    let free = async || is_free(admin, name).await;
    eventually(Duration::from_secs(15), &format!("{name} is free"), free).await;
}

/// Whether there is script(1), which makes a terminal.
pub fn has_script() -> bool {
    let found = Command::new("script").arg("--version").output().is_ok();
    if !found {
        eprintln!("left out: there is no script(1)");
    }
    found
}

/// Waits until so many clients wait for a name.
pub async fn in_line(admin: &Admin, name: &str, clients: usize) {
    let key = format!("lock_queue:{{{name}}}");
    let stand = async || admin.cmd::<usize>(&["ZCARD", &key]).await == clients;
    eventually(LONG, &format!("{clients} wait for {name}"), stand).await;
}
