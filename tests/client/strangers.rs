//! Servers that are not what parklock needs: each error names what has answered, and what is missing (B5).

use parklock::{Client, Config, Error};

use crate::common::fixture::{LONG, SOON};
use crate::common::impostor::impostor;
use crate::common::{Server, timeout};

/// The error of a client that connects to something that answers each command with this.
async fn refusal(answer: &'static str) -> Error {
    let port = impostor(answer);
    let config = Config::default().connect_timeout(SOON);
    let connecting = Client::connect_with(format!("redis://{}", port.address()), config);
    timeout(SOON, connecting).await.expect("in time").expect_err("it is no Redis")
}

#[tokio::test]
async fn what_answers_wrongly_is_named() {
    for (answer, meaning) in [
        ("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "is not Redis"),
        (
            "-ERR unknown command 'HELLO', with args beginning with: '3' \r\n",
            "parklock needs RESP3",
        ),
        ("-NOPROTO unsupported protocol version\r\n", "parklock needs RESP3"),
        ("220 mail.example.com ESMTP\r\n", "is not Redis"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "is not Redis"),
    ] {
        let error = refusal(answer).await;
        let text = error.to_string();
        eprintln!("{answer:?}: {text}");
        assert!(matches!(error, Error::Unavailable { .. }), "{answer}: {error:?}");
        assert!(text.contains(meaning), "{answer}: {text}");
    }
    let denied =
        refusal("-NOAUTH HELLO must be called with the client already authenticated\r\n").await;
    assert!(matches!(denied, Error::Permission { .. }), "{denied:?}");
    assert!(denied.to_string().contains("NOAUTH"), "{denied}");
    assert!(denied.to_string().contains("wants a password"), "{denied}");
    let wrong = refusal("-WRONGPASS invalid username-password pair or user is disabled.\r\n").await;
    assert!(wrong.to_string().contains("the user or the password is wrong"), "{wrong}");
}

/// To wait for it would not help (B4).
#[tokio::test]
async fn a_server_that_is_too_old_is_refused_at_once() {
    let answer = "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n6.0.16\r\n";
    let port = impostor(answer);
    let config = Config::default().start_timeout(LONG);
    let connecting = Client::connect_with(format!("redis://{}", port.address()), config);
    let error = timeout(SOON, connecting).await.expect("at once").expect_err("it is too old");
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(error.to_string().contains("version 6.0:"), "{error}");
}

#[tokio::test]
async fn a_server_that_takes_no_more_clients_says_so() {
    let server = Server::builder().set("maxclients", "1").start().await;
    let _admin = server.admin().await;
    let config = Config::default().connect_timeout(SOON);
    let error = Client::connect_with(server.url(), config).await.expect_err("it is full");
    eprintln!("{error}");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("maxclients"), "{error}");
}
