#!/usr/bin/env bash
# A deadline set with tonic's `Request::set_timeout` ends once the headers are there: a stream goes on without one.
#
# Versions: tonic 0.14.9 and tonic-health 0.14.9 (crates.io), on both sides; Rust 1.88 or newer, Linux.
# tonic documents `set_timeout` as "the max duration the request is allowed to take", and gRPC's guide says that a
# client's call ends with DEADLINE_EXCEEDED at its deadline and that the server cancels it then
# (grpc.io/docs/guides/deadlines). A tonic client makes two calls with `set_timeout(1 s)`: Health/Watch at a tonic
# server, whose health changes after 3 s, and Health/Check at a peer that accepts the connection and sends nothing.
#
# Seen: the Watch call gets the change after 3 s and is still open after 4 s: neither side ends it. The Check call ends
# after 1.0 s, but with CANCELLED "Timeout expired", as if the caller had cancelled. So a stream with a deadline can
# outlive it for ever, and a policy or an alarm for DEADLINE_EXCEEDED sees none of tonic's.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
mkdir -p "$folder/src"
cat > "$folder/Cargo.toml" <<'TOML'
[package]
name = "see"
version = "0.0.0"
edition = "2024"

[dependencies]
tokio = { version = "=1.54.1", features = ["macros", "net", "rt", "time"] }
tokio-stream = { version = "=0.1.19", features = ["net"] }
tonic = { version = "=0.14.9", default-features = false, features = ["channel", "router", "server"] }
tonic-health = "=0.14.9"

[profile.dev]
debug = false
TOML
cat > "$folder/src/main.rs" <<'RUST'
use std::time::{Duration, Instant};
use tokio::{net::TcpListener, time::timeout};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Request,
    transport::{Endpoint, Server},
};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_client::HealthClient},
};

fn request() -> Request<HealthCheckRequest> {
    let mut request = Request::new(HealthCheckRequest { service: String::new() });
    request.set_timeout(Duration::from_secs(1));
    request
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (reporter, health) = tonic_health::server::health_reporter();
    let serve = Server::builder().add_service(health).serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(serve);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        reporter.set_service_status("", ServingStatus::NotServing).await;
    });

    let began = Instant::now();
    let mut client = HealthClient::new(Endpoint::from_shared(url)?.connect().await?);
    let mut responses = client.watch(request()).await?.into_inner();
    let (mut late, mut end) = (0, None);
    while let Ok(message) = timeout(Duration::from_secs(4).saturating_sub(began.elapsed()), responses.message()).await {
        match message {
            Ok(Some(_)) => late += i32::from(began.elapsed() > Duration::from_secs(2)),
            other => {
                end = Some(format!("{other:?}"));
                break;
            }
        }
    }
    println!("Watch: {late} message after the deadline, end: {end:?}");

    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", silent.local_addr()?);
    let accept = tokio::spawn(async move { silent.accept().await });
    let mut client = HealthClient::new(Endpoint::from_shared(url)?.connect().await?);
    let _connection = accept.await??;
    let began = Instant::now();
    let status = timeout(Duration::from_secs(20), client.check(request())).await?.unwrap_err();
    println!("Check: {:?} {:?} after {:.1?}", status.code(), status.message(), began.elapsed());

    let right = late == 1 && end.is_none() && status.code() == Code::Cancelled && status.message() == "Timeout expired";
    std::process::exit(i32::from(!right));
}
RUST
(cd "$folder" && cargo build --quiet)
"$folder/target/debug/see"
