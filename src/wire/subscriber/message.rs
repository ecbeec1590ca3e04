//! Messages, as the scripts of `lua/` write them: `<from> <word> <word> ...`.

use crate::keys::TenureId;
use crate::wire::proof::Proof;

/// The number of a grant is below this: a token has space only for smaller numbers.
const GRANTS: u64 = 1 << 53;

/// The most words of a message that count. A script writes no more: each is about another waiter, and one call of a script does
/// a bounded amount of work. What any client can publish may be longer.
const WORDS: usize = 256;

/// One word of a message, about one owner field of this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) id: TenureId,
    pub(crate) news: News,
}

/// What the word says about this owner field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// `<field>=<grant>@<proof>`: it holds the lock now. The server has made the proof with the secret of the sign of life for
    /// which it granted the lock.
    Granted { number: u64, proof: Proof },
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

/// The words of a message about owner fields of this client. The rest of the message is ignored, and so is what comes after
/// [`WORDS`] words.
pub(crate) fn words<'a>(message: &'a [u8], client: &'a str) -> impl Iterator<Item = Word> + 'a {
    let words = message.split(|byte| *byte == b' ').skip(1).take(WORDS);
    words.filter_map(move |word| Word::for_us(word, client))
}

impl Word {
    /// The word, if it is about an owner field of this client and has the form that our scripts write.
    fn for_us(word: &[u8], client: &str) -> Option<Self> {
        let word = std::str::from_utf8(word).ok()?.strip_prefix(client)?.strip_prefix(':')?;
        let (id, news) = if let Some(id) = word.strip_suffix("~!") {
            (id, News::Wanted { is_tried: true })
        } else if let Some(id) = word.strip_suffix('?') {
            (id, News::Near { at_once: false })
        } else if let Some(id) = word.strip_suffix('!') {
            (id, News::Near { at_once: true })
        } else if let Some(id) = word.strip_suffix('~') {
            (id, News::Wanted { is_tried: false })
        } else if let Some((id, grant)) = word.split_once('=') {
            (id, granted(grant)?)
        } else {
            (word, News::Out)
        };
        Some(Self { id: TenureId(number(id)?), news })
    }
}

fn granted(grant: &str) -> Option<News> {
    let (number_of_grant, proof) = grant.split_once('@')?;
    let (number, proof) = (number(number_of_grant)?, Proof::read(proof)?);
    (number < GRANTS).then_some(News::Granted { number, proof })
}

/// Digits only: `parse` would also accept a plus sign.
fn number(digits: &str) -> Option<u64> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROOF: &str = "0000004200112233445566778899";

    fn heard(word: &str) -> Option<(u64, News)> {
        let Word { id, news } = Word::for_us(word.as_bytes(), "client")?;
        Some((id.0, news))
    }

    #[test]
    fn a_message_calls_an_owner_field_granted_near_wanted_or_removed() {
        let proof = Proof::read(PROOF).unwrap();
        let granted = heard(&format!("client:7=12@{PROOF}"));
        assert_eq!(granted, Some((7, News::Granted { number: 12, proof })));
        assert_eq!(heard("client:7?"), Some((7, News::Near { at_once: false })));
        assert_eq!(heard("client:7!"), Some((7, News::Near { at_once: true })));
        assert_eq!(heard("client:7"), Some((7, News::Out)));
        assert_eq!(heard("client:7~"), Some((7, News::Wanted { is_tried: false })));
        assert_eq!(heard("client:7~!"), Some((7, News::Wanted { is_tried: true })));
        let number = GRANTS - 1;
        let last = heard(&format!("client:7={number}@{PROOF}"));
        assert_eq!(last, Some((7, News::Granted { number, proof })));
    }

    #[test]
    fn a_message_has_a_publisher_and_words_for_many() {
        let message = format!("client:1 client:7? other:7? client:8=1@{PROOF} nonsense client:9");
        let message = message.as_bytes();
        assert_eq!(publisher(message), b"client:1");
        let ids: Vec<_> = words(message, "client").map(|word| word.id.0).collect();
        assert_eq!(ids, [7, 8, 9], "the publisher is no word");
        assert_eq!(publisher(b"0"), b"0");
        assert_eq!(words(b"0", "client").count(), 0);
    }

    #[test]
    fn a_message_has_as_many_words_as_a_script_writes() {
        let message = "somebody".to_owned() + &" client:7!".repeat(1_000);
        assert_eq!(words(message.as_bytes(), "client").count(), WORDS);
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
            "client:7=9007199254740992@#",
            "client:7=1.0@#",
            "client:7=+1@#",
            "client:7=1@#0",
            "client:7=1@0x#",
            "client:7=1@#?",
            "client:7=\u{661}@#",
        ] {
            let word = word.replace('#', PROOF);
            assert_eq!(heard(&word), None, "{word:?}");
        }
        assert_eq!(Word::for_us(b"client:7=1@\xff", "client"), None);
    }
}
