#!/usr/bin/env bash
# With grpc-interceptor's ExceptionToStatusInterceptor a method that answers with a Struct or ListValue is INTERNAL.
#
# Versions: grpc-interceptor 0.15.4, grpcio 1.85.3, protobuf 7.36.2; Python 3.11 or newer, Linux. The interceptor is
# documented to "catch any subclass of GrpcException and set the status code and details"; it comes for servers with
# threads and for asyncio. google.protobuf.Struct and ListValue are what an API answers with if it has no schema of its
# own for the answer. A server of each kind, without the interceptor and with it, answers unary calls with a Struct, a
# ListValue and a Value that holds a Struct, and raises nothing.
#
# Seen: with the interceptor the server with threads fails the calls that answer with a Struct or a ListValue: INTERNAL,
# "Failed to serialize response!". All others succeed, those of the asyncio server as well. The interceptor takes each
# response that is Iterable for a stream and puts a generator in its place, and in Python a Struct is a mapping and a
# ListValue a list. The log blames the serializer of a sound message, and nothing in it names the interceptor; unit
# tests that call the method, and other methods of the server, all pass.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpc-interceptor==0.15.4 grpcio==1.85.3 protobuf==7.36.2
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, logging, sys
import grpc
import grpc.aio
from google.protobuf import struct_pb2
from grpc_interceptor import AsyncExceptionToStatusInterceptor, ExceptionToStatusInterceptor

logging.disable()  # of each failed call
struct = struct_pb2.Struct(fields={"a": struct_pb2.Value(number_value=1)})
answers = {
    "Struct": struct,
    "ListValue": struct_pb2.ListValue(values=[struct_pb2.Value(number_value=1)]),
    "Value": struct_pb2.Value(struct_value=struct),
}


def handle(is_async):
    """Return a handler with a method for each answer."""

    def make(answer):
        def method(request, context):
            return answer

        async def async_method(request, context):
            return answer

        behaviour = async_method if is_async else method
        return grpc.unary_unary_rpc_method_handler(behaviour, None, type(answer).SerializeToString)

    return grpc.method_handlers_generic_handler("a", {name: make(answer) for name, answer in answers.items()})


def call(port):
    """Return how a call to each method ends."""
    ends = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for name, answer in answers.items():
            try:
                same = channel.unary_unary(f"/a/{name}", None, type(answer).FromString)(b"", timeout=20) == answer
                ends.append("OK" if same else "other")
            except grpc.RpcError as error:
                ends.append(f"{error.code().name}: {error.details()}")
    return ends


def see_threads(interceptors):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), interceptors=interceptors)
    server.add_generic_rpc_handlers([handle(False)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    ends = call(port)
    server.stop(None).wait()
    return ends


async def see_asyncio(interceptors):
    server = grpc.aio.server(interceptors=interceptors)
    server.add_generic_rpc_handlers([handle(True)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    ends = await asyncio.to_thread(call, port)
    await server.stop(None)
    return ends


seen = {
    "threads": see_threads([]),
    "threads, interceptor": see_threads([ExceptionToStatusInterceptor()]),
    "asyncio": asyncio.run(see_asyncio([])),
    "asyncio, interceptor": asyncio.run(see_asyncio([AsyncExceptionToStatusInterceptor()])),
}
for name, ends in seen.items():
    print(f"{name}: {dict(zip(answers, ends))}")
failed = "INTERNAL: Failed to serialize response!"
sys.exit(list(seen.values()) != [["OK"] * 3, [failed, failed, "OK"], ["OK"] * 3, ["OK"] * 3])
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 120 "$folder/venv/bin/python" "$folder/see.py"
