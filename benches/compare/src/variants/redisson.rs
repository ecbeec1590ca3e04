//! Redisson, the reference, in a small Java program beside this one: builds it and says how to run it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

/// The Java program, built.
#[derive(Clone, Debug)]
pub struct Redisson {
    jar: PathBuf,
}

impl Redisson {
    /// Builds with Maven. The error says in one line why there is none.
    pub fn build() -> Result<Self> {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("java");
        run("java", &["-version"], &home).context("no JDK: `java` does not run")?;
        run("mvn", &["-version"], &home).context("no Maven: `mvn` does not run")?;
        run("mvn", &["-q", "-B", "package"], &home).context("`mvn package` failed")?;
        Ok(Self { jar: home.join("target/compare-redisson.jar") })
    }

    /// The program and its arguments.
    pub fn command(&self) -> (PathBuf, Vec<String>) {
        let jar = self.jar.display().to_string();
        ("java".into(), vec!["-jar".into(), jar])
    }
}

fn run(program: &str, args: &[&str], home: &Path) -> Result<Output> {
    let output = Command::new(program).args(args).current_dir(home).output()?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        bail!("{}", said.lines().next().unwrap_or("it said nothing"));
    }
    Ok(output)
}
