//! How the server proves that a grant by message is its own. `lua/line/proof.lua` is the server's half.

use std::fmt;

use itoa::Buffer;
use sha1_smol::Sha1;

/// A stamp has eight digits: it is a time in milliseconds, which wraps around after a day.
pub(crate) const STAMPS: u64 = 100_000_000;

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
}
