#!/usr/bin/env bash
# With `max_connection_age_grace`, tonic ends an aged connection without GOAWAY and cuts its streams.
#
# Versions: tonic 0.14.9 and tonic-health 0.14.9 (crates.io), hpack and hyperframe (PyPI) as the client; Rust 1.88 or
# newer, Python 3.11 or newer, Linux. tonic serves its own health service with `max_connection_age(1 s)`, once alone
# and once with `max_connection_age_grace(2 s)`. A raw HTTP/2 client opens one Health/Watch stream, which ends only
# when the client wants, and notes what the server sends within 5 s.
#
# Seen: with the age alone, GOAWAY after 1.0 s, and the stream goes on. With age and grace, no GOAWAY at all, and the
# connection is closed after 3.0 s, in the middle of the stream. grpc-go and grpc-java, which have options of the same
# names, send GOAWAY at the age, so that new calls go elsewhere, and cut only what still runs after the grace.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet hpack==4.2.0 hyperframe==6.1.0
mkdir -p "$folder/server/src"
cat > "$folder/server/Cargo.toml" <<'TOML'
[package]
name = "server"
version = "0.0.0"
edition = "2024"

[dependencies]
tokio = { version = "=1.54.1", features = ["macros", "net", "rt-multi-thread", "time"] }
tokio-stream = { version = "=0.1.19", features = ["net"] }
tonic = { version = "=0.14.9", default-features = false, features = ["router", "server"] }
tonic-health = "=0.14.9"
TOML
cat > "$folder/server/src/main.rs" <<'RUST'
use std::{env::args, time::Duration};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    let (_reporter, health) = tonic_health::server::health_reporter();
    let mut server = Server::builder().max_connection_age(Duration::from_secs(1));
    if args().any(|argument| argument == "grace") {
        server = server.max_connection_age_grace(Duration::from_secs(2));
    }
    server.add_service(health).serve_with_incoming(TcpListenerStream::new(listener)).await?;
    Ok(())
}
RUST
(cd "$folder/server" && cargo build --quiet)
cat > "$folder/see.py" <<'PYTHON'
import socket, subprocess, sys, time
import hpack
from hyperframe.frame import DataFrame, HeadersFrame, SettingsFrame

WATCH = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/grpc.health.v1.Health/Watch"),
    (":authority", "a"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]
REQUEST = (
    SettingsFrame(0),
    HeadersFrame(1, hpack.Encoder().encode(WATCH), flags=["END_HEADERS"]),
    DataFrame(1, bytes(5), flags=["END_STREAM"]),
)
DATA, RST_STREAM, GOAWAY = 0, 3, 7


def watch(*arguments):
    """Return after how many seconds GOAWAY and the connection's end came, and how often DATA and RST_STREAM did."""
    server = subprocess.Popen([sys.argv[1], *arguments], stdout=subprocess.PIPE, text=True)
    times, got, ended = {}, [], None
    try:
        sock = socket.create_connection(("127.0.0.1", int(server.stdout.readline())))
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"".join(frame.serialize() for frame in REQUEST))
        began, buffer = time.monotonic(), b""
        while ended is None and (left := began + 5 - time.monotonic()) > 0:
            sock.settimeout(left)
            try:
                data = sock.recv(65536)
            except TimeoutError:
                break
            except ConnectionError:
                data = b""
            now = round(time.monotonic() - began, 1)
            ended = None if data else now
            buffer += data
            while len(buffer) >= 9 and len(buffer) >= (size := 9 + int.from_bytes(buffer[:3], "big")):
                got.append(buffer[3])
                times.setdefault(buffer[3], now)
                buffer = buffer[size:]
    finally:
        server.kill()
        server.wait()
    told = f"GOAWAY after {times.get(GOAWAY)} s, end of the connection after {ended} s"
    print(f"age 1 s {' '.join(arguments)}: {told}; DATA {got.count(DATA)}, RST_STREAM {got.count(RST_STREAM)}")
    return times.get(GOAWAY), ended, got.count(DATA), got.count(RST_STREAM)


alone, graced = watch(), watch("grace")
right = alone[0] is not None and alone[1] is None and graced[0] is None and graced[1] is not None
sys.exit(not (right and alone[2:] == graced[2:] == (1, 0)))
PYTHON
"$folder/venv/bin/python" "$folder/see.py" "$folder/server/target/debug/server"
