//! When each server took itself for a primary: seen from outside, and never shorter than it was.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::common::clock;

/// Between two questions.
const BEAT: Duration = Duration::from_millis(10);

/// Of some servers that have the same data.
#[derive(Debug)]
pub struct Reigns(Vec<Arc<Mutex<Watched>>>);

#[derive(Debug, Default)]
struct Watched {
    /// Since when, and until when if it is over.
    reigns: Vec<(u64, Option<u64>)>,
    /// When the last question was asked that has been answered.
    asked: u64,
}

impl Reigns {
    /// A thread for each server, which ends with us. One that is stopped answers when it goes on: until then nothing is over.
    pub fn of(servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        let watch = |server| {
            let watched = Arc::<Mutex<Watched>>::default();
            let told = Arc::clone(&watched);
            thread::spawn(move || watch(server, &told));
            watched
        };
        Self(servers.into_iter().map(watch).collect())
    }

    /// Whether all that was before this moment is known.
    pub fn are_known(&self, until: u64) -> bool {
        self.0.iter().all(|one| held(one).asked > until)
    }

    /// From the first new reign since this moment until the end of the last one that is over.
    pub fn changed(&self, since: u64) -> Option<(u64, u64)> {
        let all = self.0.iter().flat_map(|one| held(one).reigns.clone()).collect::<Vec<_>>();
        let from = all.iter().map(|(from, _)| *from).filter(|from| *from > since).min()?;
        let ended = all.iter().filter_map(|(_, to)| *to).max().unwrap_or(from);
        Some((from, ended.max(from)))
    }
}

fn watch(server: SocketAddr, told: &Mutex<Watched>) {
    let (mut link, mut was_other) = (None, clock::now());
    loop {
        thread::sleep(BEAT);
        let asked = clock::now();
        let is_primary = match is_primary(server, &mut link) {
            Ok(answer) => answer,
            Err(error) => {
                link = None;
                // It is dead. Any other failure says nothing.
                if error.kind() != ErrorKind::ConnectionRefused {
                    continue;
                }
                false
            }
        };
        let mut told = held(told);
        let open = told.reigns.last_mut().filter(|(_, to)| to.is_none());
        match (open, is_primary) {
            (None, true) => told.reigns.push((was_other, None)),
            (Some((_, to)), false) => *to = Some(clock::now()),
            _ => {}
        }
        if !is_primary {
            was_other = asked;
        }
        told.asked = asked;
    }
}

fn is_primary(server: SocketAddr, link: &mut Option<TcpStream>) -> Result<bool> {
    if link.is_none() {
        *link = Some(TcpStream::connect(server)?);
    }
    let link = link.as_mut().expect("it is connected");
    link.write_all(b"ROLE\r\n")?;
    let mut answer = [0; 512];
    match link.read(&mut answer)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        length => Ok(answer[..length].windows(6).any(|word| word == b"master")),
    }
}

fn held(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}
