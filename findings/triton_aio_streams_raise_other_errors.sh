#!/usr/bin/env bash
# A stream of Triton's asyncio client ends in grpcio's errors instead of its own, and a bad input in a cancellation.
#
# Versions: tritonclient 2.73.0, grpcio 1.85.3; Python 3.11 or newer, Linux. The client's methods raise an
# InferenceServerException if the server refuses a call or cannot be reached. `stream_infer` is also documented to raise
# it "If inputs_iterator does not yield the correct input". A server with Triton's protocol answers a model m, takes
# four seconds for a model slow, and ends calls of a model away with UNAVAILABLE. A program calls `infer` and
# `stream_infer` of each with a timeout of two seconds, and then of m without the server. Last, it passes to
# `stream_infer` an input that lacks "inputs", alone and in a task of a TaskGroup.
#
# Seen: each time that `infer` raises an InferenceServerException with the status, `stream_infer` raises grpcio's
# AioRpcError: it guards the creation of the call, which does no I/O, and not the reading from it. (The client for
# threads passes an InferenceServerException to the callback of a stream.) The bad input raises CancelledError, since
# the check fails inside the iterator of requests, whereupon grpc.aio cancels the call. So no `except Exception` sees
# it, and the TaskGroup ends without an error, as if its stream had succeeded.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet 'tritonclient[grpc]==2.73.0' grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, sys, time
import grpc
import numpy
from tritonclient.grpc import InferInput, service_pb2, service_pb2_grpc
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

INPUT = InferInput("i", [1], "FP32")
INPUT.set_data_from_numpy(numpy.zeros(1, "float32"))


class Triton(service_pb2_grpc.GRPCInferenceServiceServicer):
    def ModelInfer(self, request, context):
        if request.model_name == "away":
            context.abort(grpc.StatusCode.UNAVAILABLE, "the model is being loaded")
        if request.model_name == "slow":
            time.sleep(4)
        return service_pb2.ModelInferResponse(model_name=request.model_name)

    def ModelStreamInfer(self, requests, context):
        for request in requests:
            yield service_pb2.ModelStreamInferResponse(infer_response=self.ModelInfer(request, context))


def start():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(5))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Triton(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    return server, address


async def one(request):
    yield request


async def infer(client, **request):
    await client.infer(**request, client_timeout=2)


async def stream(client, **request):
    async for _ in client.stream_infer(one(request), stream_timeout=2):
        pass


async def see(method, client, **request):
    """Return how a call ends: OK, or the type of the error and its status."""
    try:
        await asyncio.wait_for(method(client, **request), 30)
        seen = "OK"
    except InferenceServerException as error:
        seen = f"InferenceServerException {error.status()}"
    except grpc.aio.AioRpcError as error:
        seen = f"AioRpcError {error.code()}"
    except asyncio.CancelledError:
        seen = "CancelledError"
    print(f"{method.__name__} {' '.join(each for each in request.values() if isinstance(each, str))}: {seen}")
    return seen


async def main():
    server, address = start()
    seen = []
    async with InferenceServerClient(address) as client:
        await client.infer("m", [INPUT], client_timeout=20)  # connects
        for model in "m", "slow", "away", "m":
            seen += [await see(method, client, model_name=model, inputs=[INPUT]) for method in (infer, stream)]
            if model == "away":
                print("the server stops")
                server.stop(None).wait()
        print("without inputs,")
        bad = await see(stream, client, model_name="m")
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            task = group.create_task(stream(client, model_name="m"))
        print(f"a TaskGroup with this stream has ended without an error; the task was cancelled: {task.cancelled()}")
    statuses = "DEADLINE_EXCEEDED", "UNAVAILABLE", "UNAVAILABLE"
    pairs = [(f"InferenceServerException StatusCode.{each}", f"AioRpcError StatusCode.{each}") for each in statuses]
    expected = ["OK", "OK", *(end for pair in pairs for end in pair)]
    return seen == expected and bad == "CancelledError" and task.cancelled()


sys.exit(None if asyncio.run(main()) else "This behaviour has changed.")
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
