//! Notes which compiler and which crate versions the numbers will belong to.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const NAMED: [&str; 6] = ["parklock", "rlock", "rslock", "async-redis-lock", "redis", "tokio"];

fn main() {
    println!("cargo::rustc-env=COMPARE_RUSTC={}", rustc());
    let Some(lock) = lock_file() else {
        println!("cargo::rustc-env=COMPARE_CRATES=");
        return;
    };
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = fs::read_to_string(lock).unwrap_or_default();
    let versions: Vec<String> =
        NAMED.iter().filter_map(|name| Some(format!("{name} {}", version(&text, name)?))).collect();
    println!("cargo::rustc-env=COMPARE_CRATES={}", versions.join(","));
}

fn rustc() -> String {
    let compiler = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let said = Command::new(compiler).arg("--version").output();
    said.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default()
}

/// The nearest `Cargo.lock`: the workspace's, wherever its root is.
fn lock_file() -> Option<PathBuf> {
    let home = env::var("CARGO_MANIFEST_DIR").ok()?;
    Path::new(&home).ancestors().map(|folder| folder.join("Cargo.lock")).find(|path| path.exists())
}

fn version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let entry = lock
        .split("[[package]]")
        .find(|entry| entry.trim_start().starts_with(&format!("name = \"{name}\"\n")))?;
    let rest = entry.split_once("version = \"")?.1;
    Some(rest.split_once('"')?.0)
}
