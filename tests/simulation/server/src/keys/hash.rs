//! A hash: fields in the order in which they came, as a small one of the real server keeps them.

use crate::number;

/// Fields and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hash(Vec<(Vec<u8>, Vec<u8>)>);

impl Hash {
    fn place(&self, field: &[u8]) -> Option<usize> {
        self.0.iter().position(|(name, _)| name == field)
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.place(field).map(|place| &*self.0[place].1)
    }

    /// Whether the field is new.
    pub(crate) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        match self.place(field) {
            Some(place) => value.clone_into(&mut self.0[place].1),
            None => {
                self.0.push((field.to_vec(), value.to_vec()));
                return true;
            }
        }
        false
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let place = self.place(field);
        place.map(|place| self.0.remove(place)).is_some()
    }

    /// The value as a number: nothing if it is none.
    pub(crate) fn number(&self, field: &[u8]) -> Option<i64> {
        self.get(field).map_or(Some(0), number::integer)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(field, value)| (&**field, &**value))
    }
}
