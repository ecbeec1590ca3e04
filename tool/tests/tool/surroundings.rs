//! Where the tool is called from: a pipe, cron, timeout(1).

use std::process::{Command, Stdio};

use crate::common::Server;
use crate::scene::{PROGRAM, command_line, freed, has_script, is_free, tool};

/// Runs a line of a shell that knows the tool as `$parklock` and the server as `$PARKLOCK_URL`.
async fn shell(server: &Server, line: &str) -> (i32, String) {
    let (url, line) = (server.url(), line.to_owned());
    let output = tokio::task::spawn_blocking(move || {
        let mut command = Command::new("sh");
        command.args(["-c", &line]).env("parklock", PROGRAM).env("PARKLOCK_URL", url);
        command.stdin(Stdio::null()).output().expect("there is a shell")
    });
    let output = output.await.expect("no panic");
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn timeout_ends_the_tool_and_its_command() {
    let server = Server::start().await;
    let ended = shell(&server, "timeout 1 $parklock run a -- sleep 60").await;
    assert_eq!(ended, (124, String::new()));
    let ended = shell(&server, "timeout --preserve-status 1 $parklock run a -- sleep 60").await;
    assert_eq!(ended.0, 143);
    freed(&server.admin().await, "a").await;
}

#[tokio::test]
async fn stdin_and_stdout_are_the_commands() {
    let server = Server::start().await;
    let piped = shell(&server, "printf 'b\\na\\n' | $parklock run a -- sort | tr a-z A-Z").await;
    assert_eq!(piped, (0, "A\nB\n".to_owned()));
    // The command ends as it would without the tool when nobody reads on: by SIGPIPE.
    let line = "{ $parklock run a -- yes; echo $? >&2; } 2>&1 >/dev/full | tail -n 1; \
                { $parklock run a -- sh -c 'yes; exit $?'; echo $? >&3; } 3>&1 | head -n 1";
    let cut = shell(&server, line).await.1;
    assert!(cut.contains("y\n") && cut.lines().any(|line| line == "1"), "{cut}");
    freed(&server.admin().await, "a").await;
}

#[tokio::test]
async fn a_reader_may_close_the_pipe_of_a_list() {
    let server = Server::start().await;
    assert_eq!(
        shell(&server, "$parklock ls | head -n 0; $parklock ls --json | wc -l").await.1.trim(),
        "0"
    );
    assert_eq!(shell(&server, "$parklock top | head -c 4").await, (0, "NAME".to_owned()));
}

#[tokio::test]
async fn a_list_that_cannot_be_written_is_a_failure() {
    let server = Server::start().await;
    for words in ["ls", "doctor --json", "man", "completions bash"] {
        let line = format!("$parklock {words} 2>&1 >/dev/full");
        let (code, complaint) = shell(&server, &line).await;
        assert_eq!(code, 71, "{words}");
        assert!(complaint.contains("could not write"), "{complaint}");
    }
}

#[tokio::test]
async fn a_hold_whose_line_cannot_be_written_is_given_back() {
    let server = Server::start().await;
    let (code, complaint) = shell(&server, "timeout 20 $parklock hold a 2>&1 >/dev/full").await;
    assert_eq!(code, 71, "{complaint}");
    assert!(complaint.starts_with("parklock: could not write"), "{complaint}");
    assert!(is_free(&server.admin().await, "a").await);
}

#[tokio::test]
async fn a_hold_whose_reader_has_gone_is_given_back() {
    let server = Server::start().await;
    let pipe = server.dir().join("pipe");
    let pipe = pipe.display();
    // The reader opens the pipe, and has gone before the tool starts.
    let line = format!(
        "mkfifo {pipe}; : <{pipe} & exec 3>{pipe}; wait; timeout 60 $parklock hold a 2>&1 >&3"
    );
    let (code, complaint) = shell(&server, &line).await;
    assert_eq!(code, 71, "{complaint}");
    assert!(complaint.starts_with("parklock: could not write"), "{complaint}");
    assert!(is_free(&server.admin().await, "a").await);
}

#[tokio::test]
async fn the_tool_needs_no_environment_variables() {
    let server = Server::start().await;
    let line = "env -i $parklock run --url $PARKLOCK_URL a -- /usr/bin/env";
    let (code, variables) = shell(&server, line).await;
    assert_eq!(code, 0);
    let names: Vec<_> =
        variables.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let ours =
        ["PARKLOCK_HELD", "PARKLOCK_LEASE_MS", "PARKLOCK_NAME", "PARKLOCK_OUTER", "PARKLOCK_TOKEN"];
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ours, "it adds these and nothing else");
    let line = "cd / && env -i SHELL=/bin/sh HOME=/ PATH=/usr/bin:/bin $parklock run -nx --url $PARKLOCK_URL a -- true";
    assert_eq!(shell(&server, line).await.0, 0);
}

#[tokio::test]
async fn the_keeper_does_not_show_the_url_to_other_users() {
    let server = Server::start().await;
    let url = server.url().replace("redis://", "redis://default:sesame@");
    server.admin().await.cmd::<()>(&["CONFIG", "SET", "requirepass", "sesame"]).await;
    let words = ["run", "--url", &url, "a", "--", "sh", "-c", "echo ready; sleep 60"];
    let tool = tool(&server, &words).start();
    tool.says("ready").await;
    let keeper = command_line(tool.keeper());
    assert!(keeper.contains("--keep run a --") && !keeper.contains("sesame"), "{keeper}");
}

#[tokio::test]
async fn redis_url_is_used_if_there_is_no_other() {
    let server = Server::start().await;
    let line = "REDIS_URL=$PARKLOCK_URL PARKLOCK_URL= $parklock run a -- true";
    assert_eq!(shell(&server, line).await.0, 0);
    assert_eq!(tool(&server, &["run", "a", "--", "true"]).code().await, 0);
}

#[tokio::test]
async fn the_command_inherits_no_connection() {
    let server = Server::start().await;
    let line =
        "$parklock run a -- sh -c 'ls -l /proc/$$/fd' | grep -c -e socket -e timerfd -e signalfd";
    assert_eq!(shell(&server, line).await.1.trim(), "0");
}

/// At a terminal that script(1) makes. What it prints has the ends of lines of a terminal.
async fn at_terminal(server: &Server, keys: &str, command: &str) -> String {
    let ready = server.dir().join(format!("ready-{:x}", fastrand::u64(..)));
    let ready = ready.display();
    // Nothing is typed before the command runs, and the terminal stays open until it has ended.
    let keys = format!(
        "there_is() {{ n=0; until [ -e $1 ] || [ $n -ge 1200 ]; do sleep 0.05; n=$((n+1)); done; }}; \
         there_is {ready}; {keys}; there_is {ready}-over"
    );
    let line = format!(
        "$parklock run a -- sh -c 'touch {ready}; {command}'; echo code \\$?; touch {ready}-over"
    );
    let script = format!("env --default-signal SHELL=/bin/sh script -qec \"{line}\" /dev/null");
    shell(server, &format!("({keys}) | {script}")).await.1.replace('\r', "")
}

#[tokio::test]
async fn at_a_terminal_the_command_has_the_keys() {
    if !has_script() {
        return;
    }
    let server = Server::start().await;
    let read = at_terminal(&server, "printf 'typed\\n\\004'", "cat; exit 5").await;
    assert_eq!(read.matches("typed").count(), 2, "once by the terminal, once by cat: {read}");
    assert!(read.contains("code 5"), "{read}");
    let cut = at_terminal(&server, "printf '\\003'", "exec sleep 60").await;
    assert!(cut.contains("code 130"), "{cut}");
    freed(&server.admin().await, "a").await;
}
