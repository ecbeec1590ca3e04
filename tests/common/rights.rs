//! What the documents say that a user must be allowed, and what the scripts need.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The rules of the user that a document makes, after its password.
pub fn rules(document: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = fs::read_to_string(path).expect("a document");
    let (_, user) = text.split_once("\nACL SETUSER ").expect("a user");
    let (_, rules) = user.split_once(" >PASSWORD ").expect("a password");
    let (rules, _) = rules.split_once("```").expect("an end");
    rules.split_whitespace().map(str::to_owned).collect()
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
