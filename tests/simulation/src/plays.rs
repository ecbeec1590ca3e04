//! What the processes of each scene do, and what is demanded of it beyond the rules that always hold.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use parklock::{Owner, RedLock, Result, Woken};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::board::{self, Question};
use crate::caller::{Holding, Home, Manner, Wanted, heard};
use crate::clock::{self, MILLI, SECOND};
use crate::desk::{Desk, Seat};
use crate::held::Handle;
use crate::plan::{Kind, millis};
use crate::scene::{BUFFER_ENDS, BUFFER_FILLS, CROWD_DIES, Scene};
use crate::work::ALL;

/// How many callers wait among the dead, and how many places the dead have at most.
const CALLERS_IN_CROWD: u64 = 20;
const MOST_DEAD: u64 = 250;

/// A life of a process in a scene.
pub async fn play(scene: Scene, desk: Arc<Desk>) {
    let home = Arc::clone(&desk.home);
    let seat = desk.open().await;
    let rng = Rng::with_seed(home.setup().seed);
    let player = Player { home: Arc::clone(&home), seat, rng, desk: Arc::clone(&desk) };
    player.play(scene).await;
    desk.leave().await;
    board::with(|board| board.done.insert((home.process, home.life)));
}

struct Player {
    home: Arc<Home>,
    seat: Arc<Seat>,
    rng: Rng,
    desk: Arc<Desk>,
}

/// Until a moment of the world, by this process' own clock: in a scene, clocks do not drift.
async fn until(moment: u64) {
    sleep(Duration::from_nanos(moment.saturating_sub(clock::now()))).await;
}

impl Player {
    async fn play(self, scene: Scene) {
        let process = self.home.process;
        match scene {
            Scene::CloseBesideUnlocks => self.close_beside_unlocks().await,
            Scene::CloseBesideRenewals => self.close_beside_renewals().await,
            Scene::CloseBesideRequests => self.close_beside_requests().await,
            Scene::NestedDrops if process == 0 => self.nests_and_drops().await,
            Scene::NestedDrops => self.waits_for_the_dropped().await,
            Scene::DeafBehindDead => self.deaf_behind_dead().await,
            Scene::ShortVisitor => self.visits().await,
            Scene::SilentDelete => self.silent_delete().await,
            Scene::Stall | Scene::Restart => self.stands_in_line().await,
            Scene::ForgedGrant => self.waits_for_a_grant().await,
            Scene::TryLoop => self.tries().await,
            Scene::NestedMaxHold => self.nests_for_ever().await,
            Scene::JoinedWriters => self.joins().await,
            Scene::SetPermits => self.sets().await,
            Scene::LatePart => self.late_part().await,
            Scene::CutAttempts => self.attempts().await,
            Scene::DeletedHandOff => self.hands_on().await,
            Scene::LostCounts => self.counts_down().await,
            Scene::NestedCounts => self.nests_in_count().await,
            Scene::ShorterNested => self.nests_for_less().await,
            Scene::BusyNeighbour => self.takes_turns_beside().await,
            Scene::SquattedName => self.asks_beside_a_squatter().await,
            Scene::CancelledPlace => self.cancels_a_place().await,
            Scene::WriterBehindReaders => self.writes_behind_readers().await,
            Scene::LongReader => self.reads_for_long().await,
            Scene::ForgottenScripts => self.asks_without_scripts().await,
            Scene::MisledHolder => self.holds_until(8 * SECOND).await,
            Scene::LateHandOff => self.hands_on_late().await,
            Scene::PartOfMany => self.takes_parts().await,
            Scene::LostReleases => self.gives_back().await,
            Scene::TakenAway => self.takes_away().await,
            Scene::HandedToNobody => self.hands_to_nobody().await,
            Scene::BoundedBuffer | Scene::ShakenBuffer => self.fills_or_empties().await,
            Scene::LoneWaiter => self.waits_for_nothing().await,
            Scene::DeadCrowd => self.stands_among_the_dead().await,
            Scene::KilledLinks => self.takes_turns().await,
            Scene::Braces
            | Scene::LockTurn
            | Scene::Crowd
            | Scene::Replicas
            | Scene::Sentinel
            | Scene::Cluster
            | Scene::Sessions => {}
        }
    }

    /// A caller of the same process.
    fn beside(&self, seat: Arc<Seat>, rng: Rng) -> Self {
        Self { home: Arc::clone(&self.home), seat, rng, desk: Arc::clone(&self.desk) }
    }

    fn wanted(&self, name: usize) -> Wanted {
        let (named, client) = (&self.home.plan.names[name], &self.seat.client);
        let handle = match named.kind {
            Kind::Fair => Handle::Plain(client.fair_lock(&*named.text)),
            _ => Handle::Plain(client.lock(&*named.text)),
        };
        let id = board::with(|board| board.next_id());
        let (home, queued) = (&self.home, named.kind == Kind::Fair);
        Wanted {
            handle,
            names: vec![name],
            owner: format!("p{}.{}/{id}", home.process, home.life),
            lease: None,
            part: 1,
            of: 1,
            queued,
            within: None,
        }
    }

    async fn ask(&self, name: usize, manner: Manner) -> Option<Holding> {
        self.home.ask(&self.seat, &self.wanted(name), manner).await
    }

    /// Two of the processes put items into a buffer, and two take them out. Whatever happens to them, nobody sleeps for ever
    /// though there is an item for it.
    async fn fills_or_empties(mut self) {
        let fills = self.home.process.is_multiple_of(2);
        let end = if fills { BUFFER_FILLS } else { BUFFER_ENDS };
        while clock::now() < end {
            let pause = millis(self.rng.u64(..60));
            let left = Duration::from_nanos(end - clock::now());
            match timeout(left, self.fills_or_empties_once(fills, pause)).await {
                Ok(Ok(path)) => board::reached(path),
                Ok(Err(error)) => heard(&error),
                Err(_) => board::reached("buffer: waited to the end"),
            }
            sleep(pause).await;
        }
        let (left, taken) = board::with(|board| board.buffer.counts());
        if !fills && left > 0 {
            let what = format!("{left} are left, {taken} were taken");
            board::wrong("an item in the buffer, and nobody was woken", what);
        }
    }

    async fn fills_or_empties_once(&self, fills: bool, pause: Duration) -> Result<&'static str> {
        let client = &self.seat.client;
        let (full, empty) = (client.condition("not full"), client.condition("not empty"));
        let mut guard = client.lock("buffer").lock().await?;
        loop {
            let token = guard.token().get();
            let waits = board::with(|board| {
                if fills { board.buffer.is_full(token) } else { board.buffer.is_empty(token) }
            });
            match waits {
                Ok(false) => break,
                Ok(true) => guard = guard.wait(if fills { &full } else { &empty }).await?,
                Err(_) => return Ok("buffer: outdated"),
            }
        }
        // First tell, and then change: nobody looks before the lock is free.
        (if fills { &empty } else { &full }).notify_one().await?;
        sleep(pause / 10).await;
        let token = guard.token().get();
        let done =
            board::with(
                |board| {
                    if fills { board.buffer.put(token) } else { board.buffer.take(token) }
                },
            );
        match done {
            Ok(true) => {}
            Ok(false) => board::wrong("two are at the buffer", format!("with token {token}")),
            Err(_) => return Ok("buffer: outdated"),
        }
        guard.unlock().await?;
        Ok(if fills { "buffer: put" } else { "buffer: taken" })
    }

    /// A wait may end without a notification, but not while nothing happens.
    async fn waits_for_nothing(self) {
        let client = &self.seat.client;
        let waited = async {
            let guard = client.lock("one").lock().await?;
            guard.wait_for(&client.condition("nothing"), Duration::from_secs(10)).await
        };
        match waited.await {
            Ok((_, Woken::TimedOut)) => board::reached("condition: nobody was woken"),
            Ok((_, Woken::Notified)) => {
                board::wrong("a waiter was woken for nothing", "nobody notifies");
            }
            Err(error) => heard(&error),
        }
    }

    /// Holds the first so many names, asked for at once.
    async fn hold_all(&self, many: usize) -> Vec<Holding> {
        let asking = (0..many).map(|name| self.ask(name, Manner::Lock));
        join_all(asking).await.into_iter().flatten().collect()
    }

    async fn close_beside_unlocks(mut self) {
        let many = self.rng.usize(20..250);
        let (mut tasks, held) = (JoinSet::new(), self.hold_all(many).await);
        for holding in held {
            tasks.spawn(holding.unlock(u32::MAX));
        }
        self.moment().await;
        self.desk.leave().await;
        while tasks.join_next().await.is_some() {}
    }

    async fn close_beside_renewals(mut self) {
        let many = self.rng.usize(50..250);
        let held = self.hold_all(many).await;
        sleep(millis(self.rng.u64(150..1_200))).await;
        self.desk.leave().await;
        sleep(millis(5)).await;
        drop(held);
    }

    async fn close_beside_requests(mut self) {
        let all_go = self.rng.bool();
        let mut tasks = JoinSet::new();
        for name in 0..self.rng.usize(5..60) {
            let (home, seat, wanted) =
                (Arc::clone(&self.home), Arc::clone(&self.seat), self.wanted(name));
            let stays = !all_go && self.rng.bool();
            let manner = if stays { Manner::Lock } else { Manner::Cancelled(millis(1)) };
            tasks.spawn(async move {
                drop(home.ask(&seat, &wanted, manner).await);
            });
        }
        if all_go {
            sleep(millis(self.rng.u64(2..60))).await;
        } else {
            self.moment().await;
        }
        self.desk.leave().await;
        while tasks.join_next().await.is_some() {}
    }

    /// As long as it takes the others to send what they have to say; or some more.
    async fn moment(&mut self) {
        if self.rng.bool() {
            return sleep(millis(self.rng.u64(..6))).await;
        }
        for _ in 0..self.rng.u32(1..5) {
            tokio::task::yield_now().await;
        }
    }

    /// A thousand nested guards a second, and now and then a guard of another lock: all are dropped.
    async fn nests_and_drops(self) {
        let lock = self.seat.client.reentrant_lock("nested").owned_by(&Owner::new());
        let Ok(outer) = lock.lock().await else { return };
        let mut tick = tokio::time::interval(millis(2));
        let mut turn = 0;
        while clock::now() < 8 * SECOND {
            tick.tick().await;
            drop(join_all((0..6).map(|_| lock.lock())).await);
            turn += 1;
            if turn % 250 == 0 {
                drop(self.ask(1, Manner::Lock).await);
            }
        }
        drop(outer);
    }

    /// Whoever asks for a lock whose guard was dropped gets it soon.
    async fn waits_for_the_dropped(self) {
        until(600 * MILLI).await;
        while clock::now() < 8 * SECOND {
            let started = clock::now();
            drop(self.ask(1, Manner::Lock).await);
            let took = clock::now() - started;
            if took > 700 * MILLI {
                let what = format!("it was {} ms late", took / MILLI);
                board::wrong("a dropped guard's lock is not free", what);
            }
            sleep(millis(300)).await;
        }
    }

    /// The first holds, the second stands in line and dies, and the third comes when nobody may subscribe.
    async fn deaf_behind_dead(self) {
        match self.home.process {
            0 => {
                let held = self.ask(0, Manner::Lock).await;
                until(3 * SECOND).await;
                drop(held);
            }
            1 => {
                until(500 * MILLI).await;
                drop(self.ask(0, Manner::Lock).await);
            }
            _ => {
                until(2_500 * MILLI).await;
                let got = self.ask(0, Manner::TryFor(Duration::from_secs(6))).await;
                if got.is_none() || clock::now() > 4_500 * MILLI {
                    let what = format!(
                        "free since 3 s, and had at {:.3} s: {}",
                        clock::now() as f64 / 1e9,
                        got.is_some()
                    );
                    board::wrong("asleep beside room", what);
                }
            }
        }
    }

    /// The first holds all there is. The second has hundreds of places and dies. The callers of the third have their turns all
    /// the same, when the dead have cost a grant and one `waiter_ttl`.
    async fn stands_among_the_dead(self) {
        let released = CROWD_DIES + self.home.plan.seed % 1_300 * MILLI;
        match (self.home.process, self.home.life) {
            (0, _) => {
                let wanted = match self.home.plan.names[0].kind {
                    Kind::Permits(of) => self.permits(of),
                    Kind::Rw => self.writing(),
                    _ => self.wanted(0),
                };
                let held = self.home.ask(&self.seat, &wanted, Manner::Lock).await;
                until(released).await;
                drop(held);
            }
            (1, 1) => self.dies_with_a_crowd().await,
            (1, _) => {}
            _ => self.waits_in_a_crowd(released).await,
        }
    }

    /// In the line of a fair lock and of a semaphore, each caller has a place. In the others a client has one, so that each caller
    /// needs a client of its own.
    async fn dies_with_a_crowd(mut self) {
        let shares = matches!(self.home.plan.names[0].kind, Kind::Lock | Kind::Rw);
        let dice: Vec<_> = (0..self.rng.u64(70..MOST_DEAD)).map(|_| self.rng.fork()).collect();
        join_all(dice.into_iter().map(async |rng| {
            let seat = if shares { self.desk.open().await } else { Arc::clone(&self.seat) };
            let mut caller = self.beside(seat, rng);
            until(400 * MILLI + caller.rng.u64(..1_600) * MILLI).await;
            drop(caller.ask_in_crowd().await);
        }))
        .await;
    }

    /// The server may have granted the lock to a client that had just died. That grant ends with the client's last sign of life. Then
    /// the next sign of a living client asks the dead, and the first one after a `waiter_ttl` removes them: a client shows three in that
    /// time. Messages take the rest: a turn takes two, and a call that goes on through the line does too.
    async fn waits_in_a_crowd(mut self, released: u64) {
        let (longest, way) =
            (self.home.plan.longest(|client| client.claim), self.home.setup().way.1);
        let messages = 2 * (CALLERS_IN_CROWD + MOST_DEAD / 60 + 4);
        let bound = released + 2 * longest + 2 * (longest / 3) + messages * way;
        let dice: Vec<_> = (0..CALLERS_IN_CROWD).map(|_| self.rng.fork()).collect();
        join_all(dice.into_iter().map(async |rng| {
            let mut caller = self.beside(Arc::clone(&self.seat), rng);
            until(1_600 * MILLI + caller.rng.u64(..400) * MILLI).await;
            let held = caller.ask_in_crowd().await;
            if clock::now() > bound {
                let late = (clock::now() - bound) / MILLI;
                board::wrong("asleep behind the dead", format!("it was {late} ms late"));
            }
            drop(held);
        }))
        .await;
    }

    async fn ask_in_crowd(&mut self) -> Option<Holding> {
        let wanted = match self.home.plan.names[0].kind {
            Kind::Permits(_) => {
                let part = self.rng.u32(1..=4);
                self.permits(part)
            }
            Kind::Rw if self.home.plan.seed.is_multiple_of(2) => self.reading(),
            Kind::Rw => self.writing(),
            _ => self.wanted(0),
        };
        self.home.ask(&self.seat, &wanted, Manner::Lock).await
    }

    async fn visits(self) {
        match self.home.process {
            0 => {
                let held = self.ask(0, Manner::Lock).await;
                until(2 * SECOND).await;
                drop(held);
            }
            1 => {
                until(500 * MILLI).await;
                drop(self.ask(0, Manner::Lock).await);
            }
            _ => {
                until(SECOND).await;
                drop(self.ask(0, Manner::TryFor(millis(50))).await);
                until(12 * SECOND).await;
            }
        }
    }

    /// Who holds learns of it with its next renewal, a third of its lease later; then the others must be let in.
    async fn silent_delete(self) {
        let deleted = self.home.plan.faults.first().map_or(0, |fault| fault.at);
        if self.home.process == 0 {
            let held = self.ask(0, Manner::Lock).await;
            until(10 * SECOND).await;
            return drop(held);
        }
        until(SECOND).await;
        let got = self.ask(0, Manner::Lock).await;
        let (late, limit) = (clock::now().saturating_sub(deleted), SECOND + 500 * MILLI);
        if self.home.process == 1 && late > limit {
            let what = format!("let in {} ms after it was deleted", late / MILLI);
            board::wrong("the waiters are not told of a loss", what);
        }
        drop(got);
    }

    /// Callers of all clients, one after the other.
    async fn stands_in_line(self) {
        if self.home.process == 0 {
            let held = self.ask(0, Manner::Lock).await;
            until(5 * SECOND).await;
            return drop(held);
        }
        let mut tasks = JoinSet::new();
        for caller in 0..3 {
            let (home, seat, wanted) =
                (Arc::clone(&self.home), Arc::clone(&self.seat), self.wanted(0));
            let at = 100 * MILLI + (caller * 3 + home.process as u64) * 80 * MILLI;
            tasks.spawn(async move {
                until(at).await;
                let held = home.ask(&seat, &wanted, Manner::Lock).await;
                sleep(millis(20)).await;
                drop(held);
            });
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn waits_for_a_grant(self) {
        if self.home.process == 0 {
            let held = self.ask(0, Manner::Lock).await;
            until(8 * SECOND).await;
            return drop(held);
        }
        until(800 * MILLI).await;
        let held = self.ask(0, Manner::Lock).await;
        sleep(millis(500)).await;
        drop(held);
    }

    async fn tries(mut self) {
        until(6 * SECOND).await;
        for _ in 0..100 {
            drop(self.ask(0, Manner::Try).await);
            sleep(Duration::from_micros(self.rng.u64(..300))).await;
        }
    }

    /// A holder that nests is renewed no longer than one that does not.
    async fn nests_for_ever(self) {
        let lock = self.seat.client.reentrant_lock("one").owned_by(&Owner::new());
        let Ok(outer) = lock.lock().await else { return };
        let limit = Instant::now() + Duration::from_millis(1_000 + 600 + 100);
        while Instant::now() < limit {
            drop(lock.try_lock().await);
            sleep(millis(100)).await;
        }
        if outer.is_valid() {
            board::wrong("max_hold does not end a holder", "it nests, and is valid");
        }
    }

    /// Two who ask to write are never inside together, wherever they are polled.
    async fn joins(self) {
        let lock = self.seat.client.rw_lock("book");
        let write = async |late: u64| {
            sleep(millis(late)).await;
            let wanted =
                Wanted { handle: Handle::Write(lock.clone()), queued: true, ..self.wanted(0) };
            let held =
                self.home.ask(&self.seat, &wanted, Manner::TryFor(Duration::from_secs(1))).await;
            sleep(millis(100)).await;
            drop(held);
        };
        tokio::join!(write(0), write(50));
    }

    /// A number that was set holds for all, whatever they were made with.
    async fn sets(self) {
        let berths = self.seat.client.semaphore("berths", 10);
        if self.home.process == 0 {
            let held = berths.acquire().await;
            until(SECOND).await;
            let set = berths.set_permits(20).await;
            until(6 * SECOND).await;
            return drop((held, set));
        }
        for at in [2, 3] {
            until(at * SECOND).await;
            match berths.acquire_many(if at == 2 { 1 } else { 12 }).await {
                Ok(guard) => drop(guard),
                Err(error) => board::wrong(
                    "a number of permits that was set does not hold",
                    format!("{error:?}"),
                ),
            }
        }
    }

    /// Two of three parts are somebody else's, one of them for three seconds.
    async fn late_part(self) {
        if self.home.process == 0 {
            let locks = ["a", "b", "c"].map(|name| self.seat.client.lock(name));
            let (one, other) = (locks[1].lock().await, locks[2].lock().await);
            until(3 * SECOND).await;
            drop(other);
            until(9 * SECOND).await;
            return drop(one);
        }
        // Each part is of a server, and so of a client, of its own.
        let seats = [Arc::clone(&self.seat), self.desk.open().await, self.desk.open().await];
        let named = |(seat, name): (&Arc<Seat>, &str)| seat.client.lock(name);
        let locks: Vec<_> = seats.iter().zip(["a", "b", "c"]).map(named).collect();
        until(500 * MILLI).await;
        let Ok(guard) = RedLock::new(locks).lease(Duration::from_secs(6)).lock().await else {
            return;
        };
        let (now, left) = (clock::now(), guard.remaining());
        if now > 4 * SECOND || left < Duration::from_secs(2) {
            let what = format!("free since 3 s, had at {:.3} s for {left:?}", now as f64 / 1e9);
            board::wrong("a majority is taken late", what);
        }
        drop(guard);
        self.desk.close(&seats[0]).await;
        self.desk.close(&seats[1]).await;
    }

    /// Every holder lives and gives back, so nobody waits for a lease to end.
    async fn takes_turns(self) {
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let player = self.beside(Arc::clone(&self.seat), Rng::with_seed(0));
            tasks.spawn(async move {
                while clock::now() < 8 * SECOND {
                    let started = clock::now();
                    let Some(held) = player.ask(0, Manner::Lock).await else { continue };
                    let took = clock::now() - started;
                    if took > 2 * SECOND {
                        let what = format!("{} ms, of a lease of 3 s", took / MILLI);
                        board::wrong("somebody waited for a lease to end", what);
                    }
                    sleep(millis(1)).await;
                    held.unlock(u32::MAX).await;
                }
            });
        }
        while tasks.join_next().await.is_some() {}
    }

    /// One attempt a second, whose answer is lost.
    async fn attempts(self) {
        for at in 1..10 {
            until(at * SECOND + 10 * MILLI).await;
            drop(self.ask(0, Manner::TryFor(millis(150))).await);
        }
    }

    /// The first of two gives back what Redis has lost; the second is to have it next.
    async fn hands_on(self) {
        let first = self.ask(0, Manner::Lock).await;
        let (home, seat, wanted) = (Arc::clone(&self.home), Arc::clone(&self.seat), self.wanted(0));
        let second =
            tokio::spawn(async move { drop(home.ask(&seat, &wanted, Manner::Lock).await) });
        sleep_until(
            Instant::now() + Duration::from_nanos((SECOND + MILLI).saturating_sub(clock::now())),
        )
        .await;
        if let Some(first) = first {
            first.unlock(u32::MAX).await;
        }
        let _ = second.await;
    }

    /// A count whose answer was lost is sent again, and counts once.
    async fn counts_down(self) {
        let latch = self.seat.client.count_down_latch("gate");
        let Ok(true) = latch.set(20).await else { return };
        for at in 1..10 {
            until(at * SECOND - 100 * MILLI).await;
            let Ok(Some(before)) = latch.count().await else { continue };
            until(at * SECOND + MILLI).await;
            let told = latch.count_down().await;
            let Ok(Some(left)) = latch.count().await else { continue };
            if left + 1 < before {
                let what = format!("{before}, then {left}; it said {told:?}");
                board::wrong("a count was counted twice", what);
            }
        }
        let _ = latch.delete().await;
    }

    /// Redis counts as many holds as there are.
    async fn nests_in_count(self) {
        let lock = self.seat.client.reentrant_lock("one").owned_by(&Owner::new());
        let mut guards = Vec::new();
        for change in [1, 1, 1, -1, -1, 1, 1, -1, -1] {
            if change > 0 {
                guards.extend(lock.lock().await.ok());
            } else {
                drop(guards.pop());
            }
            sleep(millis(300)).await;
            let (seat, holds) = (self.seat.id, guards.len() as u64);
            board::with(|board| board.questions.push(Question::Counted { seat, name: 0, holds }));
        }
    }

    /// The lease of the inner hold is short; the outer one's is kept all the same.
    async fn nests_for_less(self) {
        if self.home.process == 1 {
            until(500 * MILLI).await;
            return drop(self.ask(0, Manner::Lock).await);
        }
        let lock = self.seat.client.reentrant_lock("one").owned_by(&Owner::new());
        let lease = Some(Duration::from_secs(3));
        let outer = lock.clone().lease(Duration::from_secs(3));
        let wanted = Wanted { handle: Handle::Reentrant(outer), lease, ..self.wanted(0) };
        let held = self.home.ask(&self.seat, &wanted, Manner::Lock).await;
        let inner = lock.lease(millis(300)).lock().await;
        until(2_500 * MILLI).await;
        drop((inner, held));
    }

    /// Six callers of one client pass the lock among themselves; the one of the other has its turns.
    async fn takes_turns_beside(self) {
        let many = if self.home.process == 0 { 6 } else { 1 };
        let callers = (0..many).map(async |_| {
            while clock::now() < 6 * SECOND {
                let started = clock::now();
                let Some(held) = self.ask(0, Manner::Lock).await else { continue };
                let took = clock::now() - started;
                if took > SECOND {
                    let what = format!("it waited for {} ms", took / MILLI);
                    board::wrong("a client has no turn beside another", what);
                }
                sleep(millis(1)).await;
                held.unlock(u32::MAX).await;
            }
        });
        join_all(callers).await;
    }

    /// What is wrong with one lock is said of that one alone.
    async fn asks_beside_a_squatter(self) {
        for at in 0..40 {
            until(6 * SECOND + at * 100 * MILLI).await;
            // The first is on its way when the others ask, so that they travel together.
            let squatted = self.seat.client.lock("a");
            let (held, told, others) = tokio::join!(
                self.ask(3, Manner::Try),
                squatted.try_lock(),
                join_all([1, 2].map(|name| self.ask(name, Manner::Try))),
            );
            if let Ok(got) = told {
                board::wrong("a key of another type is no conflict", format!("{got:?}"));
            }
            drop((held, others));
        }
    }

    /// Who gives up leaves the queue at once, and who gives back lets the next one in at once.
    async fn cancels_a_place(self) {
        match self.home.process {
            0 => self.holds_until(2 * SECOND).await,
            1 => {
                until(500 * MILLI).await;
                drop(self.ask(0, Manner::Cancelled(millis(500))).await);
            }
            _ => {
                until(1_300 * MILLI).await;
                let held = self.ask(0, Manner::Lock).await;
                if clock::now() > 2_300 * MILLI {
                    let what = format!("free since 2 s, had at {:.3} s", clock::now() as f64 / 1e9);
                    board::wrong("the next in the queue is let in late", what);
                }
                drop(held);
            }
        }
    }

    fn reading(&self) -> Wanted {
        let lock = self.seat.client.rw_lock("book");
        Wanted { handle: Handle::Read(lock), queued: true, of: ALL, ..self.wanted(0) }
    }

    fn writing(&self) -> Wanted {
        let lock = self.seat.client.rw_lock("book");
        Wanted { handle: Handle::Write(lock), queued: true, part: ALL, of: ALL, ..self.wanted(0) }
    }

    async fn reads_or_writes(&self, wanted: Wanted, from: u64, to: u64) {
        until(from).await;
        let held = self.home.ask(&self.seat, &wanted, Manner::Lock).await;
        until(to).await;
        drop(held);
    }

    /// A reader that comes later stands behind the writer.
    async fn writes_behind_readers(self) {
        match self.home.process {
            0 => self.reads_or_writes(self.reading(), 0, 2 * SECOND).await,
            1 => {
                self.reads_or_writes(self.writing(), 500 * MILLI, 0).await;
                if clock::now() > 2_500 * MILLI {
                    let what = format!("it was let in at {:.3} s", clock::now() as f64 / 1e9);
                    board::wrong("readers pass a writer", what);
                }
            }
            _ => self.reads_or_writes(self.reading(), SECOND, 4 * SECOND).await,
        }
    }

    /// The first reads on when the second goes, and the third must not write.
    async fn reads_for_long(self) {
        match self.home.process {
            0 => self.reads_or_writes(self.reading(), 100 * MILLI, 4 * SECOND).await,
            1 => self.reads_or_writes(self.reading(), 200 * MILLI, 2 * SECOND).await,
            _ => self.reads_or_writes(self.writing(), SECOND, 5 * SECOND).await,
        }
    }

    /// Nobody notices that the scripts are sent again.
    async fn asks_without_scripts(self) {
        while clock::now() < 8 * SECOND {
            for name in [0, 1] {
                let held = self.ask(name, Manner::Lock).await;
                sleep(millis(20)).await;
                if let Some(held) = held {
                    held.unlock(u32::MAX).await;
                }
            }
            let held = self
                .home
                .ask(&self.seat, &Wanted { names: vec![2], ..self.writing() }, Manner::Lock)
                .await;
            sleep(millis(20)).await;
            drop(held);
        }
    }

    async fn holds_until(&self, moment: u64) {
        let held = self.ask(0, Manner::Lock).await;
        until(moment).await;
        drop(held);
    }

    /// The server does not answer, and the lease is almost over.
    async fn hands_on_late(self) {
        let held = self.ask(0, Manner::Lock).await;
        let next = async {
            until(300 * MILLI).await;
            drop(self.ask(0, Manner::Lock).await);
        };
        let first = async {
            until(2_400 * MILLI).await;
            drop(held);
        };
        tokio::join!(first, next);
    }

    fn permits(&self, part: u32) -> Wanted {
        let berths = self.seat.client.semaphore("berths", 10);
        let handle = Handle::Permits(berths, part);
        Wanted { handle, queued: true, part: part.into(), of: 10, ..self.wanted(0) }
    }

    /// What is given back is free, all of it.
    async fn takes_parts(self) {
        let (part, from, to) = match self.home.process {
            0 => (1, 0, 8 * SECOND),
            1 => (8, 200 * MILLI, 2 * SECOND),
            _ => (8, SECOND, 3 * SECOND),
        };
        until(from).await;
        let held = self.home.ask(&self.seat, &self.permits(part), Manner::Lock).await;
        if clock::now() > 2_500 * MILLI {
            let what = format!("free since 2 s, had at {:.3} s", clock::now() as f64 / 1e9);
            board::wrong("asleep beside room", what);
        }
        until(to).await;
        drop(held);
    }

    /// A request to give back that was lost is sent again: nobody waits for the lease.
    async fn gives_back(self) {
        for at in 1..10 {
            until(at * SECOND - 100 * MILLI).await;
            let held = self.ask(0, Manner::TryFor(millis(80))).await;
            if held.is_none() {
                board::wrong("a release that was lost is not sent again", "it is still held");
            }
            until(at * SECOND + MILLI).await;
            if let Some(held) = held {
                held.unlock(u32::MAX).await;
            }
        }
    }

    /// The holder of before learns of it, and does not go on beside the new one.
    async fn takes_away(self) {
        if self.home.process == 0 {
            return self.holds_until(8 * SECOND).await;
        }
        until(2_405 * MILLI).await;
        let held = self.ask(0, Manner::Lock).await;
        until(7 * SECOND).await;
        drop(held);
    }

    /// What was handed to somebody who has gone is given back at once.
    async fn hands_to_nobody(self) {
        if self.home.process == 0 {
            let held = self.ask(0, Manner::Lock).await;
            let goes = async {
                until(SECOND).await;
                drop(self.ask(0, Manner::Unpolled(Duration::from_secs(1), false)).await);
            };
            let gives_back = async {
                until(1_500 * MILLI).await;
                drop(held);
            };
            tokio::join!(goes, gives_back);
            return until(8 * SECOND).await;
        }
        until(2_500 * MILLI).await;
        let asked = clock::now();
        drop(self.ask(0, Manner::Lock).await);
        if clock::now() - asked > 300 * MILLI {
            let what = format!("free since 2 s, had at {:.3} s", clock::now() as f64 / 1e9);
            board::wrong("an idle tenure is given back late", what);
        }
    }
}
