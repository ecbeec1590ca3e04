//! What a node of a cluster is asked about it, and told by its operator.

use crate::cluster::{Cluster, NodeInfo, SLOTS, slot_of};
use crate::number;
use crate::refusal::c_text;
use crate::reply::{Answer, Reply};
use crate::state::{Caller, State};

fn disabled() -> Reply {
    Reply::error("ERR This instance has cluster support disabled")
}

pub(super) fn asking(state: &mut State, caller: Caller, _: &[&[u8]]) -> Answer {
    if state.cluster.is_none() {
        return Err(disabled());
    }
    if let Some(connection) = state.connection_mut(caller) {
        connection.asking = true;
    }
    Ok(Reply::ok())
}

pub(super) fn cluster(state: &mut State, _: Caller, words: &[&[u8]]) -> Answer {
    let Some(cluster) = &state.cluster else { return Err(disabled()) };
    match (&*words[1].to_ascii_uppercase(), &words[2..]) {
        (b"SLOTS", []) => Ok(map(state, cluster)),
        (b"MYID", []) => Ok(Reply::bulk(&cluster.nodes[cluster.me].id)),
        (b"KEYSLOT", [key]) => Ok(Reply::Integer(slot_of(key).into())),
        (b"COUNTKEYSINSLOT", [slot]) => {
            let slot = number(slot)?;
            Ok(Reply::count(in_slot(state, slot).count()))
        }
        (b"GETKEYSINSLOT", [slot, most]) => {
            let (slot, most) = (number(slot)?, number::integer(most).unwrap_or(0));
            let keys = in_slot(state, slot).take(usize::try_from(most).unwrap_or(0));
            Ok(Reply::Array(keys.map(|key| Reply::Bulk(key.to_vec())).collect()))
        }
        (b"SETSLOT", [slot, how @ ..]) if !how.is_empty() => set_slot(state, slot, how),
        _ => Err(state.unknown_subcommand(words)),
    }
}

fn number(word: &[u8]) -> Result<u16, Reply> {
    let slot = number::integer(word).and_then(|slot| u16::try_from(slot).ok());
    let invalid = || Reply::error("ERR Invalid or out of range slot");
    slot.filter(|slot| *slot < SLOTS).ok_or_else(invalid)
}

fn in_slot(state: &State, slot: u16) -> impl Iterator<Item = &[u8]> {
    let keys = state.keys[0].iter(state.now_ms()).map(|(key, ..)| key);
    keys.filter(move |key| slot_of(key) == slot)
}

fn map(state: &State, cluster: &Cluster) -> Reply {
    let node = |at: usize| {
        let NodeInfo { id, host, port } = &cluster.nodes[at];
        let mut words = vec![Reply::bulk(host), Reply::Integer((*port).into()), Reply::bulk(id)];
        if !state.version.is_6() {
            words.push(Reply::Map(Vec::new()));
        }
        Reply::Array(words)
    };
    let ranges = cluster.ranges();
    let mut owners: Vec<usize> = ranges.iter().map(|(.., owner)| *owner).collect();
    owners.sort_unstable();
    owners.dedup();
    let told = |owner: usize| {
        let place = owners.iter().position(|one| *one == owner).unwrap_or(0);
        owners[(place + cluster.turned) % owners.len()]
    };
    let range = |(first, last, owner): (u16, u16, usize)| {
        let owner = told(owner);
        let replicas = cluster.primaries.iter().filter(|(_, of)| **of == owner);
        let mut words =
            vec![Reply::Integer(first.into()), Reply::Integer(last.into()), node(owner)];
        words.extend(replicas.map(|(replica, _)| node(*replica)));
        Reply::Array(words)
    };
    Reply::Array(ranges.into_iter().map(range).collect())
}

fn set_slot(state: &mut State, slot: &[u8], how: &[&[u8]]) -> Answer {
    let is_replica = state.replica;
    let slot_number = number(slot);
    let keys = slot_number.as_ref().map_or(0, |slot| in_slot(state, *slot).count());
    let Some(cluster) = &mut state.cluster else { return Err(disabled()) };
    if is_replica {
        return Err(Reply::error("ERR You can use SETSLOT only with masters."));
    }
    let slot = slot_number?;
    let invalid = "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP";
    let (me, owner) = (cluster.me, cluster.owner(slot));
    let stranger =
        |word: &str, id: &[u8]| Reply::error(format!("ERR {word} node {}", c_text(id, usize::MAX)));
    match (&*how[0].to_ascii_uppercase(), &how[1..]) {
        (b"MIGRATING", [to]) => {
            if owner != Some(me) {
                return Err(Reply::error(format!("ERR I'm not the owner of hash slot {slot}")));
            }
            let to = cluster.named(to).ok_or_else(|| stranger("I don't know about", to))?;
            cluster.migrating.insert(slot, to);
        }
        (b"IMPORTING", [from]) => {
            if owner == Some(me) {
                let text = format!("ERR I'm already the owner of hash slot {slot}");
                return Err(Reply::error(text));
            }
            let from = cluster.named(from).ok_or_else(|| stranger("I don't know about", from))?;
            cluster.importing.insert(slot, from);
        }
        (b"STABLE", []) => {
            cluster.migrating.remove(&slot);
            cluster.importing.remove(&slot);
        }
        (b"NODE", [node]) => {
            let node = cluster.named(node).ok_or_else(|| stranger("Unknown", node))?;
            if owner == Some(me) && node != me && keys > 0 {
                let text = format!(
                    "ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
                );
                return Err(Reply::error(text));
            }
            state.assign(slot, node);
        }
        _ => return Err(Reply::error(invalid)),
    }
    Ok(Reply::ok())
}
