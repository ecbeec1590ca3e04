//! What a task does with locks: everything that a program could, in random order.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parklock::{Ended, Error, Hold, Owner, RedLock, Woken};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::common::clock;
use crate::pulse::patiently;
use crate::settings::{
    BEHIND_JAVA, BUFFER, GRACE, HAUNTED, KEPT, LEASE, MAJORITY, SEVERAL, STUCK, TRIED, Topology,
    drawn_lease,
};
use crate::worker::buffer::Buffer;
use crate::worker::desk::{Desk, Seat};
use crate::worker::handle::Handle;
use crate::worker::hold::{Held, critical_section, stay};
use crate::worker::manner::{Manner, acquired, heard, unlocked};
use crate::worker::record::{self, Call, Claim, Leaving, Part, Question, State};
use crate::worker::{ON_PURPOSE, any_lock};

/// One step after the other, until told to stop.
pub async fn endless(worker: &str, desk: &Desk, seed: u64, stop: &CancellationToken) {
    let mut rng = Rng::with_seed(seed);
    while !stop.is_cancelled() {
        let Some(seat) = desk.seat() else { return };
        let step = Step { worker: worker.to_owned(), seat, rng: rng.fork() };
        let (name, taken) = step.take();
        if patiently(STUCK, taken).await.is_none() {
            record::violation(&format!("{name}: took longer than anybody should ever wait"));
        }
        sleep(Duration::from_micros(rng.u64(..25_000))).await;
    }
}

/// Keeps one lock all the time and haunts another, with a client of its own, which nobody closes meanwhile.
pub async fn keep(worker: &str, desk: &Desk, seed: u64, stop: &CancellationToken) {
    let mut rng = Rng::with_seed(seed);
    if desk.open(stop).await
        && let Some(seat) = desk.seat()
    {
        let mut step =
            || Step { worker: worker.to_owned(), seat: Arc::clone(&seat), rng: rng.fork() };
        let (keeper, ghost) = (step(), step());
        let both = async { tokio::join!(keeper.keeps_on(), ghost.haunts()) };
        let _ = stop.run_until_cancelled(both).await;
    }
    desk.close().await;
}

/// One thing that a task does.
struct Step {
    worker: String,
    seat: Arc<Seat>,
    rng: Rng,
}

impl Step {
    /// What it is called, and the step.
    fn take(mut self) -> (&'static str, BoxFuture<'static, ()>) {
        match self.rng.u32(..100) {
            0..14 => ("of_family", self.of_family().boxed()),
            14..19 => ("several", self.several().boxed()),
            19..21 => ("majority", self.majority().boxed()),
            // Redisson has no conditions, and to it a latch that is missing is open.
            21..27 if self.seat.topology == Topology::Redisson => {
                ("of_family", self.of_family().boxed())
            }
            21..23 => ("latch", self.latch().boxed()),
            23..27 => ("buffer", self.buffer().boxed()),
            27..45 => ("simple", self.simple().boxed()),
            45..47 => ("tries", self.tries().boxed()),
            47..55 => ("burst", self.burst().boxed()),
            55..72 => ("nested", self.nested().boxed()),
            72..80 => ("run", self.run().boxed()),
            80..86 => ("panics", self.panics().boxed()),
            86..90 => ("forgets", self.forgets().boxed()),
            90..95 => ("aborted", self.aborted().boxed()),
            95..97 => ("keeps", self.keeps().boxed()),
            _ => ("shared_owner", self.shared_owner().boxed()),
        }
    }

    fn handle(&mut self) -> Handle {
        let (name, client) = (any_lock(&mut self.rng), &self.seat.client);
        let fixed = self.rng.u32(..100) < 30;
        let lease = fixed.then(|| drawn_lease(&mut self.rng, 60));
        let reentrant = self.rng.u32(..100) < 35;
        Handle::new(client, name, reentrant, lease)
    }

    fn call(&self, handle: &Handle, owner: Option<String>) -> Call {
        let owner = owner.unwrap_or_else(|| format!("{}/{}", self.worker, record::next_id()));
        let Handle { name: lock, lease, share, .. } = *handle;
        Call::begin(lock, owner, lease, &self.seat, share)
    }

    async fn held(&self, call: &Call, handle: &Handle, manner: Manner) -> Option<Held> {
        let guard = acquired(handle, manner, slice::from_ref(call), &self.seat).await?;
        Some(Held::begin(call, guard, &self.seat))
    }

    /// Takes a lock, works, gives it back.
    async fn simple(mut self) {
        let (handle, manner) = (self.handle(), Manner::any(&mut self.rng));
        let call = self.call(&handle, handle.reentrant.then(task));
        let Some(mut held) = self.held(&call, &handle, manner).await else { return };
        held.work(&mut self.rng).await;
        held.end(&mut self.rng).await;
    }

    /// Tries again and again, also right after it has given the lock back. Nobody is ahead of it, so a refusal has a holder.
    async fn tries(mut self) {
        let handle = Handle::new(&self.seat.client, TRIED, false, None);
        for _ in 0..self.rng.usize(2..6) {
            let call = self.call(&handle, None);
            if let Some(held) = self.held(&call, &handle, Manner::Try).await {
                sleep(Duration::from_micros(self.rng.u64(..3_000))).await;
                held.end(&mut self.rng).await;
            } else {
                sleep(Duration::from_micros(self.rng.u64(..3_000))).await;
            }
        }
    }

    /// As `simple`, with what is not a plain lock.
    async fn of_family(mut self) {
        let fixed = self.rng.u32(..100) < 30;
        let lease = fixed.then(|| drawn_lease(&mut self.rng, 200));
        let handle = Handle::of_family(&self.seat.client, lease, &mut self.rng);
        if self.seat.topology == Topology::Redisson && handle.name == BEHIND_JAVA {
            return self.behind_java(handle).await;
        }
        if self.rng.u32(..5) == 0 {
            return self.runs(handle.into_one()).await;
        }
        let (call, manner) = (self.call(&handle, None), Manner::any(&mut self.rng));
        let Some(mut held) = self.held(&call, &handle, manner).await else { return };
        record::reached(&format!("family: {}", handle.name));
        held.work(&mut self.rng).await;
        held.end(&mut self.rng).await;
    }

    /// Nobody waits there without a limit. A refusal says nothing of the holders.
    async fn behind_java(mut self, handle: Handle) {
        let call = self.call(&handle, None);
        let manner = Manner::TryFor(Duration::from_millis(self.rng.u64(1..600)));
        let Some(guard) = acquired(&handle, manner, &[], &self.seat).await else { return };
        let mut held = Held::begin(&call, guard, &self.seat);
        record::reached("behind Java in a line");
        held.work(&mut self.rng).await;
        held.end(&mut self.rng).await;
    }

    /// Several locks at once, each of which others ask for alone.
    async fn several(mut self) {
        let mut names: Vec<_> =
            (0..self.rng.usize(2..4)).map(|_| any_lock(&mut self.rng)).collect();
        names.sort_unstable();
        names.dedup();
        let locks = self.seat.client.multi_lock(names.clone());
        // One guard, so one owner: what explains that one of them was lost explains it of all.
        let owner = self.several_owner();
        let call = |name: &&'static str| Call::begin(name, owner.clone(), None, &self.seat, (1, 1));
        let calls: Vec<_> = names.iter().map(call).collect();
        let manner = Manner::any(&mut self.rng);
        let asked = record::several(&names);
        let guard = acquired(&locks, manner, &calls, &self.seat).await;
        record::several_answered(asked);
        let Some(guard) = guard else { return };
        let acquired = clock::now();
        let begin = |(at, call): (usize, &Call)| Claim::begin_at(acquired, call, &Part(&guard, at));
        let mut claims: Vec<_> = calls.iter().enumerate().map(begin).collect();
        record::reached("several at once");
        pause_unless(guard.ended(), &mut self.rng).await;
        let (now, state) = (clock::now(), State::of(&Part(&guard, 0)));
        claims.iter_mut().for_each(|claim| claim.end_at(now, state, self.seat.closed()));
        let left = || claims.iter().for_each(Claim::left);
        if self.rng.bool() {
            unlocked(&record::released(guard.unlock(), left).await, &self.seat);
        } else {
            drop(guard);
            left();
        }
    }

    /// A lock on the majority of one server: it has no tokens, and of three parts it takes two.
    async fn majority(mut self) {
        let lock = RedLock::new([self.seat.client.lock(MAJORITY)]);
        let (call, manner) = (self.unhandled(MAJORITY, (2, 3)), Manner::any(&mut self.rng));
        let got = acquired(&lock, manner, slice::from_ref(&call), &self.seat).await;
        let Some(guard) = got else { return };
        let mut claim = Claim::begin(&call, &guard);
        record::reached("a majority");
        pause_unless(guard.ended(), &mut self.rng).await;
        claim.end(&guard, self.seat.closed());
        if self.rng.bool() {
            let unlocking = record::released(guard.unlock(), || claim.left());
            unlocked(&unlocking.await, &self.seat);
        } else {
            drop(guard);
            claim.left();
        }
    }

    /// Some count, one waits for all of them.
    async fn latch(mut self) {
        let name = format!("latch {}/{}", self.worker, record::next_id());
        let latch = self.seat.client.count_down_latch(name.clone()).lease(LEASE);
        let (count, begun) = (self.rng.u64(1..5), Arc::new(AtomicU64::new(0)));
        let seat = self.seat.id;
        let set = Question::begin(seat, &name, "set", &count.to_string());
        match latch.set(count).await {
            Ok(true) => set.answered("ok"),
            // An answer was lost, and the server that knew of it too.
            Ok(false) => return,
            Err(error) => return heard(&error, &self.seat),
        }
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let (latch, begun, name) = (latch.clone(), Arc::clone(&begun), name.clone());
            let (seat, pause) =
                (Arc::clone(&self.seat), Duration::from_micros(self.rng.u64(..50_000)));
            tasks.spawn(async move {
                sleep(pause).await;
                begun.fetch_add(1, Ordering::SeqCst);
                let counts = Question::begin(seat.id, &name, "count_down", "-");
                let counted = latch.count_down().await.inspect(|_| counts.answered("ok"));
                told(counted.map(|_| "latch: counted"), &seat);
            });
        }
        let waits = Question::begin(seat, &name, "wait", "-");
        let open = latch.wait_for(LEASE).await;
        if let Ok(open) = open {
            waits.answered(if open { "passed" } else { "shut" });
        }
        if matches!(open, Ok(true)) && begun.load(Ordering::SeqCst) < count {
            record::violation("a latch opened before all had counted");
        }
        told(
            open.map(|open| if open { "latch: open" } else { "latch: not open in time" }),
            &self.seat,
        );
        tasks.join_all().await;
    }

    /// Puts an item into a buffer, or takes one out, and waits for others if that cannot be done.
    async fn buffer(mut self) {
        match self.buffer_in_turn().await {
            Ok(path) => record::reached(path),
            Err(error) => heard(&error, &self.seat),
        }
    }

    async fn buffer_in_turn(&mut self) -> Result<&'static str, Error> {
        const OUTDATED: Result<&str, Error> = Ok("buffer: somebody else came between");
        let look = |token, fills| {
            let waits =
                |buffer: &mut Buffer| if fills { buffer.is_full() } else { buffer.is_empty() };
            Buffer::with(token, waits).expect("a file")
        };
        // A wait may end without a notification, so the limit is for all of them.
        let until = Instant::now() + STUCK / 3;
        let client = &self.seat.client;
        let (full, empty) = (client.condition("not full"), client.condition("not empty"));
        let mut call = self.unhandled(BUFFER, (1, 1));
        let mut guard = client.lock(BUFFER).lock().await?;
        let mut claim = Claim::begin(&call, &guard);
        let items = Buffer::with(guard.token().get(), |buffer| buffer.len()).expect("a file");
        // Mostly what can be done: others wait for the rest.
        let fills = self.rng.u32(..10) < if items.unwrap_or(0) < 2 { 7 } else { 3 };
        loop {
            match look(guard.token().get(), fills) {
                None => {
                    claim.end(&guard, self.seat.closed());
                    return OUTDATED;
                }
                Some(false) => break,
                Some(true) => {}
            }
            claim.end(&guard, self.seat.closed());
            let condition = if fills { &full } else { &empty };
            call = self.unhandled(BUFFER, (1, 1));
            let left = until.saturating_duration_since(Instant::now());
            let (again, woken) = guard.wait_for(condition, left).await?;
            record::reached(match woken {
                Woken::Notified => "buffer: notified",
                Woken::TimedOut => "buffer: not notified in time",
            });
            guard = again;
            claim = Claim::begin(&call, &guard);
            if woken == Woken::TimedOut {
                claim.end(&guard, self.seat.closed());
                return Ok("buffer: given up");
            }
        }
        // First tell, and then change: if this process is killed in between, nobody sleeps beside an item.
        let told = (if fills { &empty } else { &full }).notify_one().await;
        let done = match told {
            Ok(()) => {
                let change = |buffer: &mut Buffer| if fills { buffer.put() } else { buffer.take() };
                Buffer::with(guard.token().get(), change).expect("a file")
            }
            Err(_) => None,
        };
        claim.end(&guard, self.seat.closed());
        told?;
        match done {
            None => OUTDATED,
            Some(false) => {
                record::violation("two were at the buffer with one token");
                OUTDATED
            }
            Some(true) => {
                unlocked(&guard.unlock().await, &self.seat);
                Ok(if fills { "buffer: put" } else { "buffer: taken" })
            }
        }
    }

    /// A call without a handle; its answer tells nothing of when it was granted.
    fn unhandled(&self, lock: &'static str, share: (u32, u32)) -> Call {
        Call::begin(lock, self.several_owner(), None, &self.seat, share)
    }

    fn several_owner(&self) -> String {
        format!("{}/{SEVERAL}{}", self.worker, record::next_id())
    }

    /// Many ask for one lock at once, which goes from hand to hand.
    async fn burst(mut self) {
        let name = any_lock(&mut self.rng);
        let mut tasks = JoinSet::new();
        for _ in 0..self.rng.usize(4..32) {
            let (worker, seat) = (self.worker.clone(), Arc::clone(&self.seat));
            let mut step = Self { worker, seat, rng: self.rng.fork() };
            let handle = Handle::new(&self.seat.client, name, false, None);
            let work = Duration::from_micros(self.rng.u64(..1_500));
            tasks.spawn(async move {
                let call = step.call(&handle, None);
                let manner = Manner::any(&mut step.rng);
                let Some(held) = step.held(&call, &handle, manner).await else { return };
                sleep(work).await;
                held.end(&mut step.rng).await;
            });
        }
        tasks.join_all().await;
    }

    /// Takes a lock up to three times, and gives it back in any order.
    async fn nested(mut self) {
        let outer = self.handle();
        let outer = Handle::new(&self.seat.client, outer.name, true, outer.lease);
        let call = self.call(&outer, Some(task()));
        let Some(first) = self.held(&call, &outer, Manner::Lock).await else { return };
        let confirmed = first.confirmed();
        let mut holds = vec![first];
        for _ in 0..self.rng.usize(1..3) {
            holds[0].work(&mut self.rng).await;
            let lease = self.rng.bool().then_some(LEASE / 3);
            let inner = Handle::new(&self.seat.client, outer.name, true, lease);
            let call = Call { confirmed: Some(confirmed), ..self.call(&inner, Some(task())) };
            let manner = Manner::any(&mut self.rng);
            let outer = &mut holds[0];
            let Some(held) = self.nest(&call, &inner, manner, outer).await else { continue };
            holds.push(held);
        }
        while !holds.is_empty() {
            let any = self.rng.usize(..holds.len());
            holds.swap_remove(any).end(&mut self.rng).await;
        }
    }

    /// A hold within another: it is that one's, or the other was lost and this is a new one.
    async fn nest(
        &self,
        call: &Call,
        inner: &Handle,
        how: Manner,
        outer: &mut Held,
    ) -> Option<Held> {
        let guard = acquired(inner, how, slice::from_ref(call), &self.seat).await?;
        if guard.token().get() == outer.token() {
            record::reached("nested");
            // Its own deadline may have passed since it was last looked at, while the answer was on its way.
            outer.was_confirmed();
            return Some(Held::begin(call, guard, &self.seat));
        }
        if outer.is_valid() {
            record::violation(&format!("a nested hold of {} has another token", call.lock));
        }
        let call = Call { confirmed: None, ..call.clone() };
        Some(Held::begin(&call, guard, &self.seat))
    }

    /// Works in `run`.
    async fn run(mut self) {
        let handle = self.handle();
        let handle = Handle::new(&self.seat.client, handle.name, false, handle.lease);
        self.runs(handle).await;
    }

    async fn runs(mut self, handle: Handle) {
        let (call, seat) = (self.call(&handle, None), Arc::clone(&self.seat));
        let (mut rng, cancelled) = (self.rng.fork(), self.rng.u32(..4) == 0);
        let _leaving = Leaving::with(&call);
        let work = async move |hold: Hold| {
            let mut claim = Ending { claim: Claim::begin(&call, &hold), hold, seat };
            let Ending { claim, hold, .. } = &mut claim;
            critical_section(&mut rng, claim, hold).await;
        };
        let limit = Duration::from_millis(if cancelled { self.rng.u64(..100) } else { 60_000 });
        match timeout(limit, handle.run(work)).await {
            Ok(result) => ran(result, &self.seat),
            Err(_) => record::reached("run: cancelled"),
        }
    }

    /// Holds on, until it is lost; and again.
    async fn keeps_on(self) {
        let handle = Handle::new(&self.seat.client, KEPT, false, None);
        loop {
            let (call, seat) = (self.call(&handle, None), Arc::clone(&self.seat));
            let work = async move |hold: Hold| {
                let mut claim = Ending { claim: Claim::begin(&call, &hold), hold, seat };
                let Ending { claim, hold, .. } = &mut claim;
                stay(Duration::MAX, claim, hold).await;
            };
            ran(handle.run(work).await, &self.seat);
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Asks and is gone, and asks again: what the first request got must not keep the second one waiting.
    async fn haunts(mut self) {
        let handle = Handle::new(&self.seat.client, HAUNTED, false, None);
        loop {
            let call = self.call(&handle, None);
            drop(self.held(&call, &handle, Manner::Cancelled(Duration::ZERO)).await);
            drop(call);
            let call = self.call(&handle, None);
            if let Some(held) = self.held(&call, &handle, Manner::Lock).await {
                held.end(&mut self.rng).await;
                record::reached("asked again after a request was left alone");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Panics while it holds.
    async fn panics(mut self) {
        let handle = self.handle();
        let panicking = tokio::spawn(async move {
            let call = self.call(&handle, None);
            let Some(mut held) = self.held(&call, &handle, Manner::Lock).await else { return };
            held.work(&mut self.rng).await;
            record::reached("panic while holding");
            panic!("{ON_PURPOSE}");
        });
        let _ = panicking.await;
    }

    /// Forgets its guard: the fixed lease must end it.
    async fn forgets(mut self) {
        let lease = Some(Duration::from_millis(self.rng.u64(60..300)));
        let handle = Handle::new(&self.seat.client, any_lock(&mut self.rng), false, lease);
        let call = self.call(&handle, None);
        let Some(held) = self.held(&call, &handle, Manner::Lock).await else { return };
        held.forget().await;
    }

    /// Holds for so long that a server may come and go meanwhile, or the holder's connections.
    async fn keeps(mut self) {
        let handle = Handle::new(&self.seat.client, "still", false, None);
        let call = self.call(&handle, None);
        let (patience, most) = match self.seat.topology {
            Topology::Sessions => (GRACE, 6_000),
            _ => (LEASE, 2_500),
        };
        let manner = Manner::TryFor(patience);
        let Some(mut held) = self.held(&call, &handle, manner).await else { return };
        let long = Duration::from_millis(self.rng.u64(600..most));
        held.keep(long).await;
        held.end(&mut self.rng).await;
    }

    /// A task that is aborted wherever it happens to be.
    async fn aborted(mut self) {
        let after = Duration::from_micros(self.rng.u64(..60_000));
        let task = tokio::spawn(async move {
            match self.rng.bool() {
                true => Box::pin(self.simple()).await,
                false => Box::pin(self.nested()).await,
            }
        });
        sleep(after).await;
        task.abort();
        if task.await.is_err() {
            record::reached("task aborted");
        }
    }

    /// Two tasks that are one owner.
    async fn shared_owner(mut self) {
        let (name, owner) = (any_lock(&mut self.rng), Owner::new());
        let words = format!("{}/owner-{}", self.worker, record::next_id());
        let tasks = [(); 2].map(|()| {
            let (seat, mut rng) = (Arc::clone(&self.seat), self.rng.fork());
            let handle = Handle::new(&seat.client, name, true, None).owned_by(&owner);
            let call = self.call(&handle, Some(words.clone()));
            let step = Self { worker: self.worker.clone(), seat, rng: rng.fork() };
            tokio::spawn(async move {
                let Some(mut held) = step.held(&call, &handle, Manner::Lock).await else { return };
                held.work(&mut rng).await;
                held.end(&mut rng).await;
            })
        });
        for task in tasks {
            let _ = task.await;
        }
    }
}

/// Ends its claim before `run` gives the lock back, whatever ends the work.
struct Ending {
    claim: Claim,
    hold: Hold,
    seat: Arc<Seat>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.claim.end(&self.hold, self.seat.closed());
    }
}

fn ran(result: Result<(), Error>, seat: &Seat) {
    match result {
        Ok(()) => record::reached("run"),
        Err(Error::Lost { .. }) => record::reached("run: stopped by loss"),
        Err(error) => heard(&error, seat),
    }
}

/// A latch may go with its server.
fn told(result: Result<&str, Error>, seat: &Seat) {
    match result {
        Ok(path) => record::reached(path),
        Err(Error::Unset { .. }) => record::reached("latch: gone"),
        Err(error) => heard(&error, seat),
    }
}

async fn pause_unless(lost: impl Future<Output = Ended>, rng: &mut Rng) {
    let long = Duration::from_micros(rng.u64(..4_000));
    let _ = timeout(long, lost).await;
}

fn task() -> String {
    format!("task-{}-{}", std::process::id(), tokio::task::id())
}
