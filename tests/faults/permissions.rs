//! What the server lets a user do, and what a user of locks needs.

use parklock::{Ended, Error, Owner};

use crate::common::rights::{commands_in_scripts, rules};
use crate::common::{Admin, Server, Watch, eventually, judged, timeout};
use crate::log::Log;
use crate::{
    COUNTER, LEASE, SOON, a_turn, as_user, brief, channel, connect, fields, is_clean, key, left,
    patient, somebody_waits,
};

/// Makes a user with these permissions.
async fn user(admin: &Admin, name: &str, rules: &str) {
    let words = ["ACL", "SETUSER", name, "reset", "on", ">secret"];
    let words: Vec<&str> = words.into_iter().chain(rules.split(' ')).collect();
    admin.cmd::<()>(&words).await;
    // Says the library's name at the handshake, since 7.2; older servers do not know the rule.
    let _: redis::RedisResult<()> =
        admin.try_cmd(&["ACL", "SETUSER", name, "+client|setinfo"]).await;
}

/// How often the server has denied something, and what.
async fn denials(admin: &Admin) -> Vec<(u64, String)> {
    let log: Vec<redis::Value> = admin.cmd(&["ACL", "LOG"]).await;
    let entry = |entry| {
        let fields: std::collections::HashMap<String, redis::Value> =
            redis::from_redis_value(entry).expect("pairs");
        let count = redis::from_redis_value_ref(&fields["count"]).expect("a number");
        (count, redis::from_redis_value_ref(&fields["object"]).expect("a text"))
    };
    log.into_iter().map(entry).collect()
}

/// F87: the user may not run a command, or touch a key, or run a command within a script.
#[tokio::test]
async fn a_missing_permission_is_told_at_once_and_not_tried_again() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let cases = [
        ("~* &* +@all -evalsha -eval", "evalsha"),
        ("~other:* &* +@all", "lock:"),
        ("~* &* +@all -hset", "hset"),
        ("~* &* +@all -pexpire", "pexpire"),
        ("~* &* +@all -incrby", "incrby"),
        ("~* &* +@all -set", "set"),
    ];
    for (rules, denied) in cases {
        user(&admin, "limited", rules).await;
        let client = connect(&as_user(&server, "limited", "secret"), patient()).await;
        for waits in [true, false] {
            admin.cmd::<()>(&["ACL", "LOG", "RESET"]).await;
            // A script writes the counter of tokens only if it is lost or behind the clock, and counts it up otherwise.
            admin.cmd::<u32>(&["DEL", COUNTER]).await;
            let lock = client.lock("a");
            let answer = timeout(SOON, async {
                if waits { lock.lock().await.map(Some) } else { lock.try_lock().await }
            });
            let error = answer.await.expect("it is not ridden out").expect_err(rules);
            let denials = denials(&admin).await;
            // A script tries the uncontended path, and then the other one, and undoes what it did. Version 6 says of one of them
            // that it was in a transaction, and counts it apart.
            let counted: u64 = denials.iter().map(|(count, _)| count).sum();
            let fits = denials.iter().all(|(_, what)| what.contains(denied));
            assert!((1..=3).contains(&counted) && fits, "{rules}: {denials:?}");

            assert!(matches!(error, Error::Permission { .. }), "{rules}: {error}");
            assert_eq!(left(&admin).await, Vec::<String>::new(), "{rules}: nothing half-made");
        }
        client.close().await;
    }
}

/// F87: the permission is taken away while the lock is held.
#[tokio::test]
async fn a_holder_that_loses_its_permission_is_told_and_its_lock_freed_by_the_lease() {
    judged(async || {
        let (log, _listening) = Log::here();
        let server = Server::start().await;
        let admin = server.admin().await;
        user(&admin, "limited", "~* &* +@all").await;
        let client = connect(&as_user(&server, "limited", "secret"), brief()).await;
        let unlocked = client.lock("a").lock().await.unwrap();
        let kept = client.lock("b").lock().await.unwrap();
        let lost = kept.ended();
        admin.cmd::<()>(&["ACL", "SETUSER", "limited", "-hdel", "-pexpire"]).await;

        assert!(matches!(unlocked.unlock().await, Err(Error::Permission { .. })));
        assert!(!denials(&admin).await.is_empty());
        assert_eq!(lost.await, Ended::Lost);
        // Renewals that fail together are one line, a moment after the first: perhaps only after the lease.
        eventually(SOON, "it warns", async || log.lines_with("not renewed") > 0).await;
        assert!(matches!(kept.unlock().await, Err(Error::Lost { .. })));
        is_clean(&admin, SOON, "the leases free both").await;
    })
    .await;
}

/// What the user of a service needs: see docs/faults.md. Without DEL it cannot take locks away.
fn least_privilege() -> String {
    format!("resetchannels {}", rules("docs/faults.md").join(" "))
}

/// F87: also what only a rare case calls.
#[test]
fn the_least_privileged_user_may_call_what_the_scripts_of_plain_locks_call() {
    let rules = rules("docs/faults.md");
    let allowed = |command: &String| rules.contains(&format!("+{command}"));
    let mut called = commands_in_scripts("lock");
    called.extend(commands_in_scripts("line"));
    let missing: Vec<_> = called.into_iter().filter(|it| !allowed(it)).collect();
    // Sessions need the second and the third one, and the other kinds, whose holders are in a sorted set, the last two.
    assert_eq!(missing, ["del", "get", "pubsub", "zcard", "zmscore"]);
}

/// F87: a user that may do nothing else.
#[tokio::test]
async fn the_least_privileged_user_can_do_everything_with_locks_and_nothing_else() {
    judged(async || {
        let server = Server::start().await;
        let admin = server.admin().await;
        user(&admin, "service", &least_privilege()).await;
        let url = as_user(&server, "service", "secret");
        for command in
            ["FLUSHALL", "CONFIG GET dir", "GET elsewhere", "PSUBSCRIBE *", "DEL lock:{a}"]
        {
            let service = Admin::connect(&url).await;
            let words: Vec<&str> = command.split(' ').collect();
            let denied: redis::RedisResult<redis::Value> = service.try_cmd(&words).await;
            assert!(denied.is_err(), "{command}");
        }
        assert_eq!(denials(&admin).await.len(), 5);
        admin.cmd::<()>(&["ACL", "LOG", "RESET"]).await;

        let [one, two] = [connect(&url, brief()).await, connect(&url, brief()).await];
        let guard = one.lock("a").lock().await.unwrap();
        let waiter = tokio::spawn({
            let lock = two.lock("a");
            async move { a_turn(&lock).await }
        });
        somebody_waits(&admin, "a").await;
        guard.extend(LEASE * 2).await.unwrap();
        tokio::time::sleep(LEASE / 2).await;
        assert!(guard.is_valid() && two.lock("a").is_locked().await.unwrap());
        guard.unlock().await.unwrap();
        waiter.await.unwrap();
        let lock = one.reentrant_lock("b").owned_by(&Owner::new());
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        inner.unlock().await.unwrap();
        outer.unlock().await.unwrap();
        one.multi_lock(["b", "c"]).lock().await.unwrap().unlock().await.unwrap();
        // Given up while it waits, and after a restart of the scripts' cache.
        admin.script_flush().await;
        let guard = one.lock("a").lock().await.unwrap();
        assert!(two.lock("a").try_lock_for(LEASE).await.unwrap().is_none());
        drop(guard);
        is_clean(&admin, SOON, "all is given back").await;
        assert_eq!(denials(&admin).await, Vec::new(), "nothing was missing: {}", least_privilege());
    })
    .await;
}

/// F91: somebody takes the lock away from its holder: an operator may, a service need not be allowed to.
#[tokio::test]
async fn taking_a_lock_away_needs_its_own_permission_and_is_logged() {
    judged(async || {
        let (log, _listening) = Log::here();
        let server = Server::start().await;
        let admin = server.admin().await;
        user(&admin, "service", &least_privilege()).await;
        user(&admin, "operator", &format!("{} +del", least_privilege())).await;
        let service = connect(&as_user(&server, "service", "secret"), brief()).await;
        let colleague = connect(&as_user(&server, "service", "secret"), brief()).await;
        let operator = connect(&as_user(&server, "operator", "secret"), brief()).await;
        let guard = service.lock("a").lock().await.unwrap();
        let (lost, theirs) = (guard.ended(), fields(&admin, "a").await);

        let refused = colleague.lock("a").force_unlock().await;
        assert!(matches!(refused, Err(Error::Permission { .. })), "{refused:?}");
        assert_eq!(denials(&admin).await.len(), 1);
        assert_eq!(fields(&admin, "a").await, theirs, "nothing was taken away");
        assert!(guard.is_valid());

        let waiter = tokio::spawn({
            let lock = colleague.lock("a");
            async move { lock.lock().await }
        });
        somebody_waits(&admin, "a").await;
        assert_eq!(admin.subscribers(&channel("a")).await, 1);
        let asked = Watch::start();
        assert!(operator.lock("a").force_unlock().await.unwrap());
        let next = timeout(SOON, waiter).await.expect("the waiter is woken").unwrap().unwrap();
        assert_eq!(lost.await, Ended::Lost);
        assert!(asked.passed() < LEASE, "the holder is told at its next renewal");
        assert!(!operator.lock("other").force_unlock().await.unwrap(), "nobody has this one");

        assert_eq!(log.lines_with("took the lock away from its holder name=\"a\""), 1);
        assert_eq!(admin.hgetall(&key("a")).await.len(), 1);
        next.unlock().await.unwrap();
    })
    .await;
}
