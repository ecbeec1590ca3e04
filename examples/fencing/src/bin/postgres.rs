//! Fencing in PostgreSQL: `DATABASE_URL=postgres://user@host/db cargo run -p fencing-examples --bin postgres`, with a Redis
//! at `REDIS_URL`.

use fencing_examples::{Account, Result, tell};
use tokio_postgres::{Client, NoTls};

struct Table(Client);

impl Account for Table {
    async fn open(place: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(place, NoTls).await?;
        tokio::spawn(connection);
        // Two processes that create one table at the same time get in each other's way, even with IF NOT EXISTS.
        client
            .batch_execute(
                "SELECT pg_advisory_lock(1);
                 CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, balance bigint, token bigint);
                 SELECT pg_advisory_unlock(1)",
            )
            .await?;
        Ok(Self(client))
    }

    async fn reset(&mut self, balance: i64) -> Result<()> {
        let reset = "INSERT INTO account VALUES (1, $1, 0) \
                     ON CONFLICT (id) DO UPDATE SET balance = $1, token = 0";
        self.0.execute(reset, &[&balance]).await?;
        Ok(())
    }

    async fn look(&mut self) -> Result<i64> {
        Ok(self.0.query_one("SELECT balance FROM account WHERE id = 1", &[]).await?.get(0))
    }

    async fn read(&mut self, token: u64) -> Result<Option<i64>> {
        let fenced = "UPDATE account SET token = $1 WHERE id = 1 AND token <= $1 RETURNING balance";
        let row = self.0.query_opt(fenced, &[&i64::try_from(token)?]).await?;
        Ok(row.map(|row| row.get(0)))
    }

    async fn write_blindly(&mut self, balance: i64) -> Result<()> {
        self.0.execute("UPDATE account SET balance = $1 WHERE id = 1", &[&balance]).await?;
        Ok(())
    }

    async fn write(&mut self, balance: i64, token: u64) -> Result<bool> {
        // One statement: nobody can write between the comparison and the change.
        let fenced = "UPDATE account SET balance = $1, token = $2 WHERE id = 1 AND token <= $2";
        let rows = self.0.execute(fenced, &[&balance, &i64::try_from(token)?]).await?;
        Ok(rows == 1)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let place =
        std::env::var("DATABASE_URL").unwrap_or("postgres://postgres@127.0.0.1/postgres".into());
    tell::<Table>(&place).await
}
