//! Scripts by name, though the wire knows them by hash.

#[path = "../../../src/wire/scripts.rs"]
#[allow(dead_code, reason = "the library needs more of it")]
mod ours;

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::Script;

use self::ours::Dialect;

/// The texts of the library's scripts, by hash. A client does not load what its server knows, so they may never pass by.
static OURS: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let dialects = [Dialect::Plain, Dialect::Sharded, Dialect::Both];
    let spelled =
        |dialect| ours::ALL.iter().map(move |script| (script.hash(dialect), script.text(dialect)));
    let all = dialects.into_iter().flat_map(spelled);
    all.map(|(hash, text)| (hash.to_owned(), text.to_owned())).collect()
});

/// Which hash belongs to which name: by the texts of the library, and those that pass by.
#[derive(Debug)]
pub(super) struct Scripts {
    given: Vec<(String, String)>,
    texts: HashMap<String, String>,
    names: HashMap<String, Vec<String>>,
}

impl Default for Scripts {
    fn default() -> Self {
        Self { given: Vec::new(), texts: OURS.clone(), names: HashMap::new() }
    }
}

impl Scripts {
    /// From now on `name` means every script whose text is or contains `part`, and whatever else it means already. A script
    /// may have several names.
    pub(super) fn name(&mut self, name: &str, part: &str) {
        self.name_as_spelled(name, part);
        // Nodes of a cluster publish in their own way.
        let sharded = part.replace("'publish'", "'spublish'");
        if sharded != part {
            self.name_as_spelled(name, &sharded);
        }
    }

    fn name_as_spelled(&mut self, name: &str, part: &str) {
        self.given.push((name.to_owned(), part.to_owned()));
        // The part may be the whole text of a script that was loaded past us.
        self.names.entry(hash(part)).or_default().push(name.to_owned());
        for (hash, _) in self.texts.iter().filter(|(_, text)| text.contains(part)) {
            self.names.entry(hash.clone()).or_default().push(name.to_owned());
        }
    }

    /// The names of the script that a request runs, if it runs one that has names.
    pub(super) fn run_by(&self, command: &[u8], argument: Option<&[u8]>) -> &[String] {
        let Some(argument) = argument.and_then(|argument| str::from_utf8(argument).ok()) else {
            return &[];
        };
        let hash = match () {
            () if is_any(command, &["EVALSHA", "EVALSHA_RO"]) => argument.to_ascii_lowercase(),
            () if is_any(command, &["EVAL", "EVAL_RO"]) => hash(argument),
            () => return &[],
        };
        self.names.get(&hash).map_or(&[], Vec::as_slice)
    }

    /// Remembers the text in `EVAL text ..` and `SCRIPT LOAD text`.
    pub(super) fn learn(&mut self, command: &[u8], arguments: [Option<&[u8]>; 2]) {
        let text = match arguments {
            [Some(text), _] if is_any(command, &["EVAL", "EVAL_RO"]) => text,
            [Some(load), Some(text)] if is_any(command, &["SCRIPT"]) && is_any(load, &["LOAD"]) => {
                text
            }
            _ => return,
        };
        let text = String::from_utf8_lossy(text).into_owned();
        let hash = hash(&text);
        let given = self.given.iter().filter(|(_, part)| text.contains(part));
        self.names.insert(hash.clone(), given.map(|(name, _)| name.clone()).collect());
        self.texts.insert(hash, text);
    }
}

pub(super) fn is_any(word: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

fn hash(text: &str) -> String {
    Script::new(text).get_hash().to_owned()
}
