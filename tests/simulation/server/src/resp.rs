//! The wire format: requests are read from pieces of any size, replies are written for RESP2 or RESP3.

use std::ops::Range;

use crate::number;
use crate::reply::Reply;
use crate::version::Version;

const LONGEST_INLINE: usize = 64 * 1024;
const LONGEST_BULK: i64 = 512 * 1024 * 1024;
const MOST_WORDS: i64 = i32::MAX as i64;

/// What a client has sent of its next request.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    bytes: Vec<u8>,
    read: usize,
    words: Vec<Vec<u8>>,
    missing: usize,
    bulk: Option<usize>,
}

/// What a server asks of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) version: Version,
    /// Strangers may send short requests only.
    pub(crate) logged_in: bool,
}

impl Rules {
    /// Redis skips the two bytes behind a word or a length unseen, Valkey does not.
    fn check_end(self, end: &[u8]) -> Result<(), Malformed> {
        let fine = !self.version.is_valkey() || end.starts_with(b"\r\n");
        fine.then_some(()).ok_or_else(|| Malformed("invalid CRLF in request".into()))
    }
}

/// A request that no server understands; the connection is closed over it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

impl Parser {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.read));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete request, of at least one word.
    pub(crate) fn next(&mut self, rules: Rules) -> Result<Option<Vec<Vec<u8>>>, Malformed> {
        loop {
            if self.missing == 0 && !self.begin(rules)? {
                return Ok(None);
            }
            while self.missing > 0 {
                if !self.word(rules)? {
                    return Ok(None);
                }
            }
            let words = std::mem::take(&mut self.words);
            if !words.is_empty() {
                return Ok(Some(words));
            }
        }
    }

    /// Reads the head of a request, or an inline one as a whole; whether there was enough of it.
    fn begin(&mut self, rules: Rules) -> Result<bool, Malformed> {
        let Some(&first) = self.bytes.get(self.read) else { return Ok(false) };
        if first != b'*' {
            return self.inline(rules);
        }
        let too_long = || Malformed("too big mbulk count string".into());
        let Some(line) = self.line(rules, too_long)? else { return Ok(false) };
        let count = self.number(line).filter(|&count| count <= MOST_WORDS);
        let count = count.ok_or_else(|| Malformed("invalid multibulk length".into()))?;
        if count > 10 && !rules.logged_in {
            return Err(Malformed("unauthenticated multibulk length".into()));
        }
        self.missing = usize::try_from(count).unwrap_or(0);
        Ok(true)
    }

    fn inline(&mut self, rules: Rules) -> Result<bool, Malformed> {
        let rest = &self.bytes[self.read..];
        // C looks for the end, and does not look past a NUL.
        let end = rest.iter().position(|&byte| matches!(byte, b'\n' | 0));
        let Some(end) = end.filter(|&end| rest[end] == b'\n') else {
            let fits = rest.len() <= LONGEST_INLINE;
            return if fits { Ok(false) } else { Err(Malformed("too big inline request".into())) };
        };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        self.words =
            words(line, rules).ok_or_else(|| Malformed("unbalanced quotes in request".into()))?;
        self.read += end + 1;
        Ok(true)
    }

    /// Reads one word of a request; whether all of it was there.
    fn word(&mut self, rules: Rules) -> Result<bool, Malformed> {
        let length = match self.bulk {
            Some(length) => length,
            None => {
                let too_long = || Malformed("too big bulk count string".into());
                let Some(line) = self.line(rules, too_long)? else { return Ok(false) };
                // Of an empty line, that is the byte of its end.
                let first = self.bytes[line.start];
                if first != b'$' {
                    let found = char::from(first);
                    return Err(Malformed(format!("expected '$', got '{found}'")));
                }
                let length = self.number(line).filter(|&length| length <= LONGEST_BULK);
                let length = length.and_then(|length| usize::try_from(length).ok());
                let length = length.ok_or_else(|| Malformed("invalid bulk length".into()))?;
                if length > 16_384 && !rules.logged_in {
                    return Err(Malformed("unauthenticated bulk length".into()));
                }
                *self.bulk.insert(length)
            }
        };
        if self.bytes.len() - self.read < length + 2 {
            return Ok(false);
        }
        rules.check_end(&self.bytes[self.read + length..])?;
        self.words.push(self.bytes[self.read..self.read + length].to_vec());
        self.read += length + 2;
        self.missing -= 1;
        self.bulk = None;
        Ok(true)
    }

    /// Where the next line of a request begins and ends, if it is there as a whole. It is read then.
    fn line(
        &mut self,
        rules: Rules,
        too_long: impl Fn() -> Malformed,
    ) -> Result<Option<Range<usize>>, Malformed> {
        let begin = self.read;
        let rest = &self.bytes[begin..];
        let Some(length) = rest.iter().position(|&byte| byte == b'\r') else {
            return if rest.len() > LONGEST_INLINE { Err(too_long()) } else { Ok(None) };
        };
        if rest.len() < length + 2 {
            return Ok(None);
        }
        rules.check_end(&rest[length..])?;
        self.read += length + 2;
        Ok(Some(begin..begin + length))
    }

    /// The number behind the first byte of a line.
    fn number(&self, line: Range<usize>) -> Option<i64> {
        number::integer(self.bytes[line].get(1..)?)
    }
}

/// The words of an inline request; none if a quote is not closed, or (but for Valkey) if a word goes on behind it.
fn words(line: &[u8], rules: Rules) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut rest) = (Vec::new(), line.trim_ascii_start());
    while !rest.is_empty() {
        let (word, behind) = word(rest, rules)?;
        words.push(word);
        rest = behind.trim_ascii_start();
    }
    Some(words)
}

/// The first word, and what follows it. Quotes may begin within it.
fn word(mut rest: &[u8], rules: Rules) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        rest = match rest {
            [] => return Some((word, rest)),
            [byte, ..] if byte.is_ascii_whitespace() => return Some((word, rest)),
            [quote @ (b'"' | b'\''), behind @ ..] => {
                let behind = quoted(&mut word, behind, *quote)?;
                let ends = behind.first().is_none_or(u8::is_ascii_whitespace);
                if ends || !rules.version.is_valkey() {
                    return ends.then_some((word, behind));
                }
                behind
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
        }
    }
}

/// Reads to the end of a quote; what follows it.
fn quoted<'a>(word: &mut Vec<u8>, mut rest: &'a [u8], quote: u8) -> Option<&'a [u8]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    loop {
        rest = match rest {
            [] => return None,
            [byte, behind @ ..] if *byte == quote => return Some(behind),
            [b'\\', b'\'', behind @ ..] if quote == b'\'' => {
                word.push(b'\'');
                behind
            }
            [b'\\', b'x', high, low, behind @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(digit(*high)? << 4 | digit(*low)?);
                behind
            }
            [b'\\', byte, behind @ ..] if quote == b'"' => {
                word.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    byte => *byte,
                });
                behind
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
        }
    }
}

/// Which of the two formats a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// Appends a reply.
pub(crate) fn write(out: &mut Vec<u8>, reply: &Reply, protocol: Protocol, version: Version) {
    let three = protocol == Protocol::Resp3;
    let each = |out: &mut Vec<u8>, replies: &[Reply]| {
        for reply in replies {
            write(out, reply, protocol, version);
        }
    };
    match reply {
        Reply::Status(text) => line(out, b'+', text),
        Reply::Error(text) => line(out, b'-', text_without_end(text)),
        Reply::Integer(value) => head(out, b':', *value),
        Reply::Bulk(bytes) => bulk(out, bytes),
        Reply::Nil | Reply::NilArray if three => out.extend_from_slice(b"_\r\n"),
        Reply::Nil => out.extend_from_slice(b"$-1\r\n"),
        Reply::NilArray => out.extend_from_slice(b"*-1\r\n"),
        Reply::Array(items) => {
            head(out, b'*', items.len() as i64);
            each(out, items);
        }
        Reply::Push(items) => {
            head(out, if three { b'>' } else { b'*' }, items.len() as i64);
            each(out, items);
        }
        Reply::Map(items) => {
            head(
                out,
                if three { b'%' } else { b'*' },
                items.len() as i64 / if three { 2 } else { 1 },
            );
            each(out, items);
        }
        Reply::Double(value) if three => line(out, b',', number::score(*value, version).as_bytes()),
        Reply::Double(value) => bulk(out, number::score(*value, version).as_bytes()),
        Reply::Scores(items) => {
            head(out, b'*', items.len() as i64 * if three { 1 } else { 2 });
            for (member, score) in items {
                if three {
                    out.extend_from_slice(b"*2\r\n");
                }
                bulk(out, member);
                write(out, &Reply::Double(*score), protocol, version);
            }
        }
        Reply::Text(text) if three => {
            head(out, b'=', text.len() as i64 + 4);
            out.extend_from_slice(b"txt:");
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
        Reply::Text(text) => bulk(out, text),
    }
}

fn text_without_end(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., b'\r' | b'\n'] = text {
        text = rest;
    }
    text
}

fn head(out: &mut Vec<u8>, kind: u8, value: i64) {
    out.push(kind);
    number::write_integer(out, value);
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    head(out, b'$', bytes.len() as i64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Rules = Rules { version: Version::Redis7_0, logged_in: true };

    type Requests = Vec<Vec<Vec<u8>>>;

    /// The requests in these pieces, each read as soon as it comes.
    fn read(pieces: &[&[u8]], rules: Rules) -> Result<Requests, Malformed> {
        let (mut parser, mut requests) = (Parser::default(), Vec::new());
        for piece in pieces {
            parser.feed(piece);
            while let Some(request) = parser.next(rules)? {
                requests.push(request);
            }
        }
        Ok(requests)
    }

    fn requests(texts: &[&[&str]]) -> Result<Requests, Malformed> {
        let words = |text: &&[&str]| text.iter().map(|word| word.as_bytes().to_vec()).collect();
        Ok(texts.iter().map(words).collect())
    }

    fn malformed(text: &str) -> Result<Requests, Malformed> {
        Err(Malformed(text.into()))
    }

    #[test]
    fn requests_are_the_same_wherever_they_are_cut() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\nECHO \"a b\" ''\r\n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\nPING\n*1\r\n$4\r\nPING\r\n";
        let wanted =
            requests(&[&["GET", "a\r\nb"], &["ECHO", "a b", ""], &[""], &["PING"], &["PING"]]);
        assert_eq!(read(&[bytes], KNOWN), wanted);
        for first in 0..bytes.len() {
            for second in first..bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(read(&pieces, KNOWN), wanted, "cut at {first} and {second}");
            }
        }
        let each: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(read(&each, KNOWN), wanted);
    }

    #[test]
    fn an_incomplete_request_is_not_returned_yet() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n";
        for end in 0..bytes.len() {
            assert_eq!(read(&[&bytes[..end]], KNOWN), Ok(Vec::new()), "{end} bytes of it");
        }
    }

    #[test]
    fn a_large_bulk_string_may_contain_any_byte() {
        let big: Vec<u8> = b"\r\n*$\0\xff".repeat(500_000);
        let head = format!("*2\r\n$3\r\nSET\r\n${}\r\n", big.len());
        let bytes = [head.as_bytes(), &big, b"\r\n"].concat();
        for size in [bytes.len(), 65_536, 65_537] {
            let pieces: Vec<_> = bytes.chunks(size).collect();
            assert_eq!(read(&pieces, KNOWN), Ok(vec![vec![b"SET".to_vec(), big.clone()]]));
        }
    }

    #[test]
    fn inline_words_are_split_as_a_shell_does() {
        for (line, words) in [
            ("  a\t b ", &["a", "b"][..]),
            ("\"\\x41\\x4g\\n\\q\" 'it\\'s \\n'", &["Ax4g\nq", "it's \\n"]),
            ("a\"b c\" d'e'", &["ab c", "de"]),
        ] {
            assert_eq!(read(&[line.as_bytes(), b"\r\n"], KNOWN), requests(&[words]), "{line}");
        }
        let unbalanced = malformed("unbalanced quotes in request");
        for line in ["\"a", "'a", "\"a\\\"", "\"a\"b", "'a'b"] {
            assert_eq!(read(&[line.as_bytes(), b"\r\n"], KNOWN), unbalanced, "{line}");
        }
        let valkey = Rules { version: Version::Valkey9_1, ..KNOWN };
        assert_eq!(read(&[b"\"a\"b\r\n"], valkey), requests(&[&["ab"]]));
        assert_eq!(read(&[b"a\0b\r\n"], KNOWN), Ok(Vec::new()), "C looks no further than a NUL");
    }

    #[test]
    fn a_malformed_request_is_answered_with_its_error() {
        let long = [b'1'; LONGEST_INLINE + 1];
        let stranger = Rules { logged_in: false, ..KNOWN };
        let valkey = Rules { version: Version::Valkey9_1, ..KNOWN };
        for (bytes, rules, text) in [
            (&b"*x\r\n"[..], KNOWN, "invalid multibulk length"),
            (b"*2147483648\r\n", KNOWN, "invalid multibulk length"),
            (b"*1\r\n+OK\r\n", KNOWN, "expected '$', got '+'"),
            (b"*1\r\n$x\r\n", KNOWN, "invalid bulk length"),
            (b"*1\r\n$-1\r\n", KNOWN, "invalid bulk length"),
            (b"*1\r\n$536870913\r\n", KNOWN, "invalid bulk length"),
            (&long, KNOWN, "too big inline request"),
            (&[b"*", &long[..]].concat(), KNOWN, "too big mbulk count string"),
            (&[b"*1\r\n$", &long[..]].concat(), KNOWN, "too big bulk count string"),
            (b"*11\r\n", stranger, "unauthenticated multibulk length"),
            (b"*1\r\n$16385\r\n", stranger, "unauthenticated bulk length"),
            (b"*1\r\n$1\r\nxyz", valkey, "invalid CRLF in request"),
        ] {
            assert_eq!(read(&[bytes], rules), malformed(text));
        }
        assert_eq!(read(&[b"*1\rx$1\rxyzz"], KNOWN), requests(&[&["y"]]), "Redis skips them");
    }
}
