//! The stage of a workload: the server, its observer, and the worker processes.

use std::env::current_exe;

use anyhow::{Context, Result};

use crate::measure::machine::{self, Machine};
use crate::measure::{Commands, process};
use crate::observer::Observer;
use crate::plan::Plan;
use crate::server::{self, Server};
use crate::variants::redisson::Redisson;
use crate::variants::{Library, Variant};
use crate::worker::process::Worker;
use crate::worker::protocol::Setup;

/// How long a variant keeps its locks that does so: longer than any pause of a workload.
const KEEP_MS: u64 = 1_000;

/// One server for all runs; workers wait here between their runs. A worker plays every kind of its library.
#[derive(Debug)]
pub struct Stage {
    pub plan: Plan,
    pub observer: Observer,
    pub server: Server,
    redisson: Option<Redisson>,
    idle: Vec<(Library, Worker)>,
    machine: Machine,
}

impl Stage {
    pub async fn set(plan: Plan) -> Result<Self> {
        let server = Server::start().await?;
        let mut observer = Observer::connect(&server.url()).await?;
        let mut machine = machine::facts();
        machine.insert("redis-server".to_owned(), observer.version().await?);
        machine.insert("redis-server options".to_owned(), server::options());
        machine
            .insert("options".to_owned(), std::env::args().skip(1).collect::<Vec<_>>().join(" "));
        Ok(Self { plan, observer, server, redisson: None, idle: Vec::new(), machine })
    }

    /// The Java program, or why there is none: the report says so.
    pub fn set_redisson(&mut self, built: Result<Redisson>) {
        match built {
            Ok(built) => self.redisson = Some(built),
            Err(error) => {
                self.machine.insert("redisson".to_owned(), format!("left out: {error:#}"));
            }
        }
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn setup(&self, variant: Variant) -> Setup {
        let keep_ms = (variant.library == Library::ParklockKept).then_some(KEEP_MS);
        Setup { url: self.server.url(), kind: variant.kind, keep_ms, ..Setup::default() }
    }

    /// Workers that may have played for `variant` before, so that a JVM stays warm.
    pub async fn hire(&mut self, variant: Variant, count: usize) -> Result<Vec<Worker>> {
        let mut crew = Vec::with_capacity(count);
        for _ in 0..count {
            let waiting = self.idle.iter().position(|(library, _)| *library == variant.library);
            crew.push(match waiting {
                Some(at) => self.idle.swap_remove(at).1,
                None => self.fresh(variant).await?,
            });
        }
        Ok(crew)
    }

    /// A new process, where memory is to be measured.
    pub async fn fresh(&mut self, variant: Variant) -> Result<Worker> {
        let (program, args) = if variant.on_the_jvm() {
            let built = self.redisson.as_ref().context("the Java program is not built")?;
            built.command()
        } else {
            let args = vec!["worker".to_owned(), variant.library.name().to_owned()];
            (current_exe()?, args)
        };
        let worker = Worker::start(&program, &args).await?;
        self.machine.extend(worker.versions.clone());
        Ok(worker)
    }

    /// Keeps the crew for the next round.
    pub fn thank(&mut self, variant: Variant, crew: Vec<Worker>) {
        let warm = crew.into_iter().map(|mut worker| {
            worker.is_warm = true;
            (variant.library, worker)
        });
        self.idle.extend(warm);
    }

    /// Ends the workers that wait, so that none disturbs the next workload.
    pub fn clear(&mut self) {
        self.idle.clear();
    }

    /// Starts counting what a run costs the server and `crew`.
    pub async fn meter(&mut self, crew: &[&Worker]) -> Result<Meter> {
        let clients = crew.iter().map(|worker| worker.pid()).collect::<Result<_>>()?;
        let mut meter = Meter { server: self.server.pid(), clients, start: Reading::default() };
        meter.start = meter.read(&mut self.observer).await?;
        Ok(meter)
    }
}

/// Reads the same counters twice.
#[derive(Debug)]
pub struct Meter {
    server: u32,
    clients: Vec<u32>,
    start: Reading,
}

/// Usage: seconds of processor time, and commands.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub server_cpu: f64,
    pub client_cpu: f64,
    pub commands: Commands,
}

impl Meter {
    /// The usage since the start.
    pub async fn used(&self, observer: &mut Observer) -> Result<Reading> {
        let now = self.read(observer).await?;
        Ok(Reading {
            server_cpu: now.server_cpu - self.start.server_cpu,
            client_cpu: now.client_cpu - self.start.client_cpu,
            commands: now.commands.since(&self.start.commands),
        })
    }

    async fn read(&self, observer: &mut Observer) -> Result<Reading> {
        let clients = self.clients.iter().map(|&pid| process::cpu_seconds(pid));
        Ok(Reading {
            server_cpu: process::cpu_seconds(self.server)?,
            client_cpu: clients.sum::<Result<f64>>()?,
            commands: observer.commands().await?,
        })
    }
}
