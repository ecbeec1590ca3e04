//! Something that listens where a server is expected, and is none.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::port::{Port, listen};

/// Answers each command with this, for as long as the runtime runs.
pub fn impostor(answer: &'static str) -> Port {
    let port = Port::reserve();
    let listener = listen(port.address());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = [0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut asked).await {
                    // Each command begins with `*`.
                    let commands = asked[..read].iter().filter(|byte| **byte == b'*').count();
                    if stream.write_all(answer.repeat(commands).as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}
