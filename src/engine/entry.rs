//! What a client knows of one lock: who has its turn, where its contender parks.
//!
//! 1. `turn` has one permit. It is with the contender, or with the tenure that it became, or free.
//! 2. `gate` banks at most one permit, and only the contender takes it.
//! 3. An entry is in the table exactly as long as somebody visits it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::engine::tenure::Tenure;
use crate::keys::Keys;
use crate::wire::Fault;

/// The entries of a client, by channel, so that a message finds its gate without a detour.
#[derive(Default)]
pub(crate) struct Table {
    entries: DashMap<String, Arc<Entry>>,
    closed: AtomicBool,
}

impl Table {
    /// # Errors
    /// [`Fault::Closed`] if the client was closed.
    pub(crate) fn visit(self: &Arc<Self>, keys: &Arc<Keys>) -> Result<Visit, Fault> {
        let entry = self.entered(keys);
        let visit = Visit { table: Arc::clone(self), entry };
        // After the entry stands in the table: whoever closes it meanwhile will find it there.
        if self.closed.load(Ordering::SeqCst) { Err(Fault::Closed) } else { Ok(visit) }
    }

    fn entered(&self, keys: &Arc<Keys>) -> Arc<Entry> {
        if let Some(entry) = self.entries.get(keys.channel.as_str()) {
            entry.visitors.fetch_add(1, Ordering::Relaxed);
            return Arc::clone(&entry);
        }
        let made = || Arc::new(Entry::new(Arc::clone(keys)));
        let entry = self.entries.entry(keys.channel.clone()).or_insert_with(made);
        entry.visitors.fetch_add(1, Ordering::Relaxed);
        Arc::clone(&entry)
    }

    /// The entry behind a channel. No reference into the table is kept.
    pub(crate) fn find(&self, channel: &str) -> Option<Arc<Entry>> {
        self.entries.get(channel).map(|entry| Arc::clone(&entry))
    }

    /// Sends every waiter away, now and from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for entry in &self.entries {
            entry.turn.close();
            entry.gate.close();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// One lock within one client.
pub(crate) struct Entry {
    pub(crate) keys: Arc<Keys>,
    turn: Semaphore,
    pub(crate) gate: Gate,
    held: Mutex<Option<Arc<Tenure>>>,
    /// Since when every attempt has failed.
    failing: Mutex<Option<Instant>>,
    visitors: AtomicUsize,
}

impl Entry {
    fn new(keys: Arc<Keys>) -> Self {
        Self {
            keys,
            turn: Semaphore::new(1),
            gate: Gate(Semaphore::new(0)),
            held: Mutex::default(),
            failing: Mutex::default(),
            visitors: AtomicUsize::new(0),
        }
    }

    /// The tenure that this client has now.
    pub(crate) fn held(&self) -> Option<Arc<Tenure>> {
        self.held.lock().expect("no panic under this lock").clone()
    }

    fn hold(&self, tenure: Option<Arc<Tenure>>) {
        let before =
            std::mem::replace(&mut *self.held.lock().expect("no panic under this lock"), tenure);
        drop(before);
    }

    /// An attempt failed; since when they all do.
    pub(crate) fn failed(&self, now: Instant) -> Instant {
        *self.failing.lock().expect("no panic under this lock").get_or_insert(now)
    }

    /// An attempt was answered.
    pub(crate) fn answered(&self) {
        *self.failing.lock().expect("no panic under this lock") = None;
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failing.lock().expect("no panic under this lock").is_some()
    }
}

/// Keeps an entry in the table.
pub(crate) struct Visit {
    table: Arc<Table>,
    pub(crate) entry: Arc<Entry>,
}

impl Visit {
    /// The turn, if nobody of this client has it.
    pub(crate) fn try_turn(self) -> Result<Turn, Self> {
        let taken = self.entry.turn.try_acquire().map(SemaphorePermit::forget);
        if taken.is_ok() { Ok(Turn(self)) } else { Err(self) }
    }

    /// The turn, first come, first served.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue.
    pub(crate) async fn turn(self) -> Result<Turn, Fault> {
        match self.entry.turn.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => return Err(Fault::Closed),
        }
        Ok(Turn(self))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // Counted under the lock of the table's shard, as in `visit`: nobody enters in between.
        let last =
            |_: &String, entry: &Arc<Entry>| entry.visitors.fetch_sub(1, Ordering::Relaxed) == 1;
        self.table.entries.remove_if(self.entry.keys.channel.as_str(), last);
    }
}

/// The right to contend for a lock, and then to hold it.
pub(crate) struct Turn(Visit);

impl Turn {
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.0.entry
    }

    /// Shows the tenure that this turn became.
    pub(crate) fn became(&self, tenure: &Arc<Tenure>) {
        self.entry().hold(Some(Arc::clone(tenure)));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.entry().hold(None);
        self.entry().turn.add_permits(1);
    }
}

/// Where the contender parks until an unlock message.
pub(crate) struct Gate(Semaphore);

impl Gate {
    /// Lets the contender through, the next one if there is none. Two who open at once may bank
    /// two: the contender's `shut` takes both.
    pub(crate) fn open(&self) {
        if self.0.available_permits() == 0 {
            self.0.add_permits(1);
        }
    }

    /// Forgets what has been heard so far: the attempt that follows sees its effect.
    pub(crate) fn shut(&self) {
        self.0.forget_permits(usize::MAX);
    }

    /// Parks until the gate is opened, or for so long.
    ///
    /// # Cancel safety
    /// An opening that a dropped future has not seen stays banked for the next contender.
    pub(crate) async fn pass(&self, limit: Duration) -> Result<(), Fault> {
        match timeout(limit, self.0.acquire()).await {
            Ok(Ok(permit)) => permit.forget(),
            Ok(Err(_)) => return Err(Fault::Closed),
            Err(_) => {}
        }
        Ok(())
    }

    fn close(&self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layout;

    fn keys(name: &str) -> Arc<Keys> {
        Arc::new(Keys::new(Layout::Native, name.to_owned()).unwrap())
    }

    #[test]
    fn an_entry_leaves_with_its_last_visitor() {
        let (table, keys) = (Arc::new(Table::default()), keys("a"));
        let first = table.visit(&keys).unwrap();
        let second = table.visit(&keys).unwrap();
        assert!(Arc::ptr_eq(&first.entry, &second.entry));
        drop(first);
        assert_eq!(table.len(), 1);
        drop(second);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_turn_is_one_visitors_until_it_is_dropped() {
        let (table, keys) = (Arc::new(Table::default()), keys("a"));
        let turn = table.visit(&keys).unwrap().try_turn().ok().unwrap();
        assert!(table.visit(&keys).unwrap().try_turn().is_err());
        drop(turn);
        assert!(table.visit(&keys).unwrap().try_turn().is_ok());
    }

    #[tokio::test]
    async fn a_closed_table_sends_waiters_away_and_takes_no_more() {
        let (table, keys) = (Arc::new(Table::default()), keys("a"));
        let turn = table.visit(&keys).unwrap().try_turn().ok().unwrap();
        let waiter = tokio::spawn(table.visit(&keys).unwrap().turn());
        table.close();
        assert!(matches!(waiter.await.unwrap(), Err(Fault::Closed)));
        assert!(turn.entry().gate.pass(Duration::from_secs(60)).await.is_err());
        assert!(table.visit(&keys).is_err());
        drop(turn);
        assert_eq!(table.len(), 0);
    }

    #[tokio::test]
    async fn a_gate_banks_one_opening() {
        let gate = Gate(Semaphore::new(0));
        gate.open();
        gate.open();
        gate.pass(Duration::from_secs(60)).await.unwrap();
        assert_eq!(gate.0.available_permits(), 0);
        gate.open();
        gate.shut();
        assert_eq!(gate.0.available_permits(), 0);
    }
}
