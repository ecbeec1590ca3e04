//! The table: each kind in each layout, as something that one at a time can hold.

use std::time::Duration;

use crate::common::fixture::comes_in;
use parklock::{
    Client, Config, Guard, Layout, Lock, Owner, ReentrantLock, ReentrantRwLock, Result, RwLock,
    Semaphore, WriteGuard,
};

/// A kind in a layout.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Plain,
    /// With an owner for each holder.
    Reentrant,
    Fenced,
    Fair,
    /// To write.
    Write,
    /// To write, with an owner for each holder.
    ReentrantWrite,
    /// Of one permit.
    Semaphore,
    /// Of one permit.
    Expirable,
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    layout: Layout,
    kind: Kind,
    pub(crate) scripts: Scripts,
}

/// What a request is for, and the text of a script that does it.
type Scripts = &'static [(&'static str, &'static str)];

macro_rules! scripts {
    ($($name:ident = $file:literal),*) => {
        &[$((stringify!($name), include_str!(concat!("../../lua/", $file, ".lua")))),*]
    };
}

/// A plain lock is taken by one script as long as nobody waits for it, and by the other in every other case.
const PLAIN: Scripts = scripts!(
    acquire = "line/take",
    acquire = "line/acquire",
    release = "line/release",
    renew = "lock/renew"
);
const LINE: Scripts =
    scripts!(acquire = "line/acquire", release = "line/release", renew = "lock/renew");
const REDISSON_PLAIN: Scripts = scripts!(
    acquire = "redisson/lock/acquire",
    release = "redisson/lock/release",
    renew = "lock/renew"
);
const REDISSON_FAIR: Scripts = scripts!(
    acquire = "redisson/fair/acquire",
    release = "redisson/fair/release",
    renew = "redisson/fair/renew"
);
const REDISSON_WRITE: Scripts = scripts!(
    acquire = "redisson/rw/write_acquire",
    release = "redisson/rw/write_release",
    renew = "lock/renew"
);
const REDISSON_SEMAPHORE: Scripts = scripts!(
    acquire = "redisson/semaphore/acquire",
    release = "redisson/semaphore/release",
    renew = "redisson/semaphore/renew"
);

macro_rules! table {
    ($($name:ident = $layout:ident $kind:ident $scripts:ident,)*) => {
        $(
            #[allow(non_upper_case_globals, reason = "it is the name of a module of tests too")]
            pub(crate) const $name: Pair = Pair {
                name: stringify!($name),
                layout: Layout::$layout,
                kind: Kind::$kind,
                scripts: $scripts,
            };
        )*

        const TABLE: &[Pair] = &[$($name,)*];
    };
}

table! {
    native_lock = Native Plain PLAIN,
    native_reentrant = Native Reentrant PLAIN,
    native_fair = Native Fair LINE,
    native_write = Native Write LINE,
    native_reentrant_write = Native ReentrantWrite LINE,
    native_semaphore = Native Semaphore LINE,
    redisson_lock = Redisson Plain REDISSON_PLAIN,
    redisson_reentrant = Redisson Reentrant REDISSON_PLAIN,
    redisson_fenced = Redisson Fenced REDISSON_PLAIN,
    redisson_fair = Redisson Fair REDISSON_FAIR,
    redisson_write = Redisson Write REDISSON_WRITE,
    redisson_reentrant_write = Redisson ReentrantWrite REDISSON_WRITE,
    redisson_semaphore = Redisson Semaphore REDISSON_SEMAPHORE,
    redisson_expirable = Redisson Expirable REDISSON_SEMAPHORE,
    // A lock made of several and one on several servers are mutexes too: a line each, a `Mutex` each.
}

impl Pair {
    /// The line of this name.
    pub(crate) fn named(name: &str) -> Self {
        let found = TABLE.iter().find(|pair| pair.name == name);
        *found.unwrap_or_else(|| panic!("no {name} in the table"))
    }

    /// What one holder takes, and no other: an owner of its own where there are owners.
    pub(crate) fn of(self, client: &Client, name: &str) -> Mutex {
        match self.kind {
            Kind::Plain => Mutex::Lock(client.lock(name)),
            Kind::Reentrant => {
                Mutex::Reentrant(client.reentrant_lock(name).owned_by(&Owner::new()))
            }
            Kind::Fenced => Mutex::Lock(client.redisson().fenced_lock(name)),
            Kind::Fair => Mutex::Lock(client.fair_lock(name)),
            Kind::Write => Mutex::Write(client.rw_lock(name)),
            Kind::ReentrantWrite => {
                Mutex::ReentrantWrite(client.rw_lock(name).owned_by(&Owner::new()))
            }
            Kind::Semaphore => Mutex::Semaphore(client.semaphore(name, 1)),
            Kind::Expirable => Mutex::Semaphore(client.redisson().expirable_semaphore(name, 1)),
        }
    }

    /// A client that shares this pair's locks. What it no longer listens to, it leaves soon.
    pub(crate) async fn client(self, url: &str, config: Config) -> Client {
        let config = config.layout(self.layout).subscription_linger(Duration::from_millis(50));
        comes_in(url, config).await
    }

    /// The keys with the holders.
    pub(crate) fn keys(self, name: &str) -> Vec<String> {
        match self.layout {
            Layout::Redisson if self.counts() => vec![
                name.to_owned(),
                format!("lock_permits:{{{name}}}"),
                format!("lock_notes:{{{name}}}"),
                format!("{{{name}}}:timeout"),
            ],
            Layout::Redisson => vec![name.to_owned()],
            _ => vec![format!("lock:{{{name}}}")],
        }
    }

    /// The keys without a TTL, as patterns of Lua: the counters of the tokens; the number of permits of Redisson's
    /// semaphore, whose key is a bare name; and the holders of those permits, whose key lasts as long as there are
    /// any.
    pub(crate) fn stays(self) -> [&'static str; 2] {
        if self.counts() { ["^[^:]*$", ":timeout$"] } else { ["^redisson_lock_token:", "^$"] }
    }

    pub(crate) fn is_native(self) -> bool {
        self.layout == Layout::Native
    }

    /// Whether it is a semaphore of Redisson's.
    pub(crate) fn counts(self) -> bool {
        self.layout == Layout::Redisson && matches!(self.kind, Kind::Semaphore | Kind::Expirable)
    }
}

/// One at a time may hold it.
#[derive(Debug, Clone)]
pub(crate) enum Mutex {
    Lock(Lock),
    Reentrant(ReentrantLock),
    Write(RwLock),
    ReentrantWrite(ReentrantRwLock),
    Semaphore(Semaphore),
}

impl Mutex {
    pub(crate) async fn lock(&self) -> Result<Guard> {
        match self {
            Self::Lock(lock) => lock.lock().await,
            Self::Reentrant(lock) => lock.lock().await,
            Self::Write(lock) => Ok(lock.write().await?.into_guard()),
            Self::ReentrantWrite(lock) => Ok(lock.write().await?.into_guard()),
            Self::Semaphore(semaphore) => semaphore.acquire().await,
        }
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<Guard>> {
        match self {
            Self::Lock(lock) => lock.try_lock().await,
            Self::Reentrant(lock) => lock.try_lock().await,
            Self::Write(lock) => Ok(lock.try_write().await?.map(WriteGuard::into_guard)),
            Self::ReentrantWrite(lock) => Ok(lock.try_write().await?.map(WriteGuard::into_guard)),
            Self::Semaphore(semaphore) => semaphore.try_acquire().await,
        }
    }

    pub(crate) async fn try_lock_for(&self, limit: Duration) -> Result<Option<Guard>> {
        match self {
            Self::Lock(lock) => lock.try_lock_for(limit).await,
            Self::Reentrant(lock) => lock.try_lock_for(limit).await,
            Self::Write(lock) => Ok(lock.try_write_for(limit).await?.map(WriteGuard::into_guard)),
            Self::ReentrantWrite(lock) => {
                Ok(lock.try_write_for(limit).await?.map(WriteGuard::into_guard))
            }
            Self::Semaphore(semaphore) => semaphore.try_acquire_for(limit).await,
        }
    }

    pub(crate) fn lease(self, lease: Duration) -> Self {
        match self {
            Self::Lock(lock) => Self::Lock(lock.lease(lease)),
            Self::Reentrant(lock) => Self::Reentrant(lock.lease(lease)),
            Self::Write(lock) => Self::Write(lock.lease(lease)),
            Self::ReentrantWrite(lock) => Self::ReentrantWrite(lock.lease(lease)),
            Self::Semaphore(semaphore) => Self::Semaphore(semaphore.lease(lease)),
        }
    }

    pub(crate) async fn force_unlock(&self) -> Result<bool> {
        match self {
            Self::Lock(lock) => lock.force_unlock().await,
            Self::Reentrant(lock) => lock.force_unlock().await,
            Self::Write(lock) => lock.force_unlock().await,
            Self::ReentrantWrite(lock) => lock.force_unlock().await,
            Self::Semaphore(semaphore) => semaphore.force_unlock().await,
        }
    }

    pub(crate) async fn is_held(&self) -> Result<bool> {
        match self {
            Self::Lock(lock) => lock.is_locked().await,
            Self::Reentrant(lock) => lock.is_locked().await,
            Self::Write(lock) => lock.is_write_locked().await,
            Self::ReentrantWrite(lock) => lock.is_write_locked().await,
            Self::Semaphore(semaphore) => Ok(semaphore.available_permits().await? == 0),
        }
    }
}
