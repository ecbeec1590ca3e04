//! What may follow `SET key value`.

use crate::number;
use crate::reply::{Reply, refusal};
use crate::version::Version;

/// The options of a SET.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// XX: `true`, NX: `false`
    pub(super) only_if_there: Option<bool>,
    pub(super) get: bool,
    pub(super) keep_ttl: bool,
    /// In ms of the server's clock.
    pub(super) ends: Option<i64>,
}

/// When a key is to end: in this unit, from now or from the epoch on.
#[derive(Clone, Copy, Debug)]
struct Expiry<'a> {
    amount: &'a [u8],
    unit: i64,
    from_now: bool,
}

impl Options {
    pub(super) fn parse(words: &[&[u8]], now: i64, version: Version) -> Result<Self, Reply> {
        let (mut options, mut expiry, mut words) = (Self::default(), None, words.iter());
        while let Some(word) = words.next() {
            let name = word.to_ascii_uppercase();
            let free_to_expire = expiry.is_none() && !options.keep_ttl;
            match &*name {
                b"NX" if options.only_if_there.is_none_or(|there| !there) => {
                    options.only_if_there = Some(false)
                }
                b"XX" if options.only_if_there.is_none_or(|there| there) => {
                    options.only_if_there = Some(true)
                }
                b"GET" => options.get = true,
                b"KEEPTTL" if expiry.is_none() => options.keep_ttl = true,
                b"EX" | b"PX" | b"EXAT" | b"PXAT" if free_to_expire => {
                    let amount = words.next().ok_or_else(refusal::syntax)?;
                    let unit = if name[0] == b'E' { 1000 } else { 1 };
                    expiry = Some(Expiry { amount, unit, from_now: name.len() == 2 });
                }
                _ => return Err(refusal::syntax()),
            }
        }
        if version.is_6() && options.get && options.only_if_there == Some(false) {
            return Err(refusal::syntax());
        }
        options.ends = expiry.map(|expiry| expiry.ends(now, version)).transpose()?;
        Ok(options)
    }
}

impl Expiry<'_> {
    fn ends(self, now: i64, version: Version) -> Result<i64, Reply> {
        let amount = number::integer(self.amount).ok_or_else(refusal::not_an_integer)?;
        let start = if self.from_now { now } else { 0 };
        let ends = amount.checked_mul(self.unit).and_then(|ms| ms.checked_add(start));
        ends.filter(|_| amount > 0).ok_or_else(|| invalid_expire("set", version))
    }
}

pub(super) fn invalid_expire(command: &str, version: Version) -> Reply {
    Reply::error(match version {
        Version::Redis6_2 => format!("ERR invalid expire time in {command}"),
        _ => format!("ERR invalid expire time in '{command}' command"),
    })
}
