#!/usr/bin/env bash
# flagd's provider for Node.js rounds its retry backoff to whole seconds: 450 ms is none, and four calls come at once.
#
# Versions: @openfeature/flagd-provider 0.16.1 with @openfeature/server-sdk 1.23.0 and @grpc/grpc-js 1.14.7 (npm),
# grpcio 1.85.3 as the server; Python 3.11 or newer, Node.js 20 or newer, Linux. `retryBackoffMs` is the "initial retry
# backoff in milliseconds", 1000 by default; the pauses double, up to a maximum. A server with flagd's protocol
# fails each ResolveBoolean with UNAVAILABLE and notes when it came. A program evaluates one flag, with backoffs of 450,
# 550, 1000, 1400 and 1600 ms.
#
# Seen: each evaluation makes four calls. With 450 ms they come within a tenth of a second: the provider writes "0.00s"
# into the service config of its channel. With 550 and 1400 ms the first pause is about a second, as with 1000, and with
# 1600 ms about two. So a user who wants the provider to retry sooner than after a second gets no backoff at all, and a
# flagd that has just restarted gets four times the calls at once.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@openfeature/flagd-provider@0.16.1 @openfeature/server-sdk@1.23.0 @grpc/grpc-js@1.14.7)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { FlagdProvider } from "@openfeature/flagd-provider";
import { OpenFeature } from "@openfeature/server-sdk";

const [port, retryBackoffMs] = process.argv.slice(2).map(Number);
const options = { host: "127.0.0.1", port, tls: false, deadlineMs: 10_000, retryBackoffMs };
await OpenFeature.setProviderAndWait(new FlagdProvider(options));
const { value, reason } = await OpenFeature.getClient().getBooleanDetails("flag", true);
process.exit(value === true && reason === "ERROR" ? 0 : 1);
JAVASCRIPT
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, pathlib, subprocess, sys, time
import grpc

logging.disable()  # of aborts
folder = pathlib.Path(sys.argv[1])
times = []


def stream(request, context):
    """Say that flagd is ready, until the caller goes."""
    yield b"\x0a\x0eprovider_ready"
    while context.is_active():
        time.sleep(0.1)


def fail(request, context):
    times.append(time.monotonic())
    context.abort(grpc.StatusCode.UNAVAILABLE, "no")


handlers = {
    "EventStream": grpc.unary_stream_rpc_method_handler(stream),
    "ResolveBoolean": grpc.unary_unary_rpc_method_handler(fail),
}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(20))
services = [f"flagd.evaluation.{version}.Service" for version in ("v1", "v2")]
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, handlers) for name in services])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
right = True
for backoff, seconds in {450: 0, 550: 1, 1000: 1, 1400: 1, 1600: 2}.items():
    times.clear()
    subprocess.run(["node", folder / "see.mjs", str(port), str(backoff)], timeout=60, check=True)
    pauses = [after - before for before, after in zip(times, times[1:])]
    print(f"retryBackoffMs {backoff}: {len(times)} calls, pauses of {', '.join(f'{pause:.2f} s' for pause in pauses)}")
    right = right and len(pauses) == 3 and all(pause < 0.2 for pause in pauses) == (seconds == 0)
    right = right and 0.75 * seconds <= pauses[0] <= 1.25 * seconds + 0.2
server.stop(None).wait()
sys.exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
