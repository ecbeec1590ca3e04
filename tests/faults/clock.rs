//! Clocks that somebody sets: the server's, which its leases run by, and ours, which we never read.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use crate::common::{Server, Worker, WorkerSide, eventually, judged};
use crate::scene::*;

const HOUR: u64 = 60 * 60;

/// The library libfaketime, which shows a false time to the programs that load it.
struct Faketime(PathBuf);

impl Faketime {
    /// `None` where it is not installed.
    fn find() -> Option<Self> {
        let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let mut libraries = folders.map(|entry| entry.path().join("faketime/libfaketime.so.1"));
        let found = libraries.find(|library| library.exists()).map(Self);
        or_skip(found, "libfaketime is missing (apt-get install faketime)")
    }

    /// The variables of a process whose clock is set by this file.
    fn variables<'a>(&'a self, clock: &'a Path) -> [(&'static str, &'a str); 4] {
        [
            ("LD_PRELOAD", self.0.to_str().expect("a plain path")),
            ("FAKETIME_TIMESTAMP_FILE", clock.to_str().expect("a plain path")),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
    }
}

/// What a test needs. Where it is missing, the test is left out, or fails with `PARKLOCK_REQUIRE_FAKETIME`.
fn or_skip<T>(found: Option<T>, missing: &str) -> Option<T> {
    if found.is_none() {
        assert!(env::var_os("PARKLOCK_REQUIRE_FAKETIME").is_none(), "{missing}");
        println!("skipped: {missing}");
    }
    found
}

/// Sets the clock of all processes that follow the file, by so many seconds from the truth.
fn set(clock: &Path, offset: &str) {
    let draft = clock.with_extension("draft");
    fs::write(&draft, format!("{offset}\n")).expect("a file of our own");
    fs::rename(draft, clock).expect("a file of our own");
}

/// A server that libfaketime works with: one without its own allocator.
fn gullible() -> Option<PathBuf> {
    let installed = ["redis-6.2", "valkey-9.1"].into_iter().filter_map(installed);
    let given = env::var_os("PARKLOCK_SERVER").map(PathBuf::from);
    let found = given.into_iter().chain(installed).find(|program| {
        let said = std::process::Command::new(program).arg("--version").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("malloc=libc"))
    });
    or_skip(found, "no server uses libc's malloc (scripts/servers installs two)")
}

/// F33: the server's clock is set back by an hour.
#[tokio::test]
async fn a_lock_on_a_server_whose_clock_went_back_can_be_given_back_and_taken_away() {
    judged(async || {
        let (Some(faketime), Some(program)) = (Faketime::find(), gullible()) else { return };
        // The server follows it from its start, so it lies in the directory of another one.
        let another = Server::start().await;
        let clock = another.dir().join("clock");
        set(&clock, "+0");
        let setup = faketime
            .variables(&clock)
            .into_iter()
            .fold(Server::builder(), |setup, (name, value)| setup.variable(name, value));
        let scene = Scene::on(setup.program(program).start().await).await;
        let (client, other) = (scene.client(brisk()).await, scene.other().await);
        let guard = client.lock("a").lock().await.unwrap();
        scene.admin.cmd::<()>(&["HSET", &key("dead"), "somebody who died", "1"]).await;
        scene.admin.cmd::<()>(&["PEXPIRE", &key("dead"), "500"]).await;

        set(&clock, &format!("-{HOUR}"));
        let hour = i64::try_from(HOUR * 1000).unwrap();
        let stuck = async || scene.admin.pttl(&key("a")).await > hour - 60_000;
        eventually(SOON, "the TTL has grown by an hour", stuck).await;

        // The holder goes on, and gives the lock back. The waiter gets it, with a greater token.
        is_renewed(&guard).await;
        let waiter = waiting(other.lock("a"));
        let before = guard.token();
        guard.unlock().await.unwrap();
        let next = granted(waiter).await;
        assert!(next.token() > before);
        next.unlock().await.unwrap();

        // A dead holder is in the way until somebody takes the lock away.
        let lock = other.lock("dead");
        assert!(lock.try_lock_for(Duration::from_secs(1)).await.unwrap().is_none());
        assert!(lock.force_unlock().await.unwrap());
        assert!(lock.try_lock().await.unwrap().is_some());
    })
    .await;
}

/// F34: our own clock is set back and forth by a day.
#[tokio::test]
async fn a_client_whose_clock_jumps_does_not_notice() {
    judged(async || {
        let Some(faketime) = Faketime::find() else { return };
        let scene = Scene::new().await;
        let clock = scene.server.dir().join("clock");
        set(&clock, "+0");
        let url = scene.server.url();
        let mut variables = faketime.variables(&clock).to_vec();
        variables.push(("URL", &url));
        let mut worker = Worker::start("clock::worker_that_holds", &variables);
        let truth: u64 = worker.hear().await.parse().unwrap();

        for offset in ["+86400", "-86400"] {
            set(&clock, offset);
            let told: u64 = worker.ask("what time is it?").await.parse().unwrap();
            assert!(told.abs_diff(truth) > 23 * HOUR, "its clock has not jumped: {truth}, {told}");
            assert_eq!(worker.ask("are you renewed?").await, "renewed");
            is_held_once(&scene.admin, "a").await;
        }
        assert_eq!(worker.ask("unlock").await, "Ok(())");
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_holds() {
    let Some(mut boss) = WorkerSide::here() else { return };
    // It may stand still while the test runs.
    let config = brisk().watchdog_timeout(Duration::from_secs(6));
    let client = client(&boss.variable("URL"), config).await;
    let guard = client.lock("a").lock().await.unwrap();
    boss.tell(&wall_clock().to_string());
    while let Some(order) = boss.order().await {
        match order.as_str() {
            "what time is it?" => boss.tell(&wall_clock().to_string()),
            "are you renewed?" => {
                is_renewed(&guard).await;
                boss.tell("renewed");
            }
            _ => return boss.tell(&format!("{:?}", guard.unlock().await)),
        }
    }
}

#[expect(clippy::disallowed_types, reason = "the fault itself: a clock that can be set")]
fn wall_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

/// F34: nobody reads a clock that can be set.
#[test]
fn the_library_reads_no_clock_that_can_be_set() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lint = fs::read_to_string(root.join("clippy.toml")).unwrap();
    assert!(lint.contains("std::time::SystemTime"), "{lint}");
    let mut folders = vec![root.join("src")];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            let text = fs::read_to_string(&entry).unwrap();
            assert!(!text.contains("SystemTime") && !text.contains("UNIX_EPOCH"), "{entry:?}");
            read += 1;
        }
    }
    assert!(read > 10);
}
