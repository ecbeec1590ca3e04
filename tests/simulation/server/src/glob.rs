//! Patterns for names, as SCAN reads them. The command line tool has this file too.

/// Whether a name fits a pattern: `*`, `?`, `[ab]`, `[a-z]`, `[^a]`, and `\` before a character that stands for itself.
pub(crate) fn fits(mut pattern: &[u8], mut name: &[u8]) -> bool {
    // What follows the last star, and the part of the name that the star may still take. An earlier star never needs to
    // take more than it has taken.
    let mut star = None;
    loop {
        if let [b'*', after @ ..] = pattern {
            (pattern, star) = (after, Some((after, name)));
        } else if pattern.is_empty() && name.is_empty() {
            return true;
        } else if let Some(rests) = step(pattern, name) {
            (pattern, name) = rests;
        } else if let Some((after, [_, rest @ ..])) = star {
            (pattern, name, star) = (after, rest, Some((after, rest)));
        } else {
            return false;
        }
    }
}

/// Reads one byte of a name by a pattern that does not begin with a star: what is left of both, if it fits.
fn step<'p, 'n>(pattern: &'p [u8], name: &'n [u8]) -> Option<(&'p [u8], &'n [u8])> {
    let (byte, name) = name.split_first()?;
    let (fits, pattern) = match pattern {
        [b'?', rest @ ..] => (true, rest),
        [b'[', b'^', rest @ ..] => class(rest, *byte, true),
        [b'[', rest @ ..] => class(rest, *byte, false),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (literal == byte, rest),
        [] => return None,
    };
    fits.then_some((pattern, name))
}

/// Whether a byte is in a class, and what follows the class. As in Redis, the end of the pattern ends the class too.
fn class(mut pattern: &[u8], byte: u8, is_inverted: bool) -> (bool, &[u8]) {
    let mut is_in = false;
    loop {
        pattern = match pattern {
            [] => return (is_in != is_inverted, pattern),
            [b']', rest @ ..] => return (is_in != is_inverted, rest),
            [b'\\', literal, rest @ ..] => {
                is_in |= *literal == byte;
                rest
            }
            [from, b'-', to, rest @ ..] => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                is_in |= *literal == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_as_it_does_for_scan() {
        for (pattern, name) in [
            ("*", ""),
            ("a*c*", "abcbd"),
            ("*b*bc", "abbabc"),
            ("a?c", "abc"),
            ("[ab][^c]", "bd"),
            ("[c-a]", "b"),
            ("[\\]]", "]"),
            ("a\\*", "a*"),
            ("[ab", "b"),
            ("a\\", "a\\"),
        ] {
            assert!(fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("a", ""),
            ("a*c", "abcd"),
            ("a?", "a"),
            ("[^a]", "a"),
            ("[b-c]", "a"),
            ("a\\*", "ab"),
            ("*a*b", "ba"),
        ] {
            assert!(!fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }
}
