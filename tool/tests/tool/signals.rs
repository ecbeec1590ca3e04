//! Signals reach the command.

use std::fs;

use crate::common::{Server, eventually, judged};
use crate::scene::{LONG, freed, tool};

#[tokio::test]
async fn each_signal_is_passed_on_to_the_command() {
    let server = Server::start().await;
    let script = "for s in INT TERM HUP QUIT USR1 USR2 WINCH CONT TSTP; do trap \"echo got-$s\" $s; done; \
                  echo ready; while :; do sleep 0.05 & wait; done";
    let tool = tool(&server, &["run", "a", "--", "sh", "-c", script]).start();
    tool.says("ready").await;
    // Each is waited for before the next: the kernel drops a pending TSTP when CONT comes. TSTP stops the sleep, which has no
    // trap; the shell that waits for it runs its own.
    for name in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH", "TSTP", "CONT"] {
        tool.signal(name);
        tool.says(&format!("got-{name}")).await;
    }
}

#[tokio::test]
async fn a_signal_reaches_all_processes_of_the_group() {
    let server = Server::start().await;
    let script = "(trap 'echo inner; exit' TERM; echo child; while :; do sleep 0.05; done) & \
                  trap 'echo outer' TERM; echo parent; wait; wait; exit 7";
    let mut tool = tool(&server, &["run", "a", "--", "sh", "-c", script]).start();
    // Each has set its trap by then.
    tool.says("child").await;
    tool.says("parent").await;
    tool.signal("TERM");
    assert_eq!(tool.code().await, 7);
    assert!(tool.output().contains("inner") && tool.output().contains("outer"));
}

#[tokio::test]
async fn a_signal_that_was_ignored_before_stays_ignored() {
    let server = Server::start().await;
    let call = tool(&server, &["run", "a", "--", "sh", "-c", "echo ready; sleep 1; echo done"]);
    // As nohup does it.
    let mut tool = call.start_by(&["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]);
    tool.says("ready").await;
    tool.signal("HUP");
    assert_eq!(tool.code().await, 0);
    assert!(tool.output().contains("done"));
}

#[tokio::test]
async fn the_lock_is_given_back_after_the_command_has_ended_and_not_before() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let script = "trap 'sleep 0.5; echo end; exit 3' INT; echo ready; while :; do sleep 0.05; done";
    let mut tool = tool(&server, &["run", "a", "--", "sh", "-c", script]).start();
    tool.says("ready").await;
    tool.signal("INT");
    // Look at the lock first: the command may end between the two looks.
    freed(&admin, "a").await;
    assert!(tool.output().contains("end"), "the lock is free before the command has ended");
    assert_eq!(tool.code().await, 3);
}

#[tokio::test]
async fn a_second_signal_while_giving_back_leaves_at_once() {
    judged(async || {
        let server = Server::start().await;
        let end = server.dir().join("end");
        let script =
            format!("echo ready; until [ -e {} ]; do sleep 0.05; done; exit 4", end.display());
        let mut tool = tool(&server, &["run", "a", "--", "sh", "-c", &script]).start();
        tool.says("ready").await;
        server.pause();
        fs::write(&end, "").expect("a file");
        // The command ends, and the server does not take the lock back.
        let ended = async || tool.children() == [tool.keeper()];
        eventually(LONG, "the command has ended", ended).await;
        tool.signal("INT");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        assert!(tool.is_running(), "it waits for an answer");
        // The kernel makes one signal of two that wait. So the second one is sent until it has come.
        let has_ended = async || {
            tool.signal("INT");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            !tool.is_running()
        };
        // Far less than the lease of thirty seconds.
        eventually(LONG / 4, "it leaves", has_ended).await;
        assert_eq!(tool.code().await, 4);
        assert!(tool.complaint().contains("the lease will free"), "{}", tool.complaint());
        server.resume();
    })
    .await;
}

#[tokio::test]
async fn hold_leaves_a_signal_ignored_that_was_ignored_before() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let holder = tool(&server, &["hold", "a"]).start();
    holder.says("token").await;
    // As nohup does it.
    let call = tool(&server, &["hold", "a"]);
    let mut waiter = call.start_by(&["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]);
    let waits = async || admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == 1;
    eventually(LONG, "it waits in line", waits).await;
    waiter.signal("HUP");
    waiter.signal("INT");
    assert_eq!(waiter.code().await, 130, "it ends by INT");
    drop(holder);
}
