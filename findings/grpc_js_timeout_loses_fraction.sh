#!/usr/bin/env bash
# In grpc-js, a `timeout` of a service config such as "1.5s" loses its fraction, so that "0.5s" fails every call.
#
# Versions: @grpc/grpc-js 1.14.7 (npm), grpcio 1.85.3; Python 3.11 or newer, Node.js 20 or newer, Linux. A method's
# `timeout` in a service config is a Duration in its JSON form, with at most nine digits after the point
# (service_config.proto). A server of grpcio answers at once, or, if asked to be slow, after six seconds. The client
# makes both calls with service configs of 0.5, 1.5, 2.25 and 4 s.
#
# Seen: whole seconds are right. 0.5 s fails each call within milliseconds, 1.5 s ends the slow call after 1.0 s, and
# 2.25 s after 2.0 s: the digits after the point are read as a number of nanoseconds. So the short timeouts that are
# meant for quick methods let none of their calls succeed.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" @grpc/grpc-js@1.14.7 >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import grpc from "@grpc/grpc-js";

const [port, timeout] = process.argv.slice(2);
const config = { loadBalancingConfig: [], methodConfig: [{ name: [{}], timeout }] };
const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure(), {
  "grpc.service_config": JSON.stringify(config),
});
const asIs = (bytes) => bytes;
const call = (request) =>
  new Promise((resolve) => {
    const began = performance.now();
    client.makeUnaryRequest("/a.B/C", asIs, asIs, Buffer.from(request), (error, response) => {
      const text = error ? grpc.status[error.code] : response.toString();
      resolve([text, (performance.now() - began) / 1000]);
    });
  });
await new Promise((resolve, reject) => client.waitForReady(Date.now() + 10_000, (e) => (e ? reject(e) : resolve())));
console.log(JSON.stringify([await call("quick"), await call("slow")]));
client.close();
JAVASCRIPT
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, pathlib, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])


def answer(request, context):
    """Answer at once, or after six seconds."""
    if request == b"slow":
        time.sleep(6)
    return b"answered"


handler = grpc.unary_unary_rpc_method_handler(answer)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(20))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
expected = {
    "0.5s": ("DEADLINE_EXCEEDED", 0, 0.3),
    "1.5s": ("answered", 0.9, 1.4),
    "2.25s": ("answered", 1.9, 2.2),
    "4s": ("answered", 3.9, 4.5),
}
right = True
for timeout, (end, least, most) in expected.items():
    command = ["node", folder / "see.mjs", str(port), timeout]
    seen = json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout)
    (quick, _), (slow, seconds) = seen
    print(f"{timeout}: the quick call {quick}, the slow one {slow} after {seconds:.2f} s")
    right = right and (quick, slow) == (end, "DEADLINE_EXCEEDED") and least <= seconds <= most
server.stop(None)
sys.exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
