//! The supervisor's end of the pipes to the keeper.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::job::OURSELVES;
use crate::keeper;
use crate::words::{Order, Told, line, read};

/// A keeper that runs. If this is dropped, the pipes close, and the keeper ends.
#[derive(Debug)]
pub(crate) struct Link {
    process: Child,
    orders: ChildStdin,
    words: ChildStdout,
    /// The part of the next line that has arrived.
    begun: Vec<u8>,
    is_gone: bool,
}

impl Link {
    /// Starts a keeper with the arguments that this process has. It has its own process group, so that Ctrl-C and
    /// Ctrl-Z at a terminal do not reach it. It gets the URL, which may have a password, in its environment: all users of
    /// the machine can see its arguments.
    pub(crate) fn start(arguments: &[OsString], url: &str) -> io::Result<Self> {
        let mut command = Command::new(OURSELVES);
        command.arg0("parklock").arg(keeper::STAGE).args(without_url(arguments)).process_group(0);
        command.env("PARKLOCK_URL", url);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let both = process.stdin.take().zip(process.stdout.take());
        let (orders, words) = both.ok_or_else(|| io::Error::other("there are no pipes"))?;
        Ok(Self { process, orders, words, begun: Vec::new(), is_gone: false })
    }

    /// Whether the keeper has closed its pipe.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Sends an order. If the keeper is gone, the write fails, and reading its words shows that too.
    pub(crate) fn order(&mut self, order: Order) {
        let _ = self.orders.write_all(line(&order).as_bytes());
    }

    /// The words that the keeper has sent, when there is something to read. `None`: the keeper is gone.
    pub(crate) fn hear(&mut self) -> Option<Vec<Told>> {
        let mut piece = [0; 4096];
        match self.words.read(&mut piece) {
            Ok(0) => self.end(),
            Ok(length) => {
                self.begun.extend_from_slice(&piece[..length]);
                Some(self.whole_lines())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Some(Vec::new()),
            Err(_) => self.end(),
        }
    }

    fn end(&mut self) -> Option<Vec<Told>> {
        self.is_gone = true;
        None
    }

    fn whole_lines(&mut self) -> Vec<Told> {
        let end = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.begun.drain(..end).collect();
        String::from_utf8_lossy(&lines).lines().filter_map(read).collect()
    }
}

/// The arguments without `--url`. What follows the dashes belongs to the command.
fn without_url(arguments: &[OsString]) -> Vec<&OsString> {
    let mut kept = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_encoded_bytes() {
            b"--url" => drop(words.next()),
            [b'-', b'-', b'u', b'r', b'l', b'=', ..] => {}
            b"--" => {
                kept.push(word);
                kept.extend(words.by_ref());
            }
            _ => kept.push(word),
        }
    }
    kept
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // If the keeper has ended, this reaps it. If not, it may still have to give the lock back: do not wait for
        // that.
        let _ = self.process.try_wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_left_out_unless_it_is_the_commands() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in [
            "run --url redis://:p@h -n a -- x --url y",
            "run --url=redis://:p@h -n a -- x --url y",
            "run -n a --url redis://:p@h -- x --url y",
        ] {
            let (all, kept) = (words(line), words("run -n a -- x --url y"));
            assert_eq!(without_url(&all), kept.iter().collect::<Vec<_>>(), "{line}");
        }
    }
}
