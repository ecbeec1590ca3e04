//! The scripts: one file each in `lua/`, called by hash.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline};

/// A script that the server keeps.
#[derive(Debug)]
pub(crate) struct Script {
    /// The files in `lua/` that it is made of.
    files: &'static [&'static str],
    text: &'static str,
    hash: LazyLock<String>,
    /// The same script where channels belong to slots, and its hash.
    sharded: LazyLock<(String, String)>,
    /// The same script that tells everybody, and its hash.
    both: LazyLock<(String, String)>,
}

/// How scripts tell others, which is all in which they differ from server to server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// On channels of the whole server, or of the whole cluster.
    Plain,
    /// On channels that belong to a slot of a cluster.
    Sharded,
    /// On both. The client listens on channels of the whole cluster.
    Both,
}

/// How every script publishes: the one spelling that [`respelled`] looks for.
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
        $(pub(crate) static $name: Script = Script {
            files: &[$($file),+],
            text: concat!($(include_str!(concat!("../../lua/", $file)),)+),
            hash: LazyLock::new(|| hash(concat!($(include_str!(concat!("../../lua/", $file)),)+))),
            sharded: LazyLock::new(|| respelled("", PUBLISH_SHARDED, concat!($(include_str!(concat!("../../lua/", $file)),)+))),
            both: LazyLock::new(|| respelled(BOTH, PUBLISH_BOTH, concat!($(include_str!(concat!("../../lua/", $file)),)+))),
        };)*

        /// Every script.
        pub(crate) static ALL: &[&Script] = &[$(&$name,)*];
    };
}

scripts! {
    TAKE = "line/take_one.lua" "lock/number.lua" "line/put_straight.lua" "lock/grant.lua" "line/take.lua",
    LOCK_ACQUIRE = "line/lock_straight.lua" "lock/number.lua" "line/put_straight.lua" "lock/grant.lua" "line/clock.lua" "line/asked.lua" "line/line_up.lua" "line/hash.lua" "line/line.lua" "line/head.lua" "line/acquire.lua",
    LOCK_ACQUIRE_ALL = "lock/grant.lua" "line/clock.lua" "line/hash.lua" "line/line.lua" "line/acquire_all.lua",
    LOCK_RELEASE = "line/release_one.lua" "lock/grant.lua" "line/clock.lua" "line/usual_turn.lua" "line/hash.lua" "line/line.lua" "line/release_all.lua",
    LOCK_FORCE_UNLOCK = "lock/grant.lua" "line/clock.lua" "line/hash.lua" "line/line.lua" "line/head.lua" "line/force_unlock.lua",
    LOCK_RELEASE_ALONE = "lock/release_alone.lua",
    COUNT = "lock/count.lua",
    RENEW = "lock/renew.lua",
    STATUS = "lock/status.lua",
    ANNOUNCE = "marks/announce.lua",
    LEADER = "marks/leader.lua",
    CLAIM = "marks/claim.lua",
    LEFT = "marks/left.lua",
    LINE_ACQUIRE = "line/straight.lua" "lock/number.lua" "line/put_part_straight.lua" "lock/grant.lua" "line/clock.lua" "line/asked.lua" "line/scored.lua" "line/zset.lua" "line/line.lua" "line/head.lua" "line/acquire.lua",
    LINE_RELEASE = "line/release_straight.lua" "lock/grant.lua" "line/clock.lua" "line/scored.lua" "line/zset.lua" "line/line.lua" "line/head.lua" "line/release.lua",
    LINE_RELEASE_ALONE = "line/release_alone.lua",
    LINE_RENEW = "line/renew.lua",
    LINE_STATUS = "lock/grant.lua" "line/clock.lua" "line/scored.lua" "line/zset.lua" "line/line.lua" "line/head.lua" "line/status.lua",
    LINE_FORCE_UNLOCK = "lock/grant.lua" "line/clock.lua" "line/scored.lua" "line/zset.lua" "line/line.lua" "line/head.lua" "line/force_unlock.lua",
    LINE_RESIZE = "lock/grant.lua" "line/clock.lua" "line/scored.lua" "line/zset.lua" "line/line.lua" "line/head.lua" "line/resize.lua",
    CONDITION_ACQUIRE = "lock/grant.lua" "line/clock.lua" "line/asked.lua" "line/scored.lua" "condition/notified.lua" "line/line.lua" "line/head.lua" "condition/missed.lua" "line/acquire.lua",
    CONDITION_RELEASE = "lock/grant.lua" "line/clock.lua" "line/scored.lua" "condition/notified.lua" "line/line.lua" "line/head.lua" "line/release.lua",
    CONDITION_TAKEN = "lock/grant.lua" "line/clock.lua" "line/scored.lua" "condition/notified.lua" "line/line.lua" "line/head.lua" "condition/taken.lua",
    CONDITION_STATUS = "lock/grant.lua" "line/clock.lua" "line/scored.lua" "condition/notified.lua" "line/line.lua" "line/head.lua" "line/status.lua",
    CONDITION_FORCE_UNLOCK = "lock/grant.lua" "line/clock.lua" "line/scored.lua" "condition/notified.lua" "line/line.lua" "line/head.lua" "line/force_unlock.lua",
    CONDITION_NOTIFY = "lock/grant.lua" "line/clock.lua" "line/scored.lua" "condition/notified.lua" "line/line.lua" "line/head.lua" "latch/requests.lua" "condition/notify.lua",
    REDISSON_LOCK_ACQUIRE = "lock/grant.lua" "redisson/lock/acquire.lua",
    REDISSON_FENCED_ACQUIRE = "lock/grant.lua" "redisson/count_up.lua" "redisson/lock/acquire.lua",
    REDISSON_LOCK_ACQUIRE_ALL = "lock/grant.lua" "redisson/lock/all_or_none.lua",
    REDISSON_LOCK_RELEASE = "redisson/lock/release.lua",
    REDISSON_LOCK_FORCE_UNLOCK = "redisson/lock/force_unlock.lua",
    REDISSON_FAIR_ACQUIRE = "lock/grant.lua" "redisson/fair/fair.lua" "redisson/fair/acquire.lua",
    REDISSON_FAIR_RELEASE = "lock/grant.lua" "redisson/fair/fair.lua" "redisson/fair/release.lua",
    REDISSON_FAIR_RENEW = "lock/grant.lua" "redisson/fair/fair.lua" "redisson/fair/renew.lua",
    REDISSON_FAIR_STATUS = "lock/grant.lua" "redisson/fair/fair.lua" "redisson/fair/status.lua",
    REDISSON_FAIR_FORCE_UNLOCK = "lock/grant.lua" "redisson/fair/fair.lua" "redisson/fair/force_unlock.lua",
    REDISSON_READ_ACQUIRE = "lock/grant.lua" "redisson/rw/rw.lua" "redisson/rw/read_acquire.lua",
    REDISSON_READ_RELEASE = "lock/grant.lua" "redisson/rw/rw.lua" "redisson/rw/read_release.lua",
    REDISSON_READ_RENEW = "lock/grant.lua" "redisson/rw/rw.lua" "redisson/rw/read_renew.lua",
    REDISSON_WRITE_ACQUIRE = "lock/grant.lua" "redisson/rw/rw.lua" "redisson/rw/write_acquire.lua",
    REDISSON_WRITE_RELEASE = "lock/grant.lua" "redisson/rw/rw.lua" "redisson/rw/write_release.lua",
    REDISSON_WRITE_RENEW = "lock/grant.lua" "redisson/rw/rw.lua" "redisson/rw/write_renew.lua",
    REDISSON_RW_STATUS = "lock/grant.lua" "redisson/rw/rw.lua" "redisson/rw/status.lua",
    REDISSON_RW_FORCE_UNLOCK = "lock/grant.lua" "redisson/rw/rw.lua" "redisson/rw/force_unlock.lua",
    REDISSON_SEMAPHORE_ACQUIRE = "lock/grant.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/acquire.lua",
    REDISSON_SEMAPHORE_RELEASE = "lock/grant.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/release.lua",
    REDISSON_SEMAPHORE_RENEW = "lock/grant.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/renew.lua",
    REDISSON_SEMAPHORE_STATUS = "lock/grant.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/status.lua",
    REDISSON_SEMAPHORE_FORCE_UNLOCK = "lock/grant.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/force_unlock.lua",
    REDISSON_SEMAPHORE_RESIZE = "lock/grant.lua" "redisson/semaphore/semaphore.lua" "redisson/semaphore/resize.lua",
    LATCH_ACQUIRE = "lock/grant.lua" "latch/native.lua" "latch/latch.lua" "latch/acquire.lua",
    LATCH_RELEASE = "lock/grant.lua" "latch/native.lua" "latch/latch.lua" "latch/release.lua",
    LATCH_STATUS = "lock/grant.lua" "latch/native.lua" "latch/latch.lua" "latch/status.lua",
    LATCH_SET = "lock/grant.lua" "latch/native.lua" "latch/latch.lua" "latch/requests.lua" "latch/set.lua",
    LATCH_COUNT_DOWN = "lock/grant.lua" "latch/native.lua" "latch/latch.lua" "latch/requests.lua" "latch/count_down.lua",
    LATCH_DELETE = "lock/grant.lua" "latch/native.lua" "latch/latch.lua" "latch/requests.lua" "latch/delete.lua",
    REDISSON_LATCH_ACQUIRE = "lock/grant.lua" "redisson/latch.lua" "latch/latch.lua" "latch/acquire.lua",
    REDISSON_LATCH_STATUS = "lock/grant.lua" "redisson/latch.lua" "latch/latch.lua" "latch/status.lua",
    REDISSON_LATCH_SET = "lock/grant.lua" "redisson/latch.lua" "latch/latch.lua" "latch/requests.lua" "latch/set.lua",
    REDISSON_LATCH_COUNT_DOWN = "lock/grant.lua" "redisson/latch.lua" "latch/latch.lua" "latch/requests.lua" "latch/count_down.lua",
    REDISSON_LATCH_DELETE = "lock/grant.lua" "redisson/latch.lua" "latch/latch.lua" "latch/requests.lua" "latch/delete.lua",
}

fn hash(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}

fn respelled(before: &str, publish: &str, text: &str) -> (String, String) {
    let text = before.to_owned() + &text.replace(PUBLISH, publish);
    let hash = hash(&text);
    (text, hash)
}

impl Script {
    fn text(&self, dialect: Dialect) -> &str {
        match dialect {
            Dialect::Plain => self.text,
            Dialect::Sharded => &self.sharded.0,
            Dialect::Both => &self.both.0,
        }
    }

    /// Whether it is never called on a server that is no node of a cluster.
    fn is_for_clusters(&self) -> bool {
        self.files.iter().any(|file| file.ends_with("/release_alone.lua"))
    }

    /// Whether one of its files lies in this folder of `lua/`.
    pub(crate) fn is_in(&self, folder: &str) -> bool {
        self.files.iter().any(|file| file.starts_with(folder))
    }

    /// The call of a script that the server should know.
    pub(crate) fn by_hash(&self, dialect: Dialect) -> Cmd {
        let hash = match dialect {
            Dialect::Plain => &*self.hash,
            Dialect::Sharded => &self.sharded.1,
            Dialect::Both => &self.both.1,
        };
        head("EVALSHA", hash)
    }

    /// The call of a script that the server has forgotten.
    pub(crate) fn by_text(&self, dialect: Dialect) -> Cmd {
        head("EVAL", self.text(dialect))
    }
}

fn head(command: &str, script: &str) -> Cmd {
    // Room for one lock with a name of usual length; more makes it grow.
    let mut cmd = Cmd::with_capacity(12, 320);
    cmd.arg(command).arg(script);
    cmd
}

/// Loads all scripts, except for a folder that the client never calls. Many clients may connect again at the same
/// time, and each of them has to finish before its connection times out. `node`: how a node of a cluster publishes.
pub(crate) fn load(pipe: &mut Pipeline, never_called: &str, node: Option<Dialect>) {
    let is_called = |script: &&&Script| {
        !script.is_in(never_called) && (node.is_some() || !script.is_for_clusters())
    };
    for script in ALL.iter().filter(is_called) {
        let text = script.text(node.unwrap_or(Dialect::Plain));
        pipe.cmd("SCRIPT").arg("LOAD").arg(text);
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
            let published = code(script.text).matches("'publish'").count();
            assert_eq!(published, code(script.text).matches(PUBLISH).count());
            let sharded = code(script.text(Dialect::Sharded));
            assert_eq!(sharded.matches("'publish'").count(), 0);
            assert_eq!(sharded.matches(PUBLISH_SHARDED).count(), published);
            let both = code(script.text(Dialect::Both).strip_prefix(BOTH).expect("it begins so"));
            assert_eq!(both.matches(PUBLISH_BOTH).count(), published);
            assert_eq!(both.matches("redis.pcall('publish'").count(), 0);
        }
        let publishing = ALL.iter().filter(|script| script.text.contains(PUBLISH)).count();
        assert!(publishing > 10, "{publishing} scripts publish");
    }

    #[test]
    fn one_server_does_not_hear_of_clusters() {
        let (mut alone, mut node) = (Pipeline::new(), Pipeline::new());
        load(&mut alone, "redisson/", None);
        load(&mut node, "redisson/", Some(Dialect::Plain));
        assert_eq!(node.len(), alone.len() + 2);
        let mut sharded = Pipeline::new();
        load(&mut sharded, "redisson/", Some(Dialect::Sharded));
        let text = |pipe: &Pipeline| String::from_utf8(pipe.get_packed_pipeline()).unwrap();
        assert!(!text(&alone).contains("spublish") && !text(&node).contains("spublish"));
        assert!(text(&sharded).contains("spublish"));
    }

    #[test]
    fn every_script_says_what_it_is_asked_and_what_it_answers() {
        for script in ALL {
            for word in ["-- KEYS ", "-- Reply "] {
                let said = script.text.lines().any(|line| line.starts_with(word));
                assert!(said, "{word} is missing in {}", script.text);
            }
        }
    }
}
