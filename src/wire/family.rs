//! The scripts of each family of kinds: see [`Row`](crate::kinds::Row).

use crate::error::said;
use crate::keys::Keys;
use crate::kinds::Family;
use crate::wire::fault::Fault;
use crate::wire::scripts::{self, Script};

/// The scripts of a family. `None`: the client never calls such a script for it.
pub(crate) struct Scripts {
    pub(crate) acquire: &'static Script,
    /// Takes those of several locks that are free.
    pub(crate) acquire_each: Option<&'static Script>,
    /// Takes all of several locks, or none.
    pub(crate) acquire_all: Option<&'static Script>,
    pub(crate) release: &'static Script,
    /// Releases what is held, and touches only one key.
    pub(crate) release_alone: Option<&'static Script>,
    pub(crate) renew: Option<&'static Script>,
    /// Renews a hash field, and touches only one key. `None`: `renew` does so, or there is no such script.
    pub(crate) renew_alone: Option<&'static Script>,
    pub(crate) status: &'static Script,
    pub(crate) force_unlock: Option<&'static Script>,
    pub(crate) resize: Option<&'static Script>,
    pub(crate) latch: Option<LatchScripts>,
    pub(crate) condition: Option<ConditionScripts>,
}

/// The additional scripts of a latch.
pub(crate) struct LatchScripts {
    pub(crate) set: &'static Script,
    pub(crate) count_down: &'static Script,
    pub(crate) delete: &'static Script,
}

/// The additional scripts of a condition.
pub(crate) struct ConditionScripts {
    pub(crate) notify: &'static Script,
    /// Uses a notification up.
    pub(crate) taken: &'static Script,
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
pub(crate) fn existing(
    script: Option<&'static Script>,
    keys: &Keys,
) -> Result<&'static Script, Fault> {
    script.ok_or_else(|| Fault::Unanswered(said(format!("a {} has no such script", keys.row.word))))
}

/// Fair locks, read-write locks and semaphores.
static LINE: Scripts = Scripts {
    acquire: &scripts::LINE_ACQUIRE,
    acquire_each: None,
    acquire_all: None,
    release: &scripts::LINE_RELEASE,
    release_alone: Some(&scripts::LINE_RELEASE_ALONE),
    renew: Some(&scripts::LINE_RENEW),
    renew_alone: None,
    status: &scripts::LINE_STATUS,
    force_unlock: Some(&scripts::LINE_FORCE_UNLOCK),
    resize: Some(&scripts::LINE_RESIZE),
    latch: None,
    condition: None,
};

/// Plain locks. One request takes, renews or releases several of them.
static LOCK: Scripts = Scripts {
    acquire: &scripts::LOCK_ACQUIRE,
    acquire_each: Some(&scripts::TAKE),
    acquire_all: Some(&scripts::LOCK_ACQUIRE_ALL),
    release: &scripts::LOCK_RELEASE,
    release_alone: Some(&scripts::LOCK_RELEASE_ALONE),
    renew: Some(&scripts::RENEW),
    renew_alone: None,
    status: &scripts::STATUS,
    force_unlock: Some(&scripts::LOCK_FORCE_UNLOCK),
    resize: None,
    latch: None,
    condition: None,
};

static LATCH: Scripts = Scripts {
    acquire: &scripts::LATCH_ACQUIRE,
    acquire_each: None,
    acquire_all: None,
    release: &scripts::LATCH_RELEASE,
    release_alone: None,
    renew: None,
    renew_alone: None,
    status: &scripts::LATCH_STATUS,
    force_unlock: None,
    resize: None,
    latch: Some(LatchScripts {
        set: &scripts::LATCH_SET,
        count_down: &scripts::LATCH_COUNT_DOWN,
        delete: &scripts::LATCH_DELETE,
    }),
    condition: None,
};

static CONDITION: Scripts = Scripts {
    acquire: &scripts::CONDITION_ACQUIRE,
    acquire_each: None,
    acquire_all: None,
    release: &scripts::CONDITION_RELEASE,
    // A release of a notification with one key alone cannot pass the notification on.
    release_alone: None,
    renew: Some(&scripts::LINE_RENEW),
    renew_alone: None,
    status: &scripts::CONDITION_STATUS,
    force_unlock: Some(&scripts::CONDITION_FORCE_UNLOCK),
    resize: None,
    latch: None,
    condition: Some(ConditionScripts {
        notify: &scripts::CONDITION_NOTIFY,
        taken: &scripts::CONDITION_TAKEN,
    }),
};

static REDISSON_LOCK: Scripts = Scripts {
    acquire: &scripts::REDISSON_LOCK_ACQUIRE,
    acquire_each: Some(&scripts::REDISSON_LOCK_ACQUIRE),
    acquire_all: Some(&scripts::REDISSON_LOCK_ACQUIRE_ALL),
    release: &scripts::REDISSON_LOCK_RELEASE,
    release_alone: None,
    renew: Some(&scripts::RENEW),
    renew_alone: None,
    status: &scripts::REDISSON_LOCK_STATUS,
    force_unlock: Some(&scripts::REDISSON_LOCK_FORCE_UNLOCK),
    resize: None,
    latch: None,
    condition: None,
};

static REDISSON_FENCED: Scripts = Scripts {
    acquire: &scripts::REDISSON_FENCED_ACQUIRE,
    acquire_each: Some(&scripts::REDISSON_FENCED_ACQUIRE),
    acquire_all: None,
    release: &scripts::REDISSON_LOCK_RELEASE,
    release_alone: None,
    renew: Some(&scripts::RENEW),
    renew_alone: None,
    status: &scripts::REDISSON_LOCK_STATUS,
    force_unlock: Some(&scripts::REDISSON_LOCK_FORCE_UNLOCK),
    resize: None,
    latch: None,
    condition: None,
};

static REDISSON_FAIR: Scripts = Scripts {
    acquire: &scripts::REDISSON_FAIR_ACQUIRE,
    acquire_each: None,
    acquire_all: None,
    release: &scripts::REDISSON_FAIR_RELEASE,
    release_alone: None,
    renew: Some(&scripts::REDISSON_FAIR_RENEW),
    renew_alone: Some(&scripts::RENEW),
    status: &scripts::REDISSON_FAIR_STATUS,
    force_unlock: Some(&scripts::REDISSON_FAIR_FORCE_UNLOCK),
    resize: None,
    latch: None,
    condition: None,
};

static REDISSON_READ: Scripts = Scripts {
    acquire: &scripts::REDISSON_READ_ACQUIRE,
    acquire_each: None,
    acquire_all: None,
    release: &scripts::REDISSON_READ_RELEASE,
    release_alone: None,
    renew: Some(&scripts::REDISSON_READ_RENEW),
    renew_alone: None,
    status: &scripts::REDISSON_RW_STATUS,
    force_unlock: Some(&scripts::REDISSON_RW_FORCE_UNLOCK),
    resize: None,
    latch: None,
    condition: None,
};

static REDISSON_WRITE: Scripts = Scripts {
    acquire: &scripts::REDISSON_WRITE_ACQUIRE,
    acquire_each: None,
    acquire_all: None,
    release: &scripts::REDISSON_WRITE_RELEASE,
    release_alone: None,
    renew: Some(&scripts::REDISSON_WRITE_RENEW),
    renew_alone: None,
    status: &scripts::REDISSON_RW_STATUS,
    force_unlock: Some(&scripts::REDISSON_RW_FORCE_UNLOCK),
    resize: None,
    latch: None,
    condition: None,
};

static REDISSON_SEMAPHORE: Scripts = Scripts {
    acquire: &scripts::REDISSON_SEMAPHORE_ACQUIRE,
    acquire_each: None,
    acquire_all: None,
    release: &scripts::REDISSON_SEMAPHORE_RELEASE,
    release_alone: None,
    renew: Some(&scripts::REDISSON_SEMAPHORE_RENEW),
    renew_alone: None,
    status: &scripts::REDISSON_SEMAPHORE_STATUS,
    force_unlock: Some(&scripts::REDISSON_SEMAPHORE_FORCE_UNLOCK),
    resize: Some(&scripts::REDISSON_SEMAPHORE_RESIZE),
    latch: None,
    condition: None,
};

static REDISSON_LATCH: Scripts = Scripts {
    acquire: &scripts::REDISSON_LATCH_ACQUIRE,
    acquire_each: None,
    acquire_all: None,
    release: &scripts::LATCH_RELEASE,
    release_alone: None,
    renew: None,
    renew_alone: None,
    status: &scripts::REDISSON_LATCH_STATUS,
    force_unlock: None,
    resize: None,
    latch: Some(LatchScripts {
        set: &scripts::REDISSON_LATCH_SET,
        count_down: &scripts::REDISSON_LATCH_COUNT_DOWN,
        delete: &scripts::REDISSON_LATCH_DELETE,
    }),
    condition: None,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layout;
    use crate::kinds::Kind;

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
            let what = format!("{kind:?} in {layout:?}");
            let always = [scripts.acquire, scripts.release, scripts.status].map(Some);
            let called = always.into_iter().chain([scripts.renew, scripts.force_unlock]);
            // There is no condition in Redisson's layout.
            let is_there = layout == Layout::Native || !row.is_notice;
            let mut called = called.flatten();
            assert!(
                !is_there || called.all(|script| !script.is_in(layout.never_calls())),
                "{what}"
            );
            assert_eq!(scripts.condition.is_some(), row.is_notice, "{what}");
            assert_eq!(scripts.renew.is_some(), !row.is_passed, "{what}");
            assert_eq!(scripts.force_unlock.is_some(), !row.is_passed, "{what}");
            assert_eq!(scripts.latch.is_some(), row.is_passed, "{what}");
            assert_eq!(scripts.acquire_each.is_some(), row.lies_as_plain, "{what}");
            assert_eq!(scripts.acquire_all.is_some(), row.is_plain, "{what}");
            let is_semaphore = matches!(kind, Kind::Semaphore { .. } | Kind::Expirable { .. });
            assert!(scripts.resize.is_some() || !is_semaphore, "{what}");
        }
    }
}
