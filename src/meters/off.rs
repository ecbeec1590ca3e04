//! Metrics are disabled: every function here is empty, and every type has no size.

use std::borrow::Cow;

use tokio::time::Instant;

/// Without the feature there are no labels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Labels {}

impl Labels {
    pub(crate) fn meters<'a>(
        &self,
        _kind: &'static str,
        _name: impl FnOnce() -> Cow<'a, str>,
    ) -> Meters {
        Meters {}
    }
}

/// See `on.rs`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meters {}

impl Meters {
    pub(crate) fn asks(&self, _is_once: bool) -> LockCall {
        LockCall
    }

    pub(crate) fn waits(&self) -> Waits {
        Waits
    }

    pub(crate) fn lost(&self, _why: &'static str) {}
}

/// See `on.rs`.
pub(crate) struct LockCall;

impl LockCall {
    pub(crate) fn came_to<E>(self, _is_granted: Result<bool, E>) {}
}

/// See `on.rs`.
pub(crate) struct Waits;

/// See `on.rs`.
#[derive(Default)]
pub(crate) struct HoldTimes {}

impl HoldTimes {
    pub(crate) fn begin(&mut self, _meters: &Meters, _hold: u16) {}

    pub(crate) fn end(&mut self, _hold: u16) -> Self {
        Self {}
    }

    pub(crate) fn end_all(&mut self) -> Self {
        Self {}
    }

    pub(crate) fn lost(self, _why: &'static str) {}
}

/// See `on.rs`.
#[derive(Default)]
pub(crate) struct Lateness {}

impl Lateness {
    pub(crate) fn due(&mut self, _at: Instant) {}

    pub(crate) fn renewed(&mut self) {}
}

pub(crate) fn describe() {}

pub(crate) fn renewals(_outcome: &'static str, _count: usize) {}

pub(crate) fn ghost() {}

pub(crate) fn woken(_source: &'static str, _waiters: impl FnOnce() -> usize) {}

pub(crate) fn connected(_link: &'static str, _again: bool) {}

pub(crate) fn round_trip(_sent: Instant) {}

pub(crate) fn batch(_request: &'static str, _size: usize) {}
