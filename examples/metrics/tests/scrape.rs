//! The endpoint, as Prometheus sees it: the program runs, and a real request reads its metrics.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(30);

/// A process that does not outlive the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Redis server of our own, and its URL.
fn redis() -> (Process, String) {
    let begun = Instant::now();
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let mut server = Process(server);
        // Another process may have taken the port meanwhile: then this one ends, and the next has another port.
        while server.0.try_wait().unwrap().is_none() {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return (server, format!("redis://127.0.0.1:{port}"));
            }
            assert!(begun.elapsed() < SOON, "redis-server does not answer");
            sleep(Duration::from_millis(10));
        }
    }
}

/// The program, and the address that it serves.
fn endpoint(redis: &str) -> (Process, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_metrics-endpoint"))
        .envs([("REDIS_URL", redis), ("LISTEN", "127.0.0.1:0")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example was built");
    let mut said = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("it says {said:?}")).to_owned();
    (Process(program), address)
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    answer
}

/// The value of the first series that begins like this.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn prometheus_reads_what_the_locks_do() {
    let (_server, url) = redis();
    let (_program, address) = endpoint(&url);
    let series = [
        r#"parklock_acquire_total{kind="lock",lock="orders",outcome="granted"}"#,
        r#"parklock_acquire_total{kind="lock",lock="nightly-job",outcome="busy"}"#,
        r#"parklock_wait_seconds_bucket{kind="read",lock="report",le="0.1"}"#,
        r#"parklock_hold_seconds_count{kind="lock",lock="orders"}"#,
        r#"parklock_round_trip_seconds_bucket{le="0.0001"}"#,
        r#"parklock_held{kind="lock",lock="leader"}"#,
        "parklock_batch_size_count",
        "parklock_wakeups_total",
    ];
    let begun = Instant::now();
    let text = loop {
        let text = get(&address, "/metrics");
        let missing: Vec<_> =
            series.iter().filter(|series| value(&text, series).is_none()).collect();
        if missing.is_empty() {
            break text;
        }
        assert!(begun.elapsed() < SOON, "{missing:?} are missing in\n{text}");
        sleep(Duration::from_millis(100));
    };
    assert!(value(&text, series[0]) > Some(0.0));
    assert_eq!(value(&text, r#"parklock_held{kind="lock",lock="leader"}"#), Some(1.0));
    assert_eq!(
        value(&text, r#"parklock_lost_total{kind="lock",lock="orders",reason="gone"}"#),
        Some(0.0)
    );
    assert!(text.contains("# TYPE parklock_held gauge"), "{text}");
    assert!(text.contains("# TYPE parklock_wait_seconds histogram"), "{text}");
    assert!(text.contains("# HELP parklock_acquire_total Calls that asked for a lock"), "{text}");
}
