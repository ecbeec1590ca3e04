//! Clients that die with more places in line than one call looks at.

use crate::in_virtual_time;
use crate::name::{ALL, Answer, Ask, FAIR, LINE_TTL, LOCK, Name, RW, SEMAPHORE, WAITER_TTL, part};

const THIRD: u64 = WAITER_TTL / 3;

/// Twenty clients that live, by the first letter of their owner fields.
const LIVING: &str = "bcdefghijklmnopqrstu";

/// Who has died: one client with a place for each caller, or one client for each place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dead {
    OneClient,
    ManyClients,
}

/// Where the dead stand.
#[derive(Clone, Copy, Debug)]
enum Where {
    Before,
    Between,
    Around,
}

/// When the dead have shown their last sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signs {
    Fresh,
    /// One after the other, a millisecond apart: the last of them counts as alive for longer than the first.
    InTurn,
    Old,
}

/// A client that asks as often as the answers and the messages say. It gives back at once what it is
/// granted.
struct Living {
    field: String,
    ask: Ask,
    asks_at: u64,
    signed: u64,
    asked: u64,
    is_done: bool,
}

impl Living {
    fn asks(&mut self, name: &mut Name, now: u64) {
        (self.asked, self.signed) = (self.asked + 1, now);
        let answer = name.acquire(&self.field, &self.ask);
        let Answer::Waits { ttl, near, .. } = answer else {
            return self.leaves(name);
        };
        let again = ttl.unsigned_abs().min(LINE_TTL / 2);
        self.asks_at = now + 1 + if near { again.min(THIRD) } else { again };
    }

    fn leaves(&mut self, name: &mut Name) {
        self.is_done = true;
        name.release(&self.field);
    }
}

struct Crowd {
    kind: (&'static str, u32),
    dead: Dead,
    place: Where,
    many: usize,
    /// How much the n-th wants.
    parts: fn(usize) -> u32,
    signs: Signs,
}

impl Crowd {
    fn field_of_dead(&self, n: usize) -> String {
        match self.dead {
            Dead::OneClient => format!("dead:{}", n + 1),
            Dead::ManyClients => format!("dead{n}:1"),
        }
    }

    /// Dead and living, in the order in which they come: the living by their index.
    fn order(&self) -> Vec<Result<usize, usize>> {
        let (dead, living) = ((0..self.many).map(Err), (0..LIVING.len()).map(Ok));
        match self.place {
            Where::Before => dead.chain(living).collect(),
            Where::Between => {
                let step = self.many.div_ceil(LIVING.len());
                let mut order: Vec<_> = dead.collect();
                for n in 0..LIVING.len() {
                    let at = (n * (step + 1) + step).min(order.len());
                    order.insert(at, Ok(n));
                }
                order
            }
            Where::Around => {
                let half = self.many / 2;
                let (before, behind) = ((0..half).map(Err), (half..self.many).map(Err));
                before.chain(living).chain(behind).collect()
            }
        }
    }

    /// How many ms pass from the unlock until the first and the last of the living have had their turns, and how often they
    /// asked.
    fn plays(&self, name: &mut Name) -> (u64, u64, u64) {
        let listener = name.listener(LIVING);
        name.lock("a:1");
        let of = |field: String, n: usize| Living {
            field,
            ask: part((self.parts)(n)),
            asks_at: u64::MAX,
            signed: 0,
            asked: 0,
            is_done: false,
        };
        let mut living: Vec<_> =
            LIVING.chars().enumerate().map(|(n, client)| of(format!("{client}:1"), n)).collect();
        for stands in self.order() {
            match stands {
                Ok(n) => living[n].asks(name, 0),
                Err(n) => {
                    name.acquire(&self.field_of_dead(n), &part((self.parts)(n)));
                    name.pass(u64::from(self.signs == Signs::InTurn));
                }
            }
        }
        let mut now = 0;
        let mut first = None;
        let mut released = if self.signs == Signs::Old { 6 * THIRD } else { 1 };
        loop {
            now += 1;
            name.pass(1);
            if now == released {
                released = now;
                name.release("a:1");
            }
            for (_, message) in name.heard(listener) {
                for client in &mut living {
                    if message.contains(&format!("{}=", client.field)) {
                        client.leaves(name);
                    } else if message.contains(&format!("{}!", client.field)) {
                        client.asks_at = now;
                    } else if message.contains(&format!("{}?", client.field)) {
                        client.asks_at = client.asks_at.min(client.signed + THIRD);
                    }
                }
            }
            for client in living.iter_mut().filter(|it| !it.is_done && it.asks_at <= now) {
                client.asks(name, now);
            }
            if living.iter().any(|client| client.is_done) {
                first.get_or_insert(now - released);
            }
            if living.iter().all(|client| client.is_done) {
                let asked = living.iter().map(|client| client.asked).sum();
                return (first.unwrap_or(0), now - released, asked);
            }
            assert!(now < 200_000, "somebody waits forever: first {first:?}");
            if now % 1_000 == 0 && now < released {
                name.renew("a:1");
            }
        }
    }

    /// Their grant and one `waiter_ttl`, and a little for the calls that go through the line one after the other.
    fn costs_little(&self) {
        in_virtual_time(self.kind, |name| {
            let (first, last, asked) = self.plays(name);
            let Self { kind, dead, place, many, signs, .. } = self;
            let what = format!("{kind:?} {dead:?} {place:?} {many} {signs:?}");
            println!("{what}: first {first} ms, last {last} ms, {asked} calls of the living");
            // Those that count as alive for longer than others are asked with the next sign of a client that lives.
            let asked_later = if *signs == Signs::InTurn { 2 * THIRD } else { 0 };
            let most = 2 * WAITER_TTL + asked_later + 50 + *many as u64 / 16;
            assert!(last <= most, "{what}: first {first} ms, last {last} ms");
            if !matches!(place, Where::Around) {
                assert_eq!(name.keys_left(), [""; 0], "{what}");
            }
        });
    }
}

fn many() -> impl Iterator<Item = usize> {
    [1, 64, 200].into_iter()
}

#[test]
fn a_dead_client_leaves_the_line_of_a_fair_lock_with_all_its_places() {
    for place in [Where::Before, Where::Between, Where::Around] {
        for many in many() {
            for signs in [Signs::Old, Signs::Fresh] {
                let crowd =
                    Crowd { kind: FAIR, dead: Dead::OneClient, place, many, parts: |_| 1, signs };
                crowd.costs_little();
            }
        }
    }
}

#[test]
fn a_dead_client_leaves_the_line_of_a_semaphore_with_all_its_places() {
    for place in [Where::Before, Where::Between, Where::Around] {
        for many in many() {
            for signs in [Signs::Old, Signs::Fresh] {
                let parts = |n| (n % 3) as u32 + 1;
                Crowd { kind: SEMAPHORE, dead: Dead::OneClient, place, many, parts, signs }
                    .costs_little();
            }
        }
    }
}

#[test]
fn a_process_that_dies_with_many_clients_costs_one_waiter_ttl() {
    let writers: fn(usize) -> u32 = |_| ALL;
    let mixed: fn(usize) -> u32 = |n| if n % 3 == 0 { ALL } else { 1 };
    for (kind, parts) in
        [(LOCK, (|_| 1) as fn(usize) -> u32), (FAIR, |_| 1), (RW, writers), (RW, mixed)]
    {
        for place in [Where::Before, Where::Between, Where::Around] {
            for many in many() {
                for signs in [Signs::Old, Signs::Fresh, Signs::InTurn] {
                    Crowd { kind, dead: Dead::ManyClients, place, many, parts, signs }
                        .costs_little();
                }
            }
        }
    }
}

/// Far more places than one call looks at: the bound does not grow with them.
#[test]
fn thousands_of_dead_places_cost_no_more_than_hundreds() {
    let one: fn(usize) -> u32 = |_| 1;
    let weights: fn(usize) -> u32 = |n| (n % 3) as u32 + 1;
    let writers: fn(usize) -> u32 = |_| ALL;
    for (kind, dead, place, parts, many) in [
        (FAIR, Dead::OneClient, Where::Before, one, 5_000),
        (SEMAPHORE, Dead::OneClient, Where::Between, weights, 5_000),
        (LOCK, Dead::ManyClients, Where::Between, one, 5_000),
        (RW, Dead::ManyClients, Where::Before, writers, 5_000),
    ] {
        Crowd { kind, dead, place, many, parts, signs: Signs::Fresh }.costs_little();
    }
}
