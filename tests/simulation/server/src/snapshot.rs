//! The key space, to be kept or looked at.

use crate::keys::{Database, Value};

/// A copy of all keys at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot(pub(crate) Vec<Database>);

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
