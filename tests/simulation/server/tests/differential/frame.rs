//! What a server sends, as it is on the wire: the kind of each item is compared too.

use std::fmt;
use std::io::BufRead;

/// One item: its kind (the first byte), its text, and the items within.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub text: Vec<u8>,
    pub items: Vec<Self>,
}

impl Frame {
    /// Nothing, at the end of the stream.
    pub fn read(from: &mut impl BufRead) -> Option<Self> {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line).ok().filter(|length| *length > 0)?;
        let text = line.strip_suffix(b"\r\n").expect("a line has an end");
        let (&kind, text) = text.split_first().expect("a line has a kind");
        let mut frame = Self { kind, text: text.to_vec(), items: Vec::new() };
        let number = || {
            std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
                .expect("a length")
        };
        match kind {
            b'$' | b'=' if number() >= 0 => {
                let mut bytes = vec![0; number() as usize + 2];
                from.read_exact(&mut bytes).ok()?;
                bytes.truncate(number() as usize);
                frame.text = bytes;
            }
            b'$' => frame.kind = b'0', // nothing where there might be text
            b'*' | b'>' | b'~' | b'%' if number() >= 0 => {
                let items = number() * if kind == b'%' { 2 } else { 1 };
                frame.items = (0..items).map(|_| Self::read(from)).collect::<Option<_>>()?;
                frame.text.clear();
            }
            _ => {}
        }
        Some(frame)
    }

    pub fn all(mut bytes: &[u8]) -> Vec<Self> {
        std::iter::from_fn(|| Self::read(&mut bytes)).collect()
    }

    pub fn is_push(&self) -> bool {
        self.kind == b'>'
    }

    pub fn number(&self) -> i64 {
        std::str::from_utf8(&self.text).ok().and_then(|text| text.parse().ok()).expect("a number")
    }

    /// As the answer to TIME: microseconds.
    pub fn micros(&self) -> u64 {
        assert!(self.items.len() == 2, "the answer to TIME: {self:?}");
        (self.items[0].number() * 1_000_000 + self.items[1].number()) as u64
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.escape_ascii();
        match self.kind {
            b'*' | b'>' | b'%' | b'~' if self.text.is_empty() => {
                write!(f, "{}{:?}", char::from(self.kind), self.items)
            }
            kind => write!(f, "{}{text}", char::from(kind)),
        }
    }
}
