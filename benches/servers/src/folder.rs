//! A fresh folder, removed on drop.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use anyhow::{Context, Result};

/// The user `nobody` and its group, on Debian and most others.
pub(crate) const NOBODY: u32 = 65534;

/// What the data lie on: it decides how long a synced write takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// The system's folder for temporary files.
    #[default]
    Disk,
    /// `/dev/shm`.
    Memory,
}

/// Lives as long as this value.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// `for_all`: every user can reach it. The system's folder may be ours alone.
    pub(crate) fn create(medium: Medium, for_all: bool) -> Result<Self> {
        let base = match medium {
            Medium::Memory => PathBuf::from("/dev/shm"),
            Medium::Disk if for_all && !is_open(&env::temp_dir()) => PathBuf::from("/tmp"),
            Medium::Disk => env::temp_dir(),
        };
        let path = base.join(format!("parklock-{}-{:x}", process::id(), fastrand::u64(..)));
        fs::create_dir(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Gives the folder to the user `nobody`.
pub(crate) fn give_away(folder: &Path) -> Result<()> {
    chown(folder, Some(NOBODY), Some(NOBODY)).context("the folder cannot be given to `nobody`")
}

/// Whether every user may pass through this folder and those above it.
fn is_open(folder: &Path) -> bool {
    folder.ancestors().all(|one| {
        fs::metadata(one).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
    })
}
