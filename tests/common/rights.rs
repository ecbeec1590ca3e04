//! What the documents say that a user must be allowed, and what the scripts need.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::Server;

/// The URL of a user with these rules, from now on.
pub async fn user(server: &Server, rules: &[String]) -> String {
    let mut words = vec!["ACL", "SETUSER", "locks", "reset", "resetchannels", "on", ">sesame"];
    words.extend(rules.iter().map(String::as_str));
    server.admin().await.cmd::<()>(&words).await;
    as_user(&server.url())
}

/// The URL of a user whom the server does not tell that a key has changed (`CLIENT TRACKING`): its client learns of a loss only when it asks.
pub async fn untold(server: &Server) -> String {
    user(server, &["~*", "&*", "+@all", "-client"].map(str::to_owned)).await
}

/// The same URL for that user.
pub fn as_user(url: &str) -> String {
    url.replace("://", "://locks:sesame@")
}

/// The rules of the user that a document makes, after its password.
pub fn rules(document: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = fs::read_to_string(path).expect("a document");
    let (_, user) = text.split_once("\nACL SETUSER ").expect("a user");
    let (_, rules) = user.split_once(" >PASSWORD ").expect("a password");
    let (rules, _) = rules.split_once("```").expect("an end");
    rules.split_whitespace().map(str::to_owned).collect()
}

/// The rules in the rows of the manual's tables that begin like this, and those that the rows leave out.
pub fn rules_of(rows: &str) -> (Vec<String>, Vec<String>) {
    let manual = include_str!("../../docs/operations.md").replace("\\|", "|");
    let (mut added, mut left_out) = (Vec::new(), Vec::new());
    for row in manual.lines().filter(|line| line.starts_with(rows)) {
        let (more, less) = row.split_once("leave out").unwrap_or((row, ""));
        added.extend(rules_in(more));
        left_out.extend(rules_in(less));
    }
    assert!(!added.is_empty(), "{rows} is in the manual");
    (added, left_out)
}

fn rules_in(text: &str) -> impl Iterator<Item = String> {
    let spans = text.split('`').skip(1).step_by(2);
    let spans = spans.filter(|span| span.starts_with(['+', '~', '&']));
    spans.flat_map(str::split_whitespace).map(str::to_owned)
}

/// The rules of a user that has these on one server, in a cluster of the version that this `INFO` tells.
pub fn in_a_cluster(mut rules: Vec<String>, info: &str) -> Vec<String> {
    let is_sharded = !info.contains("redis_version:6");
    let rows = if is_sharded { "| a Redis Cluster" } else { "| a Redis Cluster |" };
    let (added, left_out) = rules_of(rows);
    rules.retain(|rule| !left_out.contains(rule));
    rules.extend(added);
    rules
}

/// Every command that the scripts of this folder of `lua` call.
pub fn commands_in_scripts(folder: &str) -> BTreeSet<String> {
    let mut commands = BTreeSet::new();
    gather(&Path::new(env!("CARGO_MANIFEST_DIR")).join("lua").join(folder), &mut commands);
    commands
}

fn gather(folder: &Path, commands: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, commands);
            continue;
        }
        let text =
            fs::read_to_string(path).expect("a script").replace("redis.pcall(", "redis.call(");
        for call in text.split("redis.call('").skip(1) {
            commands.insert(call.split('\'').next().expect("the first part").to_owned());
        }
    }
}
