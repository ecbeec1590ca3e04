//! Who listens, as the server sees it: as long as it sees a client with a session, nobody may take that client's holds.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, RedisResult, cmd};
use tokio::time::{sleep, timeout};

use crate::common::clock;
use crate::reading::Taken;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// If two looks are further apart, in nanoseconds, nobody knows who listened in between.
const BLINK: u64 = 200_000_000;

/// A server that stands still is asked again after this.
const PATIENCE: Duration = Duration::from_secs(1);

/// So long, in nanoseconds, a client may come back.
const FORGOTTEN: u64 = 60_000_000_000;

/// A time in which the server did not see this client listen. `None`: nobody looked.
#[derive(Debug)]
pub struct Absence {
    client: Option<String>,
    from: u64,
    pub to: u64,
}

/// Watches the clients whose connections have a name, at the server behind this address.
pub fn watch(server: SocketAddr) -> Receiver<Absence> {
    let (told, absences) = mpsc::channel();
    tokio::spawn(async move {
        let mut watch = Watch { told, looked: clock::now(), seen: HashMap::new() };
        loop {
            // It ends with us.
            let _: RedisResult<()> = watch.look_on(server).await;
            sleep(LOOK).await;
        }
    });
    absences
}

struct Watch {
    told: Sender<Absence>,
    looked: u64,
    /// When each client was last seen, and whether it has gone since.
    seen: HashMap<String, (u64, bool)>,
}

impl Watch {
    async fn look_on(&mut self, server: SocketAddr) -> RedisResult<()> {
        let client = Client::open(format!("redis://{server}"))?;
        let Ok(link) = timeout(PATIENCE, client.get_multiplexed_async_connection()).await else {
            return Ok(());
        };
        let mut link = link?;
        while let Ok(listening) = timeout(PATIENCE, listening(&mut link)).await {
            self.note(listening?, clock::now());
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// It tells of an absence when it begins, and of all of it when it is over.
    fn note(&mut self, mut listening: HashSet<String>, now: u64) {
        if now - self.looked > BLINK {
            self.tell(None, self.looked, now);
        }
        self.looked = now;
        let mut absent = Vec::new();
        for (client, (seen, has_gone)) in &mut self.seen {
            let is_here = listening.remove(client);
            if is_here == *has_gone {
                absent.push((client.clone(), *seen));
            }
            *has_gone = !is_here;
            if is_here {
                *seen = now;
            }
        }
        absent.into_iter().for_each(|(client, from)| self.tell(Some(client), from, now));
        self.seen.retain(|_, (seen, _)| *seen + FORGOTTEN > now);
        self.seen.extend(listening.into_iter().map(|client| (client, (now, false))));
    }

    fn tell(&self, client: Option<String>, from: u64, to: u64) {
        // Nobody listens any more when the run is over.
        let _ = self.told.send(Absence { client, from, to });
    }
}

/// The names of those that have a connection for messages.
async fn listening(link: &mut MultiplexedConnection) -> RedisResult<HashSet<String>> {
    let all: String = cmd("CLIENT").arg(&["LIST", "TYPE", "PUBSUB"]).query_async(link).await?;
    let name = |line: &str| {
        let words = || line.split(' ');
        Some(words().find_map(|word| word.strip_prefix("name=parklock:"))?.to_owned())
    };
    Ok(all.lines().filter_map(name).collect())
}

/// What was taken from clients that were there all the time.
pub fn wronged(taken: &[Taken], absences: &[Absence]) -> Vec<String> {
    let was_away = |one: &Taken, absence: &Absence| {
        let may_be_it = absence.client.as_ref().is_none_or(|client| *client == one.client);
        may_be_it && absence.from <= one.told && absence.to >= one.heard
    };
    let wronged = taken.iter().filter(|one| !absences.iter().any(|away| was_away(one, away)));
    wronged.map(|one| format!("taken from a client that could be heard:\n  {}", one.hold)).collect()
}
