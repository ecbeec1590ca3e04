//! The completions of a shell, and the manual.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::{exit, output, stderr};

pub(crate) fn completions(shell: Shell) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "parklock", &mut text);
    output::put(&String::from_utf8_lossy(&text));
    exit::OK
}

/// Prints the page of the tool, or writes a page for each command into a folder.
pub(crate) fn manual(folder: Option<&Path>) -> u8 {
    let written = match folder {
        None => page(Cli::command()).map(|page| output::put(&String::from_utf8_lossy(&page))),
        Some(folder) => write_all(folder),
    };
    match written {
        Ok(()) => exit::OK,
        Err(error) => {
            stderr::fail(exit::BROKEN, &error.to_string());
            exit::BROKEN
        }
    }
}

fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}

fn write_all(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut all = Cli::command();
    all.build();
    fs::write(folder.join("parklock.1"), page(all.clone())?)?;
    for command in all.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = format!("parklock-{}", command.get_name());
        let named: &'static str = Box::leak(name.clone().into_boxed_str());
        fs::write(folder.join(format!("{name}.1")), page(command.clone().name(named))?)?;
    }
    Ok(())
}
