//! `parklock unlock --force`: takes a lock away from its holders.

use std::io::{self, BufRead, IsTerminal, Write};

use parklock::Client;

use crate::args::Unlock;
use crate::failure::Failure;
use crate::holders::Holders;
use crate::inventory::{Holder, Inventory, Lock};
use crate::stderr::complain;
use crate::text::printable;
use crate::{exit, output, servers};

pub(crate) async fn unlock(asked: &Unlock) -> Result<u8, Failure> {
    let (inventory, name) = (look(asked).await?, printable(&asked.name));
    let Some(lock) = held(&inventory) else {
        output::put(&format!("{name}: nobody holds it\n"));
        return Ok(exit::BUSY);
    };
    if lock.is_strange {
        let (key, kind) = (printable(&lock.key), printable(&lock.kind));
        return Err(Failure::config(format!("{key} is a {kind} that parklock has not written")));
    }
    for holder in &lock.holders {
        let who = printable(&inventory.who_since(&holder.owner));
        output::put(&format!("{name} is held by {who} ({})\n", printable(&holder.owner)));
    }
    if !asked.yes && !agreed(&name)? {
        return Ok(exit::BUSY);
    }
    let client = Client::connect_with(asked.server.url(), asked.server.config()).await?;
    // The user agreed to take the lock from these holders, perhaps after a long time. Others may hold it now.
    if !asked.yes
        && let now = look(asked).await?
        && has_others(&now, &lock.holders)
    {
        client.close().await;
        let holders = Holders::of(&now).text;
        output::put(&format!("{name} is held by {holders} now; nothing was done\n"));
        return Ok(exit::BUSY);
    }
    // The lock may have come free since the tool looked.
    if !take_away(client, lock).await? {
        output::put(&format!("{name}: nobody holds it any more\n"));
        return Ok(exit::BUSY);
    }
    output::put(&format!(
        "{name} was taken away. Its holder learns of it at its next renewal at the latest, or with a fixed lease at its deadline, and may still be at work\n"
    ));
    Ok(exit::OK)
}

async fn look(asked: &Unlock) -> Result<Inventory, Failure> {
    let (url, realm) = (asked.server.url(), asked.server.one_realm()?);
    let reached = servers::reach_for(&url, &realm, &asked.name).await?;
    reached.complain();
    Inventory::of_one(&reached.servers, &realm, &asked.name, 0).await
}

fn held(inventory: &Inventory) -> Option<&Lock> {
    inventory.locks.first().filter(|lock| lock.held_by > 0 || lock.is_strange)
}

/// Whether the lock now has a holder that is not among these.
fn has_others(now: &Inventory, before: &[Holder]) -> bool {
    let is_new = |holder: &Holder| before.iter().all(|other| other.owner != holder.owner);
    held(now).is_some_and(|lock| lock.holders.iter().any(is_new))
}

/// Asks the user at the terminal.
fn agreed(name: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("stdin is not a terminal, so the tool cannot ask: add --yes"));
    }
    complain(&format!(
        "take {name} away? Its holder works without protection until it learns of the loss. [y/N] "
    ));
    let _ = io::stderr().flush();
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

async fn take_away(client: Client, lock: &Lock) -> Result<bool, Failure> {
    let name = lock.name.as_str();
    let taken = match lock.kind.as_str() {
        "fair" => client.fair_lock(name).force_unlock().await,
        "rw" => client.rw_lock(name).force_unlock().await,
        "fenced" => client.redisson().fenced_lock(name).force_unlock().await,
        "semaphore" => {
            let permits =
                lock.capacity.and_then(|permits| u32::try_from(permits).ok()).unwrap_or(1);
            client.semaphore(name, permits).force_unlock().await
        }
        _ => client.lock(name).force_unlock().await,
    };
    client.close().await;
    Ok(taken?)
}
