//! Messages, as the scripts of `lua/` write them: `<from> <word> <word> ...`.

use crate::keys::TenureId;

/// The number of a grant is below this: a token has space only for smaller numbers.
const GRANTS: u64 = 1 << 53;

/// One word of a message, about one owner field of this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) id: TenureId,
    pub(crate) what: What,
}

/// What the word says about this owner field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// `<field>=<grant>@<secret>`: it holds the lock now. The secret is that of the sign of life for which the server
    /// granted the lock.
    Granted { number: u64, secret: u64 },
    /// `<field>?`: it is near the front of the line, and has to show signs of life from now on. `<field>!`: the same,
    /// and it has to ask at once, since its last sign is too old.
    Near { at_once: bool },
    /// `<field>~`: another client wants the lock that it holds, and that its client may keep idle. `<field>~!`: the same,
    /// and that client stands in no line; it may ask once more soon.
    Wanted { is_tried: bool },
    /// `<field>`: it was removed by force.
    Out,
}

/// The client that published a message. In Redisson's layout this says nothing about the client.
pub(crate) fn publisher(message: &[u8]) -> &[u8] {
    message.split(|byte| *byte == b' ').next().unwrap_or_default()
}

/// The words of a message about owner fields of this client. The rest of the message is ignored.
pub(crate) fn words<'a>(message: &'a [u8], client: &'a str) -> impl Iterator<Item = Word> + 'a {
    let words = message.split(|byte| *byte == b' ').skip(1);
    words.filter_map(move |word| Word::for_us(word, client))
}

impl Word {
    /// The word, if it is about an owner field of this client and has the form that our scripts write.
    fn for_us(word: &[u8], client: &str) -> Option<Self> {
        let word = std::str::from_utf8(word).ok()?.strip_prefix(client)?.strip_prefix(':')?;
        let (id, what) = if let Some(id) = word.strip_suffix("~!") {
            (id, What::Wanted { is_tried: true })
        } else if let Some(id) = word.strip_suffix('?') {
            (id, What::Near { at_once: false })
        } else if let Some(id) = word.strip_suffix('!') {
            (id, What::Near { at_once: true })
        } else if let Some(id) = word.strip_suffix('~') {
            (id, What::Wanted { is_tried: false })
        } else if let Some((id, grant)) = word.split_once('=') {
            (id, granted(grant)?)
        } else {
            (word, What::Out)
        };
        Some(Self { id: TenureId(number(id)?), what })
    }
}

fn granted(grant: &str) -> Option<What> {
    let (number_of_grant, secret) = grant.split_once('@')?;
    let (number, secret) = (number(number_of_grant)?, number(secret)?);
    (number < GRANTS).then_some(What::Granted { number, secret })
}

/// Digits only: `parse` would also accept a plus sign.
fn number(digits: &str) -> Option<u64> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(word: &str) -> Option<(u64, What)> {
        let Word { id, what } = Word::for_us(word.as_bytes(), "client")?;
        Some((id.0, what))
    }

    #[test]
    fn a_message_calls_an_owner_field_granted_near_wanted_or_removed() {
        assert_eq!(heard("client:7=12@34"), Some((7, What::Granted { number: 12, secret: 34 })));
        assert_eq!(heard("client:7?"), Some((7, What::Near { at_once: false })));
        assert_eq!(heard("client:7!"), Some((7, What::Near { at_once: true })));
        assert_eq!(heard("client:7"), Some((7, What::Out)));
        assert_eq!(heard("client:7~"), Some((7, What::Wanted { is_tried: false })));
        assert_eq!(heard("client:7~!"), Some((7, What::Wanted { is_tried: true })));
        let (number, secret) = (GRANTS - 1, u64::MAX);
        let last = heard(&format!("client:7={number}@{secret}"));
        assert_eq!(last, Some((7, What::Granted { number, secret })));
    }

    #[test]
    fn a_message_has_a_publisher_and_words_for_many() {
        let message = b"client:1 client:7? other:7? client:8=1@2 nonsense client:9";
        assert_eq!(publisher(message), b"client:1");
        let ids: Vec<_> = words(message, "client").map(|word| word.id.0).collect();
        assert_eq!(ids, [7, 8, 9], "the publisher is no word");
        assert_eq!(publisher(b"0"), b"0");
        assert_eq!(words(b"0", "client").count(), 0);
    }

    #[test]
    fn whatever_our_scripts_do_not_write_is_no_word() {
        for word in [
            "",
            "client",
            "client:",
            "client:?",
            "client:!",
            "other:7",
            "other:7?",
            "client7",
            "client:x",
            "client:-1",
            "client:+7",
            "client:+7!",
            "client: 7",
            "client:7 ",
            "client:7??",
            "client:7?!",
            "client:7~~",
            "other:7~",
            "client:~",
            "client:7=",
            "client:7=1",
            "client:7=1@",
            "client:7=@1",
            "client:7=1@1?",
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
