#!/usr/bin/env bash
# A retry timeout of 1000 ms of Momento's Python client is a deadline of 1000 s, though the client's own timeout is 2 s.
#
# Versions: momento 1.29.1 with grpcio 1.85.3; Python 3.11 or newer, Linux. `FixedTimeoutRetryStrategy` gives each retry
# `retry_timeout_millis`, and "clips it to the overall deadline if the overall deadline is sooner", says a docstring. A
# server with Momento's protocol fails the first call with UNAVAILABLE; on the next it works for twelve seconds or until
# the call ends. It notes the time that each has left. A client whose timeout is 2 s gets a key: with the default
# strategy, then with a retry timeout of 1000 ms, then with one of 5000 ms, which the overall deadline is to clip.
#
# Seen: with the default, both attempts have 2 s, and the caller gets an error after 2 s. With 1000 ms the retry has a
# thousand seconds. With 5000 ms it has about 1900, what is left of the 2 s in milliseconds: the client computes in
# milliseconds, and grpcio takes seconds. In both cases the caller waits for all of the twelve seconds, and if the
# server hangs at the retry, for a quarter of an hour and more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet momento==1.29.1 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, datetime, logging, sys, threading, time
import grpc
from momento import CacheClient, Configurations, CredentialProvider
from momento.retry.fixed_timeout_retry_strategy import FixedTimeoutRetryStrategy

logging.disable()  # of aborts
left = []


def answer(request, context):
    """Fail the first call; work on the others for twelve seconds or until they end."""
    left.append(context.time_remaining())
    if len(left) == 1:
        context.abort(grpc.StatusCode.UNAVAILABLE, "no")
    ended = threading.Event()
    context.add_callback(ended.set)
    ended.wait(12)
    return b""


def see(millis):
    """Return the time that the retry has left, as the server sees it, and how long the caller waits."""
    left.clear()
    configuration = Configurations.Laptop.v1().with_client_timeout(datetime.timedelta(seconds=2))
    if millis:
        strategy = FixedTimeoutRetryStrategy(retry_timeout_millis=millis, retry_delay_interval_millis=100)
        configuration = configuration.with_retry_strategy(strategy)
    credentials = CredentialProvider.for_momento_local(port=port)
    with CacheClient(configuration, credentials, datetime.timedelta(seconds=60)) as client:
        began = time.monotonic()
        client.get("a", "b")
        waited = time.monotonic() - began
    first, retry = left
    assert 1.5 < first < 2.5, first
    return retry, waited


server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
handler = grpc.unary_unary_rpc_method_handler(answer)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("cache_client.Scs", {"Get": handler})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
expected = {None: ((1.5, 2.5), (1.5, 4)), 1000: ((950, 1050), (11.5, 15)), 5000: ((1400, 2050), (11.5, 15))}
right = True
for millis, ((least, most), (soonest, latest)) in expected.items():
    retry, waited = see(millis)
    print(f"retry timeout {millis} ms: the retry has {retry:.1f} s left, the caller waited for {waited:.1f} s")
    right = right and least < retry < most and soonest < waited < latest
server.stop(None)
sys.exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
