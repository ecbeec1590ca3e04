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

    pub fn any(rng: &mut Rng) -> Self {
        Self::ALL[rng.usize(..Self::ALL.len())]
    }
}

pub async fn play(_: Scene, _: Arc<Desk>) {}
