//! Scripts that the bare loops call by hash.

use std::sync::Arc;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, cmd};

/// Makes the script known to the server, and tells its hash.
pub async fn load(connection: &mut MultiplexedConnection, source: &str) -> Result<Arc<str>> {
    let mut load = cmd("SCRIPT");
    load.arg("LOAD").arg(source);
    let hash: String = load.query_async(connection).await?;
    Ok(hash.into())
}

/// A call of the script with these keys. The caller adds the other arguments.
pub fn call(hash: &str, keys: &[&str]) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(hash).arg(keys.len()).arg(keys);
    call
}
