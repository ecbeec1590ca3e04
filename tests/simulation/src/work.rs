//! What a process does: its callers, each of which does everything that a program could, in random order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parklock::{CountDownLatch, Error, Hold, Owner};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::board::{self, Patience};
use crate::caller::{Asking, Holding, Home, Manner, Returning, Wanted, heard};
use crate::clock::{self, MILLI};
use crate::desk::{Desk, Seat};
use crate::held::{Handle, Held};
use crate::judge::Break;
use crate::plan::{Kind, Name, millis, nanos};
use crate::scene::Scene;

/// So many readers there never are.
pub const ALL: u64 = 1 << 20;

/// What the world tells a process to do.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    Replace,
    ForceUnlock { name: usize },
}

/// A life of a process, from its connecting to its closing.
pub async fn live(desk: Arc<Desk>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let (home, mut tasks) = (Arc::clone(&desk.home), JoinSet::new());
    desk.open().await;
    let mut rng = Rng::with_seed(home.setup().seed ^ home.life);
    for caller in 0..home.plan.callers {
        let caller = Caller { desk: Arc::clone(&desk), caller, rng: rng.fork() };
        tasks.spawn(caller.endless());
    }
    let obey = async {
        while let Some(order) = orders.recv().await {
            tokio::spawn(obey(Arc::clone(&desk), order));
        }
    };
    let all = async { while tasks.join_next().await.is_some() {} };
    tokio::select! {
        () = obey => {}
        () = all => {}
    }
    desk.leave().await;
    board::with(|board| board.done.insert((home.process, home.life)));
}

async fn obey(desk: Arc<Desk>, order: Order) {
    match order {
        Order::Replace => desk.replace().await,
        Order::ForceUnlock { name } => force_unlock(&desk, name).await,
    }
}

/// Takes a name away from its holders. Their claims are over when the answer comes.
async fn force_unlock(desk: &Desk, name: usize) {
    let Some(seat) = desk.seat() else { return };
    let (named, client) = (&desk.home.plan.names[name], &seat.client);
    let Name { text, kind, within } = named;
    if *within != desk.home.setup().within {
        return;
    }
    let mut takeover = Takeover { name: named.label(), from: clock::now(), is_answered: false };
    let answer = match kind {
        Kind::Lock => client.lock(text).force_unlock().await,
        Kind::Fenced => client.redisson().fenced_lock(text).force_unlock().await,
        Kind::Fair => client.fair_lock(text).force_unlock().await,
        Kind::Rw => client.rw_lock(text).force_unlock().await,
        Kind::Permits(of) => client.semaphore(text, *of).force_unlock().await,
        Kind::Expirable(of) => {
            client.redisson().expirable_semaphore(text, *of).force_unlock().await
        }
        Kind::Latch => return,
    };
    board::reached("force_unlock");
    match answer {
        Ok(_) => takeover.is_answered = true,
        Err(error) => heard(&error),
    }
}

/// A name is taken away from its holders. Without an answer, also because its process has crashed, the request may run later, as
/// long as its connection lives.
struct Takeover {
    name: String,
    from: u64,
    is_answered: bool,
}

impl Drop for Takeover {
    fn drop(&mut self) {
        let to = clock::now() + if self.is_answered { 0 } else { 10_000 * MILLI };
        let ends = Break::loose(Some(&self.name), self.from, to);
        board::with(|board| board.breaks.push(ends));
    }
}

struct Caller {
    desk: Arc<Desk>,
    caller: usize,
    rng: Rng,
}

impl Caller {
    async fn endless(mut self) {
        while clock::now() < self.desk.home.plan.length {
            if let Some(seat) = self.desk.seat() {
                let step = Step {
                    home: Arc::clone(&self.desk.home),
                    seat,
                    caller: self.caller,
                    rng: self.rng.fork(),
                };
                step.take().await;
            }
            let most = if self.desk.home.plan.bare { 5 } else { 30 };
            sleep(millis(self.rng.u64(..most))).await;
        }
    }
}

/// One thing that a caller does.
struct Step {
    home: Arc<Home>,
    seat: Arc<Seat>,
    caller: usize,
    rng: Rng,
}

impl Step {
    async fn take(mut self) {
        let names = self.home.plan.names_within(self.home.setup().within);
        let name = names[self.rng.usize(..names.len())];
        let kind = self.home.plan.names[name].kind;
        if self.home.plan.bare {
            return self.turn(name).await;
        }
        if self.home.plan.in_steps {
            return self.in_steps(name).await;
        }
        match (kind, self.rng.u32(..100)) {
            (Kind::Latch, _) => self.latch(name).await,
            (_, 0..12) => self.run(name).await,
            (_, 12..17) => self.forget(name).await,
            (_, 17..22) => self.aborted(name).await,
            (Kind::Lock, 22..40) => self.nested(name).await,
            (Kind::Lock, 40..50) => self.several().await,
            (Kind::Rw, 22..34) => self.downgrade(name).await,
            _ => self.simple(name).await,
        }
    }

    fn name(&self, name: usize) -> &str {
        &self.home.plan.names[name].text
    }

    fn owner(&self) -> String {
        let id = board::with(|board| board.next_id());
        format!("p{}.{}/{}-{id}", self.home.process, self.home.life, self.caller)
    }

    /// Something of this name, asked for in a way that no other call shares.
    fn wanted(&mut self, name: usize) -> Wanted {
        let Name { text, kind, .. } = self.home.plan.names[name].clone();
        let client = &self.seat.client;
        let part = |of: u32, rng: &mut Rng| rng.u32(1..=of);
        let (handle, part, of) = match kind {
            Kind::Lock | Kind::Latch if self.rng.u32(..3) == 0 => {
                let owner = Owner::new();
                (Handle::Reentrant(client.reentrant_lock(text).owned_by(&owner)), 1, 1)
            }
            Kind::Lock | Kind::Latch => (Handle::Plain(client.lock(text)), 1, 1),
            Kind::Fenced => (Handle::Plain(client.redisson().fenced_lock(text)), 1, 1),
            Kind::Fair => (Handle::Plain(client.fair_lock(text)), 1, 1),
            Kind::Rw => {
                let lock = client.rw_lock(text);
                match self.rng.u32(..3) {
                    0 => (Handle::Write(lock), ALL, ALL),
                    _ => (Handle::Read(lock), 1, ALL),
                }
            }
            Kind::Permits(of) => {
                let part = part(of, &mut self.rng);
                (Handle::Permits(client.semaphore(text, of), part), part.into(), of.into())
            }
            Kind::Expirable(of) => {
                let part = part(of, &mut self.rng);
                (
                    Handle::Permits(client.redisson().expirable_semaphore(text, of), part),
                    part.into(),
                    of.into(),
                )
            }
        };
        let lease = (self.rng.u32(..100) < 25).then(|| self.lease());
        let handle = match lease {
            Some(lease) => handle.leased(lease),
            None => handle,
        };
        let queued = !matches!(kind, Kind::Lock | Kind::Fenced);
        let (owner, names) = (self.owner(), vec![name]);
        Wanted { handle, names, owner, lease, part, of, queued, within: None }
    }

    /// Never longer than a watched one: then every deadline tells when Redis last confirmed it.
    fn lease(&mut self) -> Duration {
        let longest = self.home.setup().watchdog.as_millis() as u64;
        millis(self.rng.u64(60..=longest.max(61))).min(self.home.setup().watchdog)
    }

    async fn ask(&self, wanted: &Wanted, manner: Manner) -> Option<Holding> {
        self.home.ask(&self.seat, wanted, manner).await
    }

    /// As the prototype of this simulation did it: to compare how fast it is.
    async fn turn(mut self, name: usize) {
        let wanted = Wanted {
            handle: Handle::Plain(self.seat.client.lock(self.name(name))),
            names: vec![name],
            owner: self.owner(),
            lease: None,
            part: 1,
            of: 1,
            queued: false,
            within: None,
        };
        let Some(holding) = self.ask(&wanted, Manner::Lock).await else { return };
        sleep(millis(self.rng.u64(..=20))).await;
        holding.unlock(u32::MAX).await;
    }

    async fn simple(mut self, name: usize) {
        let (wanted, manner) = (self.wanted(name), Manner::any(&mut self.rng));
        let Some(holding) = self.ask(&wanted, manner).await else { return };
        self.work(&holding).await;
        self.end(holding).await;
    }

    /// Takes the lock, or waits for it, with the usual lease.
    async fn in_steps(mut self, name: usize) {
        let manner = match Manner::any(&mut self.rng) {
            Manner::Try => Manner::Lock,
            Manner::TryFor(limit) => Manner::TryFor(limit.max(millis(1))),
            manner => manner,
        };
        let Some(holding) = self.ask(&self.plain(name), manner).await else { return };
        let long = self.time();
        holding.stay(long).await;
        self.end(holding).await;
    }

    /// Some work; mostly short, sometimes longer than a lease. It stops when the lock is lost.
    async fn work(&mut self, holding: &Holding) {
        let long = self.time();
        holding.stay(long).await;
        if self.rng.u32(..12) == 0 {
            holding.extend(self.lease()).await;
        }
    }

    fn time(&mut self) -> Duration {
        millis(match self.rng.u32(..100) {
            0..60 => self.rng.u64(..4),
            60..85 => self.rng.u64(4..50),
            // Longer than a grace.
            85.. if self.home.plan.scene == Some(Scene::Sessions) => self.rng.u64(50..8_000),
            85..96 => self.rng.u64(50..400),
            _ => self.rng.u64(400..3_000),
        })
    }

    /// Gives it back in one way or the other.
    async fn end(&mut self, holding: Holding) {
        match self.rng.u32(..100) {
            0..35 => drop(holding),
            35..47 => holding.unlock(self.rng.u32(1..4)).await,
            _ => holding.unlock(u32::MAX).await,
        }
    }

    /// Takes a lock up to three times, and gives it back in any order.
    async fn nested(mut self, name: usize) {
        let (text, owner) = (self.name(name).to_owned(), Owner::new());
        let lock = || self.seat.client.reentrant_lock(text.as_str()).owned_by(&owner);
        let outer = Wanted {
            handle: Handle::Reentrant(lock()),
            lease: None,
            queued: false,
            ..self.plain(name)
        };
        let Some(first) = self.ask(&outer, Manner::Lock).await else { return };
        let mut grant = (first.view().token(), first.confirmed);
        let mut holds = vec![first];
        for _ in 0..self.rng.usize(1..3) {
            let long = self.time();
            holds[0].stay(long).await;
            let lock = self.seat.client.reentrant_lock(text.as_str()).owned_by(&owner);
            let inner =
                Wanted { handle: Handle::Reentrant(lock), within: Some(grant), ..outer.clone() };
            let manner = Manner::any(&mut self.rng);
            let Some(held) = self.ask(&inner, manner).await else { continue };
            if held.view().token() == grant.0 {
                board::reached("nested");
            } else if holds
                .iter()
                .any(|hold| hold.view().token() == grant.0 && hold.view().is_valid())
            {
                board::wrong(
                    "a nested hold has another token",
                    format!("{} of {text}", inner.owner),
                );
            }
            // If the outer hold was lost before, this is another grant.
            grant = (held.view().token(), held.confirmed);
            holds.push(held);
        }
        while !holds.is_empty() {
            let any = self.rng.usize(..holds.len());
            let hold = holds.swap_remove(any);
            self.end(hold).await;
        }
    }

    fn plain(&self, name: usize) -> Wanted {
        Wanted {
            handle: Handle::Plain(self.seat.client.lock(self.name(name))),
            names: vec![name],
            owner: self.owner(),
            lease: None,
            part: 1,
            of: 1,
            queued: false,
            within: None,
        }
    }

    /// Several locks at once, each of which others ask for alone.
    async fn several(mut self) {
        let mut all = self.home.plan.names_within(self.home.setup().within);
        all.retain(|name| self.home.plan.names[*name].kind == Kind::Lock);
        let mut names: Vec<usize> =
            (0..self.rng.usize(1..4)).map(|_| all[self.rng.usize(..all.len())]).collect();
        names.sort_unstable();
        names.dedup();
        let texts: Vec<&str> = names.iter().map(|name| self.name(*name)).collect();
        let handle = Handle::Several(self.seat.client.multi_lock(texts));
        let wanted = Wanted { handle, queued: true, names: names.clone(), ..self.plain(names[0]) };
        let manner = Manner::any(&mut self.rng);
        let Some(holding) = self.ask(&wanted, manner).await else { return };
        board::reached("several at once");
        let long = self.time();
        holding.stay(long).await;
        self.end(holding).await;
    }

    async fn run(mut self, name: usize) {
        let wanted = self.wanted(name);
        if matches!(wanted.handle, Handle::Permits(..)) && wanted.part != 1 {
            return self.simple(name).await;
        }
        let (home, long) = (Arc::clone(&self.home), self.time());
        let call = self.home.call(&self.seat, &wanted, Patience::Endless);
        let (inner, holder, asking) = (wanted.clone(), call.clone(), Asking::new(&call));
        let work = async move |hold: Hold| {
            drop(asking);
            let holding = home.hold(holder, inner, Held::View(hold));
            sleep(long).await;
            drop(holding);
        };
        let polls = if self.rng.u32(..4) == 0 { self.rng.u32(1..12) } else { u32::MAX };
        // The work ends before `run` has given the lock back.
        let _returning = Returning::new(&wanted.names);
        let running = Box::pin(wanted.handle.run(work));
        match (crate::caller::Polls { future: running, left: polls }).await {
            None => board::reached("run: cancelled"),
            Some(Ok(())) => board::reached("run"),
            Some(Err(error)) => {
                if matches!(error, Error::Lost { .. }) {
                    board::reached("run: stopped by loss");
                }
                self.home.failed(&call, Manner::Lock, &error);
            }
        }
    }

    /// Forgets its guard: the fixed lease must end it.
    async fn forget(mut self, name: usize) {
        let lease = millis(self.rng.u64(60..600)).min(self.home.setup().watchdog);
        let wanted = self.wanted(name);
        let wanted =
            Wanted { handle: wanted.handle.clone().leased(lease), lease: Some(lease), ..wanted };
        if let Some(holding) = self.ask(&wanted, Manner::Lock).await {
            holding.forget();
        }
    }

    /// A task that is aborted wherever it happens to be.
    async fn aborted(mut self, name: usize) {
        let after = self.time();
        let task = tokio::spawn(self.simple(name));
        sleep(after).await;
        task.abort();
        if task.await.is_err() {
            board::reached("task aborted");
        }
    }

    async fn downgrade(mut self, name: usize) {
        let lock = self.seat.client.rw_lock(self.name(name));
        let wanted = Wanted {
            handle: Handle::Write(lock.clone()),
            queued: true,
            part: ALL,
            of: ALL,
            ..self.plain(name)
        };
        let Some(holding) = self.ask(&wanted, Manner::Lock).await else { return };
        let long = self.time();
        holding.stay(long).await;
        let reading = Wanted { handle: Handle::Read(lock), part: 1, ..wanted };
        if let Some(reading) = self.home.downgrade(holding, reading).await {
            board::reached("downgraded");
            self.end(reading).await;
        }
    }

    /// Some count, and one waits for all of them.
    async fn latch(mut self, name: usize) {
        let text = format!("{}-{}", self.name(name), self.owner());
        let latch = self.seat.client.count_down_latch(text).lease(self.home.setup().watchdog);
        let since = clock::now();
        let count = self.rng.usize(1..4);
        match latch.set(count as u64).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return heard(&error),
        }
        let began = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            tasks.spawn(count_down(latch.clone(), Arc::clone(&began), self.time()));
        }
        let wanted = self.plain(name);
        let asking = Asking::new(&self.home.call(&self.seat, &wanted, Patience::None));
        let open = latch.wait_for(millis(2_000)).await;
        drop(asking);
        let (ended, early) = (clock::now(), began.load(Ordering::Relaxed) < count);
        let counted: Vec<u64> = tasks.join_all().await.into_iter().flatten().collect();
        let is_judged = counted.len() == count && board::with(|board| board.calm_since(since));
        if is_judged {
            board::with(|board| board.judged("latches"));
        }
        match open {
            Ok(true) => self.latch_opened(since, ended, early),
            Ok(false) if is_judged => self.latch_stayed_closed(ended, &counted),
            Ok(false) => board::reached("latch: not open in time"),
            Err(error) => heard(&error),
        }
    }

    /// Redisson takes a latch that is gone, with its server's data or its lease, for an open one.
    fn latch_opened(&self, since: u64, ended: u64, early: bool) {
        let is_kept = ended < since + nanos(self.home.setup().watchdog) / 2
            && board::with(|board| board.is_kept(since));
        if early && is_kept {
            board::wrong("a latch opened before all had counted", self.owner());
        }
        board::reached("latch: open");
    }

    /// All have counted in calm times, and their waiter was not told in time.
    fn latch_stayed_closed(&self, ended: u64, counted: &[u64]) {
        board::reached("latch: open too late");
        let last = counted.iter().copied().max().unwrap_or(0);
        let connecting = board::with(|board| board.connects_for);
        let bound = connecting + 10 * self.home.setup().way.1 + 350 * MILLI;
        if ended > last + bound {
            let what =
                format!("{}, {} ms after the last count", self.owner(), (ended - last) / MILLI);
            board::wrong("asleep at an open latch", what);
        }
    }
}

/// Counts after a while. When that was answered, if it was counted.
async fn count_down(
    latch: CountDownLatch,
    began: Arc<AtomicUsize>,
    pause: Duration,
) -> Option<u64> {
    sleep(pause).await;
    began.fetch_add(1, Ordering::Relaxed);
    match latch.count_down().await {
        Ok(_) => board::reached("latch: counted"),
        Err(error) => {
            heard(&error);
            return None;
        }
    }
    Some(clock::now())
}
