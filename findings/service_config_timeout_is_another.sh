#!/usr/bin/env bash
# A `timeout` of a service config ends grpcio's calls a second or two early, and in grpc-js it loses its fraction.
#
# Versions: grpcio 1.85.3, @grpc/grpc-js 1.14.7 (npm); Python 3.11 or newer, Node.js 20 or newer, Linux. A method's
# `timeout` in a service config is a Duration in its JSON form, such as "1.5s", with at most nine digits after the point
# (service_config.proto). A server of grpcio answers at once with the deadline that it sees, or, if asked to be slow,
# after six seconds. Both clients call it with service configs of 0.5, 1.5 and 4 s; with grpcio, also with the arguments
# `timeout=0.5` and `timeout=4` and without a service config.
#
# Seen: with the arguments, the calls have the time that they name, and the server sees their deadlines. With a service
# config of 0.5 s, each call of both clients fails within milliseconds. In grpc-js, 1.5 s ends after 1.0 s, since it
# reads the digits after the point as a number of nanoseconds; whole seconds are right. In grpcio the timer of the call
# begins one to two seconds in the past, by another amount in each process: 4 s ends after 2 to 3 s, and 1.5 s after at
# most 0.5 s or at once. Its server sees no deadline at all, and passes none on to the servers that it calls. So the
# short timeouts that are meant for quick methods let none of their calls succeed.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" @grpc/grpc-js@1.14.7 >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import grpc from "@grpc/grpc-js";

const [port, config] = process.argv.slice(2);
const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure(), {
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [], ...JSON.parse(config) }),
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
    """Tell the caller the deadline that has come, at once or after six seconds."""
    if request == b"slow":
        time.sleep(6)
    remaining = context.time_remaining()
    return b"no deadline" if remaining is None or remaining > 10**9 else b"a deadline"


handler = grpc.unary_unary_rpc_method_handler(answer)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(20))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()


def of_python(config, timeout=None):
    """Make a quick and a slow call; return the end and the time of each."""
    options = [("grpc.service_config", config)] if config else []
    seen = []
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        grpc.channel_ready_future(channel).result(10)
        for request in (b"quick", b"slow"):
            began = time.monotonic()
            try:
                end = channel.unary_unary("/a.B/C")(request, timeout=timeout).decode()
            except grpc.RpcError as error:
                end = error.code().name
            seen.append((end, time.monotonic() - began))
    return seen


def of_node(config):
    """Do the same with grpc-js."""
    command = ["node", folder / "see.mjs", str(port), config]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout)


late = "DEADLINE_EXCEEDED"
expected = {
    "grpcio, timeout=0.5": ("a deadline", 0.45, 1.0),
    "grpcio, timeout=4": ("a deadline", 3.9, 4.5),
    "grpcio, 0.5s": (late, 0, 0.3),
    "grpcio, 1.5s": (None, 0, 1.0),
    "grpcio, 4s": ("no deadline", 1.8, 3.5),
    "grpc-js, 0.5s": (late, 0, 0.3),
    "grpc-js, 1.5s": ("a deadline", 0.9, 1.4),
    "grpc-js, 4s": ("a deadline", 3.9, 4.5),
}
seen = {f"grpcio, timeout={timeout}": of_python(None, timeout) for timeout in (0.5, 4)}
for name, client in (("grpcio", of_python), ("grpc-js", of_node)):
    for timeout in ("0.5s", "1.5s", "4s"):
        seen[f"{name}, {timeout}"] = client(json.dumps({"methodConfig": [{"name": [{}], "timeout": timeout}]}))
server.stop(None)
right = True
for name, ((quick, _), (slow, seconds)) in seen.items():
    print(f"{name}: the quick call {quick}, the slow one {slow} after {seconds:.2f} s")
    end, least, most = expected[name]
    right = right and end in (quick, None) and slow == late and least <= seconds <= most
sys.exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
