//! The scripts of `lua/queue` against a model: random callers come, wait, enter, renew, leave, fall silent and say things
//! twice, and somebody deletes a key now and then. After each step the server's keys must make sense.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use crate::common;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use common::{Server, connect};
use redis::aio::MultiplexedConnection;
use redis::{Script, Value};
use tokio::time::sleep;

const EPISODES: u64 = 25;
const STEPS: usize = 120;
const CALLERS: usize = 6;

/// How long a place lasts.
const CLAIM: u64 = 90;

/// The most permits that anybody sets.
const MOST: u64 = 7;

const LEASES: [u64; 3] = [25, 120, 400];

macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("../../lua/lock/grant.lua"),
            "\n",
            include_str!("../../lua/queue/queue.lua"),
            "\n",
            include_str!(concat!("../../lua/queue/", $name, ".lua"))
        ))
    };
}

/// Everything that lies there, at one moment.
const DUMP: &str = "
    local time = redis.call('time')
    return { math.floor((time[1] * 1000000 + time[2]) / 1000),
      redis.call('zrange', KEYS[1], 0, -1, 'WITHSCORES'), redis.call('zrange', KEYS[2], 0, -1),
      redis.call('hgetall', KEYS[3]),
      { redis.call('pttl', KEYS[1]), redis.call('pttl', KEYS[2]), redis.call('pttl', KEYS[3]) } }";

#[derive(Debug, Clone, Copy)]
struct Kind {
    word: &'static str,
    capacity: u64,
    parts: &'static [u64],
}

impl Kind {
    fn most(self) -> u64 {
        if self.word == "semaphore" { MOST } else { self.capacity }
    }
}

const KINDS: [Kind; 3] = [
    Kind { word: "fair", capacity: 1, parts: &[1] },
    Kind { word: "rw", capacity: 1 << 30, parts: &[1, 1, 1 << 30] },
    Kind { word: "semaphore", capacity: 5, parts: &[1, 1, 2, 5] },
];

/// Somebody in the course of one acquire.
#[derive(Debug, Clone)]
struct Caller {
    field: String,
    part: u64,
    lease: u64,
    beat: u32,
    place: u64,
    /// Until when it believes to hold.
    until: Option<Instant>,
}

/// What the server knows.
#[derive(Debug)]
struct State {
    now: u64,
    holders: BTreeMap<String, u64>,
    queue: Vec<String>,
    notes: HashMap<String, String>,
    ttls: Vec<i64>,
}

impl State {
    fn number(&self, note: &str) -> u64 {
        self.notes.get(note).map_or(0, |number| number.parse().expect("a number"))
    }

    fn is_set(&self) -> bool {
        self.notes.contains_key("set")
    }

    /// By the server's clock. That of the places may be behind it, since time is left out in which no script ran.
    fn place_ends(&self, field: &str) -> u64 {
        let Some(place) = self.notes.get(&format!("place:{field}")) else { return 0 };
        let ends: u64 = place.split(' ').next().unwrap().parse().expect("a time");
        let behind = self.notes.get("clock").map_or("0", |clock| clock.split(' ').nth(1).unwrap());
        ends.saturating_add_signed(behind.parse().expect("a time"))
    }
}

struct Model {
    redis: MultiplexedConnection,
    rng: fastrand::Rng,
    kind: Kind,
    name: String,
    /// How long a place lasts, in ms.
    claim: u64,
    callers: Vec<Option<Caller>>,
    made: usize,
    /// Since a key was deleted, notes may speak of those who are no more.
    tampered: bool,
    /// Releases and renewals of the past.
    said: Vec<(&'static str, Vec<String>)>,
    log: Vec<String>,
}

impl Model {
    fn keys(&self) -> [String; 3] {
        ["lock", "lock_queue", "lock_notes"].map(|key| format!("{key}:{{{}}}", self.name))
    }

    async fn run(&mut self, what: &str, rest: &[String]) -> Result<Value, redis::RedisError> {
        let script = match what {
            "acquire" => script!("acquire"),
            "release" => script!("release"),
            "renew" => script!("renew"),
            "status" => script!("status"),
            "resize" => script!("resize"),
            _ => script!("force_unlock"),
        };
        let mut call = script.key("lock:grants");
        for key in self.keys() {
            call.key(key);
        }
        call.arg(0)
            .arg(self.kind.word)
            .arg(self.kind.capacity)
            .arg("channel")
            .arg("us")
            .arg(self.claim);
        rest.iter().for_each(|argument| _ = call.arg(argument));
        let reply = call.invoke_async(&mut self.redis).await;
        self.log.push(format!("{what} {rest:?} -> {reply:?}"));
        reply
    }

    async fn state(&mut self) -> State {
        let [holders, queue, notes] = self.keys();
        let dump = Script::new(DUMP);
        let mut call = dump.key(holders);
        call.key(queue).key(notes);
        let (now, holders, queue, notes, ttls): (u64, Vec<(String, f64)>, _, _, _) =
            call.invoke_async(&mut self.redis).await.expect("a dump");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ms")]
        let holders = holders.into_iter().map(|(field, until)| (field, until as u64)).collect();
        State { now, holders, queue, notes, ttls }
    }

    /// Asks, for the first time or again; what it may believe then.
    async fn ask(&mut self, at: usize, manner: &str) {
        let Some(mut caller) = self.callers[at].take() else { return };
        let sent = Instant::now();
        caller.beat += 1;
        let Caller { field, part, lease, beat, place, .. } = &caller;
        let words = [field.clone(), part.to_string(), lease.to_string(), manner.into(), "".into()];
        let mut words = Vec::from(words);
        words.extend([place.to_string(), beat.to_string()]);
        let reply = self.run("acquire", &words).await.unwrap_or_else(|error| self.fail(&error));
        let reply: Vec<u64> = redis::from_redis_value(reply).expect("numbers");
        if let [0, _, place] = reply[..] {
            caller.place = place;
        }
        let granted = reply[0];
        if granted == 1 {
            let lease = Duration::from_millis(caller.lease);
            caller.until = Some(sent + lease - lease / 100 - Duration::from_millis(2));
            self.nobody_else_may_believe(&caller);
        }
        if granted == 1 || manner == "wait" {
            self.callers[at] = Some(caller);
        }
    }

    fn nobody_else_may_believe(&self, new: &Caller) {
        let now = Instant::now();
        let believes = |caller: &&Caller| caller.until.is_some_and(|until| until > now);
        let others = self.callers.iter().flatten().filter(believes);
        let held: u64 = others.map(|caller| caller.part).sum();
        let still = new.until.is_some_and(|until| until > now);
        assert!(
            !still || held + new.part <= self.kind.most(),
            "too many hold: {held} and {new:?}\n{}",
            self.log.join("\n")
        );
    }

    async fn step(&mut self) {
        let at = self.rng.usize(..CALLERS);
        match (self.rng.u32(..100), self.callers[at].clone()) {
            (0..60, None) => {
                self.made += 1;
                let (part, lease) = (self.rng.choice(self.kind.parts), self.rng.choice(&LEASES));
                self.callers[at] = Some(Caller {
                    field: format!("c:{}", self.made),
                    part: *part.unwrap(),
                    lease: *lease.unwrap(),
                    beat: 0,
                    place: 0,
                    until: None,
                });
                let manner = if self.rng.u8(..5) == 0 { "once" } else { "wait" };
                self.ask(at, manner).await;
            }
            // A sign of life, or the same question once more.
            (0..40, Some(caller)) if caller.until.is_none() || self.rng.u8(..8) == 0 => {
                self.ask(at, "wait").await;
            }
            (40..60, Some(caller)) => {
                self.callers[at] = None;
                self.say("release", vec![caller.field]).await;
            }
            (60..70, Some(caller)) if caller.until.is_some() => {
                let sent = Instant::now();
                let lease = self.rng.choice(&LEASES).copied().unwrap();
                let kept = self.say("renew", vec![caller.field.clone(), lease.to_string()]).await;
                let caller = self.callers[at].as_mut().unwrap();
                let until = sent + Duration::from_millis(lease - lease / 100 - 2);
                caller.until = if kept { caller.until.max(Some(until)) } else { None };
                if !kept {
                    self.callers[at] = None;
                }
            }
            // It falls silent; what it held is believed by nobody.
            (70..76, _) => self.callers[at] = None,
            // Something is said twice, late.
            (76..82, _) => {
                if let Some((what, words)) = self.rng.choice(&self.said).cloned() {
                    let _ = self.run(what, &words).await;
                }
            }
            (82..90, _) => _ = self.run("status", &[]).await,
            (90, _) if self.kind.word == "semaphore" => {
                let capacity = self.rng.u64(self.kind.capacity..=MOST);
                self.run("resize", &[capacity.to_string()]).await.expect("it is set");
            }
            (90..92, _) => {
                self.callers.iter_mut().flatten().for_each(|caller| caller.until = None);
                let _ = self.run("force_unlock", &[]).await;
            }
            (92..94, _) => {
                let key = self.rng.choice(self.keys()).unwrap();
                if key.starts_with("lock:") {
                    self.callers.iter_mut().flatten().for_each(|caller| caller.until = None);
                }
                self.tampered = true;
                self.log.push(format!("DEL {key}"));
                let deleted: redis::RedisResult<i64> =
                    redis::cmd("DEL").arg(key).query_async(&mut self.redis).await;
                deleted.expect("it is deleted");
            }
            _ => sleep(Duration::from_millis(self.rng.u64(1..40))).await,
        }
    }

    async fn say(&mut self, what: &'static str, words: Vec<String>) -> bool {
        let reply = self.run(what, &words).await.unwrap_or_else(|error| self.fail(&error));
        self.said.push((what, words));
        redis::from_redis_value::<[i64; 1]>(reply).expect("a number") == [1]
    }

    async fn keys_make_sense(&mut self) {
        let state = self.state().await;
        let fail = |what: &str| -> () {
            panic!("{what}: {:?} {state:#?}\n{}", self.kind, self.log.join("\n"));
        };
        if state.ttls.contains(&-1) {
            fail("a key without a TTL");
        }
        if self.tampered {
            return;
        }
        let parts = state.holders.keys().map(|field| state.number(field)).sum::<u64>();
        if !state.holders.is_empty() && parts != state.number("used") {
            fail("what is in use is not what they hold");
        }
        if parts > self.kind.most() {
            fail("more is held than there is");
        }
        let of_nobody = state.holders.is_empty() && state.queue.is_empty();
        let known = |note: &String| {
            let field = note.strip_prefix("place:").unwrap_or(note);
            state.holders.contains_key(field)
                || state.queue.iter().any(|waiting| waiting == field)
                || ["kind", "capacity", "used", "written", "clock", "set"].contains(&field)
        };
        // The other keys have expired, and no script has run since: the next one forgets.
        let expired = of_nobody && state.is_set();
        if !expired && !state.notes.keys().all(known) {
            fail("notes of somebody who is gone");
        }
        if of_nobody && !state.notes.is_empty() && !state.is_set() {
            fail("notes of nobody");
        }
        if let Some(head) = state.queue.first() {
            let fits = parts + state.number(head) <= state.number("capacity");
            if fits && state.place_ends(head) > state.now {
                fail("the first in line waits for nothing");
            }
        }
    }

    /// When all have fallen silent, whoever comes gets all of it, and then nothing is left.
    async fn ends_well(&mut self) {
        let silent = Instant::now();
        self.callers.fill(None);
        self.made += 1;
        let (field, part) = (format!("c:{}", self.made), *self.kind.parts.last().unwrap());
        self.callers[0] = Some(Caller { field, part, lease: 400, beat: 0, place: 0, until: None });
        while self.callers[0].as_ref().unwrap().until.is_none() {
            self.ask(0, "wait").await;
            let state = self.state().await;
            assert!(
                silent.elapsed() < Duration::from_secs(3),
                "blocked: {:?} {state:#?}",
                self.kind
            );
            sleep(Duration::from_millis(CLAIM / 3)).await;
        }
        if self.rng.bool() {
            let Caller { field, until, .. } = self.callers[0].take().unwrap();
            let found = self.say("release", vec![field]).await;
            // On a busy machine its lease may be over by then.
            assert!(found || until.is_some_and(|until| until <= Instant::now()));
        }
        loop {
            let state = self.state().await;
            if state.ttls[..2] == [-2, -2] && (state.ttls[2] == -2 || state.is_set()) {
                break;
            }
            let waited = silent.elapsed();
            assert!(waited < Duration::from_secs(4), "left: {:#?}", self.state().await);
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn fail<T>(&self, error: &dyn std::fmt::Display) -> T {
        panic!("{error}\n{}", self.log.join("\n"))
    }
}

async fn episode(redis: MultiplexedConnection, kind: Kind, seed: u64) {
    let mut model = Model {
        redis,
        rng: fastrand::Rng::with_seed(seed),
        kind,
        name: format!("{} {seed}", kind.word),
        claim: CLAIM,
        callers: vec![None; CALLERS],
        made: 0,
        tampered: false,
        said: Vec::new(),
        log: Vec::new(),
    };
    for _ in 0..STEPS {
        model.step().await;
        model.keys_make_sense().await;
    }
    model.ends_well().await;
}

#[tokio::test]
async fn whatever_happens_the_keys_of_a_queue_make_sense() {
    let server = Server::start().await;
    let first: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for kind in KINDS {
        let mut episodes = tokio::task::JoinSet::new();
        for seed in first..first + EPISODES {
            let redis = connect(&server.url()).await;
            episodes.spawn(episode(redis, kind, seed));
        }
        episodes.join_all().await;
    }
}

/// Long enough for several scripts in a third of it, on a machine that has other things to do.
const LONG_CLAIM: u64 = 900;

/// Scripts that are called one by one, of fair locks that nobody else uses.
async fn alone(server: &Server, name: &str) -> Model {
    Model {
        redis: connect(&server.url()).await,
        rng: fastrand::Rng::new(),
        kind: KINDS[0],
        name: name.to_owned(),
        claim: LONG_CLAIM,
        callers: Vec::new(),
        made: 0,
        tampered: false,
        said: Vec::new(),
        log: Vec::new(),
    }
}

impl Model {
    /// A sign of life of this waiter; whether it holds the lock.
    async fn waits(&mut self, field: &str) -> bool {
        let words = [field, "1", "60000", "wait", "", "0", "7"].map(str::to_owned);
        let reply = self.run("acquire", &words).await.expect("an answer");
        redis::from_redis_value::<Vec<i64>>(reply).expect("numbers")[0] == 1
    }

    async fn waiters(&mut self) -> Vec<String> {
        self.state().await.queue
    }
}

/// B3: whoever stood in the queue when the scripts ceased stands there when they go on, however long that took.
#[tokio::test]
async fn a_place_outlives_a_time_in_which_no_script_runs() {
    let server = Server::start().await;
    for stall in [LONG_CLAIM, LONG_CLAIM * 2] {
        let mut model = alone(&server, &format!("stall {stall}")).await;
        for field in ["c:1", "c:2", "c:3", "c:4"] {
            model.waits(field).await;
        }
        // Neither one stall nor the next loses a place, if anybody came in between.
        for _ in 0..3 {
            sleep(Duration::from_millis(stall)).await;
            assert!(!model.waits("c:4").await);
            assert_eq!(model.waiters().await, ["c:2", "c:3", "c:4"]);
            for field in ["c:2", "c:3"] {
                assert!(!model.waits(field).await);
            }
        }
        assert!(model.say("release", vec!["c:1".to_owned()]).await);
        assert_eq!(model.waiters().await, ["c:3", "c:4"], "c:2 was let in");
    }
}

/// A waiter that is far away comes rarely. That is no stall, and the dead do not live on by it.
#[tokio::test]
async fn who_is_dead_goes_though_the_living_come_rarely() {
    let server = Server::start().await;
    let mut model = alone(&server, "rare").await;
    for field in ["c:1", "c:2", "c:3"] {
        model.waits(field).await;
    }
    let rarely = Duration::from_millis(LONG_CLAIM * 3 / 5);
    for _ in 0..4 {
        sleep(rarely).await;
        assert!(!model.waits("c:3").await);
    }
    assert_eq!(model.waiters().await, ["c:3"]);
    assert!(model.say("release", vec!["c:1".to_owned()]).await);
    assert_eq!(model.waiters().await, Vec::<String>::new());
    let holders = model.state().await.holders;
    assert!(holders.contains_key("c:3"), "{holders:?}");
}
