//! The alarms of the lookout: when to look at contenders that sleep, in case their own timers do not run. An entry has one
//! alarm at most. An alarm stays if its contender is woken: a look that comes too early sets the next one.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use crate::compact_instant::CompactInstant;
use crate::core::lock::Alarm;
use crate::engine::entry::Entry;

/// Alarms for so many entries may lie here after the entries have gone.
const FEW: usize = 64;

/// When to look at which entry.
pub(crate) struct Alarms {
    /// The number distinguishes alarms for the same time.
    all: BTreeMap<(CompactInstant, u64), Weak<Entry>>,
    set: u64,
    /// With more alarms than this, those of entries that have gone are dropped.
    most: usize,
}

impl Default for Alarms {
    fn default() -> Self {
        Self { all: BTreeMap::new(), set: 0, most: FEW }
    }
}

impl Alarms {
    /// Sets an alarm, unless the entry has an earlier one.
    pub(crate) fn set(&mut self, at: Instant, alarm: &mut Alarm, entry: &Arc<Entry>) {
        let at = CompactInstant::from(at);
        if let Some(before) = alarm {
            if before.0 <= at {
                return;
            }
            self.all.remove(before);
        }
        self.set += 1;
        *alarm = Some((at, self.set));
        self.all.insert((at, self.set), Arc::downgrade(entry));
        if self.all.len() > self.most {
            self.all.retain(|_, entry| entry.strong_count() > 0);
            self.most = FEW.max(self.all.len() * 2);
        }
    }

    /// When the next one rings.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.all.first_key_value().map(|((at, _), _)| at.instant())
    }

    /// The entries whose alarms ring now.
    pub(crate) fn ring(&mut self, now: Instant) -> Vec<Arc<Entry>> {
        let later = self.all.split_off(&(now.into(), u64::MAX));
        let ring = std::mem::replace(&mut self.all, later);
        ring.values().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_entry_keeps_its_earliest_alarm_until_it_rings() {
        let (mut alarms, mut alarm, entry) =
            (Alarms::default(), Alarm::default(), Entry::unlisted());
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let (soon, late) = (at(1), at(9));
        alarms.set(soon, &mut alarm, &entry);
        alarms.set(late, &mut alarm, &entry);
        assert_eq!(alarms.next(), Some(soon));
        assert!(alarms.ring(Instant::now()).is_empty());
        assert_eq!(alarms.ring(soon).len(), 1);
        assert_eq!(alarms.next(), None, "the later one was not set");
        alarm = None;
        alarms.set(late, &mut alarm, &entry);
        alarms.set(soon, &mut alarm, &entry);
        assert_eq!(alarms.next(), Some(soon), "an earlier one rings first");
        assert_eq!(alarms.all.len(), 1, "and takes the place of the later one");
    }

    #[test]
    fn alarms_of_entries_that_have_gone_do_not_pile_up() {
        let (mut alarms, now) = (Alarms::default(), Instant::now());
        let stays = Entry::unlisted();
        alarms.set(now, &mut Alarm::default(), &stays);
        for _ in 0..1_000 {
            alarms.set(now, &mut Alarm::default(), &Entry::unlisted());
            assert!(alarms.all.len() <= FEW + 1);
        }
        assert_eq!(alarms.ring(now).len(), 1);
    }
}
