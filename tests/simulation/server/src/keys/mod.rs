//! The key space: values of four types, each with the time at which it ends.

mod hash;
mod zset;

use std::collections::{BTreeMap, VecDeque};

pub(crate) use hash::Hash;
pub(crate) use zset::Zset;

use crate::reply::{Reply, refusal};

/// How many databases a server has.
pub(crate) const DATABASES: usize = 16;

/// What a key holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(Vec<u8>),
    Hash(Hash),
    List(VecDeque<Vec<u8>>),
    Zset(Zset),
}

impl Value {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Zset(_) => "zset",
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(hash) => hash.len() == 0,
            Self::List(list) => list.is_empty(),
            Self::Zset(zset) => zset.len() == 0,
        }
    }
}

/// A type that a command works on.
pub(crate) trait Kind: Default {
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    fn wrap(self) -> Value;
}

macro_rules! kinds {
    ($($variant:ident = $kind:ty,)*) => {
        $(impl Kind for $kind {
            fn of(value: &Value) -> Option<&Self> {
                if let Value::$variant(value) = value { Some(value) } else { None }
            }

            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant(value) = value { Some(value) } else { None }
            }

            fn wrap(self) -> Value {
                Value::$variant(self)
            }
        })*
    };
}

kinds! {
    Text = Vec<u8>,
    Hash = Hash,
    List = VecDeque<Vec<u8>>,
    Zset = Zset,
}

/// A key's value and its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slot {
    value: Value,
    /// In ms of the server's clock.
    ends: Option<i64>,
}

impl Slot {
    // At its very millisecond, a key is there still, with a TTL of 0.
    fn is_over(&self, now: i64) -> bool {
        self.ends.is_some_and(|ends| ends < now)
    }
}

/// One database. Each method takes the time in ms; keys that have expired by then do not exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Database {
    slots: BTreeMap<Vec<u8>, Slot>,
    /// What its replicas have not been told yet, if it has replicas.
    log: Option<Log>,
}

/// What a request has touched.
#[derive(Clone, Debug, Default)]
struct Log {
    /// The keys, and what they were before.
    before: BTreeMap<Vec<u8>, Option<Slot>>,
    /// Something was written, and be it what was there already: replicas hear of that too.
    wrote: bool,
}

/// A key on its way to another node, with its value and its end.
#[derive(Clone, Debug)]
pub struct Parcel {
    key: Vec<u8>,
    slot: Slot,
}

/// What became of a key.
pub(crate) type Change = (Vec<u8>, Option<Slot>);

impl Database {
    /// Takes note of all changes from now on, or of none.
    pub(crate) fn record(&mut self, on: bool) {
        self.log = on.then(Log::default);
    }

    /// What has changed since the last call; nothing if nothing was written.
    pub(crate) fn changes(&mut self) -> Option<Vec<Change>> {
        let log = self.log.as_mut().filter(|log| log.wrote || !log.before.is_empty())?;
        let Log { before, wrote } = std::mem::take(log);
        let now = |key: Vec<u8>, before: Option<Slot>| {
            let now = self.slots.get(&key).cloned();
            (now != before).then_some((key, now))
        };
        let changes: Vec<Change> =
            before.into_iter().filter_map(|(key, before)| now(key, before)).collect();
        (wrote || !changes.is_empty()).then_some(changes)
    }

    /// Puts these in the place of what was there.
    pub(crate) fn apply(&mut self, changes: &[Change]) {
        for (key, slot) in changes {
            self.touch(key, true);
            match slot {
                Some(slot) => drop(self.slots.insert(key.clone(), slot.clone())),
                None => drop(self.slots.remove(key)),
            }
        }
    }

    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Parcel> {
        self.touch(key, true);
        self.slots.remove(key).map(|slot| Parcel { key: key.to_vec(), slot })
    }

    pub(crate) fn give(&mut self, parcel: Parcel) {
        self.touch(&parcel.key, true);
        self.slots.insert(parcel.key, parcel.slot);
    }

    /// Before a key may be changed; `writes`: replicas hear of it in any case.
    fn touch(&mut self, key: &[u8], writes: bool) {
        let Some(log) = &mut self.log else { return };
        log.wrote |= writes;
        if !log.before.contains_key(key) {
            log.before.insert(key.to_vec(), self.slots.get(key).cloned());
        }
    }

    /// Something was written that may have been there already.
    pub(crate) fn wrote(&mut self) {
        if let Some(log) = &mut self.log {
            log.wrote = true;
        }
    }

    fn slot(&self, key: &[u8], now: i64) -> Option<&Slot> {
        self.slots.get(key).filter(|slot| !slot.is_over(now))
    }

    pub(crate) fn any(&self, key: &[u8], now: i64) -> Option<&Value> {
        self.slot(key, now).map(|slot| &slot.value)
    }

    /// The value, if there is one; an error if it is of another type.
    pub(crate) fn get<K: Kind>(&self, key: &[u8], now: i64) -> Result<Option<&K>, Reply> {
        self.any(key, now).map(|value| K::of(value).ok_or_else(refusal::wrong_type)).transpose()
    }

    /// The value, to be changed in place. A caller that may have emptied it calls
    /// [`drop_if_empty`](Self::drop_if_empty).
    pub(crate) fn get_mut<K: Kind>(
        &mut self,
        key: &[u8],
        now: i64,
    ) -> Result<Option<&mut K>, Reply> {
        self.touch(key, false);
        let slot = self.slots.get_mut(key).filter(|slot| !slot.is_over(now));
        slot.map(|slot| K::of_mut(&mut slot.value).ok_or_else(refusal::wrong_type)).transpose()
    }

    /// The value, or a new one without a TTL.
    pub(crate) fn get_or_create<K: Kind>(&mut self, key: &[u8], now: i64) -> Result<&mut K, Reply> {
        if self.slot(key, now).is_none() {
            self.touch(key, false);
            self.slots.insert(key.to_vec(), Slot { value: K::default().wrap(), ends: None });
        }
        self.get_mut(key, now)?.ok_or_else(refusal::wrong_type)
    }

    pub(crate) fn drop_if_empty(&mut self, key: &[u8]) {
        if self.slots.get(key).is_some_and(|slot| slot.value.is_empty()) {
            self.touch(key, false);
            self.slots.remove(key);
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: Value, ends: Option<i64>) {
        self.touch(key, true);
        match self.slots.get_mut(key) {
            Some(slot) => *slot = Slot { value, ends },
            None => drop(self.slots.insert(key.to_vec(), Slot { value, ends })),
        }
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, key: &[u8], now: i64) -> bool {
        self.touch(key, false);
        self.slots.remove(key).is_some_and(|slot| !slot.is_over(now))
    }

    /// When the key ends, if it is there: `Some(None)` if it does not.
    pub(crate) fn ends(&self, key: &[u8], now: i64) -> Option<Option<i64>> {
        self.slot(key, now).map(|slot| slot.ends)
    }

    /// The key is there.
    pub(crate) fn set_end(&mut self, key: &[u8], ends: Option<i64>) {
        self.touch(key, true);
        if let Some(slot) = self.slots.get_mut(key) {
            slot.ends = ends;
        }
    }

    /// Keys in the order of their bytes.
    pub(crate) fn iter(&self, now: i64) -> impl Iterator<Item = (&[u8], &Value, Option<i64>)> {
        let there = self.slots.iter().filter(move |(_, slot)| !slot.is_over(now));
        there.map(|(key, slot)| (&**key, &slot.value, slot.ends))
    }

    pub(crate) fn clear(&mut self) {
        let all: Vec<_> = self.slots.keys().cloned().collect();
        all.iter().for_each(|key| self.touch(key, true));
        self.slots.clear();
    }
}
