//! WAIT, on a real primary with a real replica and on a simulated one.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use parklock_simulated_server::{Conn, Server, Version};

use crate::frame::Frame;
use crate::real::{Next, Real, Wire, request};

const START: Duration = Duration::from_secs(30);

/// The number of the simulated replica.
const REPLICA: u64 = 1;

struct Pair {
    version: Version,
    _replica: Real,
    real: Real,
    sim: Server,
    time: u64,
    differences: Vec<String>,
}

/// Holds all dialogues. Returns what differed.
pub fn hold(version: Version, program: &Path) -> Vec<String> {
    let (real, port) = Real::start_with_port(version, program);
    let replica = Real::start(version, program);
    let mut admin = replica.connect();
    assert_eq!(admin.ask(&["REPLICAOF", "127.0.0.1", &port.to_string()]).text, b"OK");
    let (mut probe, begun) = (real.connect(), Instant::now());
    loop {
        probe.ask(&["SET", "probe", "1"]);
        if probe.ask(&["WAIT", "1", "100"]).text == b"1" {
            break;
        }
        assert!(begun.elapsed() < START, "the replica does not follow");
        thread::sleep(Duration::from_millis(20));
    }
    let mut sim = Server::new(version);
    sim.follow(REPLICA);
    let time = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64);
    let mut pair = Pair { version, _replica: replica, real, sim, time, differences: Vec::new() };
    pair.dialogues();
    pair.differences
}

impl Pair {
    fn dialogues(&mut self) {
        self.say(&["WAIT 0 0"]);
        self.say(&["SET a 1", "WAIT 1 5000", "GET a"]);
        self.say(&["WAIT 1 5000"]);
        self.say(&["SET a 2", "WAIT 2 30", "GET a", "SET a 3", "WAIT 2 30", "GET a"]);
        self.say(&["WAIT 1", "WAIT x 1", "WAIT 1 x", "WAIT 1 -1", "WAIT 1 1 1"]);
        self.say(&["EVAL redis.call('set','a',4) 0", "WAIT 1 5000"]);
        self.say(&["EVAL return{redis.call('wait',0,0)} 0"]);
        self.say(&["EVAL return{redis.call('wait',5,0)} 0"]);
        self.say(&[
            "HSET h f v",
            "HSET h f v",
            "WAIT 1 5000",
            "ZADD z 1 m",
            "ZADD z 1 m",
            "WAIT 1 5000",
        ]);
        self.demoted();
    }

    fn client(&mut self) -> (Wire, Conn) {
        (self.real.connect(), self.sim.accept())
    }

    /// Requests in one write, of a client of their own. The simulated replica has everything at once, and whoever still
    /// waits then does so to the end.
    fn say(&mut self, requests: &[&str]) {
        let (mut wire, conn) = self.client();
        let bytes = bytes_of(requests);
        wire.send(&bytes);
        let real: Vec<Frame> = requests.iter().map(|_| wire.frame()).collect();
        self.sim.receive(conn, &bytes, self.time);
        while let Some(end) = self.catch_up() {
            self.time = end;
            self.sim.pass(end);
        }
        self.compare(&requests.join(" | "), &real, conn);
    }

    /// The replica has all that there is. Returns when the next WAIT is over, if one waits for more.
    fn catch_up(&mut self) -> Option<u64> {
        while let Some(batch) = self.sim.stream().last() {
            self.sim.acknowledge(REPLICA, batch.offset, self.time);
        }
        self.sim.next_end()
    }

    fn compare(&mut self, what: &str, real: &[Frame], conn: Conn) {
        let output = self.sim.output();
        let sent = output.iter().filter(|(to, _)| *to == conn);
        let ours = Frame::all(&sent.flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>());
        if real != ours {
            let version = self.version;
            let text = format!("{version:?}: {what}\n  real:      {real:?}\n  simulated: {ours:?}");
            self.differences.push(text);
        }
    }

    /// Who waits while the primary becomes a replica, is told so and sent away.
    fn demoted(&mut self) {
        let (mut wire, conn) = self.client();
        let bytes = bytes_of(&["SET a 5", "WAIT 9 0"]);
        wire.send(&bytes);
        let mut real = vec![wire.frame()];
        let (mut admin, begun) = (self.real.connect(), Instant::now());
        while !String::from_utf8_lossy(&admin.ask(&["INFO", "clients"]).text)
            .contains("blocked_clients:1")
        {
            assert!(begun.elapsed() < START, "the client does not wait");
            thread::sleep(Duration::from_millis(2));
        }
        self.sim.receive(conn, &bytes, self.time);
        assert_eq!(admin.ask(&["REPLICAOF", "127.0.0.1", "1"]).text, b"OK");
        self.sim.become_replica();
        real.push(wire.frame());
        let is_over = matches!(wire.next(), Next::End) && self.sim.hang_ups() == [conn];
        if !is_over {
            self.differences.push("the connection of a WAIT that was sent away goes on".to_owned());
        }
        self.compare("a WAIT at a primary that becomes a replica", &real, conn);
        self.say(&["WAIT 0 0"]);
    }
}

fn bytes_of(requests: &[&str]) -> Vec<u8> {
    let words = |text: &&str| {
        let words = match text.strip_prefix("EVAL ").and_then(|rest| rest.rsplit_once(' ')) {
            Some((script, keys)) => vec!["EVAL", script, keys],
            None => text.split(' ').collect(),
        };
        request(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
    };
    requests.iter().flat_map(words).collect()
}
