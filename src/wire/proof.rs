//! How the server proves that a grant by message is its own, and how the client checks it. `lua/line/proof.lua` is the server's half.
//!
//! A client gives a secret to the server with each sign of life, and to nobody else. When the server grants a lock by
//! message, the message has a hash of that secret, of the owner field and of the number of the grant. A user that may listen and
//! publish on the channel hears the message, and can make no other one of it. It can only repeat it: so a proof counts once, and
//! only for as long as the sign of life does.
//!
//! A secret is a time, and a keyed hash ([`SipHash`](https://www.aumasson.jp/siphash/)) of that time and of the channel.
//! The client counts the lease of the grant from that time. It makes the secret again to check a proof, and needs no table
//! of secrets.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher, RandomState};
use std::time::Duration;

use itoa::Buffer;
use sha1_smol::Sha1;
use tokio::time::Instant;

use crate::mutex::Mutex;

/// A stamp has eight digits: it is a time in milliseconds, which wraps around after a day.
const STAMPS: u64 = 100_000_000;

/// The bytes of the hash that a message has.
const HASH: usize = 10;

/// What a client gives the server with a sign of life, and to nobody else: some digits that nobody can guess, and the
/// stamp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Secret {
    pub(crate) digits: u64,
    pub(crate) stamp: u32,
}

impl Secret {
    /// Its text: the digits, and the eight digits of the stamp.
    pub(crate) fn parts<'a>(self, digits: &'a mut Buffer, stamp: &'a mut Buffer) -> [&'a str; 2] {
        // A one in front keeps the zeros.
        [digits.format(self.digits), &stamp.format(STAMPS + u64::from(self.stamp))[1..]]
    }

    /// What the server says when it grants the lock to this owner field, with this number, for the sign of life that had
    /// this secret.
    pub(crate) fn proof(self, field: &str, number: u64) -> Proof {
        let digest = Sha1::from(format!("{self} {field}={number}")).digest().bytes();
        let hash = digest[..HASH].try_into().expect("a hash is longer");
        Proof { stamp: self.stamp, hash }
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut digits, mut stamp) = (Buffer::new(), Buffer::new());
        self.parts(&mut digits, &mut stamp).into_iter().try_for_each(|part| f.write_str(part))
    }
}

/// What a message has for a proof: the stamp of the secret, and a hash of the secret, the owner field and the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Proof {
    pub(crate) stamp: u32,
    hash: [u8; HASH],
}

impl Proof {
    /// Reads eight digits and twenty hexadecimal digits.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (stamp, hash) = text.split_at_checked(8)?;
        let is_decimal = stamp.bytes().all(|byte| byte.is_ascii_digit());
        let is_hexadecimal = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if !is_decimal || hash.len() != 2 * HASH || !hash.bytes().all(is_hexadecimal) {
            return None;
        }
        let mut bytes = [0; HASH];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hash[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self { stamp: stamp.parse().ok()?, hash: bytes })
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}", self.stamp)?;
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Makes the secrets of one client, and checks the proofs that the server makes with them.
pub(crate) struct Secrets {
    key: RandomState,
    started: Instant,
    /// For how long after its sign of life a proof counts.
    life: Duration,
    seen: Mutex<Seen>,
}

/// The proofs that have counted. Each is kept for as long as it could count again.
struct Seen {
    since: Instant,
    lately: HashSet<Proof>,
    before: HashSet<Proof>,
}

impl Seen {
    /// Whether this proof is new.
    fn note(&mut self, proof: Proof, now: Instant, life: Duration) -> bool {
        if now >= self.since + life {
            self.before = std::mem::take(&mut self.lately);
            self.since = now;
        }
        !self.before.contains(&proof) && self.lately.insert(proof)
    }
}

impl Secrets {
    pub(crate) fn new(started: Instant, life: Duration) -> Self {
        let seen = Seen { since: started, lately: HashSet::new(), before: HashSet::new() };
        Self { key: RandomState::new(), started, life, seen: Mutex::new(seen) }
    }

    /// A new secret for this channel, and the time that it carries, which is not later than now.
    pub(crate) fn make(&self, now: Instant, channel: &str) -> (Secret, Instant) {
        let millis = self.millis(now);
        (self.secret(millis, channel), self.started + Duration::from_millis(millis))
    }

    /// When the client made the secret of this proof, if the server has made the proof for this owner field and this number
    /// in this channel. A proof counts once.
    pub(crate) fn accept(
        &self,
        proof: Proof,
        (field, number): (&str, u64),
        now: Instant,
        channel: &str,
    ) -> Option<Instant> {
        let latest = self.millis(now);
        let ago = (latest % STAMPS + STAMPS - u64::from(proof.stamp)) % STAMPS;
        let millis = latest.checked_sub(ago)?;
        let made = self.started + Duration::from_millis(millis);
        let is_ours = Duration::from_millis(ago) <= self.life
            && self.secret(millis, channel).proof(field, number) == proof;
        let mut seen = self.seen.lock();
        (is_ours && seen.note(proof, now, self.life)).then_some(made)
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from((now - self.started).as_millis()).unwrap_or(u64::MAX)
    }

    fn secret(&self, millis: u64, channel: &str) -> Secret {
        let stamp = u32::try_from(millis % STAMPS).expect("eight digits");
        Secret { digits: self.hash(millis, channel), stamp }
    }

    #[cfg(not(parklock_sim))]
    fn hash(&self, millis: u64, channel: &str) -> u64 {
        let mut hasher = std::hash::BuildHasher::build_hasher(&self.key);
        (millis, channel).hash(&mut hasher);
        hasher.finish()
    }

    /// A run of the simulation must be repeatable from its seed, so its key is fixed.
    #[cfg(parklock_sim)]
    fn hash(&self, millis: u64, channel: &str) -> u64 {
        let _ = &self.key;
        let mut hasher = std::hash::DefaultHasher::new();
        (millis, channel, "a key of the simulation").hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = Secret { digits: 17, stamp: 42 };

    #[test]
    fn the_server_is_given_the_digits_and_then_the_stamp() {
        assert_eq!(SECRET.to_string(), "1700000042");
        assert_eq!(Secret::default().to_string(), "000000000");
    }

    /// `redis.sha1hex('1700000042 client:7=12')` begins with these digits.
    #[test]
    fn a_proof_is_the_stamp_and_half_of_a_hash() {
        let proof = SECRET.proof("client:7", 12);
        let expected = Sha1::from("1700000042 client:7=12").digest().to_string();
        assert_eq!(proof.to_string(), format!("00000042{}", &expected[..20]));
        assert_eq!(Proof::read(&proof.to_string()), Some(proof));
    }

    #[test]
    fn each_owner_field_number_and_secret_has_another_proof() {
        let proof = SECRET.proof("client:7", 12);
        for (secret, field, number) in [
            (SECRET, "client:8", 12),
            (SECRET, "client:7", 13),
            (Secret { digits: 18, ..SECRET }, "client:7", 12),
            (Secret { stamp: 43, ..SECRET }, "client:7", 12),
        ] {
            assert_ne!(secret.proof(field, number), proof);
        }
    }

    #[test]
    fn what_is_no_proof_is_not_read() {
        let fine = SECRET.proof("client:7", 12).to_string();
        let upper = format!("{}{}", &fine[..8], "A".repeat(20));
        for text in ["", "1", &fine[1..], &format!("{fine}0"), &upper, &fine.replacen('0', "+", 1)]
        {
            assert_eq!(Proof::read(text), None, "{text:?}");
        }
        assert_eq!(Proof::read("0000004\u{661}00000000000000000000"), None);
    }

    const LIFE: Duration = Duration::from_secs(1);
    const GRANT: (&str, u64) = ("client:7", 12);

    fn secrets(started: Instant) -> Secrets {
        Secrets::new(started, LIFE)
    }

    #[test]
    fn a_proof_is_known_with_the_time_of_its_secret_for_one_life() {
        let started = Instant::now();
        for millis in [0, 1, 1_500, STAMPS - 1, STAMPS, STAMPS * 3 + 7] {
            for later in [0, 1, 999] {
                let (ours, others) = (secrets(started), secrets(started));
                let now = started + Duration::from_micros(millis * 1_000 + 900);
                let (secret, made) = ours.make(now, "a");
                assert_eq!(made, started + Duration::from_millis(millis));
                let (proof, later) =
                    (secret.proof(GRANT.0, GRANT.1), now + Duration::from_millis(later));
                assert_eq!(ours.accept(proof, GRANT, later, "b"), None, "another channel");
                assert_eq!(
                    ours.accept(proof, ("client:8", 12), later, "a"),
                    None,
                    "another caller"
                );
                assert_eq!(
                    ours.accept(proof, ("client:7", 13), later, "a"),
                    None,
                    "another number"
                );
                assert_eq!(others.accept(proof, GRANT, later, "a"), None, "another client");
                assert_eq!(ours.accept(proof, GRANT, now + LIFE * 2, "a"), None, "an old one");
                assert_eq!(ours.accept(proof, GRANT, later, "a"), Some(made));
            }
        }
    }

    #[test]
    fn a_proof_counts_once() {
        let started = Instant::now();
        let secrets = secrets(started);
        let (secret, made) = secrets.make(started, "a");
        let proof = secret.proof(GRANT.0, GRANT.1);
        assert_eq!(secrets.accept(proof, GRANT, started, "a"), Some(made));
        for later in [0, 400, 600, 1_000] {
            let later = started + Duration::from_millis(later);
            assert_eq!(secrets.accept(proof, GRANT, later, "a"), None);
        }
    }

    #[test]
    fn a_proof_is_forgotten_when_it_cannot_count_any_more() {
        let mut now = Instant::now();
        let secrets = secrets(now);
        for number in 0..100 {
            now += LIFE / 4;
            let (secret, made) = secrets.make(now, "a");
            let proof = secret.proof(GRANT.0, number);
            assert_eq!(secrets.accept(proof, (GRANT.0, number), now, "a"), Some(made));
        }
        let seen = secrets.seen.lock();
        assert!(seen.lately.len() + seen.before.len() <= 10);
    }
}
