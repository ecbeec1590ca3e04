//! Names and numbers as text.

/// A name as printable text. It may contain any character, and must neither control the terminal nor change the order
/// of what it shows.
pub(crate) fn printable(name: &str) -> String {
    let steers =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    name.chars()
        .flat_map(|c| if steers(c) { c.escape_default().collect() } else { vec![c] })
        .collect()
}

/// So many of these.
pub(crate) fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J"), "a\\u{1b}[2J");
        assert_eq!(printable("a\u{202e}b\u{2066}"), "a\\u{202e}b\\u{2066}");
    }
}
