//! Fencing in SQLite: `cargo run -p fencing-examples --bin sqlite`, with a Redis at `REDIS_URL`.

use std::time::Duration;

use fencing_examples::{Account, Result, tell};
use rusqlite::Connection;

struct Table(Connection);

impl Account for Table {
    async fn open(place: &str) -> Result<Self> {
        let connection = Connection::open(place)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER, token INTEGER)",
        )?;
        Ok(Self(connection))
    }

    async fn reset(&mut self, balance: i64) -> Result<()> {
        self.0.execute("INSERT OR REPLACE INTO account VALUES (1, ?1, 0)", [balance])?;
        Ok(())
    }

    async fn balance(&mut self) -> Result<i64> {
        Ok(self.0.query_row("SELECT balance FROM account WHERE id = 1", [], |row| row.get(0))?)
    }

    async fn write_blindly(&mut self, balance: i64) -> Result<()> {
        self.0.execute("UPDATE account SET balance = ?1 WHERE id = 1", [balance])?;
        Ok(())
    }

    async fn write(&mut self, balance: i64, token: u64) -> Result<bool> {
        // One statement: nobody can write between the comparison and the change.
        let rows = self.0.execute(
            "UPDATE account SET balance = ?1, token = ?2 WHERE id = 1 AND token <= ?2",
            [balance, i64::try_from(token)?],
        )?;
        Ok(rows == 1)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let place = std::env::var("ACCOUNT").unwrap_or("account.sqlite".into());
    tell::<Table>(&place).await
}
