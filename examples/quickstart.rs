//! A lock across processes, seen at work: `./scripts/quickstart`, or on a server or a cluster of your own
//! `REDIS_URL=redis-cluster://... cargo run --example quickstart`.
//!
//! Four worker processes sell one stock. Each sale reads the stock and writes it back smaller, which
//! loses sales unless they take turns. The lock must make the last one leave exactly zero, although
//! one worker is killed while it holds the lock, and another process keeps it longer than its lease.

use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, Instant};

use parklock::{Client, Config, Guard, ReentrantLock};
use redis::{AsyncTypedCommands, SetExpiry, SetOptions, aio::MultiplexedConnection};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::sleep;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const STOCK: u64 = 200;
const WORKERS: usize = 4;
const LEASE: Duration = Duration::from_secs(3);
const LOOKS: u32 = 4; // while we keep the lock: together longer than its lease
const BETWEEN: Duration = Duration::from_millis(1300);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => parent().await,
        ["worker", shop] => worker(&Shop::open(shop).await?).await,
        ["victim", shop] => victim(&Shop::open(shop).await?).await,
        _ => Err("run it without arguments".into()),
    }
}

// --- The parent: starts the others, kills one, and checks the result ---------------------------------

async fn parent() -> Result<()> {
    let name = format!("quickstart-{:08x}", fastrand::u32(..));
    let shop = Shop::open(&name).await?;
    shop.set_stock(STOCK).await?;
    println!(
        "\nA stock of {STOCK}, {WORKERS} worker processes, one lock with a lease of {LEASE:?}."
    );

    let outcome = story(&name, &shop).await;
    shop.clean_up().await?;
    outcome
}

async fn story(name: &str, shop: &Shop) -> Result<()> {
    println!("\n1. A worker takes the lock and is killed.");
    let guard = outlive_a_killed_worker(name, shop).await?;

    println!("\n2. We keep the lock past its first lease, while the workers wait.");
    let workers = (0..WORKERS).map(|_| start("worker", name)).collect::<Result<Vec<_>>>()?;
    keep(&guard, shop).await?;
    guard.unlock().await?;

    println!("\n3. We unlock, and the workers sell one at a time.");
    let sold = await_workers(workers).await?;

    let stock = shop.stock().await?;
    println!("\nSold {sold} of {STOCK}, stock is {stock}.");
    if (sold, stock) != (STOCK, 0) {
        return Err("sales were lost: the lock failed".into());
    }
    println!("Exactly zero: no sale was lost, none was made twice.");
    Ok(())
}

async fn outlive_a_killed_worker(name: &str, shop: &Shop) -> Result<Guard> {
    let mut victim = start("victim", name)?;
    let ready = read_line(&mut victim).await?;
    victim.kill().await?; // SIGKILL: it cannot give anything back
    println!("   {ready}; killed it, {} of its lease are left", shop.lease_left().await?);

    let since = Instant::now();
    let guard = shop.lock.lock().await?;
    println!("   Redis freed the lock by itself: it is ours after {}", seconds(since.elapsed()));
    Ok(guard)
}

async fn keep(guard: &Guard, shop: &Shop) -> Result<()> {
    for look in 1..=LOOKS {
        sleep(BETWEEN).await;
        let (kept, left) = (seconds(look * BETWEEN), shop.lease_left().await?);
        println!("   after {kept}, {left} of its lease are left");
    }
    if !guard.is_valid() {
        return Err("the lock was lost although it is renewed".into());
    }
    println!("   not renewed, it would have ended after {}", seconds(LEASE));
    Ok(())
}

/// Waits for all workers, prints what each did, and returns how many they sold together.
async fn await_workers(workers: Vec<Child>) -> Result<u64> {
    let mut total = 0;
    for mut worker in workers {
        let pid = worker.id().unwrap_or_default();
        let line = read_line(&mut worker).await?;
        let [waited, sold, holds] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("worker {pid} failed").into());
        };
        println!(
            "   worker {pid}: waited {waited} for its first turn, sold {sold}, nested to {holds} holds"
        );
        total += sold.parse::<u64>()?;
        worker.wait().await?;
    }
    Ok(total)
}

/// Starts this program again in another role.
fn start(role: &str, shop: &str) -> Result<Child> {
    let program = std::env::current_exe()?;
    Ok(Command::new(program)
        .args([role, shop])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?)
}

async fn read_line(child: &mut Child) -> Result<String> {
    let output = child.stdout.as_mut().ok_or("no output to read")?;
    Ok(BufReader::new(output).lines().next_line().await?.unwrap_or_default())
}

fn seconds(time: Duration) -> String {
    format!("{:.2}s", time.as_secs_f64())
}

// --- A worker: sells until nothing is left -------------------------------------------------------------

async fn worker(shop: &Shop) -> Result<()> {
    let since = Instant::now();
    shop.lock.lock().await?.unlock().await?;
    let waited = seconds(since.elapsed());

    let (mut sold, mut holds) = (0, 0);
    while let Some(deepest) = shop.sell().await? {
        (sold, holds) = (sold + 1, deepest);
        sleep(Duration::from_millis(5)).await; // wraps it up, without the lock
    }
    println!("{waited} {sold} {holds}"); // for the parent to read
    Ok(())
}

// --- The victim: takes the lock and never gives it back ------------------------------------------------

async fn victim(shop: &Shop) -> Result<()> {
    let _guard = shop.lock.lock().await?;
    println!("process {} has the lock", std::process::id());
    sleep(Duration::from_secs(60)).await;
    Err("nobody killed the victim".into())
}

/// A connection to the server that keeps what is protected. Of a cluster, any node says which one that is.
async fn server_of(key: &str, url: &str) -> Result<MultiplexedConnection> {
    let Some(nodes) = url.strip_prefix("redis-cluster://") else { return connect(url).await };
    let (login, nodes) = nodes.rsplit_once('@').unwrap_or(("", nodes));
    let node_url = |node: &str| format!("redis://{login}@{node}").replace("//@", "//");
    let mut any = connect(&node_url(nodes.split(',').next().unwrap_or(nodes))).await?;
    if let Err(error) = any.get(key).await {
        let (node, _) = error.redirect_node().ok_or("no node has the stock")?;
        return connect(&node_url(node)).await;
    }
    Ok(any)
}

async fn connect(url: &str) -> Result<MultiplexedConnection> {
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection().await?)
}

// --- The shop: what is protected, and the lock that protects it ----------------------------------------

struct Shop {
    client: Client,
    lock: ReentrantLock,
    redis: MultiplexedConnection,
    key: String,
}

impl Shop {
    async fn open(name: &str) -> Result<Self> {
        let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
        let client = Client::connect_with(&url, Config::default().watchdog_timeout(LEASE)).await?;
        let lock = client.reentrant_lock(name);
        let key = format!("stock:{{{name}}}");
        Ok(Self { client, lock, redis: server_of(&key, &url).await?, key })
    }

    /// Sells one: how many holds that took, or `None` if nothing is left to sell.
    async fn sell(&self) -> Result<Option<u32>> {
        let guard = self.lock.lock().await?;
        let stock = self.stock().await?;
        let holds = match stock {
            0 => None,
            _ => Some(self.set_stock(stock - 1).await?),
        };
        guard.unlock().await?;
        Ok(holds)
    }

    /// Takes the lock itself, so that it is safe on its own too. If the caller has the lock already, it does not wait
    /// for itself: it re-enters.
    async fn set_stock(&self, stock: u64) -> Result<u32> {
        let guard = self.lock.lock().await?;
        let for_a_while = SetOptions::default().with_expiration(SetExpiry::EX(600));
        self.redis.clone().set_options(&self.key, stock, for_a_while).await?;
        let holds = guard.hold_count();
        guard.unlock().await?;
        Ok(holds)
    }

    async fn stock(&self) -> Result<u64> {
        let stock = self.redis.clone().get(&self.key).await?;
        Ok(stock.ok_or("the stock is gone")?.parse()?)
    }

    async fn lease_left(&self) -> Result<String> {
        Ok(seconds(self.lock.ttl().await?.unwrap_or_default()))
    }

    async fn clean_up(&self) -> Result<()> {
        self.redis.clone().del(&self.key).await?;
        self.client.close().await;
        Ok(())
    }
}
