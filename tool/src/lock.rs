//! The lock that the command line asks for.

use std::time::{Duration, Instant};

use parklock::{Client, Error, Guard, Result, operator};

use crate::args::{Kind, Lock};

/// How long Redis may take to answer before it counts as gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// If an attempt to connect fails after this time, it has waited for an answer.
const SLOW: Duration = Duration::from_millis(100);
/// The library's own setting, unless the user sets it.
const WATCHDOG: Duration = Duration::from_secs(30);
/// The bounds of the time for which a waiter counts as alive after a sign of life.
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(3);

/// Connects with the settings of the command line. The client writes to Redis that it runs `app`, in this process: that of the
/// tool, which its user knows.
pub(crate) async fn connect(lock: &Lock, app: &str, process: u32) -> Result<Client> {
    let config = lock.server.config().describe(plain(app));
    let mut config = operator::on_behalf_of(process, config);
    // Many jobs begin in the same minute, and their machines are busy then. So the limits are longer than for a
    // service, and a waiter that gets no processor for a second keeps its place.
    config = config.connect_timeout(PATIENCE).ride_out(lock.lease().max(PATIENCE));
    config = config.waiter_ttl((lock.watchdog.unwrap_or(WATCHDOG) / 4).clamp(SHORT, LONG));
    if let Some(timeout) = lock.watchdog {
        config = config.watchdog_timeout(timeout);
    }
    if let Some(time) = lock.max_hold {
        config = config.max_hold(time);
    }
    let (url, began) = (lock.server.url(), Instant::now());
    loop {
        let asked = Instant::now();
        match Client::connect_with(&url, config.clone()).await {
            // With a short watchdog timeout, the library waits only briefly for an answer, so try again. If the server
            // refuses, it does so at once.
            Err(Error::Unavailable { .. })
                if asked.elapsed() > SLOW && began.elapsed() < PATIENCE => {}
            connected => return connected,
        }
    }
}

/// Gets the lock, or `None` if it was not free within this time; without a time, it waits forever.
pub(crate) async fn acquire(
    client: &Client,
    lock: &Lock,
    wait: Option<Duration>,
) -> Result<Option<Guard>> {
    match lock.kind {
        Kind::Lock | Kind::Fair => exclusive(client, lock, wait).await,
        Kind::Read => read(client, lock, wait).await,
        Kind::Write => write(client, lock, wait).await,
        Kind::Semaphore => permit(client, lock, wait).await,
    }
}

async fn exclusive(client: &Client, asked: &Lock, wait: Option<Duration>) -> Result<Option<Guard>> {
    let name = asked.name.as_str();
    let mut lock =
        if asked.kind == Kind::Fair { client.fair_lock(name) } else { client.lock(name) };
    if let Some(lease) = asked.lease {
        lock = lock.lease(lease);
    }
    match wait {
        _ if asked.nonblock => lock.try_lock().await,
        Some(wait) => lock.try_lock_for(wait).await,
        None => lock.lock().await.map(Some),
    }
}

async fn read(client: &Client, asked: &Lock, wait: Option<Duration>) -> Result<Option<Guard>> {
    let mut lock = client.rw_lock(asked.name.as_str());
    if let Some(lease) = asked.lease {
        lock = lock.lease(lease);
    }
    match wait {
        _ if asked.nonblock => lock.try_read().await,
        Some(wait) => lock.try_read_for(wait).await,
        None => lock.read().await.map(Some),
    }
}

async fn write(client: &Client, asked: &Lock, wait: Option<Duration>) -> Result<Option<Guard>> {
    let mut lock = client.rw_lock(asked.name.as_str());
    if let Some(lease) = asked.lease {
        lock = lock.lease(lease);
    }
    let guard = match wait {
        _ if asked.nonblock => lock.try_write().await?,
        Some(wait) => lock.try_write_for(wait).await?,
        None => Some(lock.write().await?),
    };
    Ok(guard.map(parklock::WriteGuard::into_guard))
}

async fn permit(client: &Client, asked: &Lock, wait: Option<Duration>) -> Result<Option<Guard>> {
    let mut semaphore = client.semaphore(asked.name.as_str(), asked.permits());
    if let Some(lease) = asked.lease {
        semaphore = semaphore.lease(lease);
    }
    match wait {
        _ if asked.nonblock => semaphore.try_acquire().await,
        Some(wait) => semaphore.try_acquire_for(wait).await,
        None => semaphore.acquire().await.map(Some),
    }
}

/// The name of a program, without the characters that `Config::describe` does not allow.
fn plain(app: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "._-:/@".contains(*c);
    let plain: String = app.chars().filter(is_plain).take(64).collect();
    if plain.is_empty() { "parklock".to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_as_far_as_possible() {
        assert_eq!(plain("back up.sh"), "backup.sh");
        assert_eq!(plain("\u{e9}"), "parklock");
        assert_eq!(plain(&"x".repeat(70)).len(), 64);
    }
}
