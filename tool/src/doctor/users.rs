//! Who else may speak on the channels of locks: whoever may publish there can wake waiters, and tell them untruths.

use parklock::operator;

use super::Finding;
use crate::args::Realm;
use crate::failure::Failure;
use crate::servers::Server;
use crate::text::printable;

/// How many users the doctor names.
const NAMED: usize = 3;

/// The channels that a user has who is made without rules for channels.
pub(super) async fn new_users(server: &Server) -> Result<Finding, Failure> {
    let check = "acl-pubsub-default";
    Ok(match server.setting(check).await?.as_deref() {
        None => Finding::unknown(check),
        Some("allchannels") => Finding::warn(
            check,
            "allchannels: each user that is made without resetchannels may listen to the messages of locks, and publish there",
            "set acl-pubsub-default resetchannels, and give each user its own channels: see docs/operations.md",
        ),
        Some(default) => Finding::ok(check, default),
    })
}

/// The users that may publish on the channels of locks without the right to write their keys. `None`: this user may not ask,
/// or the server cannot tell (before Redis 7).
pub(super) async fn publishers(server: &Server, realm: &Realm) -> Option<Finding> {
    let list: Vec<String> = server.query(&["ACL", "LIST"]).await.ok()?;
    let name = (realm.namespaces.name(), "parklock-doctor");
    let place = operator::place(realm.layout, "lock", name, server.space).ok()?;
    let publish = if server.is_sharded { "SPUBLISH" } else { "PUBLISH" };
    let mut found = Vec::new();
    for user in list.iter().filter_map(|line| active(line)) {
        if may(server, user, &[publish, &place.channel, "x"]).await?
            && !may(server, user, &["HSET", &place.lock, "x", "1"]).await?
        {
            found.push(printable(user));
        }
    }
    Some(finding(&found))
}

/// The name of a user that can log in, from a line of ACL LIST.
fn active(line: &str) -> Option<&str> {
    let mut words = line.split(' ').skip(1);
    words.next().filter(|_| words.next() == Some("on"))
}

/// Whether a user may call this. `None`: the server does not say.
async fn may(server: &Server, user: &str, call: &[&str]) -> Option<bool> {
    let asked = [&["ACL", "DRYRUN", user], call].concat();
    server.query::<String>(&asked).await.ok().map(|answer| answer == "OK")
}

fn finding(users: &[String]) -> Finding {
    let check = "users that only publish";
    if users.is_empty() {
        return Finding::ok(check, "none has the channels of locks without their keys");
    }
    let named = users.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    Finding::warn(
        check,
        format!("{}, such as {named}, may publish on the channels of locks", users.len()),
        "take the channels from them: ACL SETUSER <user> resetchannels, then the channels that they need",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_cannot_log_in_is_left_out() {
        assert_eq!(active("user eve on sanitize-payload #12ab resetchannels -@all"), Some("eve"));
        assert_eq!(active("user old off &* -@all"), None);
    }
}
