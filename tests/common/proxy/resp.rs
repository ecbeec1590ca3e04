//! RESP framing: where a request or a reply ends. What it means is not known here.

use std::ops::Range;
use std::str;

/// These bytes are not RESP.
#[derive(Debug, PartialEq, Eq)]
pub struct Garbled;

/// The length of the frame that the bytes begin with; `None` while its end has not come.
pub type Framed = Result<Option<usize>, Garbled>;

/// Frames one request, an array of bulk strings or an inline command, and leaves in `args` where its words are.
pub fn request(bytes: &[u8], args: &mut Vec<Range<usize>>) -> Framed {
    args.clear();
    let mut cursor = Cursor { bytes, at: 0 };
    framed(cursor.request(args), cursor.at)
}

/// Frames `count` replies or pushes that follow one another.
pub fn replies(bytes: &[u8], count: usize) -> Framed {
    let mut cursor = Cursor { bytes, at: 0 };
    framed((0..count).try_for_each(|_| cursor.value()), cursor.at)
}

/// The type byte of a whole reply and, for an array or push, its first string: the kind of a message.
pub fn head(frame: &[u8]) -> (u8, &[u8]) {
    let mut cursor = Cursor { bytes: frame, at: 0 };
    let kind = frame.first().copied().unwrap_or_default();
    let first = if matches!(kind, b'*' | b'>') { cursor.first_word() } else { None };
    (kind, first.unwrap_or_default())
}

enum Stop {
    Partial,
    Garbled,
}

fn framed(parsed: Result<(), Stop>, end: usize) -> Framed {
    match parsed {
        Ok(()) => Ok(Some(end)),
        Err(Stop::Partial) => Ok(None),
        Err(Stop::Garbled) => Err(Garbled),
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn request(&mut self, args: &mut Vec<Range<usize>>) -> Result<(), Stop> {
        let start = self.at;
        let line = self.line()?;
        let Some(count) = line.strip_prefix(b"*") else {
            args.extend(words(line).map(|word| start + word.start..start + word.end));
            return Ok(());
        };
        for _ in 0..number(count)? {
            let length = self.line()?.strip_prefix(b"$").ok_or(Stop::Garbled)?;
            args.push(self.bulk(number(length)?)?);
        }
        Ok(())
    }

    fn value(&mut self) -> Result<(), Stop> {
        let (kind, rest) = self.line()?.split_first().ok_or(Stop::Garbled)?;
        match kind {
            b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => Ok(()),
            b'$' | b'=' | b'!' => self.bulk(number(rest)?).map(drop),
            b'*' | b'~' | b'>' => self.values(number(rest)?),
            b'%' => self.values(2 * number(rest)?),
            b'|' => self.values(2 * number(rest)? + 1), // attributes, then what they are about
            _ => Err(Stop::Garbled),
        }
    }

    fn values(&mut self, count: i64) -> Result<(), Stop> {
        (0..count).try_for_each(|_| self.value())
    }

    /// A string of this length; a negative length is a null, which has no bytes.
    fn bulk(&mut self, length: i64) -> Result<Range<usize>, Stop> {
        let Ok(length) = usize::try_from(length) else {
            return Ok(self.at..self.at);
        };
        let text = self.at..self.at + length;
        let end = text.end + 2;
        if end > self.bytes.len() {
            return Err(Stop::Partial);
        }
        self.at = end;
        Ok(text)
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or(Stop::Partial)?;
        self.at += end + 1;
        Ok(rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]))
    }

    fn first_word(&mut self) -> Option<&'a [u8]> {
        self.line().ok()?;
        let length = self.line().ok()?.strip_prefix(b"$")?;
        let text = self.bulk(number(length).ok()?).ok()?;
        Some(&self.bytes[text])
    }
}

fn number(digits: &[u8]) -> Result<i64, Stop> {
    let number =
        str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok().map(i64::from));
    number.or_else(|| (digits == b"-1").then_some(-1)).ok_or(Stop::Garbled)
}

/// Where the words of an inline command are.
fn words(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    line.split(u8::is_ascii_whitespace).filter_map(move |word| {
        let place = at..at + word.len();
        at = place.end + 1;
        (!word.is_empty()).then_some(place)
    })
}
