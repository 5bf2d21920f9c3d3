#!/usr/bin/env bash
# Unlimited retries end: py-spiffe's watch after 85 minutes, without a word, and dapr's after 9.7 h, with OverflowError.
#
# Versions: spiffe 0.3.2, dapr 1.19.0, grpcio 1.85.3; Python 3.11 or newer, Linux. py-spiffe's `RetryPolicy` has
# `max_retries=UNLIMITED_RETRIES` by default, and `stream_x509_contexts` is documented to call `on_error` if an error
# occurs; dapr's `RetryPolicy` takes `max_attempts=-1`, for which its loop has no end. A server fails each call with
# UNAVAILABLE. py-spiffe watches its X.509 contexts with a backoff of at most 1 ms instead of 5 s. dapr's policy makes
# calls with its defaults, and its clock is replaced by one that adds up the seconds.
#
# Seen: py-spiffe makes 1,025 calls and then no more. `on_error` is not called; the thread has ended with OverflowError.
# With the default of 5 s this is after 85 minutes without an agent: `X509Source` then never gets another certificate,
# and says nothing, until the last one has expired. dapr's caller gets OverflowError, not the RpcError, after 1,752
# attempts, which is 9.7 hours. Both compute the whole power before they cap it, and Python's floats end at 2^1024.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet spiffe==0.3.2 dapr==1.19.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, contextlib, io, logging, sys, threading, time, types
import dapr.clients.retry, grpc
from spiffe import WorkloadApiClient
from spiffe.workloadapi.workload_api_client import RetryPolicy

logging.disable()  # of each failed call
address, calls, ended, errors, slept = f"unix:{sys.argv[1]}/socket", [], [], [], []


def fail(request, context):
    calls.append(time.monotonic())
    context.abort(grpc.StatusCode.UNAVAILABLE, "no")


class Anything(grpc.GenericRpcHandler):
    """Fails each method."""

    def service(self, details):
        streams = "Fetch" in details.method
        return (grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler)(fail)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[Anything()])
server.add_insecure_port(address)
server.start()

threading.excepthook = lambda end: ended.append(end.exc_type.__name__)
client = WorkloadApiClient(address)
policy = RetryPolicy(max_backoff=0.001)
client.stream_x509_contexts(print, errors.append, retry_policy=policy)
while not calls or time.monotonic() - calls[-1] < 5:
    time.sleep(0.1)
print(f"spiffe: {len(calls)} calls, {len(errors)} calls of on_error, its thread has ended with {ended}")
defaults = RetryPolicy()
minutes = sum(min(0.1 * 2**number, defaults.max_backoff) for number in range(len(calls) - 1)) / 60
print(f"with the defaults this takes {minutes:.0f} minutes")
watched = len(calls)

dapr.clients.retry.time = types.SimpleNamespace(sleep=slept.append)
with grpc.insecure_channel(address) as channel, contextlib.redirect_stdout(io.StringIO()):  # it prints each attempt
    try:
        dapr.clients.retry.RetryPolicy(max_attempts=-1).run_rpc(channel.unary_unary("/a/B"), b"")
    except Exception as error:
        end = type(error).__name__
attempts = len(calls) - watched
print(f"dapr: {attempts} attempts within {sum(slept) / 3600:.1f} hours, then {end}")
client.close()
server.stop(None)
right = (watched, errors, ended, attempts, end) == (1025, [], ["OverflowError"], 1752, "OverflowError")
sys.exit(not (right and defaults.max_retries == 0 and round(minutes) == 85))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
