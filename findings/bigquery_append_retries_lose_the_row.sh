#!/usr/bin/env bash
# If the first call of an append stream to BigQuery ends with UNAVAILABLE, its retry loses the row or waits for nothing.
#
# Versions: google-cloud-bigquery-storage 2.43.0 with google-api-core 2.44.0 and grpcio 1.85.3; Python 3.11 or newer,
# Linux. The client's policy for AppendRows is to retry UNAVAILABLE, with backoff, for up to a day. A server with the
# protocol of BigQuery's Storage Write API ends one call with UNAVAILABLE, before or after it reads the first request,
# and takes all others. Ten times each, a new `AppendRowsStream` sends one row, and its caller waits for four seconds.
# Then the server of an open stream is away for three seconds; half a second after its stop, the stream sends a row.
#
# Seen: the client makes a second call, or one after another in the outage, and none of the 21 rows arrives. At least
# half of the sends raise Unknown, "There was a problem opening the stream". All attempts share one generator of
# requests, in which a thread of the first one still waits for another row. So the second one fails with "generator
# already executing", which only grpcio logs. If that thread has ended, as after 3 to 6 of ten calls that are refused
# unread, the second attempt finds a generator without its first request: server and client wait for each other, and
# `send` itself blocks (603 s in a run that waited for it). So retries that exist for outages make each of them a lost
# row or a stuck program.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet google-cloud-bigquery-storage==2.43.0 google-api-core==2.44.0 \
  grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import collections, concurrent.futures, logging, os, sys, threading, time
import grpc
from google.cloud.bigquery_storage_v1 import BigQueryWriteClient, types, writer
from google.cloud.bigquery_storage_v1.services.big_query_write.transports import BigQueryWriteGrpcTransport

SERVICE = "google.cloud.bigquery.storage.v1.BigQueryWrite"
calls, arrived, logged = [], [], []
refuse = ""  # which call to end with UNAVAILABLE: none, or the next one "before" or "after" its first request


def append_rows(requests, context):
    global refuse
    calls.append(refuse)
    when, refuse = refuse, ""
    if when == "before":
        context.abort(grpc.StatusCode.UNAVAILABLE, "try again")
    for offset, request in enumerate(requests):
        if when == "after":
            context.abort(grpc.StatusCode.UNAVAILABLE, "try again")
        arrived.append(request.proto_rows.rows.serialized_rows[0])
        yield types.AppendRowsResponse(append_result={"offset": offset})


def start(port=0):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(100))
    request, response = types.AppendRowsRequest.deserialize, types.AppendRowsResponse.serialize
    methods = {"AppendRows": grpc.stream_stream_rpc_method_handler(append_rows, request, response)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, port


def new_stream():
    name = "projects/p/datasets/d/tables/t/_default"
    return writer.AppendRowsStream(client, types.AppendRowsRequest(write_stream=name, proto_rows={"writer_schema": {}}))


def send(stream, row, seconds):
    """Send a row; return the type of the error, OK, or what waits after some seconds."""
    seen = ["send waits"]

    def work():
        try:
            future = stream.send(types.AppendRowsRequest(proto_rows={"rows": {"serialized_rows": [row]}}))
            seen[0] = "the result is missing"
            future.result(seconds)
            seen[0] = "OK"
        except Exception as error:
            seen[0] = f"{type(error).__name__} {error}".split(".")[0]

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return seen[0]


def many(when):
    """Send ten rows by ten streams, whose first call ends with UNAVAILABLE; return their ends."""
    global refuse
    ends = collections.Counter()
    for _ in range(10):
        calls.clear()
        refuse = when
        ends[send(new_stream(), b"row", 4)] += 1
        assert calls == [when, ""], calls
    print(f"refused {when} the first request, of 10 rows {arrived.count(b'row')} arrive: {dict(ends)}", flush=True)
    return ends


class Keep(logging.Handler):
    def emit(self, record):
        logged.append(repr(record.exc_info and record.exc_info[1]))


logging.basicConfig(handlers=[Keep()])
server, port = start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
client = BigQueryWriteClient(transport=BigQueryWriteGrpcTransport(channel=channel))
stream = new_stream()
assert send(stream, b"first", 20) == "OK"
before, after = many("before"), many("after")
server.stop(None).wait()
time.sleep(0.5)
restarted = []  # keeps the server
starter = threading.Timer(2.5, lambda: restarted.append(start(port)))
starter.start()
outage = send(stream, b"outage", 20)
starter.join()
grpc.channel_ready_future(channel).result(30)
print(f"amid an outage of three seconds: {outage}")
last = send(new_stream(), b"last", 20)
print(f"another stream, after it: {last}; arrived: {b' '.join(arrived).decode()}; {set(logged)}")
ends = set(before) | set(after) | {outage}
right = last == "OK" and arrived == [b"first", b"last"] and "ValueError('generator already executing')" in logged
sys.stdout.flush()
os.write(2, b"" if right else b"This behaviour has changed.\n")
os._exit(not (right and "OK" not in ends))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
