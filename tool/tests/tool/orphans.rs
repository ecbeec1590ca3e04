//! The tool as process 1 of a container: the kernel gives it every process whose parent has ended.

use std::process::Command;

use crate::common::Server;
use crate::scene::{held, tool};

/// Runs a program as process 1 of its own namespace.
const AS_PROCESS_1: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

/// Starts an orphan that ends at once, and waits until nothing is left of it.
const ORPHAN: &str = "orphan=$(sleep 0.1 >/dev/null & echo $!); while [ -e /proc/$orphan ]; do sleep 0.02; done; echo reaped";

fn has_namespaces() -> bool {
    let [unshare, options @ ..] = AS_PROCESS_1;
    let made = Command::new(unshare).args(options).arg("true").output();
    let has_them = made.is_ok_and(|made| made.status.success());
    if !has_them {
        eprintln!("left out: this user may not make a namespace of processes");
    }
    has_them
}

#[tokio::test]
async fn process_1_reaps_orphans_and_reports_the_exit_code_of_its_own_command() {
    if !has_namespaces() {
        return;
    }
    let server = Server::start().await;
    for words in [&["run", "a"][..], &["elect", "a"]] {
        let script = format!("{ORPHAN}; exit 42");
        let words = [words, &["--", "sh", "-c", &script]].concat();
        let mut tool = tool(&server, &words).start_by(&AS_PROCESS_1);
        tool.says("reaped").await;
        assert_eq!(tool.code().await, 42, "{}", tool.complaint());
    }
}

#[tokio::test]
async fn an_orphan_that_ends_with_the_command_does_not_hide_its_end() {
    if !has_namespaces() {
        return;
    }
    let server = Server::start().await;
    // Many orphans end at about the time at which the command does.
    let script = "for i in 1 2 3 4 5 6 7 8; do (sleep 0.0$i &); done; sleep 0.05; exit 7";
    for _ in 0..5 {
        let words = ["run", "a", "--", "sh", "-c", script];
        let mut tool = tool(&server, &words).start_by(&AS_PROCESS_1);
        assert_eq!(tool.code().await, 7, "{}", tool.complaint());
    }
}

#[tokio::test]
async fn process_1_reaps_orphans_while_it_keeps_others_out() {
    if !has_namespaces() {
        return;
    }
    let server = Server::start().await;
    // The orphan outlives the command, and tells when nothing is left of a child that it has made an orphan, too.
    let script = format!("({ORPHAN}) >&3 & exit 0");
    let words =
        ["run", "--min-hold", "600", "a", "--", "sh", "-c", &format!("exec 3>&1; {script}")];
    let tool = tool(&server, &words).start_by(&AS_PROCESS_1);
    held(&server.admin().await, "a").await;
    tool.says("reaped").await;
}
