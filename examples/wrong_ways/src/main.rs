//! Prints the table of the wrong ways: `cargo run -p wrong-ways`, or `cargo run -p wrong-ways -- D4 D5`.

use std::env;
use std::time::Instant;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use wrong_ways::{Stage, table, victim, ways};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [role, way, url, name] = arguments.as_slice()
        && role == victim::ROLE
    {
        return victim::suffer(way, url, name).await;
    }
    show(&arguments).await
}

/// Runs all of them, or those that are named, side by side: each has names of its own.
async fn show(names: &[String]) -> Result<()> {
    let since = Instant::now();
    let chosen = |way: &&ways::Way| names.is_empty() || names.iter().any(|name| name == way.number);
    let ways: Vec<&ways::Way> = ways::ALL.iter().filter(chosen).collect();
    ensure!(!ways.is_empty(), "there are {:?}", ways::ALL.map(|way| way.number));
    let stage = Stage::set(env::current_exe()?).await?;
    let shown = try_join_all(ways.iter().map(|way| way.show(&stage))).await?;
    let rows: Vec<_> = shown.into_iter().flatten().collect();
    print!("{}", table::table(&rows));
    eprintln!("{} rows in {:.1?}", rows.len(), since.elapsed());
    Ok(())
}
