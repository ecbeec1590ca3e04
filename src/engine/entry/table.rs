//! The entries of a client: which of them exist, and where each is found.
//!
//! 1. An entry is in the table exactly as long as it has visitors.
//! 2. In a kind in which each caller waits separately, each caller has its own entry. The entries of one channel are
//!    *siblings*: one of their far contenders, the *speaker*, asks for all of them.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::config::{Config, Layout};
use crate::core::waiting::{Event, Rules, Turns};
use crate::engine::entry::lookout::Lookout;
use crate::engine::entry::tenure::Ending;
use crate::engine::entry::{Awaited, Entry, Stay, Tenure, Visit};
use crate::engine::ghost::Ghost;
use crate::error::{Error, Result};
use crate::keys::{Keys, TenureId, ids_of};
use crate::kinds::{Holders, Kind};

/// The entries of a client: plain locks by lock, all others by channel.
pub(crate) struct Table {
    locks: DashMap<ById, Arc<Entry>>,
    others: DashMap<Box<str>, Siblings>,
    closed: AtomicBool,
    lookout: Arc<Lookout>,
    layout: Layout,
    /// By these rules, contenders wait.
    pub(super) rules: Rules,
    tenures: AtomicU64,
    give_back: GiveBack,
    /// How often all callers of a channel were looked at.
    #[cfg(test)]
    pub(crate) passes: std::sync::atomic::AtomicUsize,
}

/// What no caller of this client needs any more, and Redis may still have.
pub(crate) enum Remains<'a> {
    /// A tenure that has ended, and then its part of the entry.
    Tenure(Ending),
    /// A place in line, with this owner field.
    Place(&'a Arc<Keys>, TenureId),
    Ghost(Ghost),
}

type GiveBack = Box<dyn Fn(Remains<'_>) + Send + Sync>;

/// The entries of one channel, except those of plain locks.
struct Siblings {
    entries: BTreeMap<EntryKey, Arc<Entry>>,
    /// The one far contender that asks from time to time for all of them.
    speaker: Option<EntryKey>,
    /// When the next one asks, if messages make them ask.
    turns: Turns,
}

impl Siblings {
    fn of(keys: &Keys) -> Self {
        let turns = Turns::of(keys.row.holders);
        Self { entries: BTreeMap::new(), speaker: None, turns }
    }

    /// If this entry was the speaker, makes the next far contender the speaker. Returns its entry, for the caller to wake when
    /// the table is no longer locked: a waker may poll its task at once, or drop it. If that contender is asking at this
    /// moment, and learns that it is near, it passes its role on itself.
    #[must_use]
    fn stop_speaking(&mut self, key: EntryKey) -> Option<Arc<Entry>> {
        if self.speaker != Some(key) {
            return None;
        }
        // Take turns. Otherwise two entries with many callers could pass the role to and fro, and a third would never
        // get it.
        let behind = self.entries.range((Bound::Excluded(key), Bound::Unbounded));
        let mut in_turn = behind.chain(self.entries.range(..key));
        let next = in_turn.find(|(_, entry)| entry.can_speak());
        self.speaker = next.map(|(next, _)| *next);
        next.map(|(_, entry)| Arc::clone(entry))
    }
}

/// Wakes the next speaker, if there is one.
fn wake(next: Option<Arc<Entry>>) {
    next.iter().for_each(|entry| entry.gate.open());
}

impl Table {
    /// A table of a client with this configuration.
    pub(crate) fn new(
        config: &Config,
        give_back: impl Fn(Remains<'_>) + Send + Sync + 'static,
    ) -> Self {
        let (layout, waiter_ttl) = (config.layout, config.life());
        let (max_park, rests) = (config.max_park, layout == Layout::Native);
        Self {
            locks: DashMap::default(),
            others: DashMap::default(),
            closed: AtomicBool::new(false),
            lookout: Arc::default(),
            layout,
            rules: Rules { waiter_ttl, pushed_lease: waiter_ttl, max_park, rests },
            tenures: AtomicU64::new(0),
            give_back: Box::new(give_back),
            #[cfg(test)]
            passes: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    /// The rules for a contender that asks for this lease.
    pub(super) fn rules_for(&self, lease: Duration) -> Rules {
        Rules { pushed_lease: self.rules.pushed_lease.min(lease), ..self.rules }
    }

    /// The id of a new tenure. It is never used again.
    pub(crate) fn next_tenure(&self) -> TenureId {
        TenureId(self.tenures.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn lookout(&self) -> &Arc<Lookout> {
        &self.lookout
    }

    pub(crate) fn give_back(&self, remains: Remains<'_>) {
        (self.give_back)(remains);
    }

    /// Releases what Redis may have granted to the former owner fields of a contender.
    pub(crate) fn give_back_all(&self, ghosts: Vec<Ghost>) {
        ghosts.into_iter().for_each(|ghost| self.give_back(Remains::Ghost(ghost)));
    }

    /// Releases a tenure if it is idle. `stay`: the permit that is passed on after that. A kept tenure has none.
    pub(crate) fn retire(&self, tenure: &Tenure, stay: Option<Stay>) {
        if let Some(mut ending) = tenure.retire() {
            if matches!(ending.stay, None | Some(Stay::Kept(_))) {
                ending.stay = stay.or(ending.stay);
            }
            self.give_back(Remains::Tenure(ending));
        }
    }

    /// Another visit of an entry, or `None` if the entry has no visitor any more.
    pub(crate) fn visit_again(&self, entry: &Arc<Entry>) -> Option<Visit> {
        // This does not lock the shard of the table: an entry with visitors stays in the table, and a removed one never
        // returns.
        let one_more = |visitors: u32| (visitors > 0).then_some(visitors + 1);
        let visited =
            entry.visitors.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_ok();
        visited.then(|| Visit { entry: Arc::clone(entry) })
    }

    /// The entry of a lock, which its callers share. Callers of a semaphore share an entry if they ask for the same
    /// number of permits.
    ///
    /// # Errors
    /// [`Error::Closed`] if the client was closed.
    pub(crate) fn visit(self: &Arc<Self>, keys: &Arc<Keys>, permits: u32) -> Result<Visit> {
        if keys.row.holders != Holders::Plain {
            let key = EntryKey::SideBySide(keys.kind, keys.braced, keys.class(permits));
            return self.at(keys, keys.channel.clone(), key);
        }
        self.open(self.entered(keys))
    }

    /// An entry for one caller alone. `id` is the id of the tenure that it waits for.
    ///
    /// # Errors
    /// Same as [`visit`](Self::visit).
    pub(crate) fn enter_alone(
        self: &Arc<Self>,
        keys: &Arc<Keys>,
        channel: Box<str>,
        id: TenureId,
    ) -> Result<Visit> {
        self.at(keys, channel, EntryKey::Alone(id))
    }

    fn at(self: &Arc<Self>, keys: &Arc<Keys>, channel: Box<str>, key: EntryKey) -> Result<Visit> {
        let mut siblings = self.others.entry(channel.clone()).or_insert_with(|| Siblings::of(keys));
        let made = || Arc::new(Entry::at(self, Arc::clone(keys), channel, key));
        let entry = Arc::clone(siblings.entries.entry(key).or_insert_with(made));
        entry.visitors.fetch_add(1, Ordering::Relaxed);
        drop(siblings);
        self.open(entry)
    }

    fn open(&self, entry: Arc<Entry>) -> Result<Visit> {
        let visit = Visit { entry };
        // Check only after the entry is in the table: a `close` that runs at the same time finds it there.
        if self.closed.load(Ordering::SeqCst) { Err(Error::Closed) } else { Ok(visit) }
    }

    fn entered(self: &Arc<Self>, keys: &Arc<Keys>) -> Arc<Entry> {
        if let Some(entry) = self.locks.get(keys.id()) {
            entry.visitors.fetch_add(1, Ordering::Relaxed);
            return Arc::clone(&entry);
        }
        let made = || Arc::new(Entry::new(self, Arc::clone(keys)));
        let entry = self.locks.entry(ById(Arc::clone(keys))).or_insert_with(made);
        entry.visitors.fetch_add(1, Ordering::Relaxed);
        Arc::clone(&entry)
    }

    /// The entry of a plain lock. The result does not keep the shard of the table locked.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Entry>> {
        self.locks.get(id).map(|entry| Arc::clone(&entry))
    }

    /// The entry that waits or holds under this owner field, if that is the field of a plain lock or of the entry itself. Nearly
    /// every caller has such a one.
    pub(crate) fn find_waiting(&self, channel: &str, id: TenureId) -> Option<Arc<Entry>> {
        let is_it = |entry: &Arc<Entry>| entry.state().is_known_as(id);
        if let Some(entry) = self.plain_of(channel).find(is_it) {
            return Some(entry);
        }
        let siblings = self.others.get(channel)?;
        siblings.entries.get(&EntryKey::Alone(id)).filter(|entry| is_it(entry)).map(Arc::clone)
    }

    /// The entries that wait or hold under any of these owner fields. Callers that share an entry have several, and a caller whose
    /// request was not answered has another one than its entry. However many fields there are, this is one pass at most.
    pub(crate) fn find_all_waiting(
        &self,
        channel: &str,
        mut ids: BTreeSet<TenureId>,
    ) -> BTreeMap<TenureId, Arc<Entry>> {
        let mut found = BTreeMap::new();
        let Some(siblings) = self.others.get(channel) else { return found };
        #[cfg(test)]
        self.passes.fetch_add(1, Ordering::Relaxed);
        // Those that are shared come first.
        for entry in siblings.entries.values() {
            let known = entry.state().known_among(&ids);
            for id in known {
                ids.remove(&id);
                found.insert(id, Arc::clone(entry));
            }
            if ids.is_empty() {
                break;
            }
        }
        found
    }

    /// The caller of this entry has lined up right behind the caller with this owner field. See [`Behind`](crate::core::lock::Behind).
    pub(crate) fn stands_behind(&self, entry: &Entry, ahead: TenureId) {
        let Some(id) = entry.own_id() else { return };
        let Some(siblings) = self.others.get(entry.channel()) else { return };
        let ahead = siblings.entries.get(&EntryKey::Alone(ahead));
        ahead.into_iter().for_each(|ahead| ahead.state().behind.set(id));
    }

    /// The caller of this client that stands right behind in the line, if it still waits. It may be showing a sign of life: then
    /// it looks for the tenure when that is answered, which usually takes as long as a release would.
    pub(crate) fn one_behind(&self, entry: &Entry) -> Option<Visit> {
        let listed = entry.listed.as_ref()?;
        let id = entry.state().behind.get()?;
        let next =
            self.others.get(&*listed.channel)?.entries.get(&EntryKey::Alone(id)).map(Arc::clone)?;
        self.visit_again(&next).filter(|next| next.entry.state().is_still_behind())
    }

    /// The entries of the plain locks of a channel.
    pub(crate) fn plain_of(&self, channel: &str) -> impl Iterator<Item = Arc<Entry>> {
        ids_of(self.layout, channel).filter_map(|id| self.find(id))
    }

    /// All entries of a channel.
    pub(crate) fn all_of(&self, channel: &str) -> Vec<Arc<Entry>> {
        #[cfg(test)]
        self.passes.fetch_add(1, Ordering::Relaxed);
        let mut entries: Vec<_> = self.plain_of(channel).collect();
        if let Some(siblings) = self.others.get(channel) {
            entries.extend(siblings.entries.values().map(Arc::clone));
        }
        entries
    }

    /// The last tenure of each entry of a channel, and those inside side by side; some may have ended.
    pub(crate) fn tenures_of(&self, channel: &str) -> impl Iterator<Item = Arc<Tenure>> {
        self.all_of(channel).into_iter().flat_map(|entry| {
            let inside = entry.side_by_side(|shared| shared.all()).unwrap_or_default();
            entry.tenure().into_iter().chain(inside)
        })
    }

    /// Has all contenders of a channel ask: they may have missed something. If thousands of callers of a fair lock wait, they ask
    /// one after the other, in the order in which they came.
    pub(crate) fn rouse(&self, channel: &str) {
        self.plain_of(channel).for_each(|entry| entry.step(Event::Roused));
        let Some(mut siblings) = self.others.get_mut(channel) else { return };
        let Siblings { entries, turns, .. } = &mut *siblings;
        let now = Instant::now();
        turns.begin(now, entries.len());
        let roused = entries.values().filter(|entry| entry.takes_turn(now, turns));
        let roused: Vec<_> = roused.map(Arc::clone).collect();
        drop(siblings);
        roused.iter().for_each(|entry| entry.gate.open());
    }

    /// Passes an event to a contender that a message names. Whoever may publish can name thousands of them. So after the first few,
    /// they ask one after the other.
    pub(crate) fn name(&self, entry: &Entry, event: Event) {
        let siblings = entry.listed.as_ref().and_then(|at| self.others.get_mut(&*at.channel));
        let Some(mut siblings) = siblings else { return entry.step(event) };
        let Siblings { entries, turns, .. } = &mut *siblings;
        let now = Instant::now();
        turns.begin(now, entries.len());
        entry.is_named(now, event, turns);
        drop(siblings);
        entry.gate.open();
    }

    /// How many callers of this client came to the line before this one, if each of them waits separately.
    pub(super) fn waiting_ahead(&self, entry: &Entry) -> u32 {
        let Some(listed) = entry.listed.as_ref() else { return 0 };
        let siblings = self.others.get(&*listed.channel);
        let ahead = siblings.map_or(0, |siblings| siblings.entries.range(..listed.key).count());
        u32::try_from(ahead).unwrap_or(u32::MAX)
    }

    /// The entries of a channel that several callers share: only in these can tenures stay idle. Each caller that waits
    /// alone, and each hold that `try_acquire` or `try_read` has got, has another entry.
    pub(crate) fn shared_of(&self, channel: &str) -> Vec<Arc<Entry>> {
        let Some(siblings) = self.others.get(channel) else { return Vec::new() };
        // They come first.
        let is_shared = |(key, _): &(&EntryKey, _)| matches!(key, EntryKey::SideBySide(..));
        siblings.entries.iter().take_while(is_shared).map(|(_, entry)| Arc::clone(entry)).collect()
    }

    /// Rejects every waiter, now and from now on. Returns all entries: the caller has to give up their places in line.
    pub(crate) fn close(&self) -> Vec<Arc<Entry>> {
        self.closed.store(true, Ordering::SeqCst);
        let entries = self.sorted(|_| true);
        entries.iter().for_each(|entry| entry.close());
        entries
    }

    /// These entries, in a fixed order. The maps hash with random keys: without a fixed order, no simulation run could
    /// be repeated.
    fn sorted(&self, is_one: impl Fn(&Arc<Entry>) -> bool) -> Vec<Arc<Entry>> {
        let plain = self.locks.iter().map(|entry| Arc::clone(&entry));
        let mut entries: Vec<_> = plain.filter(&is_one).collect();
        for siblings in &self.others {
            entries.extend(siblings.entries.values().filter(|entry| is_one(entry)).cloned());
        }
        entries.sort_by(|a, b| a.order().cmp(&b.order()));
        entries
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.locks.len() + self.others.len()
    }

    /// What callers of this client ask or wait for.
    pub(crate) fn awaited(&self) -> Vec<Awaited> {
        let now = CompactInstant::now();
        let mut awaited = BTreeMap::new();
        // Callers that wait separately for one name have an entry each.
        for entry in self.sorted(|entry| entry.state().waiters().is_some()) {
            let Some((callers, first)) = entry.state().waiters() else { continue };
            let name = (entry.keys.name().into_owned(), entry.keys.kind.word());
            let (all, earliest) = awaited.entry(name).or_insert((0, first));
            (*all, *earliest) = (*all + callers, first.min(*earliest));
        }
        let seen = |((name, kind), (callers, first)): ((String, _), (_, CompactInstant))| Awaited {
            name,
            kind,
            callers,
            waiting_for: now.saturating_duration_since(first),
        };
        awaited.into_iter().map(seen).collect()
    }

    /// All entries of plain locks, in a fixed order.
    pub(crate) fn plain(&self) -> Vec<Arc<Entry>> {
        self.sorted(|entry| entry.keys.row.holders == Holders::Plain)
    }

    pub(super) fn leave(&self, entry: &Arc<Entry>) {
        // New visitors enter under the lock of the table's shard, so none can enter during this check.
        let unvisited = |there: &Arc<Entry>| {
            Arc::ptr_eq(there, entry) && there.visitors.load(Ordering::Acquire) == 0
        };
        let Some(listed) = &entry.listed else {
            self.locks.remove_if(entry.keys.id(), |_, there| unvisited(there));
            return;
        };
        let mut next = None;
        self.others.remove_if_mut(&*listed.channel, |_, siblings| {
            if siblings.entries.get(&listed.key).is_some_and(unvisited) {
                next = siblings.stop_speaking(listed.key);
                siblings.entries.remove(&listed.key);
            }
            siblings.entries.is_empty()
        });
        wake(next);
    }

    /// Whether this contender has to ask from time to time for all contenders of this client that are far from the
    /// front of the same line, so that a lost message is discovered.
    pub(super) fn is_speaker(&self, entry: &Entry) -> bool {
        let Some(listed) = &entry.listed else { return true };
        let is_far = entry.with(|lock| lock.is_far());
        let Some(mut siblings) = self.others.get_mut(&*listed.channel) else { return true };
        if is_far {
            return *siblings.speaker.get_or_insert(listed.key) == listed.key;
        }
        let next = siblings.stop_speaking(listed.key);
        drop(siblings);
        wake(next);
        true
    }

    /// If this contender was the speaker of its line, another one speaks from now on.
    pub(super) fn stop_speaking(&self, entry: &Entry) {
        let Some(listed) = &entry.listed else { return };
        // The next contender of this entry may speak by now.
        let siblings =
            self.others.get_mut(&*listed.channel).filter(|_| !entry.with(|lock| lock.is_far()));
        wake(siblings.and_then(|mut siblings| siblings.stop_speaking(listed.key)));
    }

    /// Wakes the caller that came next to the line of this one.
    pub(crate) fn wake_next(&self, entry: &Entry) {
        let Some(listed) = &entry.listed else { return };
        let next = self.others.get(&*listed.channel).and_then(|siblings| {
            let mut behind =
                siblings.entries.range((Bound::Excluded(listed.key), Bound::Unbounded));
            let next = behind.find(|(_, entry)| entry.with(|lock| lock.was_told_to_wait()));
            next.map(|(_, entry)| Arc::clone(entry))
        });
        wake(next);
    }

    /// Same as [`stop_speaking`](Self::stop_speaking), for a contender that is not polled. Others may be on the same runtime,
    /// which does not run. All of them are woken at once, so that together they cost one `pickup_timeout`, and not one each.
    pub(crate) fn passes_over(&self, silent: &Entry) {
        let Some(listed) = &silent.listed else { return };
        let Some(mut siblings) = self.others.get_mut(&*listed.channel) else { return };
        if siblings.stop_speaking(listed.key).is_none() {
            return;
        }
        let far = siblings.entries.values().filter(|entry| entry.can_speak());
        let far: Vec<_> = far.map(Arc::clone).collect();
        drop(siblings);
        far.iter().for_each(|entry| entry.gate.open());
    }
}

/// The key of an entry within its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EntryKey {
    /// The entry of a kind: for the name with or without its own braces, and for this many permits.
    SideBySide(Kind, bool, u32),
    /// The entry of one caller alone.
    Alone(TenureId),
}

/// A lock as the table finds it: by its id.
struct ById(Arc<Keys>);

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        self.0.id()
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id().hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for ById {}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::Ordering::SeqCst;
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use super::*;
    use crate::config::Layout;
    use crate::core::waiting::{Event, Next, Waiting};

    fn keys(layout: Layout, kind: Kind) -> Arc<Keys> {
        Arc::new(Keys::new(layout, kind, "a".to_owned()).unwrap())
    }

    fn visit(table: &Arc<Table>) -> Visit {
        table.visit(&keys(Layout::Native, Kind::Lock), 1).unwrap()
    }

    #[test]
    fn an_entry_leaves_with_its_last_visitor() {
        let table = Arc::new(Table::default());
        let first = visit(&table);
        let second = visit(&table);
        let third = second.clone();
        assert!(Arc::ptr_eq(&first.entry, &second.entry));
        drop((first, second));
        assert_eq!(table.len(), 1);
        drop(third);
        assert_eq!(table.len(), 0);
    }

    /// The place where `Engine::held_by` looks for the hold of an owner.
    #[test]
    fn exactly_the_plain_locks_are_found_by_their_name() {
        for layout in [Layout::Native, Layout::Redisson] {
            for kind in [Kind::Lock, Kind::Fenced, Kind::Fair, Kind::Read, Kind::Latch] {
                let table = Arc::new(Table::default());
                let keys = keys(layout, kind);
                let visit = table.visit(&keys, 1).unwrap();
                let found = table.find(keys.id()).is_some_and(|e| Arc::ptr_eq(&e, &visit.entry));
                assert_eq!(found, keys.row.holders == Holders::Plain, "{kind:?} in {layout:?}");
            }
        }
    }

    const PARK: Duration = Duration::from_secs(10);

    impl Default for Table {
        /// A table of a client that gives nothing back.
        fn default() -> Self {
            Self::new(&Config::default().max_park(PARK), |_| {})
        }
    }

    fn waits(near: bool) -> Event {
        Event::Waits { place: 1, near, sent: Instant::now(), again: None }
    }

    /// Contenders for a fair lock. The server has told each of them that it is far from the front.
    fn far_contenders<const N: usize>() -> [Visit; N] {
        let table = Arc::new(Table::default());
        let keys = keys(Layout::Native, Kind::Fair);
        std::array::from_fn(|number| {
            let id = TenureId(u64::try_from(number).unwrap());
            let visit = table.enter_alone(&keys, keys.channel.clone(), id).unwrap();
            visit.entry.state().waiting = Some(Box::new(Waiting::new(id, Instant::now())));
            visit.entry.step(Event::Asked);
            visit.entry.step(waits(false));
            visit.entry.gate.was_opened();
            visit
        })
    }

    /// Whether it asks by itself when no message comes.
    fn speaks(visit: &Visit) -> bool {
        match visit.next(true, PARK) {
            Next::Park(until) => until <= Instant::now() + PARK,
            _ => true,
        }
    }

    /// The contender has the lock.
    fn granted(visit: &Visit, id: TenureId) {
        assert!(visit.entry.state().waiting.take_if(|waiting| waiting.id() == id).is_some());
        visit.stop_speaking();
    }

    #[test]
    fn when_the_wait_of_the_speaker_is_over_another_far_contender_speaks() {
        let [first, second] = far_contenders();
        assert!(speaks(&first));
        assert!(!speaks(&second));
        // It has the lock. So its entry stays in the table as long as its guard lives.
        granted(&first, TenureId(0));
        assert!(second.entry.gate.was_opened(), "it is woken");
        assert!(speaks(&second));
    }

    #[test]
    fn a_speaker_that_hears_that_it_is_near_passes_its_role_on() {
        let [first, second, third] = far_contenders();
        assert!(speaks(&first));
        assert!(!speaks(&third));
        second.entry.step(Event::Asked);
        granted(&first, TenureId(0));
        second.entry.step(waits(true));
        assert!(speaks(&second), "it is near, and asks for itself");
        assert!(third.entry.gate.was_opened(), "it is woken");
        assert!(speaks(&third));
    }

    #[test]
    fn a_caller_that_goes_on_under_another_owner_field_stands_behind_nobody() {
        let [first, second, third] = far_contenders();
        let table = Arc::clone(&first.entry.table);
        let is_behind = |one: &Visit, other: &Visit| {
            let behind = table.one_behind(&one.entry);
            behind.is_some_and(|behind| Arc::ptr_eq(&behind.entry, &other.entry))
        };
        table.stands_behind(&second.entry, TenureId(0));
        table.stands_behind(&third.entry, TenureId(1));
        assert!(is_behind(&first, &second) && is_behind(&second, &third));
        second.entry.step(Event::Asked);
        second.entry.state().stop_asking(Instant::now(), || TenureId(7));
        assert!(table.one_behind(&first.entry).is_none());
        assert!(table.one_behind(&second.entry).is_none(), "and nobody stands behind it");
    }

    #[test]
    fn each_far_contender_speaks_in_turn() {
        let [first, second, third] = far_contenders();
        assert!(speaks(&first));
        let stops = |visit: &Visit| visit.entry.table.passes_over(&visit.entry);
        stops(&first);
        assert!(speaks(&second));
        stops(&second);
        assert!(speaks(&third), "not the first one again");
        stops(&third);
        assert!(speaks(&first));
    }

    /// A waker that looks whether the table is locked. Some wakers poll their task at once, or drop it, and that calls the table.
    struct Looks {
        table: Arc<Table>,
        found_locked: AtomicBool,
        woken: AtomicBool,
    }

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            let channel = &*keys(Layout::Native, Kind::Fair).channel;
            self.found_locked.fetch_or(self.table.others.try_get(channel).is_locked(), SeqCst);
            self.woken.store(true, SeqCst);
        }
    }

    #[tokio::test]
    async fn the_next_speaker_is_woken_when_the_table_is_not_locked() {
        let comes_near = |visit: Visit| {
            visit.entry.step(waits(true));
            visit.next(true, PARK);
        };
        for ends in [|visit: Visit| granted(&visit, TenureId(0)), comes_near, drop] {
            let [first, second] = far_contenders();
            assert!(speaks(&first) && !speaks(&second));
            let table = Arc::clone(&first.entry.table);
            let [found_locked, woken] = [(); 2].map(|()| AtomicBool::new(false));
            let looks = Arc::new(Looks { table, found_locked, woken });
            let waker = Waker::from(Arc::clone(&looks));
            let mut parked = pin!(second.entry.gate.pass(Instant::now() + PARK));
            assert!(parked.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            ends(first);
            assert!(looks.woken.load(SeqCst) && !looks.found_locked.load(SeqCst));
        }
    }

    #[tokio::test]
    async fn a_closed_table_sends_waiters_away_and_takes_no_more() {
        let table = Arc::new(Table::default());
        let permit = visit(&table).try_permit().unwrap();
        let queued = visit(&table);
        let waiter = tokio::spawn(async move { queued.wait().await.map(drop) });
        table.close();
        assert!(matches!(waiter.await.unwrap(), Err(Error::Closed)));
        assert!(permit.entry().gate.pass(Instant::now() + PARK).await.is_err());
        assert!(table.visit(&keys(Layout::Native, Kind::Lock), 1).is_err());
        drop(permit);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn holds_that_were_tried_for_are_not_looked_at() {
        let table = Arc::new(Table::default());
        let keys = keys(Layout::Native, Kind::Semaphore { permits: 3 });
        let _waits = table.visit(&keys, 1).unwrap();
        let alone = |id| table.enter_alone(&keys, keys.channel.clone(), TenureId(id)).unwrap();
        let _held: Vec<_> = (0..10).map(alone).collect();
        assert_eq!(table.all_of(&keys.channel).len(), 11);
        assert_eq!(table.shared_of(&keys.channel).len(), 1);
    }
}
