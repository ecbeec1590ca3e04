//! A search for the primaries, beside the view: a server that hangs delays the search, and must not delay the view.

use tokio::task::JoinHandle;

use crate::failure::Failure;
use crate::servers::Reached;

#[derive(Debug, Default)]
pub(super) struct Search(Option<JoinHandle<Result<Reached, Failure>>>);

impl Search {
    /// Begins a search, unless one is on its way.
    pub(super) fn begin(
        &mut self,
        search: impl Future<Output = Result<Reached, Failure>> + Send + 'static,
    ) {
        self.0.get_or_insert_with(|| tokio::spawn(search));
    }

    /// What a search that has ended has found, if it is still wanted.
    pub(super) async fn found(&mut self, is_wanted: bool) -> Option<Reached> {
        let ended = self.0.take_if(|search| search.is_finished())?;
        // What it has found is older than an answer that has come since.
        ended.await.ok()?.ok().filter(|_| is_wanted)
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    async fn ended() -> Search {
        let mut search = Search::default();
        search.begin(async { Ok(Reached::default()) });
        while !search.0.as_ref().is_some_and(JoinHandle::is_finished) {
            yield_now().await;
        }
        search
    }

    #[tokio::test]
    async fn what_a_search_has_found_counts_once_and_only_while_it_is_wanted() {
        let mut search = ended().await;
        assert!(search.found(true).await.is_some() && search.found(true).await.is_none());
        let mut search = ended().await;
        assert!(search.found(false).await.is_none(), "the primary has answered meanwhile");
        assert!(search.found(true).await.is_none(), "the next search looks anew");
    }
}
