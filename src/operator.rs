//! What the command line tool in `tool/` needs to know of keys and URLs, so that this knowledge is in one place. It is
//! not part of the API: any version may change it. The tool takes a lock away by force with an ordinary method
//! (`locks/handle.rs`).

use crate::config::{Config, Layout};
use crate::error::Result;
use crate::keys::{Keys, escaped, of_client, unescaped};
use crate::kinds::{CLIENTS, Kind, NATIVE_LINE, NATIVE_LOCK, NOTES, PERMITS, REDISSON_FAIR_LINE};
use crate::slot::Slot;
use crate::wire;

pub use crate::keys::Space;
pub use crate::wire::{Password, Target, Watched, shown, shown_type};

/// The settings of a client that works for another process: [`Config::describe`] names that process.
pub fn on_behalf_of(process: u32, mut config: Config) -> Config {
    config.pid = process;
    config
}

/// The name of this machine, as clients that describe themselves write it.
pub fn host() -> String {
    wire::host()
}

/// What a URL refers to. The URLs of its servers are checked.
///
/// # Errors
/// [`Error::Config`](crate::Error::Config) if the URL is malformed.
pub fn servers(url: &str) -> Result<Target> {
    let is_sound = |url: &str| wire::understood(url).map(drop);
    let target = Target::of(url)?;
    match &target {
        Target::Single => is_sound(url),
        Target::Cluster(seeds) => seeds.iter().try_for_each(|seed| is_sound(seed)),
        Target::Sentinel(watched) => is_sound(&watched.primary),
    }?;
    Ok(target)
}

/// What it means that a server refuses a new connection with this text, or that its answers cannot be read.
pub fn hint(refusal: &str, is_readable: bool) -> Option<&'static str> {
    if is_readable { wire::hint(refusal) } else { Some(wire::NOT_REDIS) }
}

/// What a key is for. Without a word about Redisson's layout, it is a key of the native layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The holders.
    Lock,
    /// The waiters.
    Line,
    /// Notes about the waiters.
    Notes,
    /// A client's description of itself.
    Client,
    /// In Redisson's layout: the leases of permits that parklock clients hold.
    Permits,
    /// In Redisson's layout: the waiters of a fair lock.
    FairLine,
}

/// Which namespaces a question is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// What clients without a namespace have written.
    #[default]
    None,
    /// The one of this name.
    One(String),
    /// All of them, and what clients without a namespace have written.
    All,
}

impl Namespaces {
    /// The one of this name.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if a namespace cannot have this name.
    pub fn one(name: String) -> Result<Self> {
        Config::default().namespace(&name).check()?;
        Ok(Self::One(name))
    }

    /// The name, if it is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::One(name) => Some(name),
            Self::None | Self::All => None,
        }
    }

    /// Whether the namespace of a key is among them.
    pub fn has(&self, namespace: Option<&str>) -> bool {
        *self == Self::All || self.name() == namespace
    }

    /// A pattern for `SCAN` that matches the keys of all names that this glob matches. It may match others too: see
    /// [`within`].
    pub fn pattern(&self, glob: &str) -> String {
        let before =
            if *self == Self::All { "*".to_owned() } else { literal(&prefix(self.name())) };
        format!("{before}lock*:{{{}}}", escaped(glob))
    }
}

/// A pattern that matches this text alone.
pub fn literal(text: &str) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '\\');
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// The namespace of a native key, and the rest of the key: see [`part_of`].
pub fn within(key: &str) -> (Option<&str>, &str) {
    let before = key.find('{').map_or("", |brace| &key[..brace]);
    let words = [NATIVE_LOCK, NATIVE_LINE, NOTES, CLIENTS].map(|word| word.trim_end_matches('{'));
    let prefix = words.into_iter().find_map(|word| before.strip_suffix(word)?.strip_suffix(':'));
    prefix.map_or((None, key), |namespace| (Some(namespace), &key[namespace.len() + 1..]))
}

/// The namespace and a colon, or nothing.
fn prefix(namespace: Option<&str>) -> String {
    namespace.map_or(String::new(), |namespace| format!("{namespace}:"))
}

/// The further keys of locks in Redisson's layout. For each kind of key: a pattern for `SCAN` that matches it for every
/// name, and its type. [`part_of`] tells the name.
pub fn redisson_patterns() -> [(String, &'static str); 2] {
    let permits = PERMITS.trim_end_matches('{');
    [(format!("{permits}*"), "zset"), (format!("{REDISSON_FAIR_LINE}*"), "list")]
}

/// The slot of a cluster in which a key lies.
pub fn slot(key: &str) -> u16 {
    Slot::of(key).number() as u16 // there are fewer
}

/// What a key without a namespace is for, and the name of its lock or client. `None`: it is not a parklock key.
pub fn part_of(key: &str) -> Option<(Part, String)> {
    if let Some(tag) = key.strip_prefix(REDISSON_FAIR_LINE) {
        // Redisson's rule: a name with a `{` is not put into braces.
        let braced = tag.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        let name = braced.filter(|name| !name.contains('{')).unwrap_or(tag);
        return Some((Part::FairLine, name.to_owned()));
    }
    let parts = [
        (NATIVE_LOCK, Part::Lock),
        (NATIVE_LINE, Part::Line),
        (NOTES, Part::Notes),
        (CLIENTS, Part::Client),
        (PERMITS, Part::Permits),
    ];
    parts.into_iter().find_map(|(prefix, part)| {
        let tag = key.strip_prefix(prefix.trim_end_matches('{'))?;
        // The braces of a native name are encoded. In Redisson's layout they are not: see `Keys::own`.
        let with_braces = || match part {
            Part::Notes | Part::Permits => tag.strip_suffix(':').filter(|name| name.contains('}')),
            _ => None,
        };
        let name = unbraced(tag).map(|name| unescaped(name).into_owned());
        Some((part, name.or_else(|| with_braces().map(str::to_owned))?))
    })
}

/// The name in a tag whose only braces are around it.
fn unbraced(tag: &str) -> Option<&str> {
    let name = tag.strip_prefix('{')?.strip_suffix('}')?;
    (!name.contains(['{', '}']) && !name.is_empty()).then_some(name)
}

/// The key under which a client describes itself.
pub fn client_key(namespace: Option<&str>, client: &str) -> String {
    of_client(&prefix(namespace), client)
}

/// The keys and the channel of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The holders, or the count of a latch.
    pub lock: String,
    /// The waiters, in their order.
    pub line: String,
    /// Notes about the waiters.
    pub notes: String,
    /// The counter of the tokens.
    pub tokens: String,
    /// Which run of a job has claimed the current interval.
    pub interval: String,
    /// The channel for messages to all clients.
    pub channel: String,
}

/// Where the lock of this name and kind is stored.
///
/// # Errors
/// [`Error::InvalidName`](crate::Error::InvalidName), as for a handle of this name, and for a namespace that is longer than any
/// client's.
pub fn place(
    layout: Layout,
    kind: &str,
    (namespace, name): (Option<&str>, &str),
    space: Space,
) -> Result<Place> {
    let kind = match kind {
        "fair" => Kind::Fair,
        "fenced" => Kind::Fenced,
        "read" => Kind::Read,
        "write" | "rw" => Kind::Write,
        "semaphore" => Kind::Semaphore { permits: 1 },
        "expirable" => Kind::Expirable { permits: 1 },
        "latch" => Kind::Latch,
        "condition" => Kind::Condition,
        _ => Kind::Lock,
    };
    let keys = Keys::in_space(space, &prefix(namespace), layout, kind, name.to_owned())?;
    Ok(Place {
        lock: keys.lock().to_string(),
        line: keys.line().to_string(),
        notes: keys.notes().to_string(),
        tokens: keys.tokens().to_string(),
        interval: keys.interval().to_string(),
        channel: keys.channel.clone().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_of_a_name_says_what_it_is_for() {
        for name in ["orders:42", "a}b{%", "%7B"] {
            let place = place(Layout::Native, "lock", (None, name), Space::Database(0)).unwrap();
            let parts =
                [(place.lock, Part::Lock), (place.line, Part::Line), (place.notes, Part::Notes)];
            for (key, part) in parts {
                assert_eq!(part_of(&key), Some((part, name.to_owned())), "{key}");
            }
        }
        assert_eq!(part_of(&client_key(None, "id")), Some((Part::Client, "id".to_owned())));
        for (kind, part) in [("fair", Part::FairLine), ("semaphore", Part::Permits)] {
            for name in ["orders", "{orders}:limit", "a}b"] {
                let place =
                    place(Layout::Redisson, kind, (None, name), Space::Database(0)).unwrap();
                assert_eq!(part_of(&place.line), Some((part, name.to_owned())), "{}", place.line);
            }
        }
        // A stranger's key may look like one of ours, in a namespace that no client can have.
        let long = "x".repeat(255);
        assert!(place(Layout::Native, "lock", (Some(&long), "a"), Space::Database(0)).is_err());
        for key in ["lock:grants", "lock:grants:{7}", "lock:{}", "lock:{a}b}", "clock:{a}", ""] {
            assert_eq!(part_of(key), None, "{key}");
        }
    }

    #[test]
    fn a_key_says_which_namespace_it_is_in() {
        for namespace in [None, Some("billing"), Some("lock"), Some("a:lock"), Some("lock_notes:x")]
        {
            for name in ["a", "lock:{a}", "billing:lock:a"] {
                let place =
                    place(Layout::Native, "lock", (namespace, name), Space::Database(0)).unwrap();
                for key in [place.lock, place.line, place.notes, client_key(namespace, "id")] {
                    let (found, rest) = within(&key);
                    assert_eq!(found, namespace, "{key}");
                    assert!(part_of(rest).is_some(), "{key}");
                }
            }
        }
        assert_eq!(within("clock:{a}"), (None, "clock:{a}"));
    }

    #[test]
    fn a_pattern_fits_the_keys_of_its_names() {
        assert_eq!(Namespaces::None.pattern("job:*"), "lock*:{job:*}");
        assert_eq!(Namespaces::None.pattern("a{b}"), "lock*:{a%7Bb%7D}");
        assert_eq!(Namespaces::All.pattern("*"), "*lock*:{*}");
        let strange = Namespaces::one("a*[b]?\\".to_owned()).unwrap();
        assert_eq!(strange.pattern("*"), "a\\*\\[b\\]\\?\\\\:lock*:{*}");
        assert!(Namespaces::one("a{b".to_owned()).is_err());
        let [permits, lines] = redisson_patterns();
        assert_eq!(permits, ("lock_permits:*".to_owned(), "zset"));
        assert_eq!(lines, ("redisson_lock_queue:*".to_owned(), "list"));
    }
}
