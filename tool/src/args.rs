//! The commands and options of the command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use parklock::operator::{self, Namespaces};
use parklock::{Config, Layout, Tls};
use serde::{Deserialize, Serialize};

use crate::failure::{CONNECTING, Failure};
use crate::{exit, span};

/// Run commands under locks in Redis, and see who holds what.
///
/// The URL of Redis is --url, or else PARKLOCK_URL, or else REDIS_URL, or else redis://127.0.0.1:6379. It begins with
/// redis://, rediss://, redis+unix://, redis-cluster://, rediss-cluster://, redis-sentinel:// or rediss-sentinel://.
#[derive(Debug, Parser)]
#[command(name = "parklock", version, after_help = exit::TABLE)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while the lock is held
    ///
    /// The command runs without a shell. Its stdin, stdout and stderr are those of the tool. It gets PARKLOCK_NAME,
    /// PARKLOCK_TOKEN (greater with each hold: let the resource refuse a smaller one), PARKLOCK_LEASE_MS and
    /// PARKLOCK_HELD=1. The tool passes signals on to the command and to all processes of its group. If the tool cannot
    /// renew the lock, the command gets TERM in time, and KILL before another caller can get the lock. If the server
    /// says that the lock is gone, the command gets KILL at once.
    #[command(after_help = exit::TABLE)]
    Run(Run),
    /// Take the lock, print a line about it, and hold it until INT or TERM
    ///
    /// The line is JSON: name, kind, token, lease_ms. Exit code 0 if the lock was held to the end, 75 if it was lost.
    #[command(after_help = exit::TABLE)]
    Hold(Lock),
    /// Run a command while this machine is the leader, and again after a loss
    ///
    /// The tool waits for the lock, and then runs the command as `run` does. If the lock is lost, the tool ends the
    /// command and waits for the lock again. If the command ends by itself, the tool gives the lock back, and ends with
    /// the command's exit code.
    #[command(after_help = exit::TABLE)]
    Elect(Run),
    /// List who holds what
    #[command(visible_alias = "list")]
    Ls(Ls),
    /// Show all that Redis knows of one lock
    ///
    /// Exit code 1 if nobody holds it, nobody waits for it, and no job has claimed its interval.
    Info(Info),
    /// Watch the list
    ///
    /// If stdout is not a terminal, it prints the list once.
    Top(Top),
    /// Take a lock away from its holders
    ///
    /// For operators. The holder learns of it at its next renewal at the latest, or with a fixed lease at its deadline,
    /// and works without protection until then. The tool names the holders and asks before it takes the lock away.
    Unlock(Unlock),
    /// Check whether this server is fit for locks
    ///
    /// Each line is ok, warn or bad, with what to do. Exit code 1 if a line is bad.
    Doctor(Doctor),
    /// Measure this server: parklock beside a simple lock that polls
    Bench(Bench),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page
    Man {
        /// Write a page for each command into this folder instead
        #[arg(long, value_name = "FOLDER")]
        to: Option<PathBuf>,
    },
}

/// Where the locks are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Server {
    /// The URL of Redis [default: PARKLOCK_URL, REDIS_URL, redis://127.0.0.1:6379]. For rediss://, PARKLOCK_CA may name a
    /// file of certificate authorities, PARKLOCK_CERT and PARKLOCK_KEY the files of a client certificate
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) url: Option<String>,
    /// Whose keys: parklock's, or those of Redisson (Java)
    #[arg(long, default_value = "native", value_name = "LAYOUT", value_parser = layout())]
    pub(crate) layout: Layout,
    /// The part of the key space: that of Config::namespace; '*' is all of them, for ls, top and doctor [default:
    /// PARKLOCK_NAMESPACE, or none]
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

fn layout() -> impl TypedValueParser<Value = Layout> {
    let of = |word: String| if word == "redisson" { Layout::Redisson } else { Layout::Native };
    PossibleValuesParser::new(["native", "redisson"]).map(of)
}

/// Whose keys a question is about.
#[derive(Debug, Clone)]
pub(crate) struct Realm {
    pub(crate) layout: Layout,
    pub(crate) namespaces: Namespaces,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// One at a time
    #[default]
    Lock,
    /// One at a time, strictly first come, first served
    Fair,
    /// Together with other readers, but with no writer
    Read,
    /// One writer at a time, and no readers
    Write,
    /// At most --permits at a time
    Semaphore,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM when the lock can no longer be renewed, KILL before another caller can get it
    #[default]
    Term,
    /// No TERM: KILL before another caller can get the lock
    Kill,
    /// The command continues; only the exit code shows the loss
    Ignore,
}

/// Which lock, and how it is taken.
#[derive(Debug, Clone, Args)]
pub(crate) struct Lock {
    /// The name of the lock
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: Server,
    /// Do not wait
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Wait at most this long; a bare number is seconds
    #[arg(short, long, value_name = "TIME", value_parser = span::parse)]
    pub(crate) wait: Option<Duration>,
    /// The exit code if the lock was not free in time
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::BUSY)]
    pub(crate) conflict_exit_code: u8,
    /// A lock that was not free in time is no failure: exit code 0
    #[arg(short = 'x', long, conflicts_with = "conflict_exit_code")]
    pub(crate) busy_ok: bool,
    /// The kind of the lock; a name has one kind
    #[arg(long, value_enum, default_value_t, value_name = "KIND")]
    pub(crate) kind: Kind,
    /// How many callers may hold a semaphore at a time [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<u32>,
    /// Hold it for this time and no longer, without renewal
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub(crate) lease: Option<Duration>,
    /// How long Redis keeps the lock if this machine fails; the tool renews it each third of this time [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = span::parse, conflicts_with = "lease")]
    pub(crate) watchdog: Option<Duration>,
    /// Keep others out for at least this time, also if the work ends early; at most nine tenths of --lease
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub(crate) min_hold: Option<Duration>,
    /// Stop renewing it after this time; it is lost when its lease then ends
    #[arg(long, value_name = "TIME", value_parser = span::parse, conflicts_with = "lease")]
    pub(crate) max_hold: Option<Duration>,
    /// Print events as JSON on stderr, one per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    pub(crate) quiet: bool,
    /// Print more; twice: also the library's log
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The command that runs under the lock.
#[derive(Debug, Clone, Args)]
pub(crate) struct Work {
    /// What happens to the command if the lock is lost
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub(crate) on_lost: OnLost,
    /// How long before the KILL the command gets TERM; at most a third of the lease
    #[arg(short, long, value_name = "TIME", value_parser = span::parse, default_value = "5s")]
    pub(crate) kill_after: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// A command under a lock.
#[derive(Debug, Clone, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) lock: Lock,
    #[command(flatten)]
    pub(crate) work: Work,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Ls {
    /// Only names that match this pattern: * ? [ab]
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    #[command(flatten)]
    pub(crate) server: Server,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Info {
    /// The name of the lock
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: Server,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Top {
    /// Only names that match this pattern: * ? [ab]
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    #[command(flatten)]
    pub(crate) server: Server,
    /// The time between two updates
    #[arg(short, long, value_name = "TIME", value_parser = span::parse, default_value = "1s")]
    pub(crate) interval: Duration,
    /// Print the list once, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Same as --once, with one JSON object per line
    #[arg(long, conflicts_with = "deadlocks")]
    pub(crate) json: bool,
    /// Show clients that wait for each other in a circle, and nothing else
    #[arg(long)]
    pub(crate) deadlocks: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Unlock {
    /// The name of the lock
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: Server,
    /// Take the lock away, whoever holds it
    #[arg(long, required = true)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) server: Server,
    /// For a program with Config::plain_channels: it shares a cluster with a Redisson that has no sharded channels. Needs
    /// --layout redisson
    #[arg(long)]
    pub(crate) plain_channels: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) server: Server,
    /// The length of the whole measurement in seconds
    #[arg(short, long, value_name = "N", default_value_t = 60)]
    pub(crate) seconds: u64,
    /// How many clients want the same lock
    #[arg(short, long, value_name = "N", default_value_t = 8)]
    pub(crate) clients: usize,
    /// One JSON object for each case
    #[arg(long)]
    pub(crate) json: bool,
}

impl Command {
    /// The lock that this command takes.
    pub(crate) fn lock(&self) -> Option<&Lock> {
        match self {
            Self::Run(Run { lock, .. }) | Self::Elect(Run { lock, .. }) | Self::Hold(lock) => {
                Some(lock)
            }
            _ => None,
        }
    }
}

impl Server {
    /// The URL of Redis.
    pub(crate) fn url(&self) -> String {
        self.named().unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned())
    }

    /// The URL that the user has named.
    fn named(&self) -> Option<String> {
        let variables = ["PARKLOCK_URL", "REDIS_URL"];
        self.url.clone().or_else(|| variables.into_iter().find_map(of_environment))
    }

    /// A failure in words. If no server answers and the user has named none, that is why.
    pub(crate) fn explained(&self, code: u8, why: &str) -> String {
        if code == exit::UNAVAILABLE && self.named().is_none() {
            format!(
                "{why} (this is the default: name a server with --url, PARKLOCK_URL or REDIS_URL)"
            )
        } else {
            why.to_owned()
        }
    }

    fn namespace(&self) -> Option<String> {
        self.namespace.clone().or_else(|| of_environment("PARKLOCK_NAMESPACE"))
    }

    /// Whose keys the command is about.
    pub(crate) fn realm(&self) -> parklock::Result<Realm> {
        let namespaces = match self.namespace() {
            None => Namespaces::None,
            Some(all) if all == ALL => Namespaces::All,
            Some(name) => Namespaces::one(name)?,
        };
        Ok(Realm { layout: self.layout, namespaces })
    }

    /// The same, for a command about one lock.
    pub(crate) fn one_realm(&self) -> Result<Realm, Failure> {
        let realm = self.realm()?;
        if realm.namespaces == Namespaces::All {
            return Err(Failure::config(NOT_ALL));
        }
        Ok(realm)
    }

    /// The settings of a client that takes locks. If the question is about all namespaces, the client is in none.
    pub(crate) fn config(&self) -> Config {
        let config = Config::default().layout(self.layout).connect_timeout(CONNECTING);
        let namespace = self.namespace().filter(|name| name != ALL);
        let config = namespace.iter().fold(config, Config::namespace);
        if !self.url().starts_with("rediss") {
            return config;
        }
        let TlsFiles { authorities, identity } = TlsFiles::of_environment();
        let tls = authorities.into_iter().fold(Tls::new(), Tls::ca_file);
        config.tls(identity.into_iter().fold(tls, |tls, (cert, key)| tls.identity_files(cert, key)))
    }
}

/// All namespaces.
const ALL: &str = "*";
const NOT_ALL: &str = "--namespace '*' is only for ls, top and doctor: name one";

/// A variable of the environment that has a value.
fn of_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The files for `rediss://` that the environment names.
pub(crate) struct TlsFiles {
    /// The certificate authorities that the user trusts instead of the public ones: `PARKLOCK_CA`.
    pub(crate) authorities: Option<PathBuf>,
    /// The certificate and the key of the user: `PARKLOCK_CERT` and `PARKLOCK_KEY`. If only one is named, the other cannot be read.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    pub(crate) fn of_environment() -> Self {
        let file = |name| of_environment(name).map(PathBuf::from);
        let (cert, key) = (file("PARKLOCK_CERT"), file("PARKLOCK_KEY"));
        let has_identity = cert.is_some() || key.is_some();
        let identity = has_identity.then(|| (cert.unwrap_or_default(), key.unwrap_or_default()));
        Self { authorities: file("PARKLOCK_CA"), identity }
    }
}

/// All locks that this process runs under, each with its tool, as JSON.
pub(crate) const OUTER: &str = "PARKLOCK_OUTER";

/// A tool under whose lock this process runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Outer {
    name: String,
    namespace: Option<String>,
    kind: Kind,
    /// Of two containers, the first process has the same pid.
    pub(crate) host: String,
    pub(crate) pid: u32,
}

impl Outer {
    fn all() -> Vec<Self> {
        let tools = of_environment(OUTER).and_then(|tools| serde_json::from_str(&tools).ok());
        tools.unwrap_or_default()
    }
}

impl Lock {
    /// The lease that a hold begins with.
    pub(crate) fn lease(&self) -> Duration {
        self.lease.or(self.watchdog).unwrap_or(Duration::from_secs(30))
    }

    /// The tools under whose lock of the same name this process runs, if they leave no room in it: then it waits for itself, unless
    /// that lock was given back, or lies on another server or in the other layout.
    pub(crate) fn outer_tools(&self) -> Vec<Outer> {
        let namespace = self.server.namespace();
        let keeps_us_out = |outer: &Outer| match self.kind {
            Kind::Read => outer.kind == Kind::Write,
            Kind::Semaphore => outer.kind == Kind::Semaphore,
            Kind::Lock | Kind::Fair | Kind::Write => true,
        };
        let mut outer = Outer::all();
        outer.retain(|outer| {
            outer.name == self.name && outer.namespace == namespace && keeps_us_out(outer)
        });
        let room = if self.kind == Kind::Semaphore { self.permits() as usize } else { 1 };
        if outer.len() < room { Vec::new() } else { outer }
    }

    /// What the command under this lock finds in [`OUTER`].
    pub(crate) fn tools_for_inner(&self) -> String {
        let mut tools = Outer::all();
        tools.push(Outer {
            name: self.name.clone(),
            namespace: self.server.namespace(),
            kind: self.kind,
            host: operator::host(),
            pid: std::process::id(),
        });
        serde_json::to_string(&tools).unwrap_or_default() // it can be written
    }

    /// For how long a lock with a lease of its own is surely held. The client counts from before the grant, and gives the lock up a
    /// little before the server does.
    pub(crate) fn sure_lease(&self) -> Option<Duration> {
        self.lease.map(|lease| lease / 10 * 9)
    }

    /// How many callers may hold the lock at a time.
    pub(crate) fn permits(&self) -> u32 {
        self.permits.unwrap_or(1)
    }

    /// The exit code and the error for options that contradict each other, if some do.
    pub(crate) fn contradiction(&self) -> Option<(u8, &'static str)> {
        let is_too_long =
            |most: Option<Duration>| most.is_some_and(|most| self.min_hold > Some(most));
        if is_too_long(self.sure_lease()) {
            let why = "--min-hold is longer than nine tenths of --lease: the lock is lost a little before its lease ends";
            Some((exit::CONFIG, why))
        } else if is_too_long(self.max_hold) {
            Some((exit::CONFIG, "--min-hold is longer than --max-hold"))
        } else if self.permits.is_some() && self.kind != Kind::Semaphore {
            Some((exit::USAGE, "--permits is only for --kind semaphore"))
        } else if self.server.namespace().as_deref() == Some(ALL) {
            Some((exit::CONFIG, NOT_ALL))
        } else {
            None
        }
    }

    /// The exit code if the lock was not free in time.
    pub(crate) fn busy_code(&self) -> u8 {
        if self.busy_ok { exit::OK } else { self.conflict_exit_code }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_user_who_has_named_no_server_learns_which_one_was_tried() {
        let text = |url: Option<&str>, code| {
            let (url, layout) = (url.map(str::to_owned), Layout::Native);
            Server { url, layout, namespace: None }.explained(code, "refused")
        };
        assert_eq!(text(Some("redis://h"), exit::UNAVAILABLE), "refused");
        assert_eq!(text(None, exit::PERMISSION), "refused");
        let is_named = Server { url: None, layout: Layout::Native, namespace: None }.named();
        assert_eq!(text(None, exit::UNAVAILABLE).contains("--url"), is_named.is_none());
    }

    #[test]
    fn a_lock_may_be_held_on_for_nine_tenths_of_its_lease() {
        let contradiction = |min_hold: &str| {
            let words = ["parklock", "hold", "--lease", "10s", "--min-hold", min_hold, "a"];
            let command = Cli::try_parse_from(words).expect("it is right").command;
            command.lock().expect("it takes a lock").contradiction()
        };
        assert_eq!(contradiction("9s"), None);
        let (code, why) = contradiction("9.01s").expect("it is too long");
        assert!(why.contains("--min-hold") && why.contains("--lease"), "{why}");
        assert_eq!(code, exit::CONFIG);
    }

    #[test]
    fn what_follows_the_dashes_is_the_command_alone() {
        let cli = Cli::try_parse_from(["parklock", "run", "-n", "a", "--", "sh", "-c", "-n"]);
        let Command::Run(run) = cli.expect("it is right").command else { panic!("it is a run") };
        assert!(run.lock.nonblock);
        assert_eq!((run.lock.name.as_str(), run.work.command.len()), ("a", 3));
    }
}
