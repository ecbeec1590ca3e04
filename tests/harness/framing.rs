//! RESP frames end where they end, wherever the bytes are cut.

use crate::common::proxy::resp::{Garbled, head, replies, request};

const REPLIES: [&str; 20] = [
    "+OK\r\n",
    "-ERR no\r\n",
    ":-42\r\n",
    "$5\r\na\r\nb\n\r\n",
    "$0\r\n\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
    "_\r\n",
    "#t\r\n",
    ",3.14\r\n",
    "(12345678901234567890\r\n",
    "!3\r\nERR\r\n",
    "=7\r\ntxt:abc\r\n",
    "~2\r\n:1\r\n:2\r\n",
    "%1\r\n+key\r\n*1\r\n:1\r\n",
    "|1\r\n+ttl\r\n:1\r\n$1\r\nx\r\n",
    ">2\r\n$7\r\nmessage\r\n$1\r\nx\r\n",
    "*1\r\n%1\r\n:1\r\n~1\r\n_\r\n",
];

#[test]
fn a_reply_is_whole_at_its_last_byte_and_not_before() {
    for reply in REPLIES.map(str::as_bytes) {
        for cut in 0..reply.len() {
            assert_eq!(replies(&reply[..cut], 1), Ok(None), "{cut} of {reply:?}");
        }
        assert_eq!(replies(&[reply, b"+more"].concat(), 1), Ok(Some(reply.len())));
    }
}

#[test]
fn several_replies_are_whole_together() {
    let all = REPLIES.concat();
    assert_eq!(replies(all.as_bytes(), REPLIES.len()), Ok(Some(all.len())));
    assert_eq!(replies(all.as_bytes(), REPLIES.len() + 1), Ok(None));
}

#[test]
fn a_request_is_split_into_its_words() {
    for text in ["*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n", "*2\r\n$0\r\n\r\n$4\r\n*1\r\n\r\n"]
    {
        let mut words = Vec::new();
        for cut in 0..text.len() {
            assert_eq!(request(&text.as_bytes()[..cut], &mut words), Ok(None));
        }
        assert_eq!(request(text.as_bytes(), &mut words), Ok(Some(text.len())));
        let words: Vec<&str> = words.into_iter().map(|word| &text[word]).collect();
        assert!(words == ["SET", "k", "\r\n"] || words == ["", "*1\r\n"], "{words:?}");
    }
}

#[test]
fn an_inline_request_is_split_into_its_words_too() {
    let (text, mut words) = ("  PING  hello \r\n", Vec::new());
    assert_eq!(request(text.as_bytes(), &mut words), Ok(Some(text.len())));
    let words: Vec<&str> = words.into_iter().map(|word| &text[word]).collect();
    assert_eq!(words, ["PING", "hello"]);
}

#[test]
fn bytes_that_are_not_resp_are_garbled() {
    assert_eq!(replies(b"hello\r\n", 1), Err(Garbled));
    assert_eq!(replies(b"$many\r\n", 1), Err(Garbled));
    assert_eq!(replies(b"\r\n", 1), Err(Garbled));
    assert_eq!(request(b"*1\r\n:1\r\n", &mut Vec::new()), Err(Garbled));
}

#[test]
fn the_head_of_a_message_is_its_type_and_the_kind_of_a_push() {
    assert_eq!(head(b">2\r\n$7\r\nmessage\r\n$1\r\nx\r\n"), (b'>', &b"message"[..]));
    assert_eq!(head(b"*1\r\n$4\r\npong\r\n"), (b'*', &b"pong"[..]));
    assert_eq!(head(b"*1\r\n:1\r\n"), (b'*', &b""[..]));
    assert_eq!(head(b"$7\r\nmessage\r\n"), (b'$', &b""[..]));
}
