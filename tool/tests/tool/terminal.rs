//! A user at a terminal: Ctrl-Z, `fg`, Ctrl-C. `script` makes the terminal, and a shell with job control runs in it.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parklock::Config;

use crate::common::child::{self, Child};
use crate::common::fixture::comes_in;
use crate::common::{Admin, Cluster, Server, eventually};
use crate::scene::{
    AS_IN_THE_FOREGROUND, LONG, PROGRAM, freed, has_script, held, is_free, signal, tool, tool_at,
};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// Has the shell show how the last command ended. In the environment the prompt would be lost: the shell that `script` starts
/// this one with drops it.
const PROMPT: &str = "PS1='[code-$?] '\n";

/// The prompt after SIGTSTP (20), which Ctrl-Z sends, has stopped the tool.
const STOPPED: &str = "[code-148]";

/// A shell at a terminal.
struct Shell {
    _script: Child,
    keyboard: File,
    screen: PathBuf,
    /// How much of the screen was read.
    seen: usize,
}

impl Shell {
    async fn start(server: &Server) -> Self {
        let [keys, screen] = ["keyboard", "screen"].map(|file| server.dir().join(file));
        let made = Command::new("mkfifo").arg(&keys).status().expect("there is mkfifo");
        assert!(made.success());
        // Opened for both, it waits for no other side.
        let keyboard = File::options().read(true).write(true).open(&keys).expect("our pipe");
        let mut command = child::command(AS_IN_THE_FOREGROUND[0]);
        command
            .args(&AS_IN_THE_FOREGROUND[1..])
            .arg("script")
            .args(["--quiet", "--flush", "--command", "bash --norc --noprofile -i"])
            .arg(&screen)
            .env("PARKLOCK_URL", server.url())
            .env_remove("REDIS_URL")
            .stdin(keyboard.try_clone().expect("a second handle"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut shell = Self { _script: Child::start(command), keyboard, screen, seen: 0 };
        shell.types(PROMPT);
        shell.shows("[code-0]").await;
        shell
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a pipe");
    }

    /// What was on the screen since the last words that it was asked for.
    fn screen(&self) -> String {
        let all = fs::read(&self.screen).unwrap_or_default();
        String::from_utf8_lossy(&all[self.seen.min(all.len())..]).into_owned()
    }

    /// Waits until these words appear on the screen, after those that it was asked for before.
    async fn shows(&mut self, words: &str) {
        let mut end = None;
        let shown = async || {
            end = self.screen().find(words).map(|at| at + words.len());
            end.is_some()
        };
        eventually(LONG, &format!("the terminal shows {words:?}"), shown).await;
        self.seen += end.expect("it is there");
    }

    /// Ctrl-Z stops the job, which keeps the lock `a`, and `fg` continues it: then these words appear.
    async fn stops_and_continues(&mut self, admin: &Admin, words: &str) {
        self.types(CTRL_Z);
        self.shows(STOPPED).await;
        assert!(!is_free(admin, "a").await, "the lock stays held");
        self.types("fg\n");
        self.shows(words).await;
    }

    /// Ctrl-C ends the job, which gives the lock `a` back.
    async fn interrupts(&mut self, admin: &Admin) {
        self.types(CTRL_C);
        self.shows("[code-130]").await;
        freed(admin, "a").await;
    }
}

/// A server, a connection to it, and a shell whose tools use it. `None` where `script` is missing.
async fn stage() -> Option<(Server, Admin, Shell)> {
    if !has_script() {
        return None;
    }
    let server = Server::start().await;
    let (admin, shell) = (server.admin().await, Shell::start(&server).await);
    Some((server, admin, shell))
}

#[tokio::test]
async fn ctrl_z_stops_the_command_while_the_lock_stays_held_and_fg_continues_it() {
    let Some((_server, admin, mut shell)) = stage().await else { return };
    // What the shell echoes is not what the command prints. The command starts no process: a shell that Ctrl-Z hits between
    // vfork and exec of a child cannot stop, in any terminal.
    let script = "trap \"echo con\"\"tinued\" CONT; echo rea\"\"dy; while :; do read line; done";
    shell.types(&format!("{PROGRAM} run a -- sh -c '{script}'\n"));
    shell.shows("ready").await;
    shell.stops_and_continues(&admin, "continued").await;
    shell.interrupts(&admin).await;
    // The shell has its terminal again.
    shell.types("echo $((40 + 2))\n");
    shell.shows("42").await;
}

#[tokio::test]
async fn ctrl_z_stops_a_tool_that_waits_and_ctrl_c_ends_it() {
    let Some((server, admin, mut shell)) = stage().await else { return };
    let holder = tool(&server, &["hold", "a"]).start();
    held(&admin, "a").await;
    shell.types(&format!("{PROGRAM} run a -- true\n"));
    shell.shows("waiting for a, held by parklock-hold@").await;
    let stands = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == 1;
    eventually(LONG, "the tool waits in line", stands).await;
    shell.types(CTRL_Z);
    shell.shows(STOPPED).await;
    shell.types("fg\n");
    shell.shows("run a").await; // the shell says which job goes on
    shell.types(CTRL_C);
    shell.shows("[code-130]").await;
    let left = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == 0;
    eventually(LONG, "nobody stands in line", left).await;
    drop(holder);
}

#[tokio::test]
async fn a_command_that_began_in_the_background_has_the_keys_after_fg() {
    let Some((server, admin, mut shell)) = stage().await else { return };
    for begins_to_read in ["before fg", "after fg"] {
        let go = server.dir().join("go");
        let script = format!(
            "echo rea\"\"dy; until [ -e {} ]; do sleep 0.02; done; read x; echo got-$x; read x",
            go.display()
        );
        shell.types(&format!("{PROGRAM} run a -- sh -c '{script}' &\n"));
        shell.shows("ready").await;
        if begins_to_read == "before fg" {
            fs::write(&go, "").expect("a file");
            // The command stops, and the tool with it. The shell says so before a prompt.
            let told = async || {
                shell.types("\n");
                shell.screen().contains("Stopped")
            };
            eventually(LONG, "the tool is stopped", told).await;
            shell.seen = fs::read(&shell.screen).expect("a file").len();
        }
        shell.types("fg\n");
        shell.shows("run a").await;
        fs::write(&go, "").expect("a file");
        shell.types("hello\n");
        shell.shows("got-hello").await;
        shell.stops_and_continues(&admin, "run a").await;
        shell.interrupts(&admin).await;
        fs::remove_file(&go).expect("our file");
    }
}

#[tokio::test]
async fn ctrl_z_stops_a_tool_whose_stdin_is_no_terminal() {
    let Some((_server, admin, mut shell)) = stage().await else { return };
    // A shell that Ctrl-Z hits while it starts a process cannot stop.
    let script = "echo rea\"\"dy; exec sleep 600";
    shell.types(&format!("{PROGRAM} run a -- sh -c '{script}' </dev/null\n"));
    shell.shows("ready").await;
    shell.stops_and_continues(&admin, "run a").await;
    shell.interrupts(&admin).await;
}

#[tokio::test]
async fn the_next_program_of_a_pipeline_has_the_keys_until_the_command_wants_them() {
    let Some((server, admin, mut shell)) = stage().await else { return };
    let go = server.dir().join("go");
    let command = format!(
        "echo piped; until [ -e {} ]; do sleep 0.02; done; read x; echo $x; read x",
        go.display()
    );
    let next = "read line; echo rea\"\"dy; read x </dev/tty; echo got-$x; read x; echo piped-$x";
    shell.types(&format!("{PROGRAM} run a -- sh -c '{command}' | sh -c '{next}'\n"));
    shell.shows("ready").await;
    shell.types("hello\n");
    shell.shows("got-hello").await;
    fs::write(&go, "").expect("a file");
    shell.types("more\n");
    shell.shows("piped-more").await;
    shell.types(CTRL_C);
    shell.shows("[code-0]").await;
    freed(&admin, "a").await;
}

#[tokio::test]
async fn ctrl_z_stops_the_script_that_has_called_the_tool() {
    let Some((server, admin, mut shell)) = stage().await else { return };
    let inner = "echo rea\"\"dy; read x; echo got-$x";
    let file = server.dir().join("script.sh");
    fs::write(&file, format!("{PROGRAM} run a -- sh -c '{inner}'\nexit 7\n")).expect("a file");
    shell.types(&format!("sh {}\n", file.display()));
    shell.shows("ready").await;
    shell.stops_and_continues(&admin, "script.sh").await;
    shell.types("hello\n");
    shell.shows("got-hello").await;
    shell.shows("[code-7]").await;
    freed(&admin, "a").await;
}

#[tokio::test]
async fn the_log_does_not_stop_the_tool_at_a_terminal_that_stops_writers_in_the_background() {
    let Some((_server, _, mut shell)) = stage().await else { return };
    shell.types(&format!("stty tostop; {PROGRAM} run -vv a -- echo r\"\"an\n"));
    shell.shows("ran").await;
    shell.shows("[code-0]").await;
}

#[tokio::test]
async fn top_can_be_quit_while_the_server_does_not_answer() {
    let Some((server, _, mut shell)) = stage().await else { return };
    // The terminal that `script` makes has no size.
    shell.types(&format!("stty rows 24 cols 100; {PROGRAM} top --interval 100ms\n"));
    shell.shows("NAME").await;
    server.pause();
    let typed = Instant::now();
    shell.types("q");
    shell.shows("[code-0]").await;
    // The tool would wait this long for an answer.
    assert!(typed.elapsed() < Duration::from_secs(10), "{:?}", typed.elapsed());
    server.resume();
}

#[tokio::test]
async fn top_leaves_the_terminal_as_it_was_when_a_signal_ends_it() {
    let Some((server, _, mut shell)) = stage().await else { return };
    let file = server.dir().join("pid");
    for (name, code) in [("TERM", 143), ("HUP", 129), ("INT", 130), ("QUIT", 131)] {
        shell.types(&format!(
            "stty rows 24 cols 100; sh -c 'echo $$ >{}; exec {PROGRAM} top'\n",
            file.display()
        ));
        shell.shows("NAME").await;
        let pid = fs::read_to_string(&file).expect("it runs").trim().parse().expect("a number");
        signal(pid, name);
        shell.shows("\x1b[?1049l").await; // back from the alternate screen
        shell.shows(&format!("[code-{code}]")).await;
    }
}

#[tokio::test]
async fn a_lock_is_not_taken_from_a_holder_that_the_user_was_not_asked_about() {
    let Some((server, _, mut shell)) = stage().await else { return };
    let [old, new] = [(); 2].map(|()| comes_in(server.url(), Config::default()));
    let (old, new) = (old.await, new.await);
    let guard = old.lock("a").lock().await.expect("free");
    shell.types(&format!("{PROGRAM} unlock --force a\n"));
    shell.shows("[y/N]").await;
    guard.unlock().await.expect("it was ours");
    let guard = new.lock("a").lock().await.expect("free");
    shell.types("y\n");
    shell.shows(" now; nothing was done").await;
    shell.shows("[code-1]").await;
    guard.unlock().await.expect("nobody has taken it");
}

#[tokio::test]
async fn a_lock_that_comes_free_before_it_is_taken_away_was_held_by_nobody() {
    let Some((server, _, mut shell)) = stage().await else { return };
    let client = comes_in(server.url(), Config::default()).await;
    let guard = client.lock("a").lock().await.expect("free");
    shell.types(&format!("{PROGRAM} unlock --force a\n"));
    shell.shows("[y/N]").await;
    guard.unlock().await.expect("it was ours");
    shell.types("y\n");
    shell.shows("nobody holds it any more").await;
    shell.shows("[code-1]").await;
}

#[tokio::test]
async fn a_primary_that_hangs_does_not_stop_the_view_of_the_others() {
    if !has_script() {
        return;
    }
    let cluster = Cluster::start().await;
    let (url, dir) = (cluster.url_of(1), cluster.nodes[1].dir());
    let mut shell = Shell::start(&cluster.nodes[1]).await;
    shell.types(&format!("stty rows 24 cols 140; {PROGRAM} top --interval 100ms --url {url}\n"));
    shell.shows("NAME").await;
    cluster.nodes[0].pause();
    let began = Instant::now();
    shell.shows(&cluster.nodes[0].address().to_string()).await;
    let name = cluster.names_at(1, "here:", 1).remove(0);
    let holder = tool_at(&url, dir, &["hold", &name]).start();
    holder.says("token").await;
    shell.shows(&name).await;
    // The tool would wait this long for an answer of the primary that hangs.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    shell.types("q");
    shell.shows("[code-0]").await;
    cluster.nodes[0].resume();
}
