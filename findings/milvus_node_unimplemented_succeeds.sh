#!/usr/bin/env bash
# Milvus's client for Node.js resolves a call that the server does not implement, and its retries restart the timeout.
#
# Versions: @zilliz/milvus2-sdk-node 3.0.6 (npm), grpcio 1.85.3 for a server with Milvus's methods; Node.js 20 or newer,
# Python 3.11 or newer, Linux. gRPC has UNIMPLEMENTED for a method that a server lacks, such as one older than its
# clients. The client documents `timeout` as the "Request timeout in milliseconds", and `maxRetries` as the "Max retry
# attempts (default: 3)". A server fails `truncateCollection` ("Clear all data") with UNIMPLEMENTED, and `flush` with
# UNAVAILABLE after 0.8 s. A client with a timeout of one second makes both calls; one with `retryDelay: 600` flushes.
#
# Seen: the truncation resolves with an empty object, no error and no status: the client turns this status into OK, so
# that a program that awaits it goes on as if the data were gone. The flush takes 3.4 s, not one: four calls, each with
# a deadline of a second. With the longer delay, the server gets one call, and the caller DEADLINE_EXCEEDED after 2.0 s
# instead of the server's UNAVAILABLE: the deadline of a retry begins before the pause, here 1.2 s, and is over when the
# retry should start. So pauses that are long enough for a server in trouble stop the retries, and the timeout bounds
# none of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" @zilliz/milvus2-sdk-node@3.0.6 >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { MilvusClient } from "@zilliz/milvus2-sdk-node";

const options = { address: `127.0.0.1:${process.argv[2]}`, timeout: 1000, logLevel: "error" };
const client = new MilvusClient(options);
const patient = new MilvusClient({ ...options, retryDelay: 600 });
await Promise.all([client.connectPromise, patient.connectPromise]);
const calls = {
  truncate: () => client.truncateCollection({ collection_name: "a" }),
  flush: () => client.flush({ collection_names: ["short"] }),
  "flush, 600": () => patient.flush({ collection_names: ["long"] }),
};
const ends = {};
for (const [name, call] of Object.entries(calls)) {
  const began = performance.now();
  const end = await call().then(JSON.stringify, (error) => `error ${error.code}`);
  ends[name] = [end, (performance.now() - began) / 1000];
}
console.log(JSON.stringify(ends));
process.exit();
JAVASCRIPT
cat > "$folder/see.py" <<'PYTHON'
import collections, concurrent.futures, json, pathlib, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])
deadlines = collections.defaultdict(list)


class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        """Flush late and without success, lack TruncateCollection, and answer all else with an empty message."""
        name = details.method.rsplit("/")[-1]

        def answer(request, context):
            if name == "Flush":
                deadlines["long" if b"long" in request else "short"].append(round(context.time_remaining(), 1))
                time.sleep(0.8)
                context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
            return b""

        return None if name == "TruncateCollection" else grpc.unary_unary_rpc_method_handler(answer)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers([Handler()])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    try:
        call = channel.unary_unary("/milvus.proto.milvus.MilvusService/TruncateCollection")
        call(b"", wait_for_ready=True, timeout=10)
        compared = "OK"
    except grpc.RpcError as error:
        compared = error.code().name
output = subprocess.run(["node", folder / "see.mjs", str(port)], stdout=subprocess.PIPE, timeout=60, check=True).stdout
server.stop(None).wait()
seen = json.loads(output)
print(f"truncateCollection: {compared} for grpcio, {seen['truncate'][0]} for Milvus's client")
for name, key in (("flush", "short"), ("flush, 600", "long")):
    end, seconds = seen[name]
    print(f"{name}: {end} after {seconds:.2f} s; deadlines at the server: {deadlines[key]}")
right = compared == "UNIMPLEMENTED" and seen["truncate"][0] == "{}"
right = right and seen["flush"][0] == "error 14" and seen["flush"][1] > 3 and len(deadlines["short"]) == 4
right = right and min(deadlines["short"]) > 0.7
right = right and seen["flush, 600"][0] == "error 4" and len(deadlines["long"]) == 1 and seen["flush, 600"][1] > 1.8
sys.exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
