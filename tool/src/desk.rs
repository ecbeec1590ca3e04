//! The keeper's end of the pipes to the supervisor.

use std::io::{self, BufRead, Write};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::words::{Order, Told, line, read};

/// Where orders arrive and words leave. Each has its own thread, so that a stopped supervisor does not delay the
/// renewals.
pub(crate) struct Desk {
    pub(crate) orders: UnboundedReceiver<Order>,
    words: Sender<Told>,
}

impl Desk {
    pub(crate) fn open() -> (Self, JoinHandle<()>) {
        let (words, outbox) = channel::<Told>();
        let writer = thread::spawn(move || {
            while let Ok(first) = outbox.recv() {
                // If the supervisor was stopped for long, it needs only the last deadline.
                let words = outbox.try_iter().fold(vec![first], without_old_deadlines);
                let text = words.iter().map(line).collect::<String>();
                let mut out = io::stdout().lock();
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
        });
        let (inbox, orders) = unbounded_channel();
        thread::spawn(move || {
            let lines = io::stdin().lock().lines().map_while(Result::ok);
            let mut orders = lines.filter_map(|line| read(&line));
            // This ends when the keeper takes no more orders.
            let _ = orders.try_for_each(|order| inbox.send(order));
        });
        (Self { orders, words }, writer)
    }

    pub(crate) fn tell(&self, word: Told) {
        let _ = self.words.send(word);
    }
}

fn without_old_deadlines(mut words: Vec<Told>, next: Told) -> Vec<Told> {
    if let (Some(Told::Until(_)), Told::Until(_)) = (words.last(), &next) {
        words.pop();
    }
    words.push(next);
    words
}
