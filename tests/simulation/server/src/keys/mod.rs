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

#[derive(Clone, Debug)]
struct Slot {
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
pub(crate) struct Database(BTreeMap<Vec<u8>, Slot>);

impl Database {
    fn slot(&self, key: &[u8], now: i64) -> Option<&Slot> {
        self.0.get(key).filter(|slot| !slot.is_over(now))
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
        let slot = self.0.get_mut(key).filter(|slot| !slot.is_over(now));
        slot.map(|slot| K::of_mut(&mut slot.value).ok_or_else(refusal::wrong_type)).transpose()
    }

    /// The value, or a new one without a TTL.
    pub(crate) fn get_or_create<K: Kind>(&mut self, key: &[u8], now: i64) -> Result<&mut K, Reply> {
        if self.slot(key, now).is_none() {
            self.0.insert(key.to_vec(), Slot { value: K::default().wrap(), ends: None });
        }
        self.get_mut(key, now)?.ok_or_else(refusal::wrong_type)
    }

    pub(crate) fn drop_if_empty(&mut self, key: &[u8]) {
        if self.0.get(key).is_some_and(|slot| slot.value.is_empty()) {
            self.0.remove(key);
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: Value, ends: Option<i64>) {
        match self.0.get_mut(key) {
            Some(slot) => *slot = Slot { value, ends },
            None => drop(self.0.insert(key.to_vec(), Slot { value, ends })),
        }
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, key: &[u8], now: i64) -> bool {
        self.0.remove(key).is_some_and(|slot| !slot.is_over(now))
    }

    /// When the key ends, if it is there: `Some(None)` if it does not.
    pub(crate) fn ends(&self, key: &[u8], now: i64) -> Option<Option<i64>> {
        self.slot(key, now).map(|slot| slot.ends)
    }

    /// The key is there.
    pub(crate) fn set_end(&mut self, key: &[u8], ends: Option<i64>) {
        if let Some(slot) = self.0.get_mut(key) {
            slot.ends = ends;
        }
    }

    /// Keys in the order of their bytes.
    pub(crate) fn iter(&self, now: i64) -> impl Iterator<Item = (&[u8], &Value, Option<i64>)> {
        let there = self.0.iter().filter(move |(_, slot)| !slot.is_over(now));
        there.map(|(key, slot)| (&**key, &slot.value, slot.ends))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
