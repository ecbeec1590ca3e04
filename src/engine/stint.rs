//! One holder's time in a tenure.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::entry::Tenure;
use crate::engine::grant::Ended;
use crate::token::FencingToken;

/// A tenure, from one hand-over to the next.
#[derive(Clone)]
pub(crate) struct Stint {
    pub(crate) tenure: Arc<Tenure>,
    /// The number of the hand-over.
    pub(crate) turn: u16,
    pub(crate) token: FencingToken,
}

impl Stint {
    pub(crate) fn new(tenure: Arc<Tenure>, turn: u16) -> Self {
        let token = tenure.token(turn);
        Self { tenure, turn, token }
    }

    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.tenure.keys.name()
    }

    /// How long it may be believed, on this machine's clock.
    pub(crate) fn remaining(&self) -> Duration {
        self.tenure.remaining(self.turn)
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.tenure.ended(self.turn)
    }

    /// How many holds its owner has of it.
    pub(crate) fn holds(&self) -> u32 {
        self.tenure.holds_of(self.turn)
    }

    /// Resolves when the stint ends, at the deadline at the latest.
    pub(crate) fn end(&self) -> impl Future<Output = Ended> + Send + 'static {
        Arc::clone(&self.tenure).end(self.turn)
    }
}
