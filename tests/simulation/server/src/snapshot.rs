//! The key space, to be kept or looked at.

use crate::keys::{Database, Hash, Value, Zset};

/// A copy of all keys at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) keys: Vec<Database>,
    pub(crate) offset: u64,
}

impl Snapshot {
    /// How much had been written by then.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// A key, as the judge sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The number of its database.
    pub database: usize,
    /// Its name.
    pub key: Vec<u8>,
    /// What it holds.
    pub content: Content,
    /// How long it lives, in ms; -1 if it does not end.
    pub pttl: i64,
}

/// What a key holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A string.
    Text(Vec<u8>),
    /// Fields and values, in the order in which they came.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// A list.
    List(Vec<Vec<u8>>),
    /// Members with their scores, in order.
    Zset(Vec<(Vec<u8>, f64)>),
}

impl From<&Value> for Content {
    fn from(value: &Value) -> Self {
        match value {
            Value::Text(text) => Self::Text(text.clone()),
            Value::Hash(hash) => Self::Hash(
                hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect(),
            ),
            Value::List(list) => Self::List(list.iter().cloned().collect()),
            Value::Zset(zset) => Self::Zset(zset.members().to_vec()),
        }
    }
}

impl From<&Content> for Value {
    fn from(content: &Content) -> Self {
        match content {
            Content::Text(text) => Self::Text(text.clone()),
            Content::Hash(pairs) => {
                let mut hash = Hash::default();
                for (field, value) in pairs {
                    hash.set(field, value);
                }
                Self::Hash(hash)
            }
            Content::List(items) => Self::List(items.iter().cloned().collect()),
            Content::Zset(members) => {
                let mut zset = Zset::default();
                members.iter().for_each(|(member, score)| zset.set(member, *score));
                Self::Zset(zset)
            }
        }
    }
}
