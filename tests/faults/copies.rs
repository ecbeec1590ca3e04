//! A process that is copied while it runs, with its clients.

use std::sync::Arc;

use parklock::streams::{Dial, Stream};
use parklock::{Client, Config, Ended};
use tokio::net::TcpStream;

use crate::common::{Server, judged, timeout};
use crate::{LEASE, SOON, connect, patient};

/// Clients as copies of one process have them: they share an id and count on from one number, and have connections of their own.
async fn copies(server: &Server, config: &Config) -> [Client; 2] {
    let dial = Dial(Arc::new(|host: &str, port| {
        let to = (host.to_owned(), port);
        Box::pin(async move { Ok(Box::new(TcpStream::connect(to).await?) as Box<dyn Stream>) })
    }));
    let (url, id) = (server.url(), uuid::Uuid::new_v4().to_string());
    let copy = || Client::connect_over(dial.clone(), &url, Some(id.clone()), config.clone());
    let connected = [copy().await, copy().await];
    connected.map(|client| client.expect("the server is there"))
}

/// F92: a process is copied while it runs. Redis cannot tell the copies apart: docs/guarantees.md says what follows.
#[tokio::test]
async fn copies_of_a_process_are_one_client_to_redis() {
    judged(async || {
        let server = Server::start().await;
        let config = patient().watchdog_timeout(LEASE * 8).start_timeout(SOON);
        let [one, other] = copies(&server, &config).await;
        let third = connect(&server.url(), config).await;

        let first = one.lock("a").lock().await.unwrap();
        let second = other.lock("a").try_lock().await.unwrap().expect("it counts as a repetition");
        assert!(first.is_valid() && second.is_valid(), "both hold it");
        assert!(second.token() > first.token(), "each has asked for its own");
        assert!(third.lock("a").try_lock().await.unwrap().is_none(), "others are kept out");

        // What one gives back is gone for the other too, which learns of it from its next renewal.
        first.unlock().await.unwrap();
        let ended = timeout(SOON, second.ended()).await.expect("it is told");
        assert!(matches!(ended, Ended::Lost), "{ended:?}");

        let latch = |client: &Client| client.count_down_latch("b");
        assert!(latch(&third).set(2).await.unwrap());
        let left =
            [latch(&one).count_down().await.unwrap(), latch(&other).count_down().await.unwrap()];
        assert_eq!(left, [1, 1], "the second counts as a repetition");
    })
    .await;
}
