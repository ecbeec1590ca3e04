//! `parklock ls`: who holds what.

use crate::args::{Ls, Server};
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::{exit, output, servers, table};

pub(crate) async fn list(asked: &Ls) -> Result<u8, Failure> {
    let inventory = load(&asked.server, &asked.pattern).await?;
    output::put(&if asked.json { lines(&inventory) } else { rows(&inventory) });
    Ok(exit::OK)
}

pub(crate) async fn load(server: &Server, pattern: &str) -> Result<Inventory, Failure> {
    let servers = servers::primaries(&server.url()).await?;
    Inventory::load(&servers, server.layout(), pattern, 0).await
}

/// A line of JSON for each lock.
pub(crate) fn lines(inventory: &Inventory) -> String {
    inventory.locks.iter().map(|lock| format!("{}\n", lock.json(inventory))).collect()
}

pub(crate) fn rows(inventory: &Inventory) -> String {
    let rows: Vec<_> = inventory.locks.iter().map(|lock| table::row(lock, inventory)).collect();
    table::text(&rows)
}
