//! Turns of every kind beside other processes, which may run another version of parklock: see `scripts/fleet`.
//!
//! `fleet-turns URL native|redisson DIRECTORY WORKER/WORKERS TURNS`. Who is inside marks that in the directory. A wake-up that goes
//! missing between two versions is not made up for by a timer: all timers are longer than the run. This program uses nothing that
//! 0.1.0 lacks, because `scripts/fleet` builds it there too.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use parklock::{
    Client, Config, Error, FencingToken, Layout, Lock, MultiLock, Owner, Result, Semaphore,
};
use tokio::time::sleep;

/// Longer than a run.
const NEVER: Duration = Duration::from_secs(3600);

const INSIDE: Duration = Duration::from_micros(500);
const PERMITS: u32 = 2;
const PERIOD: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<()> {
    let [url, layout, directory, worker, turns] = std::env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .expect("URL LAYOUT DIRECTORY WORKER/WORKERS TURNS");
    let (number, workers) = worker.split_once('/').expect("WORKER/WORKERS");
    let layout = if layout == "redisson" { Layout::Redisson } else { Layout::Native };
    let config = Config::default().layout(layout).watchdog_timeout(NEVER).max_park(NEVER);
    let worker = Worker {
        client: Client::connect_with(&url, config).await?,
        layout,
        directory: directory.into(),
        number: number.parse().expect("a number"),
        workers: workers.parse().expect("a number"),
        turns: turns.parse().expect("a number"),
    };
    tokio::try_join!(
        worker.alone("plain", worker.client.lock("plain")),
        worker.alone("fair", worker.client.fair_lock("fair")),
        worker.alone("fenced", worker.client.redisson().fenced_lock("fenced")),
        worker.reentrant(),
        worker.reads_and_writes(),
        worker.permits("permits", worker.client.semaphore("permits", PERMITS)),
        worker.permits(
            "expirable",
            worker.client.redisson().expirable_semaphore("expirable", PERMITS)
        ),
        worker.several(),
        worker.latches(),
        worker.leader(),
        worker.job(),
        worker.conditions(),
    )?;
    worker.client.close().await;
    Ok(())
}

struct Worker {
    client: Client,
    layout: Layout,
    directory: PathBuf,
    number: u32,
    workers: u32,
    turns: u32,
}

impl Worker {
    /// Takes its turns, and says how long the longest of them took.
    async fn turns(&self, kind: &str, mut turn: impl AsyncFnMut(u32) -> Result<()>) -> Result<()> {
        let mut longest = Duration::ZERO;
        for n in 0..self.turns {
            let began = Instant::now();
            turn(n).await.inspect_err(|error| eprintln!("{kind}: {error}"))?;
            longest = longest.max(began.elapsed());
        }
        println!("{kind}: {} turns, the longest {longest:.0?}", self.turns);
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Nobody else is inside.
    async fn is_alone(&self, name: &str) {
        let mark = self.path(name);
        drop(File::create_new(&mark).unwrap_or_else(|error| panic!("two are in {name}: {error}")));
        assert_eq!(self.others(name), 0, "somebody shares {name}");
        sleep(INSIDE).await;
        assert_eq!(self.others(name), 0, "somebody shares {name}");
        fs::remove_file(mark).expect("it is ours");
    }

    /// Only others that share are inside, and no more than so many parts are taken.
    async fn shares(&self, name: &str, parts: u32, most: u32) {
        let marks: Vec<_> =
            (0..parts).map(|part| self.path(&format!("{name}.{}.{part}", self.number))).collect();
        marks.iter().for_each(|mark| drop(File::create_new(mark).expect("one call at a time")));
        assert!(!self.path(name).exists(), "somebody is alone in {name}");
        assert!(self.others(name) <= most as usize, "too many share {name}");
        sleep(INSIDE).await;
        assert!(!self.path(name).exists(), "somebody is alone in {name}");
        marks.iter().for_each(|mark| fs::remove_file(mark).expect("it is ours"));
    }

    /// How many parts of it are taken.
    fn others(&self, name: &str) -> usize {
        let begin = format!("{name}.");
        let marks = fs::read_dir(&self.directory).expect("the directory");
        let names = marks.map(|mark| mark.expect("a file").file_name());
        names.filter(|mark| mark.to_string_lossy().starts_with(&begin)).count()
    }

    /// It is greater than that of each earlier holder. Called while nobody else holds it.
    fn grows(&self, name: &str, token: FencingToken) {
        let file = self.path(&format!("token of {name}"));
        let before = fs::read_to_string(&file).map_or(0, |text| text.parse().expect("a number"));
        assert!(token.get() > before, "{name}: {token} after {before}");
        fs::write(file, token.get().to_string()).expect("the directory");
    }

    async fn alone(&self, name: &str, lock: Lock) -> Result<()> {
        self.turns(name, async |_| {
            let guard = lock.lock().await?;
            self.grows(name, guard.token());
            self.is_alone(name).await;
            guard.unlock().await
        })
        .await
    }

    async fn reentrant(&self) -> Result<()> {
        let lock = self.client.reentrant_lock("reentrant").owned_by(&Owner::new());
        self.turns("re-entrant", async |_| {
            let outer = lock.lock().await?;
            let inner = lock.lock().await?;
            outer.unlock().await?;
            self.is_alone("reentrant").await;
            inner.unlock().await
        })
        .await
    }

    async fn reads_and_writes(&self) -> Result<()> {
        let lock = self.client.rw_lock("rw");
        self.turns("read and write", async |n| {
            if n % 3 == 0 {
                let guard = lock.write().await?;
                self.is_alone("rw").await;
                guard.unlock().await
            } else {
                let guard = lock.read().await?;
                self.shares("rw", 1, self.workers).await;
                guard.unlock().await
            }
        })
        .await
    }

    async fn permits(&self, name: &str, semaphore: Semaphore) -> Result<()> {
        semaphore.set_permits_if_unset(PERMITS).await?;
        self.turns(name, async |n| {
            let parts = if n % 4 == 0 { PERMITS } else { 1 };
            let guard = semaphore.acquire_many(parts).await?;
            self.shares(name, parts, PERMITS).await;
            guard.unlock().await
        })
        .await
    }

    async fn several(&self) -> Result<()> {
        let mut names = ["several 1", "several 2"];
        names.rotate_left(self.number as usize % 2);
        let locks = MultiLock::new(names.map(|name| self.client.lock(name)));
        self.turns("several", async |_| {
            let guard = locks.lock().await?;
            for name in names {
                self.is_alone(name).await;
            }
            guard.unlock().await
        })
        .await
    }

    /// In each round, everybody waits until everybody has come.
    async fn latches(&self) -> Result<()> {
        self.turns("latches", async |n| {
            let latch = self.client.count_down_latch(format!("latch {n}"));
            latch.set(u64::from(self.workers)).await?;
            drop(File::create_new(self.path(&format!("latch {n}.{}", self.number))));
            latch.count_down().await?;
            latch.wait().await?;
            assert_eq!(self.others(&format!("latch {n}")), self.workers as usize, "latch {n}");
            Ok(())
        })
        .await
    }

    async fn leader(&self) -> Result<()> {
        let election = self.client.election("leader");
        self.turns("leader", async |_| {
            let leads = election.campaign().await?;
            self.grows("leader", leads.token());
            self.is_alone("leader").await;
            leads.step_down().await
        })
        .await
    }

    /// Until all of them together have done it so often.
    async fn job(&self) -> Result<()> {
        let job = self.client.every("job", PERIOD);
        let runs = self.path("runs");
        let mut ours = 0;
        while fs::read_to_string(&runs).map_or(0, |runs| runs.len()) < self.turns as usize {
            let work = async |_| {
                self.is_alone("job").await;
                let file = File::options().create(true).append(true).open(&runs);
                file.and_then(|mut file| file.write_all(b".")).expect("the directory");
            };
            ours += u32::from(job.run_if_due(work).await?.is_some());
            sleep(PERIOD / 4).await;
        }
        println!("job: {ours} of {} runs", self.turns);
        Ok(())
    }

    /// Everybody waits for the one before. Redisson has no conditions.
    async fn conditions(&self) -> Result<()> {
        if self.layout == Layout::Redisson {
            return Ok(());
        }
        let (lock, passed) = (self.client.lock("baton"), self.client.condition("passed"));
        let baton = self.path("baton at");
        let at = || fs::read_to_string(&baton).map_or(0, |text| text.parse().expect("a number"));
        self.turns("conditions", async |n| {
            let turn = n * self.workers + self.number;
            let guard = lock.lock().await?;
            let not_ours = async || Ok::<_, Error>(at() != turn);
            let guard = guard.wait_while(&passed, not_ours).await?;
            fs::write(&baton, (turn + 1).to_string()).expect("the directory");
            passed.notify_all().await?;
            guard.unlock().await
        })
        .await
    }
}
