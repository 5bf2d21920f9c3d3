#!/usr/bin/env bash
# A retry of Google's Python clients that has less than a second left gets the whole timeout again: 4 s become 7.
#
# Versions: google-api-core 2.44.0 with grpcio 1.85.3; Python 3.11 or newer, Linux. Google's clients for Python make
# each call with a timeout and a retry of google-api-core. TimeToDeadlineTimeout, which carries the timeout, is
# documented to implement "deadline semantics in terms of a sequence of decreasing timeouts t0 > t1 > t2 ... tn >= 0". A
# server fails the first attempt with UNAVAILABLE after 1.0, 2.6 or 3.3 s, then hangs, and notes the time that each
# attempt has left. A client calls it with a timeout of 4 s, as the generated clients do, with pauses of at most 0.1 s.
#
# Seen: if the first attempt fails after 1.0 or 2.6 s, the second one has what is left, and the caller gets
# DEADLINE_EXCEEDED after 4 s. If it fails after 3.3 s, the second one has 4 s once more, and the caller waits for 7.3
# s: when less than a second is left, the class goes back to the timeout of the start. A comment says that it does so
# for "negative or 0 timeout values". So with the usual default of 60 s, a call whose server fails late takes up to two
# minutes, though a worker or a web request counts on one, and only the slow failures show it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet 'google-api-core[grpc]==2.44.0' grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, os, sys, time
import grpc
from google.api_core import exceptions, gapic_v1, retry

logging.disable()  # of aborts
TIMEOUT = 4
left = []


def work(request, context):
    """Fail the first attempt after as many seconds as the request says; answer no other."""
    left.append(context.time_remaining())
    began = time.monotonic()
    if len(left) == 1:
        time.sleep(float(request))
        context.abort(grpc.StatusCode.UNAVAILABLE, "no")
    while context.is_active() and time.monotonic() < began + 20:
        time.sleep(0.05)
    return b""


handlers = {"C": grpc.unary_unary_rpc_method_handler(work)}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(10))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", handlers)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
again = retry.if_exception_type(exceptions.ServiceUnavailable)
policy = retry.Retry(predicate=again, initial=0.1, maximum=0.1, timeout=TIMEOUT)
call = gapic_v1.method.wrap_method(channel.unary_unary("/a.B/C"), default_retry=policy, default_timeout=TIMEOUT)
right = True
for first in (1.0, 2.6, 3.3):
    left.clear()
    began = time.monotonic()
    try:
        call(str(first).encode())
        end = "OK"
    except exceptions.GoogleAPICallError as error:
        end = type(error).__name__
    seconds = time.monotonic() - began
    told = " and ".join(f"{each:.1f} s" for each in left)
    print(f"failure after {first} s: the attempts have {told}, {end} after {seconds:.1f} s")
    whole = TIMEOUT - first < 0.9
    second, all_in_all = (TIMEOUT, TIMEOUT + first) if whole else (TIMEOUT - first, TIMEOUT)
    right = right and len(left) == 2 and end == "DeadlineExceeded"
    right = right and abs(left[1] - second) < 0.4 and abs(seconds - all_in_all) < 0.4
sys.stdout.flush()
os._exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
