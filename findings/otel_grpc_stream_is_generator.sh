#!/usr/bin/env bash
# With OpenTelemetry's gRPC instrumentation, a stream starts when it is first read, and has no `cancel()` or `code()`.
#
# Versions: opentelemetry-instrumentation-grpc 0.66b2 with opentelemetry-sdk 1.45.2, grpcio 1.85.3; Python 3.11 or
# newer, Linux. grpcio documents that a stub's method for a stream of responses returns an object that is both a call,
# with `cancel`, `code` and `initial_metadata`, and an iterator; the call is made at once. Metadata may hold a key more
# than once. `GrpcInstrumentorClient` is documented to trace calls. A server notes when a subscription begins and the
# values of the key "a" in its metadata. A client subscribes with two of them, waits for a second, reads a message, and
# asks for the status of the call and to cancel it. It does this with and without the instrumentation.
#
# Seen: without it, the subscription begins at once, with both values, and is cancelled. With it, the subscription
# begins after the second, when it is read, with the second value alone, and `code` and `cancel` raise AttributeError:
# the call is a plain generator. A stream in both directions begins at once and is a call, but loses the value too. So
# what is published between a subscription and its first read is lost, a program that waits for the initial metadata
# before it acts fails, and another thread cannot stop the one that reads a quiet stream.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(opentelemetry-instrumentation-grpc==0.66b2 opentelemetry-sdk==1.45.2 grpcio==1.85.3)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, sys, time
import grpc
from opentelemetry.instrumentation.grpc import GrpcInstrumentorClient
from opentelemetry.sdk.trace import TracerProvider

begun = []


def subscribe(request, context):
    values = [value for key, value in context.invocation_metadata() if key == "a"]
    begun.append((time.monotonic(), values))
    while context.is_active():
        yield b""
        time.sleep(0.1)


def subscribe_both(requests, context):
    yield from subscribe(None, context)


def see(name, call):
    """Return after how many seconds the call begins, the metadata that it has, and how its methods answer."""
    begun.clear()
    start = time.monotonic()
    stream = call()
    time.sleep(1)
    next(stream)
    answers = []
    for method in ("code", "cancel"):
        try:
            if method == "code":
                concurrent.futures.ThreadPoolExecutor(1).submit(stream.code)  # it waits for the end
            else:
                stream.cancel()
            answers.append("done")
        except AttributeError as error:
            answers.append(str(error))
    ((at, values),) = begun
    print(f"{name}: begins after {at - start:.1f} s with {values}; code, cancel: {answers}")
    return round(at - start), values, answers


def both(name):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        metadata = (("a", "1"), ("a", "2"))
        one = see(f"{name}, stream", lambda: channel.unary_stream("/a.B/C")(b"", metadata=metadata, timeout=20))
        two = see(f"{name}, both", lambda: channel.stream_stream("/a.B/D")(iter([b""]), metadata=metadata, timeout=20))
    return one, two


handlers = {
    "C": grpc.unary_stream_rpc_method_handler(subscribe),
    "D": grpc.stream_stream_rpc_method_handler(subscribe_both),
}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", handlers)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
plain = both("plain")
GrpcInstrumentorClient().instrument(tracer_provider=TracerProvider())
traced = both("traced")
server.stop(None).wait()
missing = [f"'generator' object has no attribute '{method}'" for method in ("code", "cancel")]
done = ["done", "done"]
right = plain == ((0, ["1", "2"], done),) * 2 and traced == ((1, ["2"], missing), (0, ["2"], done))
sys.exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
