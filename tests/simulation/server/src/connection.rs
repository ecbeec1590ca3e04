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
        }
    }
}
