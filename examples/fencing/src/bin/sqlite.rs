//! Fencing in SQLite: `cargo run -p fencing-examples --bin sqlite`, with a Redis at `REDIS_URL`.

use std::time::Duration;

use fencing_examples::{Account, Result, tell};
use rusqlite::{Connection, OptionalExtension};

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

    async fn look(&mut self) -> Result<i64> {
        Ok(self.0.query_row("SELECT balance FROM account WHERE id = 1", [], |row| row.get(0))?)
    }

    async fn read(&mut self, token: u64) -> Result<Option<i64>> {
        let fenced = "UPDATE account SET token = ?1 WHERE id = 1 AND token <= ?1 RETURNING balance";
        // The balance counts only if the token is committed, and a lone statement with rows hides a commit that fails.
        let change = self.0.transaction()?;
        let balance =
            change.query_row(fenced, [i64::try_from(token)?], |row| row.get(0)).optional()?;
        change.commit()?;
        Ok(balance)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_late_write_between_a_read_and_a_write_is_refused() {
        let mut account = Table::open(":memory:").await.expect("a table");
        let written = fencing_examples::cross(&mut account).await.expect("both have read");
        assert_eq!(written, (false, true));
        assert_eq!(account.look().await.expect("a balance"), 130);
        assert_eq!(account.read(1).await.expect("an answer"), None);
    }
}
