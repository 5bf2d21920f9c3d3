#!/usr/bin/env bash
# OpenTelemetry's Python exporter (OTLP/gRPC) looks for RetryInfo where OTLP's throttling does not put it.
#
# Versions: opentelemetry-exporter-otlp-proto-grpc 1.45.2, grpcio and grpcio-status 1.85.3 as the collector; Python 3.11
# or newer, Linux. OTLP says that a server throttles with a status that has RetryInfo as a detail, that the client
# waits for its `retry_delay`, and that RESOURCE_EXHAUSTED without RetryInfo is not to be repeated (OTLP specification,
# "OTLP/gRPC Throttling"). gRPC carries such details in the trailer grpc-status-details-bin. A collector answers the
# first export of spans with RESOURCE_EXHAUSTED and a RetryInfo of 8 s: once in the status, as grpcio-status writes it,
# once in a trailer google.rpc.retryinfo-bin. A third collector always answers RESOURCE_EXHAUSTED without RetryInfo.
#
# Seen: with RetryInfo in the status the exporter tries again after about a second, its own first backoff; only the
# trailer with the other name makes it wait for 8 s. Without RetryInfo it repeats the export as well. So a collector
# that asks for time by the book gets the load again at once, and one that refuses for good gets it several times.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(opentelemetry-exporter-otlp-proto-grpc==1.45.2 grpcio==1.85.3 grpcio-status==1.85.3)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, sys, time
import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import TracerProvider

logging.disable()  # of failed exports
INFO = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=8))


def in_status(context):
    detail = Any()
    detail.Pack(INFO)
    status = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="wait", details=[detail])
    context.abort_with_status(rpc_status.to_status(status))


def in_trailer(context):
    context.set_trailing_metadata([("google.rpc.retryinfo-bin", INFO.SerializeToString())])
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "wait")


def nowhere(context):
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no")


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Notes when exports come, and fails the first one, or all of them if it gives no RetryInfo."""

    def __init__(self, fail):
        self.fail, self.times = fail, []

    def Export(self, request, context):
        self.times.append(time.monotonic())
        if len(self.times) == 1 or self.fail is nowhere:
            self.fail(context)
        return trace_service_pb2.ExportTraceServiceResponse()


def export(fail, timeout):
    """Return how the export ends, and the seconds between its first attempt and each later one."""
    collector = Collector(fail)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}", insecure=True, timeout=timeout)
    span = TracerProvider().get_tracer("a").start_span("b")
    span.end()
    end = exporter.export([span]).name
    exporter.shutdown()
    server.stop(None).wait()
    later = [round(at - collector.times[0], 1) for at in collector.times[1:]]
    print(f"RetryInfo {fail.__name__}: {end}, further attempts after {later} s")
    return end, later


(first, status), (second, trailer), (third, none) = export(in_status, 30), export(in_trailer, 30), export(nowhere, 5)
right = (first, second, third) == ("SUCCESS", "SUCCESS", "FAILURE")
sys.exit(not (right and 0 < status[0] < 8 <= trailer[0] + 0.1 and len(none) > 0))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
