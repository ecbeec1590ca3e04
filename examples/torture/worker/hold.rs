//! A guard with its claim: whatever ends it, the record says so before the lock is given back, and once more when its client knows it.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parklock::{Error, Guard};
use tokio::time::{sleep, timeout};

use crate::settings::drawn_lease;
use crate::worker::desk::Seat;
use crate::worker::manner::unlocked;
use crate::worker::record::{self, Call, Claim, View};

/// How often a holder looks at its deadline while it works.
const LOOK: Duration = Duration::from_millis(60);

pub struct Held {
    claim: Claim,
    guard: Option<Guard>,
    seat: Arc<Seat>,
    fixed: bool,
}

impl Held {
    /// To be called right after the acquire returned.
    pub fn begin(call: &Call, guard: Guard, seat: &Arc<Seat>) -> Self {
        let claim = Claim::begin(call, &guard);
        Self { claim, guard: Some(guard), seat: Arc::clone(seat), fixed: call.lease.is_some() }
    }

    fn guard(&self) -> &Guard {
        self.guard.as_ref().expect("taken only at the end")
    }

    pub fn confirmed(&self) -> u64 {
        self.claim.confirmed
    }

    pub fn token(&self) -> u64 {
        self.guard().token().get()
    }

    pub fn is_valid(&self) -> bool {
        self.guard().is_valid()
    }

    /// The critical section.
    pub async fn work(&mut self, rng: &mut Rng) {
        let guard = self.guard.as_ref().expect("taken only at the end");
        critical_section(rng, &mut self.claim, guard).await;
        if self.fixed && !self.is_valid() {
            record::reached("a fixed lease ran out");
        }
        if rng.u32(..12) == 0 {
            self.extend(rng).await;
        }
    }

    /// Holds it for this long, if it is not lost before.
    pub async fn keep(&mut self, long: Duration) {
        let guard = self.guard.as_ref().expect("taken only at the end");
        stay(long, &mut self.claim, guard).await;
    }

    /// A nested hold has just confirmed it.
    pub fn was_confirmed(&mut self) {
        let guard = self.guard.as_ref().expect("taken only at the end");
        self.claim.renew_now(guard);
    }

    /// Never by more than a watched lease: then the deadline still tells when it was confirmed.
    async fn extend(&mut self, rng: &mut Rng) {
        let lease = drawn_lease(rng, 50);
        match self.guard().extend(lease).await {
            Ok(()) => record::reached("extended"),
            Err(error) => unlocked(&Err(error), &self.seat),
        }
        let guard = self.guard.as_ref().expect("taken only at the end");
        self.claim.renew(guard);
    }

    /// Gives it back in one way or the other.
    pub async fn end(mut self, rng: &mut Rng) {
        if rng.u32(..100) < 30 {
            return; // the drop does it
        }
        let was_valid = self.say_end();
        let Some(guard) = self.guard.take() else { return };
        if rng.u32(..100) < 12 {
            // Half of them are polled once and dropped: no server answers as soon as that.
            let patience = if rng.bool() { 0 } else { rng.u64(..2_000) };
            let unlocking = record::released(guard.unlock(), || self.claim.left());
            let cancelled = timeout(Duration::from_micros(patience), unlocking).await;
            if cancelled.is_err() {
                record::reached("unlock cancelled");
            }
            return;
        }
        let result = record::released(guard.unlock(), || self.claim.left()).await;
        unlocked(&result, &self.seat);
        if result.is_ok() && !self.seat.keeps {
            self.claim.given_back();
        }
        if matches!(result, Err(Error::Lost { .. })) && was_valid && self.seat.closed().is_none() {
            self.claim.unlock_said_lost();
        }
    }

    /// Whether it was valid to the end.
    fn say_end(&mut self) -> bool {
        let (closed, guard) = (self.seat.closed(), self.guard.as_ref());
        guard.is_some_and(|guard| self.claim.end(guard, closed))
    }

    /// Forgets the guard, and waits until it is lost.
    pub async fn forget(mut self) {
        let Some(guard) = self.guard.take() else { return };
        let lost = View::ended(&guard);
        std::mem::forget(guard);
        record::reached("guard forgotten");
        lost.await;
        self.claim.forgotten(self.seat.closed());
        self.claim.left();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.say_end();
        if let Some(guard) = self.guard.take() {
            drop(guard);
            self.claim.left();
        }
    }
}

/// Some work; mostly short, sometimes longer than any lease. It stops when the lock is lost.
pub async fn critical_section(rng: &mut Rng, claim: &mut Claim, view: &impl View) {
    let long = Duration::from_micros(match rng.u32(..100) {
        0..72 => rng.u64(..3_000),
        72..90 => rng.u64(3_000..25_000),
        90..98 => rng.u64(50_000..200_000),
        _ => rng.u64(300_000..2_000_000),
    });
    stay(long, claim, view).await;
}

/// So long, or until it is lost.
pub async fn stay(long: Duration, claim: &mut Claim, view: &impl View) {
    let (lost, mut left) = (view.ended(), long);
    tokio::pin!(lost);
    while !left.is_zero() {
        let some = left.min(LOOK);
        tokio::select! {
            _ = &mut lost => return record::reached("stopped by lost()"),
            () = sleep(some) => left -= some,
        }
        claim.renew(view);
    }
}
