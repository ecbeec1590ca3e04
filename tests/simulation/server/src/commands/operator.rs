//! Commands about the server as a whole.

use super::owned;
use crate::reply::{Answer, Reply, refusal};
use crate::state::{Caller, State};

pub(super) fn time(state: &mut State, _: Caller, _: &[&[u8]]) -> Answer {
    let text = |number: u64| Reply::bulk(number.to_string());
    Ok(Reply::Array(vec![text(state.now / 1_000_000), text(state.now % 1_000_000)]))
}

pub(super) fn info(state: &mut State, _: Caller, words: &[&[u8]]) -> Answer {
    if state.version.is_6() && words.len() > 2 {
        return Err(refusal::syntax());
    }
    let asked: Vec<_> = words[1..].iter().map(|word| word.to_ascii_lowercase()).collect();
    let all = asked.is_empty()
        || asked.iter().any(|word| matches!(&**word, b"all" | b"default" | b"everything"));
    let mut sections = Vec::new();
    for (name, section) in SECTIONS {
        if all || asked.iter().any(|word| *word == owned(name.to_ascii_lowercase().as_bytes())) {
            sections.push(format!("# {name}\r\n{}", section(state)));
        }
    }
    Ok(Reply::Text(sections.join("\r\n").into_bytes()))
}

type Section = fn(&State) -> String;

const SECTIONS: [(&str, Section); 4] = [
    ("Server", server),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Replication", replication),
];

fn server(state: &State) -> String {
    let (version, mode) = (state.version, state.mode());
    let said = match version.is_valkey() {
        true => format!(
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:{}\r\nserver_mode:{mode}\r\n",
            version.number(),
        ),
        false => format!("redis_version:{}\r\nredis_mode:{mode}\r\n", version.number()),
    };
    format!("{said}run_id:{}\r\n", state.run_id.name())
}

fn memory(state: &State) -> String {
    let maximum = if state.memory_full { 1 } else { 0 };
    format!("used_memory:1000000\r\nmaxmemory:{maximum}\r\nmaxmemory_policy:noeviction\r\n")
}

fn persistence(state: &State) -> String {
    format!("loading:{}\r\n", u8::from(state.loading))
}

fn replication(state: &State) -> String {
    let role = if state.replica { "slave" } else { "master" };
    let history = state.replication.history.name();
    // As a server alone says it. If this one has replicas, only WAIT knows of them.
    format!("role:{role}\r\nconnected_slaves:0\r\nmaster_replid:{history}\r\n")
}

/// A script cannot call these: the server carries them out itself.
pub(super) fn script_in_script(state: &mut State, _: Caller, words: &[&[u8]]) -> Answer {
    Err(state.unknown_subcommand(words))
}
