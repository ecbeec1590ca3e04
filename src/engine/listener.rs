//! The listener: which waiters a message wakes. `wire/subscriber.rs` brings each message here, and `wire/subscriber/message.rs`
//! splits it into words, one for each waiter or holder. `entry/table.rs` finds whom a word concerns, and `entry.rs` passes it
//! to its waiter, and opens its gate.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use crate::core::waiting::{Event, PushedGrant};
use crate::engine::entry::{Entry, Tenure};
use crate::engine::shared::Memory;
use crate::keys::{Keys, TenureId};
use crate::kinds::Holders;
use crate::meters;
use crate::wire::{Changed, Heard, News, Word, publisher, words};

impl Memory {
    /// Turns a message into events for contenders, and into checks of tenures.
    pub(crate) fn hear(&self, channel: &str, heard: Heard<'_>) {
        let (name_channel, is_own) = shared_channel(channel, &self.client);
        if !matches!(heard, Heard::Message(_)) {
            meters::woken("subscription", || self.waiting(name_channel));
        }
        match heard {
            Heard::Message(message) if is_own => self.hear_words(name_channel, message),
            Heard::Message(message) => self.hear_of_all(channel, message),
            // The channel is live, or unreachable. In both cases the waiters have to ask.
            Heard::Live | Heard::Deaf => {
                self.is_wanted(name_channel);
                self.table.rouse(name_channel);
            }
        }
    }

    /// The server says what has changed, and no more: the lock may be lost, or may have gained a waiter.
    pub(crate) fn hear_change(&self, changed: Changed<'_>) {
        let alarm = |tenure: &Arc<Tenure>| self.outbox.timetable.alarm(tenure);
        let key = match changed {
            Changed::Key(key) => key,
            Changed::All(concerns) => {
                let tenures = self.outbox.timetable.tenures();
                return tenures.iter().filter(|tenure| concerns(&tenure.keys)).for_each(alarm);
            }
        };
        let (prefix, layout) = (&self.config.prefix, self.config.layout);
        let Some(channel) = Keys::channel_of_holders(self.space, prefix, layout, key) else {
            return;
        };
        let tenures = self.table.tenures_of(&channel);
        tenures.filter(|tenure| tenure.keys.row.is_tracked()).for_each(|tenure| alarm(&tenure));
    }

    /// How many contenders wait on this channel.
    fn waiting(&self, channel: &str) -> usize {
        self.table
            .all_of(channel)
            .iter()
            .filter(|entry| entry.with(|lock| lock.was_told_to_wait()))
            .count()
    }

    /// A message to this client alone.
    fn hear_words(&self, channel: &str, message: &[u8]) {
        let (now, mut has_left) = (Instant::now(), false);
        let (mut found, mut given_up) = (None, BTreeSet::new());
        for word in words(message, &self.client) {
            let signed = self.proved(channel, word, now);
            let entry = self.table.find_waiting(channel, word.id).or_else(|| {
                // Whoever may publish can name hundreds of owner fields at once: look for all of them together.
                let search = || {
                    let unknown = |id: &TenureId| self.table.find_waiting(channel, *id).is_none();
                    let ids = words(message, &self.client).map(|word| word.id).filter(unknown);
                    self.table.find_all_waiting(channel, ids.collect())
                };
                found.get_or_insert_with(search).get(&word.id).map(Arc::clone)
            });
            if let Some(entry) = &entry {
                meters::woken("message", || {
                    usize::from(entry.with(|lock| lock.was_told_to_wait()))
                });
            }
            match (word.news, entry) {
                // The grant that this is about may not have arrived yet.
                (News::Wanted { is_tried }, _) => {
                    // Note it first: a caller of this client may be asking again, in an entry that is not in the table yet.
                    if is_tried {
                        self.tried.note(channel, now);
                    }
                    self.is_wanted(channel);
                }
                (news, None) => {
                    has_left |= matches!(news, News::Near { at_once: true });
                    // The server has made this grant. A message that any client could publish releases nothing.
                    if signed.is_some() {
                        given_up.insert(word.id);
                    }
                }
                (News::Granted { number, .. }, Some(entry)) => {
                    // A grant without a proof may come from any client: it only makes the contender ask.
                    match signed {
                        // If replicas have to acknowledge grants, only the answer to a request counts.
                        Some(signed) if self.config.replicas.is_none() => {
                            let grant = PushedGrant { id: word.id, number, signed };
                            entry.step(Event::Told(grant));
                        }
                        Some(_) => entry.step(Event::Roused),
                        None => self.table.name(&entry, Event::Roused),
                    }
                }
                (News::Near { at_once: true }, Some(entry)) => {
                    self.table.name(&entry, Event::Near { at_once: true });
                }
                (News::Near { at_once: false }, Some(entry)) => {
                    entry.step(Event::Near { at_once: false });
                }
                // Any client may send this word. It concerns the holder with this owner field, or a contender that was granted the
                // lock by message and is about to hold it. The contender is told first: if its tenure begins just now, either the
                // contender knows by then, or it is found as the holder.
                (News::Out, Some(entry)) => {
                    entry.step(Event::Lost(Some(word.id)));
                    entry
                        .holder(word.id)
                        .iter()
                        .for_each(|tenure| self.outbox.timetable.hasten(tenure));
                }
            }
        }
        if has_left {
            self.show_life(channel);
        }
        if !given_up.is_empty() {
            self.give_up_grants(channel, given_up);
        }
    }

    /// Another client wants the lock, or this one may have missed that: gives the lock back if it is kept.
    fn is_wanted(&self, channel: &str) {
        // A client keeps plain locks only, and thousands of others may wait on the channel.
        self.table.plain_of(channel).for_each(|entry| self.outbox.give_back_kept(&entry));
    }

    /// The server waits for a sign of life of a waiter that has left. The sign of any contender shows that the client
    /// is alive. Thousands of them may be far from the front, so one of these is enough.
    fn show_life(&self, channel: &str) {
        let entries = self.table.all_of(channel);
        let near = entries.iter().filter(|entry| !entry.with(|lock| lock.is_far()));
        let far = || entries.iter().find(|entry| entry.with(|lock| lock.is_far()));
        let one_far = entries.iter().find(|entry| entry.can_speak()).or_else(far);
        near.chain(one_far).for_each(|entry| self.table.name(entry, Event::Roused));
    }

    /// When the client has shown the sign of life for which the server made this grant, if the server has made it.
    fn proved(&self, channel: &str, word: Word, now: Instant) -> Option<Instant> {
        let News::Granted { number, proof } = word.news else { return None };
        self.secrets.accept(proof, (&word.id.of(&self.client).to_string(), number), now, channel)
    }

    /// Releases the grants to waiters that this client does not have. Such a waiter has just left. Or the server has lost its last
    /// writes, as a promoted replica can: then its line has waiters that were granted the lock long ago, or have left. Their
    /// client is alive, so each of them would block the line for a `waiter_ttl`.
    fn give_up_grants(&self, channel: &str, mut ids: BTreeSet<TenureId>) {
        let entries = self.table.all_of(channel);
        // A contender here had this place under a former owner field, and got no answer. If the grant were released
        // before the contender has asked under its new owner field, the waiters behind it would be let in. So it asks
        // at once, and releases the former one after the answer.
        for entry in &entries {
            if entry.takes_held_back_from(&mut ids) {
                entry.step(Event::Roused);
            }
        }
        // The waiters of one line are of one kind.
        let Some(entry) = entries.iter().find(|entry| entry.keys.row.line.is_ours()) else {
            return;
        };
        for id in ids {
            self.outbox.leave_line(&entry.keys, id);
        }
    }

    /// A message to all clients: one of them used force, or found that a lock was lost.
    fn hear_of_all(&self, channel: &str, message: &[u8]) {
        let is_anothers = publisher(message) != self.client.as_bytes();
        let is_force = publisher(message) == b"force_unlock";
        let names_holders = is_force && message.contains(&b' ');
        let names_ours = words(message, &self.client).any(|word| matches!(word.news, News::Out));
        meters::woken("message", || self.waiting(channel));
        self.is_wanted(channel);
        if !is_force {
            // `notify_all` notifies each waiter. A client that found a lock gone may have found the line gone too, and with it the
            // entries of waiters far from the front.
            self.table.rouse(channel);
        }
        for entry in self.table.all_of(channel) {
            // A client that used force has let in the next waiter.
            if is_force && entry.is_stirred() {
                self.table.name(&entry, Event::Stirred);
            }
            if is_anothers && !names_holders {
                self.doubt(&entry);
            }
            // Perhaps a caller that has been granted the lock, and has no place: no word finds it. If its tenure begins just
            // now, either it sees this note, or the word finds it as the holder.
            if names_ours {
                entry.with(|lock| lock.note_loss(Instant::now().into()));
            }
        }
        self.hear_words(channel, message);
    }

    /// A holder at this name may have lost the lock, and the message names none.
    fn doubt(&self, entry: &Entry) {
        let row = entry.keys.row;
        // Redisson's channels report every release, and those of a condition every `notify_all`. What a contender is granted
        // just then is not checked, since that would cost a request.
        if row.line.is_ours() && row.holders != Holders::Notified {
            entry.step(Event::Lost(None));
            entry.with(|lock| lock.note_loss(Instant::now().into()));
        }
        // If several clients hold a lock of Redisson's, the release of one says nothing about the others.
        if row.holders.is_one() || row.line.is_ours() {
            entry.tenure().iter().for_each(|tenure| self.outbox.timetable.hasten(tenure));
        }
    }
}

/// The channel of the name that this channel belongs to, and whether this channel is for this client alone.
fn shared_channel<'a>(channel: &'a str, client: &str) -> (&'a str, bool) {
    let shared = channel.strip_suffix(client).and_then(|channel| channel.strip_suffix(':'));
    (shared.unwrap_or(channel), shared.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;
    use crate::config::{Config, Layout};
    use crate::core::budget::Idle;
    use crate::core::tenure::Due;
    use crate::core::waiting::Next;
    use crate::core::waiting::Rules;
    use crate::engine::entry::Visit;
    use crate::engine::entry::tenure::tests::beginning;
    use crate::engine::ghost::Ghost;
    use crate::engine::grant::{Beginning, Lease};
    use crate::engine::releaser::Job;
    use crate::keys::Space;
    use crate::kinds::Kind;

    const TTL: Duration = Duration::from_secs(1);
    const FORMER: TenureId = TenureId(7);
    const RULES: Rules = Rules { waiter_ttl: TTL, pushed_lease: TTL, max_park: TTL, rests: true };

    /// A listener of the client `us`, and the jobs that it leaves to the releaser.
    fn listener() -> (Arc<Memory>, UnboundedReceiver<Job>) {
        let (releaser, jobs) = unbounded_channel();
        let config = Config::default().waiter_ttl(TTL).max_park(TTL);
        let config = (config, Space::Database(0));
        (Arc::new(Memory::new("us".to_owned(), config, releaser)), jobs)
    }

    /// The server grants a fair lock to the owner field [`FORMER`], under which no caller waits any more.
    fn hear_of_a_grant(listener: &Memory, keys: &Keys) {
        let (secret, _) = listener.secrets.make(Instant::now(), &keys.channel);
        let proof = secret.proof(&format!("us:{}", FORMER.0), 5);
        let message = format!("other us:{}=5@{proof}", FORMER.0);
        listener.hear(&format!("{}:us", keys.channel), Heard::Message(message.as_bytes()));
    }

    fn fair() -> Arc<Keys> {
        Arc::new(Keys::new(Layout::Native, Kind::Fair, "a".to_owned()).unwrap())
    }

    /// A message to all clients.
    fn hear_all(listener: &Memory, keys: &Keys, message: &str) {
        listener.hear(&keys.channel, Heard::Message(message.as_bytes()));
    }

    /// A contender that stands in line under the owner field [`FORMER`], far from the front.
    fn stands(listener: &Memory, keys: &Arc<Keys>) -> Visit {
        let visit = listener.table.visit(keys, 1).unwrap();
        asks(&visit.entry, FORMER);
        let (_, sent) = listener.secrets.make(Instant::now(), &keys.channel);
        let event = Event::Waits { place: 1, near: false, sent, again: None };
        visit.entry.step(event);
        visit
    }

    #[tokio::test(start_paused = true)]
    async fn a_contender_does_not_take_a_grant_of_which_it_hears_that_it_was_taken_away() {
        for (kind, message, takes) in [
            (Kind::Lock, "force_unlock us:7", false),
            (Kind::Lock, "force_unlock us:8", true),
            (Kind::Lock, "force_unlock", false),
            (Kind::Lock, "other", false),
            (Kind::Write, "force_unlock us:7", false),
            (Kind::Condition, "notify_all", true),
        ] {
            let (listener, _jobs) = listener();
            let keys = Arc::new(Keys::new(Layout::Native, kind, "a".to_owned()).unwrap());
            let visit = stands(&listener, &keys);
            hear_of_a_grant(&listener, &keys);
            hear_all(&listener, &keys, message);
            let next = visit.next(true, TTL);
            let next_takes = matches!(next, Next::Take(_));
            assert_eq!(next_takes, takes, "{message:?} of a {}: {next:?}", kind.word());
        }
    }

    /// A tenure with a fixed lease, which was asked for at this time.
    fn begins_at(sent: Instant) -> Beginning {
        beginning(FORMER, (Lease::Fixed(TTL), TTL), sent)
    }

    /// A contender asks under this owner field.
    fn asks(entry: &Entry, id: TenureId) {
        entry.with(|lock| lock.ask(Instant::now(), None, || id, RULES));
    }

    fn is_due(tenure: &Tenure) -> bool {
        let idle = Idle { pickup: TTL, keep: TTL };
        matches!(tenure.due(Instant::now(), None, idle), Due::Renew(_))
    }

    /// The server has granted the lock, and the contender has not been polled yet.
    #[tokio::test(start_paused = true)]
    async fn a_grant_that_was_taken_away_before_its_contender_has_it_is_checked_at_once() {
        for (kind, message, is_checked) in [
            (Kind::Lock, "force_unlock us:7", true),
            (Kind::Lock, "force_unlock them:7", false),
            (Kind::Read, "force_unlock us:7", true),
            (Kind::Semaphore { permits: 3 }, "other", true),
        ] {
            let (listener, _jobs) = listener();
            let keys = Arc::new(Keys::new(Layout::Native, kind, "a".to_owned()).unwrap());
            let permit = listener.table.visit(&keys, 1).unwrap().try_permit().unwrap();
            asks(permit.entry(), FORMER);
            let sent = Instant::now();
            hear_all(&listener, &keys, message);
            let tenure = permit.begin(begins_at(sent));
            assert_eq!(is_due(&tenure), is_checked, "{message:?} of a {}", kind.word());
        }
    }

    /// A caller that does not wait, or that asks beside the contender, has no place under which a message could find it.
    #[tokio::test(start_paused = true)]
    async fn a_grant_to_a_caller_without_a_place_that_was_taken_away_is_checked_at_once() {
        for (kind, message, sent_first, is_checked) in [
            (Kind::Lock, "force_unlock us:7", true, true),
            (Kind::Lock, "force_unlock", true, true),
            (Kind::Lock, "other", true, true),
            (Kind::Lock, "force_unlock us:7", false, false),
            (Kind::Semaphore { permits: 3 }, "force_unlock us:7", true, true),
            (Kind::Semaphore { permits: 3 }, "other", true, true),
            (Kind::Semaphore { permits: 3 }, "force_unlock us:7", false, false),
        ] {
            let (listener, _jobs) = listener();
            let keys = Arc::new(Keys::new(Layout::Native, kind, "a".to_owned()).unwrap());
            let visit = listener.table.visit(&keys, 1).unwrap();
            let before = Instant::now();
            hear_all(&listener, &keys, message);
            tokio::time::advance(Duration::from_millis(1)).await;
            let sent = if sent_first { before } else { Instant::now() };
            let is_beside = keys.row.holders.are_several();
            let permit = visit.try_permit().filter(|_| !is_beside);
            let tenure = visit.begin(begins_at(sent), permit);
            assert_eq!(is_due(&tenure), is_checked, "{message:?} of a {}", kind.word());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_to_a_caller_that_has_gone_is_given_back() {
        let ((listener, mut jobs), keys) = (listener(), fair());
        let _visit = listener.table.visit(&keys, 1).unwrap();
        hear_of_a_grant(&listener, &keys);
        assert_eq!(jobs.try_recv().unwrap().id, FORMER);
    }

    /// So many contenders that wait separately in one line, far from its front.
    fn crowd(listener: &Memory, keys: &Arc<Keys>, size: u64) -> Vec<Visit> {
        let enter = |id| {
            let visit = listener.table.enter_alone(keys, keys.channel.clone(), TenureId(id));
            let visit = visit.unwrap();
            asks(&visit.entry, TenureId(id));
            let sent = Instant::now();
            let again = Some(TTL);
            let event = Event::Waits { place: id, near: false, sent, again };
            visit.entry.step(event);
            visit
        };
        (1..=size).map(enter).collect()
    }

    /// How many of them ask now.
    fn asking(crowd: &[Visit]) -> usize {
        let asks = |visit: &&Visit| matches!(visit.next(true, TTL), Next::Ask);
        crowd.iter().filter(asks).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_for_a_caller_that_has_gone_takes_one_far_contender() {
        let ((listener, _jobs), keys) = (listener(), fair());
        let far = crowd(&listener, &keys, 3);
        listener.hear(&format!("{}:us", keys.channel), Heard::Message(b"other us:98! us:99!"));
        assert_eq!(asking(&far), 1);
    }

    /// Anybody who may publish can write these messages, as often as they like.
    #[tokio::test(start_paused = true)]
    async fn no_message_makes_a_whole_crowd_ask_at_once() {
        let words = |word| (1..=200).map(|id| format!(" us:{id}{word}")).collect::<String>();
        let (near, at_once, forged) = (words("?"), words("!"), words("=5@0123456789abcdef0123"));
        for (kind, own, to_all, last) in [
            (Kind::Fair, &at_once, "other", Duration::from_millis(300)),
            (Kind::Fair, &forged, "other", Duration::from_millis(300)),
            (Kind::Fair, &near, "force_unlock", Duration::from_millis(300)),
            (Kind::Fair, &near, "other", Duration::from_millis(300)),
            (Kind::Condition, &String::new(), "notify_all", Duration::from_millis(15)),
        ] {
            let (listener, _jobs) = listener();
            let keys = Arc::new(Keys::new(Layout::Native, kind, "a".to_owned()).unwrap());
            let crowd = crowd(&listener, &keys, 200);
            let own = format!("other{own}");
            for _ in 0..10 {
                let channel = format!("{}:us", keys.channel);
                listener.hear(&channel, Heard::Message(own.as_bytes()));
                hear_all(&listener, &keys, to_all);
            }
            let at_once = asking(&crowd);
            assert!((60..=130).contains(&at_once), "{at_once} of {kind:?} after {to_all}");
            tokio::time::advance(last).await;
            assert_eq!(asking(&crowd), 200, "each has its turn after {to_all}");
        }
    }

    /// Anybody who may publish can write as many words, also those that repeat the proofs of grants. The clock is paused: a proof
    /// counts for a second.
    #[tokio::test(start_paused = true)]
    async fn a_message_of_many_words_does_not_look_at_all_callers_for_each() {
        let (listener, mut jobs) = listener();
        let (keys, passes) = (fair(), || listener.table.passes.swap(0, Ordering::Relaxed));
        let crowd = crowd(&listener, &keys, 200);
        let (secret, _) = listener.secrets.make(Instant::now(), &keys.channel);
        let proved = |id: u64| format!("={id}@{}", secret.proof(&format!("us:{id}"), id));
        type Said<'a> = &'a dyn Fn(u64) -> String;
        let words: [(Said<'_>, usize); 5] = [
            (&|_| "?".to_owned(), 0),
            (&|_| "!".to_owned(), 0),
            (&|_| String::new(), 0),
            (&|id| format!("={id}@0000004200112233445566778899"), 0),
            (&proved, 250),
        ];
        for (said, released) in words {
            let gone = (1_000..1_250).map(|id| format!(" us:{id}{}", said(id)));
            let message = format!("other{}", gone.collect::<String>());
            passes();
            listener.hear(&format!("{}:us", keys.channel), Heard::Message(message.as_bytes()));
            let own = passes();
            assert!(own <= 2, "{own} passes for words like {:?}", said(1));
            hear_all(&listener, &keys, &message);
            let to_all = passes();
            assert!(to_all <= 6, "{to_all} passes for words like {:?}", said(1));
            // A proof counts once.
            let jobs = std::iter::from_fn(|| jobs.try_recv().ok()).count();
            assert_eq!(jobs, released, "{:?}", said(1));
        }
        drop(crowd);
    }

    /// Its last request was not answered, so it has another owner field than its entry.
    #[tokio::test(start_paused = true)]
    async fn a_contender_under_a_later_owner_field_is_found_among_many_words() {
        let (listener, _jobs) = listener();
        let keys = fair();
        let crowd = crowd(&listener, &keys, 20);
        for (contender, id) in crowd[10..].iter().zip([900, 901]) {
            asks(&contender.entry, TenureId(id));
            contender.entry.notes(Event::Unanswered);
            asks(&contender.entry, TenureId(id));
            let event =
                Event::Waits { place: id, near: false, sent: Instant::now(), again: Some(TTL) };
            contender.entry.step(event);
        }
        let gone = (1_000..1_100).map(|id| format!(" us:{id}?")).collect::<String>();
        let message = format!("other{gone} us:900! us:5! us:901!");
        listener.hear(&format!("{}:us", keys.channel), Heard::Message(message.as_bytes()));
        let asks = |visit: &Visit| matches!(visit.next(true, TTL), Next::Ask);
        let asking: Vec<_> = (1..).zip(&crowd).filter(|(_, visit)| asks(visit)).collect();
        assert_eq!(asking.into_iter().map(|(id, _)| id).collect::<Vec<u32>>(), [5, 11, 12]);
    }

    /// If the grant were released, the waiters behind this contender would be let in before it asks again.
    #[tokio::test(start_paused = true)]
    async fn a_grant_to_a_former_owner_field_waits_until_the_contender_has_asked_again() {
        let ((listener, mut jobs), keys) = (listener(), fair());
        let visit = listener.table.visit(&keys, 1).unwrap();
        let ghost = Ghost {
            keys: Arc::clone(&keys),
            id: FORMER,
            sent_on: 1,
            until: Instant::now() + TTL,
            debt: listener.outbox.debts.tidying(),
        };
        visit.entry.with(|lock| lock.hold_back(Instant::now(), ghost));
        hear_of_a_grant(&listener, &keys);
        assert!(jobs.try_recv().is_err(), "the contender gives it back after its answer");
    }
}
