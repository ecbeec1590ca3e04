//! What the server knows of one connection.

use crate::resp::{Parser, Protocol};

/// A connection's name, as both sides know it. It is also the client's id in `CLIENT ID`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Conn(pub u64);

/// A client's end.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) parser: Parser,
    pub(crate) protocol: Protocol,
    /// Which database it has selected.
    pub(crate) database: usize,
    pub(crate) name: Vec<u8>,
    pub(crate) logged_in: bool,
    pub(crate) channels: Vec<Vec<u8>>,
    /// As `channels`, of those that belong to a slot.
    pub(crate) shard_channels: Vec<Vec<u8>>,
    /// How much had been written when it last did something: what its WAIT is about.
    pub(crate) wrote: u64,
    /// Its WAIT has no answer yet. What it sends meanwhile is carried out after that.
    pub(crate) waits: Option<Waits>,
    /// Its next command may be about a slot that is on its way here.
    pub(crate) asking: bool,
}

/// A WAIT without an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    pub(crate) replicas: i64,
    pub(crate) offset: u64,
    /// In microseconds of the server's clock; `None`: for ever.
    pub(crate) until: Option<u64>,
}

impl Connection {
    pub(crate) fn new(logged_in: bool) -> Self {
        Self {
            parser: Parser::default(),
            protocol: Protocol::Resp2,
            database: 0,
            name: Vec::new(),
            logged_in,
            channels: Vec::new(),
            shard_channels: Vec::new(),
            wrote: 0,
            waits: None,
            asking: false,
        }
    }
}
