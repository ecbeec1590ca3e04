//! `parklock hold`: the lock without a command, until a signal ends it.

use std::time::Duration;

use parklock::{Error, Guard};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::args::Lock;
use crate::signals::Ends;
use crate::voice::{NOT_THERE, NOT_THERE_OR_OVER, Voice};
use crate::{exit, holders, lock, output};

/// How long the release may take. After that, the lease frees the lock.
const GIVING_BACK: Duration = Duration::from_secs(5);

pub(crate) async fn hold(lock: &Lock) -> u8 {
    let voice = Voice::of(lock);
    match held(lock, &voice).await {
        Ok(code) => code,
        Err(error) => {
            let code = exit::of_error(&error);
            let why = lock.server.explained(code, &error.to_string());
            voice.fail(code, &why);
            code
        }
    }
}

async fn held(lock: &Lock, voice: &Voice) -> parklock::Result<u8> {
    let mut ends = Ends::new();
    let client = tokio::select! {
        client = lock::connect(lock, "parklock-hold", std::process::id()) => client?,
        number = ends.next() => return Ok(exit::of_signal(number)),
    };
    let code = tokio::select! {
        granted = voice.waits(lock, lock::acquire(&client, lock, lock.wait)) => match granted {
            Ok(Some(guard)) => Ok(stay(guard, lock, voice, &mut ends).await),
            Ok(None) => Ok(voice.busy(lock, &holders::of(lock).await)),
            Err(error) => Err(error),
        },
        number = ends.next() => Ok(exit::of_signal(number)),
    };
    let _ = timeout(GIVING_BACK, client.close()).await;
    code
}

async fn stay(guard: Guard, lock: &Lock, voice: &Voice, ends: &mut Ends) -> u8 {
    let since = Instant::now();
    let line = json!({
        "name": lock.name,
        "kind": lock.kind,
        "token": guard.token().to_string(),
        "lease_ms": u64::try_from(lock.lease().as_millis()).unwrap_or(u64::MAX),
    });
    if let Err(error) = output::write(&format!("{line}\n")) {
        // Nobody learns that the lock is held.
        voice.fail(exit::BROKEN, &output::unwritten(&error));
        give_back(guard, voice).await;
        return exit::BROKEN;
    }
    tokio::select! {
        _ = guard.ended() => {
            let is_over = lock.sure_lease().is_some_and(|lease| since.elapsed() >= lease);
            let why = match lock.lease {
                Some(_) if is_over => "its lease is over",
                Some(_) => NOT_THERE,
                None if lock.max_hold.is_some_and(|most| since.elapsed() >= most) => {
                    "its --max-hold is over"
                }
                None => "the server no longer has it, or it could not be renewed in time",
            };
            voice.warn("lost", &json!({}), &voice.lost(why));
            return exit::LOST;
        }
        _ = ends.next() => {}
    }
    let rest = lock.min_hold.unwrap_or_default().saturating_sub(since.elapsed());
    tokio::select! {
        () = sleep(rest) => {}
        _ = guard.ended() => {}
        _ = ends.next() => {}
    }
    give_back(guard, voice).await
}

async fn give_back(guard: Guard, voice: &Voice) -> u8 {
    match timeout(GIVING_BACK, guard.unlock()).await {
        Ok(Ok(())) => exit::OK,
        Ok(Err(Error::Lost { .. })) => {
            voice.warn("lost", &json!({}), &voice.lost(NOT_THERE_OR_OVER));
            exit::LOST
        }
        Ok(Err(error)) => left(voice, &error.to_string()),
        Err(_) => left(voice, "redis did not answer"),
    }
}

fn left(voice: &Voice, why: &str) -> u8 {
    let text = format!("the release of the lock failed, its lease will free it: {why}");
    voice.warn("left", &json!({}), &text);
    exit::OK
}
