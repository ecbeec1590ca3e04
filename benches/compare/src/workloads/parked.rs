//! W6: many tasks wait and nothing happens. What waiting itself costs.

use anyhow::{Result, bail};
use tokio::time::sleep;

use super::{Card, Run, Workload};
use crate::measure::Quantity::{
    BytesPerWaiter, ClientCore, CommandsPerName, RequestsPerName, ServerCore,
};
use crate::measure::{Sample, process};
use crate::plan::Plan;
use crate::stage::Stage;
use crate::variants::Variant;
use crate::worker::process::Worker;
use crate::worker::protocol::{Hold, Order, Park, Reply};

/// Tasks that wait at full size.
const TASKS: usize = 10_000;

#[derive(Debug)]
pub struct Parked {
    tasks: usize,
    names: usize,
}

impl Parked {
    pub fn on_one_name(plan: &Plan) -> Self {
        Self { tasks: plan.scaled(TASKS), names: 1 }
    }

    pub fn on_own_names(plan: &Plan) -> Self {
        let tasks = plan.scaled(TASKS);
        Self { tasks, names: tasks }
    }
}

impl Workload for Parked {
    fn card(&self) -> Card {
        let on = match self.names {
            1 => "on one name".to_owned(),
            names => format!("on {names} names"),
        };
        Card {
            id: "W6",
            name: if self.names == 1 { "parked-one" } else { "parked-many" },
            about: format!(
                "{} tasks parked {on} that another process holds (its renewals included)",
                self.tasks
            ),
            target: "at most 1 request per name in 5 s; client CPU below 1 % of a core (one name); at most 1.5 KiB",
            quantities: &[RequestsPerName, CommandsPerName, ClientCore, ServerCore, BytesPerWaiter],
            rounds: 1,
            left_out: &[
                (Variant::ParklockFair, "each of its waiters has a place of its own, and says so"),
                (Variant::Floor, "it cannot wait"),
                (Variant::Redisson, "a thread for each waiter is another measure"),
                (Variant::RedissonFair, "a thread for each waiter is another measure"),
            ],
        }
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(self.park(stage, variant))
    }
}

impl Parked {
    async fn park(&self, stage: &mut Stage, variant: Variant) -> Result<Sample> {
        stage.observer.empty().await?;
        let mut holder = self.holder(stage, variant).await?;
        let mut waiter = stage.fresh(variant).await?;
        let job = Park { setup: stage.setup(variant), tasks: self.tasks, names: self.names };
        waiter.prepare(Order::Park(job)).await?;
        let empty = process::resident_bytes(waiter.pid()?)?;
        waiter.tell(&Order::Go).await?;
        let Reply::Parked = waiter.hear().await? else {
            bail!("told to park, a worker did something else");
        };
        sleep(stage.plan.settle).await;

        let meter = stage.meter(&[&waiter]).await?;
        sleep(stage.plan.parked).await;
        let used = meter.used(&mut stage.observer).await?;
        let full = process::resident_bytes(waiter.pid()?)?;
        for worker in [&mut waiter, &mut holder] {
            worker.tell(&Order::Stop).await?;
            worker.hear().await?;
        }

        let time = stage.plan.parked.as_secs_f64();
        let per_name = |count: u64| count as f64 / self.names as f64 / time * 5.0;
        let mut sample = Sample::default();
        sample.set(RequestsPerName, per_name(used.commands.sent(variant.sent_bare())));
        sample.set(CommandsPerName, per_name(used.commands.run()));
        sample.set(ClientCore, used.client_cpu / time);
        sample.set(ServerCore, used.server_cpu / time);
        sample.set(BytesPerWaiter, full.saturating_sub(empty) as f64 / self.tasks as f64);
        sample.commands = used.commands;
        Ok(sample)
    }

    async fn holder(&self, stage: &mut Stage, variant: Variant) -> Result<Worker> {
        let mut holder = stage.fresh(variant).await?;
        let job = Hold { setup: stage.setup(variant), names: self.names };
        holder.prepare(Order::Hold(job)).await?;
        holder.tell(&Order::Go).await?;
        match holder.hear().await? {
            Reply::Held => Ok(holder),
            other => bail!("told to hold, a worker said {other:?}"),
        }
    }
}
