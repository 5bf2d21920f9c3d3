#!/usr/bin/env bash
# With Sentry's gRPC integration, `.future()` waits for the call to end, so five calls of a second take five seconds.
#
# Versions: sentry-sdk 2.75.0, grpcio 1.85.3; Python 3.11 or newer, Linux. grpcio documents that `future` of a stub's
# method invokes it asynchronously and returns at once an object that is a Future for the call. `GRPCIntegration` gives
# each channel that the process creates with `grpc.insecure_channel` an interceptor. A server answers after a second; a
# client starts five calls with `.future()` and then waits for all, before and after `sentry_sdk.init`, which sends
# nothing here.
#
# Seen: before, the five futures are there at once and done after 1.0 s, five calls at a time. After, each `.future()`
# takes a second, and the server never has more than one call. The interceptor reads the call's status to put it on the
# span, and `code()` waits for the end. So with tracing on, requests that go to many servers at a time, hedged calls and
# a thread that must not wait get slower by the number of calls, and no error or log line says so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet sentry-sdk==2.75.0 grpcio==1.85.3 protobuf==7.36.2
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, sys, threading, time
import grpc, sentry_sdk
from sentry_sdk.integrations.grpc import GRPCIntegration

running, most, lock = 0, 0, threading.Lock()


def answer(request, context):
    global running, most
    with lock:
        running += 1
        most = max(most, running)
    time.sleep(1)
    with lock:
        running -= 1
    return request


def see(name):
    """Make five calls with futures; return how many the server had at a time, and how many were done when started."""
    global most
    most, start = 0, time.monotonic()
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/a.B/C")
        futures = [call.future(b"request", timeout=60) for _ in range(5)]
        started, done = time.monotonic() - start, sum(future.done() for future in futures)
        for future in futures:
            future.result()
    print(f"{name}: started after {started:.1f} s, {done} of 5 done by then; at most {most} at a time")
    return most, done


server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
handler = grpc.unary_unary_rpc_method_handler(answer)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
without = see("without Sentry")
sentry_sdk.init(
    "https://public@localhost/1",
    traces_sample_rate=1.0,
    transport=lambda envelope: None,
    integrations=[GRPCIntegration()],
)
traced = see("with Sentry")
server.stop(None).wait()
sys.exit(not (without == (5, 0) and traced == (1, 5)))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
