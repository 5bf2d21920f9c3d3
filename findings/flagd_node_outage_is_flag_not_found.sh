#!/usr/bin/env bash
# flagd's provider for Node.js calls an outage FLAG_NOT_FOUND after seven seconds, and has no limit if flagd is silent.
#
# Versions: @openfeature/flagd-provider 0.16.1 with @openfeature/server-sdk 1.23.0 and @grpc/grpc-js 1.14.7 (npm),
# grpcio 1.85.3 as the server; Python 3.11 or newer, Node.js 20 or newer, Linux. OpenFeature has the error codes
# FLAG_NOT_FOUND, for a flag that the provider does not have, and GENERAL and PROVIDER_NOT_READY. A server with flagd's
# protocol answers the flag "good", has no flag "unknown" (NOT_FOUND), fails "down" with UNAVAILABLE, and for a minute
# says nothing to "silent". A program with default settings evaluates each, and waits for 20 s at most.
#
# Seen: "good" is true. "unknown" is FLAG_NOT_FOUND at once. "down" is FLAG_NOT_FOUND too, after seven seconds or so of
# retries, which a request of a user waits for. "silent" has no end: the server sees no deadline, and the program still
# waits after 20 s, since no option sets a time limit for an evaluation. So an alert on missing flags rings in an
# outage, code that falls back to another source for unknown flags does so too, and a frozen flagd freezes its callers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@openfeature/flagd-provider@0.16.1 @openfeature/server-sdk@1.23.0 @grpc/grpc-js@1.14.7)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { setTimeout as sleep } from "node:timers/promises";
import { FlagdProvider } from "@openfeature/flagd-provider";
import { OpenFeature } from "@openfeature/server-sdk";

const port = Number(process.argv[2]);
await OpenFeature.setProviderAndWait(new FlagdProvider({ host: "127.0.0.1", port, tls: false }));
const client = OpenFeature.getClient();
const seen = {};
for (const flag of ["good", "unknown", "down", "silent"]) {
  const began = performance.now();
  const details = await Promise.race([client.getBooleanDetails(flag, false), sleep(20_000)]);
  const end = details ? (details.errorCode ?? String(details.value)) : "still waiting";
  seen[flag] = [end, (performance.now() - began) / 1000];
}
console.log(JSON.stringify(seen));
process.exit();
JAVASCRIPT
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, logging, pathlib, subprocess, sys, time
import grpc

logging.disable()  # of aborts
folder = pathlib.Path(sys.argv[1])
limits = []


def stream(request, context):
    """Say that flagd is ready, until the caller goes."""
    yield b"\x0a\x0eprovider_ready"
    while context.is_active():
        time.sleep(0.1)


def resolve(request, context):
    if b"unknown" in request:
        context.abort(grpc.StatusCode.NOT_FOUND, "no such flag")
    if b"down" in request:
        context.abort(grpc.StatusCode.UNAVAILABLE, "no")
    if b"silent" in request:
        limits.append(context.time_remaining())
        began = time.monotonic()
        while context.is_active() and time.monotonic() - began < 60:
            time.sleep(0.1)
    return b"\x08\x01\x12\x06STATIC\x1a\x02on"  # true, its reason and its variant


handlers = {
    "EventStream": grpc.unary_stream_rpc_method_handler(stream),
    "ResolveBoolean": grpc.unary_unary_rpc_method_handler(resolve),
}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(20))
services = [f"flagd.evaluation.{version}.Service" for version in ("v1", "v2")]
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, handlers) for name in services])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
command = ["node", folder / "see.mjs", str(port)]
seen = json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=90, check=True).stdout)
server.stop(None).wait()
expected = {
    "good": ("true", 0, 1),
    "unknown": ("FLAG_NOT_FOUND", 0, 1),
    "down": ("FLAG_NOT_FOUND", 5, 10),
    "silent": ("still waiting", 19.5, 21),
}
right = True
for flag, (end, seconds) in seen.items():
    print(f"{flag}: {end} after {seconds:.1f} s")
    code, least, most = expected[flag]
    right = right and end == code and least <= seconds <= most
print(f"deadline of the silent call at the server: {'none' if limits[0] > 1e9 else limits}")
sys.exit(not (right and limits[0] > 1e9))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
