//! The failover watch: keeps the address of a primary up to date while a connection lives. Each new connection asks for
//! the address itself. `sentinels.rs` decides which sentinel to believe.
//!
//! It listens to one sentinel. `SENTINEL FAILOVER` makes another server the primary, while the old one calls itself
//! primary for ten seconds more and keeps answering: only the message reports the change in time. A message only makes
//! the watch ask. The watch also asks now and then without a message, since messages get lost.

use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value, cmd};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::wire::address::Hello;
use crate::wire::destination::Destination;
use crate::wire::fault::{self, Fault};
use crate::wire::link::{Duty, Greeted, Link, LinkTask};
use crate::wire::replies::word;
use crate::wire::sentinels::Sentinels;
use crate::wire::socket::Socket;

/// When to ask if nothing happens, plus or minus a third.
const AT_LEAST: Duration = Duration::from_secs(30);

/// When to ask once more after a message: sentinels do not all learn of a failover at the same moment.
const AGAIN: Duration = Duration::from_secs(1);

/// The pause between two questions.
const APART: Duration = Duration::from_millis(100);

/// Every sentinel sends this when it has heard of a failover.
const SWITCHED: &str = "+switch-master";

/// The sentinel that leads a failover sends this when it knows the new primary. It sends the other message only when
/// all replicas follow the new primary, which may take minutes.
const PROMOTED: &str = "+failover-state-reconf-slaves";

/// Keeps the address up to date until `stop`. Links to a former primary notice by themselves that the address has
/// changed.
pub(crate) async fn watch_failovers(sentinels: Arc<Sentinels>, stop: CancellationToken) {
    let ear = Arc::new(Ear(Arc::clone(&sentinels)));
    let destination = Destination::Sentinel(Arc::clone(&sentinels));
    let (task, link) = LinkTask::new(destination, ear);
    let watching = stop.run_until_cancelled(watch(&sentinels, &link));
    tokio::join!(task.run(stop.clone()), watching);
}

async fn watch(sentinels: &Sentinels, link: &Link) {
    let mut next = AT_LEAST;
    loop {
        next = tokio::select! {
            () = sentinels.doubted.notified() => AGAIN,
            () = sleep(next.mul_f64(2.0 / 3.0 + fastrand::f64() * 2.0 / 3.0)) => AT_LEAST,
        };
        // If there is no address, the links that need it report why.
        let _ = sentinels.primary_now().await;
        if sentinels.is_behind()
            && let Ok(live) = link.live()
        {
            link.suspect(live.generation);
        }
        sleep(APART).await;
    }
}

/// The duty of the link to a sentinel.
struct Ear(Arc<Sentinels>);

impl Duty for Ear {
    fn name(&self) -> &'static str {
        "sentinel"
    }

    fn greet<'a>(&'a self, socket: &'a Socket, hello: &'a Hello, _: u64) -> Greeted<'a> {
        Box::pin(async move {
            hello.is_sentinel()?;
            let switched = socket.subscribe(SWITCHED).await.map_err(Fault::connecting)?;
            if let Some(error) = switched {
                return Err(Fault::refused_at_first(&error));
            }
            let promoted = socket.subscribe(PROMOTED).await.map_err(Fault::connecting)?;
            match promoted.map(|error| fault::entry(&error)) {
                // A user that may not hear of it goes without it.
                None | Some(Fault::Permission(_)) => Ok(()),
                Some(fault) => Err(fault),
            }
        })
    }

    fn heartbeat<'a>(&'a self, socket: &'a Socket) -> Greeted<'a> {
        Box::pin(async { socket.ask(&cmd("PING")).await.map(drop).map_err(Fault::answering) })
    }

    /// Earlier messages were missed.
    fn up(&self) {
        self.0.doubted.notify_one();
    }

    fn hear(&self, _: u64, push: PushInfo) {
        let (PushKind::Message, [channel, Value::BulkString(message)]) = (push.kind, &*push.data)
        else {
            return;
        };
        // "master <service> <old address>", or "<service> <old address> <new address>". A service may be called "master".
        let place = if word(channel) == Some(PROMOTED) { 1 } else { 0 };
        let mut words = message.split(|byte| *byte == b' ');
        if words.nth(place) == Some(self.0.service().as_bytes()) {
            self.0.doubted.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::config::Config;
    use crate::wire::target::Watched;

    #[test]
    fn a_message_about_another_service_is_not_heeded() {
        for (service, channel, message, is_ours) in [
            ("mine", SWITCHED, "mine 10.0.0.1 6379 10.0.0.2 6379", true),
            ("mine", SWITCHED, "other 10.0.0.1 6379 10.0.0.2 6379", false),
            ("mine", SWITCHED, "mine-too 10.0.0.1 6379 10.0.0.2 6379", false),
            ("mine", PROMOTED, "master mine 10.0.0.1 6379", true),
            ("mine", PROMOTED, "master other 10.0.0.1 6379", false),
            ("master", SWITCHED, "master 10.0.0.1 6379 10.0.0.2 6379", true),
            ("master", PROMOTED, "master master 10.0.0.1 6379", true),
            ("master", PROMOTED, "master other 10.0.0.1 6379", false),
            ("10.0.0.1", SWITCHED, "other 10.0.0.1 6379 10.0.0.2 6379", false),
        ] {
            let watched = Watched {
                sentinels: vec!["redis://10.0.0.9:26379".to_owned()],
                service: service.to_owned(),
                primary: "redis://10.0.0.9".to_owned(),
            };
            let sentinels = Arc::new(Sentinels::new(watched, &Config::default()).unwrap());
            let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
            let data = vec![text(channel), text(message)];
            Ear(Arc::clone(&sentinels)).hear(1, PushInfo { kind: PushKind::Message, data });
            let is_heeded = sentinels.doubted.notified().now_or_never().is_some();
            assert_eq!(is_heeded, is_ours, "{service:?} hears {channel} {message:?}");
        }
    }
}
