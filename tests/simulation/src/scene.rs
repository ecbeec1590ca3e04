//! Scenes: short plays of what random work meets too seldom.

use std::sync::Arc;

use fastrand::Rng;

use crate::desk::Desk;

/// One of the plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    Nothing,
}

impl Scene {
    pub const ALL: [Self; 1] = [Self::Nothing];

    pub fn named(name: &str) -> Result<Self, String> {
        let named = |scene: &&Self| format!("{scene:?}").eq_ignore_ascii_case(name);
        Self::ALL.iter().find(named).copied().ok_or_else(|| format!("no scene is called {name}"))
    }

    pub fn any(rng: &mut Rng) -> Self {
        Self::ALL[rng.usize(..Self::ALL.len())]
    }
}

pub async fn play(_: Scene, _: Arc<Desk>) {}
