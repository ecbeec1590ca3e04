//! A network of our own: a bridge, to which each host is tied by a wire. The wires are cut, and made slow.
//!
//! Packets between two hosts pass the bridge's filter, which drops those of a cut without a word to anybody. We ourselves are at
//! the bridge, and reach every host all the time. All of it lies in the network namespace that `scripts/partitions` runs us in,
//! and goes with it.

use std::io;
use std::net::Ipv4Addr;
use std::process::{Output, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::common::port::Host;
use crate::schedule::{Way, Wire};

/// What a slow wire does: it delays packets, not all of them by as much, so that some overtake others, loses some, and repeats some.
const BAD: &str = "netem delay 20ms 15ms loss 3% duplicate 1% reorder 20% 50%";
/// Where the kernel does not have that: packets wait behind each other, and those that come when 300 ms of them wait are lost.
const THIN: &str = "tbf rate 1mbit burst 5kb latency 300ms";

pub fn server(number: usize) -> Host {
    host("s", number, 1)
}

pub fn client(number: usize) -> Host {
    host("c", number, 101)
}

fn host(kind: &str, number: usize, first: usize) -> Host {
    let last = u8::try_from(first + number).expect("few hosts");
    Host { name: format!("{kind}{number}"), address: Ipv4Addr::new(10, 77, 0, last) }
}

#[derive(Debug)]
pub struct Wires {
    /// What makes a wire slow.
    slow: &'static str,
    /// The filter takes one change at a time.
    turn: Mutex<()>,
}

/// What is in the filter because of one cut.
#[derive(Debug)]
pub struct Cut(Vec<String>);

impl Wires {
    /// Makes hosts for so many servers and clients. Panics where that is not possible, and where the machine's own network would be
    /// changed.
    pub async fn lay(servers: usize, clients: usize) -> Self {
        let routes = run("ip", &["route", "show"], "").await.expect("ip, of iproute2");
        assert!(routes.is_empty(), "this is not a network of our own: see scripts/partitions");
        let mut plan = String::from(
            "link set lo up\nlink add bridge type bridge\naddress add 10.77.0.254/24 dev bridge\n\
             link set bridge up\n",
        );
        let hosts = || (0..servers).map(server).chain((0..clients).map(client));
        for Host { name, .. } in hosts() {
            plan += &format!(
                "netns add {name}\nlink add {name} type veth peer name wire netns {name}\n\
                 link set {name} master bridge up\n"
            );
        }
        run("ip", &["-batch", "-"], &plan).await.expect("a bridge with wires");
        for Host { name, address } in hosts() {
            let inside =
                format!("link set lo up\naddress add {address}/24 dev wire\nlink set wire up\n");
            run("ip", &["-n", &name, "-batch", "-"], &inside).await.expect("an address");
        }
        let filter = "add table bridge cuts\n\
             add chain bridge cuts between { type filter hook forward priority 0; }\n";
        run("nft", &["-f", "-"], filter).await.expect("a filter, of nftables");
        let mut wires = Self { slow: BAD, turn: Mutex::default() };
        if let Err(error) = wires.slow_down(&server(0), Way::Both).await {
            println!("left out: wires that reorder and repeat packets ({error})");
            wires.slow = THIN;
            wires.slow_down(&server(0), Way::Both).await.expect("a wire that can be made thin");
        }
        wires.restore(&server(0), Way::Both).await;
        wires
    }

    /// From now on what these hosts say to those gets lost, or some of it, or what they hear from those, or both.
    pub async fn cut(&self, near: &[Ipv4Addr], far: &[Ipv4Addr], way: Way, wire: Wire) -> Cut {
        let _turn = self.turn.lock().await;
        let mut rules = Vec::new();
        for (from, to, is_cut) in [(near, far, way != Way::In), (far, near, way != Way::Out)] {
            if !is_cut || from.is_empty() || to.is_empty() {
                continue;
            }
            let some = match wire {
                Wire::Cut => String::new(),
                Wire::Lossy(percent) => format!("numgen random mod 100 < {percent} "),
            };
            let rule = format!(
                "add rule bridge cuts between ip saddr {{ {} }} ip daddr {{ {} }} {some}drop\n",
                listed(from),
                listed(to)
            );
            let said = run("nft", &["--echo", "--handle", "-f", "-"], &rule).await;
            let said = said.expect("one more rule of the filter");
            let handle =
                said.split("# handle ").nth(1).and_then(|rest| rest.split_whitespace().next());
            rules.push(handle.expect("the name of a rule").to_owned());
        }
        Cut(rules)
    }

    pub async fn mend(&self, cut: Cut) {
        let _turn = self.turn.lock().await;
        let words =
            cut.0.iter().map(|rule| format!("delete rule bridge cuts between handle {rule}\n"));
        run("nft", &["-f", "-"], &words.collect::<String>()).await.expect("a rule that is there");
    }

    /// Sets the host's end of its wire `down` or `up`.
    pub async fn plug(&self, host: &Host, state: &str) {
        let words = ["-n", &host.name, "link", "set", "wire", state];
        run("ip", &words, "").await.expect("a host with a wire");
    }

    /// What a host says is slow from now on, or what it hears, or both.
    pub async fn slow_down(&self, host: &Host, way: Way) -> io::Result<()> {
        self.pass(host, way, &format!("replace dev {{}} root {}", self.slow)).await
    }

    pub async fn restore(&self, host: &Host, way: Way) {
        self.pass(host, way, "delete dev {} root").await.expect("a wire that was slow");
    }

    /// A queue holds what leaves through its end of the wire.
    async fn pass(&self, host: &Host, way: Way, order: &str) -> io::Result<()> {
        let words = |device| format!("qdisc {}\n", order.replace("{}", device));
        if way != Way::In {
            run("tc", &["-n", &host.name, "-batch", "-"], &words("wire")).await?;
        }
        if way != Way::Out {
            run("tc", &["-batch", "-"], &words(&host.name)).await?;
        }
        Ok(())
    }
}

fn listed(hosts: &[Ipv4Addr]) -> String {
    hosts.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>().join(", ")
}

/// Runs a program that reads this. What it printed, or what it complained of.
async fn run(program: &str, words: &[&str], input: &str) -> io::Result<String> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(input.as_bytes()).await?;
    drop(pipe);
    let Output { status, stdout, stderr } = child.wait_with_output().await?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    Err(io::Error::other(format!("{program}: {}", String::from_utf8_lossy(&stderr).trim())))
}
