//! A way to the server that takes longer: passes bytes on unchanged, each a fixed time after it came.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Accepts until it is dropped. Threads, not tasks: a runtime's timer rounds up to the next millisecond.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl Proxy {
    /// Leads to `port` of this machine; each direction takes `delay` longer.
    pub fn start(port: u16, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let proxy = Self { port: listener.local_addr()?.port(), is_over: Arc::default() };
        let is_over = proxy.is_over.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if is_over.load(Relaxed) {
                    return;
                }
                // A connection that cannot be made ends for the client as any broken one does.
                let _ = join(&near, port, delay);
            }
        });
        Ok(proxy)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // Wakes the accepting thread; the connections end with their clients.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn join(near: &TcpStream, port: u16, delay: Duration) -> Result<()> {
    let far = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    one_way(near.try_clone()?, far.try_clone()?, delay);
    one_way(far, near.try_clone()?, delay);
    Ok(())
}

fn one_way(from: TcpStream, to: TcpStream, delay: Duration) {
    let (sender, receiver) = channel();
    thread::spawn(move || take_in(from, &sender, delay));
    thread::spawn(move || give_out(to, &receiver));
}

fn take_in(mut from: TcpStream, due: &Sender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if due.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
            return;
        }
    }
}

fn give_out(mut to: TcpStream, due: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((at, bytes)) = due.recv() {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side may have closed first.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_unchanged_and_late() {
        let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("binds");
        let port = echo.local_addr().expect("bound").port();
        thread::spawn(move || {
            let (mut peer, _) = echo.accept().expect("accepts");
            let mut word = [0; 4];
            peer.read_exact(&mut word).expect("reads");
            peer.write_all(&word).expect("writes");
        });
        let delay = Duration::from_millis(5);
        let proxy = Proxy::start(port, delay).expect("starts");
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).expect("connects");
        let start = Instant::now();
        client.write_all(b"lock").expect("writes");
        let mut word = [0; 4];
        client.read_exact(&mut word).expect("reads");
        assert_eq!(&word, b"lock");
        assert!(start.elapsed() >= 2 * delay);
    }
}
