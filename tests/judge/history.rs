//! The history checker: judges what a run did to its locks, after the run.
//!
//! A run records, on one clock that all of its processes share, when each guard claimed to be valid. Several processes
//! of one machine can be merged, for they share that clock; a worker sends a [`Hold`] as a line (`Display`, `FromStr`).
//!
//! ```ignore
//! let mut history = History::expecting(["ghost cleaned", "lost by deadline"]);
//! history.hold(Hold::new("orders", "worker-1/guard-7", guard.token().get(), acquired).until(ended));
//! history.reached("ghost cleaned", ghosts);
//! history.left("key", admin.keys().await);
//! assert_eq!(history.violations(), []);
//! ```
//!
//! It passes if, and only if:
//! 1. the intervals in which guards claimed validity do not overlap, per lock;
//! 2. tokens grow strictly in that order, and no two owners ever had the same one, per lock;
//! 3. every hold has ended;
//! 4. nothing is left: no key, channel, task, descriptor, or whatever else was counted;
//! 5. every path that the run was to take was taken: a run that met no fault proves nothing.
//!
//! *When a claim begins*: read the clock **after** the acquire returned. *When it ends*: read the clock, then ask
//! `is_valid()` just before `unlock` or the drop; if it says yes, the claim ends at that reading, whatever becomes of the
//! unlock. If it says no, it ended when the loss was signalled, or at the last deadline seen (`now + remaining()`),
//! whichever came first. The claims of a killed process ended when the kill returned. An acquire without a guard is
//! no hold.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

/// One guard's claim: `[acquired, ended)` in nanoseconds of the machine's monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub lock: String,
    /// The owner, which may nest: unique for each guard of a `Lock`, the same for all guards of one re-entrant owner,
    /// over all processes.
    pub owner: String,
    /// 0 if it has none.
    pub token: u64,
    pub acquired: u64,
    /// `None`: nobody saw it end.
    pub ended: Option<u64>,
    /// It was granted by a server that has been replaced since. Its token is older than the order of this history.
    pub outlived: bool,
}

impl Hold {
    pub fn new(lock: &str, owner: &str, token: u64, acquired: u64) -> Self {
        Self {
            lock: lock.into(),
            owner: owner.into(),
            token,
            acquired,
            ended: None,
            outlived: false,
        }
    }

    /// The successor of the server that granted it is known to have it from this moment on.
    pub fn outliving(self, known: u64) -> Self {
        Self { acquired: self.acquired.max(known), outlived: true, ..self }
    }

    /// An end that was seen. Of several, the first counts.
    pub fn until(mut self, ended: u64) -> Self {
        self.ended = Some(self.ended.map_or(ended, |earlier| earlier.min(ended)));
        self
    }

    /// When it claims no more; for ever if nobody saw its end.
    fn end(&self) -> u64 {
        self.ended.unwrap_or(u64::MAX)
    }

    /// A guard that was over before its owner could look at it has claimed nothing.
    fn claims(&self) -> bool {
        self.end() > self.acquired
    }

    fn nests_in(&self, outer: &Self) -> bool {
        self.owner == outer.owner && self.token == outer.token
    }
}

/// Tab-separated: `lock owner token acquired ended`, with `-` for no end.
impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lock, owner, token, acquired, ended, outlived: _ } = self;
        let ended = ended.map_or("-".to_owned(), |ended| ended.to_string());
        write!(f, "{lock}\t{owner}\t{token}\t{acquired}\t{ended}")
    }
}

impl FromStr for Hold {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("not a hold: {line:?}");
        let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
        let words: Vec<&str> = line.split('\t').collect();
        let [lock, owner, token, acquired, ended] = words[..] else { return Err(wrong()) };
        let hold = Self::new(lock, owner, number(token)?, number(acquired)?);
        Ok(if ended == "-" { hold } else { hold.until(number(ended)?) })
    }
}

/// What is wrong with a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Two claims at one moment.
    Overlap(Hold, Hold),
    /// A later holder without a greater token.
    TokenFell(Hold, Hold),
    /// Two owners with the same token, whenever.
    TokenTwice(Hold, Hold),
    NeverEnded(Hold),
    /// Something of this kind is still there.
    Left(String, String),
    /// The run was to take this path, and did not.
    NeverReached(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap(first, second) => {
                let by = first.end().min(second.end()) - second.acquired;
                write!(f, "two holders at once, for {by} ns:\n  {first}\n  {second}")
            }
            Self::TokenFell(first, second) => {
                write!(f, "a later holder without a greater token:\n  {first}\n  {second}")
            }
            Self::TokenTwice(first, second) => {
                write!(f, "two owners with one token:\n  {first}\n  {second}")
            }
            Self::NeverEnded(hold) => write!(f, "a hold without an end:\n  {hold}"),
            Self::Left(kind, what) => write!(f, "a {kind} is left: {what}"),
            Self::NeverReached(path) => write!(f, "this run never reached: {path}"),
        }
    }
}

/// What a run recorded.
#[derive(Debug, Default)]
pub struct History {
    holds: Vec<Hold>,
    left: Vec<(String, String)>,
    reached: BTreeMap<String, u64>,
}

impl History {
    /// A run that must take each of these paths at least once.
    pub fn expecting<P: Into<String>>(paths: impl IntoIterator<Item = P>) -> Self {
        let reached = paths.into_iter().map(|path| (path.into(), 0)).collect();
        Self { reached, ..Self::default() }
    }

    /// In any order.
    pub fn hold(&mut self, hold: Hold) {
        self.holds.push(hold);
    }

    /// A path was taken so many times more. One that was not expected is counted too.
    pub fn reached(&mut self, path: &str, times: u64) {
        *self.reached.entry(path.to_owned()).or_default() += times;
    }

    /// Reports things that should be gone after the run: `left("task", ["watchdog"])`.
    pub fn left<W: Into<String>>(&mut self, kind: &str, what: impl IntoIterator<Item = W>) {
        self.left.extend(what.into_iter().map(|what| (kind.to_owned(), what.into())));
    }

    /// How often each path was taken, for the report.
    pub fn paths(&self) -> &BTreeMap<String, u64> {
        &self.reached
    }

    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// The judgement, in O(n log n); right if it is empty.
    pub fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for holds in self.by_lock().into_values() {
            judge_claims(holds.clone(), &mut found);
            judge_uniqueness(holds, &mut found);
        }
        let open = self.holds.iter().filter(|hold| hold.ended.is_none());
        found.extend(open.cloned().map(Violation::NeverEnded));
        found.extend(self.left.iter().cloned().map(|(kind, what)| Violation::Left(kind, what)));
        let missed = self.reached.iter().filter(|(_, times)| **times == 0);
        found.extend(missed.map(|(path, _)| Violation::NeverReached(path.clone())));
        found
    }

    fn by_lock(&self) -> HashMap<&str, Vec<&Hold>> {
        let mut locks = HashMap::<_, Vec<_>>::new();
        for hold in &self.holds {
            locks.entry(hold.lock.as_str()).or_default().push(hold);
        }
        locks
    }
}

/// Rules 1 and 2, in the order of the claims. What claimed nothing has no place in that order: its acquire may have
/// returned long after it was granted.
fn judge_claims(mut holds: Vec<&Hold>, found: &mut Vec<Violation>) {
    holds.retain(|hold| hold.claims());
    holds.sort_by_key(|hold| (hold.acquired, hold.end()));
    // The claim that ends last so far, and the one with the greatest token.
    let mut pair: Option<(&Hold, &Hold)> = None;
    for hold in holds {
        let Some((last, greatest)) = &mut pair else {
            pair = Some((hold, hold));
            continue;
        };
        let overlaps = hold.acquired < last.end();
        // Where time stands still while somebody works, a nested hold may begin as its outer one ends.
        let nests = hold.acquired <= last.end() && hold.nests_in(last);
        if overlaps && !nests {
            found.push(Violation::Overlap((*last).clone(), hold.clone()));
        }
        if !nests && !hold.outlived && hold.token > 0 && hold.token <= greatest.token {
            found.push(Violation::TokenFell((*greatest).clone(), hold.clone()));
        }
        if hold.end() > last.end() {
            *last = hold;
        }
        if hold.token > greatest.token {
            *greatest = hold;
        }
    }
}

/// The rest of rule 2.
fn judge_uniqueness(mut holds: Vec<&Hold>, found: &mut Vec<Violation>) {
    holds.retain(|hold| hold.token > 0);
    holds.sort_by_key(|hold| (hold.token, hold.acquired));
    for pair in holds.windows(2) {
        if pair[0].token == pair[1].token && pair[0].owner != pair[1].owner {
            found.push(Violation::TokenTwice(pair[0].clone(), pair[1].clone()));
        }
    }
}
