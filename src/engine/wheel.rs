//! A hashed timing wheel: what is due when, in no time at all.
//!
//! One ring of slots, each a list of the items due at a tick that falls into it; an item more than
//! a revolution away is passed over until its tick comes. Entering and leaving take constant time.
//! The wheel never asks what time it is. After Varghese and Lauck, *Hashed and Hierarchical Timing
//! Wheels* (1987), scheme 6.

/// Slots in the ring: at 8 ms a tick, a revolution takes eight seconds.
const SLOTS: usize = 1024;

/// Where an item stands in the wheel. Used once: leaving with it makes it void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    index: usize,
    /// Tells the items apart that have stood at this index one after the other.
    entry: u64,
}

#[derive(Debug)]
struct Node<T> {
    item: T,
    due: u64,
    entry: u64,
    /// Where this node's index stands in its slot's list.
    position: usize,
}

#[derive(Debug)]
pub(crate) struct Wheel<T> {
    slots: Vec<Vec<usize>>,
    nodes: Vec<Option<Node<T>>>,
    vacant: Vec<usize>,
    /// All ticks up to this one have been handed out.
    now: u64,
    entries: u64,
}

impl<T> Wheel<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            nodes: Vec::new(),
            vacant: Vec::new(),
            now: 0,
            entries: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.vacant.len()
    }

    /// Enters an item for a tick; for one that has passed, the next tick.
    pub(crate) fn enter(&mut self, due: u64, item: T) -> Place {
        let due = due.max(self.now + 1);
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() - 1
        });
        self.entries += 1;
        let slot = &mut self.slots[slot(due)];
        let position = slot.len();
        slot.push(index);
        self.nodes[index] = Some(Node { item, due, entry: self.entries, position });
        Place { index, entry: self.entries }
    }

    /// Takes an item out before it is due; `None` if it has left already.
    pub(crate) fn leave(&mut self, place: Place) -> Option<T> {
        let node = self.nodes.get(place.index)?.as_ref()?;
        if node.entry != place.entry {
            return None;
        }
        let (due, position) = (node.due, node.position);
        self.unlink(slot(due), position);
        self.vacate(place.index)
    }

    /// Hands out all that is due up to this tick.
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
        (self.len() > 0).then(|| {
            let ticks = self.now + 1..=self.now + SLOTS as u64;
            ticks
                .into_iter()
                .find(|tick| !self.slots[slot(*tick)].is_empty())
                .unwrap_or(self.now + 1)
        })
    }

    /// Hands out everything.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.slots.iter_mut().for_each(Vec::clear);
        self.vacant.clear();
        self.nodes.drain(..).flatten().map(|node| node.item).collect()
    }

    fn visit(&mut self, slot: usize, now: u64, due: &mut Vec<T>) {
        let mut position = 0;
        while let Some(&index) = self.slots[slot].get(position) {
            if self.nodes[index].as_ref().is_some_and(|node| node.due <= now) {
                self.unlink(slot, position);
                due.extend(self.vacate(index));
            } else {
                position += 1;
            }
        }
    }

    /// Takes an index out of its slot's list. The last one of the list fills the gap.
    fn unlink(&mut self, slot: usize, position: usize) {
        self.slots[slot].swap_remove(position);
        if let Some(&moved) = self.slots[slot].get(position)
            && let Some(node) = &mut self.nodes[moved]
        {
            node.position = position;
        }
    }

    fn vacate(&mut self, index: usize) -> Option<T> {
        self.vacant.push(index);
        self.nodes[index].take().map(|node| node.item)
    }
}

fn slot(tick: u64) -> usize {
    // The remainder is below SLOTS.
    (tick % SLOTS as u64) as usize
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
    fn what_is_overdue_is_handed_out_at_the_next_tick() {
        let mut wheel = Wheel::new();
        wheel.advance(100);
        wheel.enter(3, "late");
        assert_eq!(wheel.advance(101), ["late"]);
    }

    #[test]
    fn an_item_more_than_a_revolution_away_is_passed_over() {
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
                    // Sometimes the wheel is not turned for more than a revolution.
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
