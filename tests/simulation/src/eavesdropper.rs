//! A user of Redis that may listen and publish on every channel, and has no key. It stands in a third of the worlds: it hears
//! every message, and publishes what can be made of what it has heard. The judge allows nothing for it.

use std::collections::VecDeque;

use fastrand::Rng;

use crate::clock::{MICRO, MILLI};

/// How many messages it remembers.
const REMEMBERED: usize = 64;

/// The greatest number that has the form of a grant's.
const GREATEST: u64 = (1 << 53) - 1;

/// A message, and where it was published.
#[derive(Debug, Clone)]
pub struct Message {
    pub channel: String,
    pub text: String,
    /// Whether the channel belongs to a slot.
    pub is_sharded: bool,
}

/// One word `<client>:<id>=<number>@<proof>`.
struct Grant {
    client: String,
    id: u64,
    number: u64,
    proof: String,
}

impl Grant {
    fn read(word: &str) -> Option<Self> {
        let (field, grant) = word.split_once('=')?;
        let ((client, id), (number, proof)) = (field.split_once(':')?, grant.split_once('@')?);
        let (client, proof) = (client.to_owned(), proof.to_owned());
        Some(Self { client, id: id.parse().ok()?, number: number.parse().ok()?, proof })
    }

    fn write(&self) -> String {
        format!("{}:{}={}@{}", self.client, self.id, self.number, self.proof)
    }
}

pub struct Eavesdropper {
    rng: Rng,
    heard: VecDeque<Message>,
}

impl Eavesdropper {
    /// The eavesdropper of this seed's world, if one stands there.
    pub fn of(seed: u64) -> Option<Self> {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ 0xe4e);
        (rng.u32(..3) == 0).then(|| Self { rng, heard: VecDeque::new() })
    }

    /// It hears a message. Returns what it publishes then, each after so long.
    pub fn hear(&mut self, message: Message) -> Vec<(u64, Message)> {
        if message.text.starts_with("eve ") {
            return Vec::new();
        }
        self.heard.push_back(message.clone());
        if self.heard.len() > REMEMBERED {
            self.heard.pop_front();
        }
        let forged: Vec<_> = (0..self.rng.usize(1..=2)).map(|_| self.forge(&message)).collect();
        forged.into_iter().map(|message| (self.delay(), message)).collect()
    }

    fn delay(&mut self) -> u64 {
        match self.rng.u32(..10) {
            0..6 => self.rng.u64(50 * MICRO..3 * MILLI),
            6..9 => self.rng.u64(3 * MILLI..1_500 * MILLI),
            _ => self.rng.u64(1_500 * MILLI..20_000 * MILLI),
        }
    }

    fn forge(&mut self, message: &Message) -> Message {
        let words: Vec<&str> = message.text.split(' ').skip(1).collect();
        let word = self.rng.choice(words).unwrap_or("0").to_owned();
        let channel = match self.rng.u32(..4) {
            0 => self.another().channel,
            _ => message.channel.clone(),
        };
        let text = match Grant::read(&word) {
            Some(grant) if self.rng.u32(..5) > 0 => self.changed(grant),
            _ => self.said_of(
                word.split('=').next().unwrap_or_default().trim_end_matches(['?', '!', '~']),
            ),
        };
        Message { channel, text: format!("eve {text}"), is_sharded: message.is_sharded }
    }

    /// Something that it has heard.
    fn another(&mut self) -> Message {
        let at = self.rng.usize(..self.heard.len());
        self.heard[at].clone()
    }

    /// The grant as it was, or of another owner field, with another number, with the proof of another grant.
    fn changed(&mut self, mut grant: Grant) -> String {
        match self.rng.u32(..8) {
            0 => {}
            1..4 => grant.id = grant.id.saturating_add_signed(self.rng.i64(-3..=8)),
            4 => grant.number = *self.rng.choice(&[0, GREATEST]).expect("there are two"),
            5 => grant.number += self.rng.u64(1..1_000),
            _ => {
                let other = self.another().text;
                let others = other.split(' ').filter_map(Grant::read);
                if let Some(other) = self.rng.choice(others.collect::<Vec<_>>()) {
                    grant.proof = other.proof;
                }
            }
        }
        grant.write()
    }

    /// One of the other things that a script says of an owner field.
    fn said_of(&mut self, field: &str) -> String {
        match self.rng.u32(..7) {
            0 => field.to_owned(),
            1 => format!("{field}?"),
            2..4 => format!("{field}!"),
            4 => format!("{field}~"),
            5 => format!("{field}~!"),
            _ => String::new(),
        }
    }
}
