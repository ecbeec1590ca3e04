//! The scripts of each family of kinds: see [`Row`](crate::kinds::Row).

use crate::error::said;
use crate::keys::Keys;
use crate::kinds::Family;
use crate::wire::fault::Fault;
use crate::wire::scripts::*;

/// The scripts of a family. `None`: the client never calls such a script for it.
pub(crate) struct Scripts {
    pub(crate) acquire: &'static Script,
    /// Takes several locks: those that are free, or each as `acquire` does.
    pub(crate) acquire_each: Option<&'static Script>,
    /// Takes all of several locks, or none.
    pub(crate) acquire_all: Option<&'static Script>,
    pub(crate) release: &'static Script,
    /// Releases what is held, and touches only one key.
    pub(crate) release_alone: Option<&'static Script>,
    /// [`RENEW`] renews the families that [share renewals](Family::shares_renewals).
    pub(crate) renew: Option<&'static Script>,
    pub(crate) status: &'static Script,
    pub(crate) force_unlock: Option<&'static Script>,
    pub(crate) resize: Option<&'static Script>,
    /// Changes a latch, or notifies a condition.
    pub(crate) order: Option<&'static Script>,
    /// Uses a notification of a condition up.
    pub(crate) taken: Option<&'static Script>,
}

/// The scripts that serve a name.
pub(crate) fn scripts_of(keys: &Keys) -> &'static Scripts {
    match keys.row.family {
        Family::Lock => &LOCK,
        Family::Line => &LINE,
        Family::Latch => &LATCH,
        Family::Condition => &CONDITION,
        Family::RedissonLock => &REDISSON_LOCK,
        Family::RedissonFenced => &REDISSON_FENCED,
        Family::RedissonFair => &REDISSON_FAIR,
        Family::RedissonRead => &REDISSON_READ,
        Family::RedissonWrite => &REDISSON_WRITE,
        Family::RedissonSemaphore => &REDISSON_SEMAPHORE,
        Family::RedissonLatch => &REDISSON_LATCH,
    }
}

/// A script that not every family has.
///
/// # Errors
/// A fault if this family does not have it, which happens only if this crate has a bug.
pub(crate) fn existing<S>(script: Option<S>, keys: &Keys) -> Result<S, Fault> {
    script.ok_or_else(|| Fault::Unanswered(said(format!("a {} has no such script", keys.row.word))))
}

/// The scripts that every family has, and no others.
const fn common(
    acquire: &'static Script,
    release: &'static Script,
    status: &'static Script,
) -> Scripts {
    Scripts {
        acquire,
        acquire_each: None,
        acquire_all: None,
        release,
        release_alone: None,
        renew: None,
        status,
        force_unlock: None,
        resize: None,
        order: None,
        taken: None,
    }
}

/// Fair locks, read-write locks and semaphores.
static LINE: Scripts = Scripts {
    acquire_each: Some(&LINE_ACQUIRE_EACH),
    release_alone: Some(&LINE_RELEASE_ALONE),
    force_unlock: Some(&LINE_FORCE_UNLOCK),
    resize: Some(&LINE_RESIZE),
    ..common(&LINE_ACQUIRE, &LINE_RELEASE, &LINE_STATUS)
};

/// Plain locks.
static LOCK: Scripts = Scripts {
    acquire_each: Some(&TAKE),
    acquire_all: Some(&LOCK_ACQUIRE_ALL),
    release_alone: Some(&LOCK_RELEASE_ALONE),
    force_unlock: Some(&LOCK_FORCE_UNLOCK),
    ..common(&LOCK_ACQUIRE, &LOCK_RELEASE, &STATUS)
};

static LATCH: Scripts =
    Scripts { order: Some(&LATCH_ORDER), ..common(&LATCH_ACQUIRE, &LATCH_RELEASE, &LATCH_STATUS) };

/// It has no `release_alone`: a release of a notification with one key alone cannot pass the notification on.
static CONDITION: Scripts = Scripts {
    force_unlock: Some(&CONDITION_FORCE_UNLOCK),
    order: Some(&CONDITION_NOTIFY),
    taken: Some(&CONDITION_TAKEN),
    ..common(&CONDITION_ACQUIRE, &CONDITION_RELEASE, &CONDITION_STATUS)
};

static REDISSON_LOCK: Scripts = Scripts {
    acquire_each: Some(&REDISSON_LOCK_ACQUIRE),
    acquire_all: Some(&REDISSON_LOCK_ACQUIRE_ALL),
    force_unlock: Some(&REDISSON_LOCK_FORCE_UNLOCK),
    ..common(&REDISSON_LOCK_ACQUIRE, &REDISSON_LOCK_RELEASE, &STATUS)
};

static REDISSON_FENCED: Scripts = Scripts {
    acquire_each: Some(&REDISSON_FENCED_ACQUIRE),
    force_unlock: Some(&REDISSON_LOCK_FORCE_UNLOCK),
    ..common(&REDISSON_FENCED_ACQUIRE, &REDISSON_LOCK_RELEASE, &STATUS)
};

static REDISSON_FAIR: Scripts = Scripts {
    renew: Some(&REDISSON_FAIR_RENEW),
    force_unlock: Some(&REDISSON_FAIR_FORCE_UNLOCK),
    ..common(&REDISSON_FAIR_ACQUIRE, &REDISSON_FAIR_RELEASE, &STATUS)
};

static REDISSON_READ: Scripts = Scripts {
    renew: Some(&REDISSON_READ_RENEW),
    force_unlock: Some(&REDISSON_RW_FORCE_UNLOCK),
    ..common(&REDISSON_READ_ACQUIRE, &REDISSON_READ_RELEASE, &REDISSON_RW_STATUS)
};

static REDISSON_WRITE: Scripts = Scripts {
    force_unlock: Some(&REDISSON_RW_FORCE_UNLOCK),
    ..common(&REDISSON_WRITE_ACQUIRE, &REDISSON_WRITE_RELEASE, &REDISSON_RW_STATUS)
};

static REDISSON_SEMAPHORE: Scripts = Scripts {
    renew: Some(&REDISSON_SEMAPHORE_RENEW),
    force_unlock: Some(&REDISSON_SEMAPHORE_FORCE_UNLOCK),
    resize: Some(&REDISSON_SEMAPHORE_RESIZE),
    ..common(&REDISSON_SEMAPHORE_ACQUIRE, &REDISSON_SEMAPHORE_RELEASE, &REDISSON_SEMAPHORE_STATUS)
};

static REDISSON_LATCH: Scripts = Scripts {
    order: Some(&REDISSON_LATCH_ORDER),
    ..common(&REDISSON_LATCH_ACQUIRE, &LATCH_RELEASE, &REDISSON_LATCH_STATUS)
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layout;
    use crate::kinds::{Holders, Kind};

    #[test]
    fn a_family_has_every_script_that_its_kinds_call() {
        let (permits, name) = (1, "a");
        let kinds = [
            Kind::Lock,
            Kind::Fenced,
            Kind::Fair,
            Kind::Read,
            Kind::Write,
            Kind::Semaphore { permits },
            Kind::Expirable { permits },
            Kind::Latch,
            Kind::Condition,
        ];
        for (layout, kind) in
            [Layout::Native, Layout::Redisson].into_iter().flat_map(|l| kinds.map(|kind| (l, kind)))
        {
            let keys = Keys::new(layout, kind, name.to_owned()).unwrap();
            let (row, scripts) = (keys.row, scripts_of(&keys));
            let is_held = row.holders != Holders::Nobody;
            let what = format!("{kind:?} in {layout:?}");
            let always = [scripts.acquire, scripts.release, scripts.status].map(Some);
            let called = always.into_iter().chain([scripts.renew, scripts.force_unlock]);
            // There is no condition in Redisson's layout.
            let is_there = layout == row.layout;
            let mut called = called.flatten();
            assert!(
                !is_there || called.all(|script| !script.is_in(layout.never_calls())),
                "{what}"
            );
            let is_condition = row.holders == Holders::Notified;
            assert_eq!(scripts.taken.is_some(), is_condition, "{what}");
            assert_eq!(scripts.order.is_some(), is_condition || !is_held, "{what}");
            assert_eq!(scripts.renew.is_some(), is_held && !row.family.shares_renewals(), "{what}");
            assert_eq!(scripts.force_unlock.is_some(), is_held, "{what}");
            let is_shared = row.family.is_plain() || row.family == Family::Line;
            assert_eq!(scripts.acquire_each.is_some(), is_shared, "{what}");
            assert_eq!(scripts.acquire_all.is_some(), row.holders == Holders::Plain, "{what}");
            let is_semaphore = matches!(kind, Kind::Semaphore { .. } | Kind::Expirable { .. });
            assert!(scripts.resize.is_some() || !is_semaphore, "{what}");
        }
    }
}
