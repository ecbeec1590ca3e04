//! False clocks for the workers, by `libfaketime`: it stands between a program and its C library.
//!
//! It shifts what the program is told of the date, and also what `Instant` reads, unless it is told not to. The records are
//! beyond its reach: `common::clock` asks the kernel itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::common::clock;
use crate::worker::record;

/// Between two steps of the clock that somebody sets all the time.
const PAUSE: Duration = Duration::from_secs(2);

const DAY: i64 = 24 * 60 * 60;

/// For this many nanoseconds a worker watches how fast its clock is.
const LONG: u64 = 1_000_000_000;

/// What the workers' clocks show.
#[derive(Debug)]
pub struct Clocks {
    library: PathBuf,
    /// The file that says what the clock shows that somebody sets all the time.
    set: PathBuf,
}

impl Clocks {
    /// `None` where the library is not installed.
    pub fn set(records: &Path) -> Option<Self> {
        let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let mut libraries = folders.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
        let Some(library) = libraries.find(|library| library.exists()) else {
            println!("left out: clocks that are wrong (libfaketime is missing)");
            return None;
        };
        let set = records.join("clock");
        step(&set, 0);
        let file = set.clone();
        // It ends with us.
        thread::spawn(move || {
            loop {
                thread::sleep(PAUSE);
                step(&file, fastrand::i64(-DAY..DAY));
            }
        });
        Some(Self { library, set })
    }

    /// The variables of a worker's process. Three of eight have a clock that is right.
    pub fn variables(&self, worker: usize) -> Vec<(&'static str, String)> {
        // A client never reads the date, and a clock that `Instant` reads may be anything but fast or slow by one in a hundred.
        let (name, value, only_the_date) = match worker {
            1 => ("FAKETIME", "+3d".to_owned(), true),
            2 => ("FAKETIME", "-400d".to_owned(), true),
            3 => ("FAKETIME_TIMESTAMP_FILE", self.set.display().to_string(), true),
            4 => ("FAKETIME", "+30d".to_owned(), false),
            // Slow, since that is the dangerous side: it believes in a lease for longer than it is.
            5 => ("FAKETIME", "+0 x0.995".to_owned(), false),
            _ => return Vec::new(),
        };
        let mut variables = vec![(name, value), ("FAKETIME_CACHE_DURATION", "1".to_owned())];
        variables.push(("LD_PRELOAD", self.library.display().to_string()));
        if only_the_date {
            variables.push(("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()));
        }
        variables
    }
}

fn step(file: &Path, seconds: i64) {
    let draft = file.with_extension("draft");
    let written = fs::write(&draft, format!("{seconds:+}\n"));
    written.and_then(|()| fs::rename(draft, file)).expect("a file of our own");
}

/// Says what is wrong with this process's clocks.
#[derive(Debug)]
pub struct Witness {
    began: (Instant, u64),
    told: bool,
}

impl Witness {
    pub fn new() -> Self {
        Self { began: (Instant::now(), clock::now()), told: false }
    }

    /// To be called now and then.
    pub fn look(&mut self) {
        let truly = clock::now() - self.began.1;
        if self.told || truly < LONG {
            return;
        }
        self.told = true;
        let seconds = clock_gettime(ClockId::Realtime).tv_sec.unsigned_abs();
        let date = Duration::from_secs(seconds);
        let shown = date_shown();
        if shown.abs_diff(date) > Duration::from_secs(60) {
            record::reached("clock: its date is wrong");
        }
        let elapsed = self.began.0.elapsed().as_nanos();
        if elapsed.abs_diff(truly.into()) > u128::from(truly / 500) {
            record::reached("clock: it is slow");
        }
    }
}

/// The time since 1970, as programs are told it.
#[expect(clippy::disallowed_types, reason = "it looks at what nobody should rely on")]
fn date_shown() -> Duration {
    use std::time::SystemTime;
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
