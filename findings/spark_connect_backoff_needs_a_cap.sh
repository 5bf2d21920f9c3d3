#!/usr/bin/env bash
# Without `max_backoff`, a retry policy of Spark Connect has no exponential backoff: its pauses never grow.
#
# Versions: pyspark-client 4.2.0 with grpcio 1.85.3; Python 3.11 or newer, Linux. `RetryPolicy` of pyspark.sql.connect
# documents `backoff_multiplier` as the "Multiplicative base of the exponential backoff" and `max_backoff` as optional,
# the "Maximal value of the exponential backoff"; it is None by default. `set_retry_policies` takes policies of one's
# own. A server with Spark Connect's protocol fails each request for configuration with UNAVAILABLE and notes when it
# came. A client asks with six attempts, `initial_backoff=100` and `backoff_multiplier=2.0`: once without a maximum, and
# once with one of a minute.
#
# Seen: with the maximum the pauses are 0.1, 0.2, 0.4, 0.8 and 1.6 s. Without it each of the five is 0.1 s: the next
# pause is computed only if there is a maximum. So a policy that leaves it out, since six attempts need no cap, gives up
# after half a second instead of three, in which no server restarts; and one with many attempts calls the server at its
# first, quickest pace until they are used up.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pyspark-client==4.2.0 grpcio==1.85.3 grpcio-status==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, os, sys, time, warnings

warnings.simplefilter("ignore")  # of versions, and of retries that are used up
logging.disable()  # of aborts
import grpc
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.client.retries import RetryPolicy

times = []


class Always(RetryPolicy):
    def can_retry(self, exception):
        return isinstance(exception, grpc.RpcError)


def fail(request, context):
    times.append(time.monotonic())
    context.abort(grpc.StatusCode.UNAVAILABLE, "no")


handlers = {"Config": grpc.unary_unary_rpc_method_handler(fail)}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(5))
service = grpc.method_handlers_generic_handler("spark.connect.SparkConnectService", handlers)
server.add_generic_rpc_handlers([service])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
right = True
for cap in (None, 60_000):
    client = SparkConnectClient(f"sc://127.0.0.1:{port}")
    policy = Always(max_retries=5, initial_backoff=100, backoff_multiplier=2.0, max_backoff=cap)
    client.set_retry_policies([policy])
    times.clear()
    try:
        client.get_configs("a")
        end = "OK"
    except Exception as error:
        end = type(error).__name__
    pauses = [after - before for before, after in zip(times, times[1:])]
    print(f"max_backoff={cap}: {end}, pauses of {', '.join(f'{pause:.1f} s' for pause in pauses)}")
    right = right and len(pauses) == 5 and end != "OK"
    right = right and (max(pauses) < 0.5 if cap is None else pauses[-1] > 1.5)
sys.stdout.flush()
os._exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
