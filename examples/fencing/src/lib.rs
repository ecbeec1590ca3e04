//! A story of two processes and one account, told on a real resource: see [`tell`].

use std::env;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use parklock::{Client, Config, Error, Lock};
use rustix::process::{Pid, Signal, kill_process};

/// Whatever goes wrong, the story ends.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An account somewhere, with a number beside its balance: the greatest token that has read or written it.
pub trait Account: Sized {
    fn open(place: &str) -> impl Future<Output = Result<Self>>;

    /// Begins anew: this balance, and token 0.
    fn reset(&mut self, balance: i64) -> impl Future<Output = Result<()>>;

    /// The balance, for somebody who does not write.
    fn look(&mut self) -> impl Future<Output = Result<i64>>;

    /// The balance, for a holder that is going to write. From now on, no smaller token can write. `None`: a greater token
    /// was here before.
    fn read(&mut self, token: u64) -> impl Future<Output = Result<Option<i64>>>;

    /// Writes, whoever has written meanwhile.
    fn write_blindly(&mut self, balance: i64) -> impl Future<Output = Result<()>>;

    /// Writes, unless somebody with a greater token has read or written. Returns whether it has written.
    fn write(&mut self, balance: i64, token: u64) -> impl Future<Output = Result<bool>>;
}

/// Two processes add to one account, under one lock. The first one is paused (`SIGSTOP`) between its last look at the
/// lock and its write, for longer than its lease. The second one gets the lock, as it should, and writes. Then the first
/// one wakes up, and its write is on its way. Once without tokens, and once with them.
pub async fn tell<A: Account>(place: &str) -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    if let Some(manner) = env::args().nth(1) {
        return pay_in::<A>(&url, place, manner == "fenced").await;
    }
    for manner in ["blind", "fenced"] {
        let mut account = A::open(place).await?;
        account.reset(100).await?;
        let mut first = Teller::start(manner)?;
        println!("\n{manner}: the account has 100\nfirst:  {}", first.says()?);
        first.signal(Signal::STOP)?;
        first.go_on()?; // it will hear that when it wakes up
        println!("first:  paused for longer than its lease, just before it writes");

        let guard = lock(&url).await?.lock().await?;
        let token = guard.token().get();
        let balance = account.read(token).await?.ok_or("its token is the latest")? + 30;
        assert!(account.write(balance, token).await?, "its token is the latest");
        println!("second: the lock is free, adds 30 under token {token}, which makes {balance}");
        guard.unlock().await?;

        first.signal(Signal::CONT)?;
        println!("first:  {}", first.says()?);
        println!("{manner}: the account has {}", account.look().await?);
    }
    Ok(())
}

/// A lock that outlives a silent holder by two seconds.
async fn lock(url: &str) -> Result<Lock> {
    let config = Config::default().watchdog_timeout(Duration::from_secs(2));
    loop {
        match Client::connect_with(url, config.clone()).await {
            // Such a lease leaves half a second for an answer, which a busy machine may miss.
            Err(error @ Error::Unavailable { .. }) => eprintln!("tries again: {error}"),
            connected => return Ok(connected?.lock("account:1")),
        }
    }
}

/// What the first process does: it adds 50.
async fn pay_in<A: Account>(url: &str, place: &str, is_fenced: bool) -> Result<()> {
    let mut account = A::open(place).await?;
    let guard = lock(url).await?.lock().await?;
    let token = guard.token().get();
    let found = if is_fenced {
        account.read(token).await?.ok_or("its token is the latest")?
    } else {
        account.look().await?
    };
    let balance = found + 50;
    assert!(guard.is_valid(), "so it looks before it writes");
    println!("holds the lock, adds 50 under token {token}, which makes {balance}");
    // Here it is paused. No check before this line could have helped.
    tokio::task::spawn_blocking(|| stdin().lines().next().transpose()).await??;
    let wrote = if is_fenced {
        account.write(balance, token).await?
    } else {
        account.write_blindly(balance).await.map(|()| true)?
    };
    let outcome = if wrote { "wakes up and writes" } else { "wakes up, and its write is refused" };
    let told = if guard.unlock().await.is_err() { "lost" } else { "still its own" };
    println!("{outcome}; then it hears that the lock was {told}");
    Ok(())
}

/// Two holders, one after the other. Both have read when the first one writes, too late. Returns who has written.
pub async fn cross<A: Account>(account: &mut A) -> Result<(bool, bool)> {
    account.reset(100).await?;
    let first = account.read(1).await?.ok_or("nobody was here before")?;
    let second = account.read(2).await?.ok_or("its token is the latest")?;
    Ok((account.write(first + 50, 1).await?, account.write(second + 30, 2).await?))
}

/// The first process: this program once more.
struct Teller {
    child: Child,
    orders: ChildStdin,
    words: BufReader<ChildStdout>,
}

impl Teller {
    fn start(manner: &str) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(manner).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, words) = pipes.ok_or("a process without pipes")?;
        Ok(Self { child, orders, words: BufReader::new(words) })
    }

    fn says(&mut self) -> Result<String> {
        let mut line = String::new();
        self.words.read_line(&mut line)?;
        if line.is_empty() {
            Err("the first process has ended".into())
        } else {
            Ok(line.trim().into())
        }
    }

    fn go_on(&mut self) -> Result<()> {
        Ok(writeln!(self.orders, "write")?)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.ok_or("no process")?, signal)?)
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
