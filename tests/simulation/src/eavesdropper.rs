//! A user of Redis that may listen and publish on every channel, and has no key. It stands in a third of the worlds, or in each of
//! them with `--eavesdropper`: it hears every message, and publishes what can be made of what it has heard. The judge allows nothing for it.

use fastrand::Rng;

use crate::clock::{MICRO, MILLI};
use crate::forger::Forger;

/// A message to publish.
#[derive(Debug)]
pub struct Message {
    pub channel: String,
    pub text: String,
    /// Whether the channel belongs to a slot.
    pub is_sharded: bool,
}

pub struct Eavesdropper {
    rng: Rng,
    forger: Forger,
}

impl Eavesdropper {
    /// The eavesdropper of this seed's world, if one stands there. `always`: in each world.
    pub fn of(seed: u64, always: bool) -> Option<Self> {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ 0xe4e);
        (rng.u32(..3) == 0 || always).then(|| Self { forger: Forger::new(rng.fork()), rng })
    }

    /// It hears a message. Returns what it publishes then, each after so long.
    pub fn hear(&mut self, heard: &Message) -> Vec<(u64, Message)> {
        let forged = self.forger.hear(&heard.channel, &heard.text);
        let is_sharded = heard.is_sharded;
        let later = |(channel, text)| (self.delay(), Message { channel, text, is_sharded });
        forged.into_iter().map(later).collect()
    }

    fn delay(&mut self) -> u64 {
        match self.rng.u32(..10) {
            0..6 => self.rng.u64(50 * MICRO..3 * MILLI),
            6..9 => self.rng.u64(3 * MILLI..1_500 * MILLI),
            _ => self.rng.u64(1_500 * MILLI..20_000 * MILLI),
        }
    }
}
