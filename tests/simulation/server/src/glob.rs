//! Patterns of keys: `*`, `?`, `[a-c]`, `[^a]` and `\`.

/// Whether the whole of the text is as the pattern says.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skipped| matches(rest, &text[skipped..])),
        _ => {
            let Some((&byte, text)) = text.split_first() else { return false };
            match pattern {
                [b'?', rest @ ..] => matches(rest, text),
                [b'[', rest @ ..] => {
                    let (fits, rest) = class(rest, byte);
                    fits && matches(rest, text)
                }
                [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
                    *literal == byte && matches(rest, text)
                }
                [] => false,
            }
        }
    }
}

/// Whether the byte is in the class, and what follows the class.
fn class(mut pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let not = pattern.first() == Some(&b'^');
    if not {
        pattern = &pattern[1..];
    }
    let mut fits = false;
    loop {
        pattern = match pattern {
            [] => return (fits != not, pattern),
            [b']', rest @ ..] => return (fits != not, rest),
            [b'\\', literal, rest @ ..] => {
                fits |= *literal == byte;
                rest
            }
            [first, b'-', last, rest @ ..] => {
                fits |= (*first.min(last)..=*first.max(last)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                fits |= *literal == byte;
                rest
            }
        };
    }
}
