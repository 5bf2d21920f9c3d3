#!/usr/bin/env bash
# The asyncio client of sonora (gRPC-Web) returns None for a unary call that failed, if the status is in the body.
#
# Versions: sonora 0.2.3, connectrpc 0.13.0 with protobuf 7.36.2 on uvicorn 0.54.0 as the server; Python 3.11 or newer,
# Linux. gRPC-Web puts the status into the last frame of the body, since browsers do not show HTTP trailers to a page
# (PROTOCOL-WEB.md). A server that speaks gRPC-Web fails each call with UNAVAILABLE. sonora's two clients, `client` for
# threads and `aio`, call it.
#
# Seen: the answer of the server has HTTP status 200, no `grpc-status` in its headers, and one frame with the trailer
# "grpc-status: 14". The client for threads raises WebRpcError with UNAVAILABLE. The asyncio client returns None and
# raises nothing: it reads the frame, and looks for a status in the HTTP headers alone. So with this client each failure
# of such a server is an answer, and no retry, breaker or alarm sees it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(sonora==0.2.3 grpcio==1.85.3 connectrpc==0.13.0 pyqwest==0.12.0 protobuf==7.36.2 uvicorn==0.54.0)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}" aiohttp urllib3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, socket, sys, urllib.request
import grpc, sonora.aio, sonora.client, uvicorn
from connectrpc.code import Code
from connectrpc.compat import google_protobuf_codecs
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.server import ConnectASGIApplication, Endpoint
from google.protobuf.wrappers_pb2 import StringValue

METHOD = MethodInfo(
    name="C",
    service_name="a.B",
    input=StringValue,
    output=StringValue,
    idempotency_level=IdempotencyLevel.UNKNOWN,
    stream_type=StreamType.UNARY,
)
REQUEST = StringValue(value="request")
CALL = ("/a.B/C", StringValue.SerializeToString, StringValue.FromString)


class Application(ConnectASGIApplication):
    path = "/a.B"


async def fail(request, context):
    raise ConnectError(Code.UNAVAILABLE, "no")


def answer(url):
    """Return the headers that tell a status, and the body."""
    message = REQUEST.SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message
    request = urllib.request.Request(f"{url}/a.B/C", body, {"content-type": "application/grpc-web+proto"})
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.status, response.headers.get("grpc-status"), response.read()


def with_threads(url):
    with sonora.client.insecure_web_channel(url) as channel:
        try:
            return channel.unary_unary(*CALL)(REQUEST, timeout=20)
        except grpc.RpcError as error:
            return error.code()


async def with_asyncio(url):
    async with sonora.aio.insecure_web_channel(url) as channel:
        try:
            return await channel.unary_unary(*CALL)(REQUEST, timeout=20)
        except grpc.RpcError as error:
            return error.code()


async def main():
    endpoint = Endpoint.unary(method=METHOD, function=fail)
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    endpoints = {"/a.B/C": endpoint}
    application = Application(service=object(), endpoints=lambda service: endpoints, codecs=google_protobuf_codecs())
    server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_level="error"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    raw = await asyncio.to_thread(answer, url)
    seen = (await asyncio.to_thread(with_threads, url), await with_asyncio(url))
    server.should_exit = True
    await serving
    print(f"answer (HTTP status, header grpc-status, body): {raw}")
    print(f"client for threads: {seen[0]}, asyncio client: {seen[1]}")
    frame = raw[:2] == (200, None) and raw[2][0] == 0x80 and b"grpc-status: 14" in raw[2]
    return frame and seen == (grpc.StatusCode.UNAVAILABLE, None)


sys.exit(not asyncio.run(main()))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
