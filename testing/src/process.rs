//! The thread that the server lives on: its Lua must stay on one thread. A call is carried out while the caller waits, and
//! takes as long as a script does. So nothing is ever on its way, and Tokio's paused clock cannot run ahead of an answer.

use std::fmt;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::host::Host;

type Call = Box<dyn FnOnce(&mut Host) + Send>;

/// A way to call the server. Its thread ends with the last of them.
#[derive(Clone)]
pub(crate) struct Process {
    calls: mpsc::Sender<Call>,
    started: Instant,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

impl Process {
    pub(crate) fn start() -> Self {
        let (calls, work) = mpsc::channel::<Call>();
        let serve = move || {
            let mut host = Host::new();
            work.into_iter().for_each(|call| call(&mut host));
        };
        let named = thread::Builder::new().name("parklock-testing".to_owned());
        named.spawn(serve).expect("a thread for the server");
        Self { calls, started: Instant::now() }
    }

    /// Calls the server at the present time.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> T + Send + 'static,
    ) -> T {
        let (now, (answer, answered)) = (self.now(), mpsc::sync_channel(1));
        self.send(move |host| {
            host.pass(now);
            let done = work(host);
            let _ = answer.send((done, host.new_alarm()));
        });
        let (done, alarm) = answered.recv().expect("the server has not panicked");
        if let Some(at) = alarm {
            self.wake(at);
        }
        done
    }

    /// Calls the server, and does not wait. Later calls come after this one.
    pub(crate) fn send(&self, work: impl FnOnce(&mut Host) + Send + 'static) {
        // An error means that the server has panicked: then the next call says so.
        let _ = self.calls.send(Box::new(work));
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Looks after the server at that time.
    fn wake(&self, at: u64) {
        let Some(at) = self.started.checked_add(Duration::from_micros(at)) else { return };
        let process = self.clone();
        tokio::spawn(async move {
            sleep_until(at).await;
            process.call(|_| ());
        });
    }
}
