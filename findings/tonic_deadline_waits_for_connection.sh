#!/usr/bin/env bash
# A call of tonic has no deadline until it has a connection: it waits without a limit, and is made after its time.
#
# Versions: tonic 0.14.9 and tonic-health 0.14.9 (crates.io), on both sides; Rust 1.88 or newer, Linux. tonic documents
# `Request::set_timeout` as "the max duration the request is allowed to take", and of `Endpoint::timeout` that it will
# "apply a timeout to each request"; a deadline of grpc-go or grpcio counts from the start of the call, also while its
# channel connects. A client calls the health service with both of them at one second: by a connection to a server that
# accepts it and says nothing; by one to an address that answers no SYN, like a dead host (a listener whose queue is
# full); by a balanced channel (`Channel::balance_channel`) without an endpoint; and by another one that gets its
# endpoint after three seconds.
#
# Seen: the call to the silent server ends after 1 s. The calls to the dead address and without an endpoint are not over
# after ten seconds, when the script gives up on them. The last call is made when the endpoint comes, and succeeds after
# 3 s; its caller asked for one. The time limit is a layer of each connection, and the calls wait before it, in the
# channel's buffer. So a client whose service discovery has lost all servers, or whose only server's machine is gone,
# hangs in calls that have deadlines; when the servers are back, they get calls that should have ended long before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat > "$folder/Cargo.toml" <<'TOML'
[package]
name = "see"
version = "0.0.0"
edition = "2024"

[dependencies]
tokio = { version = "=1.54.1", features = ["macros", "net", "rt", "time"] }
tonic = "=0.14.9"
tonic-health = "=0.14.9"
TOML
cat > "$folder/src/main.rs" <<'RUST'
use std::{
    net::TcpListener,
    process::exit,
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpSocket, TcpStream},
    spawn,
    time::{sleep, timeout},
};
use tonic::{
    Request,
    transport::{Channel, Endpoint, Server, channel::Change, server::TcpIncoming},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

const DEADLINE: Duration = Duration::from_secs(1);

fn endpoint(address: impl ToString) -> Endpoint {
    let endpoint = Endpoint::from_shared(format!("http://{}", address.to_string()));
    endpoint.expect("the address is good").timeout(DEADLINE)
}

/// Calls the health service; returns how the call ended, if it did within ten seconds, and after how many seconds.
async fn call(name: &str, channel: Channel) -> (Option<bool>, f64) {
    let mut request = Request::new(HealthCheckRequest::default());
    request.set_timeout(DEADLINE);
    let began = Instant::now();
    let end = timeout(Duration::from_secs(10), HealthClient::new(channel).check(request)).await.ok();
    let seconds = began.elapsed().as_secs_f64();
    let seen = end.as_ref().map(|end| end.as_ref().map(|_| "OK").map_err(|status| status.code()));
    println!("{name}: {seen:?} after {seconds:.1} s");
    (end.map(|end| end.is_ok()), seconds)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a port is free");
    let address = incoming.local_addr().expect("it is bound");
    let (_reporter, health) = tonic_health::server::health_reporter();
    spawn(Server::builder().add_service(health).serve_with_incoming(incoming));

    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = call("silent server", endpoint(silent.local_addr().expect("it is bound")).connect_lazy()).await;

    let dead = TcpSocket::new_v4().expect("a socket");
    dead.bind("127.0.0.1:0".parse().expect("an address")).expect("a port is free");
    let dead = dead.listen(1).expect("it listens");
    let dead_address = dead.local_addr().expect("it is bound");
    let mut queue = Vec::new();
    while let Ok(stream) = timeout(DEADLINE, TcpStream::connect(dead_address)).await {
        queue.push(stream);
    }
    let dead = call("dead host", endpoint(dead_address).connect_lazy()).await;

    let (channel, _changes) = Channel::balance_channel::<u8>(1);
    let empty = call("no endpoint", channel).await;

    let (channel, changes) = Channel::balance_channel(1);
    spawn(async move {
        sleep(Duration::from_secs(3)).await;
        changes.send(Change::Insert(0, endpoint(address))).await.expect("the channel is there");
        sleep(Duration::from_secs(20)).await;
    });
    let late = call("late endpoint", channel).await;

    let right = silent.0 == Some(false)
        && (0.9..2.9).contains(&silent.1)
        && dead.0.is_none()
        && empty.0.is_none()
        && late.0 == Some(true)
        && late.1 > 2.9;
    exit(if right { 0 } else { 1 });
}
RUST
(cd "$folder" && cargo build --quiet >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 100 "$folder/target/debug/see"
