//! Keys and channels of names: every format that another client can see. `kinds.rs` has the prefixes, and says which keys
//! each kind has. Here a name is put into them.

use std::borrow::Cow;
use std::fmt;

use crate::config::{LONGEST_NAMESPACE, Layout};
use crate::error::{Error, Result};
use crate::kinds::{
    CLIENTS, Family, KeyFormat, Kind, Line, NATIVE_CHANNEL, NATIVE_LOCK, NOTES, OWN_PREFIXES,
    REDISSON_CHANNEL, REDISSON_TOKENS, Row, TOKEN_COUNTER, TokenCounter,
};
use crate::meters::{Labels, Meters};
use crate::slot::Slot;

/// The longest name that a user may give a lock, in bytes.
const LONGEST_NAME: usize = 1024;

/// The prefix of a cluster's token counters. In the native layout no lock can have such a key.
const COUNTER_OF_A_SLOT: &str = "lock:grants:{";

/// The [`Keys::id`]s of the locks that a channel may belong to. Redisson's locks `a` and `{a}` share one channel.
pub(crate) fn ids_of(layout: Layout, channel: &str) -> impl Iterator<Item = &str> {
    let (tag, named) = match layout {
        Layout::Native => (Some(tag_in(channel)), None),
        Layout::Redisson => [channel.strip_prefix(REDISSON_CHANNEL); 2].into(),
    };
    let bare =
        named.and_then(|name| name.strip_prefix('{')).and_then(|name| name.strip_suffix('}'));
    tag.into_iter().chain(bare)
}

/// The name with its braces in a native channel. The name contains no other brace, since its own are encoded. The parts
/// around it have none either: a namespace and the number of a database before it, and the id of a client after it.
fn tag_in(channel: &str) -> &str {
    let tag = channel.find('{').map_or("", |brace| &channel[brace..]);
    tag.find('}').map_or(tag, |brace| &tag[..=brace])
}

/// Where all keys of a client are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "operator"), allow(unreachable_pub, reason = "that feature exports it"))]
pub enum Space {
    /// In the database of this number, on one server.
    Database(i64),
    /// In the database of this number, in the slots of a cluster.
    Cluster(i64),
}

/// The place of one lock in Redis. Each handle and each held lock has one, so it stores as little text as possible.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The channel for messages to all clients. It ends with the name, as each layout writes it.
    pub(crate) channel: Box<str>,
    pub(crate) kind: Kind,
    /// The row of its kind in its layout.
    pub(crate) row: &'static Row,
    /// Where the channel writes the name, with its braces: from this byte to the end. A caller needs it for each turn.
    tag: u16,
    /// How long the namespace is, with its colon. The channel begins with it, or in Redisson's layout the name in it.
    prefix: u8,
    /// Whether the channel adds braces around the name.
    pub(crate) braced: bool,
    /// In a cluster: the slot of all its keys and channels.
    pub(crate) slot: Option<Slot>,
    /// Its metrics.
    pub(crate) meters: Meters,
}

/// A key, assembled when it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'a>(&'a str, &'static str, &'a str, &'static str);

impl Key<'_> {
    pub(crate) fn parts(&self) -> [&str; 4] {
        [self.0, self.1, self.2, self.3]
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().into_iter().try_for_each(|part| f.write_str(part))
    }
}

/// The key under which a client describes itself. The prefix is a namespace and a colon, or empty.
pub(crate) fn of_client(prefix: &str, client: &str) -> String {
    format!("{prefix}{CLIENTS}{client}}}")
}

/// The key under which a client with a session records where it is: see `lua/line/sessions.lua`, which derives the same key from that of the notes.
pub(crate) fn record_of_session(prefix: &str, client: &str) -> String {
    let notes = NOTES.trim_end_matches('{');
    format!("{prefix}{notes}session:{{{client}}}")
}

/// The prefix of all native channels of a client: see [`Keys::channel_prefix`].
pub(crate) fn channel_prefix(space: Space, prefix: &str) -> String {
    let (Space::Database(number) | Space::Cluster(number)) = space;
    let database = if number > 0 { format!("{number}:") } else { String::new() };
    format!("{prefix}{NATIVE_CHANNEL}{database}")
}

/// The id of a tenure. A client never uses it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenureId(pub(crate) u64);

impl TenureId {
    /// The owner field in the hash.
    pub(crate) fn of(self, client: &str) -> Field<'_> {
        Field { client, id: self }
    }
}

/// An owner field, assembled when it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) client: &'a str,
    pub(crate) id: TenureId,
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.id.0)
    }
}

impl Keys {
    /// The keys of a name in database 0.
    #[cfg(test)]
    pub(crate) fn new(layout: Layout, kind: Kind, name: String) -> Result<Self> {
        Self::in_space(Space::Database(0), "", layout, kind, name)
    }

    /// The keys of a name. The prefix is that of the client's namespace, or empty.
    ///
    /// # Errors
    /// [`Error::InvalidName`] if the name is empty or longer than 1 KiB, or if its keys would lie in several slots of a
    /// cluster.
    pub(crate) fn in_space(
        space: Space,
        prefix: &str,
        layout: Layout,
        kind: Kind,
        name: String,
    ) -> Result<Self> {
        check(space, prefix, layout, &name)?;
        // Redisson's rule: a name with a brace counts as having its own hash tag. Redisson's latches do not follow this
        // rule.
        let row = kind.row(layout);
        let is_native = row.layout == Layout::Native;
        let braced = is_native || row.family == Family::RedissonLatch || !name.contains('{');
        let name = if is_native { escaped(&name) } else { Cow::Borrowed(&*name) };
        // Keys belong to a database, but channels to the whole server. Without the number, a release would wake the
        // waiters of the same name in another database. Redisson's channels do not contain it.
        let (open, close) = if braced { ("{", "}") } else { ("", "") };
        // Redisson maps names, and derives everything else from the mapped name.
        let (before, mapped) = match is_native {
            true => (channel_prefix(space, prefix), ""),
            false => (row.channel.to_owned(), prefix),
        };
        let channel = [&before, open, mapped, &name, close].concat().into_boxed_str();
        let tag = u16::try_from(before.len()).expect("a prefix is short");
        let prefix = u8::try_from(prefix.len()).expect("a namespace is short");
        let meters = Meters::default();
        let keys = Self { channel, kind, row, tag, prefix, braced, slot: None, meters };
        if matches!(space, Space::Cluster(_)) { keys.in_one_slot() } else { Ok(keys) }
    }

    /// The same keys in a cluster. Scripts can only access keys of one slot.
    fn in_one_slot(mut self) -> Result<Self> {
        let slot = Slot::of(&self.lock().to_string());
        self.slot = Some(slot);
        let beside =
            [self.line(), self.notes(), self.tokens()].map(|key| Slot::of(&key.to_string()));
        if beside.into_iter().chain([Slot::of(&self.channel)]).any(|other| other != slot) {
            return Err(Error::InvalidName {
                reason: "its keys would lie in several slots of the cluster",
            });
        }
        Ok(self)
    }

    /// The same keys, with metrics under these labels.
    pub(crate) fn counted(self, labels: &Labels) -> Self {
        Self { meters: labels.meters(self.kind.word(), || self.name()), ..self }
    }

    fn is_native(&self) -> bool {
        self.row.layout == Layout::Native
    }

    /// The name that the user gave.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        if self.is_native() {
            unescaped(self.written())
        } else {
            self.written()[usize::from(self.prefix)..].into()
        }
    }

    /// The namespace, if there is one.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.prefix().strip_suffix(':')
    }

    /// The namespace and a colon, or nothing.
    fn prefix(&self) -> &str {
        let text = if self.is_native() { &self.channel } else { self.written() };
        &text[..usize::from(self.prefix)]
    }

    /// What comes before each key of a name. In Redisson's layout the name itself has the prefix.
    fn first(&self) -> &str {
        if self.is_native() { self.prefix() } else { "" }
    }

    /// The name as it is written in the channel.
    fn written(&self) -> &str {
        let tag = self.tag();
        &tag[usize::from(self.braced)..tag.len() - usize::from(self.braced)]
    }

    /// The name as it is written in the channel, with its braces.
    fn tag(&self) -> &str {
        &self.channel[usize::from(self.tag)..]
    }

    fn key(&self, format: KeyFormat) -> Key<'_> {
        match format {
            KeyFormat::Tagged(before, after) => Key(self.first(), before, self.tag(), after),
            KeyFormat::Bare => Key(self.first(), "", self.written(), ""),
            KeyFormat::Own(prefix) => self.own(prefix, "}", ":"),
        }
    }

    /// What errors call the kind of these keys.
    pub(crate) fn called(&self) -> String {
        Kind::called(&format!("{} {}", self.row.word, self.kind.capacity()))
    }

    /// The key of the holders, or of the count of a latch.
    pub(crate) fn lock(&self) -> Key<'_> {
        self.key(self.row.keys.lock.0)
    }

    /// The key of the waiters: see [`KeyFormats::line`](crate::kinds::KeyFormats::line).
    pub(crate) fn line(&self) -> Key<'_> {
        self.key(self.row.keys.line.0)
    }

    /// The key of further notes about waiters and holders.
    pub(crate) fn notes(&self) -> Key<'_> {
        self.key(self.row.keys.notes.0)
    }

    /// A key that only parklock uses, with the suffix for a name in braces or for a bare one. Each name has its own, in the
    /// slot of the cluster in which the lock lies. With the prefix of the notes it needs no separate permission.
    ///
    /// Redisson gives the names `a` and `{a}` the same channels and keys, but parklock's keys must differ. So a name
    /// with a `}` is not put into braces, and its key ends differently. If that brace closes no tag, Redis hashes the
    /// whole name, and no longer key can lie in the same slot.
    fn own(&self, prefix: &'static str, braced: &'static str, bare: &'static str) -> Key<'_> {
        let name = self.written();
        if name.contains('}') {
            Key(self.first(), prefix.trim_end_matches('{'), name, bare)
        } else {
            Key(self.first(), prefix, name, braced)
        }
    }

    /// Where the leader of an election of this name announces itself.
    pub(crate) fn leader(&self) -> Key<'_> {
        self.own(NOTES, "}:leader", "::leader")
    }

    /// Which hold has claimed the current interval, for a periodic job of this name.
    pub(crate) fn interval(&self) -> Key<'_> {
        self.own(NOTES, "}:interval", "::interval")
    }

    /// The requests to a native latch or a condition of this name that the server has carried out.
    pub(crate) fn requests(&self) -> Key<'_> {
        self.own(NOTES, "}:requests", "::requests")
    }

    /// The token counter.
    pub(crate) fn tokens(&self) -> Key<'_> {
        match (self.row.keys.tokens, self.slot) {
            // One for each slot, since the counter must move with the locks of its slot.
            (TokenCounter::Shared, Some(slot)) => {
                Key(self.prefix(), COUNTER_OF_A_SLOT, slot.tag(), "}")
            }
            (TokenCounter::Shared, None) => Key(self.prefix(), TOKEN_COUNTER, "", ""),
            (TokenCounter::Redissons, _) => self.key(KeyFormat::Tagged(REDISSON_TOKENS, "")),
        }
    }

    /// Every key, and its type.
    pub(crate) fn types(&self) -> [(Key<'_>, &'static str); 4] {
        let keys = &self.row.keys;
        let [lock, line, notes] =
            [keys.lock, keys.line, keys.notes].map(|(format, kind)| (self.key(format), kind));
        [lock, line, notes, (self.tokens(), "string")]
    }

    /// The channel of the lock whose holders have this key. `None`: it is no such key.
    pub(crate) fn channel_of_holders(
        space: Space,
        prefix: &str,
        layout: Layout,
        key: &str,
    ) -> Option<Box<str>> {
        let name = key.strip_prefix(prefix)?;
        let name = match layout {
            Layout::Native => {
                let tag = name.strip_prefix(NATIVE_LOCK)?;
                unescaped(tag.strip_prefix('{')?.strip_suffix('}')?)
            }
            Layout::Redisson => name.into(),
        };
        let keys = Self::in_space(space, prefix, layout, Kind::Lock, name.into_owned());
        keys.ok().map(|keys| keys.channel)
    }

    /// The id of a plain lock within a client.
    pub(crate) fn id(&self) -> &str {
        if self.is_native() { self.tag() } else { self.written() }
    }

    /// The prefix of the channels of all locks of this database. The rest is as in a native key after `lock:`.
    pub(crate) fn channel_prefix(&self) -> &str {
        &self.channel[..usize::from(self.tag)]
    }

    /// The channel for one client alone, in the native layout. Its messages say that a caller of this client has the
    /// lock, or is near the front of the line.
    pub(crate) fn client_channel(&self, client: &str) -> Box<str> {
        format!("{}:{client}", self.channel).into()
    }

    /// The channel on which a waiter with its own place in line hears of its grant.
    pub(crate) fn channel_of(&self, waiter: Field<'_>) -> Box<str> {
        match self.row.line {
            Line::Redissons => format!("{}:{waiter}", self.channel).into(),
            _ => self.channel.clone(),
        }
    }

    /// The class of a request: callers of one class share an entry. For a semaphore it is the number of permits. If the
    /// server has no line for the semaphore, all callers of a client share one queue, so that small requests do not
    /// overtake a large one.
    pub(crate) fn class(&self, permits: u32) -> u32 {
        if self.row.line.is_ours() && self.row.holders.are_several() { permits } else { 0 }
    }

    /// Whether a contender asks under the same owner field until it is granted the lock.
    pub(crate) fn asks_again(&self) -> bool {
        self.row.line != Line::None
    }
}

fn check(space: Space, prefix: &str, layout: Layout, name: &str) -> Result<()> {
    // A client has a checked namespace. The tool takes one from whatever keys it finds.
    if prefix.len() > LONGEST_NAMESPACE + 1 {
        return Err(Error::InvalidName { reason: "its namespace is too long" });
    }
    if layout == Layout::Redisson {
        // The first is for keys of this namespace, the second for those of clients that have none.
        check_as_key(space, name)?;
        check_as_key(space, &[prefix, name].concat())?;
    }
    match name.len() {
        0 => Err(Error::InvalidName { reason: "it is empty" }),
        1..=LONGEST_NAME => Ok(()),
        _ => Err(Error::InvalidName { reason: "it is longer than 1 KiB" }),
    }
}

/// In Redisson's layout a name is a key: it must not be one of parklock's own.
fn check_as_key(space: Space, name: &str) -> Result<()> {
    let is_counter = match space {
        Space::Database(_) => name == TOKEN_COUNTER,
        Space::Cluster(_) => name.starts_with(TOKEN_COUNTER),
    };
    if is_counter {
        return Err(Error::InvalidName { reason: "it is the key of the token counter" });
    }
    if OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix.trim_end_matches('{'))) {
        return Err(Error::InvalidName {
            reason: "this prefix is reserved for keys of parklock itself",
        });
    }
    Ok(())
}

/// The name as a hash tag. Redis ends a tag at the first closing brace, so the braces of the name are encoded.
pub(crate) fn escaped(name: &str) -> Cow<'_, str> {
    if name.contains(['%', '{', '}']) {
        name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D").into()
    } else {
        name.into()
    }
}

pub(crate) fn unescaped(name: &str) -> Cow<'_, str> {
    if name.contains('%') {
        name.replace("%7D", "}").replace("%7B", "{").replace("%25", "%").into()
    } else {
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(layout: Layout, name: &str) -> (String, String) {
        let keys = Keys::new(layout, Kind::Lock, name.to_owned()).unwrap();
        (keys.lock().to_string(), keys.channel.into())
    }

    fn pair(lock: &str, channel: &str) -> (String, String) {
        (lock.to_owned(), channel.to_owned())
    }

    #[test]
    fn a_native_name_is_a_hash_tag_whatever_it_contains() {
        assert_eq!(
            keys(Layout::Native, "orders:42"),
            pair("lock:{orders:42}", "lock_channel:{orders:42}")
        );
        assert_eq!(
            keys(Layout::Native, "a}b{%"),
            pair("lock:{a%7Db%7B%25}", "lock_channel:{a%7Db%7B%25}")
        );
    }

    #[test]
    fn the_name_is_what_the_user_said_it_was() {
        for layout in [Layout::Native, Layout::Redisson] {
            for name in ["a", "{", "a}b{%", "%7B", "%257B%", "a{b}", "{a}", "lock_channel:{a}"] {
                assert_eq!(Keys::new(layout, Kind::Lock, name.to_owned()).unwrap().name(), name);
            }
        }
    }

    #[test]
    fn the_key_of_the_holders_leads_to_the_channel_of_the_lock() {
        for (layout, name) in [Layout::Native, Layout::Redisson]
            .into_iter()
            .flat_map(|layout| ["a", "{a}", "a}b{%", "lock:{a}"].map(|name| (layout, name)))
        {
            for (prefix, space) in [("", Space::Database(0)), ("billing:", Space::Database(3))] {
                let keys = Keys::in_space(space, prefix, layout, Kind::Fenced, name.to_owned());
                let keys = keys.unwrap();
                let key = keys.lock().to_string();
                let found = Keys::channel_of_holders(space, prefix, layout, &key);
                assert_eq!(found, Some(keys.channel), "{key}");
            }
        }
        let found = |key| Keys::channel_of_holders(Space::Database(0), "", Layout::Native, key);
        for other in ["lock:grants", "lock_queue:{a}", "lock:{a}b", "billing:lock:{a}", "lock:{}"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn the_line_lies_beside_the_lock() {
        let line = |layout, kind, name: &str| {
            Keys::new(layout, kind, name.to_owned()).unwrap().line().to_string()
        };
        let semaphore = Kind::Semaphore { permits: 1 };
        assert_eq!(line(Layout::Native, Kind::Lock, "a{"), "lock_queue:{a%7B}");
        assert_eq!(line(Layout::Redisson, semaphore, "a"), "lock_permits:{a}");
        assert_eq!(line(Layout::Redisson, Kind::Lock, "a"), "a", "it has no line");
    }

    #[test]
    fn a_mark_never_has_the_key_of_another_name() {
        for layout in [Layout::Native, Layout::Redisson] {
            let names = ["a", "a}", "{a}", "a:leader", "a}:leader", "a}:leader:", "a:leader:"];
            let keys = names.map(|name| Keys::new(layout, Kind::Lock, name.to_owned()).unwrap());
            let of = |keys: &Keys| {
                [keys.own(NOTES, "}", ":"), keys.leader(), keys.interval()]
                    .map(|key| key.to_string())
            };
            let all: Vec<_> = keys.iter().flat_map(of).collect();
            let distinct: std::collections::BTreeSet<_> = all.iter().collect();
            assert_eq!(distinct.len(), all.len(), "{all:?}");
        }
    }

    #[test]
    fn a_mark_lies_in_the_slot_of_its_lock() {
        for name in ["a", "{a}", "a}b", "{}"] {
            let made =
                Keys::in_space(Space::Cluster(0), "", Layout::Native, Kind::Lock, name.to_owned());
            let keys = made.unwrap();
            for mark in [keys.leader(), keys.interval()] {
                assert_eq!(Some(Slot::of(&mark.to_string())), keys.slot, "{mark}");
            }
        }
    }

    #[test]
    fn a_native_channel_names_its_database_unless_it_is_the_first() {
        let in_database = |database, layout, name: &str| {
            let space = Space::Database(database);
            Keys::in_space(space, "", layout, Kind::Lock, name.to_owned()).unwrap()
        };
        assert_eq!(&*in_database(0, Layout::Native, "3:a").channel, "lock_channel:{3:a}");
        let other = in_database(3, Layout::Native, "a}b");
        assert_eq!(other.channel_prefix(), "lock_channel:3:");
        assert_eq!(&*other.channel, "lock_channel:3:{a%7Db}");
        assert_eq!(other.lock().to_string(), "lock:{a%7Db}");
        assert_eq!(other.name(), "a}b");
        assert!(ids_of(Layout::Native, &other.channel).eq([other.id()]));
        assert_eq!(&*in_database(3, Layout::Redisson, "a").channel, "redisson_lock__channel:{a}");
        let in_cluster =
            Keys::in_space(Space::Cluster(3), "", Layout::Native, Kind::Lock, "a}b".to_owned());
        let in_cluster = in_cluster.unwrap();
        assert_eq!(in_cluster.channel, other.channel);
        assert_eq!(in_cluster.slot, Some(Slot::of(&other.channel)));
    }

    fn slot(key: &str) -> Slot {
        Slot::of(key)
    }

    fn tag_of(key: &str) -> Option<&str> {
        let (tag, _) = key.split_once('{')?.1.split_once('}')?;
        (!tag.is_empty()).then_some(tag)
    }

    /// Conditions exist only in the native layout.
    const KINDS: [Kind; 8] = [
        Kind::Lock,
        Kind::Fenced,
        Kind::Fair,
        Kind::Read,
        Kind::Write,
        Kind::Semaphore { permits: 3 },
        Kind::Expirable { permits: 3 },
        Kind::Latch,
    ];

    /// A name with bytes that could make it more than one tag.
    fn random_name() -> String {
        let parts = ["{", "}", "%", "%7B", "{}", ":", "a", "ü", " "];
        (0..fastrand::usize(1..8)).map(|_| parts[fastrand::usize(..parts.len())]).collect()
    }

    #[test]
    fn in_a_cluster_the_counter_lies_in_the_slot_of_the_lock() {
        for _ in 0..1_000 {
            let name = random_name();
            for kind in KINDS {
                let made =
                    Keys::in_space(Space::Cluster(0), "", Layout::Native, kind, name.clone());
                let keys = made.unwrap();
                let lock = slot(&keys.lock().to_string());
                assert_eq!((keys.slot, slot(&keys.tokens().to_string())), (Some(lock), lock));
                assert!(keys.tokens().to_string().starts_with("lock:grants:{"));
            }
        }
        let alone = Keys::new(Layout::Native, Kind::Lock, "a".to_owned()).unwrap();
        assert_eq!((alone.tokens().to_string().as_str(), alone.slot), (TOKEN_COUNTER, None));
    }

    #[test]
    fn in_a_cluster_a_name_whose_keys_lie_in_several_slots_is_refused() {
        let made = |kind, name: &str| {
            Keys::in_space(Space::Cluster(0), "", Layout::Redisson, kind, name.to_owned()).map(drop)
        };
        let is_refused = |kind, name| matches!(made(kind, name), Err(Error::InvalidName { .. }));
        for kind in KINDS {
            assert!(made(kind, "a").is_ok(), "{kind:?}");
            // Redisson wraps a latch's name in braces in its channel, whatever braces the name has.
            assert_eq!(made(kind, "{a}b").is_ok(), kind != Kind::Latch, "{kind:?}");
            // If a name has no complete tag, Redis hashes the whole name, including the braces that a latch adds.
            assert_eq!(made(kind, "{a").is_ok(), kind == Kind::Latch, "{kind:?}");
            for name in ["a}b", "lock:grants:{7}"] {
                assert!(is_refused(kind, name), "{kind:?} {name}");
            }
        }
    }

    /// All keys and channels of a name, and the counter of its tokens.
    fn all_of(keys: &Keys) -> Vec<String> {
        let marks = [keys.leader(), keys.interval(), keys.requests()];
        let all = keys.types().map(|(key, _)| key).into_iter().chain(marks);
        let channels = [keys.client_channel("client"), keys.channel_of(TenureId(7).of("client"))];
        let channels = channels.iter().chain([&keys.channel]).map(|channel| channel.to_string());
        all.map(|key| key.to_string()).chain(channels).collect()
    }

    #[test]
    fn a_namespace_comes_before_every_native_key_and_channel_and_changes_nothing_else() {
        for space in [Space::Database(0), Space::Database(3), Space::Cluster(0), Space::Cluster(3)]
        {
            for kind in KINDS.into_iter().chain([Kind::Condition]) {
                for name in [random_name(), "x".repeat(LONGEST_NAME), "billing:a".to_owned()] {
                    let made = |prefix| {
                        Keys::in_space(space, prefix, Layout::Native, kind, name.clone()).unwrap()
                    };
                    let (with, without) = (made("*:é:"), made(""));
                    let prefixed =
                        all_of(&without).iter().map(|key| format!("*:é:{key}")).collect::<Vec<_>>();
                    assert_eq!(all_of(&with), prefixed);
                    assert_eq!((with.slot, with.name()), (without.slot, without.name()));
                    assert_eq!((with.namespace(), without.namespace()), (Some("*:é"), None));
                    let prefixed = format!("*:é:{}", without.channel_prefix());
                    assert_eq!(with.channel_prefix(), prefixed);
                    assert!(ids_of(Layout::Native, &with.channel).eq([with.id()]));
                }
            }
        }
        assert_eq!(of_client("billing:", "id"), "billing:lock_client:{id}");
    }

    /// The names of clients with the namespace `billing` are those of clients without one that begin with `billing:`.
    #[test]
    fn in_redissons_layout_a_namespace_maps_names() {
        for space in [Space::Database(3), Space::Cluster(0)] {
            for kind in KINDS {
                for name in ["a", "{a}", "a{b}c", "{", "a}b", &"x".repeat(LONGEST_NAME - 8)] {
                    let made = |prefix, name: &str| {
                        Keys::in_space(space, prefix, Layout::Redisson, kind, name.to_owned())
                    };
                    let (with, mapped) =
                        (made("billing:", name), made("", &format!("billing:{name}")));
                    let (Ok(with), Ok(mapped)) = (&with, &mapped) else {
                        assert_eq!(with.is_err(), mapped.is_err(), "{kind:?} {name}");
                        continue;
                    };
                    let is_counter = |key: &String| key.contains("lock:grants");
                    let all = |keys| {
                        let all = all_of(keys);
                        all.into_iter().filter(|key| !is_counter(key)).collect::<Vec<_>>()
                    };
                    assert_eq!(all(with), all(mapped));
                    let is_shared = kind != Kind::Fenced;
                    assert_eq!(
                        is_shared,
                        with.tokens().to_string().starts_with("billing:lock:grants")
                    );
                    assert_eq!((with.name(), with.namespace()), (name.into(), Some("billing")));
                    assert!(
                        kind != Kind::Lock || {
                            ids_of(Layout::Redisson, &with.channel).any(|id| id == with.id())
                        }
                    );
                }
            }
        }
    }

    /// F48: for any name, all keys lie in one slot, except the token counter, which all locks share.
    #[test]
    fn all_keys_of_a_native_name_lie_in_one_slot() {
        for _ in 0..10_000 {
            let name = random_name();
            for kind in KINDS.into_iter().chain([Kind::Condition]) {
                let keys = Keys::new(Layout::Native, kind, name.clone()).unwrap();
                let lock = slot(&keys.lock().to_string());
                for other in [keys.line(), keys.notes(), keys.requests()] {
                    assert_eq!(slot(&other.to_string()), lock, "{other} of {name:?}");
                }
                assert_eq!(slot(&keys.channel), lock, "{} of {name:?}", keys.channel);
                let client = keys.client_channel("client");
                assert_eq!(slot(&client), lock, "{client} of {name:?}");
                assert!(ids_of(Layout::Native, &client).eq([keys.id()]), "{client} of {name:?}");
                let waiter = keys.channel_of(TenureId(7).of("client"));
                assert_eq!(slot(&waiter), lock, "{waiter} of {name:?}");
            }
        }
    }

    /// Similar names: they differ in braces, in escapes, and in the words of which the keys are made.
    fn names_alike() -> Vec<String> {
        let words =
            ["a", "{a}", "a}", "{a", "{{a}}", "{}a", "a}b{c}", "{a}b", "a%7B", "%", "}", "{"];
        let words =
            words.into_iter().chain(["lock_permits:{a}", "lock_notes:a}", "lock_queue:{a}:"]);
        let random = (0..300).map(|_| random_name());
        words.map(str::to_owned).chain(random).collect()
    }

    /// B1: two names never share a key that only parklock uses, and that key lies in the slot of the name.
    #[test]
    fn each_name_has_keys_of_its_own_in_one_slot() {
        for layout in [Layout::Native, Layout::Redisson] {
            let mut owners = std::collections::HashMap::<String, String>::new();
            for (name, kind) in
                names_alike().iter().flat_map(|name| KINDS.map(|kind| (name.clone(), kind)))
            {
                let Ok(keys) = Keys::new(layout, kind, name.clone()) else { continue };
                let mut all = vec![keys.lock(), keys.line()];
                // For Redisson's read-write locks, this key is only the beginning of the readers' keys.
                if layout == Layout::Native || !matches!(kind, Kind::Read | Kind::Write) {
                    all.push(keys.notes());
                }
                for key in all.iter().map(Key::to_string) {
                    if is_redissons(layout, &key) {
                        continue;
                    }
                    let owner = owners.entry(key.clone()).or_insert_with(|| name.clone());
                    assert_eq!(*owner, name, "{key} is of both, {kind:?}");
                    let lock = keys.lock().to_string();
                    if layout == Layout::Native || tag_of(&name).is_some() || !name.contains('}') {
                        assert_eq!(slot(&key), slot(&lock), "{key} of {name:?}, {kind:?}");
                    }
                }
            }
        }
    }

    /// These keys have Redisson's formats: `a` and `{a}` share them in Redisson too.
    fn is_redissons(layout: Layout, key: &str) -> bool {
        let theirs = key.starts_with("redisson_") || key.ends_with(":timeout");
        layout == Layout::Redisson && theirs
    }

    #[test]
    fn an_owner_field_is_the_client_and_the_number_of_its_tenure() {
        assert_eq!(TenureId(7).of("client").to_string(), "client:7");
    }

    #[test]
    fn different_names_never_share_a_key() {
        assert_ne!(keys(Layout::Native, "a{").0, keys(Layout::Native, "a%7B").0);
    }

    #[test]
    fn a_redisson_name_is_the_key_itself() {
        assert_eq!(keys(Layout::Redisson, "k"), pair("k", "redisson_lock__channel:{k}"));
        assert_eq!(keys(Layout::Redisson, "a{b}"), pair("a{b}", "redisson_lock__channel:a{b}"));
    }

    #[test]
    fn a_channel_leads_back_to_all_locks_that_it_may_be_of() {
        for (layout, name) in [
            (Layout::Native, "a"),
            (Layout::Native, "a}b"),
            (Layout::Redisson, "a"),
            (Layout::Redisson, "{a}"),
            (Layout::Redisson, "b{a}"),
        ] {
            let keys = Keys::new(layout, Kind::Lock, name.to_owned()).unwrap();
            assert!(ids_of(layout, &keys.channel).any(|id| id == keys.id()), "{name}");
        }
        let redisson =
            |name: &str| Keys::new(Layout::Redisson, Kind::Lock, name.to_owned()).unwrap();
        assert_ne!(redisson("a").id(), redisson("{a}").id());
    }

    #[test]
    fn in_redissons_layout_the_message_is_a_number() {
        assert_eq!(Layout::Redisson.message("client"), "0");
        assert_eq!(Layout::Native.message("client"), "client");
    }

    #[test]
    fn in_redissons_layout_a_name_must_not_be_a_key_of_parklock() {
        for (prefix, name) in [("lock:", "grants"), ("lock_notes:", "a"), ("b:", "lock:grants")] {
            let space = Space::Database(0);
            let made = Keys::in_space(space, prefix, Layout::Redisson, Kind::Lock, name.to_owned());
            assert!(matches!(made, Err(Error::InvalidName { .. })), "{prefix}{name}");
        }
        for name in ["lock:grants", "lock_permits:a", "lock_notes:", "lock_requests:x"] {
            let made = |layout| Keys::new(layout, Kind::Lock, name.to_owned());
            assert!(matches!(made(Layout::Redisson), Err(Error::InvalidName { .. })), "{name}");
            assert!(made(Layout::Native).is_ok(), "{name}");
        }
    }

    #[test]
    fn names_from_one_byte_to_one_kib_are_taken() {
        let made = |len: usize| Keys::new(Layout::Native, Kind::Lock, "x".repeat(len));
        assert!(matches!(made(0), Err(Error::InvalidName { .. })));
        assert!(made(1).is_ok());
        assert!(made(1024).is_ok());
        assert!(matches!(made(1025), Err(Error::InvalidName { .. })));
    }
}
