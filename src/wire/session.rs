//! The session of a client (`Config::session`): whether the server still counts this process among those that listen. The server's half is
//! `lua/line/sessions.lua`.
//!
//! 1. The client listens to a channel of its own, on each connection for messages once, before that connection carries anything else. It
//!    never listens there again on the same connection.
//! 2. It publishes a beat on that channel again and again. A beat that it hears proves that this connection listened when the beat
//!    was sent, or later. So holds count for the patience after the **sending** of the last beat that was heard.
//! 3. A hold counts on the beats of a connection only if it was asked for or renewed after that connection listened. The
//!    renewal erases what others have noted before: that nobody listens.
//! 4. All this says something only about the server that has the locks. After a failover, the two connections of a
//!    client may lead to two servers for a while. So each connection asks its server for its id, and holds count only while
//!    both are the same. If scripts go to another server from now on, each hold has to be renewed there.
//! 5. Nobody listens to a server that has just become a primary, and the primary before it may go on. So the client records at
//!    its server the reign in which it finds it, and a waiter ends holds only in the reign that the record says. The client sends the record
//!    only when holds no longer count on what it hears elsewhere.
//!
//! Why nobody else has the lock of a hold that counts: whoever takes it away has found that nobody listens, a patience ago, and
//! that was noted in the reign that the client has recorded, after the last request by which the hold counts. So the connection had
//! ended by then, and every beat that it ever heard was sent before.

use std::sync::Arc;
use std::time::Duration;

use redis::cmd;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::log;
use crate::wire::args::millis;
use crate::wire::fault::{self, Fault};
use crate::wire::replies::{field, strange};
use crate::wire::socket::Socket;

/// So many beats are sent in the time of a patience, and one a second at least.
const BEATS: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a server keeps the record. Who comes later than that waits for the lease of a dead process.
const RECORD_TTL: Duration = Duration::from_secs(86_400);

/// How often the record is written. A primary that gets its first replica, or has long been without one, begins another reign.
const RECORDS_APART: Duration = Duration::from_secs(30);

/// The session of one client.
#[derive(Debug)]
pub(crate) struct Session {
    channel: Arc<str>,
    /// The key of the record.
    record: String,
    patience: Duration,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    current: Listening,
    former: Listening,
    /// The last beat, and when it was sent.
    beat: Option<(String, Instant)>,
    /// The primary to which scripts are sent.
    scripts_in: Option<ReignId>,
    /// When the client last looked which one that is, to record it.
    looked: Option<Instant>,
    /// How often holds had to be renewed.
    begun: u64,
}

/// A run of a server: the last 16 digits of what it calls its `run_id`.
type ServerId = u64;

/// A primary in one of its reigns.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReignId {
    server: ServerId,
    /// What it calls its `master_replid`. Another one begins when it starts, and when it becomes a primary. After two failovers, a
    /// server may be the primary once more, with the same `run_id`.
    replid: String,
}

/// A connection that listens, or has listened.
#[derive(Debug, Default, Clone, Copy)]
struct Listening {
    /// Its number; 0: there was none.
    on: u64,
    at: Option<ServerId>,
    /// From when on it has listened for sure.
    since: Option<Instant>,
    /// When the last beat was sent that was heard on it.
    heard: Option<Instant>,
}

impl Listening {
    /// Whether its beats count for what was asked for at this time.
    fn counts_for(&self, asked: Instant) -> bool {
        self.since.is_some_and(|since| since <= asked)
    }
}

impl Session {
    /// `channels`: the prefix of all channels of this client. `record`: the key of its record.
    pub(crate) fn new(
        channels: &str,
        client: &str,
        record: String,
        patience: Duration,
    ) -> Arc<Self> {
        let channel = format!("{channels}session:{{{client}}}").into();
        Arc::new(Self { channel, record, patience, state: watch::Sender::default() })
    }

    /// For how long a hold counts after the sending of a beat.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// When the last beat was sent that proves a hold which was asked for or renewed at this time.
    pub(crate) fn proved(&self, asked: Instant) -> Option<Instant> {
        let state = self.state.borrow();
        let counts =
            |listening: &Listening| listening.counts_for(asked) && listening.at == state.server();
        let both = [state.current, state.former].into_iter().filter(counts);
        both.filter_map(|listening| listening.heard).max()
    }

    /// Whether what was asked for or renewed at this time has to be renewed: the client has connected anew since then.
    pub(crate) fn has_begun_since(&self, asked: Instant) -> bool {
        self.state.borrow().current.since.is_some_and(|since| since > asked)
    }

    /// Waits until holds have to be renewed once more than `before`, and returns how often that was so.
    pub(crate) async fn begins_anew(&self, before: u64) -> u64 {
        let mut state = self.state.subscribe();
        let is_new = |state: &State| state.begun != before;
        state.wait_for(is_new).await.map_or(before, |state| state.begun)
    }

    /// Records where scripts are sent: before a connection for them is used.
    ///
    /// # Errors
    /// The user may not ask or record that, or the connection has broken.
    pub(super) async fn runs_scripts_on(&self, socket: &Socket) -> Result<(), Fault> {
        let reign = ReignId::of(socket).await?;
        let replid = reign.replid.clone();
        // First: as soon as the record is there, holds may end for which nobody listens there.
        self.state.send_if_modified(|state| state.runs_scripts_in(reign, Instant::now()));
        self.warn_of_two_servers();
        let mut set = cmd("SET");
        set.arg(&self.record).arg(replid).arg("PX").arg(millis(RECORD_TTL));
        // If it refuses, its memory is full, for example. Without the record, holds end with their leases.
        fault::alive(fault::answered(socket.ask(&set).await))
    }

    /// Does so again when [`RECORDS_APART`] have passed.
    pub(super) async fn still_runs_scripts_on(&self, socket: &Socket) -> Result<(), Fault> {
        let looked = self.state.borrow().looked;
        if looked.is_some_and(|looked| looked.elapsed() < RECORDS_APART) {
            return Ok(());
        }
        self.runs_scripts_on(socket).await
    }

    /// Deletes the record: the client holds nothing, and never will again.
    pub(super) async fn ends(&self, socket: &Socket) {
        // If that fails, the record expires.
        let _ = socket.ask(cmd("DEL").arg(&self.record)).await;
    }

    /// Waits until a beat is heard that was sent less than half of the patience ago.
    pub(crate) async fn is_heard(&self) {
        let is_fresh = |state: &State| {
            state.current.heard.is_some_and(|heard| heard.elapsed() < self.patience / 2)
        };
        // The session lives as long as whoever waits here.
        let _ = self.state.subscribe().wait_for(is_fresh).await;
    }

    /// Listens on a new connection, and waits for the first beat.
    ///
    /// # Errors
    /// The user may not listen or publish there, or the connection has broken.
    pub(super) async fn begin(&self, socket: &Socket, on: u64) -> Result<(), Fault> {
        let at = id_of_server(socket).await?;
        if let Some(error) = socket.subscribe(&self.channel).await.map_err(Fault::answering)? {
            return Err(fault::entry(&error));
        }
        self.listens((on, at), Instant::now());
        self.beat(socket).await?;
        let has_heard = |state: &State| state.current.heard.is_some();
        let _ = self.state.subscribe().wait_for(has_heard).await;
        Ok(())
    }

    /// Beats on this connection as long as it lives. Returns why that has ended.
    pub(super) async fn beats(&self, socket: &Socket) -> Fault {
        loop {
            sleep(LONGEST_PAUSE.min(self.patience / BEATS)).await;
            if let Err(fault) = self.beat(socket).await {
                return fault;
            }
        }
    }

    async fn beat(&self, socket: &Socket) -> Result<(), Fault> {
        let beat = self.next_beat(Instant::now());
        let mut publish = cmd("PUBLISH");
        publish.arg(&*self.channel).arg(beat);
        fault::alive(fault::answered(socket.ask(&publish).await))
    }

    /// Hears a message. Returns whether it is on the channel of the session.
    pub(super) fn hears(&self, on: u64, channel: &str, message: &[u8]) -> bool {
        if channel != &*self.channel {
            return false;
        }
        self.state.send_if_modified(|state| state.hears(on, message));
        true
    }

    fn listens(&self, on: (u64, ServerId), now: Instant) {
        self.state.send_modify(|state| state.listens(on, now));
        self.warn_of_two_servers();
    }

    fn warn_of_two_servers(&self) {
        let both = {
            let state = self.state.borrow();
            state.current.at.zip(state.server())
        };
        if both.is_some_and(|(one, other)| one != other) {
            log::warn!(
                "messages come from another server than the one that has the locks: they are suspended until both are the same"
            );
        }
    }

    /// Nobody can know this text before the beat is sent: so whoever may publish on the channel proves nothing with it.
    fn next_beat(&self, now: Instant) -> String {
        let text = unguessable().to_string();
        self.state.send_modify(|state| state.beat = Some((text.clone(), now)));
        text
    }
}

impl State {
    fn listens(&mut self, (on, at): (u64, ServerId), now: Instant) {
        // A connection that has heard nothing proves nothing: the one before it may still.
        if self.current.heard.is_some() {
            self.former = self.current;
        }
        self.current = Listening { on, at: Some(at), since: Some(now), heard: None };
        self.beat = None;
        self.begun += 1;
    }

    /// The server to which scripts are sent.
    fn server(&self) -> Option<ServerId> {
        self.scripts_in.as_ref().map(|reign| reign.server)
    }

    /// Returns whether that is another one than before.
    fn runs_scripts_in(&mut self, reign: ReignId, now: Instant) -> bool {
        self.looked = Some(now);
        if self.scripts_in.as_ref() == Some(&reign) {
            return false;
        }
        self.scripts_in = Some(reign);
        // What was renewed before was renewed at another server, or may be forgotten since.
        self.former = Listening::default();
        self.current.since = self.current.since.map(|_| now);
        self.begun += 1;
        true
    }

    /// Returns whether this is the last beat. What a connection hears that was given up counts no more: a head may have found since
    /// then that nobody listens.
    fn hears(&mut self, on: u64, message: &[u8]) -> bool {
        let is_it = |(text, _): &mut (String, Instant)| text.as_bytes() == message;
        if on != self.current.on {
            return false;
        }
        let Some((_, sent)) = self.beat.take_if(is_it) else { return false };
        self.current.heard = Some(sent);
        true
    }
}

impl ReignId {
    /// The primary that this connection leads to.
    async fn of(socket: &Socket) -> Result<Self, Fault> {
        let server = id_of_server(socket).await?;
        let replid = info(socket, "replication", "master_replid:").await?;
        Ok(Self { server, replid })
    }
}

#[cfg(not(parklock_sim))]
fn unguessable() -> Uuid {
    Uuid::new_v4()
}

/// A run of the simulation must be repeatable from its seed.
#[cfg(parklock_sim)]
fn unguessable() -> Uuid {
    Uuid::from_u128(fastrand::u128(..))
}

async fn id_of_server(socket: &Socket) -> Result<ServerId, Fault> {
    let id = info(socket, "server", "run_id:").await?;
    let last = id.get(24..).and_then(|id| ServerId::from_str_radix(id, 16).ok());
    last.ok_or_else(|| strange(&id))
}

/// A field of this section of INFO.
async fn info(socket: &Socket, section: &str, name: &str) -> Result<String, Fault> {
    let said = fault::answered(socket.ask(cmd("INFO").arg(section)).await)?;
    field(Some(&said), name).map(str::to_owned).ok_or_else(|| strange(&said))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);
    const STEP: Duration = Duration::from_millis(100);

    fn session() -> (Arc<Session>, Instant) {
        let session = Session::new("lock_channel:", "us", "record".to_owned(), PATIENCE);
        let start = Instant::now();
        runs_scripts_at(&session, (7, "a"), start);
        (session, start)
    }

    fn runs_scripts_at(session: &Session, (server, replid): (ServerId, &str), now: Instant) {
        let reign = ReignId { server, replid: replid.to_owned() };
        session.state.send_modify(|state| _ = state.runs_scripts_in(reign, now));
    }

    fn hears(session: &Session, on: u64, text: &str) {
        assert!(session.hears(on, "lock_channel:session:{us}", text.as_bytes()));
    }

    #[tokio::test]
    async fn a_hold_counts_from_the_sending_of_the_last_beat_that_was_heard() {
        let (session, start) = session();
        session.listens((1, 7), start);
        assert_eq!(session.proved(start), None, "nothing is heard yet");
        let beat = session.next_beat(start + STEP);
        hears(&session, 1, "forged");
        assert_eq!(session.proved(start), None);
        hears(&session, 1, &beat);
        assert_eq!(session.proved(start + STEP * 2), Some(start + STEP));
        hears(&session, 1, &beat);
        let unheard = session.next_beat(start + STEP * 3);
        assert_eq!(session.proved(start), Some(start + STEP));
        hears(&session, 1, &unheard);
        assert_eq!(session.proved(start), Some(start + STEP * 3));
    }

    #[tokio::test]
    async fn a_hold_counts_on_a_connection_only_if_it_was_asked_for_after_that_one_listened() {
        let (session, start) = session();
        let early = start.checked_sub(STEP).unwrap();
        session.listens((1, 7), start);
        let beat = session.next_beat(start + STEP);
        hears(&session, 1, &beat);
        assert_eq!(session.proved(early), None);

        session.listens((2, 7), start + STEP * 4);
        let beat = session.next_beat(start + STEP * 5);
        hears(&session, 2, &beat);
        let [before, after] = [STEP * 3, STEP * 4].map(|after| start + after);
        assert_eq!(session.proved(before), Some(start + STEP), "only on the former one");
        assert_eq!(session.proved(after), Some(start + STEP * 5));
        assert!(session.has_begun_since(before) && !session.has_begun_since(after));
    }

    #[tokio::test]
    async fn what_a_former_connection_still_hears_proves_nothing() {
        let (session, start) = session();
        session.listens((1, 7), start);
        let first = session.next_beat(start);
        hears(&session, 1, &first);
        let late = session.next_beat(start + STEP);
        session.listens((2, 7), start + STEP * 2);
        hears(&session, 1, &late);
        assert_eq!(session.proved(start), Some(start));
        let renewed = start + STEP * 3;
        assert_eq!(session.proved(renewed), Some(start), "what it had heard before still counts");
        let next = session.next_beat(start + STEP * 3);
        hears(&session, 1, &next);
        assert_eq!(session.proved(renewed), Some(start));

        // The second connection breaks before it has heard anything.
        session.listens((3, 7), start + STEP * 4);
        assert_eq!(session.proved(renewed), Some(start));
        let next = session.next_beat(start + STEP * 5);
        hears(&session, 3, &next);
        assert_eq!(session.proved(start + STEP * 4), Some(start + STEP * 5));
        assert_eq!(session.proved(renewed), Some(start), "it was renewed before that one listened");
    }

    #[tokio::test]
    async fn a_hold_counts_only_if_messages_come_from_the_server_that_has_it() {
        let (session, start) = session();
        session.listens((1, 8), start);
        let beat = session.next_beat(start);
        hears(&session, 1, &beat);
        assert_eq!(session.proved(start), None, "they come from another one");

        runs_scripts_at(&session, (8, "b"), start + STEP * 2);
        assert_eq!(session.proved(start + STEP), None, "it was asked for at the other server");
        assert!(session.has_begun_since(start + STEP));
        assert_eq!(session.proved(start + STEP * 2), Some(start));

        runs_scripts_at(&session, (7, "a"), start + STEP * 3);
        runs_scripts_at(&session, (8, "b"), start + STEP * 4);
        assert_eq!(session.proved(start + STEP * 3), None, "it may be at the other server");
    }

    #[tokio::test]
    async fn a_hold_has_to_be_renewed_in_each_reign_of_its_server() {
        let (session, start) = session();
        session.listens((1, 7), start);
        let beat = session.next_beat(start);
        hears(&session, 1, &beat);
        runs_scripts_at(&session, (7, "a"), start + STEP);
        assert_eq!(session.proved(start), Some(start), "nothing has changed");

        runs_scripts_at(&session, (7, "c"), start + STEP * 2);
        assert_eq!(session.proved(start + STEP), None);
        assert!(session.has_begun_since(start + STEP));
        assert_eq!(session.proved(start + STEP * 2), Some(start), "and its server still hears it");
    }
}
