//! The same locks for code without a runtime (feature `blocking`): each call blocks its thread until it is done.
//!
//! ```
//! # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
//! use parklock::blocking::Client;
//!
//! let client = Client::connect(&url)?;
//! let guard = client.lock("doc:blocking").lock()?; // parks this thread until the lock is ours
//! // ... the critical section; the watchdog renews ...
//! guard.unlock()?;                                 // or drop it: released in the background
//! # Ok::<(), parklock::Error>(())
//! ```
//!
//! Every type here is a [`Blocking`] form of the type of the same name in the crate, and its methods do what theirs do. Share one
//! [`Client`] among all threads: it has a thread of its own, with a Tokio runtime for its connections and its watchdog. So a lock is
//! renewed while your threads are busy.
//!
//! - The owner of a [`ReentrantLock`] is the current thread. Within `spawn_blocking` it is that one call, and not the task that has
//!   started it.
//! - A call cannot be cancelled: use the calls with a time limit, or [`Config::ride_out`].
//! - What has no method here is called with [`Blocking::block_on`]: latches, conditions, elections and so on.
//!
//! # Guards and clients that are dropped
//!
//! A guard that is dropped never blocks: the client releases its lock in the background. When the last of a client, its
//! handles and its guards is dropped, the client is [closed](crate::Client::close), so that all locks are released: the drop blocks
//! until then, for at most one [`Config::response_timeout`]. Within a runtime that drop does not block; another thread closes the
//! client, if the process lives until then. A client in a `static` is never dropped: [`close`](Client::close) it before the process exits, or the last locks that were
//! dropped may stay held until their leases expire.
//!
//! # Panics
//!
//! Each call that blocks panics in asynchronous code: it would stop the runtime of its caller. There, use [`crate::Client`], or call
//! within [`spawn_blocking`](tokio::task::spawn_blocking). The panic names the line of the call.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::client::ClientBuilder;
use crate::config::Config;
#[cfg(feature = "serde")]
use crate::config::Settings;
use crate::engine::{Hold, Holds};
use crate::error::{Error, Result};
use crate::log;
use crate::owner::Owner;
use crate::token::FencingToken;
use crate::{client, guards, locks};

/// A blocking [`Client`](crate::Client).
pub type Client = Blocking<client::Client>;
/// A blocking [`Lock`](crate::Lock), also a fair one.
pub type Lock = Blocking<locks::Lock>;
/// A blocking [`ReentrantLock`](crate::ReentrantLock). Its owner is the current thread, unless it has another one.
pub type ReentrantLock = Blocking<locks::ReentrantLock>;
/// A blocking [`RwLock`](crate::RwLock). A writer's guard is a [`Guard`], which cannot be downgraded.
pub type RwLock = Blocking<locks::RwLock>;
/// A blocking [`Semaphore`](crate::Semaphore).
pub type Semaphore = Blocking<locks::Semaphore>;
/// A blocking [`Guard`](crate::Guard): dropped, it gives its hold back in the background.
pub type Guard = Blocking<guards::Guard>;

/// A client, a handle or a guard whose calls block their thread: the [module](self) has an example.
#[derive(Clone)]
#[must_use = "a handle does nothing until it is locked, and a guard gives its lock back when it is dropped"]
pub struct Blocking<T> {
    // Dropped before the client: so whoever drops the last client has dropped its guard already.
    inner: T,
    client: Arc<Shared>,
}

/// What all handles and guards of one client share.
struct Shared {
    client: client::Client,
    runtime: Background,
}

/// The runtime of a client. Its drop blocks nobody, so it may happen anywhere.
struct Background(Option<Runtime>);

impl Background {
    fn start() -> Result<Self> {
        // One thread for the client's tasks. Callers poll their own futures.
        let built = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("parklock")
            .enable_all()
            .build();
        let runtime = built.map_err(|error| Error::Unavailable { source: Arc::new(error) })?;
        Ok(Self(Some(runtime)))
    }

    #[track_caller]
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.as_ref().expect("it runs until it is dropped").block_on(future)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let (runtime, client) = (Background(self.runtime.0.take()), self.client.clone());
        let close = move || runtime.block_on(client.close());
        if Handle::try_current().is_err_and(|error| error.is_missing_context()) {
            close();
        } else if let Err(error) = thread::Builder::new().name("parklock".to_owned()).spawn(close) {
            log::warn!(%error, "a client is not closed: locks that it held expire with their leases");
        }
    }
}

impl<T> Blocking<T> {
    /// Blocks this thread until a call of the asynchronous form is done: for everything that has no method of its own here.
    ///
    /// A guard that the call returns is an asynchronous one, and does not keep this client: keep a handle of it as long as
    /// the guard.
    ///
    /// ```
    /// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
    /// let client = parklock::blocking::Client::connect(&url)?;
    /// let left = client.block_on(async |client| {
    ///     let latch = client.count_down_latch("doc:blocking:latch");
    ///     latch.set(2).await?;
    ///     latch.count_down().await
    /// })?;
    /// assert_eq!(left, 1);
    /// # Ok::<(), parklock::Error>(())
    /// ```
    ///
    /// # Panics
    /// In asynchronous code, and if the call panics.
    #[track_caller]
    pub fn block_on<R>(&self, call: impl AsyncFnOnce(&T) -> R) -> R {
        self.client.runtime.block_on(call(&self.inner))
    }

    /// Something else of the same client.
    fn with<U>(&self, inner: U) -> Blocking<U> {
        Blocking { inner, client: Arc::clone(&self.client) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A method that does what the method of the same name does: its documentation says how it differs.
macro_rules! same {
    ($T:ident::$call:ident, $how:literal, $($method:tt)*) => {
        #[doc = concat!("Same as [`", stringify!($T), "::", stringify!($call), "`](crate::", stringify!($T), "::",
            stringify!($call), ")", $how)]
        $($method)*
    };
}

/// A method that blocks, and may fail.
macro_rules! blocks {
    ($T:ident::$call:ident, $($method:tt)*) => {
        same!(
            $T::$call,
            ", but blocks this thread.\n\n# Errors\nSame as there.\n\n# Panics\nIn asynchronous code.",
            #[track_caller] $($method)*
        );
    };
}

/// Makes a handle.
macro_rules! makes {
    ($T:ident::$call:ident($($arg:ident: $A:ty),*) -> $R:ty) => {
        same!($T::$call, ".", pub fn $call(&self, $($arg: $A),*) -> $R {
            self.with(self.inner.$call($($arg),*))
        });
    };
}

/// Makes another handle of a handle.
macro_rules! turns {
    ($T:ident::$call:ident($arg:ident: $A:ty)) => {
        same!(
            $T::$call,
            ".",
            pub fn $call(self, $arg: $A) -> Self {
                let Self { inner, client } = self;
                Self { inner: inner.$call($arg), client }
            }
        );
    };
}

/// Gets a guard.
macro_rules! gets {
    ($T:ident::$call:ident($($arg:ident: $A:ty),*)) => {
        blocks!($T::$call, pub fn $call(&self, $($arg: $A),*) -> Result<Guard> {
            self.client.runtime.block_on(self.inner.$call($($arg),*)).map(|guard| self.with(guard.into()))
        });
    };
}

/// Gets a guard, or `None`.
macro_rules! tries {
    ($T:ident::$call:ident($($arg:ident: $A:ty),*)) => {
        blocks!($T::$call, pub fn $call(&self, $($arg: $A),*) -> Result<Option<Guard>> {
            let got = self.client.runtime.block_on(self.inner.$call($($arg),*))?;
            Ok(got.map(|guard| self.with(guard.into())))
        });
    };
}

/// Gets an answer.
macro_rules! asks {
    ($T:ident::$call:ident($($arg:ident: $A:ty),*) -> $R:ty) => {
        blocks!($T::$call, pub fn $call(&self, $($arg: $A),*) -> Result<$R> {
            self.client.runtime.block_on(self.inner.$call($($arg),*))
        });
    };
}

/// Gets a guard, and works under it.
macro_rules! runs {
    ($T:ident::$call:ident by $get:ident) => {
        same!(
            $T::$call,
            ", but blocks this thread. Work that has lost its lock goes on to its end: it can ask\n\
            [`Hold::is_valid`](crate::Hold::is_valid).\n\n# Errors\nSame as there. A lock that was lost before the work was \
            done is an [`Error::Lost`], and the output of the work is dropped.\n\n# Panics\nIn asynchronous code. If `work` \
            panics, the call panics too, and the client releases the lock in the background.",
            #[track_caller]
            pub fn $call<T>(&self, work: impl FnOnce(Hold) -> T) -> Result<T> {
                self.$get()?.run(work)
            }
        );
    };
}

/// Says what it knows without asking.
macro_rules! knows {
    ($T:ident::$call:ident() -> $R:ty) => {
        same!(
            $T::$call,
            ".",
            #[must_use]
            pub fn $call(&self) -> $R {
                self.inner.$call()
            }
        );
    };
}

impl ClientBuilder {
    /// Connects a [blocking client](Client), and blocks this thread.
    ///
    /// # Errors
    /// Same as [`connect`](Self::connect).
    ///
    /// # Panics
    /// In asynchronous code.
    #[track_caller]
    pub fn connect_blocking(self) -> Result<Client> {
        let runtime = Background::start()?;
        let client = runtime.block_on(self.connect())?;
        let shared = Shared { client: client.clone(), runtime };
        Ok(Client { inner: client, client: Arc::new(shared) })
    }
}

impl Client {
    blocks!(
        Client::connect,
        pub fn connect(url: impl AsRef<str>) -> Result<Self> {
            Self::connect_with(url, Config::default())
        }
    );
    blocks!(
        Client::connect_with,
        pub fn connect_with(url: impl AsRef<str>, config: Config) -> Result<Self> {
            client::Client::builder().url(url.as_ref()).config(config).connect_blocking()
        }
    );
    #[cfg(feature = "serde")]
    blocks!(
        Client::from_env,
        pub fn from_env() -> Result<Self> {
            let Settings { url, config } = Settings::from_env()?;
            Self::connect_with(url, config)
        }
    );
    makes!(Client::lock(name: impl Into<String>) -> Lock);
    makes!(Client::fair_lock(name: impl Into<String>) -> Lock);
    makes!(Client::reentrant_lock(name: impl Into<String>) -> ReentrantLock);
    makes!(Client::rw_lock(name: impl Into<String>) -> RwLock);
    makes!(Client::semaphore(name: impl Into<String>, permits: u32) -> Semaphore);
    knows!(Client::holds() -> Holds);

    /// Same as [`Client::drain`](crate::Client::drain), but blocks this thread.
    ///
    /// # Panics
    /// In asynchronous code.
    #[track_caller]
    pub fn drain(&self, limit: Duration) -> bool {
        self.client.runtime.block_on(self.inner.drain(limit))
    }

    /// Same as [`Client::close`](crate::Client::close), but blocks this thread.
    ///
    /// # Panics
    /// In asynchronous code.
    #[track_caller]
    pub fn close(&self) {
        self.client.runtime.block_on(self.inner.close());
    }
}

impl Lock {
    turns!(Lock::lease(lease: Duration));
    gets!(Lock::lock());
    tries!(Lock::try_lock());
    tries!(Lock::try_lock_for(limit: Duration));
    runs!(Lock::run by lock);
    asks!(Lock::is_locked() -> bool);
    asks!(Lock::ttl() -> Option<Duration>);
    asks!(Lock::force_unlock() -> bool);
}

impl ReentrantLock {
    turns!(ReentrantLock::lease(lease: Duration));
    turns!(ReentrantLock::owned_by(owner: &Owner));
    gets!(ReentrantLock::lock());
    tries!(ReentrantLock::try_lock());
    tries!(ReentrantLock::try_lock_for(limit: Duration));
    runs!(ReentrantLock::run by lock);
    asks!(ReentrantLock::is_locked() -> bool);
    asks!(ReentrantLock::ttl() -> Option<Duration>);
    asks!(ReentrantLock::force_unlock() -> bool);
}

impl RwLock {
    turns!(RwLock::lease(lease: Duration));
    gets!(RwLock::read());
    tries!(RwLock::try_read());
    tries!(RwLock::try_read_for(limit: Duration));
    gets!(RwLock::write());
    tries!(RwLock::try_write());
    tries!(RwLock::try_write_for(limit: Duration));
    runs!(RwLock::run_read by read);
    runs!(RwLock::run_write by write);
    asks!(RwLock::is_locked() -> bool);
    asks!(RwLock::is_write_locked() -> bool);
    asks!(RwLock::ttl() -> Option<Duration>);
    asks!(RwLock::force_unlock() -> bool);
}

impl Semaphore {
    turns!(Semaphore::lease(lease: Duration));
    gets!(Semaphore::acquire());
    gets!(Semaphore::acquire_many(permits: u32));
    tries!(Semaphore::try_acquire());
    tries!(Semaphore::try_acquire_many(permits: u32));
    tries!(Semaphore::try_acquire_for(limit: Duration));
    tries!(Semaphore::try_acquire_many_for(permits: u32, limit: Duration));
    runs!(Semaphore::run by acquire);
    asks!(Semaphore::available_permits() -> u32);
    asks!(Semaphore::set_permits(permits: u32) -> ());
    asks!(Semaphore::force_unlock() -> bool);
}

impl Guard {
    knows!(Guard::token() -> FencingToken);
    knows!(Guard::is_valid() -> bool);
    knows!(Guard::remaining() -> Duration);
    knows!(Guard::hold_count() -> u32);
    knows!(Guard::hold() -> Hold);
    asks!(Guard::extend(lease: Duration) -> ());
    blocks!(
        Guard::unlock,
        pub fn unlock(self) -> Result<()> {
            self.client.runtime.block_on(self.inner.unlock())
        }
    );

    #[track_caller]
    fn run<T>(self, work: impl FnOnce(Hold) -> T) -> Result<T> {
        let output = work(self.inner.hold());
        guards::worked(output, self.client.runtime.block_on(self.inner.finish()))
    }
}
