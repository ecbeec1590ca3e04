//! Tidiness that a compiler does not check: which module may import which, and what every file has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From top to bottom: a module may import what stands in its own line or below.
const LAYERS: [&[&str]; 12] = [
    &["lib"],
    &["blocking", "testing", "tower"],
    &["client", "operator"],
    &["fleet"],
    &["locks"],
    &["guards"],
    &["engine"],
    &["core"],
    &["wire"],
    &["keys"],
    &["kinds", "slot"],
    &[
        "compact_instant",
        "config",
        "credentials",
        "error",
        "failures",
        "log",
        "meters",
        "mutex",
        "owner",
        "pause",
        "streams",
        "token",
        "tls",
        "wakers",
    ],
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a folder with this extension, with its path relative to the folder.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let (top, mut found) = (root().join(folder), Vec::new());
    let mut open = vec![top.clone()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            match path.is_dir() {
                true => open.push(path),
                false if path.extension().is_some_and(|e| e == extension) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found.iter().map(|path| read(&top, path)).collect()
}

fn read(top: &Path, path: &PathBuf) -> (String, String) {
    let name = path.strip_prefix(top).expect("it is below").to_str().expect("an ordinary name");
    (name.replace('\\', "/"), fs::read_to_string(path).expect("a readable file"))
}

/// The module of the first level that a file belongs to.
fn module(file: &str) -> &str {
    file.split('/').next().and_then(|first| first.split('.').next()).expect("a name")
}

/// The part before the unit tests, which may import any module.
fn tested(text: &str) -> &str {
    let before = text.split("#[cfg(test)]\nmod tests").next().expect("a first part");
    before.split("#[cfg(test)]\npub(crate) mod tests").next().expect("a first part")
}

fn layer(module: &str) -> usize {
    let layer = LAYERS.iter().position(|layer| layer.contains(&module));
    layer.unwrap_or_else(|| panic!("the module {module} has no layer: see the top of this file"))
}

/// The modules of the first level that a text names with `crate::`, in a `use` or elsewhere. Comments do not count:
/// they name things for readers. Nor do names in capitals: what `lib.rs` exports.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    let code = tested(text).lines().filter(|line| !line.trim_start().starts_with("//"));
    let named = code.flat_map(|line| line.split("crate::").skip(1)).flat_map(first_words);
    named.filter(|word| word.starts_with(char::is_lowercase))
}

/// Of `a::B, C` the `a`, of `{a::B, c}` the `a` and the `c`.
fn first_words(path: &str) -> impl Iterator<Item = &str> {
    let (list, most) = path.strip_prefix('{').map_or((path, 1), |list| (list, usize::MAX));
    list.split([',', '}']).take(most).filter_map(|path| path.trim().split(|c| !is_word(c)).next())
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Whether an import names a module that stands above the file's.
fn climbs(file: &str, import: &str) -> bool {
    layer(import) < layer(module(file))
}

#[test]
fn imports_go_downwards() {
    let sources = files("src", "rs");
    assert!(sources.len() > 20, "the sources are found");
    for (file, text) in sources {
        let climbing: Vec<_> = imports(&text).filter(|import| climbs(&file, import)).collect();
        assert_eq!(climbing, Vec::<&str>::new(), "imported by src/{file}");
    }
}

#[test]
fn the_check_finds_an_import_upwards() {
    let text = "use crate::engine::{Engine, Tenure};\nfn f(x: crate::client::Client) {}\n\
                use crate::{keys::Keys, guards};\n// crate::locks\npub(in crate::wire) mod x;\n";
    assert_eq!(imports(text).collect::<Vec<_>>(), ["engine", "client", "keys", "guards", "wire"]);
    assert!(climbs("wire/link.rs", "engine") && climbs("engine/caller.rs", "guards"));
    assert!(climbs("guards/write_guard.rs", "locks") && !climbs("locks/rw_lock.rs", "guards"));
    assert!(climbs("token.rs", "wire") && climbs("client.rs", "lib"));
    assert!(climbs("fleet/every.rs", "client") && !climbs("fleet/every.rs", "locks"));
    assert!(!climbs("engine/caller.rs", "engine") && !climbs("locks/lock.rs", "engine"));
}

/// What the code of the core must not name: whatever waits, locks, speaks to a server, or asks what time it is.
const IMPURE: [&str; 8] = [
    "async ",
    ".await",
    "std::sync",
    "std::thread",
    "crate::mutex",
    "crate::wire",
    "redis::",
    "::now()",
];

/// Why a line of the core is not plain, if it is not. Of Tokio it may name the instant alone.
fn is_impure(line: &str) -> bool {
    let names_tokio = line.replace("tokio::time::Instant", "").contains("tokio");
    names_tokio || IMPURE.iter().any(|word| line.contains(word))
}

#[test]
fn the_core_does_no_io_and_locks_nothing_and_reads_no_clock() {
    let core =
        files("src/core", "rs").into_iter().filter(|(file, _)| !file.contains("model_check"));
    let mut lines = 0;
    for (file, text) in core {
        for line in tested(&text).lines().filter(|line| !line.trim_start().starts_with("//")) {
            assert!(!is_impure(line), "src/core/{file}: {line}");
            lines += 1;
        }
    }
    assert!(lines > 500, "the core is found");
    for impure in ["use tokio::sync::Notify;", "let now = Instant::now();", "use std::sync::Arc;"] {
        assert!(is_impure(impure));
    }
}

/// The folders of `src/` at any depth. The modules of a folder may not import each other in a circle.
fn folders() -> BTreeSet<String> {
    let folder = |(file, _): (String, String)| Some(file.rsplit_once('/')?.0.to_owned());
    files("src", "rs").into_iter().filter_map(folder).collect()
}

/// Which module of a folder imports which. `mod.rs` is the module `mod`: whoever names what it exports or defines
/// imports it.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn graph(folder: &str, sources: &[(String, String)]) -> Graph {
    let mut graph = Graph::new();
    for (file, text) in sources {
        let imported = imports_within(folder, text).filter(|import| *import != module(file));
        let node: &mut BTreeSet<_> = graph.entry(module(file).to_owned()).or_default();
        node.extend(imported.map(str::to_owned));
        if file == "mod.rs" {
            node.extend(declared(text).map(str::to_owned));
        }
    }
    graph
}

/// The modules that a `mod.rs` consists of: it shows what they hold.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    let names = text.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
    names.filter(|name| name.chars().all(is_word))
}

/// The modules of a folder that a text names: `mod` for whatever begins with a capital, since that comes from `mod.rs`, or
/// from the file that has the folder's name.
fn imports_within<'a>(folder: &str, text: &'a str) -> impl Iterator<Item = &'a str> {
    let prefix = format!("crate::{}::", folder.replace('/', "::"));
    let named: Vec<_> = tested(text).match_indices(&prefix).collect();
    let is_code = |at: usize| {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        !text[line..at].trim_start().starts_with("//")
    };
    let named = named.into_iter().filter(move |(at, _)| is_code(*at));
    let length = prefix.len();
    named
        .flat_map(move |(at, _)| {
            let path = &text[at + length..];
            let path = path.split(';').next().expect("a first part");
            first_words(path).filter(|word| !word.is_empty()).collect::<Vec<_>>()
        })
        .map(|word| if word.starts_with(char::is_lowercase) { word } else { "mod" })
}

/// A chain of imports from a module back to itself, if there is one.
fn circle(graph: &Graph) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| follow(graph, start, &mut Vec::new(), &mut done))
}

fn follow(
    graph: &Graph,
    at: &str,
    way: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(begin) = way.iter().position(|before| before == at) {
        return Some(way[begin..].to_vec());
    }
    if done.contains(at) {
        return None;
    }
    way.push(at.to_owned());
    let imported = graph.get(at).into_iter().flatten();
    let circle = imported.into_iter().find_map(|next| follow(graph, next, way, done));
    way.pop();
    done.insert(at.to_owned());
    circle
}

#[test]
fn no_modules_of_a_folder_import_each_other_in_a_circle() {
    let folders = folders();
    assert!(folders.contains("engine") && folders.contains("engine/entry"), "they are found");
    for folder in folders {
        let sources = files(&format!("src/{folder}"), "rs");
        assert_eq!(circle(&graph(&folder, &sources)), None, "in src/{folder}");
    }
}

#[test]
fn the_check_finds_a_circle() {
    let source = |file: &str, text: &str| (file.to_owned(), text.to_owned());
    let entry = "use crate::engine::tenure::Tenure;\n// crate::engine::wait\n";
    let list =
        "use crate::engine::{\n    Engine,\n    entry::Entry,\n};\nuse crate::wire::Fault;\n";
    assert_eq!(imports_within("engine", list).collect::<Vec<_>>(), ["mod", "entry"]);
    let straight = [source("entry.rs", entry), source("caller.rs", list), source("line/x.rs", "")];
    assert_eq!(circle(&graph("engine", &straight)), None);
    let round = [source("entry.rs", entry), source("tenure.rs", list)];
    assert_eq!(circle(&graph("engine", &round)).expect("a circle"), ["entry", "tenure"]);
}

#[test]
fn children_do_not_name_their_parent() {
    for (file, text) in files("src", "rs") {
        let climbs = tested(&text).lines().filter(|line| line.contains("super::"));
        assert_eq!(climbs.collect::<Vec<_>>(), Vec::<&str>::new(), "src/{file}");
    }
}

#[test]
fn only_wire_names_the_redis_crate() {
    for (file, text) in files("src", "rs").iter().filter(|(file, _)| !file.starts_with("wire/")) {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let names = code.filter(|line| line.contains("redis::"));
        assert_eq!(names.collect::<Vec<_>>(), Vec::<&str>::new(), "src/{file}");
    }
}

#[test]
fn every_source_says_first_what_it_is() {
    for (file, text) in files("src", "rs") {
        assert!(text.starts_with("//! "), "src/{file} begins with something else");
    }
}

#[test]
fn every_script_is_listed_and_says_first_what_it_does() {
    let (_, list) = read(root(), &root().join("src/wire/scripts.rs"));
    for (file, text) in files("lua", "lua") {
        assert!(list.contains(&format!("\"{file}\"")), "lua/{file} is not listed");
        assert!(text.starts_with("-- "), "lua/{file} begins with something else");
    }
}

/// The files that a text names, such as `engine/entry.rs`. `docs.rs` is a site.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c| !is_word(c) && c != '/' && c != '.');
    let names = words.map(|word| word.trim_matches(['.', '/']));
    names
        .filter(|name| name.ends_with(".rs") || name.ends_with(".lua"))
        .filter(|it| *it != "docs.rs")
}

/// The comments of a source.
fn comments(text: &str) -> String {
    let is_comment = |line: &&str| line.contains("//") || line.contains("--");
    text.lines().filter(is_comment).map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn every_file_that_is_named_exists() {
    let folders =
        ["src", "tests", "examples", "benches", "testing", "tool"].map(|folder| (folder, "rs"));
    let below = |(folder, extension)| {
        let files = files(folder, extension).into_iter();
        files.map(move |(file, text)| (format!("/{folder}/{file}"), comments(&text)))
    };
    let sources: Vec<_> = folders.into_iter().chain([("lua", "lua")]).flat_map(below).collect();
    let documents = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "lua/README.md"];
    let documents = documents.map(|name| read(root(), &root().join(name)));
    let exists = |name: &&str| sources.iter().any(|(file, _)| file.ends_with(&format!("/{name}")));
    let pages = ["docs", "tests"].map(|folder| files(folder, "md")).concat();
    for (file, text) in sources.iter().chain(&documents).chain(&pages) {
        let missing: Vec<_> = named(text).filter(|name| !exists(name)).collect();
        assert_eq!(missing, Vec::<&str>::new(), "named in {file}");
    }
}

#[test]
fn the_check_finds_a_named_file() {
    let text = "See `engine/entry.rs`, line.lua. And (../../lua/a.lua); not docs.rs, a.rs.md or self.luas.";
    assert_eq!(named(text).collect::<Vec<_>>(), ["engine/entry.rs", "line.lua", "lua/a.lua"]);
    assert_eq!(comments("let x; // a\nlet y;\n-- b"), "let x; // a\n-- b\n");
}

/// The row of this version in the page about upgrades.
#[test]
fn the_page_about_versions_says_what_the_manifest_says() {
    let (_, page) = read(root(), &root().join("docs/upgrading.md"));
    let (_, manifest) = read(root(), &root().join("Cargo.toml"));
    let (name, version) = (format!("| {} |", env!("CARGO_PKG_VERSION")), "version = \"");
    let needs = |dependency: &str| {
        let its = manifest.lines().filter(|line| line.starts_with(&format!("{dependency} = {{")));
        let (_, version) = its.filter_map(|line| line.split_once(version)).next().expect("needed");
        version.split('"').next().expect("its end").to_owned()
    };
    let row = page.lines().find(|line| line.starts_with(&name)).expect("a row for this version");
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    let needed = [env!("CARGO_PKG_RUST_VERSION").to_owned(), needs("tokio"), needs("redis")];
    for (cell, version) in cells[2..].iter().zip(needed) {
        assert!(cell.starts_with(&format!("{version} or later")), "{cell}: {version}");
    }
    for (crate_, feature) in
        [("metrics", "metrics"), ("rustls", "rustls-0_23"), ("http", "tower"), ("redis", "redis-1")]
    {
        let version = needs(crate_);
        let parts: Vec<_> = version.split('.').collect();
        let shared = if parts[0] == "0" { parts[..2].join(".") } else { parts[0].to_owned() };
        let named = format!("`{crate_}` {shared}");
        let row = page.lines().find(|line| line.starts_with(&format!("| `{feature}` |")));
        assert!(row.is_some_and(|row| row.contains(&named)), "{feature}: {named}");
    }
}

#[test]
fn no_code_reads_the_wall_clock() {
    for (file, text) in files("src", "rs") {
        assert!(!tested(&text).contains("SystemTime"), "src/{file}");
    }
}

/// A server may repeat a password: `wire/fault.rs` decides what is shown of the texts of its errors.
#[test]
fn one_file_reads_the_texts_of_servers_errors() {
    let reads = |text: &str| [".details()", ".detail()"].iter().any(|way| text.contains(way));
    let reading = files("src", "rs").into_iter().filter(|(_, text)| reads(tested(text)));
    assert_eq!(reading.map(|(file, _)| file).collect::<Vec<_>>(), ["wire/fault.rs"]);
}

/// A subscriber may panic: `log.rs` sees to it that this harms nobody.
#[test]
fn one_file_writes_the_lines_of_the_log() {
    let macros =
        ["error", "warn", "info", "debug", "trace"].map(|level| format!("tracing::{level}!"));
    let writes = |text: &str| macros.iter().any(|line| text.contains(line));
    let writing = files("src", "rs").into_iter().filter(|(_, text)| writes(tested(text)));
    assert_eq!(writing.map(|(file, _)| file).collect::<Vec<_>>(), ["log.rs"]);
}
