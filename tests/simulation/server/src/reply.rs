//! What a command answers, before it is known in which format it is sent.

/// An answer of the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+OK`
    Status(Vec<u8>),
    /// `-ERR ...`, without the dash
    Error(Vec<u8>),
    /// `:1`
    Integer(i64),
    /// `$3 abc`
    Bulk(Vec<u8>),
    /// Nothing, where there might be a value.
    Nil,
    /// Nothing, where there might be an array. RESP3 makes no difference.
    NilArray,
    /// `*2 ...`
    Array(Vec<Self>),
    /// Keys and values in turn: a map in RESP3, an array in RESP2.
    Map(Vec<Self>),
    /// A number in RESP3, its text in RESP2.
    Double(f64),
    /// Members with scores: pairs in RESP3, flat in RESP2.
    Scores(Vec<(Vec<u8>, f64)>),
    /// Text for people: verbatim in RESP3, a bulk in RESP2.
    Text(Vec<u8>),
    /// A message that answers no request: a push in RESP3, an array in RESP2.
    Push(Vec<Self>),
}

impl Reply {
    pub(crate) fn ok() -> Self {
        Self::Status(b"OK".to_vec())
    }

    /// An error in these words. A character up to U+00FF stands for that byte: errors quote what clients sent.
    pub(crate) fn error(text: impl AsRef<str>) -> Self {
        let mut bytes = Vec::with_capacity(text.as_ref().len());
        for char in text.as_ref().chars() {
            match u8::try_from(u32::from(char)) {
                Ok(byte) => bytes.push(byte),
                Err(_) => bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        Self::Error(bytes)
    }

    pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    pub(crate) fn count(count: usize) -> Self {
        Self::Integer(count as i64)
    }

    /// Whether the command was refused or failed.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

impl From<bool> for Reply {
    fn from(yes: bool) -> Self {
        Self::Integer(yes.into())
    }
}

impl From<Option<Vec<u8>>> for Reply {
    fn from(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::Nil, Self::Bulk)
    }
}

/// A command's work: what it answers, or the error that ended it.
pub(crate) type Answer = Result<Reply, Reply>;

/// An answer and an error are both something to send.
pub(crate) fn flatten(answer: Answer) -> Reply {
    answer.unwrap_or_else(|error| error)
}

/// Why a command does nothing, in the words that all versions share.
pub(crate) mod refusal {
    use super::Reply;

    pub(crate) fn wrong_type() -> Reply {
        Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    pub(crate) fn syntax() -> Reply {
        Reply::error("ERR syntax error")
    }

    pub(crate) fn not_an_integer() -> Reply {
        Reply::error("ERR value is not an integer or out of range")
    }

    pub(crate) fn not_a_float() -> Reply {
        Reply::error("ERR value is not a valid float")
    }
}
