//! Replicas, as clients ask for them.

use crate::connection::Waits;
use crate::number;
use crate::reply::{Answer, Reply, refusal};
use crate::state::{Caller, State};

/// Waits until so many replicas have what this connection has written.
pub(super) fn wait(state: &mut State, caller: Caller, words: &[&[u8]]) -> Answer {
    if state.replica {
        let since = if state.version.is_valkey() { "" } else { "since Redis 4.0 " };
        return Err(Reply::error(format!(
            "ERR WAIT cannot be used with replica instances. Please also note that {since}if a replica is configured to \
             be writable (which is not the default) writes to replicas are just local and are not propagated."
        )));
    }
    let replicas = number::integer(words[1]).ok_or_else(refusal::not_an_integer)?;
    let no_number = || Reply::error("ERR timeout is not an integer or out of range");
    let millis = number::integer(words[2]).ok_or_else(no_number)?;
    let millis = u64::try_from(millis).map_err(|_| Reply::error("ERR timeout is negative"))?;
    let offset = state.connection(caller).map_or(0, |connection| connection.wrote);
    let (has, now) = (state.replication.having(offset), state.now);
    let is_in_script = state.run.is_some();
    match state.connection_mut(caller) {
        Some(connection) if has < replicas && !is_in_script => {
            let until = (millis > 0).then(|| now.saturating_add(millis.saturating_mul(1_000)));
            connection.waits = Some(Waits { replicas, offset, until });
            Ok(Reply::Push(Vec::new()))
        }
        _ => Ok(Reply::Integer(has)),
    }
}
