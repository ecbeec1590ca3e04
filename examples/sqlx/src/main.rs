//! A transaction of sqlx under a lock: it stores the token of its lock, and an older token changes nothing any more.
//! Run it: `cargo run -p sqlx-transaction`

use parklock::{Client, FencingToken};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Moves money from account 1 to account 2. Returns whether it has: if a newer holder was here, it changes nothing.
async fn transfer(db: &SqlitePool, token: FencingToken, amount: i64) -> Result<bool> {
    let mut change = db.begin().await?;
    // It comes first: until the commit, nobody else writes, and from then on, no older token does.
    let fence = sqlx::query("UPDATE fence SET token = ?1 WHERE token <= ?1")
        .bind(i64::try_from(token.get())?)
        .execute(&mut *change)
        .await?;
    if fence.rows_affected() == 0 {
        return Ok(false); // the transaction is rolled back
    }
    let booking = "UPDATE account SET balance = balance + ?2 WHERE id = ?1";
    for (account, amount) in [(1, -amount), (2, amount)] {
        sqlx::query(booking).bind(account).bind(amount).execute(&mut *change).await?;
    }
    change.commit().await?;
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    // Two processes, in short.
    let clients = [Client::connect(&url).await?, Client::connect(&url).await?];
    let [ours, theirs] = clients.map(|client| client.lock("accounts:1-2"));
    // A database in memory belongs to its connection.
    let db = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    sqlx::raw_sql(
        "CREATE TABLE fence (token INTEGER); INSERT INTO fence VALUES (0);
         CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER);
         INSERT INTO account VALUES (1, 100), (2, 0)",
    )
    .execute(&db)
    .await?;

    let first = ours.lock().await?;
    theirs.force_unlock().await?; // as if our process had slept through its lease: it does not know yet
    let second = theirs.lock().await?;
    let by_second = transfer(&db, second.token(), 30).await?;
    let by_first = transfer(&db, first.token(), 50).await?;
    second.unlock().await?;

    let balances: Vec<i64> =
        sqlx::query_scalar("SELECT balance FROM account ORDER BY id").fetch_all(&db).await?;
    println!("second: {by_second}, first, too late: {by_first}, balances: {balances:?}");
    assert_eq!((by_second, by_first, balances), (true, false, vec![70, 30]));
    Ok(())
}
