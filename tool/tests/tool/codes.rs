//! Every exit code.

use std::time::Instant;

use crate::common::Server;
use crate::common::impostor::impostor;
use crate::common::port::Port;
use crate::scene::{freed, held, in_line, tool, tool_at};

#[tokio::test]
async fn the_exit_code_is_that_of_the_command() {
    let server = Server::start().await;
    assert_eq!(tool(&server, &["run", "a", "--", "true"]).code().await, 0);
    assert_eq!(tool(&server, &["run", "a", "--", "sh", "-c", "exit 42"]).code().await, 42);
    assert_eq!(tool(&server, &["run", "a", "--", "sh", "-c", "kill -KILL $$"]).code().await, 137);
    assert_eq!(tool(&server, &["run", "a", "--", "sh", "-c", "kill -TERM $$"]).code().await, 143);
    freed(&server.admin().await, "a").await;
}

#[tokio::test]
async fn a_busy_lock_is_1_or_what_the_user_says() {
    let server = Server::start().await;
    let holder = tool(&server, &["hold", "a"]).start();
    holder.says("token").await;
    let run = async |options: &[&str]| {
        let words = [&["run"], options, &["a", "--", "sh", "-c", "echo ran"]].concat();
        let mut tool = tool(&server, &words).start();
        let code = tool.code().await;
        assert_eq!(tool.output(), "", "the command did not run");
        (code, tool.complaint())
    };
    assert_eq!(run(&["-n"]).await.0, 1);
    assert_eq!(run(&["-n", "-q"]).await, (1, String::new()));
    assert_eq!(run(&["-n", "-E", "9"]).await.0, 9);
    assert_eq!(run(&["-n", "-x"]).await, (0, String::new()));
    let asked = Instant::now();
    assert_eq!(run(&["-w", "1"]).await.0, 1);
    assert!(asked.elapsed().as_millis() >= 1_000, "it has waited");
    assert_eq!(run(&["-n", "--json"]).await.1.lines().count(), 1);
    let mut other = tool(&server, &["hold", "-n", "-x", "a"]).start();
    assert_eq!((other.code().await, other.complaint()), (0, String::new()));
    drop(holder);
}

#[tokio::test]
async fn a_name_does_not_control_the_terminal_when_it_is_busy() {
    let server = Server::start().await;
    let name = "a\n\u{1b}[31m";
    let holder = tool(&server, &["hold", name]).start();
    holder.says("token").await;
    let mut other = tool(&server, &["run", "-n", name, "--", "true"]).start();
    assert_eq!(other.code().await, 1);
    let complaint = other.complaint();
    assert!(complaint.starts_with("parklock: a\\n\\u{1b}[31m is held by "), "{complaint}");
    drop(holder);
}

#[tokio::test]
async fn wrong_usage_is_64() {
    let server = Server::start().await;
    for words in [
        &["run"][..],
        &["run", "a"],
        &["run", "a", "true"],
        &["run", "-n", "-w", "1", "a", "--", "true"],
        &["run", "-w", "soon", "a", "--", "true"],
        &["run", "", "--", "true"],
        &["run", "--url", "", "a", "--", "true"],
        &["run", "--permits", "3", "a", "--", "true"],
        &["unlock", "a"],
        &["top", "--deadlocks", "--json"],
        &["nonsense"],
        &[],
    ] {
        assert_eq!(tool(&server, words).code().await, 64, "{words:?}");
    }
    assert_eq!(tool(&server, &["--help"]).code().await, 0);
    assert_eq!(tool(&server, &["--version"]).code().await, 0);
}

#[tokio::test]
async fn a_command_without_its_dashes_is_told_of_them() {
    let server = Server::start().await;
    for words in [&["run", "a", "true"][..], &["elect", "-n", "a", "true", "now"]] {
        let mut tool = tool(&server, words).start();
        assert_eq!(tool.code().await, 64, "{words:?}");
        assert!(tool.complaint().contains("the command comes after `--`"), "{}", tool.complaint());
    }
    for words in [&["run", "a", "--nonsense"][..], &["run", "a"], &["ls", "a", "b"]] {
        let mut tool = tool(&server, words).start();
        assert_eq!(tool.code().await, 64, "{words:?}");
        assert!(!tool.complaint().contains("comes after"), "{}", tool.complaint());
    }
}

#[tokio::test]
async fn redis_that_is_not_there_is_69() {
    let server = Server::start().await;
    let nobody = Port::reserve();
    let url = format!("redis://{}", nobody.address());
    for words in [&["run", "a", "--", "true"][..], &["hold", "a"], &["ls"], &["doctor"], &["top"]] {
        let mut tool = tool_at(&url, server.dir(), words).start();
        assert_eq!(tool.code().await, 69, "{words:?}");
        assert!(tool.complaint().starts_with("parklock: "), "{}", tool.complaint());
    }
}

#[tokio::test]
async fn what_answers_wrongly_is_named() {
    let server = Server::start().await;
    for (answer, meaning) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "what answers there is not Redis"),
        ("-ERR unknown command 'HELLO', with args beginning with: '3' \r\n", "needs RESP3"),
        ("-ERR max number of clients reached\r\n", "maxclients"),
    ] {
        let url = format!("redis://{}", impostor(answer).address());
        let holds =
            [&["run", "a", "--", "true"][..], &["hold", "a"], &["elect", "a", "--", "true"]];
        let looks = [&["ls"][..], &["info", "a"], &["top", "--once"], &["bench"]];
        for words in [&holds[..], &looks, &[&["unlock", "--force", "--yes", "a"]]].concat() {
            let mut tool = tool_at(&url, server.dir(), words).start();
            assert_eq!(tool.code().await, 69, "{words:?}");
            assert!(tool.complaint().contains(meaning), "{words:?}: {}", tool.complaint());
        }
        // To the doctor it is a finding, or the reason why it finds nothing.
        let mut doctor = tool_at(&url, server.dir(), &["doctor"]).start();
        assert_ne!(doctor.code().await, 0);
        let said = doctor.output() + &doctor.complaint();
        assert!(said.contains(meaning), "{said}");
    }
}

#[tokio::test]
async fn a_refusal_is_77() {
    let server = Server::builder().set("requirepass", "secret").start().await;
    let wrong = format!("redis://:wrong@{}", server.address());
    for words in [&["run", "a", "--", "true"][..], &["ls"]] {
        assert_eq!(tool_at(&wrong, server.dir(), words).code().await, 77, "{words:?}");
        assert_eq!(tool(&server, words).code().await, 77, "{words:?}");
    }
    let right = format!("redis://:secret@{}", server.address());
    assert_eq!(tool_at(&right, server.dir(), &["run", "a", "--", "true"]).code().await, 0);
}

#[tokio::test]
async fn settings_that_cannot_work_are_78() {
    let server = Server::start().await;
    let run = async |options: &[&str]| {
        let words = [&["run"], options, &["a", "--", "true"]].concat();
        tool(&server, &words).code().await
    };
    assert_eq!(run(&["--watchdog", "10s", "--max-hold", "2s"]).await, 78);
    assert_eq!(run(&["--watchdog", "1ms"]).await, 78);
    assert_eq!(run(&["--lease", "1ms"]).await, 78);
    assert_eq!(run(&["--url", "http://localhost"]).await, 78);
    assert_eq!(run(&["--kind", "semaphore", "--permits", "0"]).await, 78);
    assert_eq!(run(&["--lease", "2s", "--min-hold", "3s"]).await, 78);
    assert_eq!(run(&["--lease", "2s", "--min-hold", "2s"]).await, 78);
    assert_eq!(run(&["--watchdog", "1s", "--max-hold", "2s", "--min-hold", "3s"]).await, 78);
    let deadlocks = ["top", "--deadlocks", "--layout", "redisson"];
    assert_eq!(tool(&server, &deadlocks).code().await, 78, "its keys do not say who waits");
    let holder = tool(&server, &["hold", "a"]).start();
    holder.says("token").await;
    assert_eq!(run(&["-n", "--kind", "fair"]).await, 78, "the name is used for another kind");
    drop(holder);
}

#[tokio::test]
async fn a_command_that_cannot_be_run_is_126_or_127() {
    let server = Server::start().await;
    let mut missing = tool(&server, &["run", "a", "--", "/no/such/program"]).start();
    assert_eq!(missing.code().await, 127);
    assert!(missing.complaint().contains("/no/such/program"), "{}", missing.complaint());
    assert_eq!(tool(&server, &["run", "a", "--", "no-such-program"]).code().await, 127);
    assert_eq!(tool(&server, &["run", "a", "--", "/etc/passwd"]).code().await, 126);
    assert_eq!(tool(&server, &["run", "a", "--", "/"]).code().await, 126);
    freed(&server.admin().await, "a").await;
}

#[tokio::test]
async fn a_signal_ends_the_waiting_and_the_place_in_line() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let holder = tool(&server, &["hold", "a"]).start();
    held(&admin, "a").await;
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        for words in [&["run", "a", "--", "true"][..], &["hold", "a"]] {
            let mut waiter = tool(&server, words).start();
            in_line(&admin, "a", 1).await;
            waiter.signal(name);
            assert_eq!(waiter.code().await, code, "{name} {words:?}");
            in_line(&admin, "a", 0).await;
        }
    }
    drop(holder);
}
