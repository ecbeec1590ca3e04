//! The text of a script, before it is compiled.

use std::borrow::Cow;

const CALL: &[u8] = b"return redis.call(";

/// Puts `return redis.call(...)` in brackets: `return (redis.call(...))`.
///
/// On the real server, `redis.call` is a function of C, and a call of one is no tail call: its errors name the line.
/// Ours is one of Lua. In brackets, the call is no tail call either; it has one result in any case.
pub(super) fn without_tail_calls(text: &[u8]) -> Cow<'_, [u8]> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(place) = rest.windows(CALL.len()).position(|window| window == CALL) {
        let open = place + CALL.len() - 1;
        let Some(length) = bracket(&rest[open..]) else { break };
        let begin = place + b"return ".len();
        out.extend_from_slice(&rest[..begin]);
        out.push(b'(');
        out.extend_from_slice(&rest[begin..open + length]);
        out.push(b')');
        rest = &rest[open + length..];
    }
    if out.is_empty() {
        return text.into();
    }
    out.extend_from_slice(rest);
    out.into()
}

/// The length of what begins with a bracket, to the one that closes it.
fn bracket(text: &[u8]) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    let mut bytes = text.iter().enumerate();
    while let Some((place, byte)) = bytes.next() {
        match (byte, quote) {
            (b'\\', Some(_)) => drop(bytes.next()),
            (byte, Some(open)) if byte == open => quote = None,
            (b'\'' | b'"', None) => quote = Some(byte),
            (b'(', None) => depth += 1,
            (b')', None) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(place + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_call_is_put_in_brackets_and_nothing_else() {
        let same = |text: &str| assert_eq!(without_tail_calls(text.as_bytes()), text.as_bytes());
        same("local x = redis.call('get', 'a')");
        same("return redis.pcall('get', 'a')");
        same("return redis.call('get', 'a'");
        let text = b"if x then return redis.call('get', f(')') .. \"\\\"(\") end return redis.call('a') == 1";
        let wanted = b"if x then return (redis.call('get', f(')') .. \"\\\"(\")) end return (redis.call('a')) == 1";
        assert_eq!(*without_tail_calls(text), wanted[..]);
    }
}
