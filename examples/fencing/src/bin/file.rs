//! Fencing in a file: `cargo run -p fencing-examples --bin file`, with a Redis at `REDIS_URL`.
//!
//! A file cannot compare. So everybody who reads it to write it, or writes it, compares under a lock of the operating system.
//! That lock holds for this moment, and on this machine.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use fencing_examples::{Account, Result, tell};

struct Ledger(PathBuf);

impl Ledger {
    /// The greatest token that has read or written, and the balance.
    fn content(&self) -> Result<(u64, i64)> {
        let text = fs::read_to_string(&self.0)?;
        let (token, balance) = text.trim().split_once(' ').ok_or("not a ledger")?;
        Ok((token.parse()?, balance.parse()?))
    }

    /// The new text takes the place of the old one in one step: a reader, or a crash, never sees half of it. It is on the disk
    /// before it has the name, or else a crash of the machine might leave an empty file.
    fn replace(&self, token: u64, balance: i64) -> Result<()> {
        let new = self.0.with_extension("new");
        let mut file = File::create(&new)?;
        writeln!(file, "{token} {balance}")?;
        file.sync_all()?;
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

    async fn look(&mut self) -> Result<i64> {
        Ok(self.content()?.1)
    }

    async fn read(&mut self, token: u64) -> Result<Option<i64>> {
        let _lock = self.locked()?;
        let (greatest, balance) = self.content()?;
        if token < greatest {
            return Ok(None);
        }
        self.replace(token, balance).map(|()| Some(balance))
    }

    async fn write_blindly(&mut self, balance: i64) -> Result<()> {
        let _lock = self.locked()?;
        self.replace(self.content()?.0, balance)
    }

    async fn write(&mut self, balance: i64, token: u64) -> Result<bool> {
        let _lock = self.locked()?;
        if token < self.content()?.0 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_late_write_between_a_read_and_a_write_is_refused() {
        let name = format!("parklock-ledger-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).expect("a directory of our own");
        let mut account = Ledger(dir.join("account.txt"));
        let written = fencing_examples::cross(&mut account).await.expect("both have read");
        assert_eq!(written, (false, true));
        assert_eq!(account.look().await.expect("a balance"), 130);
        assert_eq!(account.read(1).await.expect("an answer"), None);
        fs::remove_dir_all(dir).expect("it is ours");
    }
}
