//! The slots of a Redis Cluster: which of them a key lies in, and a short tag for each of them.

use std::sync::LazyLock;

/// How many slots a cluster has.
pub(crate) const SLOTS: usize = 16_384;

/// One slot of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u16);

impl Slot {
    /// The slot with this number, if a cluster has it.
    pub(crate) fn new(number: u16) -> Option<Self> {
        (usize::from(number) < SLOTS).then_some(Self(number))
    }

    /// The slot of a key or a channel: the CRC-16/XMODEM of its hash tag, or of the whole key.
    pub(crate) fn of(key: &str) -> Self {
        let hashed = tag_of(key).unwrap_or(key);
        let crc = hashed.bytes().fold(0, step);
        Self(crc % SLOTS as u16)
    }

    pub(crate) fn number(self) -> usize {
        usize::from(self.0)
    }

    /// The smallest decimal number whose hash lies in this slot: a hash tag for keys that belong to the slot and to no
    /// name.
    pub(crate) fn tag(self) -> &'static str {
        TAGS[self.number() * DIGITS..][..DIGITS].trim_end()
    }
}

fn step(crc: u16, byte: u8) -> u16 {
    let shift = |crc: u16, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
    (0..8).fold(crc ^ (u16::from(byte) << 8), shift)
}

fn tag_of(key: &str) -> Option<&str> {
    let (tag, _) = key.split_once('{')?.1.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The greatest tag that a slot needs, and how many digits it has.
const GREATEST_TAG: u32 = 109_757;
const DIGITS: usize = 6;

/// The tags of all slots, each with blanks behind it, computed once, in a few milliseconds, by the first client of a cluster.
static TAGS: LazyLock<String> = LazyLock::new(|| {
    let mut tags = vec![0; SLOTS];
    // From the greatest to the smallest, so that the smallest number of a slot stays.
    for number in (0..=GREATEST_TAG).rev() {
        tags[Slot::of(&number.to_string()).number()] = number;
    }
    tags.into_iter().map(|tag| format!("{tag:<DIGITS$}")).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_the_checksum_of_the_hash_tag() {
        // The check value of CRC-16/XMODEM, and slots computed by a server.
        assert_eq!(Slot::of("123456789").number(), 0x31C3);
        assert_eq!(Slot::of("foo").number(), 12_182);
        assert_eq!(Slot::of("user:{42}:x"), Slot::of("42"));
        assert_eq!(Slot::of("{}x{y}").number(), 2_166, "an empty tag is none");
        assert_eq!(Slot::of("a{b}{c}"), Slot::of("b"));
    }

    #[test]
    fn every_slot_has_a_tag_that_lies_in_it() {
        for number in 0..SLOTS as u16 {
            let slot = Slot::new(number).expect("there are so many");
            let key = format!("lock:grants:{{{}}}", slot.tag());
            assert_eq!(Slot::of(&key), slot, "{key}");
        }
        assert_eq!(Slot::new(SLOTS as u16), None);
    }

    #[test]
    fn the_tag_of_a_slot_is_the_smallest_number() {
        let slot = Slot::of("7");
        assert_eq!(slot.tag(), "7");
        let all = (0..SLOTS as u16).filter_map(Slot::new);
        let greatest = all.map(|slot| slot.tag().parse::<u32>().unwrap()).max();
        assert_eq!(greatest, Some(GREATEST_TAG));
    }
}
