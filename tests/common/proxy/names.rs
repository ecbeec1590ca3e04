//! What servers call each other: a proxy before several of them tells its clients its own ports instead.

use std::borrow::Cow;

/// The port of each server, and the one of the proxy that leads there.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<(u16, u16)>);

impl Names {
    pub(super) fn new(ports: impl Iterator<Item = (u16, u16)>) -> Self {
        let ports: Vec<_> = ports.collect();
        // A server that stands alone names nobody.
        Self(if ports.len() > 1 { ports } else { Vec::new() })
    }

    /// A reply as the clients of the proxy are to read it. No number that means something else is changed: only the map of
    /// a cluster is a list of lists, only a redirection is an error that ends with a port, only what a sentinel says of a
    /// server has a `runid`, and only its answer to where the primary is begins with an address.
    pub(super) fn told<'a>(&self, frame: &'a [u8]) -> Cow<'a, [u8]> {
        if self.0.is_empty() {
            return frame.into();
        }
        let before = match frame {
            [b'-', ..] => ":",
            [b'*', rest @ ..] if second_line(rest).starts_with(b"*") => ":",
            [b'*' | b'%', ..] if contains(frame, b"runid") => "\n",
            _ if frame.starts_with(b"*2\r\n$9\r\n127.0.0.1\r\n") => "\n",
            _ => return frame.into(),
        };
        let mut told = frame.to_vec();
        for (there, here) in &self.0 {
            let [there, here] = [there, here].map(|port| format!("{before}{port}\r\n"));
            told = replaced(&told, there.as_bytes(), here.as_bytes());
        }
        told.into()
    }
}

fn second_line(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.map_or(&[], |end| &bytes[end + 1..])
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn replaced(mut bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len());
    while let Some(at) = bytes.windows(old.len()).position(|window| window == old) {
        all.extend_from_slice(&bytes[..at]);
        all.extend_from_slice(new);
        bytes = &bytes[at + old.len()..];
    }
    all.extend_from_slice(bytes);
    all
}
