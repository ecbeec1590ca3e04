//! Something that happens once, and that many may wait for.

use tokio::sync::watch;

#[derive(Debug, Default)]
pub(super) struct Latch(watch::Sender<bool>);

impl Latch {
    pub(super) fn set(&self) {
        self.0.send_replace(true);
    }

    pub(super) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    pub(super) async fn wait(&self) {
        let seen = self.0.subscribe().wait_for(|set| *set).await.map(drop);
        seen.expect("the sender is borrowed while we wait");
    }
}
