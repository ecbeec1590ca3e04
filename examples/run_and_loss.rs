//! Loss: what happens when a lock is taken away while the work goes on.
//! Run it: `cargo run --example run_and_loss`

use std::sync::Mutex;
use std::time::{Duration, Instant};

use parklock::{Client, Config, Error, FencingToken, Result};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let config = Config::default().watchdog_timeout(Duration::from_secs(3));
    let client = Client::connect_with(&url, config).await?;
    let lock = client.lock("ledger");
    let ledger = Ledger::default();
    let since = Instant::now();

    // `run` locks, works, unlocks. If the lock is lost first, the work is dropped where it stands.
    let operator = lock.clone();
    let mut mine = None;
    let outcome = lock
        .run(|hold| {
            mine = Some(hold.token());
            async move {
                println!("working, with token {}", hold.token());
                operator.force_unlock().await.expect("Redis answers"); // an operator, or a failover
                sleep(Duration::from_secs(60)).await;
                println!("never printed");
            }
        })
        .await;
    assert!(matches!(outcome, Err(Error::Lost { .. })));
    println!("lost; the work was stopped after {:.1?}", since.elapsed());

    // Work that cannot be stopped, like a request on its way, can still arrive late. The resource
    // is safe if it remembers the greatest token it has seen and refuses smaller ones.
    let guard = lock.lock().await?;
    println!("the next holder writes: accepted {}", ledger.write(guard.token(), "new"));
    let late = mine.expect("run called the closure");
    println!("the first one's late write: accepted {}", ledger.write(late, "old"));
    guard.unlock().await?;

    client.close().await;
    Ok(())
}

/// Stands for the database: in SQL, `UPDATE .. SET token = $1 .. WHERE token <= $1`.
#[derive(Default)]
struct Ledger(Mutex<(Option<FencingToken>, String)>);

impl Ledger {
    fn write(&self, token: FencingToken, entry: &str) -> bool {
        let mut ledger = self.0.lock().expect("nobody panics here");
        let accepted = Some(token) >= ledger.0;
        if accepted {
            *ledger = (Some(token), entry.to_owned());
        }
        accepted
    }
}
