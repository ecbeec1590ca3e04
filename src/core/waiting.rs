//! How a contender waits, for a lock or for several permits alike: what it knows of its place in the line, what it does
//! next, and how long it parks. The server's answer brings the TTL of the holder's lease (`caller/ask.rs`), and
//! `Config::max_park` bounds the time. Whom the server lets in: `lua/line/line.lua`.
//!
//! Plain state. It does no I/O and reads no clock, so a test can play a hundred interleavings in a millisecond. Only
//! `caller/contend.rs` drives it: it asks [`Waiting::next`] what to do, does it, and reports the outcome as an [`Event`].
//!
//! 1. The line is on the server. A client asks once, and a message tells it that it was granted the lock.
//! 2. A contender that has lined up may show one more sign of life, and then sleeps. Only contenders near the front
//!    continue to show signs. After a few signs such a contender rests, and shows them less and less often: so a client
//!    that waits for hours costs almost nothing. The server notifies it when the line moves.
//! 3. A contender believes a grant by message if the grant names this attempt: by its owner field, and by a sign of
//!    life that only this client can have made. Every other message only makes it ask.
//!
//! `lua/line/line.lua`, the server's half, skips clients that show no signs of life.

pub(super) mod pace;

use std::time::Duration;

use tokio::time::Instant;

use crate::core::lifetime::deadline;
use crate::core::waiting::pace::Pace;
use crate::keys::TenureId;

pub(crate) use pace::Turns;

/// The pause between two requests of a contender whose channels are not subscribed, so that no message reaches it. It is longer
/// by [`DEAF_BEHIND`] for each caller of its client that waits separately ahead of it: thousands of them would keep a server busy.
const DEAF: Duration = Duration::from_millis(250);
const DEAF_BEHIND: Duration = Duration::from_millis(4);

/// How many signs of life a contender near the front shows before it rests: as many as one `waiter_ttl` needs.
pub(super) const SIGNS: u32 = 3;

/// The longest park of a contender for which another one asks. It is woken when the other one stops asking for it. It
/// also asks by itself after this time: so no sleep depends on another contender forever.
const ENDLESS: Duration = Duration::from_secs(60 * 60);

/// What lies between two requests of a contender that messages make ask again and again. In Redisson's layout each release is
/// a message to all, and whoever asks first gets the lock.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_WITHOUT_LINE: Duration = Duration::from_millis(1);

/// The rules by which a contender waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// How long a client counts as alive after a sign of life.
    pub(crate) waiter_ttl: Duration,
    /// The lease of a grant by message.
    pub(crate) pushed_lease: Duration,
    /// The longest time that a client sleeps without asking.
    pub(crate) max_park: Duration,
    /// Whether contenders may rest: the server has to notify them when the line moves. Redisson's line does not.
    pub(crate) rests: bool,
}

impl Rules {
    fn pause(self) -> Duration {
        if self.rests { PAUSE } else { PAUSE_WITHOUT_LINE }
    }
}

/// A grant that a message brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PushedGrant {
    pub(crate) id: TenureId,
    pub(crate) number: u64,
    /// When the contender sent the sign of life for which the server made this grant.
    pub(crate) signed: Instant,
}

impl PushedGrant {
    /// A holder with less time left would have to confirm the grant at once. Then the contender may just as well ask.
    fn is_worth_taking(self, now: Instant, rules: Rules) -> bool {
        deadline(self.signed, rules.pushed_lease) > now + rules.pushed_lease / 3
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A request is about to be sent.
    Asked,
    /// The server answered a request sent at `sent`: the contender stands in the line, at this place. The
    /// server wants it to ask after `again`: usually when the first lease is over, in a quick line sooner.
    Waits { place: u64, near: bool, sent: Instant, again: Option<Duration> },
    /// The server answered: another holder has the lock, and this contender stands in no line. It should ask again
    /// after `again`.
    Held { again: Duration, sent: Instant },
    /// The server refused the request, and nothing was changed.
    Refused,
    /// The request may have run, or may still run.
    Unanswered,
    /// The server has granted the contender the lock.
    Told(PushedGrant),
    /// The contender is near the front. `at_once`: the server has not heard from its client for too long.
    Near { at_once: bool },
    /// An event at this name that concerns contenders near the front.
    Stirred,
    /// This owner field has lost the lock, if it had it; `None`: any holder may have lost it.
    Lost(Option<TenureId>),
    /// The contender may have missed something: the channel was just subscribed, or lost.
    Roused,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Ask,
    Take(PushedGrant),
    /// Park until this time, or until the next event.
    Park(Instant),
}

/// What a contender knows.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    /// The owner field under which it asks, and under which it stands in the line.
    pub(super) id: TenureId,
    /// Its place, once the server has reported one. The contender keeps the place under a new owner field.
    pub(super) place: u64,
    /// The server may have an entry of this owner field in the line.
    pub(super) stands: bool,
    pub(super) near: bool,
    /// The last request reported that it rests.
    pub(super) rests: bool,
    /// Signs of life since the line last moved, as far as the contender knows.
    pub(super) signs: u32,
    /// A request is in flight, or may still run.
    pub(super) under_way: bool,
    /// When the last answered request was sent.
    pub(super) signed: Option<Instant>,
    pub(super) told: Option<PushedGrant>,
    /// A message says that the lock was taken away, since it was granted by message.
    pub(super) doubted: bool,
    /// When the contender has to ask in any case.
    pub(super) ask_at: Option<Instant>,
    /// When a far contender that speaks for others has to ask: by then all near contenders may have died together with the
    /// holder.
    pub(super) look_at: Option<Instant>,
    /// The shortest lease that was asked for under this owner field. Callers with different leases may succeed each
    /// other, and a grant by message may be for any of them.
    pub(super) pushed_lease: Duration,
    pub(super) pace: Pace,
}

impl Waiting {
    pub(crate) fn new(id: TenureId, now: Instant) -> Self {
        Self {
            id,
            place: 0,
            stands: false,
            near: false,
            rests: false,
            signs: 0,
            under_way: false,
            signed: None,
            told: None,
            doubted: false,
            ask_at: Some(now),
            look_at: None,
            pushed_lease: Duration::MAX,
            pace: Pace::default(),
        }
    }

    pub(crate) fn id(&self) -> TenureId {
        self.id
    }

    pub(crate) fn place(&self) -> u64 {
        self.place
    }

    pub(crate) fn rests(&self) -> bool {
        self.rests
    }

    /// Whether the server may have an entry with this owner field, and no request may still run.
    pub(crate) fn stands(&self) -> bool {
        self.stands && !self.under_way
    }

    /// Whether a request may still run. The client cleans up after that request. So the contender has to continue under
    /// another owner field, or its own place would be removed too.
    pub(crate) fn may_still_run(&self) -> bool {
        self.under_way
    }

    /// Whether another contender has to ask for this one from time to time.
    pub(crate) fn is_far(&self) -> bool {
        self.stands && !self.near
    }

    /// Whether it is concerned by an event for those near the front. A message that comes while a request is in flight may be newer
    /// than the answer to it.
    pub(crate) fn is_stirred(&self) -> bool {
        !self.is_far() || self.under_way
    }

    /// Whether the server has told it to wait.
    pub(crate) fn was_told_to_wait(&self) -> bool {
        self.signed.is_some() || self.place > 0
    }

    /// Whether the contender stands in line, and was granted nothing yet.
    pub(crate) fn only_stands(&self) -> bool {
        self.was_told_to_wait() && !self.may_still_run() && self.told.is_none()
    }

    /// These rules, with the lease of a grant by message.
    pub(crate) fn rules(&self, rules: Rules) -> Rules {
        Rules { pushed_lease: rules.pushed_lease.min(self.pushed_lease), ..rules }
    }

    /// Continues at the same place under another owner field.
    pub(crate) fn rename(&mut self, id: TenureId, now: Instant) {
        *self = Self { place: self.place, pace: self.pace, ..Self::new(id, now) };
    }

    /// Records an event.
    pub(crate) fn step(&mut self, now: Instant, event: Event, rules: Rules) {
        match event {
            Event::Asked => self.asked(now, rules),
            Event::Waits { place, near, sent, again } => {
                self.answered(sent);
                self.place = place;
                self.near |= near;
                self.wait(now, sent, again, rules);
            }
            Event::Held { again, sent } => {
                self.answered(sent);
                self.stands = false;
                self.ask_by(now + again);
            }
            Event::Refused => {
                self.under_way = false;
                self.ask_by(now);
            }
            Event::Unanswered => self.ask_by(now),
            // Only a grant to this owner field counts: the client is releasing the grants to former ones.
            Event::Told(grant) if grant.id == self.id => self.is_told(grant),
            Event::Told(_) => {}
            Event::Near { at_once } => self.comes_near(now, at_once, rules),
            Event::Lost(id) => self.doubted |= id.is_none_or(|id| id == self.id),
            Event::Stirred if !self.is_stirred() => {}
            Event::Stirred | Event::Roused => {
                self.wake();
                self.ask_by(self.pace.next(now, rules.pause()));
            }
        }
    }

    /// The contender may have missed something, and so may many others of its client in the same line. It asks when its turn comes.
    /// Returns whether that is earlier than it would have asked.
    pub(crate) fn takes_turn(&mut self, now: Instant, turns: &mut Turns, rules: Rules) -> bool {
        let (at, is_earlier) = self.turn(now, self.near, turns);
        if is_earlier {
            self.step(at, Event::Roused, rules);
        }
        is_earlier
    }

    /// A message names this contender, and makes it ask: when its turn comes, unless it asks earlier anyway.
    pub(crate) fn is_named(&mut self, now: Instant, event: Event, turns: &mut Turns, rules: Rules) {
        let (at, _) = self.turn(now, true, turns);
        self.step(at, event, rules);
    }

    /// When its turn comes. It takes the turn if that is earlier than it would have asked.
    fn turn(&self, now: Instant, is_near: bool, turns: &mut Turns) -> (Instant, bool) {
        let at = turns.next(now, is_near);
        let is_earlier = self.ask_at.is_none_or(|ask_at| ask_at > at);
        if is_earlier {
            turns.take(now, is_near);
        }
        (at, is_earlier)
    }

    fn asked(&mut self, now: Instant, rules: Rules) {
        self.pace.asked(now, rules.pause());
        (self.under_way, self.stands) = (true, true);
        self.rests = rules.rests && self.near && self.signs >= SIGNS;
        self.pushed_lease = self.pushed_lease.min(rules.pushed_lease);
        // The answer says again whether this contender is near, and when to ask. A message that comes from now on may
        // be newer than the answer, so the answer must not undo it.
        (self.near, self.ask_at, self.look_at) = (false, None, None);
        // Only the answer says whether a doubted grant by message is still valid.
        self.doubted &= self.told.is_some();
    }

    fn is_told(&mut self, grant: PushedGrant) {
        // An answer that is newer came first: only the next one says whether the grant is still valid. See `answered`.
        let is_older = self.signed.is_some_and(|sent| grant.signed < sent);
        (self.told, self.doubted) = (Some(grant), is_older);
    }

    /// Plans the next sign of life, if one is needed, and the request that the server wants after `again`.
    fn wait(&mut self, now: Instant, sent: Instant, again: Option<Duration>, rules: Rules) {
        let again = again.map(|again| now + again);
        if self.near {
            self.signs += 1;
            self.ask_by(sent + self.pause(rules));
            again.into_iter().for_each(|again| self.ask_by(again));
        } else {
            self.look_at = again;
        }
    }

    fn comes_near(&mut self, now: Instant, at_once: bool, rules: Rules) {
        self.near = true;
        self.wake();
        // A request in flight serves as the sign of life that is due. One that has to ask at once may have been taken out of the line
        // after that request ran.
        if at_once || !self.under_way {
            let signed = self.signed.filter(|_| !at_once);
            let at_once = self.pace.next(now, rules.pause());
            self.ask_by(signed.map_or(at_once, |signed| signed + rules.waiter_ttl / 3));
        }
    }

    /// What to do now. `deaf`: messages do not reach this client, and so many callers of it wait separately ahead of this one.
    /// `speaks`: this contender has to ask from time to time for all far contenders of this client at this name, in case
    /// a message is lost.
    pub(crate) fn next(&self, now: Instant, deaf: Option<u32>, speaks: bool, rules: Rules) -> Next {
        // The client releases what an unanswered attempt was granted, even if a message reports the grant.
        if let Some(grant) = self.told.filter(|_| !self.under_way) {
            // If the grant is almost over or in doubt, ask: the answer carries the whole lease.
            let takes = !self.doubted && grant.is_worth_taking(now, rules);
            return if takes { Next::Take(grant) } else { Next::Ask };
        }
        let ask_at = [
            self.ask_at,
            self.look_at.filter(|_| speaks),
            self.signed.filter(|_| speaks).map(|signed| signed + rules.max_park),
            self.signed.zip(deaf).map(|(signed, ahead)| signed + DEAF + DEAF_BEHIND * ahead),
            self.signed.map(|signed| signed + ENDLESS),
        ];
        match ask_at.into_iter().flatten().min() {
            Some(at) if at <= now => Next::Ask,
            Some(at) => Next::Park(at),
            None => Next::Park(now + ENDLESS),
        }
    }

    /// The pause between two signs of life: a third of `waiter_ttl`. For a contender that rests, it doubles with each
    /// sign.
    fn pause(&self, rules: Rules) -> Duration {
        let usual = rules.waiter_ttl / 3;
        let doubled = if self.rests { self.signs.saturating_sub(SIGNS).min(16) } else { 0 };
        usual.saturating_mul(1 << doubled).min(rules.max_park.max(usual))
    }

    /// The line has moved: the contender no longer rests.
    fn wake(&mut self) {
        (self.rests, self.signs) = (false, 0);
    }

    /// The server has answered a request. This answer is newer than a grant for an earlier request.
    fn answered(&mut self, sent: Instant) {
        (self.under_way, self.signed) = (false, Some(sent));
        let is_newer = self.told.is_none_or(|grant| grant.signed >= sent);
        if !is_newer {
            // Two contenders of one client may have made their signs in one order and sent them in the other. Then the
            // grant is still valid: ask, and the next answer reports it.
            (self.told, self.ask_at) = (None, Some(sent));
        }
    }

    fn ask_by(&mut self, at: Instant) {
        self.ask_at = Some(self.ask_at.map_or(at, |before| before.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_millis(900);
    const SECOND: Duration = Duration::from_secs(1);
    const RULES: Rules = Rules {
        waiter_ttl: TTL,
        pushed_lease: TTL,
        max_park: Duration::from_secs(10),
        rests: true,
    };

    /// A contender in a test with its own clock.
    struct Play {
        waiting: Waiting,
        now: Instant,
        speaks: bool,
    }

    impl Play {
        fn new() -> Self {
            let now = Instant::now();
            Self { waiting: Waiting::new(TenureId(7), now), now, speaks: true }
        }

        /// A contender that stands in the line, near the front or not.
        fn waiting(near: bool) -> Self {
            let mut play = Self::new();
            play.hears(Event::Asked);
            play.answer(near);
            play
        }

        fn hears(&mut self, event: Event) {
            self.waiting.step(self.now, event, RULES);
        }

        fn answer(&mut self, near: bool) {
            self.hears(Event::Waits { place: 3, near, sent: self.now, again: None });
        }

        fn told(&mut self, id: u64, signed: Instant) -> PushedGrant {
            let grant = PushedGrant { id: TenureId(id), number: 1, signed };
            self.hears(Event::Told(grant));
            grant
        }

        fn next(&self) -> Next {
            self.waiting.next(self.now, None, self.speaks, RULES)
        }

        fn parks_for(&self) -> Duration {
            match self.next() {
                Next::Park(until) => until - self.now,
                other => panic!("it does not park: {other:?}"),
            }
        }
    }

    #[test]
    fn a_new_contender_asks_at_once() {
        assert_eq!(Play::new().next(), Next::Ask);
    }

    #[test]
    fn a_contender_near_the_front_shows_three_signs_of_life_within_a_waiter_ttl() {
        let mut play = Play::waiting(true);
        assert_eq!(play.parks_for(), TTL / 3);
        play.now += TTL / 3;
        assert_eq!(play.next(), Next::Ask);
    }

    #[test]
    fn a_contender_that_waits_for_long_near_the_front_rests_until_the_line_moves() {
        let mut play = Play::waiting(true);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = play.parks_for();
            pauses.push(pause);
            play.now += pause;
            play.hears(Event::Asked);
            assert_eq!(play.waiting.rests(), pauses.len() >= 3, "after {pauses:?}");
            play.answer(true);
        }
        assert_eq!(pauses[..3], [TTL / 3; 3]);
        assert_eq!(pauses[3..6], [TTL * 2 / 3, TTL * 4 / 3, TTL * 8 / 3]);
        assert_eq!(play.parks_for(), RULES.max_park);
        play.now += SECOND;
        play.hears(Event::Near { at_once: false });
        assert_eq!(play.next(), Next::Ask);
        play.hears(Event::Asked);
        play.answer(true);
        assert_eq!((play.parks_for(), play.waiting.rests()), (TTL / 3, false));
    }

    /// All near contenders may die together with the holder. Then a message wakes nobody.
    #[test]
    fn a_far_contender_that_speaks_for_others_asks_when_the_lease_of_the_holder_is_over() {
        let mut play = Play::new();
        let again = Some(2 * TTL);
        play.hears(Event::Asked);
        play.hears(Event::Waits { place: 3, near: false, sent: play.now, again });
        assert_eq!(play.parks_for(), 2 * TTL);
        play.speaks = false;
        assert_eq!(play.parks_for(), ENDLESS);
        play.speaks = true;
        play.now += 2 * TTL;
        assert_eq!(play.next(), Next::Ask);
        play.hears(Event::Asked);
        play.answer(false);
        assert_eq!(play.parks_for(), RULES.max_park);
    }

    /// A holder that dies does not move the line.
    #[test]
    fn a_contender_near_the_front_asks_when_the_lease_of_the_holder_is_over() {
        let mut play = Play::new();
        play.hears(Event::Asked);
        let again = Some(TTL / 9);
        play.hears(Event::Waits { place: 3, near: true, sent: play.now, again });
        assert_eq!(play.parks_for(), TTL / 9);
    }

    #[test]
    fn one_far_contender_asks_once_in_max_park_and_the_others_never() {
        let mut play = Play::waiting(false);
        assert_eq!(play.parks_for(), RULES.max_park);
        play.speaks = false;
        assert_eq!(play.parks_for(), ENDLESS);
    }

    /// In a fast line, a contender near the front is granted the lock long before its sign of life is old.
    #[test]
    fn a_contender_that_comes_near_asks_only_when_its_sign_of_life_is_old() {
        let mut play = Play::waiting(false);
        play.now += TTL / 9;
        play.hears(Event::Near { at_once: false });
        assert_eq!(play.parks_for(), TTL / 3 - TTL / 9);
        let mut late = Play::waiting(false);
        late.now += SECOND;
        late.hears(Event::Near { at_once: false });
        assert_eq!(late.next(), Next::Ask);
    }

    #[test]
    fn a_contender_of_which_the_server_has_not_heard_asks_at_once() {
        let mut play = Play::waiting(true);
        play.hears(Event::Near { at_once: true });
        assert_eq!(play.next(), Next::Ask);
    }

    /// The request may have run before the server took the contender out of the line, and its answer says that it stands there.
    #[test]
    fn a_contender_that_is_told_at_once_before_its_answer_asks_again() {
        let mut play = Play::new();
        play.hears(Event::Asked);
        play.hears(Event::Near { at_once: true });
        play.answer(true);
        assert_eq!(play.next(), Next::Ask);
    }

    /// The script that moved the line may have run after the request, and its message may arrive before the answer.
    #[test]
    fn an_answer_does_not_undo_a_newer_message() {
        let mut play = Play::new();
        play.hears(Event::Asked);
        play.hears(Event::Near { at_once: false });
        play.answer(false);
        assert_eq!(play.parks_for(), TTL / 3);
    }

    /// A message that is published before the channel is subscribed is lost.
    #[test]
    fn a_contender_asks_again_when_its_channel_was_subscribed_after_it_asked() {
        for roused_before_the_answer in [true, false] {
            let mut play = Play::new();
            play.hears(Event::Asked);
            if roused_before_the_answer {
                play.hears(Event::Roused);
            }
            play.answer(false);
            if !roused_before_the_answer {
                play.hears(Event::Roused);
            }
            assert_eq!(play.next(), Next::Ask);
        }
    }

    #[test]
    fn a_contender_that_hears_nothing_asks_now_and_then() {
        let play = Play::waiting(false);
        let next = play.waiting.next(play.now, Some(0), false, RULES);
        assert_eq!(next, Next::Park(play.now + DEAF));
    }

    #[test]
    fn a_grant_by_message_is_taken_while_enough_of_it_is_left() {
        let mut play = Play::waiting(true);
        let grant = play.told(7, play.now);
        assert_eq!(play.next(), Next::Take(grant));
        play.now += TTL * 2 / 3;
        assert_eq!(play.next(), Next::Ask);
    }

    #[test]
    fn a_grant_for_another_owner_field_is_not_taken() {
        let mut play = Play::waiting(true);
        play.told(8, play.now);
        assert_eq!(play.parks_for(), TTL / 3);
    }

    #[test]
    fn a_grant_by_message_is_no_longer_than_any_lease_that_was_asked_for() {
        let mut play = Play::new();
        let short = Rules { pushed_lease: TTL / 9, ..RULES };
        play.waiting.step(play.now, Event::Asked, short);
        play.answer(true);
        assert_eq!(play.waiting.rules(RULES).pushed_lease, TTL / 9);
        play.hears(Event::Asked);
        play.answer(true);
        assert_eq!(play.waiting.rules(RULES).pushed_lease, TTL / 9);
        play.waiting.rename(TenureId(8), play.now);
        assert_eq!(play.waiting.rules(RULES).pushed_lease, TTL);
    }

    #[test]
    fn a_contender_waits_for_others_once_the_server_has_said_so() {
        let mut play = Play::new();
        assert!(!play.waiting.was_told_to_wait());
        play.hears(Event::Asked);
        assert!(!play.waiting.was_told_to_wait());
        play.answer(false);
        play.waiting.rename(TenureId(8), play.now);
        assert!(play.waiting.was_told_to_wait());
    }

    /// The grant was over when the server answered that the contender waits.
    #[test]
    fn an_answer_is_newer_than_a_grant_for_an_earlier_sign_of_life() {
        let mut play = Play::waiting(true);
        let before = play.now;
        play.now += SECOND;
        play.hears(Event::Asked);
        play.told(7, before);
        play.answer(true);
        assert_eq!(play.next(), Next::Ask);
        play.hears(Event::Asked);
        play.answer(true);
        assert_eq!(play.parks_for(), TTL / 3);
    }

    /// The same, but the message comes later than the answer.
    #[test]
    fn a_grant_for_an_earlier_sign_of_life_that_comes_after_the_answer_is_not_taken() {
        let mut play = Play::waiting(true);
        let before = play.now;
        play.now += TTL / 9;
        play.hears(Event::Asked);
        play.answer(true);
        play.told(7, before);
        assert!(!play.waiting.only_stands(), "if it is not polled, the lookout cancels it");
        for _ in 0..2 {
            assert_eq!(play.next(), Next::Ask);
            play.hears(Event::Asked);
            play.answer(true);
        }
        assert!(matches!(play.next(), Next::Park(_)));
    }

    #[test]
    fn a_grant_that_was_taken_away_again_is_not_taken() {
        for near in [true, false] {
            for lost in [Some(TenureId(7)), None] {
                let mut play = Play::waiting(near);
                play.told(7, play.now);
                play.hears(Event::Lost(lost));
                assert_eq!(play.next(), Next::Ask);
                play.now += TTL / 9;
                play.hears(Event::Asked);
                play.hears(Event::Refused);
                assert_eq!(play.next(), Next::Ask, "the server has not said that it is valid");
                let grant = play.told(7, play.now);
                assert_eq!(play.next(), Next::Take(grant), "a later one");
            }
        }
    }

    #[test]
    fn the_loss_of_another_holder_takes_no_grant_away() {
        let mut play = Play::waiting(true);
        let grant = play.told(7, play.now);
        play.hears(Event::Lost(Some(TenureId(8))));
        assert_eq!(play.next(), Next::Take(grant));
    }

    /// If the answer is a grant, it is checked (`Visit::shows`).
    #[test]
    fn a_contender_that_waits_does_nothing_because_of_a_loss() {
        let mut play = Play::new();
        play.hears(Event::Asked);
        play.hears(Event::Lost(None));
        play.answer(true);
        assert_eq!(play.parks_for(), TTL / 3);
        play.hears(Event::Lost(None));
        assert_eq!(play.parks_for(), TTL / 3);
    }

    /// The message about a script that ran right after the request may overtake the answer.
    #[test]
    fn a_grant_for_the_last_sign_of_life_outlives_the_answer_to_it() {
        let mut play = Play::new();
        play.hears(Event::Asked);
        let grant = play.told(7, play.now);
        play.answer(true);
        assert_eq!(play.next(), Next::Take(grant));
    }

    /// The request may run while its contender asks again. Under the old owner field, the contender would be granted a
    /// lock that the client then releases.
    #[test]
    fn a_request_without_an_answer_costs_the_owner_field_and_not_the_place() {
        let mut play = Play::waiting(true);
        play.hears(Event::Asked);
        play.hears(Event::Unanswered);
        assert!(play.waiting.may_still_run() && !play.waiting.stands());
        play.waiting.rename(TenureId(8), play.now);
        assert_eq!((play.waiting.id(), play.waiting.place()), (TenureId(8), 3));
        assert_eq!(play.next(), Next::Ask);
        play.told(7, play.now);
        assert_eq!(play.next(), Next::Ask);
    }

    /// In the background, the client releases what it was granted. If the contender took it, two would hold the lock.
    #[test]
    fn a_grant_for_a_request_without_an_answer_is_not_taken() {
        for told_first in [true, false] {
            let mut play = Play::waiting(true);
            let before = play.now;
            play.hears(Event::Asked);
            if told_first {
                play.told(7, before);
            }
            play.hears(Event::Unanswered);
            if !told_first {
                play.told(7, before);
            }
            assert_eq!(play.next(), Next::Ask);
        }
    }

    #[test]
    fn without_a_line_a_contender_asks_when_the_holder_has_to_have_ended() {
        let mut play = Play::new();
        play.hears(Event::Asked);
        play.hears(Event::Held { again: SECOND, sent: play.now });
        assert_eq!(play.parks_for(), SECOND);
        play.hears(Event::Stirred);
        assert_eq!(play.next(), Next::Ask);
    }

    /// Without a line, a message to all clients is the only notice of a release.
    #[test]
    fn a_message_to_all_before_the_answer_is_not_missed() {
        let mut play = Play::new();
        play.hears(Event::Asked);
        play.hears(Event::Stirred);
        play.hears(Event::Held { again: SECOND, sent: play.now });
        assert_eq!(play.next(), Next::Ask);
    }

    #[test]
    fn a_message_for_the_front_lets_the_others_sleep() {
        let mut far = Play::waiting(false);
        far.hears(Event::Stirred);
        assert_eq!(far.parks_for(), RULES.max_park);
        let mut near = Play::waiting(true);
        near.hears(Event::Stirred);
        assert_eq!(near.next(), Next::Ask);
    }
}
