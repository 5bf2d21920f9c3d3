#!/usr/bin/env bash
# grpcio-testing's server loses the trailers of an aborted call, and makes each error with details UNKNOWN.
#
# Versions: grpcio-testing 1.85.0 with grpcio and grpcio-status 1.85.3; Python 3.11 or newer, Linux. gRPC's own package
# for tests calls the methods of a service without a network; `server_from_dictionary` creates "a Server for use in
# tests of a gRPC Python-using system". A server tells a client by trailers how to go on: `grpc-retry-pushback-ms`, or
# the error details in `grpc-status-details-bin`, which grpcio-status writes for `abort_with_status`. A service has
# three methods: one sets a pushback and aborts with UNAVAILABLE, one aborts with a status that has a RetryInfo, and one
# asks `context.peer()` before it answers. Each is called at grpcio's server and at that of grpcio-testing.
#
# Seen: with grpcio the three end with UNAVAILABLE and the pushback, RESOURCE_EXHAUSTED and the details, and OK. With
# grpcio-testing, the first one ends with UNAVAILABLE and no trailer. The others end with UNKNOWN "Exception calling
# application", since `abort_with_status` and `peer` raise NotImplementedError. So a test that is to show that a server
# says "later" passes as well if it says nothing, or fails although the server is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(grpcio-testing==1.85.0 grpcio==1.85.3 grpcio-status==1.85.3)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, os, sys
import grpc
import grpc_testing
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

logging.disable()  # of aborts


class Service:
    def Pushback(self, request, context):
        context.set_trailing_metadata([("grpc-retry-pushback-ms", "5000")])
        context.abort(grpc.StatusCode.UNAVAILABLE, "no")

    def Details(self, request, context):
        status = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="later")
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=5)))
        context.abort_with_status(rpc_status.to_status(status))

    def Peer(self, request, context):
        context.peer()
        return Empty()


METHODS = ("Pushback", "Details", "Peer")
service = Service()


def real():
    """Return for each method the code, the details and the keys of the trailers that a client gets."""
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(getattr(service, name), Empty.FromString, Empty.SerializeToString)
        for name in METHODS
    }
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(5))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    for name in METHODS:
        call = channel.unary_unary(f"/a.B/{name}").future(b"", timeout=10)
        yield call.code(), call.details(), [key for key, _ in call.trailing_metadata()]


def double():
    """Return the same of grpcio-testing's server."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a", dependency=["google/protobuf/empty.proto"])
    declared = file.service.add(name="B")
    for name in METHODS:
        declared.method.add(name=name, input_type=".google.protobuf.Empty", output_type=".google.protobuf.Empty")
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindServiceByName("a.B")
    server = grpc_testing.server_from_dictionary({descriptor: service}, grpc_testing.strict_real_time())
    for name in METHODS:
        call = server.invoke_unary_unary(descriptor.methods_by_name[name], (), Empty(), 10)
        *_, trailers, code, details = call.termination()
        yield code, details, [key for key, _ in trailers if key != "grpc.metadata_added_by_runtime"]


def see(server):
    seen = list(server())
    for name, (code, details, keys) in zip(METHODS, seen):
        print(f"{server.__name__}, {name}: {code.name} {details!r}, trailers: {', '.join(keys) or 'none'}")
    return [(code.name, keys) for code, _, keys in seen]


pushback, details = ["grpc-retry-pushback-ms"], ["grpc-status-details-bin"]
right = see(real) == [("UNAVAILABLE", pushback), ("RESOURCE_EXHAUSTED", details), ("OK", [])]
right = see(double) == [("UNAVAILABLE", []), ("UNKNOWN", []), ("UNKNOWN", [])] and right
sys.stdout.flush()
os._exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
