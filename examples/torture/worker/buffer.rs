//! A buffer with room for a few items, in a file that all workers of a namespace share. It compares tokens, as what a lock protects should. A worker
//! may be killed at any moment: each change is one write.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::settings::{NAMESPACE, label};

/// How many items there is room for.
const ROOM: u64 = 3;

static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Items are numbered from one. Those that are in it follow each other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Buffer {
    /// The greatest token that it has seen.
    token: u64,
    put: u64,
    taken: u64,
}

/// It lies beside the records, and each namespace has one: its lock guards it.
pub fn open(record: &Path, namespace: Option<&str>) {
    let _ = FILE.set(file(record.parent().unwrap_or(record), namespace));
}

/// Beside the folder of the records, where workers of older versions look for it, too.
fn file(records: &Path, namespace: Option<&str>) -> PathBuf {
    records.with_extension(label(namespace, "buffer"))
}

/// All of them: they are to be removed with the records.
pub fn files(records: &Path) -> [PathBuf; 2] {
    [None, Some(NAMESPACE)].map(|namespace| file(records, namespace))
}

impl Buffer {
    /// Looks at it, and changes it. `None`: somebody with a greater token was here before.
    pub fn with<T>(token: u64, act: impl FnOnce(&mut Self) -> T) -> io::Result<Option<T>> {
        let path = FILE.get().expect("a worker has one");
        let file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        // Until the file is closed.
        file.lock()?;
        let mut buffer = Self::read(&file)?;
        if token < buffer.token {
            return Ok(None);
        }
        buffer.token = token;
        let acted = act(&mut buffer);
        buffer.write(&file)?;
        Ok(Some(acted))
    }

    fn read(file: &File) -> io::Result<Self> {
        let mut bytes = [0; 24];
        let read = file.read_at(&mut bytes, 0)?;
        let number = |at: usize| {
            let word = bytes[at * 8..][..8].try_into().expect("eight bytes");
            u64::from_be_bytes(word)
        };
        match read {
            24 => Ok(Self { token: number(0), put: number(1), taken: number(2) }),
            _ => Ok(Self::default()),
        }
    }

    fn write(self, file: &File) -> io::Result<()> {
        let bytes = [self.token, self.put, self.taken].map(u64::to_be_bytes).concat();
        file.write_all_at(&bytes, 0)
    }

    pub fn len(&self) -> u64 {
        self.put - self.taken
    }

    pub fn is_full(&self) -> bool {
        self.len() >= ROOM
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts an item in. Returns `false` if there is no room.
    pub fn put(&mut self) -> bool {
        let has_room = !self.is_full();
        self.put += u64::from(has_room);
        has_room
    }

    /// Takes an item out. Returns `false` if there is none.
    pub fn take(&mut self) -> bool {
        let has_one = !self.is_empty();
        self.taken += u64::from(has_one);
        has_one
    }
}
