//! How a caller asks Redis once, and what it makes of the answer. `attempt.rs` sends the request.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::compact_instant::CompactInstant;
use crate::core::waiting::Event;
use crate::engine::caller::Caller;
use crate::engine::caller::attempt::{Attempt, attempt};
use crate::engine::caller::known::Known;
use crate::engine::caller::pick_up::Offer;
use crate::engine::debts::Debt;
use crate::engine::entry::{Entry, Hold, Visit};
use crate::engine::outages::LONG_OUTAGE;
use crate::engine::shared::RETRY_PAUSE;
use crate::error::{Error, Result};
use crate::keys::TenureId;
use crate::kinds::Holders;
use crate::log;
use crate::pause::{jittered, within};
use crate::wire::{Acquire, Acquired, Fault, Manner, Node, Secret};

impl Caller {
    /// Asks once, without a place in line.
    pub(super) async fn ask_once(
        &self,
        entry: &Entry,
        offer: Option<Offer>,
    ) -> Result<Attempt, Fault> {
        self.connects(entry).await;
        let debt = self.engine.outbox.debts.incur()?;
        let under = (self.engine.table.next_tenure(), 0, Secret::default());
        self.attempt(entry, under, Manner::Once, debt, offer).await
    }

    /// Whether to ask while another caller of this client asks: yes, until the server has said that there is no room
    /// for all.
    pub(super) fn asks_beside(&self, entry: &Entry) -> bool {
        // Readers wait for the answer to one of them: then all of them can join that read.
        let will_join = entry.keys.row.holders == Holders::Readers && self.options.is_like_others();
        entry.has_seats() && !will_join && entry.with(|lock| lock.ahead()) == 0
    }

    /// Asks once, beside the contender.
    pub(super) async fn ask_beside(&self, visit: &Visit) -> Result<Option<Hold>> {
        // This caller has no permit. It asks in a separate entry, where the lookout can cancel it if it is not polled.
        let beside = self.engine.visit(&visit.entry.keys, self.options.wish.permits, true)?;
        self.contest(&beside, self.clone().try_beside(visit.clone())).await.unwrap_or(Ok(None))
    }

    async fn try_beside(self, visit: Visit) -> Result<Option<Hold>> {
        let entry = &visit.entry;
        match self.ask_once(entry, None).await {
            Ok(Attempt::Granted(grant)) => {
                self.engine.begin(&visit, None, grant, self.holder()).map(Some)
            }
            // The contender rides out this fault.
            Err(fault) if !fault.is_passing() => Err(self.explained(entry, fault).await),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Asks for the contender, and records the answer.
    pub(super) async fn ask(&self, entry: &Entry, offer: Option<Offer>) -> Result<Attempt, Fault> {
        // Wait before the entry notes a request. A caller that is dropped during this wait has sent nothing, so nothing
        // else gives up the place that it has.
        self.connects(entry).await;
        // Incur the debt before the entry notes a request. A closed client sends no request, and it has to find in the
        // entry the place that it gives up.
        let debt = self.engine.outbox.debts.incur()?;
        // `close` waits until this request is noted, or its place given up.
        let _until_noted = debt.clone();
        if let Some(lined_up) = &self.lined_up {
            lined_up.asks(self.engine.commands.primary(&entry.keys));
        }
        let (id, place, manner) = entry.ask(self.lease());
        let (secret, sent) = self.engine.sign(&entry.keys);
        let answer = self.attempt(entry, (id, place, secret), manner, debt, offer).await;
        let event = match &answer {
            Ok(Attempt::Granted(_)) => return answer,
            Ok(Attempt::Other(Acquired::Waits { place, near, ttl, .. })) => {
                let again = ttl.is_some().then(|| self.ask_again_after(entry, *ttl));
                warn_of_eternity(entry, *ttl);
                Event::Waits { place: *place, near: *near, sent, again }
            }
            Ok(Attempt::Other(Acquired::Held(ttl) | Acquired::Kept(ttl))) => {
                Event::Held { again: self.ask_again_after(entry, *ttl), sent }
            }
            Ok(Attempt::Other(_)) => Event::Held { again: Duration::ZERO, sent },
            Err(fault) if fault.may_hold() => Event::Unanswered,
            Err(_) => Event::Refused,
        };
        let is_noted = entry.notes(event);
        if let (Ok(Attempt::Other(Acquired::Waits { .. })), false) = (&answer, is_noted) {
            // Since the answer came, `close` has taken the contender out of the entry. It gave up no place, since the
            // request was still in flight for it.
            self.engine.outbox.leave_line(&entry.keys, id);
        }
        answer
    }

    /// Waits until the client has tried to connect to the server of this lock, but no longer than for one answer. If a limit
    /// cuts the caller off during this wait, it knows nothing of the lock, and has sent nothing.
    async fn connects(&self, entry: &Entry) {
        self.known.iter().for_each(|known| known.wants_to_ask());
        let tried = self.engine.commands.tried(&entry.keys);
        let _ = within(self.engine.config.response(), pin!(tried)).await;
        // A waiter has to show signs of life meanwhile.
        if !entry.with(|lock| lock.was_told_to_wait()) {
            self.engine.is_heard().await;
        }
    }

    /// How long to park before the next request: until the holder's lease is over, and `max_park` at most.
    fn ask_again_after(&self, entry: &Entry, ttl: Option<Duration>) -> Duration {
        warn_of_eternity(entry, ttl);
        let most = self.engine.config.max_park;
        // Ask a little later than the expiry, and not all clients at the same moment.
        let grace = Duration::from_micros(fastrand::u64(1_000..=5_000));
        ttl.map_or(most, |ttl| most.min(ttl + grace))
    }

    /// Makes the request and sends it. If the request were an argument, this future would have space for it twice.
    async fn attempt(
        &self,
        entry: &Entry,
        (id, place, secret): (TenureId, u64, Secret),
        manner: Manner,
        debt: Debt,
        offer: Option<Offer>,
    ) -> Result<Attempt, Fault> {
        let known = self.known.as_deref();
        // Record it now, in case the future is dropped in between.
        let was_open = known.is_some_and(Known::asks);
        self.allow_keeping(entry);
        let began = Instant::now();
        let acquire = Acquire {
            keys: Arc::clone(&entry.keys),
            id,
            lease: self.lease(),
            manner,
            permits: self.options.wish.permits,
            within: self.options.outer().map(|within| within.id),
            place,
            secret,
            old: offer.as_ref().and_then(Offer::id),
            debt,
        };
        let attempted = attempt(&self.engine, acquire, entry).await;
        match &attempted {
            Ok(answer) => {
                let is_grant = matches!(answer, Attempt::Granted(_));
                self.engine.outages.call_answered(|| self.node(entry), is_grant);
                let is_in_line = matches!(answer, Attempt::Other(Acquired::Waits { .. }));
                let stands = is_in_line && entry.keys.row.line.is_ours();
                known.into_iter().for_each(|known| known.answered(stands));
                if !is_grant {
                    let former = entry.with(|lock| lock.granted_nothing(place > 0));
                    self.engine.table.give_back_all(former);
                }
                if let Some(offer) = offer {
                    offer.answered();
                }
            }
            Err(fault) => {
                entry.side_by_side(|shared| shared.others_come_first());
                known.into_iter().for_each(|known| known.failed(fault, was_open));
                if fault.is_passing() {
                    self.engine.outages.call_fails(self.node(entry), fault);
                    // The caller noticed it late.
                    let since = self.engine.commands.down_since(&entry.keys);
                    let began = since.map_or(began, |since| since.min(began));
                    entry.with(|lock| lock.failed(began.into()));
                }
            }
        }
        attempted
    }

    /// Says, before a request, whether the client may keep what it is granted.
    fn allow_keeping(&self, entry: &Entry) {
        if self.engine.config.keep.is_zero() {
            return;
        }
        if self.keeps(entry) {
            let tried = &self.engine.tried;
            let is_tried = || tried.is_expected_again(&entry.keys.channel, Instant::now());
            entry.allow_keeping(|| self.engine.listen(entry), is_tried);
        } else {
            entry.with(|lock| lock.forbid_keeping());
        }
    }

    /// The node of a cluster that has this lock.
    fn node(&self, entry: &Entry) -> Option<Node> {
        self.engine.commands.node(&entry.keys)
    }

    /// Waits until another attempt makes sense, or returns the error if failures have lasted too long. The time starts
    /// with the first failure of any caller of this entry since this caller came: so the callers in a queue do not ride
    /// out an outage one after the other.
    pub(super) async fn ride_out(
        &self,
        entry: &Entry,
        fault: Fault,
        short: &mut Short,
    ) -> Result<()> {
        let now = Instant::now();
        if !fault.is_passing() {
            return Err(self.explained(entry, fault).await);
        }
        let longest = self.engine.config.riding_out();
        let since = match fault {
            Fault::Unacknowledged(_) => {
                short.again(now.into(), longest + self.engine.config.response() * 2)
            }
            _ => entry.with(|lock| lock.failed(now.into())).instant().max(self.started),
        };
        let left = longest.saturating_sub(now - since);
        if left.is_zero() {
            return Err(fault.into_outage());
        }
        if let Fault::NotSent(_) = fault {
            return self.reconnects(entry, &fault, now + left).await;
        }
        sleep(jittered(RETRY_PAUSE).min(left)).await;
        Ok(())
    }

    /// Waits until there is a connection, and then for a random time, so that not all callers ask at once. A message ends either
    /// wait: it may report a grant.
    async fn reconnects(&self, entry: &Entry, fault: &Fault, until: Instant) -> Result<()> {
        let waits = Arc::clone(&self.engine.cut_off);
        tokio::select! {
            biased;
            parked = entry.park(until) => return parked,
            () = self.is_up(entry, fault) => {}
        }
        entry.park(until.min(Instant::now() + pause_of_one(&waits))).await
    }

    /// Waits until the server of this lock is connected. If that takes long, the log says so.
    async fn is_up(&self, entry: &Entry, fault: &Fault) {
        let mut up = pin!(self.engine.commands.up(&entry.keys));
        if timeout(LONG_OUTAGE, up.as_mut()).await.is_err() {
            self.engine.outages.call_fails(self.node(entry), fault);
            up.await;
        }
    }

    /// When the caller has waited for replicas for long enough, if too few of them acknowledge now. Its own requests do not say
    /// that in time: it may stand behind others that wait for the same replicas.
    ///
    /// # Errors
    /// That time is over.
    pub(super) fn shortage_ends(&self, entry: &Entry, own: &Short) -> Result<Option<Instant>> {
        let config = &self.engine.config;
        if config.replicas.is_none() || entry.keys.row.holders == Holders::Nobody {
            return Ok(None);
        }
        let Some(short) = self.engine.commands.shortage(&entry.keys) else { return Ok(None) };
        let until = short.since.max(self.started) + config.riding_out();
        if until > Instant::now() {
            return Ok(Some(until));
        }
        // A parked caller hears nothing of replicas, and they may be back: so it asks before it gives up. Its own request counts even
        // if it fails for another reason, and so says nothing about replicas.
        if short.seen < until && own.asked.is_none_or(|asked| asked < until.into()) {
            entry.step(Event::Roused);
            return Ok(None);
        }
        // The next caller of this client may sleep far from the front, and its time may be over too.
        self.engine.table.wake_next(entry);
        Err(short.fault.into_outage())
    }

    pub(super) async fn explained(&self, entry: &Entry, fault: Fault) -> Error {
        self.engine.commands.explained(fault, &entry.keys).await
    }
}

/// After a reconnect, the requests of all callers that waited for it are spread over some time. Each adds this much to it.
const SPREAD: Duration = Duration::from_micros(50);

/// For how long a caller pauses now that the connection is back: for a random time, which grows with the number of callers that
/// wait for it. Without a pause, all of them would ask at the same moment. Each has a clone of `cut_off`.
fn pause_of_one(cut_off: &Arc<()>) -> Duration {
    let callers = u32::try_from(Arc::strong_count(cut_off) - 1).unwrap_or(u32::MAX);
    SPREAD.saturating_mul(callers).mul_f64(fastrand::f64())
}

/// What one caller has seen of a shortage of replicas: since when they have not acknowledged what it was granted. The server keeps
/// answering, so nothing else counts this as an outage.
#[derive(Default)]
pub(super) struct Short {
    /// The times of the first failure and of the last.
    times: Option<(CompactInstant, CompactInstant)>,
    /// When the caller last asked.
    pub(super) asked: Option<CompactInstant>,
}

impl Short {
    /// Records a failure at `now`. Returns when failures began. After `long` without a failure the time starts again,
    /// since the caller waited for others.
    fn again(&mut self, now: CompactInstant, long: Duration) -> Instant {
        let goes_on = self.times.filter(|(_, last)| now.saturating_duration_since(*last) < long);
        let first = goes_on.map_or(now, |(first, _)| first);
        self.times = Some((first, now));
        first.instant()
    }
}

fn warn_of_eternity(entry: &Entry, ttl: Option<Duration>) {
    if ttl.is_none() {
        let name = entry.keys.name();
        log::warn!(?name, "the key of the lock has no TTL: the lock may never become free");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_callers_that_wait_for_a_connection_are_spread() {
        const CALLERS: u32 = 2_000;
        let cut_off = Arc::new(());
        let waits: Vec<_> = (0..CALLERS).map(|_| Arc::clone(&cut_off)).collect();
        let longest = waits.iter().map(pause_of_one).max().unwrap();
        assert!(longest > SPREAD * CALLERS / 2 && longest <= SPREAD * CALLERS, "{longest:?}");
        drop(waits);
        assert!(pause_of_one(&Arc::clone(&cut_off)) <= SPREAD, "the others have gone");
    }
}
