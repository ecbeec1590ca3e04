//! The passwords that this process sends to servers, and what may be shown of a text that a server has sent.
//!
//! A server may repeat what it was sent: Redis 7 quotes the arguments of a command that it does not know. So each text of a
//! server passes [`shown`] before it becomes a part of an error, a log or a `Debug` output: `fault.rs`, `replies.rs` and
//! `node.rs` see to that. All clients of the process share the list of passwords. So whoever has a text need not know which
//! connection it came from.

#![allow(unreachable_pub, reason = "the feature `operator` exports some")]

use std::fmt;
use std::sync::{Arc, Weak};

use crate::mutex::Mutex;

/// How many bytes of a password betray it. Servers cut off long arguments, so the rest need not follow.
const BEGINNING: usize = 12;

/// A password with fewer bytes than this is found as a whole word alone: it is a part of many other words.
const SHORT: usize = 4;

/// As much of a text as is shown, and as much of it as is searched for passwords. Written with escapes, the beginning of
/// a password is shorter than the difference.
const LONGEST: usize = 2000;
pub(crate) const SEARCHED: usize = 2 * LONGEST;

static ALL: Mutex<Vec<Weak<Beginnings>>> = Mutex::new(Vec::new());

/// How many times escapes are taken away from a text. If it still has some then, nothing of it is shown.
const MOST_ESCAPED: usize = 8;

/// How a password begins: as it is, and after [`unescaped`].
struct Beginnings {
    plain: Vec<u8>,
    unescaped: Vec<u8>,
}

/// A password that is sent to a server. As long as this value exists, no text shows it.
#[derive(Clone)]
#[must_use = "the password is hidden only as long as this exists"]
pub struct Password(#[allow(dead_code, reason = "its existence counts")] Arc<Beginnings>);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl Password {
    /// Call this before the password is sent.
    pub fn new(password: &str) -> Self {
        let beginning = |bytes: &[u8]| bytes[..bytes.len().min(BEGINNING)].to_vec();
        let read = Read::of(password);
        let plain = beginning(&read.bytes);
        // Each time shortens it. So it has none left in the end.
        let unescaped = read.unescaped(password.len());
        let unescaped = unescaped.map(|read| beginning(&read.bytes)).unwrap_or_default();
        let made = Arc::new(Beginnings { plain, unescaped });
        let mut all = ALL.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&made));
        Self(made)
    }
}

/// What `TYPE` says of a key.
const TYPES: [&str; 7] = ["none", "string", "list", "set", "zset", "hash", "stream"];

/// What may be shown of an answer to `TYPE`: whatever is no type may contain a password. A short password may be a type's name.
pub fn shown_type(answer: String) -> String {
    if TYPES.contains(&&*answer) { answer } else { shown(&answer) }
}

/// What may be shown of a text: what comes before the first password in it.
pub fn shown(text: &str) -> String {
    let searched = begin(text, SEARCHED);
    let plain = Read::of(searched);
    let Some(unescaped) = plain.clone().unescaped(MOST_ESCAPED) else {
        return ".. (not shown: escapes within escapes)".to_owned();
    };
    let all = ALL.lock();
    let found = all
        .iter()
        .filter_map(Weak::upgrade)
        .flat_map(|password| [plain.find(&password.plain), unescaped.find(&password.unescaped)]);
    match found.flatten().min() {
        Some(at) if at <= LONGEST => {
            format!("{}.. (not shown: a password of this client)", &text[..at])
        }
        _ if text.len() > LONGEST => format!("{}..", begin(text, LONGEST)),
        _ => text.to_owned(),
    }
}

/// The text, or as much of it as has this many bytes.
pub(crate) fn begin(text: &str, most: usize) -> &str {
    let is_whole = |end: &usize| text.is_char_boundary(*end);
    &text[..(0..=most.min(text.len())).rfind(is_whole).unwrap_or(0)]
}

/// A text as bytes, each with the place in the text of the character or the escape that it comes from. A character that
/// controls is a blank: servers put blanks for line ends.
#[derive(Clone)]
struct Read {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

impl Read {
    fn of(text: &str) -> Self {
        let places = text.char_indices().flat_map(|(at, c)| std::iter::repeat_n(at, c.len_utf8()));
        Self { bytes: text.bytes().map(blank).collect(), places: places.collect() }
    }

    /// The same without the escapes of URLs and of programs. `None`: they were applied more often than that.
    fn unescaped(mut self, most: usize) -> Option<Self> {
        for _ in 0..=most {
            let mut next = Self { bytes: Vec::new(), places: Vec::new() };
            let mut at = 0;
            while at < self.bytes.len() {
                let (bytes, length) = unit(&self.bytes[at..]);
                next.places.extend(bytes.iter().map(|_| self.places[at]));
                next.bytes.extend(bytes.into_iter().map(blank));
                at += length;
            }
            if next.bytes.len() == self.bytes.len() {
                return Some(next);
            }
            self = next;
        }
        None
    }

    fn find(&self, part: &[u8]) -> Option<usize> {
        if part.is_empty() {
            return None;
        }
        let is_letter = |at: Option<usize>| {
            at.and_then(|at| self.bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric)
        };
        let is_it = |(at, window): &(usize, &[u8])| {
            *window == part
                && (part.len() >= SHORT
                    || !is_letter(at.checked_sub(1)) && !is_letter(Some(at + part.len())))
        };
        let mut windows = self.bytes.windows(part.len()).enumerate();
        windows.find(is_it).map(|(at, _)| self.places[at])
    }
}

fn blank(byte: u8) -> u8 {
    if byte.is_ascii_control() { b' ' } else { byte }
}

/// The first byte, or what the escape at the begin stands for: its bytes, and its length in the text.
fn unit(text: &[u8]) -> (Vec<u8>, usize) {
    let hex = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let byte = |digits: &[u8]| hex(digits).map(|byte| vec![byte as u8]);
    let character = |digits: &[u8]| Some(char::from_u32(hex(digits)?)?.to_string().into_bytes());
    let escape = match text {
        [b'%', one, other, ..] => byte(&[*one, *other]).zip(Some(3)),
        [b'\\', b'x', one, other, ..] => byte(&[*one, *other]).zip(Some(4)),
        [b'\\', b'u', b'{', rest @ ..] => {
            let end = rest.iter().take(8).position(|byte| *byte == b'}');
            end.and_then(|end| character(&rest[..end]).zip(Some(end + 4)))
        }
        [b'\\', b'u', a, b, c, d, ..] => character(&[*a, *b, *c, *d]).zip(Some(6)),
        [b'\\', b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'0', ..] => Some((vec![b' '], 2)),
        [b'\\', escaped, ..] => Some((vec![*escaped], 2)),
        _ => None,
    };
    escape.unwrap_or_else(|| (vec![text[0]], 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = ".. (not shown: a password of this client)";

    #[test]
    fn a_text_is_shown_up_to_the_first_password_in_it() {
        let password = Password::new("a-riddle");
        let other = Password::new("another-riddle");
        assert_eq!(shown("ERR 'app' 'a-riddle' 'x'"), format!("ERR 'app' '{END}"));
        assert_eq!(shown("another-riddle, a-riddle"), END);
        assert_eq!(shown("another-riddlX, a-riddle"), END, "enough of it to betray it");
        assert_eq!(shown("another-riddl"), END);
        assert_eq!(shown("another-ridd"), END);
        assert_eq!(shown("another-rid, a-riddl"), "another-rid, a-riddl");
        drop(other);
        assert_eq!(shown("another-riddle"), "another-riddle", "it is not in use any more");
        drop(password.clone());
        assert_eq!(shown("a-riddle"), END);
    }

    #[test]
    fn a_password_is_found_in_all_its_forms() {
        let word = "p\"s\\w%41\n'ö/%";
        let _password = Password::new(word);
        let percent: String = word.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let hex: String = word.bytes().map(|byte| format!("\\x{byte:02X}")).collect();
        let debug = format!("{word:?}");
        let inner = debug.trim_matches('"');
        let json = inner.replace('\'', "\\u0027").replace('ö', "\\u00f6").replace('"', "\\\"");
        for form in [word, &percent, &hex, inner, &json, &word.replace('\n', " ")] {
            assert_eq!(shown(&format!("ERR x '{form}'")), format!("ERR x '{END}"), "{form}");
        }
        for form in [debug.clone(), format!("{debug:?}"), format!("{:?}", format!("{debug:?}"))] {
            let shown = shown(&format!("ERR x {form}"));
            let rest = shown.strip_suffix(END).expect("it is cut");
            assert_eq!(rest.trim_end_matches(['"', '\\']), "ERR x ");
        }
    }

    #[test]
    fn a_short_password_is_no_part_of_a_word() {
        let _password = Password::new("o");
        assert_eq!(shown("none of 'o'"), format!("none of '{END}"));
        assert_eq!(shown("%6f o"), END);
    }

    #[test]
    fn a_text_that_was_escaped_too_often_is_not_shown() {
        let escaped = |times| format!("ERR x %{}73ecret-of-escapes", "25".repeat(times - 1));
        let text = escaped(MOST_ESCAPED);
        assert_eq!(shown(&text), text);
        let _password = Password::new("secret-of-escapes");
        assert_eq!(shown(&text), format!("ERR x {END}"));
        for times in [MOST_ESCAPED + 1, SEARCHED] {
            assert_eq!(shown(&escaped(times)), ".. (not shown: escapes within escapes)");
        }
        let _password = Password::new(&format!("a\"quoted-one{}", escaped(MOST_ESCAPED + 1)));
        assert_eq!(shown(r#"ERR x 'a\"quoted-one'"#), format!("ERR x '{END}"));
    }

    #[test]
    fn a_text_without_a_password_is_shown_as_it_is() {
        let _password = [Password::new(""), Password::new("a-long-password-that-is-not-here")];
        for text in
            ["", "ERR unknown command 'ö'", "100 % \\", "%", "\\", "\\u{", "\\u{110000}", "%zz"]
        {
            assert_eq!(shown(text), text);
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = "ö".repeat(LONGEST);
        assert_eq!(shown(&long), format!("{}..", "ö".repeat(LONGEST / 2)));
        let _password = Password::new("a-password-at-the-end");
        for before in [LONGEST - 30, LONGEST, LONGEST + 30] {
            let text = format!("{}a-password-at-the-end", "x".repeat(before));
            assert!(!shown(&text).contains("a-pass"), "{before}");
        }
    }
}
