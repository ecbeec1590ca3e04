//! Slots that move, stand open, or are nobody's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parklock::{Client, Config, Ended, Error, FencingToken, Guard, HandOff, Layout};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::cluster::{is_clean, stand_in_line, two, valkey};
use crate::common::cluster::{names_in_one_slot, slot};
use crate::common::{Cluster, Server, eventually, judged, timeout};
use crate::scene::*;

/// Two nodes that have half of the slots each: enough for a slot to move.
async fn pair() -> Cluster {
    Cluster::start_as(2, 2, Server::builder).await
}

/// The lease of [`brisk`], and no park that ends by itself: only messages wake waiters.
fn told() -> Config {
    brisk().max_park(LONG).ride_out(LONG)
}

/// Where a name lies at the start, and where not.
fn ways(cluster: &Cluster, name: &str) -> (usize, usize) {
    (cluster.home(name), 1 - cluster.home(name))
}

/// F46: a slot has moved, and clients have heard nothing of it.
#[tokio::test]
async fn a_lock_is_followed_to_the_node_that_has_its_slot_now() {
    let cluster = pair().await;
    let (ours, theirs) = two(&cluster, patient()).await;
    let (name, (from, to)) = ("a", ways(&cluster, "a"));
    let guard = ours.lock(name).lock().await.expect("it is free");
    let waiter = waiting(theirs.lock(name));
    stand_in_line(&cluster.admin(from).await, name, 1).await;

    cluster.move_slot(slot(name), from, to).await;
    is_held_once(&cluster.admin(to).await, name).await;
    let first = guard.token();
    guard.unlock().await.expect("it is ours");
    // It is told over there. Its park is a minute.
    let next = granted(waiter).await;
    assert!(next.token() > first);
    next.unlock().await.expect("it is ours");

    // And back, in which case it is the map that is wrong again.
    cluster.move_slot(slot(name), to, from).await;
    for client in [&ours, &theirs] {
        let guard = soon(client.lock(name).lock()).await.expect("it is free");
        guard.unlock().await.expect("it is ours");
    }
    is_clean(&cluster).await;
}

/// 11: a waiter sleeps, and its slot moves. It listens over there without being woken, and is told of the release.
#[tokio::test]
async fn a_waiter_that_sleeps_listens_where_its_slot_is_now() {
    let cluster = pair().await;
    // It shows its next sign of life after ten seconds.
    let (ours, theirs) = two(&cluster, patient().waiter_ttl(LONG / 2)).await;
    let (name, (from, to)) = ("a", ways(&cluster, "a"));
    let guard = ours.lock(name).lock().await.expect("it is free");
    let waiter = waiting(theirs.lock(name));
    stand_in_line(&cluster.admin(from).await, name, 1).await;
    sleep(Duration::from_secs(1)).await;

    cluster.move_slot(slot(name), from, to).await;
    sleep(Duration::from_secs(1)).await;
    let before = cluster.command_calls("evalsha").await;
    sleep(Duration::from_secs(2)).await;
    let asked = cluster.command_calls("evalsha").await - before;
    assert!(asked <= 3, "{asked} requests of a waiter that listens");

    guard.unlock().await.expect("it is ours");
    let told = timeout(Duration::from_secs(2), waiter).await;
    let next = told.expect("it was told").expect("no panic").expect("the lock");
    next.unlock().await.expect("it is ours");
    is_clean(&cluster).await;
}

/// One hold of each kind: a lock, a fair lock, a reader, a writer, a permit.
async fn one_of_each(client: &Client, names: &[String]) -> Vec<Guard> {
    let [lock, fair, read, write, semaphore] = names else { panic!("five names") };
    vec![
        client.lock(lock).lock().await.expect("it is free"),
        client.fair_lock(fair).lock().await.expect("it is free"),
        client.rw_lock(read).read().await.expect("it is free"),
        client.rw_lock(write).write().await.expect("it is free").into_guard(),
        client.semaphore(semaphore, 1).acquire().await.expect("it is free"),
    ]
}

type Waiter = JoinHandle<Result<Guard, Error>>;

/// A caller that waits for each of them.
fn one_waiter_each(client: &Client, names: &[String]) -> Vec<Waiter> {
    let [lock, fair, read, write, semaphore] = names else { panic!("five names") };
    let (read, write) = (client.rw_lock(read), client.rw_lock(write));
    let semaphore = client.semaphore(semaphore, 1);
    vec![
        waiting(client.lock(lock)),
        waiting(client.fair_lock(fair)),
        tokio::spawn(async move { Ok(read.write().await?.into_guard()) }),
        tokio::spawn(async move { write.read().await }),
        tokio::spawn(async move { semaphore.acquire().await }),
    ]
}

/// F46: the keys of a slot move one by one, with holders and waiters of every kind on them.
#[tokio::test]
async fn a_slot_that_moves_key_by_key_loses_no_hold_and_wakes_its_waiters_over_there() {
    judged(async || {
        let cluster = pair().await;
        let (ours, theirs) = two(&cluster, told()).await;
        let names = names_in_one_slot("moving:", 5);
        let (from, to) = ways(&cluster, &names[0]);
        let guards = one_of_each(&ours, &names).await;
        let waiters = one_waiter_each(&theirs, &names);
        for name in &names {
            stand_in_line(&cluster.admin(from).await, name, 1).await;
        }

        let slot = slot(&names[0]);
        cluster.open(slot, from, to).await;
        let mut moved = 0;
        while cluster.move_keys(slot, from, to, 1).await > 0 {
            moved += 1;
            sleep(Duration::from_millis(200)).await;
        }
        assert!(moved >= 15, "{moved} keys: a lock, a line and notes for each");
        cluster.close(slot, from, to).await;

        all_go_on(guards, waiters).await;
        is_clean(&cluster).await;
    })
    .await;
}

/// No script was sent to the other node with `ASK`, or refused, because a slot was half-way.
async fn is_never_half_way(cluster: &Cluster) {
    for at in 0..cluster.nodes.len() {
        let admin = cluster.admin(at).await;
        for error in ["errorstat_ASK", "errorstat_TRYAGAIN"] {
            assert_eq!(admin.info("errorstats", error).await, None, "{error} of node {at}");
        }
    }
}

/// F46: Valkey moves a slot in one piece, with holders and waiters of every kind on it, and back.
#[tokio::test]
async fn a_slot_that_valkey_moves_in_one_piece_loses_no_hold_and_wakes_its_waiters_over_there() {
    let Some(program) = valkey() else { return };
    judged(async || {
        let cluster = Cluster::start_as(2, 2, || Server::builder().program(program.clone())).await;
        let (ours, theirs) = two(&cluster, told()).await;
        let names = names_in_one_slot("moving:", 5);
        let (mut here, mut there) = ways(&cluster, &names[0]);
        for _ in 0..2 {
            let guards = one_of_each(&ours, &names).await;
            let waiters = one_waiter_each(&theirs, &names);
            for name in &names {
                stand_in_line(&cluster.admin(here).await, name, 1).await;
            }
            cluster.migrate_slot(slot(&names[0]), here, there).await;
            all_go_on(guards, waiters).await;
            (here, there) = (there, here);
        }
        is_clean(&cluster).await;
        is_never_half_way(&cluster).await;
    })
    .await;
}

/// Callers of both clients that take turns with a lock of one kind, until it is over; how many turns each of them had. Nobody
/// else is inside meanwhile, nothing is lost, and everybody gets through.
fn turns(clients: [&Client; 2], kind: usize, name: &str, is_over: &Arc<AtomicBool>) -> Turns {
    let is_inside = Arc::<AtomicBool>::default();
    let caller = |client: &Client| {
        let (client, name) = (client.clone(), name.to_owned());
        let (is_inside, is_over) = (Arc::clone(&is_inside), Arc::clone(is_over));
        tokio::spawn(async move {
            let mut turns = 0;
            while !is_over.load(Ordering::Relaxed) {
                let taken = async {
                    match kind {
                        0 => client.lock(&name).lock().await,
                        1 => client.fair_lock(&name).lock().await,
                        2 => client.rw_lock(&name).write().await.map(|guard| guard.into_guard()),
                        _ => client.semaphore(&name, 1).acquire().await,
                    }
                };
                let guard = soon(taken).await.expect("it is free soon");
                assert!(!is_inside.swap(true, Ordering::Relaxed), "two hold {name}");
                sleep(Duration::from_millis(1)).await;
                assert!(guard.is_valid(), "{guard:?}");
                is_inside.store(false, Ordering::Relaxed);
                guard.unlock().await.expect("it was never lost");
                turns += 1;
            }
            turns
        })
    };
    clients.into_iter().cycle().take(4).map(caller).collect()
}

type Turns = Vec<JoinHandle<usize>>;

/// Valkey moves a quarter of all slots in one piece, and back, while callers of every kind take turns.
#[tokio::test]
async fn callers_take_turns_while_valkey_moves_a_quarter_of_all_slots_to_and_fro() {
    let Some(program) = valkey() else { return };
    let cluster = Cluster::start_as(2, 2, || Server::builder().program(program.clone())).await;
    // A grant by message lasts for a `waiter_ttl` until the watchdog confirms it, and the machine may be busy for so long.
    let config = patient().watchdog_timeout(LONG * 2).ride_out(LONG).waiter_ttl(LONG);
    let (ours, theirs) = two(&cluster, config).await;
    let is_over = Arc::<AtomicBool>::default();
    let quarter = 0..=4095;
    let names = cluster.names_at(0, "turn:", 40);
    let callers = names.iter().filter(|name| quarter.contains(&slot(name))).take(4).enumerate();
    let callers: Turns =
        callers.flat_map(|(kind, name)| turns([&ours, &theirs], kind, name, &is_over)).collect();
    let (mut here, mut there) = (0, 1);
    for _ in 0..8 {
        sleep(A_WHILE * 3).await;
        cluster.migrate_slots(quarter.clone(), here, there).await;
        (here, there) = (there, here);
    }
    sleep(A_WHILE * 3).await;
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        let turns = soon(caller).await.expect("it goes on");
        assert!(turns >= 8, "{turns} turns");
    }
    is_clean(&cluster).await;
    is_never_half_way(&cluster).await;
}

/// 5: an operator has left a slot half-way. The holders of every kind outlive that, and can give back what they hold.
#[tokio::test]
async fn a_slot_that_is_left_open_keeps_its_holders_and_lets_them_go() {
    judged(async || {
        let cluster = pair().await;
        let (ours, theirs) = two(&cluster, told()).await;
        let names = names_in_one_slot("open:", 16);
        let (from, to) = ways(&cluster, &names[0]);
        let slot = slot(&names[0]);
        // Of the first five, the locks stay and all else goes. Of the next five, the other way round. The others stay whole.
        let (free, names) = names.split_last().expect("sixteen names");
        let (stay, names_of_others) = names.split_at(5);
        let (go, whole) = names_of_others.split_at(5);
        let mut guards = one_of_each(&ours, stay).await;
        guards.extend(one_of_each(&ours, go).await);
        guards.extend(one_of_each(&ours, whole).await);
        let mut waiters = one_waiter_each(&theirs, stay);
        waiters.extend(one_waiter_each(&theirs, go));
        let others = one_waiter_each(&theirs, whole);
        let admin = cluster.admin(from).await;
        for name in names {
            stand_in_line(&admin, name, 1).await;
        }
        cluster.open(slot, from, to).await;
        for name in stay {
            cluster.move_key(&format!("lock_queue:{{{name}}}"), from, to).await;
            cluster.move_key(&format!("lock_notes:{{{name}}}"), from, to).await;
        }
        for name in go {
            cluster.move_key(&format!("lock:{{{name}}}"), from, to).await;
        }

        // Three leases long.
        let opened = Instant::now();
        while opened.elapsed() < Duration::from_secs(9) {
            assert!(guards.iter().all(Guard::is_valid), "lost after {:?}", opened.elapsed());
            sleep(A_WHILE).await;
        }
        for guard in &guards {
            is_renewed(guard).await;
        }
        is_unavailable(ours.lock(free).try_lock().await.map(drop), "TRYAGAIN");
        for guard in guards {
            soon(guard.unlock()).await.expect("it was never lost");
        }
        // Of what is whole, the next one may have it now.
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "nobody is let in half-way");
        waiters.extend(others);

        while cluster.move_keys(slot, from, to, 10).await > 0 {}
        cluster.close(slot, from, to).await;
        for waiter in waiters {
            granted(waiter).await.unlock().await.expect("it is ours");
        }
        is_clean(&cluster).await;
    })
    .await;
}

/// Somebody has deleted a hold, and another client has the lock. While its slot stands open, a script that has removed the last
/// waiter, which is dead, cannot say that nobody waits any more. The release of the lost hold has found nothing all the same.
#[tokio::test]
async fn an_unlock_in_an_open_slot_that_finds_no_hold_is_lost() {
    let cluster = pair().await;
    let ours = client(&cluster.url(), patient()).await;
    let plain = (ours.lock("a"), "a", "lock 1", ["HSET", "lock:{a}", "other:1", "1"].as_slice());
    let used = ["ZADD", "lock:{b}", "9999999999999", "other:1", "-4503599627370495", "#fair 1"];
    let fair = (ours.fair_lock("b"), "b", "fair 1", used.as_slice());
    for (lock, name, kind, others_hold) in [plain, fair] {
        let guard = lock.lock().await.expect("it is free");
        let (from, to) = ways(&cluster, name);
        let admin = cluster.admin(from).await;
        admin.cmd::<()>(&["DEL", &format!("lock:{{{name}}}")]).await;
        admin.cmd::<()>(others_hold).await;
        admin.cmd::<()>(&["ZADD", &format!("lock_queue:{{{name}}}"), "1", "dead:1"]).await;
        admin.cmd::<()>(&["HSET", &format!("lock_notes:{{{name}}}"), "kind", kind]).await;
        cluster.open(slot(name), from, to).await;
        let told = soon(guard.unlock()).await;
        assert!(matches!(told, Err(Error::Lost { .. })), "{kind}: {told:?}");
    }
}

/// A semaphore's only waiter gets its permits while the slot stands open. Then the line is gone, and the script that has let the
/// waiter in cannot look whether anybody stands in it. What the waiter holds is counted all the same.
#[tokio::test]
async fn permits_that_are_given_out_in_an_open_slot_are_counted() {
    judged(async || {
        let cluster = pair().await;
        let (ours, theirs) = two(&cluster, patient()).await;
        let (name, (from, to)) = ("a", ways(&cluster, "a"));
        let first = ours.semaphore(name, 3).acquire().await.expect("it is free");
        let others = theirs.semaphore(name, 3);
        let waiter = tokio::spawn(async move { others.acquire_many(3).await });
        stand_in_line(&cluster.admin(from).await, name, 1).await;

        cluster.open(slot(name), from, to).await;
        first.unlock().await.expect("it is ours");
        while cluster.move_keys(slot(name), from, to, 10).await > 0 {}
        cluster.close(slot(name), from, to).await;

        let second = granted(waiter).await;
        let third = soon(ours.semaphore(name, 3).try_acquire()).await.expect("it is answered");
        assert!(third.is_none(), "three of three are held, valid: {}", second.is_valid());
        second.unlock().await.expect("it is ours");
        is_clean(&cluster).await;
    })
    .await;
}

/// A permit of a semaphore ends while the slot stands open, and its line ends with it, since the only waiter is dead. The permit
/// is free all the same.
#[tokio::test]
async fn a_permit_that_is_given_back_in_an_open_slot_is_free() {
    let cluster = pair().await;
    let ours = client(&cluster.url(), patient()).await;
    let (name, (from, to)) = ("a", ways(&cluster, "a"));
    let semaphore = ours.semaphore(name, 2);
    let (first, second) = tokio::join!(semaphore.acquire(), semaphore.acquire());
    let (first, second) = (first.expect("it is free"), second.expect("it is free"));
    let admin = cluster.admin(from).await;
    admin.cmd::<()>(&["ZADD", &format!("lock_queue:{{{name}}}"), "1", "dead:1"]).await;
    admin.cmd::<()>(&["ZADD", &format!("lock:{{{name}}}"), "-2251799813685248", "#line"]).await;
    admin.cmd::<()>(&["HSET", &format!("lock_notes:{{{name}}}"), "kind", "semaphore 2"]).await;

    cluster.open(slot(name), from, to).await;
    soon(first.unlock()).await.expect("it is ours");
    while cluster.move_keys(slot(name), from, to, 10).await > 0 {}
    cluster.close(slot(name), from, to).await;

    let third = soon(semaphore.try_acquire()).await.expect("it is answered");
    let third = third.expect("one of two is held");
    second.unlock().await.expect("it is ours");
    third.unlock().await.expect("it is ours");
    is_clean(&cluster).await;
}

/// A client has handed a fair lock on in line, and its last holder unlocks while the slot stands open half-way. The lock is
/// released at once, and the callers that have had it leave the line as soon as that is possible.
#[tokio::test]
async fn callers_that_have_had_a_fair_lock_leave_the_line_of_an_open_slot() {
    let cluster = pair().await;
    let handed_on = HandOff { max_time: LONG, ..HandOff::default() };
    // A grant to a caller that has left would last for half a minute.
    let config = patient().waiter_ttl(LONG / 2).hand_off(handed_on);
    let (ours, theirs) = two(&cluster, config).await;
    let (name, (from, to)) = ("a", ways(&cluster, "a"));
    let admin = cluster.admin(from).await;
    let before = theirs.fair_lock(name).lock().await.expect("it is free");
    let mut row = Vec::new();
    for place in 1..=3 {
        row.push(waiting(ours.fair_lock(name)));
        stand_in_line(&admin, name, place).await;
    }
    let last = waiting(theirs.fair_lock(name));
    stand_in_line(&admin, name, 4).await;
    before.unlock().await.expect("it is ours");
    let mut callers = row.into_iter();
    let mut holder = granted(callers.next().expect("three callers")).await;
    for caller in callers {
        holder.unlock().await.expect("it is ours");
        holder = granted(caller).await;
    }

    cluster.open(slot(name), from, to).await;
    cluster.move_key(&format!("lock_queue:{{{name}}}"), from, to).await;
    cluster.move_key(&format!("lock_notes:{{{name}}}"), from, to).await;
    soon(holder.unlock()).await.expect("it is ours");
    while cluster.move_keys(slot(name), from, to, 10).await > 0 {}
    cluster.close(slot(name), from, to).await;

    let next = granted(last).await;
    let line = format!("lock_queue:{{{name}}}");
    let left: Vec<String> = cluster.admin(to).await.cmd(&["ZRANGE", &line, "0", "-1"]).await;
    assert_eq!(left, [""; 0], "they have had the lock");
    next.unlock().await.expect("it is ours");
    is_clean(&cluster).await;
}

/// The same in Redisson's layout: what one key says of a lock is renewed. A reader is kept by a key of its own, and Redisson's
/// scripts for it touch keys that they do not declare: none of them runs before the slot is closed.
#[tokio::test]
async fn in_redissons_layout_an_open_slot_keeps_what_lies_in_one_key() {
    judged(async || {
        let cluster = pair().await;
        let (ours, theirs) = two(&cluster, told().layout(Layout::Redisson)).await;
        let names = names_in_one_slot("shared:", 5);
        let [lock, fenced, fair, write, read] = &names[..] else { panic!("five names") };
        let (from, to) = ways(&cluster, lock);
        let guards = [
            ours.lock(lock).lock().await.expect("it is free"),
            ours.redisson().fenced_lock(fenced).lock().await.expect("it is free"),
            ours.fair_lock(fair).lock().await.expect("it is free"),
            ours.rw_lock(write).write().await.expect("it is free").into_guard(),
        ];
        let reader = ours.rw_lock(read).read().await.expect("it is free");
        let next = waiting(theirs.fair_lock(fair));
        let queue = format!("redisson_lock_queue:{{{fair}}}");
        let admin = cluster.admin(from).await;
        let stands = async || admin.cmd::<usize>(&["LLEN", &queue]).await == 1;
        eventually(SOON, "it stands in the queue", stands).await;
        cluster.open(slot(lock), from, to).await;
        cluster.move_key(&queue, from, to).await;

        // Three leases long.
        let opened = Instant::now();
        while opened.elapsed() < Duration::from_secs(9) {
            let lost: Vec<_> = guards.iter().filter(|guard| !guard.is_valid()).collect();
            assert!(lost.is_empty(), "lost after {:?}: {lost:?}", opened.elapsed());
            sleep(A_WHILE).await;
        }
        assert_eq!(soon(reader.ended()).await, Ended::Lost);
        while cluster.move_keys(slot(lock), from, to, 10).await > 0 {}
        cluster.close(slot(lock), from, to).await;
        for guard in guards {
            is_renewed(&guard).await;
            soon(guard.unlock()).await.expect("it was never lost");
        }
        granted(next).await.unlock().await.expect("it is ours");
        soon(ours.rw_lock(read).write()).await.expect("nobody reads").unlock().await.expect("ours");
    })
    .await;
}

/// 7: while a slot is open, nobody gets a lock in it. A waiter gets the lock once the slot is closed, and has not asked
/// all the time.
#[tokio::test]
async fn a_slot_that_stands_open_for_a_moment_is_waited_out() {
    let cluster = pair().await;
    let (ours, theirs) = two(&cluster, patient()).await;
    let (from, to) = ways(&cluster, "a");
    ours.lock("a").lock().await.expect("it is free").unlock().await.expect("it is ours");
    cluster.open(slot("a"), from, to).await;
    let before = cluster.command_calls("evalsha").await + rejected(&cluster).await;

    let lock = ours.lock("a");
    is_unavailable(soon(lock.try_lock()).await.map(drop), "TRYAGAIN");
    let waiter = waiting(theirs.lock("a"));
    sleep(Duration::from_secs(1)).await;
    assert!(!waiter.is_finished());
    let asked = cluster.command_calls("evalsha").await + rejected(&cluster).await - before;
    assert!((2..100).contains(&asked), "{asked} requests in a second");

    while cluster.move_keys(slot("a"), from, to, 10).await > 0 {}
    cluster.close(slot("a"), from, to).await;
    granted(waiter).await.unlock().await.expect("it is ours");
    is_clean(&cluster).await;
}

/// How many scripts were refused unrun.
async fn rejected(cluster: &Cluster) -> u64 {
    let mut all = 0;
    for at in 0..cluster.nodes.len() {
        let stat = cluster.admin(at).await.info("commandstats", "cmdstat_evalsha").await;
        let rejected = stat.as_deref().and_then(|stat| stat.split("rejected_calls=").nth(1));
        let rejected = rejected.and_then(|rest| rest.split(',').next());
        all += rejected.map_or(0, |count| count.parse().expect("a number"));
    }
    all
}

/// 3: a permission to ask is for the next command of a connection. So it is sent in one piece with the request that it is
/// for, however many others send on the same connection.
#[tokio::test]
async fn each_permission_to_ask_is_followed_by_its_own_request() {
    judged(async || {
        let cluster = pair().await;
        let client = client(&cluster.url(), patient()).await;
        let (from, to) = ways(&cluster, "a");
        // Of a lock that is nowhere, the target is asked whether it is held.
        cluster.open(slot("a"), from, to).await;
        let mut monitor =
            BufReader::new(TcpStream::connect(cluster.nodes[to].address()).await.unwrap());
        monitor.write_all(b"MONITOR\r\n").await.unwrap();
        let mut line = String::new();
        monitor.read_line(&mut line).await.unwrap();
        assert_eq!(line, "+OK\r\n");

        let elsewhere = cluster.names_at(to, "other:", 1).remove(0);
        let mut tasks = Vec::new();
        for number in 0..64 {
            let lock = client.lock(if number % 2 == 0 { "a" } else { &elsewhere });
            tasks.push(tokio::spawn(async move {
                for _ in 0..20 {
                    assert!(!lock.is_locked().await.expect("it is answered"));
                }
            }));
        }
        for task in tasks {
            soon(task).await.expect("no panic");
        }
        cluster.admin(to).await.cmd::<String>(&["ECHO", "that is all of it"]).await;

        let (mut asked, mut is_asking) = (0, None::<String>);
        loop {
            line.clear();
            monitor.read_line(&mut line).await.unwrap();
            if line.contains("that is all of it") {
                break;
            }
            // `+<time> [<database> <client>] "<command>" ..`; what a script does has no client.
            let from = line.split(['[', ']']).nth(1).expect("who").to_owned();
            if from.contains("lua") {
                continue;
            }
            if is_asking.as_ref() == Some(&from) {
                assert!(
                    line.to_lowercase().contains("\"evalsha\"") || line.contains("\"EVAL\""),
                    "{line}"
                );
                assert!(line.contains("lock:{a}"), "{line}");
                is_asking = None;
                asked += 1;
            }
            if line.contains("\"ASKING\"") {
                assert_eq!(is_asking, None);
                is_asking = Some(from);
            }
        }
        assert!(asked >= 600, "{asked} times");
        cluster.close(slot("a"), from, to).await;
    })
    .await;
}

/// 6, 14: a slot moves to and fro while clients use it. Nobody holds it twice, its tokens grow, and nothing is left.
#[tokio::test]
async fn tokens_grow_while_a_slot_moves_to_and_fro() {
    let cluster = pair().await;
    let moved = async |from, to| cluster.move_slot(slot("a"), from, to).await;
    tokens_grow_while_it_is(&cluster, moved).await;
}

/// The same for a slot that moves in one piece.
#[tokio::test]
async fn tokens_grow_while_valkey_moves_a_slot_in_one_piece_to_and_fro() {
    let Some(program) = valkey() else { return };
    let cluster = Cluster::start_as(2, 2, || Server::builder().program(program.clone())).await;
    let moved = async |from, to| cluster.migrate_slot(slot("a"), from, to).await;
    tokens_grow_while_it_is(&cluster, moved).await;
    is_never_half_way(&cluster).await;
}

/// Has the slot of a lock moved to and fro while two clients use the lock.
async fn tokens_grow_while_it_is(cluster: &Cluster, moved: impl AsyncFn(usize, usize)) {
    let (ours, theirs) = two(cluster, told()).await;
    let (from, to) = ways(cluster, "a");
    let is_over = Arc::new(AtomicBool::new(false));
    let turns = |client: Client| {
        let is_over = Arc::clone(&is_over);
        tokio::spawn(async move {
            let mut tokens = Vec::<FencingToken>::new();
            while !is_over.load(Ordering::Relaxed) {
                let guard = soon(client.lock("a").lock()).await.expect("it is free soon");
                tokens.push(guard.token());
                // On a busy machine, half a slot may move for longer than a lease. But no token is given twice.
                let told = guard.unlock().await;
                let lost = matches!(told, Err(Error::Indeterminate { .. } | Error::Lost { .. }));
                assert!(told.is_ok() || lost, "{told:?}");
            }
            tokens
        })
    };
    let (one, other) = (turns(ours.clone()), turns(theirs.clone()));
    let (mut here, mut there) = (from, to);
    for _ in 0..20 {
        moved(here, there).await;
        (here, there) = (there, here);
        sleep(Duration::from_millis(150)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let (one, other) = (soon(one).await.expect("no panic"), soon(other).await.expect("no panic"));
    assert!(one.len().min(other.len()) > 10, "{} and {} turns", one.len(), other.len());
    for tokens in [&one, &other] {
        assert!(tokens.is_sorted_by(|one, next| one < next));
    }
    assert!(one.iter().all(|token| !other.contains(token)), "no token is given twice");
    is_clean(cluster).await;
    let slot = slot("a").to_string();
    let counted: [usize; 2] = [
        cluster.admin(here).await.cmd(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).await,
        cluster.admin(there).await.cmd(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).await,
    ];
    assert_eq!(counted, [1, 0], "the counter has moved along, and nothing else is left");
}

/// F47: nobody serves the slot, for a while, and for longer than a lease.
#[tokio::test]
async fn a_slot_that_nobody_serves_is_unavailable_and_its_holder_loses_by_the_deadline() {
    judged(async || {
        let cluster = Cluster::start_as(1, 1, Server::builder).await;
        let hasty = client(&cluster.url(), brisk().ride_out(Duration::from_secs(1))).await;
        let patient = client(&cluster.url(), told()).await;
        let (admin, slot) = (cluster.admin(0).await, slot("a").to_string());
        let lock = hasty.lock("a");
        let guard = patient.lock("a").lock().await.expect("it is free");

        // Not served for less than a lease: nothing is lost.
        let before = deadline(&guard);
        admin.cmd::<()>(&["CLUSTER", "DELSLOTS", &slot]).await;
        is_unavailable(soon(lock.try_lock()).await.map(drop), "CLUSTERDOWN");
        is_unavailable(soon(lock.lock()).await.map(drop), "CLUSTERDOWN");
        is_unavailable(soon(lock.is_locked()).await, "CLUSTERDOWN");
        admin.cmd::<()>(&["CLUSTER", "ADDSLOTS", &slot]).await;
        is_renewed(&guard).await;
        assert!(deadline(&guard) > before);
        is_held_once(&admin, "a").await;

        // For longer: lost by the deadline, whatever the node still has.
        admin.cmd::<()>(&["CLUSTER", "DELSLOTS", &slot]).await;
        assert_eq!(soon(guard.ended()).await, Ended::Lost);
        assert!(!guard.is_valid());
        assert_err!(soon(guard.unlock()).await, Error::Lost { .. });
        let waiter = waiting(patient.lock("a"));
        admin.cmd::<()>(&["CLUSTER", "ADDSLOTS", &slot]).await;
        granted(waiter).await.unlock().await.expect("it is ours");
    })
    .await;
}

/// 8: many find out at once that their slots have gone. The map is asked for now and then, not by each of them.
#[tokio::test]
async fn a_thousand_wrong_ways_do_not_ask_for_a_thousand_maps() {
    judged(async || {
        let cluster = pair().await;
        let client = client(&cluster.url(), patient()).await;
        let names = cluster.names_at(0, "storm:", 500);
        let turn = async |name: &String| {
            let guard = client.lock(name).lock().await.expect("it is free soon");
            guard.unlock().await.expect("it is ours");
        };
        futures_util::future::join_all(names.iter().map(turn)).await;
        // The slots of all names are given away. Their keys, the counters, stay behind.
        cluster.admin(0).await.cmd::<()>(&["FLUSHALL"]).await;
        let mut slots: Vec<_> = names.iter().map(|name| slot(name).to_string()).collect();
        slots.sort();
        slots.dedup();
        for slot in &slots {
            for at in [1, 0] {
                let words = ["CLUSTER", "SETSLOT", slot, "NODE", &cluster.ids[1]];
                cluster.admin(at).await.cmd::<()>(&words).await;
            }
        }
        let (before, started) = (maps(&cluster).await, Instant::now());
        soon(futures_util::future::join_all(names.iter().map(turn))).await;
        let (asked, took) = (maps(&cluster).await - before, started.elapsed().as_secs_f64());
        assert!(asked as f64 <= 6.0 + took * 6.0, "{asked} maps in {took} s");
        assert_eq!(cluster.lock_keys().await, Vec::<String>::new());
        let there = async || cluster.admin(1).await.keys().await.len() == slots.len();
        eventually(SOON, "each slot has its counter over there", there).await;
    })
    .await;
}

/// 8: nobody has the slots that many ask for again and again.
#[tokio::test]
async fn slots_that_nobody_serves_do_not_ask_for_a_map_each() {
    judged(async || {
        let cluster = Cluster::start_as(1, 1, Server::builder).await;
        let client = client(&cluster.url(), patient()).await;
        let names: Vec<_> = (0..100).map(|number| format!("nobody:{number}")).collect();
        let mut slots: Vec<_> = names.iter().map(|name| slot(name).to_string()).collect();
        slots.sort();
        slots.dedup();
        let admin = cluster.admin(0).await;
        let all = |word: &'static str| -> Vec<&str> {
            ["CLUSTER", word].into_iter().chain(slots.iter().map(String::as_str)).collect()
        };
        admin.cmd::<()>(&all("DELSLOTS")).await;
        let waiters: Vec<_> = names.iter().map(|name| waiting(client.lock(name))).collect();
        let (before, started) = (maps(&cluster).await, Instant::now());
        sleep(Duration::from_secs(3)).await;
        let (asked, took) = (maps(&cluster).await - before, started.elapsed().as_secs_f64());
        assert!(asked >= 3 && asked as f64 <= 2.0 + took * 6.0, "{asked} maps in {took} s");
        admin.cmd::<()>(&all("ADDSLOTS")).await;
        for waiter in waiters {
            granted(waiter).await.unlock().await.expect("it is ours");
        }
    })
    .await;
}

/// 8: a node has a wrong map, and tells it to everybody who asks. Here an operator names the wrong node there again and
/// again, since its neighbours would tell it better. The node that the client asks for the lock overrules that node.
#[tokio::test]
async fn a_node_that_tells_a_wrong_map_is_overruled() {
    judged(async || {
        let cluster = Cluster::start().await;
        let name = cluster.names_at(0, "lied:", 1).remove(0);
        let told = async {
            // They know no other node at first.
            let url = cluster.url_of(1);
            let (ours, theirs) = tokio::join!(client(&url, told()), client(&url, told()));
            let (maps_before, started) = (maps(&cluster).await, Instant::now());
            for _ in 0..20 {
                let guard = soon(ours.lock(&name).lock()).await.expect("it is free");
                let waiter = waiting(theirs.lock(&name));
                sleep(A_WHILE).await;
                assert!(!waiter.is_finished(), "two hold it");
                guard.unlock().await.expect("it is ours");
                granted(waiter).await.unlock().await.expect("it is ours");
            }
            let held = ours.lock(&name).lock().await.expect("it is free");
            is_renewed(&held).await;
            held.unlock().await.expect("it was never lost");
            let (asked, took) =
                (maps(&cluster).await - maps_before, started.elapsed().as_secs_f64());
            // At most five a second for each of the two. Version 6 counts the lies with them.
            assert!(
                is_version_6() || asked as f64 <= 12.0 + took * 10.0,
                "{asked} maps in {took} s"
            );

            // Whoever was sent to the wrong node once knows better, until it hears the next lie.
            let before = misled(&cluster, 2).await;
            for _ in 0..500 {
                let guard = soon(ours.lock(&name).lock()).await.expect("it is free");
                guard.unlock().await.expect("it is ours");
            }
            let sent = misled(&cluster, 2).await - before;
            assert!(before > 0, "nobody believes the liar");
            assert!(sent < 150, "{sent} of 1000 requests were sent to the wrong node");
        };
        beside_lies(&cluster, &name, told).await;
        // The others have always known.
        is_clean(&cluster).await;
    })
    .await;
}

/// 8: the only node that a client is connected to tells that a dead node has the slot. No request for the lock is ever
/// answered, so none overrules it. But the client knows other nodes, and asks them.
#[tokio::test]
async fn a_node_that_names_a_dead_one_is_overruled() {
    let cluster = Cluster::start().await;
    let name = cluster.names_at(0, "lied:", 1).remove(0);
    cluster.nodes[2].kill();
    let told = async {
        let client = client(&cluster.url_of(1), told()).await;
        let connected = client.lock(&cluster.names_at(1, "lied:", 1)[0]).lock().await;
        connected.expect("it is free").unlock().await.expect("it is ours");
        let guard = soon(client.lock(&name).lock()).await.expect("it is free");
        guard.unlock().await.expect("it is ours");
    };
    beside_lies(&cluster, &name, told).await;
}

/// Does this while the second node tells again and again that the last one has the slot of this name.
async fn beside_lies(cluster: &Cluster, name: &str, told: impl Future<Output = ()>) {
    let slot = slot(name).to_string();
    // The last node has the greatest epoch.
    let (liar, lie) =
        (cluster.admin(1).await, ["CLUSTER", "SETSLOT", &slot, "NODE", &cluster.ids[2]]);
    liar.cmd::<()>(&lie).await;
    let lying = async {
        loop {
            sleep(Duration::from_millis(2)).await;
            liar.cmd::<()>(&lie).await;
        }
    };
    tokio::select! {
        () = lying => {}
        () = told => {}
    }
}

/// How many requests a node has sent elsewhere.
async fn misled(cluster: &Cluster, at: usize) -> u64 {
    let told = cluster.admin(at).await.info("errorstats", "errorstat_MOVED").await;
    let count = told.as_deref().and_then(|told| told.strip_prefix("count="));
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// How often the nodes were asked for a map. Version 6 counts all words about clusters together.
async fn maps(cluster: &Cluster) -> u64 {
    cluster.command_calls("cluster").await + cluster.command_calls("cluster|slots").await
}
