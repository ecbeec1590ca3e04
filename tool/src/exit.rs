//! Exit codes: those of sysexits(3) where one fits, and those of a shell for how the command ended.

use parklock::Error;

pub(crate) const OK: u8 = 0;
/// Another caller holds the lock, or it was not free in time. For `info`: nobody holds it or waits for it, and no job has used its
/// interval. For `unlock`: nobody held it, others hold it now, or the user said no. For `top --deadlocks`: there is a circle. For
/// `doctor`: a check is bad.
pub(crate) const BUSY: u8 = 1;
pub(crate) const USAGE: u8 = 64;
pub(crate) const UNAVAILABLE: u8 = 69;
/// The tool could not start a process or talk to it, or could not write what it has to print.
pub(crate) const BROKEN: u8 = 71;
pub(crate) const LOST: u8 = 75;
pub(crate) const PERMISSION: u8 = 77;
pub(crate) const CONFIG: u8 = 78;
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
/// For a command or a wait that a signal ended: this plus the number of the signal.
const SIGNAL: u8 = 128;

/// The table that `--help` and the manual show.
pub(crate) const TABLE: &str = "\
Exit codes:
  the command's own, or 128+n if signal n ended it
    1  busy: the lock was not free in time (-E changes this code, -x makes it 0)
   64  wrong usage
   69  Redis is not available
   71  the system could not start a process, or the output could not be written
   75  the lock was lost while the command ran, or within --min-hold
   77  Redis refuses: password or permission
   78  invalid settings, or the name is in use as another kind
  126  the command cannot be executed
  127  the command was not found
  130  interrupted while waiting (129 by HUP, 131 by QUIT, 143 by TERM)";

/// The exit code after a signal with this number.
pub(crate) fn of_signal(number: i32) -> u8 {
    SIGNAL.saturating_add(u8::try_from(number).unwrap_or(0))
}

/// The exit code for an error of the library.
pub(crate) fn of_error(error: &Error) -> u8 {
    match error {
        Error::Lost { .. } => LOST,
        Error::Permission { .. } => PERMISSION,
        Error::Config { .. }
        | Error::Conflict { .. }
        | Error::InvalidLease { .. }
        | Error::InvalidPermits { .. } => CONFIG,
        Error::InvalidName { .. } => USAGE,
        _ => UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_codes_of_the_table_end_in_the_same_column() {
        let end = |line: &str| {
            let code = line.split_whitespace().next()?;
            code.parse::<u8>().ok().and(line.find(code)).map(|at| at + code.len())
        };
        let ends: Vec<_> = TABLE.lines().filter_map(end).collect();
        assert_eq!(ends, [5; 10]);
    }
}
