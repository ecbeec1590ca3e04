//! A hashed timing wheel: items with a time at which each is due.
//!
//! A ring of 1,024 slots. An item that is due at tick t is in the list of slot t mod 1,024. If it is due in a later
//! revolution, it stays there when the wheel passes. Entering and leaving take constant time. The wheel reads no clock.
//! `timetable.rs` puts the tenures into it.
//! After Varghese and Lauck, *Hashed and Hierarchical Timing Wheels* (1987), scheme 6.

use std::num::NonZeroU32;

/// Slots in the ring: at 8 ms a tick, a revolution takes eight seconds.
const SLOTS: usize = 1024;

/// The place of an item in the wheel. It becomes invalid once the item has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerSlot {
    index: u32,
    /// Distinguishes the items that have stood at this index one after the other.
    entry: NonZeroU32,
}

#[derive(Debug)]
struct Node<T> {
    item: Option<T>,
    due: u64,
    /// The number of the item that stands here, or of the next one.
    entry: NonZeroU32,
    /// Its neighbours in the list of the slot. For a vacant node, the next vacant one.
    before: u32,
    after: u32,
}

/// No neighbour.
const NONE: u32 = u32::MAX;

/// The wheel. It allocates only when it holds more items than ever before: the lists run through the nodes.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    /// The first node of each slot.
    slots: Vec<u32>,
    nodes: Vec<Node<T>>,
    /// The first vacant node.
    vacant: u32,
    len: usize,
    /// All ticks up to this one were handed out.
    now: u64,
}

impl<T> Wheel<T> {
    pub(crate) fn new() -> Self {
        Self { slots: vec![NONE; SLOTS], nodes: Vec::new(), vacant: NONE, len: 0, now: 0 }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }

    /// All items, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().filter_map(|node| node.item.as_ref())
    }

    /// Enters an item for a tick, or for the next tick if that one has passed.
    pub(crate) fn enter(&mut self, due: u64, item: T) -> TimerSlot {
        let due = due.max(self.now + 1);
        let index = self.occupy();
        let first = std::mem::replace(&mut self.slots[slot(due)], index);
        let node = &mut self.nodes[wide(index)];
        (node.item, node.due) = (Some(item), due);
        (node.before, node.after) = (NONE, first);
        let entry = node.entry;
        if let Some(second) = self.nodes.get_mut(wide(first)) {
            second.before = index;
        }
        self.len += 1;
        TimerSlot { index, entry }
    }

    /// Takes an item out before it is due. Returns `None` if it has left already.
    pub(crate) fn leave(&mut self, slot: TimerSlot) -> Option<T> {
        let node = self.nodes.get(wide(slot.index))?;
        if node.entry == slot.entry { self.take(slot.index) } else { None }
    }

    /// The tick for which an item was entered. Returns `None` if it has left.
    pub(crate) fn due(&self, slot: TimerSlot) -> Option<u64> {
        let node = self.nodes.get(wide(slot.index))?;
        (node.entry == slot.entry && node.item.is_some()).then_some(node.due)
    }

    /// Hands out all items that are due up to this tick.
    pub(crate) fn advance(&mut self, now: u64) -> Vec<T> {
        let mut due = Vec::new();
        // After a revolution every slot has been visited.
        let first = (self.now + 1).max(now.saturating_sub(SLOTS as u64 - 1));
        for tick in first..=now {
            self.visit(slot(tick), now, &mut due);
        }
        self.now = self.now.max(now);
        due
    }

    /// The next tick at which something may be due.
    pub(crate) fn next(&self) -> Option<u64> {
        (self.len > 0).then(|| {
            let mut ticks = self.now + 1..=self.now + SLOTS as u64;
            ticks.find(|tick| self.slots[slot(*tick)] != NONE).unwrap_or(self.now + 1)
        })
    }

    /// Hands out all items.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let (nodes, now) = (std::mem::take(&mut self.nodes), self.now);
        *self = Self { now, ..Self::new() };
        nodes.into_iter().filter_map(|node| node.item).collect()
    }

    fn visit(&mut self, slot: usize, now: u64, due: &mut Vec<T>) {
        let mut index = self.slots[slot];
        while let Some(node) = self.nodes.get(wide(index)) {
            let after = node.after;
            if node.due <= now {
                due.extend(self.take(index));
            }
            index = after;
        }
    }

    /// A node for one more item.
    fn occupy(&mut self) -> u32 {
        let index = self.vacant;
        if let Some(node) = self.nodes.get(wide(index)) {
            self.vacant = node.after;
            return index;
        }
        let (item, due, before, after) = (None, 0, NONE, NONE);
        self.nodes.push(Node { item, due, entry: NonZeroU32::MIN, before, after });
        u32::try_from(self.nodes.len() - 1).expect("fewer than four billion tenures")
    }

    /// Takes the item of a node out of the list of its slot.
    fn take(&mut self, index: u32) -> Option<T> {
        let node = &mut self.nodes[wide(index)];
        let item = node.item.take()?;
        // The number wraps around after four billion items: no tenure keeps a slot that long.
        node.entry = node.entry.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let (due, before) = (node.due, node.before);
        let after = std::mem::replace(&mut node.after, self.vacant);
        self.vacant = index;
        self.len -= 1;
        match self.nodes.get_mut(wide(before)) {
            Some(neighbour) => neighbour.after = after,
            None => self.slots[slot(due)] = after,
        }
        if let Some(neighbour) = self.nodes.get_mut(wide(after)) {
            neighbour.before = before;
        }
        Some(item)
    }
}

fn slot(tick: u64) -> usize {
    // The remainder is below SLOTS.
    (tick % SLOTS as u64) as usize
}

fn wide(index: u32) -> usize {
    index as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn an_item_is_handed_out_at_its_tick_and_not_before() {
        let mut wheel = Wheel::new();
        wheel.enter(5, "five");
        assert_eq!(wheel.next(), Some(5));
        assert!(wheel.advance(4).is_empty());
        assert_eq!(wheel.advance(5), ["five"]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn an_overdue_item_is_handed_out_at_the_next_tick() {
        let mut wheel = Wheel::new();
        wheel.advance(100);
        wheel.enter(3, "late");
        assert_eq!(wheel.advance(101), ["late"]);
    }

    #[test]
    fn an_item_more_than_a_revolution_away_is_skipped() {
        let mut wheel = Wheel::new();
        let far = 3 * SLOTS as u64 + 7;
        wheel.enter(far, "far");
        for tick in 1..far {
            assert!(wheel.advance(tick).is_empty(), "tick {tick}");
        }
        assert_eq!(wheel.advance(far), ["far"]);
    }

    #[test]
    fn a_place_is_void_once_left_even_if_another_stands_there() {
        let mut wheel = Wheel::new();
        let first = wheel.enter(5, "first");
        assert_eq!(wheel.leave(first), Some("first"));
        let second = wheel.enter(5, "second");
        assert_eq!(first.index, second.index);
        assert_eq!(wheel.leave(first), None);
        assert_eq!(wheel.advance(5), ["second"]);
        assert_eq!(wheel.leave(second), None);
    }

    #[test]
    fn a_wheel_does_what_a_sorted_map_does() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut wheel, mut sorted) = (Wheel::new(), BTreeMap::new());
        let mut places = Vec::new();
        let (mut now, mut id) = (0_u64, 0_u64);
        for _ in 0..20_000 {
            match random.u8(0..10) {
                0..5 => {
                    let due = now + random.u64(0..3000);
                    places.push((wheel.enter(due, id), due.max(now + 1), id));
                    sorted.insert((due.max(now + 1), id), ());
                    id += 1;
                }
                5..7 if !places.is_empty() => {
                    let (place, due, id) = places.swap_remove(random.usize(0..places.len()));
                    assert_eq!(wheel.leave(place).is_some(), sorted.remove(&(due, id)).is_some());
                }
                _ => {
                    // Sometimes the wheel is not advanced for more than a revolution.
                    let most = if random.u8(..) == 0 { 5000 } else { 30 };
                    now += random.u64(0..most);
                    let mut due = wheel.advance(now);
                    due.sort_unstable();
                    let later = sorted.split_off(&(now + 1, 0));
                    let mut expected: Vec<_> = sorted.into_keys().map(|(_, id)| id).collect();
                    expected.sort_unstable();
                    assert_eq!(due, expected, "at {now}");
                    sorted = later;
                }
            }
            assert_eq!(wheel.len(), sorted.len());
            let first = sorted.keys().next().map(|(due, _)| *due);
            assert!(wheel.next() <= first.or(wheel.next()));
            assert_eq!(wheel.next().is_some(), first.is_some());
        }
        let rest = wheel.drain();
        assert_eq!(rest.len(), sorted.len());
    }
}
