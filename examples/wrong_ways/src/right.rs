//! parklock on the schedules that several wrong ways share.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use parklock::Error;

use crate::harm::Harm;
use crate::stage::Stage;

/// A lease that is overrun.
pub const SHORT: Duration = Duration::from_millis(300);
/// A lease that nobody overruns here.
pub const LONG: Duration = Duration::from_secs(60);
/// The turns of a schedule that is repeated.
pub const TURNS: u32 = 5;

/// Longer than any lease here that has to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The holder is killed inside, and another client waits: for how long is nobody in?
pub async fn killed_holder(stage: &Stage, name: &str, lease: Duration) -> Result<Harm> {
    let client = stage.client_with(lease).await?;
    let way = format!("parklock:{}", lease.as_millis());
    let victim = stage.victim(&way, &stage.url(), name).await?;
    let lock = client.lock(name);
    ensure!(lock.try_lock().await?.is_none(), "the victim holds the lock");
    let killed = victim.kill();
    let guard = lock.try_lock_for(PATIENCE).await?.context("nobody got in behind a dead holder")?;
    let after = killed.elapsed();
    guard.unlock().await?;
    Ok(Harm::new(
        0,
        1,
        format!("the next is in after {after:.1?}, when the lease of {lease:.0?} ends"),
    ))
}

/// A overruns a lease that is not renewed, B enters, A gives back, C tries.
pub async fn late_release(stage: &Stage, name: &str) -> Result<Harm> {
    let clients = [stage.client().await?, stage.client().await?, stage.client().await?];
    let [a, b, c] = clients.map(|client| client.lock(name));
    let mut two_inside = 0;
    for _ in 0..TURNS {
        let guard_a = a.clone().lease(SHORT).lock().await?;
        let guard_b = b.lock().await?; // it gets in when the lease of A ends
        match guard_a.unlock().await {
            Err(Error::Lost { .. }) => {}
            other => bail!("A overran, and is told {other:?}"),
        }
        two_inside += u32::from(c.try_lock().await?.is_some() && guard_b.is_valid());
        guard_b.unlock().await?;
    }
    Ok(Harm::new(two_inside, TURNS, "A is told `Lost`, B stays, C is refused"))
}

/// How many are inside and not past their leases. Each entry is the end of a lease, counted from before it was asked for.
pub fn inside(leases: &[Instant]) -> usize {
    leases.iter().filter(|end| Instant::now() < **end).count()
}
