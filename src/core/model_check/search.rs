//! Searches all states of a small world, in the order of their distance from its beginning.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::hash::{Hash, Hasher};

use xxhash_rust::xxh3::xxh3_128;

use crate::core::model_check::client::Stage;
use crate::core::model_check::known::Clock;
use crate::core::model_check::request::Request;
use crate::core::model_check::server::{Field, Word};
use crate::core::model_check::{Action, Setting, World, called, told};

/// The result of a search.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// The shortest path to a wrong state, as text.
    pub(crate) violation: Option<String>,
}

/// How the search reached a state: from which state, and by which action.
type Way = Option<(u32, Action)>;

/// The states that the search has seen, each by a fingerprint of 128 bits of the bytes that it hashes, with their numbers in
/// order of discovery. Among a hundred million states, two have the same one with a probability of 10^-22. TLC searches so with
/// half as many bits.
#[derive(Default)]
struct Seen {
    states: HashMap<u128, u32>,
    bytes: Bytes,
}

impl Seen {
    /// The number of this state, and whether it is new.
    fn number(&mut self, world: &World) -> (u32, bool) {
        self.bytes.0.clear();
        world.hash(&mut self.bytes);
        let next = u32::try_from(self.states.len()).expect("the world is small");
        match self.states.entry(xxh3_128(&self.bytes.0)) {
            Entry::Occupied(seen) => (*seen.get(), false),
            Entry::Vacant(place) => (*place.insert(next), true),
        }
    }
}

/// Which states come to the end of their tick by what has to happen before it. A state that does not goes round in circles: a
/// client asks and is answered, again and again, and no time passes.
#[derive(Default)]
struct Ends {
    /// For each state whether the next tick may begin.
    comes: Vec<bool>,
    /// From which state to which.
    steps: Vec<(u32, u32)>,
}

impl Ends {
    /// The first state that goes round in circles.
    fn missing(&mut self) -> Option<usize> {
        let Self { comes, steps } = self;
        let mut is_new = true;
        while std::mem::take(&mut is_new) {
            for &(from, to) in steps.iter().rev() {
                if comes[to as usize] && !comes[from as usize] {
                    (comes[from as usize], is_new) = (true, true);
                }
            }
        }
        comes.iter().position(|comes| !comes)
    }
}

/// All that is hashed, one byte after the other.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn write_usize(&mut self, number: usize) {
        // A length.
        self.0.push(u8::try_from(number).expect("the world is small"));
    }

    fn write_isize(&mut self, number: isize) {
        // The variant of an enum.
        self.0.push(u8::try_from(number).expect("there are few variants"));
    }

    fn finish(&self) -> u64 {
        unreachable!("the bytes are what is wanted")
    }
}

/// Searches the world until there are no more states, or one is wrong.
pub(crate) fn search(setting: &Setting) -> Found {
    let clock = Clock::new();
    let (mut seen, mut ways, mut steps) = (Seen::default(), Vec::<Way>::new(), 0);
    let mut ends = Ends::default();
    let start = World::new(setting);
    seen.number(&start);
    ways.push(None);
    let mut ahead = VecDeque::from([(0_u32, start)]);
    while let Some((from, world)) = ahead.pop_front() {
        let (actions, forced) = world.actions(setting, clock);
        ends.comes.push(actions[0] == Action::Tick);
        for (nth, action) in actions.into_iter().enumerate() {
            steps += 1;
            let mut next = world.clone();
            if let Err(wrong) = next.act(action, setting, clock) {
                let way = way_to(&ways, Some((from, action)));
                let violation = Some(in_words(setting, clock, &way, &wrong));
                return Found { states: ways.len(), steps, violation };
            }
            let (number, is_new) = seen.number(&next);
            if nth < forced && action != Action::Tick {
                ends.steps.push((from, number));
            }
            if is_new {
                ways.push(Some((from, action)));
                ahead.push_back((number, next));
            }
        }
    }
    let violation = ends.missing().map(|state| {
        in_words(setting, clock, &way_to(&ways, ways[state]), "no time passes any more")
    });
    Found { states: ways.len(), steps, violation }
}

fn way_to(ways: &[Way], mut last: Way) -> Vec<Action> {
    let mut way = Vec::new();
    while let Some((before, action)) = last {
        way.push(action);
        last = ways[before as usize];
    }
    way.reverse();
    way
}

fn in_words(setting: &Setting, clock: Clock, way: &[Action], wrong: &str) -> String {
    let mut text = format!("{}: {wrong}\n", setting.name);
    let mut world = World::new(setting);
    for (step, action) in way.iter().enumerate() {
        let what = event(&world, *action);
        let _ = world.act(*action, setting, clock);
        let _ = writeln!(text, "{:>3}. {what}\n     {}", step + 1, state(&world));
    }
    text
}

fn event(world: &World, action: Action) -> String {
    let who = |c: usize| called(c);
    match action {
        Action::Comes(c, s) => format!("a caller of {} comes to its entry {s}", who(c)),
        Action::Runs(c) => format!("the server runs {}", request(world.clients[c].up[0])),
        Action::RunsLate(stray) => {
            format!(
                "of a connection that was lost, the server runs {}",
                request(world.strays[stray].0)
            )
        }
        Action::IsAnswered(c) => format!("{} is answered: {:?}", who(c), world.clients[c].down[0]),
        Action::IsTold(c) => {
            format!("{} hears {}", who(c), words(&world.clients[c].messages[0]))
        }
        Action::Subscribes(c) => format!("{} has subscribed", who(c)),
        Action::Notices(c) => format!("{} notices that it was deaf", who(c)),
        Action::Checks(c) => format!("{} checks that it hears, and asks", who(c)),
        Action::LooksForIdle(c) => format!("{} gives back what it keeps idle", who(c)),
        Action::AsksAgain(c, _) => format!("{} tries again", who(c)),
        Action::Tidies(c) => format!("{} sends a release in the background", who(c)),
        Action::GivesBack(c, _) => format!("{} gives back", who(c)),
        Action::HandsOn(c, _) => format!("{} hands on to its next caller", who(c)),
        Action::HandsOnInLine(c, s) => {
            format!("{} hands on from its entry {s} to its caller right behind in the line", who(c))
        }
        Action::PicksUp(c, _) => format!("{} takes up what was left to it", who(c)),
        Action::Retires(c, _) => format!("{} gives back what nobody took up", who(c)),
        Action::Exchanges(c, _) => format!("{} gives back and asks anew in one step", who(c)),
        Action::Tick => "a tick".to_owned(),
        Action::Lose(c) => {
            format!("{} never hears {}", who(c), words(&world.clients[c].messages[0]))
        }
        Action::Double(c) => {
            format!("{} will hear twice {}", who(c), words(&world.clients[c].messages[0]))
        }
        Action::SlowRequests(c) => format!("the requests of {} become slow", who(c)),
        Action::SlowAnswers(c) => format!("the answers to {} become slow", who(c)),
        Action::SlowMessages(c) => format!("the messages to {} become slow", who(c)),
        Action::Swap(c) => format!("a request of {} overtakes another", who(c)),
        Action::Pause(c) => format!("{} stands still", who(c)),
        Action::GoOn(c) => format!("{} goes on", who(c)),
        Action::Cut(c) => format!("{} loses its connection for requests", who(c)),
        Action::Deafen(c) => format!("{} loses its connection for messages", who(c)),
        Action::Cancel(c, _) => format!("the caller of {} goes away", who(c)),
        Action::Crash(c) => format!("{} dies", who(c)),
        Action::Vanish(c) => format!("{} dies, and still seems to hear", who(c)),
    }
}

fn request(request: Request) -> String {
    match request {
        Request::Acquire(options) => {
            let old = options
                .old
                .map_or(String::new(), |old| format!(", which gives back {}", told(old)));
            format!("acquire {} with a sign of {}{old}", told(options.field), options.sign)
        }
        Request::Try { field, .. } => format!("try {}", told(field)),
        Request::Release { field, served } => {
            let with = |id| format!(" and {}", told(Field { id, ..field }));
            let served: String = served.iter().map(with).collect();
            format!("release {}{served}", told(field))
        }
        Request::Renew { field, sent } => format!("renew {} of {sent}", told(field)),
    }
}

fn words(words: &[Word]) -> String {
    let word = |word: &Word| match *word {
        Word::Granted { field, sign } => format!("'{} granted for a sign of {sign}'", told(field)),
        Word::Near { field, at_once: false } => format!("'{} is near'", told(field)),
        Word::Near { field, at_once: true } => format!("'{} is silent'", told(field)),
        Word::Wanted { field, is_tried: false } => format!("'{} is wanted'", told(field)),
        Word::Wanted { field, is_tried: true } => format!("'{} was tried'", told(field)),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The server, with its holders and waiters.
fn state(world: &World) -> String {
    let mut text = match world.server.lock {
        Some((field, left)) => format!("[lock {} for {left};", told(field)),
        None => "[free;".to_owned(),
    };
    for waiter in &world.server.line {
        let asked = world.server.asked[usize::from(waiter.field.client)];
        let asked = if asked.is_some() { "!" } else { "" };
        let _ = write!(text, " {}{asked}", told(waiter.field));
    }
    for (client, life) in world.server.lives.iter().enumerate() {
        if let Some(life) = life {
            let _ = write!(text, " {}:{}@{}", called(client), life.ends, life.sign);
        }
    }
    text.push(']');
    for (c, client) in world.clients.iter().enumerate() {
        for spot in &client.spots {
            let line = spot
                .known
                .line
                .as_ref()
                .map(|line| told(client.field(line.id)))
                .unwrap_or_default();
            if let Some(left) = spot.left {
                let _ = write!(text, " {} has left {} to", called(c), told(client.field(left.id)));
            }
            let stage = match spot.stage {
                Stage::Free if spot.left.is_some() => "nobody".to_owned(),
                Stage::Free => continue,
                Stage::Parked(until) => format!("waits as {line} until {until}"),
                Stage::Asking { .. } => format!("asks as {line}"),
                Stage::Riding => format!("pauses as {line}"),
                Stage::Holding(tenure) => {
                    let how = if tenure.is_idle { "keeps" } else { "holds" };
                    format!("{how} {} until {}", told(client.field(tenure.id)), tenure.ends)
                }
                Stage::Trying { id, .. } => format!("tries as {}", told(client.field(id))),
                Stage::Refused { by } => format!("was refused because of {}", told(by)),
                Stage::Leaving { id } => format!("gives back {}", told(client.field(id))),
            };
            let _ = write!(text, " {} {stage};", called(c));
        }
        for job in &client.jobs {
            let _ = write!(text, " {} to give back {};", called(c), told(client.field(job.id)));
        }
    }
    text
}
