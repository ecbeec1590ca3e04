//! The lock that the command line asks for.

use std::time::{Duration, Instant};

use parklock::{Client, Config, Error, Guard, Result, RwLock, Semaphore, WriteGuard, operator};

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
    let config = operator::on_behalf_of(process, config);
    // Many jobs begin in the same minute, and their machines are busy then. So the limits are longer than for a
    // service, and a waiter that gets no processor for a second keeps its place.
    let config = config.ride_out(lock.lease().max(PATIENCE));
    let config = config.waiter_ttl((lock.watchdog.unwrap_or(WATCHDOG) / 4).clamp(SHORT, LONG));
    let config = lock.watchdog.into_iter().fold(config, Config::watchdog_timeout);
    let config = lock.max_hold.into_iter().fold(config, Config::max_hold);
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
    asked: &Lock,
    wait: Option<Duration>,
) -> Result<Option<Guard>> {
    // To the library, a limit of zero means one attempt.
    let wait = if asked.nonblock { Duration::ZERO } else { wait.unwrap_or(Duration::MAX) };
    let (name, lease) = (asked.name.as_str(), asked.lease.into_iter());
    match asked.kind {
        Kind::Lock => lease.fold(client.lock(name), parklock::Lock::lease).try_lock_for(wait).await,
        Kind::Fair => {
            lease.fold(client.fair_lock(name), parklock::Lock::lease).try_lock_for(wait).await
        }
        Kind::Read => lease.fold(client.rw_lock(name), RwLock::lease).try_read_for(wait).await,
        Kind::Write => {
            let lock = lease.fold(client.rw_lock(name), RwLock::lease);
            Ok(lock.try_write_for(wait).await?.map(WriteGuard::into_guard))
        }
        Kind::Semaphore => {
            let semaphore = lease.fold(client.semaphore(name, asked.permits()), Semaphore::lease);
            semaphore.try_acquire_for(wait).await
        }
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
