//! A buffer with room for a few items, outside of Redis. It compares tokens, as what a lock protects should.

use std::collections::{BTreeSet, VecDeque};

/// How many items there is room for.
const ROOM: usize = 3;

#[derive(Debug, Default)]
pub struct Buffer {
    items: VecDeque<u64>,
    taken: BTreeSet<u64>,
    put: u64,
    /// The greatest token that it has seen.
    token: u64,
}

/// Somebody with a greater token was here before.
#[derive(Debug)]
pub struct Outdated;

impl Buffer {
    fn seen(&mut self, token: u64) -> Result<(), Outdated> {
        if token < self.token {
            return Err(Outdated);
        }
        self.token = token;
        Ok(())
    }

    pub fn is_full(&mut self, token: u64) -> Result<bool, Outdated> {
        self.seen(token)?;
        Ok(self.items.len() >= ROOM)
    }

    pub fn is_empty(&mut self, token: u64) -> Result<bool, Outdated> {
        self.seen(token)?;
        Ok(self.items.is_empty())
    }

    /// Puts another item in. Returns `false` if there is no room, though its producer has just looked.
    pub fn put(&mut self, token: u64) -> Result<bool, Outdated> {
        if self.is_full(token)? {
            return Ok(false);
        }
        self.put += 1;
        self.items.push_back(self.put);
        Ok(true)
    }

    /// Takes an item out. Returns `false` if there is none, though its consumer has just looked, or if it was taken before.
    pub fn take(&mut self, token: u64) -> Result<bool, Outdated> {
        self.seen(token)?;
        Ok(self.items.pop_front().is_some_and(|item| self.taken.insert(item)))
    }

    /// How many items are left in it, and how many were taken.
    pub fn counts(&self) -> (usize, usize) {
        (self.items.len(), self.taken.len())
    }
}
