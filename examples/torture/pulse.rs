//! Whether the machine has time for us: who gets no processor is not to blame for being slow.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::time::sleep;

use crate::common::clock;

/// So late, in nanoseconds, nobody can be blamed for being slow.
pub const LATE: u64 = 60_000_000;

const STEP: Duration = Duration::from_millis(5);
/// Between two questions to a server.
const BEAT: Duration = Duration::from_millis(20);

/// Tells each time for which this process got no processor. It has a thread of its own: a runtime may be busy, and is to blame
/// for that.
pub fn watch_ourselves(tell: impl Fn(u64, u64) + Send + 'static) {
    thread::spawn(move || {
        let mut before = clock::now();
        loop {
            thread::sleep(STEP);
            // From one look to the next: what is told is written down, and the disk may stand still meanwhile.
            before = tell_if_late(before, &tell);
        }
    });
}

/// The same, for a process that writes no record.
pub fn watch_ourselves_from_here() -> mpsc::Receiver<(u64, u64)> {
    let (told, times) = mpsc::channel();
    watch_ourselves(move |from, to| _ = told.send((from, to)));
    times
}

/// How far the two clocks of the machine are apart, and when they were compared.
#[derive(Debug)]
pub struct Clocks {
    apart: u64,
    at: u64,
}

impl Clocks {
    /// By so much, in nanoseconds, they may drift apart between two looks at them.
    const DRIFT: u64 = 20_000_000;

    pub fn compared() -> Self {
        loop {
            let before = clock::now();
            let apart = clock::wall() - before;
            if clock::now() - before < 1_000_000 {
                return Self { apart, at: before };
            }
        }
    }

    /// If the one has jumped since the last look: when that was.
    pub fn have_parted(&mut self) -> Option<u64> {
        let before = std::mem::replace(self, Self::compared());
        (self.apart.abs_diff(before.apart) > Self::DRIFT).then_some(before.at)
    }
}

/// As `timeout`, but of time in which the machine stands still, or this process, it counts no more than a moment.
pub async fn patiently<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    const MOMENT: Duration = Duration::from_millis(100);
    let patience = async {
        for _ in 0..limit.as_millis() / MOMENT.as_millis() {
            sleep(MOMENT).await;
        }
    };
    tokio::select! {
        done = work => Some(done),
        () = patience => None,
    }
}

/// Tells each time for which one of these servers did not answer; and, if replicas are waited for, each time for which one
/// was a primary without a replica. Nothing that it grants counts then.
pub fn watch_servers(
    servers: Vec<SocketAddr>,
    waits_for_replicas: bool,
) -> mpsc::Receiver<(u64, u64)> {
    let (told, times) = mpsc::channel();
    for server in servers {
        let told = told.clone();
        thread::spawn(move || {
            let mut link = None::<TcpStream>;
            loop {
                thread::sleep(BEAT);
                let before = clock::now();
                // One that is down is asked again: that is a fault of the run, or its end.
                if link.is_none() {
                    link = TcpStream::connect(server).ok();
                }
                let tell = |from, to| _ = told.send((from, to));
                match link.as_mut().map(is_alone) {
                    Some(None) => link = None,
                    Some(Some(true)) if waits_for_replicas => tell(before, clock::now()),
                    _ => {}
                }
                tell_if_late(before, &tell);
            }
        });
    }
    times
}

/// Returns the time of this look.
fn tell_if_late(before: u64, tell: &impl Fn(u64, u64)) -> u64 {
    let now = clock::now();
    if now - before > LATE {
        tell(before, now);
    }
    now
}

/// Whether the server is a primary without a replica that is online. `None`: it does not answer.
fn is_alone(link: &mut TcpStream) -> Option<bool> {
    link.write_all(b"ROLE\r\n").ok()?;
    let mut answer = [0; 512];
    let length = link.read(&mut answer).ok().filter(|length| *length > 0)?;
    let answer = String::from_utf8_lossy(&answer[..length]);
    Some(answer.contains("master") && answer.contains("*0\r\n"))
}
