//! The words in which commands are refused that are not there, or not now.

use crate::reply::Reply;
use crate::state::State;

impl State {
    /// A command that is not there.
    pub(crate) fn unknown(&self, words: &[&[u8]]) -> Reply {
        let name = c_text(words[0], if self.version.is_6() { usize::MAX } else { 128 });
        let (open, close, behind) =
            if self.version.is_6() { ('`', '`', ", ") } else { ('\'', '\'', " ") };
        let mut args = String::new();
        for word in &words[1..] {
            if args.len() >= 128 {
                break;
            }
            args += &format!("{open}{}{close}{behind}", c_text(word, 128 - args.len()));
        }
        Reply::error(format!(
            "ERR unknown command {open}{name}{close}, with args beginning with: {args}"
        ))
    }

    /// A subcommand that does not exist, or (6.2) not with this number of words.
    pub(crate) fn unknown_subcommand(&self, words: &[&[u8]]) -> Reply {
        let most = if self.version.is_6() { usize::MAX } else { 128 };
        let text = c_text(words.get(1).copied().unwrap_or_default(), most);
        let upper = String::from_utf8_lossy(words[0]).to_uppercase();
        if self.version.is_6() {
            let text = format!(
                "ERR Unknown subcommand or wrong number of arguments for '{text}'. Try {upper} HELP."
            );
            return Reply::error(text);
        }
        Reply::error(format!("ERR unknown subcommand '{text}'. Try {upper} HELP."))
    }
}

/// As C prints it: to its first NUL, and no longer than this. Each byte is a character: see [`Reply::error`].
pub(crate) fn c_text(bytes: &[u8], most: usize) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes[..end.min(most)].iter().copied().map(char::from).collect()
}

pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
pub(crate) const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

pub(crate) fn wrong_arity(name: &str) -> Reply {
    Reply::error(format!("ERR wrong number of arguments for '{name}' command"))
}
