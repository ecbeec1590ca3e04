//! A note that a script has packed: the state of a line (lua/line/clock.lua).

const LABEL: &[u8] = b"The state of this line: ";

/// The numbers of a packed note; nothing if it is no such note.
pub fn numbers(note: &[u8]) -> Option<Vec<f64>> {
    let (numbers, rest) = note.strip_prefix(LABEL)?.as_chunks();
    rest.is_empty().then(|| numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
}
