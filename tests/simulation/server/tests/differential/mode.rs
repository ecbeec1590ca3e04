//! The troubles that a server can be in while it is asked.

use fastrand::Rng;

use crate::pair::Pair;
use crate::words::pick;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Fine,
    MemoryFull,
    Replica,
    Denied(&'static str),
    DeniedChannels,
}

const DENIED: [&str; 8] = ["publish", "pexpire", "hset", "del", "zadd", "set", "evalsha", "hdel"];

impl Mode {
    pub fn random(rng: &mut Rng) -> Self {
        match rng.u8(..10) {
            0..6 => Self::Fine,
            6 => Self::MemoryFull,
            7 => Self::Replica,
            8 => Self::Denied(pick(rng, &DENIED)),
            _ => Self::DeniedChannels,
        }
    }

    pub fn enter(self, pair: &mut Pair) {
        match self {
            Self::Fine => {}
            Self::MemoryFull => {
                pair.order(&["CONFIG", "SET", "maxmemory", "1"]);
                pair.sim.set_memory_full(true);
            }
            Self::Replica => {
                pair.order(&["REPLICAOF", "127.0.0.1", "1"]);
                pair.sim.become_replica();
            }
            Self::Denied(command) => {
                pair.order(&["ACL", "SETUSER", "default", &format!("-{command}")]);
                pair.sim.set_denied(&[command], false);
            }
            Self::DeniedChannels => {
                // The server would close the connection of a listener that may not listen any more.
                pair.listen(false);
                pair.order(&["ACL", "SETUSER", "default", "resetchannels"]);
                pair.sim.set_denied(&[], true);
            }
        }
    }

    pub fn leave(self, pair: &mut Pair) {
        match self {
            Self::Fine => {}
            Self::MemoryFull => {
                pair.order(&["CONFIG", "SET", "maxmemory", "0"]);
                pair.sim.set_memory_full(false);
            }
            Self::Replica => {
                pair.order(&["REPLICAOF", "NO", "ONE"]);
                pair.sim.become_primary();
            }
            Self::Denied(_) | Self::DeniedChannels => {
                pair.order(&["ACL", "SETUSER", "default", "on", "nopass", "+@all", "~*", "&*"]);
                pair.sim.set_denied(&[], false);
                if self == Self::DeniedChannels {
                    pair.listen(true);
                }
            }
        }
    }
}
