//! The channels of one server, as plain state: how many waiters want each, whether it is live, and what the link has to do
//! next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;

/// The most channels in one SUBSCRIBE. A hundred thousand would take the server a third of a second.
pub(super) const BATCH: usize = 1000;

/// The most channels that linger at the same time. A client that keeps using new names forgets the oldest ones earlier,
/// so its memory is bounded.
pub(super) const MOST_IDLE: usize = 12_000;

/// The pause before the client subscribes again to a channel that the server's ACL refused.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// The channels of one server, and which of them to subscribe and unsubscribe next.
#[derive(Default)]
pub(super) struct Channels {
    /// This map is ordered, so that a reconnect subscribes in the same order in every run of a simulation.
    pub(super) all: BTreeMap<Arc<str>, Channel>,
    /// Channels to subscribe.
    pub(super) wanted: VecDeque<Arc<str>>,
    /// Channels without subscribers, each with the time since when it lingers, the longest idle first.
    pub(super) idle: VecDeque<(CompactInstant, Arc<str>)>,
    /// Channels to unsubscribe, since they have moved to another server.
    pub(super) left: BTreeSet<Arc<str>>,
}

pub(super) struct Channel {
    pub(super) subscribers: u32,
    pub(super) phase: Phase,
    /// When the last subscriber left. Set while the channel is in the queue of idle ones.
    pub(super) idle_since: Option<CompactInstant>,
}

pub(super) enum Phase {
    /// The channel is in the queue of wanted ones, or the task is subscribing it.
    Wanted,
    /// The generation of the connection on which the server has acknowledged it.
    Live(u64),
    /// The server has refused it.
    Refused(CompactInstant),
}

impl Channel {
    /// Whether the server has acknowledged it on the connection of this generation.
    pub(super) fn is_live(&self, generation: u64) -> bool {
        matches!(self.phase, Phase::Live(on) if on == generation)
    }
}

impl Channels {
    pub(super) fn join(&mut self, name: &str) -> Arc<str> {
        let Some(channel) = self.all.get_mut(name) else {
            let name: Arc<str> = name.into();
            self.adopt(Arc::clone(&name), 1);
            return name;
        };
        channel.subscribers += 1;
        if matches!(channel.phase, Phase::Refused(at) if CompactInstant::now() > at + REFUSED_FOR) {
            self.want_again(name);
        }
        let (name, _) = self.all.get_key_value(name).expect("it was just found");
        Arc::clone(name)
    }

    /// Whether the channel has just become idle, and is not in the queue of idle ones yet.
    pub(super) fn leave(&mut self, name: &Arc<str>, now: Instant) -> bool {
        let Some(channel) = self.all.get_mut(name) else {
            return false;
        };
        channel.subscribers -= 1;
        let now = CompactInstant::from(now);
        if channel.subscribers > 0 || channel.idle_since.replace(now).is_some() {
            return false;
        }
        self.idle.push_back((now, Arc::clone(name)));
        true
    }

    /// The next channels to subscribe. Some may have been forgotten while they were in the queue.
    pub(super) fn next_wanted(&mut self) -> Vec<Arc<str>> {
        let most = self.wanted.len().min(BATCH);
        let wanted = self.wanted.drain(..most);
        wanted.filter(|name| self.all.contains_key(name)).collect()
    }

    /// Forgets the channels that no waiter returned to. A channel that is wanted again before it is unsubscribed counts as
    /// a new one.
    pub(super) fn expire(&mut self, now: Instant, linger: Duration) -> Vec<Arc<str>> {
        let mut expired = Vec::new();
        while self.expires_next(linger).is_some_and(|at| at <= now) {
            let Some((since, name)) = self.idle.pop_front() else { break };
            match self.all.get_mut(&name) {
                Some(channel) if channel.subscribers > 0 => channel.idle_since = None,
                // A waiter has used it in between: it lingers once more, behind the others.
                Some(channel) if channel.idle_since != Some(since) => {
                    channel.idle_since = Some(now.into());
                    self.idle.push_back((now.into(), name));
                }
                Some(_) => {
                    self.all.remove(&name);
                    expired.push(name);
                }
                None => {}
            }
        }
        expired
    }

    /// Same as [`expire`](Self::expire), while there is no connection: no task does it then. A new connection begins with
    /// the channels that have waiters (`start_again`), so it needs no queue of wanted ones.
    pub(super) fn forget_expired(&mut self, now: Instant, linger: Duration) {
        self.wanted.clear();
        drop(self.expire(now, linger));
    }

    /// When the next channel expires.
    pub(super) fn expires_next(&self, linger: Duration) -> Option<Instant> {
        let crowded = self.idle.len() > MOST_IDLE;
        let expires = |since| if crowded { since } else { since + linger };
        self.idle.front().map(|(since, _)| expires(*since).instant())
    }

    /// Forgets the channels that leave this server. Returns those that have subscribers, with the number of
    /// subscribers.
    pub(super) fn leave_behind(
        &mut self,
        stays: impl Fn(&str) -> bool,
        is_left: bool,
    ) -> Vec<(Arc<str>, u32)> {
        let mut moved = Vec::new();
        self.all.retain(|name, channel| {
            let is_here = stays(name);
            if !is_here && is_left {
                self.left.insert(Arc::clone(name));
            }
            if !is_here && channel.subscribers > 0 {
                moved.push((Arc::clone(name), channel.subscribers));
            }
            is_here
        });
        // If a channel comes back, it lingers anew. Of two entries for one channel, each would postpone the other, and
        // the channel would never expire.
        self.idle.retain(|(_, name)| self.all.contains_key(name));
        moved
    }

    /// Has a channel subscribed that is new here, or comes from another server.
    pub(super) fn adopt(&mut self, name: Arc<str>, subscribers: u32) {
        self.left.remove(&name);
        let channel = Channel { subscribers, phase: Phase::Wanted, idle_since: None };
        self.all.insert(Arc::clone(&name), channel);
        self.wanted.push_back(name);
    }

    /// A server ended a channel that nobody unsubscribed, or did not accept it.
    pub(super) fn want_again(&mut self, name: &str) -> bool {
        let Some((name, _)) = self.all.get_key_value(name) else { return false };
        let name = Arc::clone(name);
        if let Some(channel) = self.all.get_mut(&name) {
            channel.phase = Phase::Wanted;
        }
        self.wanted.push_back(name);
        true
    }

    /// There is a new connection, without subscriptions: all channels with waiters are wanted again.
    pub(super) fn start_again(&mut self) {
        self.idle.clear();
        self.left.clear();
        self.all.retain(|_, channel| channel.subscribers > 0);
        for channel in self.all.values_mut() {
            channel.phase = Phase::Wanted;
            channel.idle_since = None;
        }
        self.wanted = self.all.keys().cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_secs(5);

    fn names(batch: &[Arc<str>]) -> Vec<&str> {
        batch.iter().map(|name| &**name).collect()
    }

    #[test]
    fn a_channel_is_wanted_once_and_expires_after_its_last_subscription() {
        let (mut channels, start) = (Channels::default(), Instant::now());
        let name = channels.join("a");
        channels.join("a");
        assert_eq!(names(&channels.next_wanted()), ["a"]);
        assert!(!channels.leave(&name, start));
        assert!(channels.leave(&name, start));
        assert!(channels.expire(start + LINGER / 2, LINGER).is_empty());
        assert_eq!(names(&channels.expire(start + LINGER, LINGER)), ["a"]);
        assert!(channels.all.is_empty());
    }

    #[test]
    fn a_subscription_to_a_lingering_channel_keeps_it() {
        let (mut channels, start) = (Channels::default(), Instant::now());
        let name = channels.join("a");
        channels.next_wanted();
        channels.leave(&name, start);
        channels.join("a");
        assert!(channels.next_wanted().is_empty());
        assert!(channels.expire(start + LINGER, LINGER).is_empty());
        assert!(channels.leave(&name, start + LINGER));
        assert_eq!(names(&channels.expire(start + LINGER * 2, LINGER)), ["a"]);
    }

    #[test]
    fn a_busy_channel_stands_in_the_queue_of_the_idle_once() {
        let (mut channels, start) = (Channels::default(), Instant::now());
        for _ in 0..1000 {
            let name = channels.join("a");
            channels.leave(&name, start);
        }
        assert_eq!(channels.idle.len(), 1);
    }

    #[test]
    fn a_busy_channel_does_not_keep_the_others_from_expiring() {
        let (mut channels, start) = (Channels::default(), Instant::now());
        let (busy, quiet) = (channels.join("busy"), channels.join("quiet"));
        channels.leave(&busy, start);
        channels.leave(&quiet, start);
        channels.join("busy");
        channels.leave(&busy, start + LINGER);
        assert_eq!(names(&channels.expire(start + LINGER, LINGER)), ["quiet"]);
        assert_eq!(names(&channels.expire(start + LINGER * 2, LINGER)), ["busy"]);
    }

    #[test]
    fn of_too_many_idle_channels_the_oldest_go_early() {
        let (mut channels, start) = (Channels::default(), Instant::now());
        for number in 0..MOST_IDLE + 3 {
            let name = channels.join(&number.to_string());
            channels.leave(&name, start);
        }
        let used = channels.join("1");
        channels.leave(&used, start + LINGER / 4);
        assert_eq!(names(&channels.expire(start + LINGER / 2, LINGER)), ["0", "2", "3"]);
        assert_eq!(channels.idle.len(), MOST_IDLE);
        assert!(channels.expire(start + LINGER / 2, LINGER).is_empty());
    }

    #[test]
    fn a_channel_that_is_forgotten_before_it_was_subscribed_is_not_subscribed() {
        let (mut channels, start) = (Channels::default(), Instant::now());
        let gone = channels.join("gone");
        channels.leave(&gone, start);
        channels.join("kept");
        assert_eq!(channels.expire(start + LINGER, LINGER).len(), 1);
        assert_eq!(names(&channels.next_wanted()), ["kept"]);
    }

    #[test]
    fn a_channel_that_comes_back_while_it_lingers_still_expires() {
        let (mut channels, start) = (Channels::default(), Instant::now());
        let name = channels.join("a");
        channels.leave(&name, start);
        channels.leave_behind(|_| false, true);
        let name = channels.join("a");
        channels.leave(&name, start + LINGER / 2);
        let expired = (2..8).map(|half| channels.expire(start + LINGER / 2 * half, LINGER).len());
        assert_eq!(expired.sum::<usize>(), 1);
        assert!(channels.idle.is_empty());
    }

    #[test]
    fn a_channel_joined_while_it_is_being_left_is_wanted_anew() {
        let (mut channels, start) = (Channels::default(), Instant::now());
        let name = channels.join("a");
        channels.next_wanted();
        channels.leave(&name, start);
        assert_eq!(channels.expire(start + LINGER, LINGER).len(), 1);
        channels.join("a");
        assert_eq!(names(&channels.next_wanted()), ["a"]);
    }

    #[test]
    fn a_new_connection_is_asked_for_what_is_waited_for() {
        let (mut channels, start) = (Channels::default(), Instant::now());
        let left = channels.join("left");
        channels.join("kept");
        channels.next_wanted();
        channels.leave(&left, start);
        channels.start_again();
        assert_eq!(names(&channels.next_wanted()), ["kept"]);
        assert!(channels.expire(start + LINGER, LINGER).is_empty());
    }
}
