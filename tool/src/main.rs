//! `parklock`: commands under locks in Redis, and a view of who holds what.
//!
//! `run` and `elect` are two processes: the supervisor (`supervisor.rs`), which has the command, and the keeper
//! (`keeper.rs`), which has the lock. Every other command is one process.

#[cfg(not(target_os = "linux"))]
compile_error!("the tool needs Linux: it waits for signals and timers as only Linux lets it");

mod args;
mod bench;
mod clock;
mod deadlocks;
mod desk;
mod doctor;
mod exit;
mod failure;
mod hold;
mod holders;
mod horizon;
mod info;
mod inventory;
mod job;
mod keeper;
mod launch;
mod limits;
mod link;
mod list;
mod lock;
mod output;
mod pages;
mod phase;
mod run;
mod servers;
mod signals;
mod span;
mod stderr;
mod supervisor;
mod terminal;
mod text;
mod top;
mod unlock;
mod voice;
mod words;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use serde_json::json;

use crate::args::{Cli, Command, Server};
use crate::failure::Failure;
use crate::text::printable;
use crate::voice::Voice;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let stage = arguments.first().and_then(|word| word.to_str());
    ExitCode::from(match stage {
        Some(launch::STAGE) => launch::launch(&arguments[1..]),
        Some(keeper::STAGE) => keep(&arguments[1..]),
        _ => match parsed(&arguments) {
            Ok(cli) => obey(cli.command, &arguments),
            Err(code) => code,
        },
    })
}

/// Reads the command line. The error is the exit code, after clap has printed the help or what is wrong.
fn parsed(arguments: &[OsString]) -> Result<Cli, u8> {
    let named = std::iter::once(OsString::from("parklock")).chain(arguments.iter().cloned());
    if arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json") {
        stderr::fail_in_json();
    }
    Cli::try_parse_from(named).map_err(|error| {
        let error = hinted(error, arguments);
        let code = if error.use_stderr() { exit::USAGE } else { exit::OK };
        if code != exit::OK && stderr::fails_in_json() {
            stderr::fail(code, error.to_string().trim_end());
        } else {
            let _ = error.print();
        }
        code
    })
}

/// `flock` and `timeout` take a command without `--`, so that is what many type first.
fn hinted(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let runs = arguments.first().is_some_and(|word| word == "run" || word == "elect");
    let unexpected = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => "-",
    };
    if runs && !unexpected.starts_with('-') && !arguments.iter().any(|word| word == "--") {
        let hint = "the command comes after `--`: parklock run backup -- ./backup.sh".into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint]));
    }
    error
}

fn obey(command: Command, arguments: &[OsString]) -> u8 {
    let contradiction = command.lock().and_then(|lock| Some((lock, lock.contradiction()?)));
    if let Some((lock, (code, why))) = contradiction {
        Voice::of(lock).fail(code, why);
        return code;
    }
    let waits = command.lock().filter(|lock| !lock.nonblock);
    let nested =
        waits.map(|lock| (lock, lock.outer_tools())).filter(|(_, outer)| !outer.is_empty());
    if let Some((lock, outer)) = nested {
        let (name, voice) = (printable(&lock.name), Voice::of(lock));
        if lock.wait.is_none()
            && on_runtime(holders::of(lock)).is_ok_and(|holders| holders.are_all(&outer))
        {
            let text =
                format!("this already runs under {name}, and would wait for itself for ever");
            voice.fail(exit::USAGE, &text);
            return exit::USAGE;
        }
        let text = format!("this already runs under {name}, and may wait for itself");
        voice.warn("nested", &json!({}), &text);
    }
    match command {
        Command::Run(asked) => run::run(&asked, arguments),
        Command::Elect(asked) => run::elect(&asked, arguments),
        Command::Hold(lock) => {
            log(lock.verbose);
            on_runtime(hold::hold(&lock)).unwrap_or_else(|code| code)
        }
        Command::Ls(asked) => answer(list::list(&asked), &asked.server),
        Command::Info(asked) => answer(info::info(&asked), &asked.server),
        Command::Top(asked) => answer(top::top(&asked), &asked.server),
        Command::Unlock(asked) => answer(unlock::unlock(&asked), &asked.server),
        Command::Doctor(asked) => answer(doctor::doctor(&asked), &asked.server),
        Command::Bench(asked) => answer(bench::bench(&asked), &asked.server),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { to } => pages::manual(to.as_deref()),
    }
}

/// Runs a command that asks the servers, and prints why there is no answer.
fn answer(work: impl Future<Output = Result<u8, Failure>>, server: &Server) -> u8 {
    let answered = on_runtime(work).unwrap_or_else(Ok);
    answered.unwrap_or_else(|failure| {
        stderr::fail(failure.code, &server.explained(failure.code, &failure.why));
        failure.code
    })
}

/// Runs the keeper, which has the arguments of the process that started it.
fn keep(arguments: &[OsString]) -> u8 {
    let asked = match parsed(arguments) {
        Ok(Cli { command: Command::Run(asked) | Command::Elect(asked) }) => asked,
        Ok(_) => return exit::USAGE,
        Err(code) => return code,
    };
    log(asked.lock.verbose);
    keeper::keep(&asked.lock, &asked.work)
}

/// The error is the exit code, after the reason was printed.
fn on_runtime<T>(work: impl Future<Output = T>) -> Result<T, u8> {
    match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => Ok(runtime.block_on(work)),
        Err(error) => {
            stderr::fail(exit::BROKEN, &error.to_string());
            Err(exit::BROKEN)
        }
    }
}

/// The library's log, on stderr.
fn log(verbose: u8) {
    if verbose >= 2 {
        let to_stderr = tracing_subscriber::fmt().with_writer(|| stderr::Stderr);
        to_stderr.with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG).init();
    }
}
