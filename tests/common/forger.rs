//! What a user of Redis that may listen and publish can make of the messages that it hears. The simulation and the torture run have
//! one that does.

use std::collections::VecDeque;

use fastrand::Rng;

/// How many messages it remembers.
const REMEMBERED: usize = 64;

/// The greatest number that has the form of a grant's.
const GREATEST: u64 = (1 << 53) - 1;

/// Whoever hears a message of a forger knows it by this word.
const FROM: &str = "eve ";

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

/// Hears messages, and makes other ones of them.
pub struct Forger {
    rng: Rng,
    /// The channel and the text of each.
    heard: VecDeque<(String, String)>,
}

impl Forger {
    pub fn new(rng: Rng) -> Self {
        Self { rng, heard: VecDeque::new() }
    }

    /// It hears a message. Returns one or two others, each with its channel; none for a message of a forger.
    pub fn hear(&mut self, channel: &str, text: &str) -> Vec<(String, String)> {
        if text.starts_with(FROM) {
            return Vec::new();
        }
        self.heard.push_back((channel.to_owned(), text.to_owned()));
        if self.heard.len() > REMEMBERED {
            self.heard.pop_front();
        }
        (0..self.rng.usize(1..=2)).map(|_| self.forge(channel, text)).collect()
    }

    fn forge(&mut self, channel: &str, text: &str) -> (String, String) {
        let word = self.rng.choice(text.split(' ').skip(1).collect::<Vec<_>>()).unwrap_or("0");
        let elsewhere = self.rng.u32(..4) == 0;
        let channel = if elsewhere { self.another().0 } else { channel.to_owned() };
        let said = match Grant::read(word) {
            Some(grant) if self.rng.u32(..5) > 0 => self.changed(grant),
            _ => {
                let field = word.split('=').next().unwrap_or_default();
                self.said_of(field.trim_end_matches(['?', '!', '~']))
            }
        };
        (channel, format!("{FROM}{said}"))
    }

    /// Something that it has heard.
    fn another(&mut self) -> (String, String) {
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
                let (_, other) = self.another();
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
