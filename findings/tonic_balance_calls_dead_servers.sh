#!/usr/bin/env bash
# If one of three servers is down, a quarter of the calls of tonic's balanced channel fail, for as long as it is down.
#
# Versions: tonic 0.14.9 and tonic-health 0.14.9 (crates.io), grpcio 1.85.3 and grpcio-health-checking 1.85.1; Rust 1.88
# or newer, Python 3.11 or newer, Linux. `Channel::balance_list` makes a channel "that will load balance across all the
# provided endpoints". A client of tonic and one of grpcio with round_robin check the health of three servers 500 times,
# one call after another with pauses of 10 ms. All three servers live; then one of them does not listen; then two.
#
# Seen: with all three no call fails. With grpcio none fails as long as one server lives, since it gives calls to those
# that are connected. With tonic about a quarter of the calls fail with UNAVAILABLE if one server is down, and more than
# half if two are, all through the run: a failed attempt to connect makes an endpoint ready, to hand its error to the
# next call, and the balancer chooses among all that are ready. So a rolling restart, or one pod too few, costs calls
# that two live servers would have answered, and a retry can meet the same server.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3 grpcio-health-checking==1.85.1
mkdir -p "$folder/client/src"
cat > "$folder/client/Cargo.toml" <<'TOML'
[package]
name = "client"
version = "0.0.0"
edition = "2024"

[dependencies]
tokio = { version = "=1.54.1", features = ["macros", "rt-multi-thread", "time"] }
tonic = { version = "=0.14.9", default-features = false, features = ["channel"] }
tonic-health = { version = "=0.14.9", default-features = false }
TOML
cat > "$folder/client/src/main.rs" <<'RUST'
use std::{env::args, time::Duration};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

/// Prints the status of each of 500 calls.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoints = args()
        .skip(1)
        .map(|port| Endpoint::from_shared(format!("http://127.0.0.1:{port}")))
        .collect::<Result<Vec<_>, _>>()?;
    let mut client = HealthClient::new(Channel::balance_list(endpoints.into_iter()));
    for _ in 0..500 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(_) => println!("OK"),
            Err(status) => println!("{:?}", status.code()),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
RUST
(cd "$folder/client" && cargo build --quiet >&2)
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, pathlib, socket, subprocess, sys, time
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

folder = pathlib.Path(sys.argv[1])
OPTIONS = [("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]}))]


def call_grpcio(ports):
    """Return the statuses of 500 calls."""
    ends = []
    with grpc.insecure_channel("ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports), OPTIONS) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for _ in range(500):
            call = stub.Check.future(health_pb2.HealthCheckRequest(), timeout=20)
            ends.append("OK" if call.exception() is None else call.code().name)
            time.sleep(0.01)
    return ends


def call_tonic(ports):
    """Return the statuses of 500 calls."""
    command = [folder / "client/target/debug/client", *map(str, ports)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout.split()


servers = [grpc.server(concurrent.futures.ThreadPoolExecutor(4)) for _ in range(3)]
for server in servers:
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
live = [server.add_insecure_port("127.0.0.1:0") for server in servers]
for server in servers:
    server.start()
silent = [socket.socket(), socket.socket()]
for sock in silent:
    sock.bind(("127.0.0.1", 0))  # and does not listen
refusing = [sock.getsockname()[1] for sock in silent]
right = True
for down, (least, most) in enumerate([(0, 0), (60, 250), (150, 450)]):
    ports = refusing[:down] + live[down:]
    for name, call, low, high in (("grpcio", call_grpcio, 0, 0), ("tonic", call_tonic, least, most)):
        ends = call(ports)
        failed = [i for i, end in enumerate(ends) if end != "OK"]
        late = sum(i >= 250 for i in failed)
        print(f"{down} of 3 down, {name}: {len(failed)} of {len(ends)} calls failed, {late} of them in the second half")
        right = right and len(ends) == 500 and set(ends) <= {"OK", "UNAVAILABLE", "Unavailable"}
        right = right and low <= len(failed) <= high and (late > 0) == (high > 0)
for server in servers:
    server.stop(None)
sys.exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
