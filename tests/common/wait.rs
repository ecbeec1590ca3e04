//! The one way in which a test waits for something that happens in the background.

use std::time::Duration;

use tokio::time::{sleep, timeout};

const STEP: Duration = Duration::from_millis(3);

/// Looks again and again until it `holds`; panics with `what` when it does not within that time.
pub async fn eventually(within: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = timeout(within, async {
        while !holds().await {
            sleep(STEP).await;
        }
    });
    assert!(held.await.is_ok(), "not within {within:?}: {what}");
}
