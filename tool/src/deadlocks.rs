//! Circles of clients that wait for each other.
//!
//! A client is one process, or a part of one. A client that holds x and waits for y may do the two in different pieces
//! of work. Then the circle is no deadlock, and disappears by itself. So the tool looks twice, and shows only a circle
//! in which nothing has moved between the two looks. It calls such a circle a suspicion.

use std::collections::{BTreeMap, BTreeSet};

use crate::inventory::{Inventory, Lock, client_of};
use crate::text::printable;

/// A client waits for a lock that another client holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    /// The owner fields of both.
    waiter: String,
    holder: String,
    lock: String,
}

/// Which client waits for which. Callers of one client that wait for each other do not appear: their queue is not in
/// Redis.
fn waits(locks: &[Lock]) -> BTreeSet<Wait> {
    let mut waits = BTreeSet::new();
    for lock in locks {
        for waiter in &lock.line {
            for holder in &lock.holders {
                if client_of(&waiter.owner) != client_of(&holder.owner) {
                    waits.insert(Wait {
                        waiter: waiter.owner.clone(),
                        holder: holder.owner.clone(),
                        lock: lock.name.clone(),
                    });
                }
            }
        }
    }
    waits
}

/// Circles of waits. Each client is in at most one of them.
fn circles(waits: &BTreeSet<Wait>) -> Vec<Vec<Wait>> {
    let mut of_client: BTreeMap<&str, Vec<&Wait>> = BTreeMap::new();
    for wait in waits {
        of_client.entry(client_of(&wait.waiter)).or_default().push(wait);
    }
    let (mut done, mut circles) = (BTreeSet::new(), Vec::new());
    for client in of_client.keys() {
        if let Some(circle) = follow(client, &of_client, &mut Vec::new(), &mut done) {
            circles.push(circle.into_iter().cloned().collect());
        }
    }
    circles
}

/// Follows the waits from a client until they close a circle. Follows no client twice.
fn follow<'a>(
    client: &'a str,
    of_client: &BTreeMap<&'a str, Vec<&'a Wait>>,
    way: &mut Vec<&'a Wait>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a Wait>> {
    if let Some(begin) = way.iter().position(|wait| client_of(&wait.waiter) == client) {
        return Some(way[begin..].to_vec());
    }
    if done.contains(client) {
        return None;
    }
    for wait in of_client.get(client).into_iter().flatten() {
        way.push(wait);
        let found = follow(client_of(&wait.holder), of_client, way, done);
        way.pop();
        if found.is_some() {
            done.insert(client);
            return found;
        }
    }
    done.insert(client);
    None
}

/// The circles in which nothing has moved between two looks.
pub(crate) fn standing(before: &Inventory, now: &Inventory) -> Vec<Vec<Wait>> {
    let still: BTreeSet<Wait> =
        waits(&before.locks).intersection(&waits(&now.locks)).cloned().collect();
    circles(&still)
}

/// A text about these circles.
pub(crate) fn text(circles: &[Vec<Wait>], now: &Inventory) -> String {
    if circles.is_empty() {
        return "No clients wait for each other in a circle.\n".to_owned();
    }
    let circle = |(at, circle): (usize, &Vec<Wait>)| {
        let steps = circle.iter().map(|wait| {
            let (waiter, holder) = (now.who(&wait.waiter), now.who(&wait.holder));
            let [waiter, lock, holder] =
                [waiter, wait.lock.clone(), holder].map(|word| printable(&word));
            format!("  {waiter} waits for {lock}, held by {holder}\n")
        });
        format!("Circle {}:\n{}", at + 1, steps.collect::<String>())
    };
    let circles: String = circles.iter().enumerate().map(circle).collect();
    circles
        + "If one piece of work both holds a lock of the circle and waits for the next, this is a deadlock.\n"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::inventory::{Holder, Waiter};

    fn lock(name: &str, holder: &str, waiters: &[&str]) -> Lock {
        let waiter = |owner: &&str| Waiter { owner: (*owner).to_owned(), waited: Duration::ZERO };
        Lock {
            name: name.to_owned(),
            holders: vec![Holder { owner: holder.to_owned(), ..Holder::default() }],
            line: waiters.iter().map(waiter).collect(),
            ..Lock::default()
        }
    }

    #[test]
    fn two_clients_that_wait_for_each_other_are_a_circle() {
        let locks = [lock("x", "b:1", &["a:2", "c:1"]), lock("y", "a:1", &["b:2"])];
        let circles = circles(&waits(&locks));
        assert_eq!(circles.len(), 1);
        let names: Vec<_> = circles[0].iter().map(|wait| wait.lock.as_str()).collect();
        assert_eq!(names, ["x", "y"]);
    }

    #[test]
    fn waits_that_do_not_lead_back_are_no_circle() {
        let locks =
            [lock("x", "b:1", &["a:1"]), lock("y", "c:1", &["b:2"]), lock("z", "d:1", &["a:3"])];
        assert!(circles(&waits(&locks)).is_empty());
        assert!(
            waits(&[lock("x", "a:1", &["a:2"])]).is_empty(),
            "a client does not wait for itself"
        );
    }

    #[test]
    fn a_circle_is_found_after_waits_that_lead_nowhere() {
        let locks = [
            lock("w", "z:1", &["a:1"]),
            lock("x", "b:1", &["a:2"]),
            lock("y", "c:1", &["b:2"]),
            lock("z", "a:3", &["c:2"]),
        ];
        assert_eq!(circles(&waits(&locks))[0].len(), 3);
    }

    #[test]
    fn a_circle_that_has_moved_is_no_deadlock() {
        let inventory = |locks: Vec<Lock>| Inventory { locks, ..Inventory::default() };
        let before = inventory(vec![lock("x", "b:1", &["a:2"]), lock("y", "a:1", &["b:2"])]);
        let now = inventory(vec![lock("x", "b:3", &["a:2"]), lock("y", "a:1", &["b:2"])]);
        let circles = standing(&before, &before);
        assert!(text(&circles, &before).contains("waits for x, held by b:1"));
        assert_eq!(standing(&before, &now), Vec::<Vec<Wait>>::new());
    }
}
