//! One direction of a connection: frames go in, wait for their turn, and come out as their faults demand.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::WriteHalf;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep, sleep_until};

use super::fault::Fault;
use super::judge::{Strike, Verb};
use super::link::{End, Link};
use super::net::Net;

/// Between two slices, so that the reader wakes for each.
const SLICE_PACE: Duration = Duration::from_millis(1);

/// What is to be done, strictly one after the other.
enum Step {
    Send(Vec<u8>),
    Slices(Vec<u8>, usize),
    WaitUntil(Instant),
    Hold(Fault),
    Reset(Fault),
}

pub(super) fn way() -> (Entry, Exit) {
    let (steps, queue) = mpsc::unbounded_channel();
    (Entry { steps, batch: Vec::new(), is_cut: false }, Exit(queue))
}

/// Where the frames go in. What nothing strikes is gathered and goes out in one write.
pub(super) struct Entry {
    steps: UnboundedSender<Step>,
    batch: Vec<u8>,
    is_cut: bool,
}

impl Entry {
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        self.batch.extend_from_slice(bytes);
    }

    pub(super) fn send(&mut self, frame: &[u8], strikes: Vec<Strike>) {
        if strikes.is_empty() {
            return self.pass(frame);
        }
        self.flush();
        let (mut slice, mut swallowed) = (None, false);
        for Strike { verb, fault } in strikes {
            match verb {
                Verb::Cut { after } => return self.cut(&frame[..after.min(frame.len())], fault),
                Verb::Hold => self.step(Step::Hold(fault)),
                Verb::Delay { base, .. } => self.delay(base, &fault),
                Verb::Pass => fault.fire(),
                Verb::Swallow => swallowed = fired(&fault),
                Verb::Slice { bytes } => slice = fired(&fault).then_some(bytes),
            }
        }
        match slice {
            _ if swallowed => {}
            Some(bytes) => self.step(Step::Slices(frame.to_vec(), bytes)),
            None => self.pass(frame),
        }
    }

    pub(super) fn flush(&mut self) {
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.step(Step::Send(batch));
        }
    }

    /// Nothing is taken any more after a cut.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn cut(&mut self, begun: &[u8], fault: Fault) {
        self.pass(begun);
        self.flush();
        self.step(Step::Reset(fault));
        self.is_cut = true;
    }

    /// The time counts from now, not from the frame's turn: a delayed stream is late, not slow.
    fn delay(&self, delay: Duration, fault: &Fault) {
        fault.fire();
        self.step(Step::WaitUntil(Instant::now() + delay));
    }

    fn step(&self, step: Step) {
        let _ = self.steps.send(step); // refused only while the connection is being torn down
    }
}

fn fired(fault: &Fault) -> bool {
    fault.fire();
    true
}

/// Where they come out.
pub(super) struct Exit(UnboundedReceiver<Step>);

impl Exit {
    /// Works off every step until the entry is gone, then says goodbye to the peer.
    ///
    /// Failed writes are ignored: that the peer has gone is noticed where it is read from, and the faults that
    /// are still queued must happen all the same.
    pub(super) async fn run(
        mut self,
        net: &Net,
        link: &Link,
        mut peer: WriteHalf<'_>,
    ) -> Result<(), End> {
        while let Some(step) = self.0.recv().await {
            match step {
                Step::Send(bytes) => write(net, link, &mut peer, &bytes).await,
                Step::Slices(bytes, size) => slices(net, link, &mut peer, bytes.chunks(size)).await,
                Step::WaitUntil(due) => sleep_until(due).await,
                Step::Hold(fault) => fault.hold().await,
                Step::Reset(fault) => {
                    fault.fire();
                    return Err(End::Reset);
                }
            }
        }
        net.lit(link).await;
        let _ = peer.shutdown().await;
        Ok(())
    }
}

async fn slices(
    net: &Net,
    link: &Link,
    peer: &mut WriteHalf<'_>,
    slices: impl Iterator<Item = &[u8]>,
) {
    for slice in slices {
        write(net, link, peer, slice).await;
        sleep(SLICE_PACE).await;
    }
}

async fn write(net: &Net, link: &Link, peer: &mut WriteHalf<'_>, bytes: &[u8]) {
    net.lit(link).await;
    let _ = peer.write_all(bytes).await;
}
