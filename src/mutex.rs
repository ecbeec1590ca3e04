//! The mutex of this crate.

use std::sync::MutexGuard;

/// A mutex under which no code panics: so nobody finds it poisoned.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no panic under this lock")
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.try_lock().is_err()
    }
}
