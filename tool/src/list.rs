//! `parklock ls`: who holds what.

use crate::args::{Ls, Server};
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::{output, servers, table};

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
    let rows: Vec<_> = inventory.locks.iter().map(|lock| table::row(lock, inventory)).collect();
    table::text(&table::columns(inventory), &rows)
}
