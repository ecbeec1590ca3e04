//! A gRPC service: one call per order at a time, across all the servers you run.
//! Run it: `cargo run -p tonic-service`

use std::time::{Duration, Instant};

use parklock::tower::LockLayer;
use parklock::{Client, Hold};
use tokio::net::TcpListener;
use tonic::transport::{Channel, Server, server::TcpIncoming};
use tonic::{Code, Request, Response, Status};

use shop::orders_client::OrdersClient;
use shop::orders_server::{Orders, OrdersServer};

/// The code that `build.rs` has written.
mod shop {
    include!(concat!(env!("OUT_DIR"), "/shop.Orders.rs"));
}

#[derive(prost::Message)]
pub struct Payment {
    #[prost(uint64, tag = "1")]
    cents: u64,
}

#[derive(prost::Message)]
pub struct Receipt {
    #[prost(uint64, tag = "1")]
    token: u64,
}

/// How long a payment takes.
const BANK: Duration = Duration::from_millis(100);

struct Shop;

#[tonic::async_trait]
impl Orders for Shop {
    /// The bank compares the tokens, and refuses an older one.
    async fn pay(&self, call: Request<Payment>) -> Result<Response<Receipt>, Status> {
        let hold = call.extensions().get::<Hold>();
        let hold = hold.ok_or_else(|| Status::invalid_argument("which x-order?"))?;
        let token = hold.token().get();
        tokio::time::sleep(BANK).await;
        println!("{} cents are paid under token {token}", call.get_ref().cents);
        Ok(Response::new(Receipt { token }))
    }
}

/// Pays for this order, which is named beside the message: a layer sees no messages.
async fn pay(channel: &Channel, order: &'static str) -> Result<u64, Status> {
    let mut call = Request::new(Payment { cents: 995 });
    call.metadata_mut().insert("x-order", order.parse().expect("a number"));
    Ok(OrdersClient::new(channel.clone()).pay(call).await?.into_inner().token)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let client = Client::connect(&url).await?;
    // A call waits for the one before, but for less time than its caller does.
    let one_at_a_time =
        LockLayer::by_header(&client, "x-order").wait(Duration::from_secs(1)).grpc();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let channel =
        Channel::from_shared(format!("http://{}", listener.local_addr()?))?.connect_lazy();
    let server = Server::builder().layer(one_at_a_time).add_service(OrdersServer::new(Shop));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let began = Instant::now();
    let (one, other) = tokio::try_join!(pay(&channel, "42"), pay(&channel, "42"))?;
    assert!(began.elapsed() >= 2 * BANK && one != other, "one after the other");

    let elsewhere = client.lock("header:42").lock().await?; // a server that is slow
    let refused = pay(&channel, "42").await.expect_err("its order is locked");
    println!("refused: {refused}");
    assert_eq!(refused.code(), Code::Aborted);
    pay(&channel, "7").await?; // another order does not wait
    elsewhere.unlock().await?;
    pay(&channel, "42").await?;
    Ok(())
}
