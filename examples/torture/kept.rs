//! The keeper's lock as a server sees it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::common::Admin;
use crate::settings::LEASE;

/// A stopped or new keeper may take a while to hold it; one that is well, a third of a lease.
const PATIENCE: Duration = LEASE.saturating_mul(3);
const LOOK: Duration = Duration::from_millis(10);

/// Whose it is, once two renewals of one hold have been seen: so its holder is well, and, if something has just
/// happened, one of them was sent afterwards and has come back.
pub async fn confirmed(admin: &Admin, key: &str) -> Option<String> {
    let until = Instant::now() + PATIENCE;
    let (mut owner, mut ttl, mut renewals) = (owner(admin, key).await, i64::MAX, 0);
    while Instant::now() < until {
        let (now, left) = (self::owner(admin, key).await, ttl_of(admin, key).await);
        if now != owner {
            (owner, ttl, renewals) = (now, i64::MAX, 0);
        }
        let Some(left) = left else {
            sleep(LOOK).await;
            continue;
        };
        renewals += u32::from(left > ttl);
        if renewals == 2 {
            // It writes down what it knows each few looks of ours.
            sleep(LOOK * 15).await;
            return owner;
        }
        ttl = left;
        sleep(LOOK).await;
    }
    None
}

/// Whether it goes to a new hold.
pub async fn changed(admin: &Admin, key: &str, from: &str) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if owner(admin, key).await.is_some_and(|owner| owner != from) {
            return true;
        }
        sleep(LOOK).await;
    }
    false
}

/// `None` also if the server does not know: a cluster may be down for a moment.
async fn owner(admin: &Admin, key: &str) -> Option<String> {
    let hash: BTreeMap<String, String> = admin.try_cmd(&["HGETALL", key]).await.ok()?;
    hash.into_keys().next()
}

async fn ttl_of(admin: &Admin, key: &str) -> Option<i64> {
    admin.try_cmd(&["PTTL", key]).await.ok()
}
