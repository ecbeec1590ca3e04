//! `parklock info`: all that Redis knows of one lock.

use std::fmt::Write;

use crate::args::Info;
use crate::failure::Failure;
use crate::inventory::{Inventory, Lock};
use crate::span::short;
use crate::text::{counted, printable};
use crate::{exit, output, servers};

/// How many waiters `info` shows.
const WAITERS: usize = 50;

pub(crate) async fn info(asked: &Info) -> Result<u8, Failure> {
    let realm = asked.server.one_realm()?;
    let reached = servers::reach_for(&asked.server.url(), &realm, &asked.name).await?;
    reached.complain();
    let inventory = Inventory::of_one(&reached.servers, &realm, &asked.name, WAITERS).await?;
    match inventory.locks.first() {
        Some(lock) if asked.json => output::put(&format!("{}\n", inventory.json(lock))),
        Some(lock) => output::put(&text(lock, &inventory)),
        None if asked.json => output::put("null\n"),
        None => output::put(&format!(
            "{}: nobody holds it, nobody waits for it\n",
            printable(&asked.name)
        )),
    }
    Ok(if inventory.locks.is_empty() { exit::BUSY } else { exit::OK })
}

/// What is known of a lock, one fact per line.
pub(crate) fn text(lock: &Lock, inventory: &Inventory) -> String {
    let mut lines = String::new();
    let mut line = |what: &str, text: String| _ = writeln!(lines, "{what:10} {text}");
    line("name", printable(&lock.name));
    if let Some(namespace) = &lock.namespace {
        line("namespace", printable(namespace));
    }
    let stranger = if lock.is_strange { ", which parklock has not written" } else { "" };
    line("kind", format!("{}{stranger}", printable(&lock.kind)));
    line("key", format!("{} on {}", printable(&lock.key), lock.server));
    if lock.kind == "latch" {
        line("count", format!("{} left", lock.count()));
    } else if lock.capacity.is_some() {
        line("permits", format!("{} in use", lock.count()));
    }
    if lock.is_held() || lock.is_strange {
        let stays = || "none: it stays until somebody removes it".to_owned();
        line("ttl", lock.ttl.map_or_else(stays, short));
    }
    if let Some(interval) = lock.interval {
        line("interval", format!("claimed by a job for another {}", short(interval)));
    }
    if let Some(token) = lock.token {
        line("token", token.to_string());
    }
    line("holders", lock.held_by.to_string());
    for holder in &lock.holders {
        let ttl = holder.ttl.map_or_else(|| "-".to_owned(), short);
        let mode = holder.mode.map(|mode| format!(", to {mode}")).unwrap_or_default();
        let who = printable(&inventory.who_since(&holder.owner));
        line(
            "",
            format!(
                "{who}{mode}, count {}, ttl {ttl}, owner {}",
                holder.count,
                printable(&holder.owner)
            ),
        );
    }
    line("waiting", lock.waiting.to_string());
    for (at, waiter) in lock.line.iter().enumerate() {
        let (who, waited) = (printable(&inventory.who(&waiter.owner)), short(waiter.waited));
        line("", format!("{}. {who}, for {waited}", at + 1));
    }
    if let Some(listening) = lock.listening {
        line("listening", counted(listening, "client"));
    }
    lines
}
