//! A user of Redis that may listen and publish on the channels of locks, and has no key: what it hears gives it nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use parklock::{Ended, Error, HandOff, Lock};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::common::{Admin, connect, eventually, timeout};
use crate::scene::*;

/// The greatest number that has the form of a grant's.
const GREATEST: u64 = (1 << 53) - 1;

/// How many owner fields beyond the one that it hears the listener tries.
const NEXT: u64 = 40;

/// Hears every grant by message, and publishes its proof again: for the same owner field, for the next ones, with other
/// numbers, in other channels.
struct Eve {
    grants: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Eve {
    async fn on(scene: &Scene, elsewhere: &'static str) -> Self {
        let rules = ["resetkeys", "resetchannels", "&lock_channel:*", "-@all"];
        let may = ["+psubscribe", "+publish", "+auth", "+hello", "+client"];
        let user = [&["ACL", "SETUSER", "eve", "on", ">pass"][..], &rules, &may].concat();
        scene.admin.cmd::<()>(&user).await;
        let url = scene.server.url().replace("redis://", "redis://eve:pass@");
        let mut mouth = connect(&url).await;
        let ears = redis::Client::open(url).expect("a URL");
        let mut ears = ears.get_async_pubsub().await.expect("it may connect");
        ears.psubscribe("lock_channel:*").await.expect("it may listen");
        let grants = Arc::new(AtomicUsize::new(0));
        let heard = Arc::clone(&grants);
        let task = tokio::spawn(async move {
            let mut messages = ears.into_on_message();
            let mut forged = Vec::new();
            loop {
                // Again and again: what was of no use a moment ago may be of use now.
                if let Ok(message) = timeout(Duration::from_millis(10), messages.next()).await {
                    let Some(message) = message else { return };
                    let channel = message.get_channel_name();
                    let text = message.get_payload::<String>().unwrap_or_default();
                    let client = channel.rsplit(':').next().unwrap_or_default();
                    let elsewhere = format!("lock_channel:{{{elsewhere}}}:{client}");
                    let is_grant = |word: &&str| word.contains('@') && !text.starts_with("eve ");
                    for word in text.split(' ').filter(is_grant) {
                        heard.fetch_add(1, Ordering::SeqCst);
                        let text = format!("eve {}", Self::forged(word).join(" "));
                        forged =
                            vec![(channel.to_owned(), text.clone()), (elsewhere.clone(), text)];
                    }
                }
                for (channel, text) in &forged {
                    let mut publish = redis::cmd("PUBLISH");
                    publish.arg(channel).arg(text);
                    _ = publish.query_async::<i64>(&mut mouth).await;
                }
            }
        });
        Self { grants, task }
    }

    /// What can be made of `<client>:<id>=<number>@<proof>` without knowing how the proof was made.
    fn forged(word: &str) -> Vec<String> {
        let (field, grant) = word.split_once('=').expect("a grant");
        let (client, id) = field.split_once(':').expect("an owner field");
        let (number, proof) = grant.split_once('@').expect("a proof");
        let (id, number): (u64, u64) =
            (id.parse().expect("an id"), number.parse().expect("a number"));
        let ids = (id..=id + NEXT).chain(id.checked_sub(1));
        let each = ids.flat_map(|id| [number, number + 1, GREATEST].map(|number| (id, number)));
        each.map(|(id, number)| format!("{client}:{id}={number}@{proof}")).collect()
    }

    fn has_heard(&self) -> usize {
        self.grants.load(Ordering::SeqCst)
    }
}

impl Drop for Eve {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// F44: the proof of one grant is no proof for the other callers of that client, and not for another number.
#[tokio::test]
async fn the_proof_of_a_grant_that_a_listener_hears_grants_no_other_caller_the_lock() {
    let scene = Scene::new().await;
    let eve = Eve::on(&scene, "b").await;
    let each_asks = HandOff { max_consecutive: 0, ..HandOff::default() };
    // None of them has to be heard of while it holds what a message granted.
    let config = patient().waiter_ttl(LONG / 4).hand_off(each_asks);
    let (ours, theirs) = (scene.client(config).await, scene.other().await);
    let held = theirs.fair_lock("a").lock().await.unwrap();
    let inside = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> =
        (0..3).map(|_| tokio::spawn(turn(ours.fair_lock("a"), inside.clone()))).collect();
    let all_wait = async || scene.admin.cmd::<usize>(&["ZCARD", "lock_queue:{a}"]).await == 3;
    eventually(SOON, "all of them wait", all_wait).await;
    held.unlock().await.unwrap();

    for caller in callers {
        let (others, token, is_valid) = granted(caller).await;
        assert_eq!(others, 0, "a second holder");
        assert!(is_valid, "the guard was taken away");
        let counter: u64 = scene.admin.cmd(&["GET", COUNTER]).await;
        assert!(token / 1024 <= counter, "{token} is a number of the listener");
    }
    assert!(eve.has_heard() > 0, "the server has granted none of them the lock by message");
}

/// Holds the lock for long enough that the listener can do what it does. Returns how many others held it then, the
/// token, and whether the guard was still valid at the end.
async fn turn(lock: Lock, inside: Arc<AtomicUsize>) -> Result<(usize, u64, bool), Error> {
    let guard = lock.lock().await?;
    let others = inside.fetch_add(1, Ordering::SeqCst);
    sleep(5 * A_WHILE).await;
    let (token, is_valid) = (guard.token().get(), guard.is_valid());
    inside.fetch_sub(1, Ordering::SeqCst);
    guard.unlock().await?;
    Ok((others, token, is_valid))
}

/// F44: what a listener publishes about owner fields that it has not heard of gives nothing back. A caller that stands in no
/// line is about to be told that it holds the lock.
#[tokio::test]
async fn a_listener_gives_nothing_back_that_a_request_is_about_to_receive() {
    let scene = Scene::new().await;
    let eve = Eve::on(&scene, "b").await;
    let (ours, theirs) = (scene.client(patient()).await, scene.other().await);
    let held = theirs.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&ours, "a").await;
    held.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    let heard = async || eve.has_heard() > 0;
    eventually(SOON, "the listener hears the grant", heard).await;
    for _ in 0..5 {
        let late = scene.proxy.script("acquire").delay_reply(2 * A_WHILE, Duration::ZERO);
        let guard = ours.lock("a").try_lock().await.unwrap().expect("it is free");
        late.lift();
        sleep(A_WHILE).await;
        assert!(guard.is_valid());
        is_held_once(&scene.admin, "a").await;
        assert!(theirs.lock("a").try_lock().await.unwrap().is_none(), "it was given back");
        guard.unlock().await.unwrap();
    }
}

/// A listener that may also read the notes of lines: so it has the secrets of waiters.
struct Reader {
    field: String,
    secret: String,
}

impl Reader {
    /// Reads the notes about the one waiter for a lock.
    async fn of(admin: &Admin, name: &str) -> Self {
        let line = format!("lock_queue:{{{name}}}");
        let field = admin.cmd::<Vec<String>>(&["ZRANGE", &line, "0", "0"]).await.remove(0);
        let life = format!("life:{}", field.split(':').next().expect("a client"));
        let life: String = admin.cmd(&["HGET", &format!("lock_notes:{{{name}}}"), &life]).await;
        let secret = life.split(' ').nth(1).expect("a secret").to_owned();
        Self { field, secret }
    }

    /// Publishes a grant with this number, with the proof that the server would give it.
    async fn publishes(&self, admin: &Admin, name: &str, number: u64) {
        let word = format!("{}={number}", self.field);
        let hash = "return redis.sha1hex(ARGV[1])";
        let text = format!("{} {word}", self.secret);
        let hash: String = admin.cmd(&["EVAL", hash, "0", &text]).await;
        let stamp = &self.secret[self.secret.len() - 8..];
        let client = self.field.split(':').next().expect("a client");
        let own = format!("{}:{client}", channel(name));
        let heard = admin.publish(&own, &format!("eve {word}@{stamp}{}", &hash[..20])).await;
        assert_eq!(heard, 1, "the waiter listens");
    }
}

/// F44: whoever has read the secret of a waiter can prove any number. One far ahead of the clock would put a token out that no
/// later one is greater than.
#[tokio::test]
async fn a_proved_number_far_ahead_of_the_clock_is_refused() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient().waiter_ttl(LONG / 2)).await, scene.other().await);
    let held = other.lock("a").lock().await.unwrap();
    let waiter = scene.parked(&client, "a").await;
    let counter: u64 = scene.admin.cmd(&["GET", COUNTER]).await;
    for number in [GREATEST, counter + (1 << 41)] {
        let asked = scene.proxy.script("acquire").count();
        let reader = Reader::of(&scene.admin, "a").await;
        reader.publishes(&scene.admin, "a", number).await;
        asked.happened().await;
        assert!(!waiter.is_finished(), "{number} is believed");
    }
    sleep(A_WHILE).await;
    assert!(!waiter.is_finished() && held.is_valid());
    is_held_once(&scene.admin, "a").await;
    held.unlock().await.unwrap();
    let guard = granted(waiter).await;
    assert!(guard.token().get() / 1024 < counter + (1 << 40), "{}", guard.token());
    guard.unlock().await.unwrap();
}

/// F44: a number far behind the clock may come from a server that has lost its counter. It is taken, and gone at the first
/// renewal. Until then its token is smaller than that of the holder.
#[tokio::test]
async fn a_proved_number_far_behind_the_clock_is_a_small_token_and_soon_lost() {
    let scene = Scene::new().await;
    let (client, other) = (scene.client(patient().waiter_ttl(LONG / 2)).await, scene.other().await);
    let held = other.lock("a").lock().await.unwrap();
    let mut waiter = scene.parked(&client, "a").await;
    // A waiter that asks just now believes the answer, and not what it hears before.
    let mut number = 5;
    let guard = loop {
        Reader::of(&scene.admin, "a").await.publishes(&scene.admin, "a", number).await;
        match timeout(A_WHILE * 5, &mut waiter).await {
            Ok(granted) => break granted.expect("no panic").expect("the lock"),
            Err(_) => number += 1,
        }
        assert!(number < 50, "no such number is believed");
    };
    assert!(guard.token() < held.token(), "{}", guard.token());
    scene.admin.publish(&channel("a"), "somebody").await; // it checks its lock now
    let lost = timeout(SOON, guard.ended()).await.expect("it learns that it has nothing");
    assert!(matches!(lost, Ended::Lost), "{lost:?}");
    assert!(held.is_valid());
    is_held_once(&scene.admin, "a").await;
    held.unlock().await.unwrap();
}

/// Each message makes a waiter ask and a holder check, but not more than so often.
#[tokio::test]
async fn a_flood_of_messages_costs_a_bounded_number_of_requests() {
    let scene = Scene::new().await;
    let (client, holding) = (scene.client(patient()).await, scene.client(patient()).await);
    // A client that has waited still listens when it holds.
    let theirs = scene.other().await.lock("a").lock().await.unwrap();
    let next = scene.parked(&holding, "a").await;
    theirs.unlock().await.unwrap();
    let held = granted(next).await;
    let waiter = scene.parked(&client, "a").await;
    let line: Vec<String> = scene.admin.cmd(&["ZRANGE", "lock_queue:{a}", "0", "-1"]).await;
    let own = format!("{}:{}", channel("a"), line[0].split(':').next().unwrap());

    let asked = scene.proxy.script("acquire").count();
    let checked = scene.proxy.script("renew").count();
    let began = Instant::now();
    let word = format!("eve {}!", line[0]);
    let mut published = 0;
    while began.elapsed() < Duration::from_secs(2) || published < 2_000 {
        scene.admin.publish(&channel("a"), "eve").await;
        scene.admin.publish(&own, &word).await;
        published += 2;
    }
    let took = began.elapsed();
    // Each request and each check begins a pause. The first requests are sent at once.
    let most = |pause: u32, at_once: usize| took.as_millis() as usize / pause as usize + at_once;
    assert!(asked.fired() <= most(10, 64 + 10), "{} of {published} in {took:?}", asked.fired());
    assert!(checked.fired() <= most(20, 10), "{} of {published} in {took:?}", checked.fired());
    held.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
}
