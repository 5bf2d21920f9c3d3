#!/usr/bin/env bash
# A stream of Clarifai's client that is refused is None after many seconds; with asyncio, one that is cut ends well.
#
# Versions: clarifai 12.5.0 with clarifai-grpc 12.6.0 and grpcio 1.85.3; Python 3.11 or newer, Linux. `create_stub`
# gives a stub "that handles authorization and basic retries for unavailable or throttled connections"; by default it
# makes up to 10 attempts, 5 s apart. A server with Clarifai's protocol refuses calls, with PERMISSION_DENIED or
# UNAVAILABLE, and streams before the first response or after two. The stub has `max_retry_attempts=3`.
#
# Seen: PostModelOutputs, a call with one response, raises each error. GenerateModelOutputs does not: a stream that is
# refused, also with PERMISSION_DENIED, is tried three times in ten seconds, and then the method returns None and raises
# nothing, so that the loop over it fails with a TypeError; with the default this takes 45 s. In the asyncio client a
# stream that ends with UNAVAILABLE, before its first response or after two, gives one more item, None, and ends as a
# complete one does. The None is a "signal for retry", which nothing reads: there is no retry, and no error. So an
# answer of a language model that is cut in the middle looks whole, but for a None at its end.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(clarifai==12.5.0 clarifai-grpc==12.6.0 grpcio==1.85.3)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, logging, os, sys, time
import grpc
from clarifai.client.auth import create_stub
from clarifai.client.auth.helper import ClarifaiAuthHelper
from clarifai_grpc.grpc.api import service_pb2, service_pb2_grpc

logging.disable()  # of each failed call
attempts, end, first = [], None, None


class Models(service_pb2_grpc.V2Servicer):
    """Fails each call with `end`, a stream after `first` responses."""

    def PostModelOutputs(self, request, context):
        attempts.append(time.monotonic())
        context.abort(end, "no")

    def GenerateModelOutputs(self, request, context):
        attempts.append(time.monotonic())
        for _ in range(first):
            yield service_pb2.MultiOutputResponse()
        context.abort(end, "no")


def told(value):
    return value if value is None else type(value).__name__


def see(name, method, code, responses=0):
    """Return what a call of the client for threads gives, and the attempts at the server."""
    global end, first
    end, first = code, responses
    attempts.clear()
    stub = create_stub(helper, max_retry_attempts=3)
    try:
        result = getattr(stub, method)(request)
        got = told(result)
        if result is not None:
            got = [told(one) for one in result]
    except grpc.RpcError as error:
        got = error.code().name
    print(f"{name}, {code.name}: {got}, {len(attempts)} attempts in {attempts[-1] - attempts[0]:.0f} s")
    return got, len(attempts)


async def see_asyncio(name, code, responses):
    """Return what a stream of the asyncio client gives."""
    global end, first
    end, first = code, responses
    attempts.clear()
    stub = create_stub(helper, max_retry_attempts=3, is_async=True)
    got = []
    try:
        async for one in await stub.GenerateModelOutputs(request):
            got.append(told(one))
        got.append("end")
    except grpc.RpcError as error:
        got.append(error.code().name)
    print(f"{name}, {code.name}: {got}, {len(attempts)} attempts")
    return got, len(attempts)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
service_pb2_grpc.add_V2Servicer_to_server(Models(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
helper = ClarifaiAuthHelper(user_id="a", app_id="a", pat="a", base=f"http://127.0.0.1:{port}", validate=False)
request = service_pb2.PostModelOutputsRequest()
codes = grpc.StatusCode
denied, away = codes.PERMISSION_DENIED, codes.UNAVAILABLE
call = [see("call", "PostModelOutputs", code) for code in (denied, away)]
stream = [see("stream", "GenerateModelOutputs", code) for code in (denied, away)]
ends = [asyncio.run(see_asyncio("asyncio stream", denied, 0)), asyncio.run(see_asyncio("asyncio stream", away, 0))]
cut = asyncio.run(see_asyncio("asyncio stream, cut", away, 2))
sys.stdout.flush()
right = [got for got, _ in call] == [denied.name, away.name] and [got for got, _ in stream] == [None, None]
right = right and stream[0][1] == 3 and [got for got, _ in ends] == [[denied.name], [None, "end"]]
os._exit(not (right and cut == (["MultiOutputResponse", "MultiOutputResponse", None, "end"], 1)))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 120 "$folder/venv/bin/python" "$folder/see.py"
