//! ZooKeeper, by its own recipe: an ephemeral sequential node each; the least is in, and each other watches the one before it.

use anyhow::{Context, Result};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::{Contender, Pending, Terms};

pub struct Sequence {
    session: Client,
    folder: String,
    /// Of the node that is in line or in, and the number of the transaction that made it.
    node: Option<(String, i64)>,
}

impl Sequence {
    pub async fn open(terms: Terms<'_>) -> Result<Self> {
        let connector = Client::connector().with_session_timeout(terms.lease);
        let session = connector.connect(terms.address).await?;
        let folder = format!("/{}", terms.name);
        let made = CreateMode::Persistent.with_acls(Acls::anyone_all());
        match session.create(&folder, b"", &made).await {
            Ok(_) | Err(Error::NodeExists) => {}
            Err(other) => return Err(other.into()),
        }
        Ok(Self { session, folder, node: None })
    }

    /// The node before ours; `None` if ours is the least.
    async fn predecessor(&self, own: &str) -> Result<Option<String>> {
        let mut nodes = self.session.list_children(&self.folder).await?;
        nodes.sort_unstable();
        let place = nodes.iter().position(|node| node == own).context("our node is gone")?;
        Ok(place.checked_sub(1).map(|before| nodes.swap_remove(before)))
    }
}

impl Contender for Sequence {
    fn lock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
            let prefix = format!("{}/l-", self.folder);
            let (stat, sequence) = self.session.create(&prefix, b"", &mode).await?;
            let own = format!("l-{sequence}");
            self.node = Some((own.clone(), stat.czxid));
            while let Some(before) = self.predecessor(&own).await? {
                let path = format!("{}/{before}", self.folder);
                let (stat, watcher) = self.session.check_and_watch_stat(&path).await?;
                if stat.is_some() {
                    watcher.changed().await;
                }
            }
            Ok(())
        })
    }

    fn unlock(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let (node, _) = self.node.take().context("not locked")?;
            Ok(self.session.delete(&format!("{}/{node}", self.folder), None).await?)
        })
    }

    fn token(&mut self) -> Pending<'_, Option<i64>> {
        let token = self.node.as_ref().map(|node| node.1);
        Box::pin(async move { Ok(token) })
    }
}
