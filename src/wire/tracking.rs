//! The server tells a client at once when the key of a lock that it holds changes: it is deleted, evicted, expires, or another
//! program writes it. Redis has this for caches (`CLIENT TRACKING`); here it shortens the time until a loss is known.
//!
//! 1. What the server says is a reason to renew the lock now, and never a proof of its loss: only the answer to the renewal is.
//! 2. The server tracks a key from the moment at which the client has read it, and forgets it with the next change, also one by the
//!    client itself. So the client reads the key soon after the grant and after each renewal. A lock that is held for less is not tracked.
//! 3. Only what a command behind `CLIENT CACHING YES` reads is tracked (`OPTIN`), so no other request costs anything. It is no script:
//!    until Redis 7.0, each read of a script has the server note all keys of the script.
//! 4. The server is silent about changes that the same connection makes (`NOLOOP`).
//! 5. It tells nothing while the connection is away. So a client that connects again looks at all that it holds there, whether or not its
//!    user may ask for this.
//! 6. While the connection lives, a user that may not ask for this learns of a loss from the next renewal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, PushInfo, PushKind, Value, cmd};

use crate::keys::Keys;
use crate::wire::args::Words;

/// What has changed.
#[derive(Clone, Copy)]
pub(crate) enum Changed<'a> {
    Key(&'a str),
    /// Perhaps every key of one server. Says of a lock whether that server may have it.
    All(&'a dyn Fn(&Keys) -> bool),
}

/// Hears of changes, on the task that reads the connection. It must not block.
pub(crate) type OnChange = Arc<dyn Fn(Changed<'_>) + Send + Sync>;

/// Whether a server tracks keys for this client, and who hears of their changes.
pub(crate) struct Tracking {
    on_change: OnChange,
    is_on: AtomicBool,
    /// There was a connection.
    was_up: AtomicBool,
}

impl Tracking {
    pub(crate) fn new(on_change: OnChange) -> Self {
        Self { on_change, is_on: AtomicBool::new(false), was_up: AtomicBool::new(false) }
    }

    /// Asks the server to track keys for a connection.
    pub(crate) fn question() -> Cmd {
        let mut tracking = cmd("CLIENT");
        tracking.arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
        tracking
    }

    /// Records the answer to the question.
    pub(crate) fn learn(&self, answer: Option<&Value>) {
        self.is_on.store(answer == Some(&Value::Okay), Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// There is a new connection. If there was another one before, nothing was heard in between, and the server may have lost its data,
    /// or be another one.
    pub(crate) fn comes_up(&self) {
        if self.was_up.swap(true, Ordering::Relaxed) {
            self.all_may_have_changed();
        }
    }

    /// `Cluster::on_change_at` leaves out the locks of other nodes.
    fn all_may_have_changed(&self) {
        (self.on_change)(Changed::All(&|_| true));
    }

    /// Writes two commands that have the server track the keys of these holders. The second one's answer is how many there are.
    pub(crate) fn write(bytes: &mut Vec<u8>, holders: &[&Keys]) {
        Words::write(bytes, |words| _ = words.arg("CLIENT").arg("CACHING").arg("YES"));
        Words::write(bytes, |words| {
            words.arg("EXISTS");
            holders.iter().for_each(|keys| _ = words.arg(keys.lock()));
        });
    }

    pub(crate) fn hear(&self, push: PushInfo) {
        if push.kind != PushKind::Invalidate {
            return;
        }
        for value in push.data {
            match value {
                Value::Array(keys) => keys.iter().filter_map(text).for_each(|key| {
                    (self.on_change)(Changed::Key(key));
                }),
                Value::Nil => self.all_may_have_changed(),
                _ => {}
            }
        }
    }
}

fn text(key: &Value) -> Option<&str> {
    match key {
        Value::BulkString(key) => str::from_utf8(key).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_push_names_keys_or_all_of_them() {
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&heard);
        let tracking = Tracking::new(Arc::new(move |changed| {
            noted.lock().unwrap().push(match changed {
                Changed::Key(key) => key.to_owned(),
                Changed::All(_) => "all".to_owned(),
            })
        }));
        let keys =
            [&b"lock:{a}"[..], b"\xff", b"lock:{b}"].map(|key| Value::BulkString(key.to_vec()));
        for (kind, data) in [
            (PushKind::Message, vec![Value::Nil]),
            (PushKind::Invalidate, vec![Value::Array(keys.to_vec())]),
            (PushKind::Invalidate, vec![Value::Nil]),
        ] {
            tracking.hear(PushInfo { kind, data });
        }
        assert_eq!(*heard.lock().unwrap(), ["lock:{a}", "lock:{b}", "all"]);
    }
}
