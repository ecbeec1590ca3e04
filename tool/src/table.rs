//! The list of locks as rows of text, for `ls` and `top`.

use crate::inventory::{Inventory, Lock};
use crate::span;
use crate::text::printable;

const COLUMNS: [&str; 7] = ["NAME", "KIND", "HOLDER", "COUNT", "TTL", "WAITING", "TOKEN"];

pub(crate) type Row = Vec<String>;

/// The headings. Locks of several namespaces have one more, the first.
pub(crate) fn columns(inventory: &Inventory) -> Vec<&'static str> {
    inventory.is_of_all.then_some("NAMESPACE").into_iter().chain(COLUMNS).collect()
}

pub(crate) fn row(lock: &Lock, inventory: &Inventory) -> Row {
    let namespace = lock.namespace.as_deref().map_or_else(|| "-".to_owned(), printable);
    let cells = [
        printable(&lock.name),
        printable(&lock.kind_in_words()),
        holder(lock, inventory),
        lock.count(),
        lock.ttl.map_or_else(|| "-".to_owned(), span::short),
        lock.waiting.to_string(),
        lock.token.map_or_else(|| "-".to_owned(), |token| token.to_string()),
    ];
    inventory.is_of_all.then_some(namespace).into_iter().chain(cells).collect()
}

fn holder(lock: &Lock, inventory: &Inventory) -> String {
    let Some(first) = lock.holders.first() else { return "-".to_owned() };
    let who = printable(&inventory.who(&first.owner));
    match lock.held_by {
        0 | 1 => who,
        holders => format!("{who} +{}", holders - 1),
    }
}

/// The rows under their headings, in columns as wide as their contents.
pub(crate) fn text(columns: &[&str], rows: &[Row]) -> String {
    let heads: Row = columns.iter().map(|head| (*head).to_owned()).collect();
    let all: Vec<&Row> = std::iter::once(&heads).chain(rows).collect();
    let width =
        |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &&Row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = ["a-long-name", "lock", "x", "1", "9s", "0", "-"].map(str::to_owned);
        let text = text(&COLUMNS, &[row.to_vec()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("KIND"), lines[1].find("lock"));
        assert!(lines.iter().all(|line| !line.ends_with(' ')));
    }
}
