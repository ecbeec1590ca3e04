//! The holder goes: how long until the next one has the lock?

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Plan;
use crate::contenders::{self, Contender, Terms};
use crate::holder::Holder;
use crate::proxy::Proxy;
use crate::rows::Row;
use crate::table::Column;

pub fn columns(plan: &Plan) -> Vec<Column> {
    let cap = plan.cap().as_secs_f64();
    vec![
        Column::Capped("holder killed", cap),
        Column::Capped("holder killed in a statement", cap),
        Column::Capped("holder stopped", cap),
        Column::Capped("link cut", cap),
        Column::Capped("released, a waiter in front killed", cap),
    ]
}

/// What comes upon the holder.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// `kill -9`: the kernel closes its connections.
    Killed,
    /// The same, while a statement runs on the connection that has the lock. The server may hear of it only when it next
    /// reads from the connection.
    KilledInAStatement,
    /// SIGSTOP: its connections stay open and silent, as those of a host that is gone.
    Stopped,
    /// It runs on, but no byte comes from it or reaches it, and no connection is closed.
    LinkCut,
}

impl Fate {
    const ALL: [Self; 4] = [Self::Killed, Self::KilledInAStatement, Self::Stopped, Self::LinkCut];

    fn concerns(self, row: Row) -> bool {
        !matches!(self, Self::KilledInAStatement) || row.has_statements()
    }

    /// A process that holds the lock, and is ready for this fate.
    async fn holder(self, row: Row, terms: Terms<'_>, plan: &Plan, link: &Proxy) -> Result<Holder> {
        let program = &plan.program;
        let far = Terms { address: link.address(), ..terms };
        match self {
            Self::Killed | Self::Stopped => Holder::start(program, row, terms).await,
            Self::KilledInAStatement => {
                Holder::start_statement(program, row, terms, plan.statement()).await
            }
            Self::LinkCut => Holder::start(program, row, far).await,
        }
    }

    fn befall(self, holder: &mut Holder, link: &Proxy) {
        match self {
            Self::Killed | Self::KilledInAStatement => holder.kill(),
            Self::Stopped => holder.stop(),
            Self::LinkCut => link.cut(),
        }
    }
}

pub async fn run(row: Row, terms: Terms<'_>, plan: &Plan) -> Result<Vec<Option<f64>>> {
    let mut waits = Vec::new();
    for fate in Fate::ALL {
        let name = format!("{}-{fate:?}", terms.name);
        let terms = Terms { name: &name, ..terms };
        let applies = fate.concerns(row);
        waits.push(if applies { Some(wait_behind(row, terms, plan, fate).await?) } else { None });
    }
    let in_front = format!("{}-in-front", terms.name);
    let terms = Terms { name: &in_front, ..terms };
    waits.push(Some(wait_behind_a_dead_waiter(row, terms, plan).await?));
    Ok(waits)
}

/// Seconds from the fate of the holder until the next one has the lock. What is not over by then is as long as the cap.
async fn wait_behind(row: Row, terms: Terms<'_>, plan: &Plan, fate: Fate) -> Result<f64> {
    let next = contenders::open(row, terms).await?;
    let link = Proxy::to(terms.address).await?;
    let mut holder = fate.holder(row, terms, plan, &link).await?;
    let waiter = Waiter::start(next, plan.lead() + plan.cap());
    // The next one is in line by then, wherever there is one.
    sleep(plan.lead()).await;
    let gone = Instant::now();
    fate.befall(&mut holder, &link);
    waiter.seconds_since(gone, plan.cap()).await
}

/// One holds, a process waits, then the next one; the process is killed, and the holder releases. Seconds from the release until
/// the next one has the lock.
async fn wait_behind_a_dead_waiter(row: Row, terms: Terms<'_>, plan: &Plan) -> Result<f64> {
    let mut first = contenders::open(row, terms).await?;
    let next = contenders::open(row, terms).await?;
    first.lock().await?;
    let mut in_front = Holder::ask(&plan.program, row, terms)?;
    sleep(plan.lead()).await;
    let waiter = Waiter::start(next, plan.lead() + plan.cap());
    sleep(plan.lead()).await;
    in_front.kill();
    let released = Instant::now();
    first.unlock().await?;
    waiter.seconds_since(released, plan.cap()).await
}

/// When the next one got the lock, and itself.
type Locked = (Instant, Box<dyn Contender>);

/// The next one in line. It has nothing if it gave up.
struct Waiter(JoinHandle<Result<Option<Locked>>>);

impl Waiter {
    fn start(mut next: Box<dyn Contender>, limit: Duration) -> Self {
        Self(tokio::spawn(async move {
            let Ok(locked) = timeout(limit, next.lock()).await else { return Ok(None) };
            locked.map(|()| Some((Instant::now(), next)))
        }))
    }

    async fn seconds_since(self, begin: Instant, cap: Duration) -> Result<f64> {
        let Some((locked, mut next)) = self.0.await?? else { return Ok(cap.as_secs_f64()) };
        next.unlock().await?;
        Ok(locked.duration_since(begin).as_secs_f64())
    }
}
