//! The scripts of each kind that is not a plain lock: the same questions, asked of other keys.

use futures_util::future::join_all;
use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::config::Layout;
use crate::keys::{Keys, Kind};
use crate::wire::calls::{Acquire, Acquired, Release, Renewal, millis};
use crate::wire::commands::Connection;
use crate::wire::fault::Fault;
use crate::wire::replies::{items, number, numbers, strange};
use crate::wire::scripts::{self, Script};

/// What can be asked of a kind.
struct Family {
    acquire: &'static Script,
    release: &'static Script,
    renew: &'static Script,
    status: &'static Script,
    force_unlock: &'static Script,
    resize: &'static Script,
}

static QUEUE: Family = Family {
    acquire: &scripts::QUEUE_ACQUIRE,
    release: &scripts::QUEUE_RELEASE,
    renew: &scripts::QUEUE_RENEW,
    status: &scripts::QUEUE_STATUS,
    force_unlock: &scripts::QUEUE_FORCE_UNLOCK,
    resize: &scripts::QUEUE_RESIZE,
};

static REDISSON_FAIR: Family = Family {
    acquire: &scripts::REDISSON_FAIR_ACQUIRE,
    release: &scripts::REDISSON_FAIR_RELEASE,
    renew: &scripts::REDISSON_FAIR_RENEW,
    status: &scripts::REDISSON_FAIR_STATUS,
    force_unlock: &scripts::REDISSON_FAIR_FORCE_UNLOCK,
    resize: &scripts::QUEUE_RESIZE,
};

static REDISSON_READ: Family = Family {
    acquire: &scripts::REDISSON_READ_ACQUIRE,
    release: &scripts::REDISSON_READ_RELEASE,
    renew: &scripts::REDISSON_READ_RENEW,
    status: &scripts::REDISSON_RW_STATUS,
    force_unlock: &scripts::REDISSON_RW_FORCE_UNLOCK,
    resize: &scripts::QUEUE_RESIZE,
};

static REDISSON_WRITE: Family = Family {
    acquire: &scripts::REDISSON_WRITE_ACQUIRE,
    release: &scripts::REDISSON_WRITE_RELEASE,
    renew: &scripts::REDISSON_WRITE_RENEW,
    ..REDISSON_READ
};

static REDISSON_SEMAPHORE: Family = Family {
    acquire: &scripts::REDISSON_SEMAPHORE_ACQUIRE,
    release: &scripts::REDISSON_SEMAPHORE_RELEASE,
    renew: &scripts::REDISSON_SEMAPHORE_RENEW,
    status: &scripts::REDISSON_SEMAPHORE_STATUS,
    force_unlock: &scripts::REDISSON_SEMAPHORE_FORCE_UNLOCK,
    resize: &scripts::REDISSON_SEMAPHORE_RESIZE,
};

static LATCH: Family = Family {
    acquire: &scripts::LATCH_ACQUIRE,
    release: &scripts::LATCH_RELEASE,
    renew: &scripts::LATCH_RELEASE,
    status: &scripts::LATCH_STATUS,
    force_unlock: &scripts::LATCH_RELEASE,
    resize: &scripts::LATCH_RELEASE,
};

static REDISSON_LATCH: Family = Family {
    acquire: &scripts::REDISSON_LATCH_ACQUIRE,
    status: &scripts::REDISSON_LATCH_STATUS,
    ..LATCH
};

fn family(keys: &Keys) -> &'static Family {
    match (keys.layout, keys.kind) {
        (Layout::Native, Kind::Latch) => &LATCH,
        (Layout::Redisson, Kind::Latch) => &REDISSON_LATCH,
        (Layout::Native, _) => &QUEUE,
        (Layout::Redisson, Kind::Fair) => &REDISSON_FAIR,
        (Layout::Redisson, Kind::Read) => &REDISSON_READ,
        (Layout::Redisson, Kind::Write) => &REDISSON_WRITE,
        (Layout::Redisson, _) => &REDISSON_SEMAPHORE,
    }
}

/// How much of something is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    /// Until the last of those who hold it would lose it; negative: nobody does.
    pub(crate) ttl: i64,
    pub(crate) used: i64,
    pub(crate) capacity: i64,
}

impl Connection<'_> {
    /// One question about one name: what every script of a family is told, and what this one is.
    pub(crate) async fn ask(
        &mut self,
        script: &'static Script,
        keys: &Keys,
        fill: impl Fn(&mut Cmd, &str),
    ) -> Result<Value, Fault> {
        let (floor, terms) = (self.floor(Instant::now()), self.terms());
        let (kind, capacity) = keys.capacity();
        let asked = |cmd: &mut Cmd| {
            cmd.arg(4).arg(keys.tokens()).arg(keys.lock()).arg(keys.queue()).arg(keys.notes());
            cmd.arg(floor).arg(kind).arg(capacity).arg(&*keys.channel).arg(terms.message());
            cmd.arg(millis(terms.claim));
            fill(cmd, &terms.client);
        };
        self.call(script, asked).await
    }

    pub(crate) async fn enter(&mut self, acquire: &Acquire) -> Result<Acquired, Fault> {
        let Acquire { keys, id, lease, manner, part, beneath, place, secret, debt: _ } = acquire;
        let fill = |cmd: &mut Cmd, client: &str| {
            cmd.arg(id.of(client)).arg(part).arg(millis(*lease)).arg(manner.word());
            match beneath {
                Some(outer) => cmd.arg(outer.of(client)),
                None => cmd.arg(""),
            };
            cmd.arg(place).arg(secret);
        };
        let reply = self.ask(family(keys).acquire, keys, fill).await?;
        self.acquired(&items(reply)?)
    }

    /// Each alone, but all at once.
    pub(crate) async fn leave_each(&self, releases: &[Release]) -> Vec<Result<bool, Fault>> {
        let leave = async |release: &Release| {
            let Release { keys, id } = release;
            if keys.lies_as_plain() {
                return only(self.again().release_plain(std::slice::from_ref(release)).await);
            }
            let fill = |cmd: &mut Cmd, client: &str| _ = cmd.arg(id.of(client));
            found(self.again().ask(family(keys).release, keys, fill).await)
        };
        join_all(releases.iter().map(leave)).await
    }

    /// Each alone, but all at once.
    pub(crate) async fn renew_each(&self, renewals: &[Renewal<'_>]) -> Vec<Result<bool, Fault>> {
        let renew = async |renewal: &Renewal<'_>| {
            let Renewal { keys, id, ttl } = *renewal;
            if keys.lies_as_plain() {
                return only(self.again().renew_plain(std::slice::from_ref(renewal)).await);
            }
            let fill = |cmd: &mut Cmd, client: &str| _ = cmd.arg(id.of(client)).arg(millis(ttl));
            found(self.again().ask(family(keys).renew, keys, fill).await)
        };
        join_all(renewals.iter().map(renew)).await
    }

    pub(crate) async fn renew_one(&mut self, renewal: Renewal<'_>) -> Result<bool, Fault> {
        self.renew_each(&[renewal]).await.pop().unwrap_or(Ok(false))
    }

    pub(crate) async fn status(&mut self, keys: &Keys) -> Result<Status, Fault> {
        let reply = self.ask(family(keys).status, keys, |_, _| {}).await?;
        let [ttl, used, capacity] = numbers(reply)?;
        Ok(Status { ttl, used, capacity })
    }

    /// From how many it was taken away.
    pub(crate) async fn force_out(&mut self, keys: &Keys) -> Result<i64, Fault> {
        number(self.ask(family(keys).force_unlock, keys, |_, _| {}).await?)
    }

    /// Whether there was anything to change.
    pub(crate) async fn resize(&mut self, keys: &Keys, capacity: u32) -> Result<bool, Fault> {
        let fill = |cmd: &mut Cmd, _: &str| _ = cmd.arg(capacity);
        Ok(number(self.ask(family(keys).resize, keys, fill).await?)? == 1)
    }
}

fn only(answer: Result<Vec<Result<bool, Fault>>, Fault>) -> Result<bool, Fault> {
    answer?.pop().unwrap_or_else(|| Err(strange(&"nothing")))
}

fn found(answer: Result<Value, Fault>) -> Result<bool, Fault> {
    match answer.and_then(number) {
        Ok(found) => Ok(found == 1),
        // Somebody put another value in its place: it is gone, and not ours to judge.
        Err(Fault::WrongType | Fault::Conflict(_)) => Ok(false),
        Err(fault) => Err(fault),
    }
}
