//! What the work costs with no library at all: the classic pair of scripts, called bare on one connection.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd};

use super::contender::FIXED_LEASE;
use super::scripts::{call, load};
use super::{Contender, Kind};
use crate::worker::protocol::Setup;

const PATIENCE: Duration = Duration::from_secs(30);

/// Takes the lock if it is free or ours. KEYS: lock. ARGV: lease in ms, owner. Reply: 1 taken, 0 busy.
const ACQUIRE: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return 1
end
return 0";

/// Gives one hold back and tells the channel after the last. KEYS: lock. ARGV: channel, owner. Reply: 1 ours, 0 not.
const RELEASE: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return 0
end
if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[1], '0')
end
return 1";

/// One connection, two scripts known to the server.
#[derive(Clone)]
pub struct Floor {
    connection: MultiplexedConnection,
    acquire: Arc<str>,
    release: Arc<str>,
}

/// The two requests of a name, ready to be sent again and again.
pub struct Requests {
    acquire: Cmd,
    release: Cmd,
}

impl Floor {
    /// How long one script call takes at this moment: take a free lock. Used as the round trip.
    pub async fn call(&self, requests: &Requests) -> Result<()> {
        let mut connection = self.connection.clone();
        let taken: i64 = requests.acquire.query_async(&mut connection).await?;
        ensure!(taken == 1, "the floor does not wait, and the lock is taken");
        Ok(())
    }
}

impl Contender for Floor {
    type Handle = Arc<Requests>;
    type Guard = Arc<Requests>;

    async fn connect(setup: &Setup) -> Result<Self> {
        let client = Client::open(setup.url.as_str())?;
        // The default is half a second, which a busy machine exceeds.
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self {
            acquire: load(&mut connection, ACQUIRE).await?,
            release: load(&mut connection, RELEASE).await?,
            connection,
        })
    }

    fn handle(&self, _kind: Kind, name: &str) -> Arc<Requests> {
        let key = format!("lock:{{{name}}}");
        let owner = format!("{:032x}:{name}", fastrand::u128(..));
        let mut acquire = call(&self.acquire, &[&key]);
        acquire.arg(FIXED_LEASE.as_millis() as u64).arg(&owner);
        let mut release = call(&self.release, &[&key]);
        release.arg(format!("lock_channel:{{{name}}}")).arg(&owner);
        Arc::new(Requests { acquire, release })
    }

    async fn acquire(&self, handle: &Arc<Requests>) -> Result<Arc<Requests>> {
        self.call(handle).await?;
        Ok(handle.clone())
    }

    async fn release(&self, held: Arc<Requests>) -> Result<()> {
        let mut connection = self.connection.clone();
        let _ours: i64 = held.release.query_async(&mut connection).await?;
        Ok(())
    }
}
