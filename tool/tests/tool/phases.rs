//! Each phase of a tool, and each signal that stops a process: nobody else waits for a tool that is stopped, unless its command
//! still has the lock.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Server, eventually, judged};
use crate::scene::{LONG, Tool, freed, in_line, is_free, signal, state, tool};

/// The signals that stop the tool, whatever it does. TTOU does not: the tool blocks it, to take the terminal back.
const STOPS: [&str; 3] = ["TSTP", "STOP", "TTIN"];

/// A tool in a process group of its own, with a lock of its own. A shell with job control starts its jobs so: the kernel stops no
/// group that nobody could continue.
struct Scene {
    tool: Tool,
    name: String,
    /// The command ends when it reads a line from here. It starts no process: a shell that TSTP hits between vfork and exec of
    /// a child cannot stop.
    end: File,
    ran: PathBuf,
}

impl Scene {
    fn start(server: &Server, name: &str, options: &[&str]) -> Self {
        let [end, ran] = ["end", "ran"].map(|file| server.dir().join(format!("{name}-{file}")));
        let made = Command::new("mkfifo").arg(&end).status().expect("there is mkfifo");
        assert!(made.success());
        let (from, to) = (end.display(), ran.display());
        let script = format!("echo ran >>{to}; echo ready; read line <{from}; exit 3");
        let words = [&["run"], options, &[name, "--", "sh", "-c", &script]].concat();
        let tool = tool(server, &words).start_in_its_own_group();
        // Opened for both, it waits for no other side.
        let end = File::options().read(true).write(true).open(&end).expect("our pipe");
        Self { tool, name: name.to_owned(), end, ran }
    }

    async fn stop(&self, by: &str) {
        self.tool.signal(by);
        let stopped = async || state(self.tool.pid()) == Some('T');
        eventually(LONG, &format!("{by} stops the tool of {}", self.name), stopped).await;
    }

    fn end_command(&mut self) {
        self.end.write_all(b"end\n").expect("a pipe");
    }

    fn has_run(&self) -> bool {
        self.ran.exists()
    }
}

#[tokio::test]
async fn a_tool_that_is_stopped_while_it_waits_leaves_the_lock_to_others() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let holder = |name: &str| tool(&server, &["hold", name]).start();
    for by in STOPS {
        let mut first = holder(by);
        first.says("token").await;
        let mut waiter = Scene::start(&server, by, &[]);
        in_line(&admin, by, 1).await;
        waiter.stop(by).await;
        first.signal("TERM");
        assert_eq!(first.code().await, 0);
        let mut next = holder(by);
        next.says("token").await;
        // The grant that it could not answer starts nothing now: it waits again.
        waiter.tool.signal("CONT");
        in_line(&admin, by, 1).await;
        assert!(!waiter.has_run(), "another tool holds the lock");
        next.signal("TERM");
        waiter.tool.says("ready").await;
        waiter.end_command();
        assert_eq!(waiter.tool.code().await, 3, "{}", waiter.tool.complaint());
        assert_eq!(next.code().await, 0);
        assert_eq!(fs::read_to_string(&waiter.ran).expect("it has run"), "ran\n", "once");
        freed(&admin, by).await;
    }
}

#[tokio::test]
async fn a_tool_that_is_told_to_stop_while_it_waits_leaves_the_line() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let holder = tool(&server, &["hold", "a"]).start();
    holder.says("token").await;
    let mut waiter = Scene::start(&server, "a", &[]);
    for _ in 0..2 {
        in_line(&admin, "a", 1).await;
        waiter.stop("TSTP").await;
        in_line(&admin, "a", 0).await;
        waiter.tool.signal("CONT");
    }
    in_line(&admin, "a", 1).await;
    waiter.stop("TSTP").await;
    waiter.tool.signal("INT");
    waiter.tool.signal("CONT");
    assert_eq!(waiter.tool.code().await, 130);
    in_line(&admin, "a", 0).await;
}

/// Waits until the command of the tool is stopped.
async fn command_stopped(scene: &Scene) {
    let stopped = async || command(&scene.tool).and_then(state) == Some('T');
    eventually(LONG, "the command is stopped", stopped).await;
}

fn command(tool: &Tool) -> Option<u32> {
    let keeper = tool.keeper();
    tool.children().into_iter().find(|pid| *pid != keeper)
}

#[tokio::test]
async fn a_tool_that_is_stopped_while_its_command_runs_keeps_the_lock_until_the_command_has_ended()
{
    let server = Server::start().await;
    let admin = server.admin().await;
    for by in ["STOP", "TTIN"] {
        let mut scene = Scene::start(&server, by, &[]);
        scene.tool.says("ready").await;
        scene.stop(by).await;
        assert!(!is_free(&admin, by).await, "the command still runs");
        // Nobody needs the lock once the command has ended, whether the tool can say so or not.
        scene.end_command();
        eventually(LONG, "it is given back", async || is_free(&admin, by).await).await;
        scene.tool.signal("CONT");
        assert_eq!(scene.tool.code().await, 3, "{}", scene.tool.complaint());
    }
}

#[tokio::test]
async fn a_command_that_is_stopped_with_its_tool_keeps_the_lock_and_continues_with_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let mut scene = Scene::start(&server, "a", &[]);
    scene.tool.says("ready").await;
    for _ in 0..2 {
        // Stdin is no terminal here, but the shell that has started the tool waits for it to stop all the same.
        scene.stop("TSTP").await;
        command_stopped(&scene).await;
        assert!(!is_free(&admin, "a").await);
        scene.tool.signal("CONT");
        let runs = async || command(&scene.tool).and_then(state) != Some('T');
        eventually(LONG, "the command continues", runs).await;
    }
    // The command is stopped already when the tool is told to stop.
    signal(command(&scene.tool).expect("it runs"), "STOP");
    scene.stop("TSTP").await;
    command_stopped(&scene).await;
    scene.tool.signal("CONT");
    scene.end_command();
    assert_eq!(scene.tool.code().await, 3);
    freed(&admin, "a").await;
}

#[tokio::test]
async fn a_tool_that_is_stopped_while_it_gives_the_lock_back_gives_it_back() {
    judged(async || {
        let server = Server::start().await;
        let admin = server.admin().await;
        for by in STOPS {
            let mut scene = Scene::start(&server, by, &["--watchdog", "10m"]);
            scene.tool.says("ready").await;
            // It gives the lock back for as long as its keeper does not answer.
            let keeper = scene.tool.keeper();
            signal(keeper, "STOP");
            scene.end_command();
            let ended = async || scene.tool.children() == [keeper];
            eventually(LONG, "the command has ended", ended).await;
            scene.stop(by).await;
            signal(keeper, "CONT");
            freed(&admin, by).await;
            scene.tool.signal("CONT");
            assert_eq!(scene.tool.code().await, 3);
        }
    })
    .await;
}

#[tokio::test]
async fn a_tool_that_leaves_the_line_can_be_stopped() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let holder = tool(&server, &["hold", "a"]).start();
    holder.says("token").await;
    let mut waiter = Scene::start(&server, "a", &["-v"]);
    in_line(&admin, "a", 1).await;
    // It leaves for as long as its keeper does not answer.
    let keeper = waiter.tool.keeper();
    signal(keeper, "STOP");
    waiter.tool.signal("INT");
    let leaves = async || waiter.tool.complaint().contains("interrupted");
    eventually(LONG, "it leaves the line", leaves).await;
    waiter.stop("TSTP").await;
    waiter.tool.signal("CONT");
    signal(keeper, "CONT");
    assert_eq!(waiter.tool.code().await, 130);
    in_line(&admin, "a", 0).await;
}
