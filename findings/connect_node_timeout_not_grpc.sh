#!/usr/bin/env bash
# A gRPC call of connect-node with a timeout of a fraction of a millisecond, or of 28 hours, fails at the server.
#
# Versions: @connectrpc/connect 2.1.2 and connect-node 2.1.2 with @bufbuild/protobuf 2.17.0 (npm), grpcio 1.85.3 as the
# server; Node.js 20 or newer, Python 3.11 or newer, Linux. `timeoutMs` is a number of milliseconds. gRPC's header
# grpc-timeout has an integer of at most 8 digits and one of six units, from nanoseconds to hours (PROTOCOL-HTTP2.md,
# "Timeout"). The client of `createGrpcTransport` calls with timeouts of 10,000 ms, 10,000.5 ms and 100,800,000 ms.
#
# Seen: the first call succeeds. The others end with INTERNAL "Error parsing 'grpc-timeout' metadata": the client writes
# "10000.5m" and "100800000m", which is no gRPC. A timeout that is the rest of a deadline, such as
# `deadline - performance.now()`, is nearly always a fraction.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
packages=(@connectrpc/connect@2.1.2 @connectrpc/connect-node@2.1.2 @bufbuild/protobuf@2.17.0)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { create, createFileRegistry } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, file_google_protobuf_empty } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

const empty = ".google.protobuf.Empty";
const file = create(FileDescriptorProtoSchema, {
  name: "a.proto",
  package: "a",
  syntax: "proto3",
  dependency: ["google/protobuf/empty.proto"],
  service: [{ name: "B", method: [{ name: "C", inputType: empty, outputType: empty }] }],
});
const service = createFileRegistry(file, () => file_google_protobuf_empty.proto).getService("a.B");
const client = createClient(service, createGrpcTransport({ baseUrl: `http://127.0.0.1:${process.argv[2]}` }));
const ends = {};
for (const timeoutMs of [10_000, 10_000.5, 100_800_000]) {
  try {
    await client.c({}, { timeoutMs });
    ends[timeoutMs] = "OK";
  } catch (error) {
    ends[timeoutMs] = `${Code[error.code]} ${error.rawMessage}`;
  }
}
console.log(JSON.stringify(ends));
process.exit();
JAVASCRIPT
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, pathlib, subprocess, sys
import grpc

folder = pathlib.Path(sys.argv[1])
handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
output = subprocess.run(["node", folder / "see.mjs", str(port)], stdout=subprocess.PIPE, timeout=60, check=True).stdout
server.stop(None).wait()
seen = json.loads(output)
print(seen)
refused = "Internal Error parsing 'grpc-timeout' metadata"
sys.exit(seen != {"10000": "OK", "10000.5": refused, "100800000": refused})
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
