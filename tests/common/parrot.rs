//! A server that repeats what it was sent.
//!
//! It knows just enough to be connected to. Some of its answers quote all that their connection has sent so far, the
//! password included, as Redis quotes the arguments of a command that it does not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::port::{Port, listen};
use super::proxy::resp;

/// What it says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Alone,
    /// A node of a cluster, which has all slots.
    Node,
    /// A sentinel, whose primary has this port.
    Sentinel(u16),
}

/// How it repeats what it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// The words as they are, as Redis 7 has them.
    Plain,
    /// No more than 20 bytes of a word.
    Cut,
    /// As in a URL.
    Percent,
    /// With backslashes, as programs write texts.
    Escaped,
    /// As a refused password.
    Refusal,
    /// A text, and no error.
    Text,
    /// Bytes that are no text.
    Bytes,
    /// The same within a list.
    List,
    /// Each word is a node that the client should go to.
    Host,
    /// A word, as `TYPE` answers.
    Status,
    /// As the name of another kind that has the key.
    Conflict,
    /// No value at all.
    Malformed,
    /// Messages and other pushes, before the answer that it would give otherwise.
    Pushes,
}

impl Quote {
    pub const ALL: [Self; 13] = [
        Self::Plain,
        Self::Cut,
        Self::Percent,
        Self::Escaped,
        Self::Refusal,
        Self::Text,
        Self::Bytes,
        Self::List,
        Self::Host,
        Self::Status,
        Self::Conflict,
        Self::Malformed,
        Self::Pushes,
    ];

    fn answer(self, sent: &[String]) -> Vec<u8> {
        let all = |word: &dyn Fn(&String) -> String| {
            sent.iter().map(|sent| format!("'{}' ", word(sent))).collect::<String>()
        };
        let error = |words: String| {
            let words = words.replace(['\r', '\n'], " ");
            format!("-ERR unknown command, with args beginning with: {words}\r\n").into_bytes()
        };
        let bulk =
            |words: &[u8]| [format!("${}\r\n", words.len()).as_bytes(), words, b"\r\n"].concat();
        let plain = all(&String::clone);
        let line = || plain.replace(['\r', '\n'], " ");
        match self {
            Self::Plain => error(plain),
            Self::Cut => error(all(&|word| word.chars().take(20).collect())),
            Self::Percent => error(all(&|word| percent(word))),
            Self::Escaped => error(all(&|word| format!("{word:?}"))),
            Self::Refusal => format!("-WRONGPASS {}\r\n", line()).into(),
            Self::Conflict => format!("-CONFLICT {}\r\n", line()).into(),
            Self::Status => format!("+{}\r\n", line()).into(),
            Self::Malformed => format!(":{}\r\n", line()).into(),
            Self::Pushes => {
                // The last word is the channel, if that is what was asked for.
                let channels = sent.last().into_iter().chain([&plain]);
                let kinds = ["message", "smessage", "subscribe", "sunsubscribe", &plain];
                let push = |kind: &str, channel: &str| {
                    let words = [kind, channel, &plain].map(|word| bulk(word.as_bytes()));
                    [&b">3\r\n"[..], &words.concat()].concat()
                };
                channels
                    .flat_map(|channel| kinds.map(|kind| push(kind, channel)))
                    .flatten()
                    .collect()
            }
            Self::Text => bulk(plain.as_bytes()),
            Self::Bytes => bulk(&[plain.as_bytes(), b"\xff"].concat()),
            Self::List => {
                [&b"*2\r\n"[..], &bulk(plain.as_bytes()), &bulk(plain.as_bytes())].concat()
            }
            Self::Host => {
                let host = sent.iter().rfind(|word| word.starts_with("127."));
                let host =
                    host.map_or("nowhere", |word| word.split_whitespace().next().unwrap_or(""));
                format!("-MOVED 7 {host}:1\r\n").into_bytes()
            }
        }
    }
}

fn percent(word: &str) -> String {
    let byte = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    };
    word.bytes().map(byte).collect()
}

/// Dropped, it ends its connections.
#[derive(Debug)]
pub struct Parrot {
    port: Port,
    repeated: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

/// What the connections of a parrot share.
#[derive(Debug, Clone)]
struct Mind {
    role: Role,
    port: u16,
    at: &'static str,
    quote: Quote,
    repeated: Arc<AtomicUsize>,
}

impl Parrot {
    /// Repeats, in answer to each request whose words contain `at`, what the connection has sent.
    pub fn start(role: Role, at: &'static str, quote: Quote) -> Self {
        let (port, repeated) = (Port::reserve(), Arc::<AtomicUsize>::default());
        let mind = Mind { role, port: port.number(), at, quote, repeated: Arc::clone(&repeated) };
        let (listener, mut task) = (listen(port.address()), JoinSet::new());
        task.spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let mind = mind.clone();
                links.spawn(async move { mind.serve(stream).await });
            }
        });
        Self { port, repeated, _task: task }
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// How often it has repeated something.
    pub fn repeated(&self) -> usize {
        self.repeated.load(Ordering::Relaxed)
    }
}

impl Mind {
    async fn serve(self, mut stream: TcpStream) {
        let (mut bytes, mut args, mut sent) = (Vec::new(), Vec::new(), Vec::<String>::new());
        loop {
            while let Ok(Some(end)) = resp::request(&bytes, &mut args) {
                let word = |range: &std::ops::Range<usize>| {
                    String::from_utf8_lossy(&bytes[range.clone()]).into_owned()
                };
                let words: Vec<_> = args.iter().map(word).collect();
                sent.extend(words.iter().filter(|word| word.len() < 1000).cloned());
                let answer = self.answer(&words, &sent);
                bytes.drain(..end);
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
            if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
                return;
            }
        }
    }

    fn answer(&self, words: &[String], sent: &[String]) -> Vec<u8> {
        let is_it = match self.at {
            // On a connection that lives: the first one is a part of HELLO.
            "AUTH" => words[0] == "AUTH",
            at => words.iter().take(2).any(|word| word.eq_ignore_ascii_case(at)),
        };
        if is_it {
            self.repeated.fetch_add(1, Ordering::Relaxed);
            let mut answer = self.quote.answer(sent);
            if self.quote == Quote::Pushes {
                answer.extend(self.usual(words));
            }
            return answer;
        }
        self.usual(words)
    }

    fn usual(&self, words: &[String]) -> Vec<u8> {
        let port = self.port;
        match words[0].to_ascii_uppercase().as_str() {
            "HELLO" => {
                let (mode, role) = match self.role {
                    Role::Alone => ("standalone", "master"),
                    Role::Node => ("cluster", "master"),
                    Role::Sentinel(_) => ("sentinel", "sentinel"),
                };
                format!("%3\r\n+role\r\n+{role}\r\n+mode\r\n+{mode}\r\n+version\r\n+7.2.0\r\n")
                    .into()
            }
            "TIME" => b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n".to_vec(),
            "SCRIPT" if words[1] == "EXISTS" => {
                format!("*{}\r\n{}", words.len() - 2, ":1\r\n".repeat(words.len() - 2)).into()
            }
            "INFO" => {
                let info = "maxmemory:0\r\nredis_mode:standalone\r\nredis_version:7.2.0\r\n";
                format!("={}\r\ntxt:{info}\r\n", info.len() + 4).into()
            }
            "CLUSTER" => {
                let host = "$9\r\n127.0.0.1";
                format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n{host}\r\n:{port}\r\n").into()
            }
            "SENTINEL" => self.of_sentinel(&words[1].to_ascii_uppercase()),
            "SUBSCRIBE" | "SSUBSCRIBE" => {
                let kind = words[0].to_ascii_lowercase();
                let bulk = |word: &String| format!("${}\r\n{word}\r\n", word.len());
                let pushes = words[1..].iter().zip(1..).map(|(channel, count)| {
                    format!(">3\r\n{}{}:{count}\r\n", bulk(&kind), bulk(channel))
                });
                pushes.collect::<String>().into()
            }
            "TYPE" => b"+stream\r\n".to_vec(),
            "WAIT" => b":1\r\n".to_vec(),
            // Then the client looks for the key that is something else.
            "EVALSHA" if self.at == "TYPE" => b"-WRONGTYPE Operation against a key\r\n".to_vec(),
            "EVALSHA" => b"*5\r\n:0\r\n:60000\r\n:0\r\n:1\r\n:0\r\n".to_vec(), // held: wait in line
            _ => b"+OK\r\n".to_vec(),
        }
    }

    fn of_sentinel(&self, question: &str) -> Vec<u8> {
        let port = if let Role::Sentinel(port) = self.role { port } else { self.port };
        let address = format!("$9\r\n127.0.0.1\r\n$5\r\n{port:05}\r\n");
        match question {
            "MASTER" => b"%1\r\n+config-epoch\r\n+1\r\n".to_vec(),
            "GET-MASTER-ADDR-BY-NAME" => format!("*2\r\n{address}").into(),
            "MYID" => b"+me\r\n".to_vec(),
            _ => b"*0\r\n".to_vec(),
        }
    }
}
