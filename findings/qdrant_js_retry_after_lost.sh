#!/usr/bin/env bash
# Qdrant's gRPC client for Node.js makes a rate limit UNKNOWN, loses its retry-after, and takes each error for a limit.
#
# Versions: @qdrant/js-client-grpc 1.18.0 with @connectrpc/connect and connect-node 2.3.0 and @bufbuild/protobuf 2.17.0
# (npm), grpcio 1.85.3 for a server with one of Qdrant's methods; Node.js 20 or newer, Python 3.11 or newer, Linux. If
# its rate limit is used up, Qdrant says RESOURCE_EXHAUSTED, and `retry-after` how many seconds to wait. The client
# exports QdrantClientResourceExhaustedError, whose `retry_after` is that number. A server fails calls so, with 5, 30
# and 120 s, and once without a time; and one with UNAVAILABLE.
#
# Seen: `error instanceof QdrantClientResourceExhaustedError` holds for all five errors, UNAVAILABLE included, and none
# has a `retry_after`. The three that came with a time have the code UNKNOWN; in their `cause`, it is 5, 3 and 1: the
# first character of each. connect wraps the client's own error, which it does not know, in one of its own, whose test
# for `instanceof` the class inherits; and the header, a string, is read as if it were a list. So a program that waits
# for `retry_after` seconds waits for NaN, which is no time at all, and calls the server again that has just refused it.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
packages=(@qdrant/js-client-grpc@1.18.0 @connectrpc/connect@2.3.0 @connectrpc/connect-node@2.3.0
  @bufbuild/protobuf@2.17.0)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { Code } from "@connectrpc/connect";
import { QdrantClient, QdrantClientResourceExhaustedError } from "@qdrant/js-client-grpc";

const client = new QdrantClient({ host: "127.0.0.1", port: Number(process.argv[2]), checkCompatibility: false });
const seen = {};
for (const name of ["5", "30", "120", "none", "unavailable"]) {
  try {
    await client.api("collections").get({ collectionName: name });
  } catch (error) {
    const limit = error instanceof QdrantClientResourceExhaustedError;
    const times = `${error.retry_after}, in its cause: ${error.cause?.retry_after}`;
    seen[name] = `${Code[error.code]}, a limit: ${limit}, ${times}`;
  }
}
console.log(JSON.stringify(seen));
process.exit();
JAVASCRIPT
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, pathlib, subprocess, sys
import grpc

folder = pathlib.Path(sys.argv[1])


def get(request, context):
    """Fail as the name of the collection says."""
    name = request[2:].decode()
    if name == "unavailable":
        context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
    if name.isdecimal():
        context.set_trailing_metadata([("retry-after", name)])
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many reads")


handler = grpc.unary_unary_rpc_method_handler(get)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("qdrant.Collections", {"Get": handler})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    try:
        channel.unary_unary("/qdrant.Collections/Get")(b"\n\x0230", wait_for_ready=True, timeout=10)
    except grpc.RpcError as error:
        print(f"grpcio: {error.code().name}, {dict(error.trailing_metadata())}")
output = subprocess.run(["node", folder / "see.mjs", str(port)], stdout=subprocess.PIPE, timeout=60, check=True).stdout
server.stop(None).wait()
seen = json.loads(output)
for name, text in seen.items():
    print(f"{name}: {text}")
expected = {
    "5": "Unknown, a limit: true, undefined, in its cause: 5",
    "30": "Unknown, a limit: true, undefined, in its cause: 3",
    "120": "Unknown, a limit: true, undefined, in its cause: 1",
    "none": "ResourceExhausted, a limit: true, undefined, in its cause: undefined",
    "unavailable": "Unavailable, a limit: true, undefined, in its cause: undefined",
}
sys.exit(seen != expected)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
