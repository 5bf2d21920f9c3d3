#!/usr/bin/env bash
# A deadline of nice-grpc's deadline middleware never reaches the server, and one of 25 days has passed at once.
#
# Versions: nice-grpc 2.1.18 with nice-grpc-client-middleware-deadline 2.0.20 and @grpc/grpc-js 1.14.7 (npm), grpcio
# 1.85.3 as the server; Node.js 20 or newer, Python 3.11 or newer, Linux. gRPC sends a call's deadline as the header
# grpc-timeout (PROTOCOL-HTTP2.md), so that the server knows when to stop and can pass it on to the servers that it
# calls itself; grpc-js, below nice-grpc, does so. The middleware's README promises DEADLINE_EXCEEDED "after which" the
# deadline has passed. A client makes calls with deadlines of 10 s, 24 days and 25 days.
#
# Seen: the server sees no deadline at all. With 10 s and 24 days the call succeeds; with 25 days it ends within
# milliseconds with DEADLINE_EXCEEDED, since the middleware has a timer of its own, and a timer of Node.js that is
# longer than 2^31 ms fires at once.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
packages=(nice-grpc@2.1.18 nice-grpc-client-middleware-deadline@2.0.20 nice-grpc-common@2.0.4 @grpc/grpc-js@1.14.7)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { createChannel, createClientFactory } from "nice-grpc";
import { deadlineMiddleware } from "nice-grpc-client-middleware-deadline";

const day = 86_400_000;
const asIs = (bytes) => bytes;
const service = {
  C: {
    path: "/a.B/C",
    requestStream: false,
    responseStream: false,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
    options: {},
  },
};
const channel = createChannel(`127.0.0.1:${process.argv[2]}`);
const client = createClientFactory().use(deadlineMiddleware).create(service, channel);
const ends = {};
for (const [name, deadline] of [["10 s", 10_000], ["24 days", 24 * day], ["25 days", 25 * day]]) {
  const began = Date.now();
  try {
    const response = await client.C(Buffer.from("a"), { deadline });
    ends[name] = `server's deadline: ${response}`;
  } catch (error) {
    ends[name] = `${error.details} ${Date.now() - began < 5000 ? "at once" : "later"}`;
  }
}
channel.close();
console.log(JSON.stringify(ends));
JAVASCRIPT
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, pathlib, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])


def answer(request, context):
    """Take a second; tell the caller its deadline."""
    time.sleep(1)
    remaining = context.time_remaining()
    return b"none" if remaining is None or remaining > 10**9 else str(remaining).encode()


handler = grpc.unary_unary_rpc_method_handler(answer)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    compared = float(channel.unary_unary("/a.B/C")(b"a", timeout=10, wait_for_ready=True))
output = subprocess.run(["node", folder / "see.mjs", str(port)], stdout=subprocess.PIPE, timeout=60, check=True).stdout
server.stop(None).wait()
seen = json.loads(output)
print(f"grpcio's call of 10 s, at the server: {compared:.1f} s left; nice-grpc's: {seen}")
none = "server's deadline: none"
expected = {"10 s": none, "24 days": none, "25 days": "Deadline exceeded at once"}
sys.exit(not (5 < compared < 10 and seen == expected))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
