//! The command does not outlive its lock.

use std::io::Write;
use std::time::Duration;
use std::{fs, io};

use tokio::time::sleep;

use crate::common::{Server, eventually, judged};
use crate::scene::{LONG, Tool, freed, held, is_free, last_sign, signal, stubborn, tool, uptime};

/// A tool with a stubborn command, and the file with its signs of life.
async fn started(server: &Server, options: &[&str]) -> (Tool, std::path::PathBuf) {
    let life = server.dir().join("life");
    let script = stubborn(&life);
    let words = [&["run"], options, &["a", "--", "sh", "-c", &script]].concat();
    let tool = tool(server, &words).start();
    tool.says("ready").await;
    eventually(LONG, "it lives", async || life.exists()).await;
    (tool, life)
}

#[tokio::test]
async fn a_lock_that_was_deleted_ends_the_command_by_the_next_renewal() {
    judged(async || {
        let server = Server::start().await;
        let admin = server.admin().await;
        let (mut tool, life) = started(&server, &["--watchdog", "6s"]).await;
        let deleted = uptime();
        admin.cmd::<()>(&["DEL", "lock:{a}"]).await;
        assert_eq!(tool.code().await, 75);
        // The server says so at once, or at a renewal, which comes after a third of the lease.
        let lived = last_sign(&life).await - deleted;
        assert!(lived < 4.0, "{lived}");
        let told = tool.complaint();
        assert!(told.contains("the lock a is lost: the server no longer has it"), "{told}");
        assert!(
            !tool.output().contains("term"),
            "another may have the lock already: there is no time for TERM"
        );
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_stopped_ends_the_command_before_the_deadline() {
    judged(async || {
        let server = Server::start().await;
        let (mut tool, life) = started(&server, &["--watchdog", "12s"]).await;
        let stopped = uptime();
        server.pause();
        assert_eq!(tool.code().await, 75);
        let lived = last_sign(&life).await - stopped;
        // The last renewal was asked for before the server stopped.
        assert!(lived < 12.0, "{lived}");
        assert!(tool.output().contains("term"), "it was warned");
        server.resume();
    })
    .await;
}

#[tokio::test]
async fn a_command_that_heeds_the_warning_ends_by_itself() {
    let server = Server::start().await;
    let script = "trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    // It has a third of the lease for that.
    let words = ["run", "-k", "10", "a", "--", "sh", "-c", script];
    let mut tool = tool(&server, &words).start();
    tool.says("ready").await;
    server.pause();
    assert_eq!(tool.code().await, 75, "its work was cut off");
    assert!(tool.output().contains("term"));
    server.resume();
}

#[tokio::test]
async fn without_a_warning_the_command_is_killed_before_the_deadline() {
    judged(async || {
        let server = Server::start().await;
        let (mut tool, life) = started(&server, &["--watchdog", "4s", "--on-lost", "kill"]).await;
        let stopped = uptime();
        server.pause();
        assert_eq!(tool.code().await, 75);
        let lived = last_sign(&life).await - stopped;
        assert!(lived < 4.0, "{lived}");
        assert!(!tool.output().contains("term"));
        server.resume();
    })
    .await;
}

/// As with `2>&1 | less`, or after Ctrl-S at a terminal.
#[tokio::test]
async fn the_command_does_not_outlive_the_lock_although_nobody_reads_stderr() {
    judged(async || {
        let server = Server::start().await;
        let life = server.dir().join("life");
        let (_reader, mut full) = io::pipe().expect("a pipe");
        full.write_all(&[b'x'; 65_536]).expect("so much fits into a pipe");
        // The shell would wait for space when it reports that its `sleep` was terminated.
        let script = format!("exec 2>/dev/null; {}", stubborn(&life));
        let words = ["run", "-vv", "--watchdog", "6s", "a", "--", "sh", "-c", &script];
        let mut tool = tool(&server, &words).start_with_stderr(full);
        tool.says("ready").await;
        eventually(LONG, "it lives", async || life.exists()).await;
        let stopped = uptime();
        server.pause();
        assert_eq!(tool.code().await, 75);
        let lived = last_sign(&life).await - stopped;
        assert!(lived < 6.0, "{lived}");
        assert!(tool.output().contains("term"), "it was warned");
        server.resume();
    })
    .await;
}

#[tokio::test]
async fn a_loss_that_is_ignored_is_told_by_the_exit_code() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let script = "echo ready; sleep 3; echo done";
    let words = ["run", "--watchdog", "2s", "--on-lost", "ignore", "a", "--", "sh", "-c", script];
    let mut tool = tool(&server, &words).start();
    tool.says("ready").await;
    admin.cmd::<()>(&["DEL", "lock:{a}"]).await;
    assert_eq!(tool.code().await, 75);
    assert!(tool.output().contains("done"));
}

#[tokio::test]
async fn a_tool_that_is_stopped_keeps_its_lock_since_its_keeper_goes_on() {
    judged(async || {
        let server = Server::start().await;
        let admin = server.admin().await;
        let words =
            ["run", "--watchdog", "6s", "a", "--", "sh", "-c", "echo ready; sleep 10; exit 5"];
        let mut tool = tool(&server, &words).start();
        tool.says("ready").await;
        tool.signal("STOP");
        for _ in 0..80 {
            assert!(!is_free(&admin, "a").await);
            sleep(Duration::from_millis(100)).await;
        }
        tool.signal("CONT");
        assert_eq!(tool.code().await, 5);
        freed(&admin, "a").await;
    })
    .await;
}

#[tokio::test]
async fn the_command_of_a_tool_that_is_stopped_does_not_outlive_the_lock() {
    judged(async || {
        let server = Server::start().await;
        let (mut tool, life) = started(&server, &["--watchdog", "12s"]).await;
        tool.signal("STOP");
        let stopped = uptime();
        server.pause();
        let lived = last_sign(&life).await - stopped;
        assert!(lived < 12.0, "{lived}");
        server.resume();
        tool.signal("CONT");
        assert_eq!(tool.code().await, 75);
    })
    .await;
}

#[tokio::test]
async fn a_keeper_that_is_stopped_does_not_keep_the_command_alive() {
    judged(async || {
        let server = Server::start().await;
        let (mut tool, life) = started(&server, &["--watchdog", "12s"]).await;
        let keeper = tool.keeper();
        signal(keeper, "STOP");
        let stopped = uptime();
        assert_eq!(tool.code().await, 75);
        let lived = last_sign(&life).await - stopped;
        assert!(lived < 12.0, "{lived}");
        signal(keeper, "CONT");
    })
    .await;
}

#[tokio::test]
async fn when_both_processes_were_stopped_past_the_lease_the_command_is_killed_at_once() {
    judged(async || {
        let server = Server::start().await;
        let admin = server.admin().await;
        let (mut tool, life) = started(&server, &["--watchdog", "2s"]).await;
        let keeper = tool.keeper();
        signal(keeper, "STOP");
        tool.signal("STOP");
        freed(&admin, "a").await;
        let woken = uptime();
        signal(keeper, "CONT");
        tool.signal("CONT");
        assert_eq!(tool.code().await, 75);
        let lived = last_sign(&life).await - woken;
        // Far less than `--kill-after`.
        assert!(lived < 4.0, "{lived}");
    })
    .await;
}

#[tokio::test]
async fn the_command_of_a_tool_that_is_killed_ends_and_the_lock_is_given_back() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let script = "trap 'echo term; exit' TERM; echo ready; while :; do sleep 0.02; done";
    let mut tool = tool(&server, &["run", "a", "--", "sh", "-c", script]).start();
    tool.says("ready").await;
    tool.signal("KILL");
    assert_eq!(tool.code().await, 137);
    tool.says("term").await;
    freed(&admin, "a").await;
}

#[tokio::test]
async fn a_stubborn_command_of_a_tool_that_is_killed_is_dead_before_the_lock_is_free() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (tool, life) = started(&server, &["-k", "8"]).await;
    tool.signal("KILL");
    freed(&admin, "a").await;
    let free = uptime();
    assert!(last_sign(&life).await <= free + 0.02, "it was dead when the lock was free");
    assert!(tool.output().contains("term"));
}

#[tokio::test]
async fn a_keeper_that_is_killed_ends_the_command() {
    let server = Server::start().await;
    let (mut tool, life) = started(&server, &["-k", "0.3"]).await;
    signal(tool.keeper(), "KILL");
    let killed = uptime();
    assert_eq!(tool.code().await, 75);
    let lived = last_sign(&life).await - killed;
    // Far less than the lease of thirty seconds.
    assert!(lived < 15.0, "{lived}");
    assert!(tool.complaint().contains("the process that renews a has ended"));
}

#[tokio::test]
async fn what_the_command_has_started_ends_with_it() {
    judged(async || {
        let server = Server::start().await;
        let admin = server.admin().await;
        let life = server.dir().join("life");
        let inner = stubborn(&life);
        fs::write(server.dir().join("inner.sh"), inner).expect("a file");
        let script = format!("sh {} & wait; wait", server.dir().join("inner.sh").display());
        let words = ["run", "--watchdog", "2s", "a", "--", "sh", "-c", &script];
        let mut tool = tool(&server, &words).start();
        tool.says("ready").await;
        eventually(LONG, "it lives", async || life.exists()).await;
        let deleted = uptime();
        admin.cmd::<()>(&["DEL", "lock:{a}"]).await;
        assert_eq!(tool.code().await, 75);
        assert!(last_sign(&life).await - deleted < 2.0);
    })
    .await;
}

#[tokio::test]
async fn a_hold_is_not_renewed_past_its_greatest_length() {
    let server = Server::start().await;
    let words = ["run", "--watchdog", "2s", "--max-hold", "2s", "a", "--", "sleep", "60"];
    let mut limited = tool(&server, &words).start();
    assert_eq!(limited.code().await, 75);
    assert!(limited.complaint().contains("its --max-hold is over"), "{}", limited.complaint());
    let mut held = tool(&server, &["hold", "--lease", "6s", "c"]).start();
    assert_eq!(held.code().await, 75);
    assert!(held.complaint().contains("the lock c is lost: its lease is over"));
    let words = ["hold", "--watchdog", "3s", "--max-hold", "3s", "d"];
    let mut held = tool(&server, &words).start();
    assert_eq!(held.code().await, 75);
    let told = held.complaint();
    assert!(told.contains("the lock d is lost: its --max-hold is over"), "{told}");
    let words = ["run", "--lease", "10s", "b", "--", "sleep", "60"];
    let mut fixed = tool(&server, &words).start();
    assert_eq!(fixed.code().await, 75, "a fixed lease is not renewed");
    let said = fixed.complaint();
    assert!(said.contains("the lease of b runs out") && !said.contains("renewed"), "{said}");
}

/// The release finds that the lock is gone, and not why.
#[tokio::test]
async fn a_loss_within_the_least_hold_is_told_in_words_that_are_true_whatever_ended_the_lock() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let words = ["run", "-v", "--watchdog", "3s", "--min-hold", "600", "a", "--", "true"];
    for is_deleted in [true, false] {
        let mut tool = tool(&server, &words).start();
        let ended = async || tool.complaint().contains("the command ended with 0");
        eventually(LONG, "the command ends", ended).await;
        match is_deleted {
            true => admin.cmd::<()>(&["DEL", "lock:{a}"]).await,
            false => server.pause(),
        }
        assert_eq!(tool.code().await, 75);
        let said = tool.complaint();
        let why = "the lock a is lost: the server no longer has it, or its lease is over\n";
        assert!(said.contains(why), "{said}");
    }
    server.resume();
}

/// `hold` was told to end, and keeps others out until `--min-hold` is over.
#[tokio::test]
async fn a_hold_that_keeps_others_out_ends_when_its_lock_is_lost() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let words = ["hold", "--watchdog", "3s", "--min-hold", "600", "a"];
    let mut tool = tool(&server, &words).start();
    held(&admin, "a").await;
    tool.signal("TERM");
    admin.cmd::<()>(&["DEL", "lock:{a}"]).await;
    assert_eq!(tool.code().await, 75);
}

#[tokio::test]
async fn a_command_whose_loss_would_be_ignored_may_use_its_whole_lease() {
    let server = Server::start().await;
    let admin = server.admin().await;
    // The tool counts the lock as lost a hundredth of the lease before the server does. A fiftieth before that moment, it would
    // kill another command.
    let (end, nearly) = (server.dir().join("end"), Duration::from_millis(250));
    let script = format!("until [ -e {} ]; do sleep 0.005; done", end.display());
    let words = ["run", "--lease", "10s", "--on-lost", "ignore", "a", "--", "sh", "-c", &script];
    // The command has a tenth of a second to end. A busy machine may need more. Then the lock is lost indeed.
    for _ in 0..5 {
        let _ = fs::remove_file(&end);
        let mut tool = tool(&server, &words).start();
        held(&admin, "a").await;
        while admin.pttl("lock:{a}").await > nearly.as_millis() as i64 {
            sleep(Duration::from_millis(2)).await;
        }
        fs::write(&end, "").expect("a file");
        match tool.code().await {
            0 => return,
            code => assert_eq!(code, 75),
        }
    }
    panic!("it is told of a loss each time");
}
