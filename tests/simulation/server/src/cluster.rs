//! A node of a cluster: what it believes of the slots, and where it sends those whose keys are elsewhere.
//!
//! Each node has a view of its own. Whoever owns the nodes says to each of them what the others have told it.

use std::collections::BTreeMap;

use crate::reply::Reply;
use crate::state::{Caller, State};
use crate::version::Version;

/// How many slots there are.
pub const SLOTS: u16 = 16_384;

/// How a node is known to the others and to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Forty digits.
    pub id: String,
    /// Where it is reached.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// One node's view of its cluster.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) me: usize,
    pub(crate) nodes: Vec<NodeInfo>,
    owners: Vec<Option<usize>>,
    /// The primary of each replica.
    pub(crate) primaries: BTreeMap<usize, usize>,
    pub(crate) migrating: BTreeMap<u16, usize>,
    pub(crate) importing: BTreeMap<u16, usize>,
    /// Whether it serves at all.
    pub(crate) is_up: bool,
    /// By how many nodes the map that it tells is turned: it lies.
    pub(crate) turned: usize,
    /// Messages for the other nodes.
    pub(crate) bus: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Why a request is not carried out here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    CrossSlot,
    TryAgain,
    Down,
    Unserved,
    Moved(u16, usize),
    Ask(u16, usize),
}

/// What is asked of a node.
pub(crate) struct Asked<'a> {
    /// Or channels.
    pub(crate) keys: Vec<&'a [u8]>,
    pub(crate) are_channels: bool,
    /// It comes behind an ASKING.
    pub(crate) is_asking: bool,
}

impl Cluster {
    pub(crate) fn new(me: usize, nodes: Vec<NodeInfo>) -> Self {
        Self {
            me,
            nodes,
            owners: vec![None; usize::from(SLOTS)],
            primaries: BTreeMap::new(),
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
            is_up: true,
            turned: 0,
            bus: Vec::new(),
        }
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        self.owners[usize::from(slot)]
    }

    pub(crate) fn set_owner(&mut self, slot: u16, node: Option<usize>) {
        self.owners[usize::from(slot)] = node;
    }

    pub(crate) fn named(&self, id: &[u8]) -> Option<usize> {
        self.nodes.iter().position(|node| node.id.as_bytes().eq_ignore_ascii_case(id))
    }

    /// The slots of one owner in a row: first, last, owner.
    pub(crate) fn ranges(&self) -> Vec<(u16, u16, usize)> {
        let mut ranges: Vec<(u16, u16, usize)> = Vec::new();
        for slot in 0..SLOTS {
            let Some(owner) = self.owner(slot) else { continue };
            match ranges.last_mut() {
                Some((_, last, of)) if *of == owner && *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot, owner)),
            }
        }
        ranges
    }

    /// Whether a request may be carried out here. `has` says whether a key is there.
    pub(crate) fn check(
        &self,
        asked: &Asked<'_>,
        version: Version,
        has: impl Fn(&[u8]) -> bool,
    ) -> Result<(), Elsewhere> {
        let Some((&first, others)) = asked.keys.split_first() else { return Ok(()) };
        let slot = slot_of(first);
        let owner = self.owner(slot).ok_or(Elsewhere::Unserved)?;
        if others.iter().any(|key| slot_of(key) != slot) {
            return Err(Elsewhere::CrossSlot);
        }
        if !self.is_up {
            return Err(Elsewhere::Down);
        }
        let is_mine = owner == self.me;
        let to = self.migrating.get(&slot).filter(|_| is_mine);
        let comes = to.is_none() && self.importing.contains_key(&slot);
        let missing = asked.keys.iter().filter(|key| !has(key)).count();
        let missing = if asked.are_channels { 0 } else { missing };
        if let Some(to) = to.filter(|_| missing > 0) {
            // To 6.2, some are as good as none.
            let some_here = missing < asked.keys.len() && !version.is_6();
            return Err(if some_here { Elsewhere::TryAgain } else { Elsewhere::Ask(slot, *to) });
        }
        if comes && asked.is_asking {
            let several = others.iter().any(|key| *key != first);
            return if several && missing > 0 { Err(Elsewhere::TryAgain) } else { Ok(()) };
        }
        if is_mine { Ok(()) } else { Err(Elsewhere::Moved(slot, owner)) }
    }

    /// As a client hears it.
    pub(crate) fn to_client(&self, elsewhere: Elsewhere) -> Reply {
        let to = |word: &str, slot: u16, node: usize| {
            let NodeInfo { host, port, .. } = &self.nodes[node];
            format!("{word} {slot} {host}:{port}")
        };
        Reply::error(match elsewhere {
            Elsewhere::CrossSlot => {
                "CROSSSLOT Keys in request don't hash to the same slot".to_owned()
            }
            Elsewhere::TryAgain => {
                "TRYAGAIN Multiple keys request during rehashing of slot".to_owned()
            }
            Elsewhere::Down => "CLUSTERDOWN The cluster is down".to_owned(),
            Elsewhere::Unserved => "CLUSTERDOWN Hash slot not served".to_owned(),
            Elsewhere::Moved(slot, node) => to("MOVED", slot, node),
            Elsewhere::Ask(slot, node) => to("ASK", slot, node),
        })
    }
}

impl Elsewhere {
    /// As a script hears it.
    pub(crate) fn to_script(self, version: Version) -> String {
        let what = match self {
            Self::Down => "execute a command while the cluster is down",
            Self::CrossSlot if !version.is_6() => "access keys that do not hash to the same slot",
            _ => "access a non local key in a cluster node",
        };
        match version {
            Version::Redis6_2 => format!("Lua script attempted to {what}"),
            Version::Redis7_0 | Version::Redis8_2 => format!("Script attempted to {what}"),
            Version::Valkey9_1 => format!("Attempted to {what}"),
        }
    }
}

impl State {
    /// Whether it may be carried out on this node.
    pub(crate) fn is_here(&self, asked: &Asked<'_>) -> Result<(), Elsewhere> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let now = self.now_ms();
        cluster.check(asked, self.version, |key| self.keys[0].any(key, now).is_some())
    }

    /// A slot has another owner. Who listens to a channel of a slot that is not here any more is told so.
    pub(crate) fn assign(&mut self, slot: u16, node: usize) {
        let Some(cluster) = &mut self.cluster else { return };
        let was_mine = cluster.owner(slot) == Some(cluster.me);
        cluster.set_owner(slot, Some(node));
        if node != cluster.me {
            cluster.migrating.remove(&slot);
        } else {
            cluster.importing.remove(&slot);
        }
        if was_mine && node != cluster.me {
            self.end_shard_channels(|channel| slot_of(channel) == slot);
        }
    }

    /// Nobody hears these channels here any more.
    pub(crate) fn end_shard_channels(&mut self, ends: impl Fn(&[u8]) -> bool) {
        let ended: Vec<_> =
            self.shard_channels.keys().filter(|channel| ends(channel)).cloned().collect();
        for channel in ended {
            for conn in self.shard_channels.get(&channel).cloned().unwrap_or_default() {
                let caller = Caller { conn: Some(conn) };
                self.leave(caller, &channel, true);
                self.confirm(conn, "sunsubscribe", Some(&channel), true);
            }
        }
    }
}

/// The slot of a key or a channel: the CRC-16/XMODEM of its hash tag, or of all of it.
pub fn slot_of(key: &[u8]) -> u16 {
    let open = key.iter().position(|byte| *byte == b'{');
    let tag = open.and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then_some(&rest[..close])
    });
    let shift = |crc: u16, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
    let step = |crc: u16, byte: &u8| (0..8).fold(crc ^ (u16::from(*byte) << 8), shift);
    tag.unwrap_or(key).iter().fold(0, step) % SLOTS
}
