//! The scripts: each is joined from files in `lua/`, and called by its hash. `shard.rs` loads those that a server
//! lacks, and `connection.rs` sends the text of one that the server has forgotten.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::{Cmd, Pipeline, Value};

/// A script that the server caches.
#[derive(Debug)]
pub(crate) struct Script {
    /// The files in `lua/` that it is made of.
    files: &'static [&'static str],
    /// Its text in each [`Dialect`], in their order, and the hash of that.
    spelled: [LazyLock<Spelled>; 3],
}

/// How scripts publish, which is their only difference between servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// On channels of the whole server, or of the whole cluster.
    Plain,
    /// On sharded channels, which belong to a slot of a cluster.
    Sharded,
    /// On both. The client listens on channels of the whole cluster.
    Both,
}

/// How every script publishes: the one spelling that [`spelled`] looks for.
const PUBLISH: &str = "redis.pcall('publish'";
const PUBLISH_SHARDED: &str = "redis.pcall('spublish'";
const PUBLISH_BOTH: &str = "publish_both('publish'";
const BOTH: &str = "local function publish_both(_, channel, message)
  redis.pcall('spublish', channel, message)
  return redis.pcall('publish', channel, message)
end
";

macro_rules! scripts {
    ($($name:ident = $($file:literal)+,)*) => {
        $(pub(crate) static $name: Script = {
            const TEXT: &str = concat!($(include_str!(concat!("../../lua/", $file)),)+);
            Script {
                files: &[$($file),+],
                spelled: [
                    LazyLock::new(|| spelled(Dialect::Plain, TEXT)),
                    LazyLock::new(|| spelled(Dialect::Sharded, TEXT)),
                    LazyLock::new(|| spelled(Dialect::Both, TEXT)),
                ],
            }
        };)*

        /// Every script.
        pub(crate) static ALL: &[&Script] = &[$(&$name,)*];
    };
}

scripts! {
    TAKE = "lock/draw.lua" "line/take.lua",
    LOCK_ACQUIRE = "line/plain_acquire_uncontended.lua" "lock/draw_uncontended.lua" "line/plain_put_uncontended.lua" "line/plain_args.lua" "line/clock.lua" "line/keeper.lua" "line/plain_held.lua" "line/ahead.lua" "line/acquire_line_up.lua" "line/acquire_one_line_up.lua" "lock/draw.lua" "line/acquire_args.lua" "line/plain.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "line/heard.lua" "line/sessions.lua" "line/acquire.lua" "line/acquire_one.lua",
    LOCK_ACQUIRE_ALL = "lock/draw.lua" "line/clock.lua" "line/keeper.lua" "line/plain.lua" "line/proof.lua" "line/line.lua" "line/heard.lua" "line/acquire_all.lua" "lock/take_all.lua",
    LOCK_RELEASE = "line/plain_release_uncontended.lua" "line/release_terms.lua" "lock/draw.lua" "line/clock.lua" "line/proof.lua" "line/release_to_head.lua" "line/plain.lua" "line/line.lua" "line/release.lua",
    LOCK_FORCE_UNLOCK = "lock/draw.lua" "line/clock.lua" "line/plain.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "line/force_unlock.lua",
    LOCK_RELEASE_ALONE = "line/plain_release_alone.lua",
    RENEW = "lock/renew.lua",
    RENEW_IN_SESSION = "line/heard.lua" "lock/renew_in_session.lua" "lock/renew.lua",
    STATUS = "lock/status.lua",
    ANNOUNCE = "marks/announce.lua",
    LEADER = "marks/leader.lua",
    CLAIM = "marks/claim.lua",
    LEFT = "marks/left.lua",
    LINE_ACQUIRE = "line/zset_acquire_uncontended.lua" "lock/draw_uncontended.lua" "line/zset_put_uncontended.lua" "line/clock.lua" "line/zset_held.lua" "line/ahead.lua" "line/acquire_line_up.lua" "line/acquire_one_line_up.lua" "lock/draw.lua" "line/acquire_args.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "line/heard.lua" "line/sessions.lua" "line/acquire.lua" "line/acquire_one.lua",
    LINE_ACQUIRE_EACH = "lock/draw.lua" "line/acquire_each_args.lua" "line/acquire_each_uncontended.lua" "line/clock.lua" "line/zset_held.lua" "line/ahead.lua" "line/acquire_line_up.lua" "line/acquire_each_line_up.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/heard.lua" "line/sessions.lua" "line/acquire.lua" "line/acquire_each.lua",
    LINE_RELEASE = "line/release_args.lua" "line/zset_release_uncontended.lua" "line/release_terms.lua" "lock/draw.lua" "line/clock.lua" "line/proof.lua" "line/release_to_head.lua" "line/zset.lua" "line/line.lua" "line/kind.lua" "line/release.lua",
    LINE_RELEASE_ALONE = "line/zset_release_alone.lua",
    LINE_STATUS = "lock/draw.lua" "line/clock.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "line/status.lua",
    LINE_FORCE_UNLOCK = "lock/draw.lua" "line/clock.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "line/force_unlock.lua",
    LINE_RESIZE = "lock/draw.lua" "line/clock.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "line/resize.lua",
    CONDITION_ACQUIRE = "lock/draw.lua" "line/clock.lua" "line/ahead.lua" "line/acquire_args.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "line/heard.lua" "line/sessions.lua" "line/acquire.lua" "line/acquire_one.lua",
    CONDITION_RELEASE = "line/release_args.lua" "line/release_terms.lua" "lock/draw.lua" "line/clock.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/release.lua",
    CONDITION_TAKEN = "lock/draw.lua" "line/clock.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "condition/taken.lua",
    CONDITION_STATUS = "lock/draw.lua" "line/clock.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "line/status.lua",
    CONDITION_FORCE_UNLOCK = "lock/draw.lua" "line/clock.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "line/force_unlock.lua",
    CONDITION_NOTIFY = "lock/draw.lua" "line/clock.lua" "line/zset.lua" "line/proof.lua" "line/line.lua" "line/kind.lua" "line/open_name.lua" "latch/requests.lua" "condition/notify.lua",
    REDISSON_LOCK_ACQUIRE = "lock/draw.lua" "redisson/lock/acquire.lua",
    REDISSON_FENCED_ACQUIRE = "lock/draw.lua" "redisson/count_up.lua" "redisson/lock/acquire.lua",
    REDISSON_LOCK_ACQUIRE_ALL = "lock/draw.lua" "redisson/lock/all_or_none.lua" "lock/take_all.lua",
    REDISSON_LOCK_RELEASE = "redisson/lock/release.lua",
    REDISSON_LOCK_FORCE_UNLOCK = "redisson/lock/force_unlock.lua",
    REDISSON_FAIR_ACQUIRE = "lock/draw.lua" "redisson/fair/fair.lua" "redisson/fair/acquire.lua",
    REDISSON_FAIR_RELEASE = "lock/draw.lua" "redisson/fair/fair.lua" "redisson/fair/release.lua",
    REDISSON_FAIR_RENEW = "lock/draw.lua" "redisson/fair/fair.lua" "redisson/fair/renew.lua",
    REDISSON_FAIR_FORCE_UNLOCK = "lock/draw.lua" "redisson/fair/fair.lua" "redisson/fair/force_unlock.lua",
    REDISSON_READ_ACQUIRE = "lock/draw.lua" "redisson/rw/rw.lua" "redisson/rw/read_acquire.lua",
    REDISSON_READ_RELEASE = "lock/draw.lua" "redisson/rw/rw.lua" "redisson/rw/read_release.lua",
    REDISSON_READ_RENEW = "lock/draw.lua" "redisson/rw/rw.lua" "redisson/rw/read_renew.lua",
    REDISSON_WRITE_ACQUIRE = "lock/draw.lua" "redisson/rw/rw.lua" "redisson/rw/write_acquire.lua",
    REDISSON_WRITE_RELEASE = "lock/draw.lua" "redisson/rw/rw.lua" "redisson/rw/write_release.lua",
    REDISSON_RW_STATUS = "lock/draw.lua" "redisson/rw/rw.lua" "redisson/rw/status.lua",
    REDISSON_RW_FORCE_UNLOCK = "lock/draw.lua" "redisson/rw/rw.lua" "redisson/rw/force_unlock.lua",
    REDISSON_SEMAPHORE_ACQUIRE = "lock/draw.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/acquire.lua",
    REDISSON_SEMAPHORE_RELEASE = "lock/draw.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/release.lua",
    REDISSON_SEMAPHORE_RENEW = "lock/draw.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/renew.lua",
    REDISSON_SEMAPHORE_STATUS = "lock/draw.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/status.lua",
    REDISSON_SEMAPHORE_FORCE_UNLOCK = "lock/draw.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/force_unlock.lua",
    REDISSON_SEMAPHORE_RESIZE = "lock/draw.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/resize.lua",
    LATCH_ACQUIRE = "lock/draw.lua" "line/latch.lua" "latch/latch.lua" "latch/acquire.lua",
    LATCH_RELEASE = "latch/release.lua",
    LATCH_STATUS = "lock/draw.lua" "line/latch.lua" "latch/latch.lua" "latch/status.lua",
    LATCH_ORDER = "lock/draw.lua" "line/latch.lua" "latch/latch.lua" "latch/requests.lua" "latch/order.lua",
    REDISSON_LATCH_ACQUIRE = "lock/draw.lua" "redisson/latch.lua" "latch/latch.lua" "latch/acquire.lua",
    REDISSON_LATCH_STATUS = "lock/draw.lua" "redisson/latch.lua" "latch/latch.lua" "latch/status.lua",
    REDISSON_LATCH_ORDER = "lock/draw.lua" "redisson/latch.lua" "latch/latch.lua" "latch/requests.lua" "latch/order.lua",
}

/// A text, and its hash.
type Spelled = (Cow<'static, str>, String);

fn spelled(dialect: Dialect, text: &'static str) -> Spelled {
    let text: Cow<'_, str> = match dialect {
        Dialect::Plain => text.into(),
        Dialect::Sharded => text.replace(PUBLISH, PUBLISH_SHARDED).into(),
        Dialect::Both => (BOTH.to_owned() + &text.replace(PUBLISH, PUBLISH_BOTH)).into(),
    };
    let hash = redis::Script::new(&text).get_hash().to_owned();
    (text, hash)
}

impl Script {
    pub(crate) fn text(&self, dialect: Dialect) -> &str {
        &self.spelled[dialect as usize].0
    }

    pub(crate) fn hash(&self, dialect: Dialect) -> &str {
        &self.spelled[dialect as usize].1
    }

    /// Whether it is called only on nodes of a cluster.
    fn is_for_clusters(&self) -> bool {
        self.files.iter().any(|file| file.ends_with("release_alone.lua"))
    }

    /// Whether one of its files lies in this folder of `lua/`.
    pub(crate) fn is_in(&self, folder: &str) -> bool {
        self.files.iter().any(|file| file.starts_with(folder))
    }
}

/// The scripts that a client calls on one server.
pub(crate) struct Library {
    scripts: Vec<&'static Script>,
    dialect: Dialect,
}

impl Library {
    /// All scripts, except for a folder that the client never calls. `node`: how a node of a cluster publishes.
    pub(crate) fn new(never_called: &str, node: Option<Dialect>) -> Self {
        let is_called = |script: &&Script| {
            !script.is_in(never_called) && (node.is_some() || !script.is_for_clusters())
        };
        let scripts = ALL.iter().copied().filter(is_called).collect();
        Self { scripts, dialect: node.unwrap_or(Dialect::Plain) }
    }

    /// Asks which of them the server knows.
    pub(crate) fn question(&self) -> Cmd {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("EXISTS");
        self.scripts.iter().for_each(|script| _ = cmd.arg(script.hash(self.dialect)));
        cmd
    }

    /// Loads those that the server does not know, after its answer. Loads all of them if the user may not ask.
    ///
    /// The texts are nine tenths of a megabyte. After a failover many clients connect at the same time: if each of them sent all
    /// texts, they could all exceed their time to connect, again and again. And Redis 6.2 also replicates what it
    /// loads.
    pub(crate) fn load_missing(&self, known: Option<&Value>) -> Pipeline {
        let known = match known {
            Some(Value::Array(known)) => known.as_slice(),
            _ => &[],
        };
        let mut pipe = Pipeline::new();
        for (at, script) in self.scripts.iter().enumerate() {
            if known.get(at) != Some(&Value::Int(1)) {
                pipe.cmd("SCRIPT").arg("LOAD").arg(script.text(self.dialect));
            }
        }
        pipe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_publishes_in_the_spelling_that_a_cluster_replaces() {
        for script in ALL {
            let code = |text: &str| {
                let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default());
                lines.collect::<Vec<_>>().join("\n").to_lowercase()
            };
            let published = code(script.text(Dialect::Plain)).matches("'publish'").count();
            assert_eq!(published, code(script.text(Dialect::Plain)).matches(PUBLISH).count());
            let sharded = code(script.text(Dialect::Sharded));
            assert_eq!(sharded.matches("'publish'").count(), 0);
            assert_eq!(sharded.matches(PUBLISH_SHARDED).count(), published);
            let both = code(script.text(Dialect::Both).strip_prefix(BOTH).expect("it begins so"));
            assert_eq!(both.matches(PUBLISH_BOTH).count(), published);
            assert_eq!(both.matches("redis.pcall('publish'").count(), 0);
        }
        let publishing =
            ALL.iter().filter(|script| script.text(Dialect::Plain).contains(PUBLISH)).count();
        assert!(publishing > 10, "{publishing} scripts publish");
    }

    #[test]
    fn a_single_server_gets_no_script_for_clusters() {
        let all = |node| Library::new("redisson/", node).load_missing(None);
        let [alone, node, sharded] = [None, Some(Dialect::Plain), Some(Dialect::Sharded)].map(all);
        assert_eq!(node.len(), alone.len() + 2);
        let text = |pipe: &Pipeline| String::from_utf8(pipe.get_packed_pipeline()).unwrap();
        assert!(!text(&alone).contains("spublish") && !text(&node).contains("spublish"));
        assert!(text(&sharded).contains("spublish"));
    }

    #[test]
    fn only_what_the_server_does_not_know_is_loaded() {
        let library = Library::new("redisson/", None);
        let count = library.scripts.len();
        let mut known = vec![Value::Int(1); count];
        assert_eq!(library.load_missing(Some(&Value::Array(known.clone()))).len(), 0);
        known[3] = Value::Int(0);
        let missing = library.load_missing(Some(&Value::Array(known)));
        let mut third = Pipeline::new();
        third.cmd("SCRIPT").arg("LOAD").arg(library.scripts[3].text(Dialect::Plain));
        assert_eq!(missing.get_packed_pipeline(), third.get_packed_pipeline());
        // The user may not ask.
        assert_eq!(library.load_missing(Some(&Value::Nil)).len(), count);
    }

    #[test]
    fn every_script_says_what_it_is_asked_and_what_it_answers() {
        for script in ALL {
            for word in ["-- KEYS ", "-- Reply "] {
                let said = script.text(Dialect::Plain).lines().any(|line| line.starts_with(word));
                assert!(said, "{word} is missing in {}", script.text(Dialect::Plain));
            }
        }
    }
}
