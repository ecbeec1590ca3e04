//! Whether the machine has time for us: who gets no processor is not to blame for being slow.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

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
        loop {
            let before = clock::now();
            thread::sleep(STEP);
            tell_if_late(before, &tell);
        }
    });
}

/// Tells each time for which one of these servers did not answer a PING.
pub fn watch_servers(servers: Vec<SocketAddr>) -> mpsc::Receiver<(u64, u64)> {
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
                if link.as_mut().is_some_and(|link| ping(link).is_none()) {
                    link = None;
                }
                tell_if_late(before, &|from, to| _ = told.send((from, to)));
            }
        });
    }
    times
}

fn tell_if_late(before: u64, tell: &impl Fn(u64, u64)) {
    let now = clock::now();
    if now - before > LATE {
        tell(before, now);
    }
}

fn ping(link: &mut TcpStream) -> Option<()> {
    link.write_all(b"PING\r\n").ok()?;
    let mut answer = [0; 64];
    (link.read(&mut answer).ok()? > 0).then_some(())
}
