#!/usr/bin/env bash
# The clients of Weaviate and YDB wait through their longest backoff after the last attempt, and only then raise.
#
# Versions: weaviate-client 4.24.1, ydb 3.33.2, grpcio 1.78.2; Python 3.11 or newer, Linux. A backoff is the time before
# a retry: gRFC A6 has none after the last attempt, and weaviate-client logs "Retrying with exponential backoff in 32
# seconds" when no retry follows. A server fails each search of weaviate-client with UNAVAILABLE; these retries have no
# setting. A function that raises `Overloaded` is run by `ydb.retry_operation_sync` with three retries.
#
# Seen: weaviate-client makes 6 attempts within 31 s, and raises after 63 s. ydb makes 4 attempts with growing pauses,
# and raises after a fourth pause, the longest; with its defaults this is one of 32 to 64 s after the eleventh attempt.
# So in an outage each caller keeps its thread for that time with nothing left to try, and a fallback or an alarm comes
# as much later.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet weaviate-client==4.24.1 ydb==3.33.2 grpcio==1.78.2
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, http.server, itertools, logging, sys, threading, time, warnings

warnings.simplefilter("ignore")  # of weaviate-client's dependencies
import grpc, weaviate, ydb

logging.disable()  # of aborts


class Meta(http.server.BaseHTTPRequestHandler):
    """Tells weaviate-client the server's version."""

    def do_GET(self):
        body = b'{"version": "1.33.0", "modules": {}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def pauses(times):
    return [round(after - before, 1) for before, after in itertools.pairwise(times)]


def of_weaviate():
    """Return the seconds between the attempts of a search, and from the last one to its error."""
    times = []

    def search(request, context):
        times.append(time.monotonic())
        context.abort(grpc.StatusCode.UNAVAILABLE, "no")

    rest = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Meta)
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    handlers = {"Search": grpc.unary_unary_rpc_method_handler(search)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("weaviate.v1.Weaviate", handlers)])
    ports = {"port": rest.server_address[1], "grpc_port": server.add_insecure_port("127.0.0.1:0")}
    server.start()
    with weaviate.connect_to_local(host="127.0.0.1", **ports, skip_init_checks=True) as client:
        try:
            client.collections.get("A").query.fetch_objects()
        except weaviate.exceptions.WeaviateQueryError:
            times.append(time.monotonic())
    server.stop(None).wait()
    rest.shutdown()
    return pauses(times)


def of_ydb():
    """Return the seconds between the calls of a function that fails, and from the last one to its error."""
    times = []

    def fail():
        times.append(time.monotonic())
        raise ydb.issues.Overloaded("no")

    try:
        ydb.retry_operation_sync(fail, ydb.RetrySettings(max_retries=3, backoff_slot_duration=0.4))
    except ydb.issues.Overloaded:
        times.append(time.monotonic())
    return pauses(times)


seen = of_weaviate(), of_ydb()
for name, (*between, last) in zip(("weaviate-client", "ydb"), seen):
    print(f"{name}: {len(between) + 1} attempts, pauses between them {between} s, and {last} s before the error")
right = [len(seen[0]), len(seen[1])] == [6, 4] and seen[0][-1] >= 32 and seen[1][-1] >= 1.6
sys.exit(not (right and all(waits[-1] == max(waits) for waits in seen)))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
