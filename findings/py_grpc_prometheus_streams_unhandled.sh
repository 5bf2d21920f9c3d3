#!/usr/bin/env bash
# py-grpc-prometheus counts the start of each server stream and never its end, whether it succeeds or fails.
#
# Versions: py-grpc-prometheus 0.8.0 with prometheus-client 0.26.0, grpcio 1.85.3; Python 3.11 or newer, Linux.
# `grpc_server_handled_total` and `grpc_client_handled_total` have, by the help texts that the library gives them, the
# "total number of RPCs completed", "regardless of success or failure", by code. A client and a server with its
# interceptors make a unary call and a call with a stream of responses, each once with success and once with an abort
# with UNAVAILABLE.
#
# Seen: both sides count both unary calls as started and as handled, one OK and one UNAVAILABLE. Both streams are
# counted as started; neither is ever counted as handled, on either side. So streams that fail show in no rate of
# errors, and "started minus handled", the usual measure of running calls, grows for ever.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3 py-grpc-prometheus==0.8.0 prometheus-client==0.26.0
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, sys
import grpc
from prometheus_client import CollectorRegistry
from py_grpc_prometheus.prometheus_client_interceptor import PromClientInterceptor
from py_grpc_prometheus.prometheus_server_interceptor import PromServerInterceptor

logging.disable()  # of aborts


def unary(request, context):
    if request == b"fail":
        context.abort(grpc.StatusCode.UNAVAILABLE, "no")
    return request


def stream(request, context):
    yield request
    if request == b"fail":
        context.abort(grpc.StatusCode.UNAVAILABLE, "no")


def counts(registry):
    """Return how often each type of call was started, and how often it was handled with each code."""
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    kept = [sample for sample in samples if sample.name.endswith(("_started_total", "_handled_total"))]
    place = lambda sample: (sample.labels["grpc_type"], sample.labels.get("grpc_code", "started"))
    return {place(sample): int(sample.value) for sample in kept}


handlers = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Stream": grpc.unary_stream_rpc_method_handler(stream),
}
of_server, of_client = CollectorRegistry(), CollectorRegistry()
interceptors = [PromServerInterceptor(registry=of_server)]
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), interceptors=interceptors)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", handlers)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
ends = []
with grpc.insecure_channel(f"127.0.0.1:{port}") as plain:
    channel = grpc.intercept_channel(plain, PromClientInterceptor(registry=of_client))
    for request in (b"succeed", b"fail"):
        for call in (channel.unary_unary("/a.B/Unary"), channel.unary_stream("/a.B/Stream")):
            try:
                list(call(request, timeout=20))
                ends.append("OK")
            except grpc.RpcError as error:
                ends.append(error.code().name)
server.stop(None).wait()
print(f"ends: {ends}\nserver: {counts(of_server)}\nclient: {counts(of_client)}")
unary = {("UNARY", "started"): 2, ("UNARY", "OK"): 1, ("UNARY", "UNAVAILABLE"): 1}
expected = unary | {("SERVER_STREAMING", "started"): 2}
right = ends == ["OK", "OK", "UNAVAILABLE", "UNAVAILABLE"]
sys.exit(not (right and counts(of_server) == counts(of_client) == expected))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
