//! The subscriber link: the channels that the client listens to, how many waiters want each, and since when each is live.
//! `engine/listener.rs` says which waiter gets a message.
//!
//! 1. A channel is live only when the server has acknowledged it, on the current live connection.
//! 2. Only the link's task subscribes and unsubscribes, one batch after the other. If a waiter comes while its channel
//!    is being unsubscribed, the task subscribes that channel again right after.
//! 3. Messages go straight from the task that reads the connection to the listener. Messages that were sent while there was no
//!    connection are lost. So the listener is also told when a channel becomes live, for the first time or again, and when
//!    there is no connection for a while. Then the waiters ask (`engine/listener.rs`). `link.rs` makes a new connection.
//! 4. In a cluster there is a link to each server that has a channel. If the slot of a channel moves, the channel moves
//!    to the link of the slot's new server, and becomes live again there.
//!
//! `subscriber/channel_link.rs` is what a link does, also after a reconnect. `subscriber/channels.rs` has the channels of one server,
//! `subscriber/homes.rs` says which server has which channel.

mod channel_link;
mod channels;
mod homes;
mod message;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::mutex::Mutex;
use crate::wire::cluster::{Cluster, SlotMap};
use crate::wire::destination::Destination;
use crate::wire::link::LinkTask;
use crate::wire::session::Session;

pub(crate) use message::{News, Word, publisher, words};

use channel_link::ChannelLink;
use homes::Homes;

/// An event on a channel, for the listener.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heard<'a> {
    /// The channel is live: from now on no message is missed.
    Live,
    /// There is no connection: no message arrives for now.
    Deaf,
    /// A client has published this.
    Message(&'a [u8]),
}

/// The link calls it with the channel and the event, on the task that reads the connection. It must not block.
type OnHeard = Box<dyn Fn(&str, Heard<'_>) + Send + Sync>;

/// The channels of one client.
#[derive(Clone)]
pub(crate) struct Subscriber(Arc<Inner>);

impl Subscriber {
    /// For channels of one server.
    pub(crate) fn new(
        destination: Destination,
        linger: Duration,
        session: Option<Arc<Session>>,
        on_heard: impl Fn(&str, Heard<'_>) + Send + Sync + 'static,
    ) -> (Self, LinkTask) {
        let expected = destination.expected();
        let channels = Inner::new(None, linger, session, Box::new(on_heard));
        let link = channels.homes.lock().open(None).link.clone();
        let duty = ChannelLink { inner: Arc::clone(&channels), home: None, expected, link };
        let (task, _) = LinkTask::new(destination, Arc::new(duty));
        (Self(channels), task)
    }

    /// For channels of the servers of a cluster.
    pub(crate) fn in_cluster(
        cluster: Arc<Cluster>,
        linger: Duration,
        on_heard: impl Fn(&str, Heard<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self(Inner::new(Some(cluster), linger, None, Box::new(on_heard)))
    }

    /// Listens to a channel as long as the subscription exists, and a while longer.
    pub(crate) fn join(&self, channel: &str) -> Subscription {
        let mut homes = self.0.homes.lock();
        let home = homes.of(channel);
        let at = homes.open(home);
        let (channel, link) = (at.channels.join(channel), Arc::clone(&at.link));
        // Most waiters come to a channel that still lingers. They do not wake the link's task, which has nothing to do.
        let is_news = !at.channels.wanted.is_empty();
        drop(homes);
        if is_news {
            link.changed.notify_one();
        }
        self.0.connect();
        Subscription { channels: Arc::clone(&self.0), channel }
    }

    /// Moves each channel to the server that has its slot in this map.
    pub(crate) fn follow(&self, map: Arc<SlotMap>) {
        let (changed, deaf) = self.0.homes.lock().follow(map);
        changed.iter().for_each(|link| link.changed.notify_one());
        self.0.connect();
        // The link to the new server may have been down for long. Then it has said so before these channels came.
        deaf.iter().for_each(|channel| (self.0.on_heard)(channel, Heard::Deaf));
    }
}

/// One waiter's interest in a channel.
pub(crate) struct Subscription {
    channels: Arc<Inner>,
    channel: Arc<str>,
}

impl Subscription {
    /// Whether no message on its channel can be missed.
    pub(crate) fn is_live(&self) -> bool {
        self.channels.is_live(&self.channel)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut homes = self.channels.homes.lock();
        let home = homes.of(&self.channel);
        let Some(at) = homes.all.get_mut(&home) else { return };
        let link = Arc::clone(&at.link);
        let now = Instant::now();
        let is_news = at.channels.leave(&self.channel, now);
        if !link.is_up() {
            at.channels.forget_expired(now, self.channels.linger);
        }
        drop(homes);
        if is_news {
            link.changed.notify_one();
        }
    }
}

struct Inner {
    homes: Mutex<Homes>,
    cluster: Option<Arc<Cluster>>,
    linger: Duration,
    session: Option<Arc<Session>>,
    on_heard: OnHeard,
}

impl Inner {
    fn new(
        cluster: Option<Arc<Cluster>>,
        linger: Duration,
        session: Option<Arc<Session>>,
        on_heard: OnHeard,
    ) -> Arc<Self> {
        Arc::new(Self { homes: Mutex::default(), cluster, linger, session, on_heard })
    }

    /// Connects to servers of a cluster that channels have moved to.
    fn connect(self: &Arc<Self>) {
        let Some(cluster) = &self.cluster else { return };
        loop {
            let mut homes = self.homes.lock();
            let mut new = homes.all.iter_mut().filter(|(_, home)| home.stop.is_none());
            let Some((Some(node), home)) = new.find(|(node, _)| node.is_some()) else { return };
            let (node, link) = (node.clone(), Arc::clone(&home.link));
            // A separate token, so that this link can end before the client does.
            let stop = CancellationToken::new();
            home.stop = Some(stop.clone());
            drop(homes);
            let destination = Destination::Fixed(Arc::new(cluster.addresses.of(&node)));
            let (home, expected) = (Some(node), cluster.expected());
            let duty = ChannelLink { inner: Arc::clone(self), home, expected, link };
            let (task, _) = LinkTask::new(destination, Arc::new(duty));
            cluster.run(|ends| async move {
                stop.run_until_cancelled(task.run(ends)).await;
            });
        }
    }

    fn is_live(&self, channel: &str) -> bool {
        let homes = self.homes.lock();
        let Some(home) = homes.all.get(&homes.of(channel)) else { return false };
        let now = home.link.generation();
        home.channels.all.get(channel).is_some_and(|channel| channel.is_live(now))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::slot::Slot;
    use crate::wire::node::Node;
    use crate::wire::subscriber::channels::MOST_IDLE;

    const LINGER: Duration = Duration::from_secs(5);

    /// A subscriber that never connects, and the channels that it is told to be deaf on.
    fn subscriber() -> (Subscriber, Arc<Mutex<Vec<String>>>) {
        let deaf = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&deaf);
        let on_heard = move |channel: &str, heard: Heard<'_>| {
            if matches!(heard, Heard::Deaf) {
                told.lock().push(channel.to_owned());
            }
        };
        (Subscriber(Inner::new(None, LINGER, None, Box::new(on_heard))), deaf)
    }

    #[test]
    fn without_a_connection_unused_channels_are_forgotten_too() {
        let (subscriber, _) = subscriber();
        let used = subscriber.join("used");
        for number in 0..20_000 {
            drop(subscriber.join(&number.to_string()));
        }
        let sizes = {
            let channels = &subscriber.0.homes.lock().all[&None].channels;
            [channels.all.len(), channels.idle.len(), channels.wanted.len()]
        };
        assert!(sizes.iter().all(|size| *size <= MOST_IDLE + 1), "{sizes:?}");
        assert!(subscriber.0.homes.lock().all[&None].channels.all.contains_key(&*used.channel));
    }

    #[test]
    fn a_waiter_whose_channel_moves_where_no_connection_is_learns_so() {
        let (subscriber, deaf) = subscriber();
        let node = |port| Node::new("host", port);
        let at = |port| Arc::new(SlotMap::default().with(Slot::of("a"), node(port)));
        let go_up = |port| {
            subscriber
                .0
                .homes
                .lock()
                .open(Some(node(port)))
                .link
                .generation
                .store(1, Ordering::Release);
        };
        let has_been_down = |port| {
            subscriber.0.homes.lock().open(Some(node(port))).stop = Some(CancellationToken::new());
        };
        subscriber.follow(at(1));
        go_up(1);
        let _waiting = subscriber.join("a");
        has_been_down(2);
        subscriber.follow(at(2));
        assert_eq!(std::mem::take(&mut *deaf.lock()), ["a"]);
        go_up(1);
        subscriber.follow(at(1));
        subscriber.follow(at(3));
        assert!(deaf.lock().is_empty(), "they will be live soon, or say that they are not");
    }
}
