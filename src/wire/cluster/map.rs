//! Which node of a cluster has which slot, as far as a client knows.

use redis::Value;

use crate::slot::{SLOTS, Slot};
use crate::wire::fault::Fault;
use crate::wire::node::Node;
use crate::wire::replies::strange;

/// The primary of each slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SlotMap {
    /// Each node once. The numbers in `owners` are indices into this list.
    nodes: Vec<Node>,
    /// For each slot, one more than the index of its primary; 0: unknown. Empty: nothing is known. Redirections may name more
    /// nodes than there are slots.
    owners: Vec<u32>,
}

impl SlotMap {
    /// Reads the answer to `CLUSTER SLOTS`. It ignores replicas.
    pub(crate) fn read(answer: &Value, answering: &Node) -> Result<Self, Fault> {
        let Value::Array(ranges) = answer else { return Err(strange(answer)) };
        if ranges.len() > SLOTS {
            return Err(strange(&ranges.len()));
        }
        let mut map = Self::default();
        for range in ranges {
            let Value::Array(parts) = range else { return Err(strange(range)) };
            let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice()
            else {
                return Err(strange(range));
            };
            let (first, last) = (slot_number(*first)?, slot_number(*last)?);
            if first > last {
                return Err(strange(range));
            }
            // A primary with an unknown address counts as none.
            if let Some(node) = node(primary, answering)? {
                map.give(first..=last, node);
            }
        }
        Ok(map)
    }

    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub(crate) fn owner(&self, slot: Slot) -> Option<&Node> {
        let place = self.owners.get(slot.number()).copied().filter(|place| *place > 0)?;
        self.nodes.get(place as usize - 1)
    }

    /// The same map, where this node has that slot.
    pub(crate) fn with(&self, slot: Slot, node: Node) -> Self {
        let mut map = self.clone();
        map.give(slot.number()..=slot.number(), node);
        map
    }

    /// All nodes that have a slot, each once.
    pub(crate) fn nodes(&self) -> Vec<&Node> {
        let placed = (1..).zip(&self.nodes);
        placed.filter(|(place, _)| self.owners.contains(place)).map(|(_, node)| node).collect()
    }

    /// The nodes of this map that have lost a slot to another node in the newer map, each once.
    pub(crate) fn left_for<'a>(&'a self, newer: &Self) -> Vec<&'a Node> {
        let mut left = Vec::new();
        for slot in (0..SLOTS as u16).filter_map(Slot::new) {
            let Some(before) = self.owner(slot) else { continue };
            if newer.owner(slot) != Some(before) && !left.contains(&before) {
                left.push(before);
            }
        }
        left
    }

    fn give(&mut self, slots: std::ops::RangeInclusive<usize>, node: Node) {
        self.owners.resize(SLOTS, 0);
        let known = self.nodes.iter().position(|known| *known == node);
        let place = known.unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        self.owners[slots].fill(place as u32 + 1);
    }
}

fn slot_number(number: i64) -> Result<usize, Fault> {
    let slot = u16::try_from(number).ok().and_then(Slot::new);
    slot.map(Slot::number).ok_or_else(|| strange(&number))
}

fn node(parts: &[Value], answering: &Node) -> Result<Option<Node>, Fault> {
    let [host, Value::Int(port), ..] = parts else { return Err(strange(&parts)) };
    let port = u16::try_from(*port).map_err(|_| strange(port))?;
    let host = match host {
        Value::Nil => "",
        Value::BulkString(host) => std::str::from_utf8(host).map_err(|_| strange(&parts))?,
        Value::SimpleString(host) => host,
        other => return Err(strange(other)),
    };
    Ok((host != "?").then(|| answering.told(host, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary =
            Value::Array(vec![host, Value::Int(port), text("an-id"), Value::Array(vec![])]);
        let replica = Value::Array(vec![text("10.9.9.9"), Value::Int(1)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary, replica])
    }

    fn us() -> Node {
        Node::new("seed", 7000)
    }

    fn slot(number: u16) -> Slot {
        Slot::new(number).unwrap()
    }

    fn map() -> SlotMap {
        let ranges = vec![
            range(0, 99, text("10.0.0.1"), 7001),
            range(100, 199, Value::Nil, 7002),
            range(200, 299, text(""), 7000),
            range(300, 399, text("?"), 7003),
            range(400, 16_383, text("10.0.0.1"), 7001),
        ];
        SlotMap::read(&Value::Array(ranges), &us()).unwrap()
    }

    #[test]
    fn a_map_says_which_primary_has_a_slot() {
        let map = map();
        assert_eq!(map.owner(slot(0)), Some(&Node::new("10.0.0.1", 7001)));
        assert_eq!(map.owner(slot(99)), map.owner(slot(16_383)));
        assert_eq!(map.owner(slot(100)), Some(&Node::new("seed", 7002)), "NULL: the one asked");
        assert_eq!(map.owner(slot(299)), Some(&us()));
        assert_eq!(map.owner(slot(350)), None, "an unknown address is as good as none");
        assert_eq!(map.nodes().len(), 3);
        assert_eq!(SlotMap::default().owner(slot(7)), None);
    }

    #[test]
    fn a_redirection_changes_one_slot() {
        let (before, node) = (map(), Node::new("10.0.0.9", 7009));
        let after = before.with(slot(100), node.clone());
        assert_eq!(after.owner(slot(100)), Some(&node));
        assert_eq!(after.owner(slot(101)), before.owner(slot(101)));
        let left: Vec<_> = before.left_for(&after).into_iter().collect();
        assert_eq!(left, [&Node::new("seed", 7002)]);
        assert!(after.left_for(&after).is_empty());
        assert_eq!(SlotMap::default().with(slot(5), us()).owner(slot(5)), Some(&us()));
    }

    #[test]
    fn a_node_without_slots_is_not_counted() {
        let map = SlotMap::default().with(slot(5), us()).with(slot(5), Node::new("other", 1));
        assert_eq!(map.nodes().into_iter().collect::<Vec<_>>(), [&Node::new("other", 1)]);
    }

    #[test]
    fn an_unexpected_reply_is_not_taken_for_a_map() {
        let strange = [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(1)])]),
            Value::Array(vec![range(0, 16_384, text("h"), 1)]),
            Value::Array(vec![range(-1, 5, text("h"), 1)]),
            Value::Array(vec![range(0, 5, text("h"), 70_000)]),
            Value::Array(vec![range(0, 5, Value::Int(1), 7)]),
        ];
        for answer in strange {
            assert!(SlotMap::read(&answer, &us()).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn more_ranges_than_slots_are_no_map() {
        let ranges = |many| Value::Array(vec![range(0, 0, text("h"), 1); many]);
        assert!(SlotMap::read(&ranges(SLOTS), &us()).is_ok());
        assert!(SlotMap::read(&ranges(SLOTS + 1), &us()).is_err());
    }

    #[test]
    fn any_number_of_nodes_may_be_named_by_redirections() {
        let nodes = (0..=u16::MAX).map(|port| Node::new("h", port)).collect();
        let map = SlotMap { nodes, owners: Vec::new() };
        assert_eq!(map.with(slot(5), us()).owner(slot(5)), Some(&us()));
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_no_range() {
        let map = SlotMap::read(&Value::Array(vec![range(9, 3, text("h"), 1)]), &us());
        assert!(map.is_err());
    }
}
