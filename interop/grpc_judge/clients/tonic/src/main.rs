//! Keeps one channel of tonic busy. `clients/README.md` documents its arguments and output.
//!
//! tonic has no wait-for-ready calls, and no configurable backoff.

mod codec;
mod order;
mod tally;

use std::{error::Error, io, time::Duration};

use http::uri::PathAndQuery;
use serde_json::json;
use tokio::{
    runtime::Runtime,
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};
use tonic::{
    Request, Status,
    client::Grpc,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use crate::{codec::Empty, order::Order, tally::Tally};

const METHOD: &str = "/grpc.testing.TestService/EmptyCall";

/// How long running calls may continue when the time has passed.
const GRACE: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let order = Order::read()?;
    let runtime = Runtime::new()?;
    println!("{}", json!({"event": "ready"}));
    if io::stdin().read_line(&mut String::new())? == 0 {
        return Ok(());
    }
    let tally = runtime.block_on(keep_busy(&order))?;
    println!("{}", tally.account());
    Ok(())
}

fn channel(order: &Order) -> Result<Channel, tonic::transport::Error> {
    let endpoint = match &order.ca {
        None => Endpoint::from_shared(format!("http://{}", order.target))?,
        Some(ca) => Endpoint::from_shared(format!("https://{}", order.target))?
            .tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)))?,
    };
    Ok(endpoint.connect_lazy())
}

/// Makes calls until the time has passed.
async fn keep_busy(order: &Order) -> Result<Tally, Box<dyn Error>> {
    let channel = channel(order)?;
    let over = Instant::now() + order.seconds;
    let mut workers = JoinSet::new();
    for number in 0..order.workers {
        let client = Grpc::new(channel.clone());
        workers.spawn(work(client, number, over, order.pause));
    }
    let mut all = Tally::default();
    while let Some(tally) = workers.join_next().await {
        all.add(tally?);
    }
    Ok(all)
}

async fn work(mut client: Grpc<Channel>, number: usize, over: Instant, pause: Duration) -> Tally {
    let mut tally = Tally::default();
    let mut made = 0;
    while Instant::now() < over {
        let id = format!("{number}-{made}");
        made += 1;
        tally.begin();
        // Calls dropped when the time is up are cancelled, and count as unfinished.
        if let Ok(outcome) = timeout_at(over + GRACE, call(&mut client, &id)).await {
            tally.end(outcome);
        }
        sleep(pause).await;
    }
    tally
}

async fn call(client: &mut Grpc<Channel>, id: &str) -> Result<(), Status> {
    let ready = client.ready().await;
    ready.map_err(|error| Status::from_error(error.into()))?;
    let path = PathAndQuery::from_static(METHOD);
    let mut request = Request::new(());
    let id = id.parse().map_err(|_| Status::internal("not an id"))?;
    request.metadata_mut().insert("call-id", id);
    client.unary(request, path, Empty).await?;
    Ok(())
}
