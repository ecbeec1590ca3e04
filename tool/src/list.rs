//! The list of locks: `parklock ls`, and the rows that `top` shows too.

use crate::args::{Ls, Server};
use crate::failure::Failure;
use crate::inventory::{Inventory, Lock};
use crate::text::printable;
use crate::{output, servers, span};

const COLUMNS: [&str; 7] = ["NAME", "KIND", "HOLDER", "COUNT", "TTL", "WAITING", "TOKEN"];

pub(crate) type Row = Vec<String>;

pub(crate) async fn list(asked: &Ls) -> Result<u8, Failure> {
    print(&asked.server, &asked.pattern, asked.json).await
}

/// Prints the locks of all servers that answer.
pub(crate) async fn print(server: &Server, pattern: &str, as_json: bool) -> Result<u8, Failure> {
    let realm = server.realm()?;
    let reached = servers::reach(&server.url()).await?;
    reached.complain();
    let inventory = Inventory::load(&reached.servers, &realm, pattern, 0).await?;
    output::put(&if as_json { lines(&inventory) } else { rows(&inventory) });
    Ok(reached.code())
}

/// One line of JSON for each lock.
fn lines(inventory: &Inventory) -> String {
    inventory.locks.iter().map(|lock| format!("{}\n", inventory.json(lock))).collect()
}

fn rows(inventory: &Inventory) -> String {
    let rows: Vec<_> = inventory.locks.iter().map(|lock| row(lock, inventory)).collect();
    text(&columns(inventory), &rows)
}

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
fn text(columns: &[&str], rows: &[Row]) -> String {
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
