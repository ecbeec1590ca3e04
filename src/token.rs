//! Fencing tokens: a number that grows with every hold. Redis draws a number for each grant (`lua/lock/draw.lua`); the
//! last digits count the holds of that grant within the client.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The most hand-overs within one grant by Redis, without a new number from the server: a token has ten bits for them.
pub(crate) const MOST_HAND_OVERS: u32 = 1023;

/// A number that grows with every exclusive hold of a lock, for the protected resource to check.
///
/// A lease can expire while its holder sleeps. So the resource remembers the greatest token that it has seen, and
/// rejects a smaller one. It is the fencing token of Martin Kleppmann (*How to do distributed locking*, 2016), and the
/// *sequencer* of Chubby (Mike Burrows, *The Chubby lock service for loosely-coupled distributed systems*, 2006).
///
/// Tokens strictly increase from one holder of a lock to the next. This holds even if the server lost its counter,
/// unless the server's clock was also set back by more than the outage lasted. A nested hold has the token of the outer
/// hold. Tokens of different locks are not comparable.
///
/// # Readers and permits
/// Holders that share a lock have tokens in no order: a reader that comes later may have a smaller one. Such a token is a
/// floor against exclusive holders: it is greater than the token of each writer before the reader, and smaller than that
/// of each writer after it. For a semaphore, a holder of all permits is what a writer is here. So let the resource
/// remember two numbers. It refuses a reader whose token is smaller than the greatest of a writer, and a writer whose
/// token is smaller than the greatest of a writer or a reader. No number tells apart two permits that are held at once: a
/// resource that only such holders write cannot refuse a late one.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let url = std::env::var("PARKLOCK_DOC_REDIS").unwrap_or("redis://127.0.0.1:6379".into());
/// // The protected resource. In SQL: `UPDATE .. SET token = $1, .. WHERE token <= $1`.
/// let mut greatest = None;
/// let mut write = |token| {
///     let is_accepted = greatest <= Some(token);
///     greatest = greatest.max(Some(token));
///     is_accepted
/// };
///
/// let client = parklock::Client::connect(&url).await?;
/// let first = client.lock("doc:token").lock().await?;
/// let late = first.token();
/// first.unlock().await?;
///
/// let second = client.lock("doc:token").lock().await?;
/// assert!(write(second.token()));
/// assert!(!write(late));
/// # second.unlock().await?;
/// # Ok::<(), parklock::Error>(()) }).unwrap();
/// ```
///
/// A token is always below 2^63: `token.get() as i64` fits a `BIGINT`. It is above 2^53, so a number of JSON, of JavaScript or of a
/// Lua script cannot carry it: send the text ([`Display`](fmt::Display)), and parse it where it arrives. With the feature `serde`
/// a token is written as text.
///
/// ```
/// use parklock::FencingToken;
///
/// let token: FencingToken = "1838795981739020289".parse()?; // in a request, a column, a test
/// assert_eq!(token.to_string(), "1838795981739020289");
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The token of a hold within a grant, after this many hand-overs. A grant is below 2^53, so the product fits.
    pub(crate) fn new(grant: u64, hand_over: u16) -> Self {
        debug_assert!(u32::from(hand_over) <= MOST_HAND_OVERS);
        Self(grant * (u64::from(MOST_HAND_OVERS) + 1) + u64::from(hand_over))
    }

    /// A token read back from Redis, or that of a lock whose counter is shared with Redisson: the number is the same in both
    /// libraries.
    pub(crate) fn written(number: u64) -> Self {
        Self(number)
    }

    /// The number. Store it with the protected data.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Any number is a token, also that of another lock: compare it only with tokens of the same lock.
impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// As text: a number of JSON would be rounded by many who read it.
#[cfg(feature = "serde")]
impl serde::Serialize for FencingToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for FencingToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_grow_with_the_hand_over_and_more_with_the_grant() {
        assert!(FencingToken::new(7, 0) < FencingToken::new(7, 1));
        assert!(FencingToken::new(7, 1023) < FencingToken::new(8, 0));
    }

    /// A reader of JSON that has only floating point numbers takes these two for one.
    #[test]
    #[cfg(feature = "serde")]
    fn two_tokens_in_a_row_are_two_texts_wherever_they_are_written() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Order {
            token: FencingToken,
        }

        let (first, second) = (FencingToken::new(1 << 50, 0), FencingToken::new(1 << 50, 1));
        assert!((first.get() as f64 - second.get() as f64).abs() < f64::EPSILON);
        let [first, second] = [first, second].map(|token| {
            let text = toml::to_string(&Order { token }).expect("it can be written");
            assert!(text.contains(&format!("\"{token}\"")), "{text}");
            toml::from_str::<Order>(&text).expect("it is read again").token
        });
        assert!(first < second);
    }

    #[test]
    fn the_greatest_grant_that_a_script_can_return_fits() {
        let last = FencingToken::new((1 << 53) - 1, 1023);
        assert_eq!(last.get(), (1 << 63) - 1);
    }
}
