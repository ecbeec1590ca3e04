//! A number that the holders of a lock count up, whatever process they are in.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::{env, process};

use anyhow::{Context, Result};

/// A number in a file. It is read and written back by two steps: if two holders are inside at once, a turn gets lost.
#[derive(Debug)]
pub struct Counter {
    file: File,
    path: PathBuf,
    /// Whether the file is removed with this value.
    is_ours: bool,
}

impl Counter {
    /// Nought, in a new file.
    pub fn create() -> Result<Self> {
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { memory } else { env::temp_dir() };
        let path = folder.join(format!("parklock-{}-{:x}", process::id(), fastrand::u64(..)));
        let made = File::options().read(true).write(true).create_new(true).open(&path);
        let file = made.with_context(|| format!("{} cannot be made", path.display()))?;
        let counter = Self { file, path, is_ours: true };
        counter.write(0)?;
        Ok(counter)
    }

    /// One that another process has made.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { file, path: path.to_owned(), is_ours: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn read(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn write(&self, number: u64) -> Result<()> {
        Ok(self.file.write_all_at(&number.to_le_bytes(), 0)?)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}
