//! How the client writes the call of a script: straight into the bytes that the socket sends, without a copy of any word.

use std::time::Duration;

use itoa::Buffer;

use crate::keys::{Field, Key};

/// The words of one command, as a server reads them: a list of texts in RESP.
pub(crate) struct Words<'a> {
    bytes: &'a mut Vec<u8>,
    count: usize,
}

/// The head of a command, before its words are counted. Most commands have two digits of them.
const HEAD: &[u8] = b"*00\r\n";

impl Words<'_> {
    /// Writes a command at the end of these bytes.
    pub(crate) fn write(bytes: &mut Vec<u8>, fill: impl FnOnce(&mut Words<'_>)) {
        let begin = bytes.len();
        bytes.extend_from_slice(HEAD);
        let mut words = Words { bytes, count: 0 };
        fill(&mut words);
        let count = words.count;
        bytes.splice(begin + 1..begin + 3, Buffer::new().format(count).bytes());
    }

    /// One word more.
    pub(crate) fn arg(&mut self, word: impl AsWord) -> &mut Self {
        word.write(self);
        self
    }

    /// One word more, which consists of these parts.
    pub(crate) fn joined(&mut self, parts: &[&str]) -> &mut Self {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes.push(b'$');
        self.bytes.extend_from_slice(Buffer::new().format(length).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
        self
    }
}

/// What can be a word of a command.
pub(crate) trait AsWord {
    fn write(self, words: &mut Words<'_>);
}

impl AsWord for &str {
    fn write(self, words: &mut Words<'_>) {
        words.joined(&[self]);
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl AsWord for $number {
            fn write(self, words: &mut Words<'_>) {
                words.joined(&[Buffer::new().format(self)]);
            }
        })*
    };
}

numbers!(i32 u32 u64 usize);

impl AsWord for Key<'_> {
    fn write(self, words: &mut Words<'_>) {
        words.joined(&self.parts());
    }
}

impl AsWord for Field<'_> {
    fn write(self, words: &mut Words<'_>) {
        words.joined(&[self.client, ":", Buffer::new().format(self.id.0)]);
    }
}

/// Whole milliseconds, at least one. The range of leases was checked before.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Same as [`millis`], for a time that must not be shorter in Redis than here.
pub(crate) fn millis_at_least(time: Duration) -> u64 {
    millis(time.saturating_add(Duration::from_nanos(999_999)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::TenureId;

    #[test]
    fn a_command_is_written_as_the_redis_crate_writes_it() {
        for count in [0, 1, 8, 97, 98, 99, 1_000] {
            let mut expected = redis::cmd("EVALSHA");
            expected.arg("an \u{e9}").arg(u64::MAX).arg("me:7");
            (0..count).for_each(|word| _ = expected.arg(word));
            let mut written = b"before".to_vec();
            Words::write(&mut written, |words| {
                words.arg("EVALSHA").joined(&["an", " ", "\u{e9}"]).arg(u64::MAX);
                words.arg(TenureId(7).of("me"));
                (0..count).for_each(|word: usize| _ = words.arg(word));
            });
            assert_eq!(written, [b"before", &*expected.get_packed_command()].concat());
        }
    }

    #[test]
    fn an_interval_is_no_shorter_in_redis() {
        for (micros, expected) in [(10_000, 10), (10_001, 11), (10_100, 11), (10_999, 11)] {
            let interval = Duration::from_micros(micros);
            assert_eq!(millis_at_least(interval), expected, "{interval:?}");
        }
        assert_eq!(millis_at_least(Duration::from_nanos(10_000_001)), 11);
    }
}
