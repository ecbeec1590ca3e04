//! What the messages of a queue say of one waiter.

use crate::engine::entry::Called;
use crate::keys::TenureId;

/// No server of ours numbers so many: a token has room for fewer.
const GRANTS: u64 = 1 << 53;

/// One word of a message: `<owner field>=<grant>@<secret>` for a waiter that is let in, and
/// `<owner field>` for a holder that is put out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) id: TenureId,
    pub(crate) called: Option<Called>,
}

impl Word {
    /// The word, if it speaks of this client and is written as our scripts write it.
    pub(crate) fn for_us(word: &[u8], client: &str) -> Option<Self> {
        let word = std::str::from_utf8(word).ok()?.strip_prefix(client)?.strip_prefix(':')?;
        let Some((id, called)) = word.split_once('=') else {
            return Some(Self { id: TenureId(number(word)?), called: None });
        };
        let (grant, secret) = called.split_once('@')?;
        let called = Called { number: number(grant)?, secret: number(secret)? };
        if called.number >= GRANTS {
            return None;
        }
        Some(Self { id: TenureId(number(id)?), called: Some(called) })
    }
}

/// Digits, and nothing else: `parse` would take a sign as well.
fn number(digits: &str) -> Option<u64> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(word: &str) -> Option<(u64, Option<(u64, u64)>)> {
        let Word { id, called } = Word::for_us(word.as_bytes(), "client")?;
        Some((id.0, called.map(|Called { number, secret }| (number, secret))))
    }

    #[test]
    fn a_word_says_who_is_let_in_or_put_out() {
        assert_eq!(heard("client:7=12@34"), Some((7, Some((12, 34)))));
        assert_eq!(heard("client:7"), Some((7, None)));
        let (grant, secret) = (GRANTS - 1, u64::MAX);
        assert_eq!(heard(&format!("client:7={grant}@{secret}")), Some((7, Some((grant, secret)))));
    }

    #[test]
    fn whatever_our_scripts_do_not_write_is_no_word() {
        for word in [
            "",
            "client",
            "client:",
            "other:7",
            "client7",
            "client:x",
            "client:-1",
            "client:+7",
            "client: 7",
            "client:7 ",
            "client:7=",
            "client:7=1",
            "client:7=1@",
            "client:7=@1",
            "client:7=+1@1",
            "client:7=1@+1",
            "client:7=-1@1",
            "client:7=1@1@1",
            "client:7=1=1@1",
            "client:=1@1",
            "client:+7=1@1",
            "client:7=9007199254740992@1",
            "client:7=1.0@1",
            "client:7=1@18446744073709551616",
            "client:7=1@0x1",
            "client:7=\u{661}@1",
        ] {
            assert_eq!(heard(word), None, "{word:?}");
        }
        assert_eq!(Word::for_us(b"client:7=1@\xff", "client"), None);
    }
}
