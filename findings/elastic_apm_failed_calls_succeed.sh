#!/usr/bin/env bash
# Elastic's APM agent for Python reports each gRPC call of a client that fails with the outcome "success".
#
# Versions: elastic-apm 6.26.2, grpcio 1.85.3; Python 3.11 or newer, Linux. Elastic's specification for its agents says
# that the span of a gRPC client has the outcome "success" for the status OK, and else "failure" (tracing-spans.md,
# "Span outcome", and tracing-instrumentation-grpc.md). An instrumented client makes three calls: one succeeds, one is
# aborted with UNAVAILABLE, and one passes its deadline. A small HTTP server takes the agent's events.
#
# Seen: the caller sees OK, UNAVAILABLE and DEADLINE_EXCEEDED. All three spans have the outcome "success". The agent
# waits for an exception of the call, but below an interceptor a failed call is a future that holds its error. So the
# failure rate of a gRPC dependency is 0 in Elastic while it is down, and calls that fail fast look like good ones.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet elastic-apm==6.26.2 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, gzip, http.server, json, logging, sys, threading, time
import elasticapm, grpc

logging.disable()  # of aborts
outcomes = {}


class Intake(http.server.BaseHTTPRequestHandler):
    """Takes the events that the agent sends, and keeps the outcome of each span by its name."""

    def do_POST(self):
        events = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        for event in map(json.loads, events.splitlines()):
            if span := event.get("span"):
                outcomes[span["name"]] = span.get("outcome")
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments):
        pass


def fail(request, context):
    context.abort(grpc.StatusCode.UNAVAILABLE, "no")


def wait(request, context):
    time.sleep(1)
    return request


intake = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Intake)
threading.Thread(target=intake.serve_forever, daemon=True).start()
methods = {"Answer": lambda request, context: request, "Fail": fail, "Wait": wait}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", handlers)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
url = f"http://127.0.0.1:{intake.server_address[1]}"
options = {"metrics_interval": "0ms", "central_config": False, "cloud_provider": "none"}
agent = elasticapm.Client(service_name="a", server_url=url, span_compression_enabled=False, **options)
elasticapm.instrument()
agent.begin_transaction("script")
ends = []
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    for method in methods:
        try:
            channel.unary_unary(f"/a.B/{method}")(b"request", timeout=0.5)
            ends.append("OK")
        except grpc.RpcError as error:
            ends.append(error.code().name)
agent.end_transaction("all", "done")
agent.close()
server.stop(None).wait()
intake.shutdown()
print(f"ends: {ends}\noutcomes of the spans: {outcomes}")
expected = {f"/a.B/{method}": "success" for method in methods}
sys.exit(not (ends == ["OK", "UNAVAILABLE", "DEADLINE_EXCEEDED"] and outcomes == expected))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
