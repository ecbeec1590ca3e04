//! Futures that are dropped after so many polls, on a stage on which every await is one.

use std::future::poll_fn;
use std::ops::AsyncFnMut;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use parklock::Client;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::common::{Admin, Proxy, Server, eventually};
use crate::{connect, is_clean, patient, scripts_run, tasks};

/// The response timeout of [`patient`], and what a busy machine adds to it. The lease is 30 s.
pub(crate) const A_RESPONSE: Duration = Duration::from_secs(15);

/// When a future is dropped that has not finished after this many polls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Drops {
    /// Before anything else can happen.
    AtOnce,
    /// When the future was woken, but not polled again.
    WhenWoken,
}

/// The output of a future that needs at most so many polls; `None` if it was dropped instead.
pub(crate) async fn polled<F: Future>(polls: usize, drops: Drops, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match (future.as_mut().poll(cx), left, drops) {
            (Poll::Ready(output), ..) => Poll::Ready(Some(output)),
            (Poll::Pending, 0, Drops::AtOnce) => Poll::Ready(None),
            (Poll::Pending, ..) => Poll::Pending,
        }
    })
    .await
}

/// A client behind a proxy that delays every reply, so that each await is one.
pub(crate) struct Stage {
    pub(crate) client: Client,
    /// Another client, which is not delayed.
    pub(crate) other: Client,
    pub(crate) admin: Admin,
    pub(crate) idle: usize,
    pub(crate) proxy: Proxy,
    pub(crate) server: Server,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        let admin = server.admin().await;
        let other = connect(&server.url(), patient()).await;
        let client = connect(&proxy.url(), patient()).await;
        let late =
            proxy.everything().delay_reply(Duration::from_millis(2), Duration::from_millis(2));
        late.happened().await; // heartbeats, for now
        Self { client, other, admin, idle: tasks(), proxy, server }
    }

    /// Begins an act, and drops it after 0, 1, 2 .. polls, until the act finishes within that number; whatever it left
    /// is gone soon. Returns how often it was dropped.
    pub(crate) async fn dropping_at_every_poll<K, F: Future>(
        &self,
        mut prepare: impl AsyncFnMut() -> (K, F),
        mut settle: impl AsyncFnMut(K),
    ) -> usize {
        let mut dropped = 0;
        for polls in 0.. {
            let mut done = 0;
            for drops in [Drops::AtOnce, Drops::WhenWoken] {
                let (kept, future) = prepare().await;
                let output = polled(polls, drops, future).await;
                done += usize::from(output.is_some());
                drop(output);
                settle(kept).await;
                self.is_clean(polls, drops).await;
            }
            if done == 2 {
                return dropped;
            }
            dropped += 2 - done;
        }
        dropped
    }

    pub(crate) async fn is_clean(&self, polls: usize, drops: Drops) {
        let what = format!("dropped after {polls} polls, {drops:?}: nothing is left in redis");
        is_clean(&self.admin, A_RESPONSE, &what).await;
        let what = format!("dropped after {polls} polls, {drops:?}: no task is left");
        eventually(A_RESPONSE, &what, async || tasks() == self.idle).await;
        // An attempt may still arrive, before what takes it back.
        let free = self.other.lock("a").try_lock_for(A_RESPONSE).await.expect("an answer");
        free.expect("it is free").unlock().await.expect("it is ours");
        // This client may not have heard yet that its own release has arrived.
        let free = self.client.lock("a").try_lock_for(A_RESPONSE).await.expect("an answer");
        free.expect("it is free").unlock().await.expect("it is ours");
        // Nor does anything come late.
        is_clean(&self.admin, A_RESPONSE, "the lock that was tried is gone").await;
    }

    /// The lock, held by another client, which gives it back a moment after somebody has asked for it twice, and so listens. If
    /// nobody does, it gives it back when it is [`joined`].
    pub(crate) async fn held_for_a_moment(&self) -> (JoinHandle<()>, oneshot::Sender<()>) {
        let guard = self.other.lock("a").lock().await.expect("it is free");
        let (admin, before) = (self.admin.clone(), scripts_run(&self.admin).await);
        let (joins, joined) = oneshot::channel();
        let holder = tokio::spawn(async move {
            let asked_twice = async {
                while scripts_run(&admin).await < before + 2 {
                    sleep(Duration::from_millis(3)).await;
                }
                sleep(Duration::from_millis(25)).await;
            };
            tokio::select! {
                () = asked_twice => {}
                _ = joined => {}
            }
            guard.unlock().await.expect("it is ours");
        });
        (holder, joins)
    }
}

pub(crate) async fn joined((holder, joins): (JoinHandle<()>, oneshot::Sender<()>)) {
    drop(joins);
    holder.await.expect("no panic");
}
