#!/usr/bin/env bash
# poem-grpc's client takes failed calls for good ones, and an upload whose source fails reaches the server whole.
#
# Versions: poem-grpc 0.5.9 (crates.io), grpcio 1.85.3 as the server and to compare, with grpcio-tools 1.85.1 for the
# build; Rust 1.88 or newer, Python 3.11 or newer, Linux. The status of a gRPC call is in the trailers, after all the
# messages (PROTOCOL-HTTP2.md). grpcio's guide to errors in Python has `context.set_code(...)` and
# `context.set_details(...)` before the handler returns a message; the message goes out, and then the status. A client
# calls two methods that fail with NOT_FOUND, by `context.abort` and by `set_code`. Then it uploads a stream, of type
# `Streaming`, whose items are `Result`s: "a", "b", and the error DATA_LOSS of the file that they come from.
#
# Seen: `abort` is Err(NotFound). `set_code` is Ok with the empty message that came before the status; grpcio's client
# raises NOT_FOUND for it. `GrpcClient::unary` and `client_streaming` return after the first message and never read the
# trailers. Of the upload, the server gets "a" and "b" and a good end, so it keeps two items as if they were all, and
# the client gets its Ok; the error is gone. `create_encode_request_body` ends the request at the first error as at the
# end of the stream. So a lookup that fails in a Python server finds an empty record, and a copy that is cut in half is
# complete on both sides.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3 grpcio-tools==1.85.1 protobuf==7.36.2
mkdir "$folder/src"
cat > "$folder/protoc" <<'SHELL'
#!/bin/sh
exec "$(dirname "$0")/venv/bin/python" -c 'import sys; from grpc_tools import protoc; sys.exit(protoc.main(sys.argv))' "$@"
SHELL
chmod +x "$folder/protoc"
cat > "$folder/Cargo.toml" <<'TOML'
[package]
name = "see"
version = "0.0.0"
edition = "2024"

[dependencies]
futures-util = "=0.3.31"
poem-grpc = "=0.5.9"
tokio = { version = "=1.54.1", features = ["macros", "rt"] }
TOML
cat > "$folder/src/main.rs" <<'RUST'
use std::env::args;

use futures_util::stream;
use poem_grpc::{ClientConfig, Code, Request, Status, Streaming, client::GrpcClient, codec::ProstCodec};

/// Makes the calls as a client that poem-grpc-build generates makes them; a String is a google.protobuf.StringValue.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let uri = format!("http://127.0.0.1:{}", args().nth(1).expect("a port"));
    let client = GrpcClient::new(ClientConfig::builder().uri(uri).build().expect("the address is good"));
    let codec = ProstCodec::<String, String>::default;
    for method in ["Abort", "SetCode"] {
        let answer = client.unary(&format!("/a.B/{method}"), codec(), Request::new("a".to_owned())).await;
        println!("{method} {:?}", answer.map(|answer| answer.into_inner()).map_err(|status| status.code()));
    }
    let items = [Ok("a".to_owned()), Ok("b".to_owned()), Err(Status::new(Code::DataLoss))];
    let request = Request::new(Streaming::new(stream::iter(items)));
    let answer = client.client_streaming("/a.B/Upload", codec(), request).await;
    println!("Upload {:?}", answer.map(|answer| answer.into_inner()).map_err(|status| status.code()));
}
RUST
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, subprocess, sys
import grpc
from google.protobuf.wrappers_pb2 import StringValue

SERIALIZERS = {"request_deserializer": StringValue.FromString, "response_serializer": StringValue.SerializeToString}


def abort(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "no")


def set_code(request, context):
    """Fail as grpcio's guide to errors has it."""
    context.set_code(grpc.StatusCode.NOT_FOUND)
    context.set_details("no")
    return StringValue()


def upload(requests, context):
    """Answer with what the client sent before the end."""
    return StringValue(value=" ".join(request.value for request in requests))


handlers = {
    "Abort": grpc.unary_unary_rpc_method_handler(abort, **SERIALIZERS),
    "SetCode": grpc.unary_unary_rpc_method_handler(set_code, **SERIALIZERS),
    "Upload": grpc.stream_unary_rpc_method_handler(upload, **SERIALIZERS),
}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", handlers)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    usual = []
    for method in ("Abort", "SetCode"):
        try:
            channel.unary_unary(f"/a.B/{method}")(b"", timeout=10)
            usual.append("OK")
        except grpc.RpcError as error:
            usual.append(error.code().name)
output = subprocess.run([sys.argv[1], str(port)], stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
server.stop(5).wait()
print(f"grpcio: Abort {usual[0]}, SetCode {usual[1]}\npoem-grpc:\n{output}", end="")
right = usual == ["NOT_FOUND", "NOT_FOUND"]
sys.exit(not (right and output.splitlines() == ["Abort Err(NotFound)", 'SetCode Ok("")', 'Upload Ok("a b")']))
PYTHON
(cd "$folder" && PROTOC="$folder/protoc" cargo build --quiet >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY \
  timeout 100 "$folder/venv/bin/python" "$folder/see.py" "$folder/target/debug/see"
