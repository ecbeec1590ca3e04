//! What can be seen on the wire without knowing what it means: where requests and messages begin and end.

#[path = "../../common/proxy/resp.rs"]
#[allow(dead_code, unreachable_pub, reason = "the proxy of the tests uses all of it")]
mod resp;

/// Answers without the messages among them.
pub fn without_messages(bytes: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    each(bytes, |frame| {
        if resp::head(frame) != (b'>', b"message") {
            kept.extend_from_slice(frame);
        }
    });
    kept
}

fn each<'a>(bytes: &'a [u8], mut act: impl FnMut(&'a [u8])) {
    let mut rest = bytes;
    while let Ok(Some(length)) = resp::replies(rest, 1) {
        let (frame, after) = rest.split_at(length);
        act(frame);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
}

/// The whole requests that these bytes begin with, and how long they are together.
pub fn whole(bytes: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let (mut requests, mut at, mut words) = (Vec::new(), 0, Vec::new());
    while let Ok(Some(length)) = resp::request(&bytes[at..], &mut words) {
        requests.push(bytes[at..at + length].to_vec());
        at += length;
    }
    (requests, at)
}

/// The words of a request.
pub fn words(request: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let _ = resp::request(request, &mut words);
    words.into_iter().map(|word| String::from_utf8_lossy(&request[word]).into_owned()).collect()
}

/// The numbers of an answer, without the messages before it. An error has none.
pub fn numbers(answer: &[u8]) -> Vec<i64> {
    let mut numbers = Vec::new();
    each(answer, |frame| {
        if matches!(frame.first(), Some(b':' | b'*')) {
            let text = String::from_utf8_lossy(frame);
            let of = |line: &str| line.strip_prefix(':')?.parse::<i64>().ok();
            numbers.extend(text.lines().filter_map(of));
        }
    });
    numbers
}

/// Requests as a reader of a log wants them: one a line, without the hashes and the texts of scripts.
pub fn requests(bytes: &[u8]) -> String {
    let (mut rest, mut lines, mut words) = (bytes, Vec::new(), Vec::new());
    while let Ok(Some(length)) = resp::request(rest, &mut words) {
        let word = |range: &std::ops::Range<usize>| short(&rest[range.clone()]);
        lines.push(words.iter().map(word).collect::<Vec<_>>().join(" "));
        rest = &rest[length..];
        if rest.is_empty() {
            break;
        }
    }
    lines.join(" | ")
}

/// Answers as a reader of a log wants them.
pub fn answers(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", " ");
    text.chars().take(240).collect()
}

fn short(word: &[u8]) -> String {
    match word.len() {
        40 if word.iter().all(u8::is_ascii_hexdigit) => {
            String::from_utf8_lossy(&word[..4]).into_owned()
        }
        0..80 => String::from_utf8_lossy(word).into_owned(),
        length => format!("[{length} bytes]"),
    }
}
