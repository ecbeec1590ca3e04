//! Child processes that end when we do: killed on drop, and by the kernel if we are killed first.

use std::ffi::OsStr;
use std::io;
use std::process::{self, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;

type Order = (Command, mpsc::Sender<io::Result<process::Child>>);

/// All children are started by this one thread, which lives as long as the process: the kernel's parent-death signal
/// comes when the *thread* that started the child ends, and a test's thread ends early.
static NURSERY: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = mpsc::channel::<Order>();
    thread::spawn(move || {
        for (mut command, started) in inbox {
            // Nobody takes the answer if the asking test has panicked: the child must not stay then.
            if let Err(mpsc::SendError(Ok(mut orphan))) = started.send(command.spawn()) {
                let _ = orphan.kill().and_then(|()| orphan.wait().map(drop));
            }
        }
    });
    orders
});

static HAS_SETPRIV: LazyLock<bool> = LazyLock::new(|| {
    let mut probe = Command::new("setpriv");
    probe.args(["--pdeathsig", "KILL", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
});

/// A command for `program` that the kernel kills when this process ends (where `setpriv` exists).
pub fn command(program: impl AsRef<OsStr>) -> Command {
    if !*HAS_SETPRIV {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// A running child. Its pid cannot be given to another process before it is reaped here, so signals hit nobody else.
#[derive(Debug)]
pub struct Child(process::Child);

impl Child {
    pub fn start(command: Command) -> Self {
        let (started, answer) = mpsc::channel();
        NURSERY.send((command, started)).expect("the nursery outlives every test");
        let child = answer.recv().expect("the nursery answers");
        Self(child.expect("the program starts"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn pipes(&mut self) -> (process::ChildStdin, process::ChildStdout) {
        let both = self.0.stdin.take().zip(self.0.stdout.take());
        both.expect("started with pipes, which are taken once")
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<process::ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends a signal by name, such as `STOP`. The shell does it, for the standard library cannot.
    pub fn signal(&self, name: &str) {
        let kill =
            Command::new("sh").args(["-c", &format!("kill -{name} {}", self.pid())]).status();
        assert!(kill.is_ok_and(|status| status.success()), "SIG{name} reaches {}", self.pid());
    }

    /// `kill -9`; the process is gone when this returns.
    pub fn kill(&mut self) {
        let _ = self.0.kill(); // refused only if it has ended already
        let _ = self.0.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
