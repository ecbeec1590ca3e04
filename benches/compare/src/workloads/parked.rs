//! W6: many tasks wait and nothing happens. What waiting itself costs, and how fast they are through in the end.

use anyhow::Result;
use tokio::time::sleep;

use super::standing::{Callers, Standing};
use super::{Card, Ratio, Run, Workload};
use crate::measure::Quantity::{
    AllThrough, BytesPerWaiter, BytesReplicated, ClientCore, CommandsPerName, Requests,
    RequestsPerName, Served, ServerCore,
};
use crate::measure::Sample;
use crate::plan::Plan;
use crate::stage::Stage;
use crate::variants::{Library, Variant};

/// Tasks that wait at full size, and in the variant of few.
const TASKS: usize = 10_000;
const FEW: usize = 2_000;

#[derive(Debug)]
pub struct Parked {
    name: &'static str,
    tasks: usize,
    names: usize,
    seconds: f64,
}

impl Parked {
    pub fn on_one_name(plan: &Plan) -> Self {
        Self::new(plan, "parked-one", waiters(plan), 1)
    }

    pub fn few_on_one_name(plan: &Plan) -> Self {
        Self::new(plan, "parked-few", waiters(plan).min(plan.scaled(FEW)), 1)
    }

    pub fn on_own_names(plan: &Plan) -> Self {
        let tasks = waiters(plan);
        Self::new(plan, "parked-many", tasks, tasks)
    }

    fn new(plan: &Plan, name: &'static str, tasks: usize, names: usize) -> Self {
        Self { name, tasks, names, seconds: plan.parked.as_secs_f64() }
    }
}

fn waiters(plan: &Plan) -> usize {
    plan.waiters.unwrap_or_else(|| plan.scaled(TASKS))
}

impl Workload for Parked {
    fn card(&self) -> Card {
        let on = match self.names {
            1 => "on one name".to_owned(),
            names => format!("on {names} names"),
        };
        Card {
            id: "W6",
            name: self.name.to_owned(),
            about: format!(
                "{} tasks parked for {} s {on} that another process holds (its renewals included)",
                self.tasks, self.seconds
            ),
            target: "at most 5 requests a second and name, 50 in 10 s on one name; CPU below 1 % of a core; at most \
                     1.3 KiB a waiter on one name, 2.5 KiB on its own; all through at the speed of W3",
            quantities: &[
                Requests,
                RequestsPerName,
                CommandsPerName,
                BytesReplicated,
                ClientCore,
                ServerCore,
                BytesPerWaiter,
                Served,
                AllThrough,
            ],
            rounds: 1,
            ratio: Ratio::OursOverThis,
            left_out: &[
                (Variant::FLOOR, "it cannot wait"),
                (Variant::REDISSON, "a thread for each waiter is another measure"),
                (Variant::REDISSON_FAIR, "a thread for each waiter is another measure"),
            ],
        }
    }

    /// Each kind of parklock, then the other variants that were asked for.
    fn cast(&self, asked: &[Variant]) -> Vec<Variant> {
        let mut cast: Vec<Variant> = Variant::all_of(Library::Parklock).collect();
        let others = asked.iter().filter(|variant| variant.library != Library::Parklock);
        cast.extend(others);
        cast
    }

    fn run<'a>(&'a self, stage: &'a mut Stage, variant: Variant) -> Run<'a> {
        Box::pin(async move {
            let port = stage.server.port();
            stage.observer.open_backlog(port).await?;
            let sample = self.park(stage, variant).await?;
            stage.observer.close_backlog().await?;
            Ok(sample)
        })
    }
}

impl Parked {
    async fn park(&self, stage: &mut Stage, variant: Variant) -> Result<Sample> {
        let callers = Callers { kinds: vec![variant.kind], callers: self.tasks, names: self.names };
        let standing = Standing::gather(stage, variant, callers).await?;
        sleep(stage.plan.settle).await;

        let replicated = stage.observer.replicated().await?;
        let meter = stage.meter(&[&standing.waiter]).await?;
        sleep(stage.plan.parked).await;
        let used = meter.used(&mut stage.observer).await?;
        let replicated = stage.observer.replicated().await?.saturating_sub(replicated);

        let per_name = |count: u64| count as f64 / self.names as f64 / self.seconds * 5.0;
        let requests = used.commands.sent(variant.sent_bare());
        let mut sample = Sample::default();
        sample.set(Requests, requests as f64);
        sample.set(RequestsPerName, per_name(requests));
        sample.set(CommandsPerName, per_name(used.commands.run()));
        sample.set(BytesReplicated, replicated as f64);
        sample.set(ClientCore, used.client_cpu / self.seconds);
        sample.set(ServerCore, used.server_cpu / self.seconds);
        sample.set(BytesPerWaiter, standing.bytes_per_caller()?);
        sample.commands = used.commands;
        standing.release(stage.plan.limit, &mut sample).await?;
        Ok(sample)
    }
}
