//! Allocations of a lock and unlock without contention, beside the floor: a bare pair of script calls on one connection.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::alloc::System;

use common::{Server, connect};
use parklock::Client;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, cmd};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: usize = 10_000;
const WARM_UP: usize = 500;

/// Takes the lock if it is free or ours. KEYS: lock. ARGV: lease in ms, owner.
const ACQUIRE: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return 1
end
return 0";

/// Gives one hold back and tells the channel after the last. KEYS: lock. ARGV: channel, owner.
const RELEASE: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return 0
end
if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[1], '0')
end
return 1";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Server::start().await;
    println!("allocations and reallocations per pair, over {PAIRS} pairs (bytes)");

    let mut floor = Floor::connect(&server).await;
    let ready = [floor.acquire(), floor.release()];
    report("floor, the commands built once", async || floor.send(&ready).await).await;
    let mut floor = Floor::connect(&server).await;
    let built = async || {
        let pair = [floor.acquire(), floor.release()];
        floor.send(&pair).await;
    };
    let least = report("floor, the commands built for each pair", built).await;
    drop(floor);

    let client = Client::connect(server.url()).await.expect("the server is there");
    let lock = client.lock("allocations");
    let ours = report("parklock, one handle", async || {
        lock.lock().await.expect("it is free").unlock().await.expect("it is ours");
    });
    let ours = ours.await;
    report("parklock, a handle for each pair", async || {
        let lock = client.lock("allocations");
        lock.lock().await.expect("it is free").unlock().await.expect("it is ours");
    })
    .await;
    report("parklock, handle only", async || drop(client.lock("allocations"))).await;
    let lock = client.reentrant_lock("allocations");
    report("parklock, re-entrant, one handle", async || {
        lock.lock().await.expect("it is free").unlock().await.expect("it is ours");
    })
    .await;
    println!("above the floor: {:.2}", ours - least);
}

async fn report(name: &str, mut pair: impl AsyncFnMut()) -> f64 {
    for _ in 0..WARM_UP {
        pair().await;
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..PAIRS {
        pair().await;
    }
    let Stats { allocations, reallocations, bytes_allocated, .. } = region.change();
    let each = |count: usize| count as f64 / PAIRS as f64;
    let (made, grown) = (each(allocations), each(reallocations));
    println!("{name:42} {made:6.2} + {grown:5.2}   ({:.0})", each(bytes_allocated));
    made + grown
}

struct Floor {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
}

impl Floor {
    async fn connect(server: &Server) -> Self {
        let mut connection = connect(&server.url()).await;
        let acquire = load(&mut connection, ACQUIRE).await;
        let release = load(&mut connection, RELEASE).await;
        Self { connection, acquire, release }
    }

    fn acquire(&self) -> Cmd {
        let mut call = Cmd::with_capacity(8, 256);
        call.arg("EVALSHA").arg(&self.acquire).arg(1).arg("lock:{floor}");
        call.arg(30_000).arg("ce5b2f9e-76f8-4cb3-9d5c-f6bb3e4c4cb3:1");
        call
    }

    fn release(&self) -> Cmd {
        let mut call = Cmd::with_capacity(8, 256);
        call.arg("EVALSHA").arg(&self.release).arg(1).arg("lock:{floor}");
        call.arg("lock_channel:{floor}").arg("ce5b2f9e-76f8-4cb3-9d5c-f6bb3e4c4cb3:1");
        call
    }

    async fn send(&mut self, pair: &[Cmd; 2]) {
        for call in pair {
            let done: i64 = call.query_async(&mut self.connection).await.expect("an answer");
            assert_eq!(done, 1);
        }
    }
}

async fn load(connection: &mut MultiplexedConnection, script: &str) -> String {
    let mut load = cmd("SCRIPT");
    load.arg("LOAD").arg(script);
    load.query_async(connection).await.expect("redis takes it")
}
