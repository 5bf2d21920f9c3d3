#!/usr/bin/env bash
# Qdrant's gRPC client for Node.js ignores the abort signal of a call, and its timeout is CANCELLED and stays at home.
#
# Versions: @qdrant/js-client-grpc 1.18.0 with @connectrpc/connect and connect-node 2.3.0 and @bufbuild/protobuf 2.17.0
# (npm), grpcio 1.85.3 for a server with one of Qdrant's methods; Node.js 20 or newer, Python 3.11 or newer, Linux. Each
# method of `client.api(...)` takes connect's call options, of which `signal` is "an optional AbortSignal to cancel the
# call". A server answers after two seconds unless it hears that the call has ended. Clients with the default timeout,
# with `timeout: Infinity` and with `timeout: 500` call it, the first two with a signal that aborts after half a second.
#
# Seen: with the default timeout, 300 s, the signal does nothing: the server works for two seconds, and the call
# succeeds. With Infinity, it ends the call after 0.5 s on both sides. The timeout of 500 ms ends the call with
# CANCELLED, not DEADLINE_EXCEEDED, and the server sees no deadline. A finite timeout replaces the signal of the call by
# its own. So with all the defaults a search that its caller has given up runs on, and a timeout looks like the caller's
# own doing.
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
import { QdrantClient } from "@qdrant/js-client-grpc";

const connect = (options) =>
  new QdrantClient({ host: "127.0.0.1", port: Number(process.argv[2]), checkCompatibility: false, ...options });
const abort = () => ({ signal: AbortSignal.timeout(500) });
const ends = {};
for (const [name, client, options] of [
  ["signal", connect({}), abort],
  ["signal, timeout: Infinity", connect({ timeout: Infinity }), abort],
  ["timeout: 500", connect({ timeout: 500 }), () => ({})],
]) {
  const call = client.api("collections").list({}, options());
  ends[name] = await call.then(
    () => "OK",
    (error) => Code[error.code],
  );
}
console.log(JSON.stringify(ends));
process.exit();
JAVASCRIPT
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, pathlib, subprocess, sys, threading, time
import grpc

folder = pathlib.Path(sys.argv[1])
calls = []


def get(request, context):
    """Work for two seconds or until the call ends; note for how long, and the deadline."""
    ended = threading.Event()
    context.add_callback(ended.set)
    began, remaining = time.monotonic(), context.time_remaining()
    deadline = "no deadline" if remaining is None or remaining > 10**9 else "a deadline"
    call = [deadline]
    calls.append(call)
    ended.wait(2)
    call.append(time.monotonic() - began)
    return b""


handler = grpc.unary_unary_rpc_method_handler(get)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("qdrant.Collections", {"List": handler})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
output = subprocess.run(["node", folder / "see.mjs", str(port)], stdout=subprocess.PIPE, timeout=60, check=True).stdout
server.stop(5).wait()
seen = json.loads(output)
for (name, end), (deadline, seconds) in zip(seen.items(), calls, strict=True):
    print(f"{name}: {end}; the server saw {deadline} and worked for {seconds:.1f} s")
right = list(seen.values()) == ["OK", "Canceled", "Canceled"] and {deadline for deadline, _ in calls} == {"no deadline"}
sys.exit(not (right and calls[0][1] > 1.9 and max(calls[1][1], calls[2][1]) < 1.5))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
