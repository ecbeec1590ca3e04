//! Fencing in a file: `cargo run -p fencing-examples --bin file`, with a Redis at `REDIS_URL`.
//!
//! A file cannot compare. So everybody who writes it compares, under a lock of the operating system, which holds for the
//! moment of the write and on this machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fencing_examples::{Account, Result, tell};

struct Ledger(PathBuf);

impl Ledger {
    /// The token that has written last, and the balance.
    fn read(&self) -> Result<(u64, i64)> {
        let text = fs::read_to_string(&self.0)?;
        let (token, balance) = text.trim().split_once(' ').ok_or("not a ledger")?;
        Ok((token.parse()?, balance.parse()?))
    }

    /// The new text takes the place of the old one in one step: a reader, or a crash, never sees half of it.
    fn replace(&self, token: u64, balance: i64) -> Result<()> {
        let new = self.0.with_extension("new");
        fs::write(&new, format!("{token} {balance}\n"))?;
        Ok(fs::rename(new, &self.0)?)
    }

    /// Held until it is dropped. It is a file of its own, since the ledger is replaced.
    fn locked(&self) -> Result<File> {
        let file = File::create(self.0.with_extension("lock"))?;
        file.lock()?;
        Ok(file)
    }
}

impl Account for Ledger {
    async fn open(place: &str) -> Result<Self> {
        Ok(Self(Path::new(place).to_owned()))
    }

    async fn reset(&mut self, balance: i64) -> Result<()> {
        let _lock = self.locked()?;
        self.replace(0, balance)
    }

    async fn balance(&mut self) -> Result<i64> {
        Ok(self.read()?.1)
    }

    async fn write_blindly(&mut self, balance: i64) -> Result<()> {
        let _lock = self.locked()?;
        self.replace(self.read()?.0, balance)
    }

    async fn write(&mut self, balance: i64, token: u64) -> Result<bool> {
        let _lock = self.locked()?;
        if token < self.read()?.0 {
            return Ok(false);
        }
        self.replace(token, balance).map(|()| true)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let place = std::env::var("ACCOUNT").unwrap_or("account.txt".into());
    tell::<Ledger>(&place).await
}
