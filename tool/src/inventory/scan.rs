//! How keys are found and answers are read.

use std::collections::BTreeMap;

use redis::Value;

use crate::failure::Failure;
use crate::servers::{Server, needed, value};

/// Every key of a server that matches a pattern. SCAN may return a key twice.
pub(crate) async fn scan(
    server: &Server,
    pattern: &str,
    kind: Option<&str>,
    mut found: impl FnMut(&str),
) -> Result<(), Failure> {
    let mut cursor = "0".to_owned();
    loop {
        let mut words = vec!["SCAN", cursor.as_str(), "MATCH", pattern, "COUNT", "1000"];
        words.extend(kind.iter().flat_map(|kind| ["TYPE", *kind]));
        let (next, keys): (String, Vec<Vec<u8>>) = server.query(&words).await?;
        keys.iter().filter_map(|key| std::str::from_utf8(key).ok()).for_each(&mut found);
        if next == "0" {
            return Ok(());
        }
        cursor = next;
    }
}

/// Members and their scores, from a reply in RESP2 or RESP3.
pub(crate) fn scored(answer: Option<Value>) -> Result<Vec<(String, f64)>, Failure> {
    Ok(needed(answer)?.unwrap_or_default())
}

/// Pairs of a name and a number, from a flat list.
pub(crate) fn pairs(items: Vec<Value>) -> BTreeMap<String, u64> {
    let mut items = items.into_iter();
    let next = || Some((value(items.next())?, value(items.next())?));
    std::iter::from_fn(next).collect()
}
