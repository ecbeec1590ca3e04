//! Promptness, which only a real clock can try: nobody waits long for a lock that is free.

use std::collections::HashMap;
use std::time::Duration;

use crate::judge::Claim;
use crate::settings::{FAMILY, JAVA, Kind, SEVERAL, Topology, bare, nanos};
use crate::verdict::Tally;

/// Who waited while the lock was free, when nothing was broken any more: a wake-up was lost, or somebody holds it of
/// whom nobody knows, such as an acquire whose caller has gone. Who came before `from` was judged before.
pub fn slow(
    claims: &[Claim],
    started: u64,
    from: u64,
    topology: Topology,
    tally: &mut Tally,
) -> Vec<String> {
    // A call for several locks of a cluster holds those that it has while it waits for the next one.
    let parts = if topology.is_cluster() { tally.parts.clone() } else { HashMap::new() };
    // In the line of a fair lock it may be Redisson's turn, and how soon its threads wake up is not our affair.
    let is_fair =
        |lock: &str| topology == Topology::Redisson && FAMILY.contains(&(bare(lock), Kind::Fair));
    let judged = claims.iter().filter(|claim| claim.of == 1 && !is_fair(&claim.lock));
    let mut order: Vec<&Claim> = judged.collect();
    order.sort_by_key(|claim| (claim.lock.as_str(), claim.acquired));
    let (mut found, mut longest, mut judged) = (Vec::new(), 0, 0);
    let mut free_since = 0;
    for pair in order.windows(2) {
        let (before, next) = (pair[0], pair[1]);
        let is_same = before.lock == next.lock;
        free_since = if is_same { before.ended.unwrap_or(u64::MAX).max(free_since) } else { 0 };
        let calm = |at: u64| topology.is_calm(Duration::from_nanos(at.saturating_sub(started)));
        let since = free_since.max(next.called);
        let is_ours = !next.owner.contains(SEVERAL) && !next.owner.contains(JAVA);
        let waited = is_same && since < next.acquired && is_ours;
        let late = tally.late.iter().any(|(from, to)| *from < next.acquired && *to > since);
        let met = |(from, to): &(u64, u64)| *from < next.acquired && *to > since;
        let is_part = parts.get(&next.lock).is_some_and(|parts| parts.iter().any(met));
        if next.acquired < from
            || !waited
            || !calm(since)
            || !calm(next.acquired)
            || late
            || is_part
        {
            continue;
        }
        let gap = next.acquired - since;
        (longest, judged) = (longest.max(gap), judged + 1);
        if gap > nanos(topology.prompt()) {
            let (before, next) = (before.hold(0), next.hold(0));
            let gap = gap / 1_000_000;
            found.push(format!(
                "it waited {gap} ms for a lock that was free:\n  {next}\n  {before}"
            ));
        }
    }
    tally.add("waits judged in calm times", judged);
    tally.most("the longest of them, in microseconds", longest / 1_000);
    let late = tally.late.iter().filter(|(_, to)| *to >= from).count();
    tally.add("times that are not judged: a server fault, or a busy machine", late as u64);
    found
}
