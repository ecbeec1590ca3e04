//! The proxies before the clients, or the wires between hosts, and their faults.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::common::{Class, Fault, Proxy};
use crate::schedule::{Harm, NetworkFault, Target, Way, Wire};
use crate::settings::PROXIES;
use crate::stage::Stage;
use crate::verdict::Tally;
use crate::wires::{self, Wires};

const SCRIPTS: [(&str, &str); 12] = [
    ("acquire", include_str!("../../lua/line/plain_acquire_uncontended.lua")),
    ("acquire together", include_str!("../../lua/line/take.lua")),
    ("release", include_str!("../../lua/line/plain_release_uncontended.lua")),
    ("renew", include_str!("../../lua/lock/renew.lua")),
    ("enter the line", include_str!("../../lua/line/zset_acquire_uncontended.lua")),
    ("leave the line", include_str!("../../lua/line/zset_release_uncontended.lua")),
    ("acquire", include_str!("../../lua/redisson/lock/acquire.lua")),
    ("acquire together", include_str!("../../lua/redisson/lock/all_or_none.lua")),
    ("release", include_str!("../../lua/redisson/lock/release.lua")),
    ("enter the line", include_str!("../../lua/redisson/fair/acquire.lua")),
    ("leave the line", include_str!("../../lua/redisson/fair/release.lua")),
    ("renew", include_str!("../../lua/redisson/fair/renew.lua")),
];

/// Faults that are over after their time, each as a task.
pub struct Network {
    proxies: Vec<&'static Proxy>,
    wires: Option<Arc<Wires>>,
    counts: Vec<(&'static str, Fault)>,
    running: JoinSet<(String, usize)>,
}

/// Five keys: the counter, and for each of two locks itself and its line.
const OF_TWO: &str = "\r\n$1\r\n5\r\n";

impl Network {
    pub async fn before(stage: &Stage, seed: u64) -> Self {
        let (mut proxies, mut counts) = (Vec::new(), Vec::new());
        for number in 0..PROXIES {
            let proxy = stage.proxy(seed.wrapping_add(number as u64)).await;
            let Some(proxy) = proxy else { break };
            let proxy: &'static Proxy = Box::leak(Box::new(proxy));
            for (name, text) in SCRIPTS {
                proxy.name_script(name, text);
            }
            for name in SCRIPTS.map(|(name, _)| name).into_iter().collect::<BTreeSet<_>>() {
                counts.push((name, proxy.script(name).count()));
            }
            for name in ["ASKING", "WAIT"] {
                counts.push((name, proxy.command(name).count()));
            }
            counts.push(("EVAL: the server had forgotten a script", proxy.command("EVAL").count()));
            let together = proxy.script("acquire together").about(OF_TWO).count();
            counts.push(("two locks in one acquire", together));
            let messages = proxy.messages().delay_reply(Duration::ZERO, Duration::ZERO);
            counts.push(("unlock messages", messages));
            proxies.push(proxy);
        }
        Self { proxies, wires: stage.wires(), counts, running: JoinSet::new() }
    }

    /// Workers share the proxies, and the last worker has none. Nor has one with a host.
    pub fn url(&self, worker: usize, stage: &Stage) -> String {
        self.proxies.get(worker).map_or_else(|| stage.url(), |proxy| proxy.url())
    }

    pub fn suffer(&mut self, proxy: usize, fault: NetworkFault, time: Duration) {
        let proxy = self.proxies[proxy];
        self.running.spawn(async move { harm(proxy, fault, time).await });
    }

    /// A worker's host is cut off these servers.
    pub fn cut_off(
        &mut self,
        (worker, servers): (usize, Range<usize>),
        way: Way,
        wire: Wire,
        time: Duration,
    ) {
        let wires = self.wires();
        self.running.spawn(async move {
            let near = [wires::client(worker).address];
            let whom = if servers.len() == 1 { "a server" } else { "all servers" };
            let far: Vec<_> = servers.map(|number| wires::server(number).address).collect();
            let cut = wires.cut(&near, &far, way, wire).await;
            sleep(time).await;
            wires.mend(cut).await;
            let what = if let Wire::Lossy(_) = wire { "behind a lossy wire" } else { "cut off" };
            let way = way.named();
            (format!("net: a worker {what}, from {whom}, {way}"), 1)
        });
    }

    /// The wire of a worker's host is pulled out. Two who do so at once put it back when the first one does.
    pub fn unplug(&mut self, worker: usize, time: Duration) {
        let wires = self.wires();
        self.running.spawn(async move {
            wires.plug(&wires::client(worker), "down").await;
            sleep(time).await;
            wires.plug(&wires::client(worker), "up").await;
            ("net: a worker unplugged".to_owned(), 1)
        });
    }

    fn wires(&self) -> Arc<Wires> {
        Arc::clone(self.wires.as_ref().expect("a network of our own"))
    }

    /// Waits for the end of all faults, and counts what happened.
    pub async fn heal(&mut self, tally: &mut Tally) {
        while let Some(done) = self.running.join_next().await {
            let (what, times) = done.expect("no panic in a fault");
            tally.add(&what, times as u64);
        }
        for (name, count) in &self.counts {
            tally.add(&format!("seen: {name}"), count.fired() as u64);
        }
    }
}

async fn harm(proxy: &'static Proxy, fault: NetworkFault, time: Duration) -> (String, usize) {
    match fault {
        NetworkFault::Frames { target, harm, times } => {
            let rule = match target {
                Target::Script(name) => {
                    assert!(
                        SCRIPTS.iter().any(|(known, _)| *known == name),
                        "no script is called {name}"
                    );
                    proxy.script(name)
                }
                Target::Command(name) => proxy.command(name),
                Target::Messages => proxy.messages(),
            };
            let rule = rule.first(times);
            let (what, fault) = match harm {
                Harm::CutBefore => ("cut before", rule.cut_before()),
                Harm::CutAfter => ("cut after", rule.cut_after()),
                Harm::CutWithin(bytes) => ("cut within", rule.cut_within(bytes)),
                Harm::DelayRequest(by) => ("late:", rule.delay_request(by, by / 2)),
                Harm::DelayReply(by) => ("late answer of", rule.delay_reply(by, by / 2)),
                Harm::HoldRequest => ("held:", rule.hold_request()),
                Harm::HoldReply => ("held answer of", rule.hold_reply()),
                Harm::Slice(bytes) => ("sliced answer of", rule.slice_reply(bytes)),
                Harm::Swallow => ("swallowed", rule.swallow_reply()),
            };
            sleep(time).await;
            fault.lift();
            (format!("net: {what} {}", named(target)), fault.fired())
        }
        NetworkFault::Blackhole { subscribers } => {
            let hole = proxy.blackhole(class(subscribers));
            sleep(time).await;
            hole.lift();
            (format!("net: blackhole, {}", whom(subscribers)), hole.fired())
        }
        NetworkFault::Reset { subscribers } => {
            let reset = proxy.reset(class(subscribers)).await;
            (format!("net: reset, {}", whom(subscribers)), reset)
        }
        NetworkFault::Away { subscribers } => {
            // New ones arrive when it is over.
            let hole = proxy.blackhole(class(Some(subscribers)));
            let cut = proxy.reset(class(Some(subscribers))).await;
            sleep(time).await;
            hole.lift();
            (format!("net: away, {}", whom(Some(subscribers))), cut)
        }
        NetworkFault::Refuse => {
            proxy.refuse().await;
            let cut = proxy.reset(None).await;
            sleep(time).await;
            proxy.accept_again().await;
            ("net: refused".to_owned(), cut)
        }
    }
}

fn named(target: Target) -> &'static str {
    match target {
        Target::Script(name) | Target::Command(name) => name,
        Target::Messages => "messages",
    }
}

fn class(subscribers: Option<bool>) -> Option<Class> {
    subscribers.map(|subscribers| if subscribers { Class::Subscriber } else { Class::Command })
}

fn whom(subscribers: Option<bool>) -> &'static str {
    match subscribers {
        None => "all",
        Some(true) => "subscribers",
        Some(false) => "commands",
    }
}
