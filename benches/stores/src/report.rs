//! The report: the tables, and plots of those that count turns.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::hosts::Hosts;
use crate::plots;
use crate::table::Table;

/// Writes the tables to standard output and into `folder`, and the plots beside them.
pub fn write(folder: &Path, hosts: &Hosts, tables: &[Table]) -> Result<()> {
    let mut text = format!("{}\n", hosts.describe());
    text +=
        "Medians of the rounds. In brackets: over `set-nx-px`, the median of the rounds' ratios.\n";
    text.extend(tables.iter().map(Table::text));
    print!("{text}");
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    fs::write(folder.join("report.md"), text)?;
    for (name, plot) in tables.iter().flat_map(plots::of) {
        fs::write(folder.join(name), plot)?;
    }
    eprintln!("written to {}", folder.display());
    Ok(())
}
