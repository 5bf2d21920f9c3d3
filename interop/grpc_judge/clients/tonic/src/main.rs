//! Keeps one channel of tonic busy. `clients/README.md` documents its arguments and output.
//!
//! tonic has no wait-for-ready calls, and no configurable backoff.

mod codec;
mod order;
mod tally;

use std::{error::Error, io, sync::Arc, thread, time::Duration};

use http::uri::PathAndQuery;
use serde_json::json;
use tokio::{
    runtime::Runtime,
    select,
    sync::watch::{Receiver, Sender},
    task::JoinSet,
    time::sleep,
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
    if !hears()? {
        return Ok(());
    }
    let tally = runtime.block_on(keep_busy(&order))?;
    println!("{}", tally.account());
    Ok(())
}

/// Waits for a line, of which the first starts the calls and the second ends them; returns whether there was one.
fn hears() -> io::Result<bool> {
    Ok(io::stdin().read_line(&mut String::new())? > 0)
}

fn channel(order: &Order) -> Result<Channel, tonic::transport::Error> {
    let endpoint = match &order.ca {
        None => Endpoint::from_shared(format!("http://{}", order.target))?,
        Some(ca) => Endpoint::from_shared(format!("https://{}", order.target))?
            .tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)))?,
    };
    Ok(endpoint.connect_lazy())
}

/// Makes calls until the time has passed, or until another line says so.
async fn keep_busy(order: &Order) -> Result<Tally, Box<dyn Error>> {
    let channel = channel(order)?;
    let over = Arc::new(Sender::new(false));
    let (passes, told) = (over.clone(), over.clone());
    let seconds = order.seconds;
    tokio::spawn(async move {
        sleep(seconds).await;
        passes.send_replace(true);
    });
    thread::spawn(move || {
        if hears().is_ok_and(|heard| heard) {
            told.send_replace(true);
        }
    });
    let mut workers = JoinSet::new();
    for number in 0..order.workers {
        let client = Grpc::new(channel.clone());
        workers.spawn(work(client, number, over.subscribe(), order.pause));
    }
    let mut all = Tally::default();
    while let Some(tally) = workers.join_next().await {
        all.add(tally?);
    }
    Ok(all)
}

async fn work(
    mut client: Grpc<Channel>,
    number: usize,
    over: Receiver<bool>,
    pause: Duration,
) -> Tally {
    let mut tally = Tally::default();
    let mut made = 0;
    while !*over.borrow() {
        let id = format!("{number}-{made}");
        made += 1;
        tally.begin();
        // Calls dropped when the time is up are cancelled, and count as unfinished.
        select! {
            outcome = call(&mut client, &id) => tally.end(outcome),
            () = past(over.clone()) => {}
        }
        sleep(pause).await;
    }
    tally
}

/// Waits until the time has passed, and then as long as calls may still run.
async fn past(mut over: Receiver<bool>) {
    let _ = over.wait_for(|over| *over).await;
    sleep(GRACE).await;
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
