//! Commands within commands. Redis 7 and Valkey find them, and count their words, before anything else is looked at.

use crate::version::Version;

/// A command's own command, such as `CLIENT ID`.
#[derive(Debug)]
pub(crate) struct Subcommand {
    pub(crate) name: &'static str,
    /// How many words it has with both names; negative: so many at least.
    arity: i32,
}

const fn sub(name: &'static str, arity: i32) -> Subcommand {
    Subcommand { name, arity }
}

const CLIENT: [Subcommand; 5] = [
    sub("client|id", 2),
    sub("client|getname", 2),
    sub("client|setname", 3),
    sub("client|kill", -3),
    sub("client|setinfo", 4),
];
const CLUSTER: [Subcommand; 6] = [
    sub("cluster|slots", 2),
    sub("cluster|myid", 2),
    sub("cluster|keyslot", 3),
    sub("cluster|countkeysinslot", 3),
    sub("cluster|getkeysinslot", 4),
    sub("cluster|setslot", -4),
];
const PUBSUB: [Subcommand; 3] =
    [sub("pubsub|channels", -2), sub("pubsub|numsub", -2), sub("pubsub|numpat", 2)];
const SCRIPT: [Subcommand; 4] = [
    sub("script|load", 3),
    sub("script|exists", -3),
    sub("script|flush", -2),
    sub("script|kill", 2),
];

/// Those that a command has.
pub(crate) fn of(command: &str) -> &'static [Subcommand] {
    match command {
        "client" => &CLIENT,
        "cluster" => &CLUSTER,
        "pubsub" => &PUBSUB,
        "script" => &SCRIPT,
        _ => &[],
    }
}

impl Subcommand {
    pub(crate) fn is(&self, name: &[u8], version: Version) -> bool {
        let own = self.name.split_once('|').map_or("", |(_, own)| own);
        let known = own != "setinfo" || version.is_recent();
        known && own.as_bytes().eq_ignore_ascii_case(name)
    }

    pub(crate) fn takes(&self, words: usize) -> bool {
        super::takes(self.arity, words)
    }
}
