#!/usr/bin/env bash
# With a timeout of 1.5 s each call of volo-grpc fails at the server, and its default timeout of a second is none.
#
# Versions: volo-grpc 0.12.2 with volo 0.12.4 (crates.io), grpc-go 1.85.0 (Go modules) as the server; Rust 1.88 or
# newer, Go 1.26, Linux. `ClientBuilder::rpc_timeout` "sets the rpc timeout for the client. The default value is 1
# second", and None disables it. The header grpc-timeout has at most eight digits before its unit (PROTOCOL-HTTP2.md).
# A server of grpc-go answers at once. A client of volo-grpc calls it with timeouts of 0.5, 1, 1.5, 2 and 2.5 s. Then it
# calls a peer that accepts connections and says nothing, with a timeout of 1 s, and with the default.
#
# Seen: with 0.5, 1 and 2 s the calls succeed. With 1.5 and 2.5 s they fail with INTERNAL, "malformed grpc-timeout",
# within milliseconds: above a second, `duration_to_grpc_timeout` writes whatever has a fraction in nanoseconds, such as
# "1500000000n". The call to the silent peer ends after 1.0 s if it has a timeout of 1 s; with the default it has no end
# within 10 s, for the default is used nowhere (`Config::rpc_timeout_or_default` has no caller). So a program that trusts
# the default has no limit, and a limit that is computed, such as the rest of a deadline, fails most calls as long as it
# is above a second.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/client/src"
cat > "$folder/client/Cargo.toml" <<'TOML'
[package]
name = "client"
version = "0.0.0"
edition = "2024"

[dependencies]
tokio = { version = "=1.54.1", features = ["macros", "rt", "time"] }
volo = "=0.12.4"
volo-grpc = "=0.12.2"
TOML
cat > "$folder/client/src/main.rs" <<'RUST'
use std::{
    env::args,
    net::SocketAddr,
    time::{Duration, Instant},
};

use volo::{client::MkClient, service::Service};
use volo_grpc::{
    BoxStream, Client, Request, Status,
    body::BoxBody,
    client::ClientBuilder,
    codec::{compression::CompressionEncoding, decode::Kind},
    codegen::{Bytes, Frame, iter},
    message::{RecvEntryMessage, SendEntryMessage},
};

/// A message without fields, in place of generated code.
struct Empty;

impl SendEntryMessage for Empty {
    fn into_body(self, _: Option<CompressionEncoding>) -> BoxStream<'static, Result<Frame<Bytes>, Status>> {
        Box::pin(iter([Ok(Frame::data(Bytes::from_static(&[0; 5])))]))
    }
}

impl RecvEntryMessage for Empty {
    fn from_body(_: Option<&str>, _: BoxBody, _: Kind, _: Option<CompressionEncoding>) -> Result<Self, Status> {
        Ok(Empty)
    }
}

/// Makes a plain client, in place of generated code.
struct Plain;

impl<S> MkClient<Client<S>> for Plain {
    type Target = Client<S>;

    fn mk_client(&self, service: Client<S>) -> Client<S> {
        service
    }
}

/// Prints how a call ends within ten seconds.
async fn see(name: &str, address: SocketAddr, timeout: Option<Duration>) {
    let mut builder = ClientBuilder::<_, _, _, _, Empty, Empty>::new(Plain, "a.B").address(address);
    if timeout.is_some() {
        builder = builder.rpc_timeout(timeout);
    }
    let client = builder.build();
    let mut context = client.make_cx("/a.B/C");
    let began = Instant::now();
    let call = Service::call(&client, &mut context, Request::new(Empty));
    let end = match tokio::time::timeout(Duration::from_secs(10), call).await {
        Ok(Ok(_)) => "OK".to_owned(),
        Ok(Err(status)) => format!("{:?}", status.code()),
        Err(_) => "none".to_owned(),
    };
    println!("{name} {end} {:.1}", began.elapsed().as_secs_f64());
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = |index| args().nth(index).expect("two addresses").parse().expect("an address");
    for timeout in [500, 1000, 1500, 2000, 2500] {
        see(&format!("{timeout}ms"), address(1), Some(Duration::from_millis(timeout))).await;
    }
    see("silent", address(2), Some(Duration::from_secs(1))).await;
    see("default", address(2), None).await;
}
RUST
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)
MOD
cat > "$folder/main.go" <<'GO'
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func answer(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	return stream.SendMsg(&emptypb.Empty{})
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(answer))
	go server.Serve(listener)
	command := exec.Command(os.Args[1], listener.Addr().String(), silent.Addr().String())
	command.Stderr = os.Stderr
	output, err := command.Output()
	check(err)
	fmt.Print(string(output))
	ends := ""
	for _, line := range strings.Split(strings.TrimSpace(string(output)), "\n") {
		fields := strings.Fields(line)
		ends += fields[0] + " " + fields[1] + ", "
	}
	const calls = "500ms OK, 1000ms OK, 1500ms Internal, 2000ms OK, 2500ms Internal, "
	if ends != calls+"silent DeadlineExceeded, default none, " {
		os.Exit(1)
	}
}
GO
(cd "$folder/client" && cargo build --quiet >&2)
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
see=("$folder/see" "$folder/client/target/debug/client")
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "${see[@]}"
