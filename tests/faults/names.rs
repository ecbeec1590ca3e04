//! Names that are empty, too long, or mean something else to a program that reads them.

use parklock::Error;

use crate::common::{Server, eventually, timeout};
use crate::log::Log;
use crate::{SOON, connect, patient};

/// F76: names that are empty or too long.
#[tokio::test]
async fn an_impossible_name_is_refused_before_any_request() {
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    admin.reset_stats().await;
    for name in [String::new(), "x".repeat(1025), "x".repeat(65_536), "ä".repeat(513)] {
        let lock = client.lock(&name);
        for error in [
            lock.lock().await.map(drop).unwrap_err(),
            lock.try_lock().await.map(drop).unwrap_err(),
            lock.is_locked().await.map(drop).unwrap_err(),
            lock.force_unlock().await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidName { .. }), "{} bytes: {error}", name.len());
            assert!(error.to_string().len() < 200, "it does not repeat the name");
        }
        assert!(format!("{lock:?}").len() < 200);
    }
    assert_eq!(admin.command_calls("evalsha").await, 0);
}

/// F76: names that a log, a shell or a protocol could trip over.
#[tokio::test]
async fn any_other_name_is_a_lock_of_its_own_and_cannot_forge_a_line_of_the_log() {
    let (log, _listening) = Log::here();
    let server = Server::start().await;
    let (client, admin) = (connect(&server.url(), patient()).await, server.admin().await);
    let other = connect(&server.url(), patient()).await;
    let forged = "a\r\n2026-01-01T00:00:00Z ERROR forged: line";
    let longest = "x".repeat(1024);
    let names = [
        " ",
        "\0",
        "\r\n",
        forged,
        "\u{1b}[31m",
        "{",
        "}",
        "{}",
        "{a}",
        "{a",
        "a}",
        "%",
        "%7B",
        "*",
        "?",
        "[a]",
        "ä€🔒",
        "a b\tc",
        "'\"\\",
        "$(x)",
        &longest,
    ];
    let mut guards = Vec::new();
    for (count, name) in names.into_iter().enumerate() {
        let guard = client.lock(name).try_lock().await.unwrap();
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} is another name's lock")));
        assert_eq!(admin.cmd::<usize>(&["DBSIZE"]).await, count + 2, "{name:?} has its own key");
        assert!(other.lock(name).try_lock().await.unwrap().is_none(), "{name:?}");
    }
    // Their channels are their own too: only the waiter for this name wakes.
    let waiter = tokio::spawn({
        let lock = other.lock(forged);
        async move { lock.lock().await }
    });
    eventually(SOON, "it waits", async || admin.channels().await.len() == 2).await;
    drop(guards);
    let got = timeout(SOON, waiter).await.expect("it is told").unwrap().unwrap();
    other.lock(forged).force_unlock().await.unwrap();
    drop(got);

    assert!(log.text().contains("forged"), "the name was logged");
    assert_eq!(
        log.lines_with("2026-01-01T00:00:00Z ERROR forged: line"),
        log.lines_with("a\\r\\n2026")
    );
    assert!(log.text().lines().all(|line| !line.starts_with("2026-01-01T00:00:00Z ERROR")));
    assert!(!log.text().contains('\u{1b}') && !log.text().contains('\0'));
}
