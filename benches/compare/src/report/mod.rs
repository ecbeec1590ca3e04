//! The report at the end: a table to read, JSON to keep, plots to look at.

mod axis;
mod bars;
mod growth;
mod json;
mod plots;
mod svg;
mod table;
mod timeline;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::measure::machine::Machine;
use crate::outcome::Outcome;

/// Writes everything into `folder`, and the table to standard output as well.
pub fn write(folder: &Path, machine: &Machine, outcomes: &[Outcome]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let table = table::document(machine, outcomes);
    print!("{table}");
    fs::write(folder.join("report.md"), table)?;
    let json = serde_json::to_string_pretty(&json::document(machine, outcomes))?;
    fs::write(folder.join("report.json"), json)?;
    for (name, plot) in all_plots(outcomes) {
        fs::write(folder.join(name), plot)?;
    }
    eprintln!("written to {}", folder.display());
    Ok(())
}

fn all_plots(outcomes: &[Outcome]) -> Vec<(String, String)> {
    let each = outcomes
        .iter()
        .flat_map(|outcome| plots::of(outcome).into_iter().chain(timeline::of(outcome)));
    each.chain(growth::of(outcomes)).collect()
}
