#!/usr/bin/env bash
# grpclib's client loses every running call when the server ages the connection, though the server answers them all.
#
# Versions: grpclib 0.4.9 with h2 4.4.1, grpcio 1.85.3 as the server; Python 3.11 or newer, Linux. The server has
# `grpc.max_connection_age_ms: 1000` and 20 s of grace, so it sends GOAWAY after about a second and lets running calls
# end. Five calls of three seconds run on one connection, of a grpcio channel and of a grpclib channel.
#
# Seen: grpcio gets 5 of 5 answers. grpclib gets 0 of 5: all end with the GOAWAY, as StreamTerminatedError "Connection
# lost", which is no GRPCError and has no status. The GOAWAY names no stream as unprocessed (its last stream is
# 2^31-1), but h2's connection is closed for both sides after any GOAWAY, and grpclib closes the transport.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3 grpclib==0.4.9 h2==4.4.1
cat > "$folder/see.py" <<'PYTHON'
import asyncio, collections, concurrent.futures, sys, time
import grpc
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, StreamTerminatedError


class Bytes(CodecBase):
    """Messages are bytes as they are."""

    __content_subtype__ = "proto"

    def encode(self, message, message_type):
        return message

    def decode(self, data, message_type):
        return data


def answer(request, context):
    time.sleep(3)
    return request


def with_grpcio(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls = [channel.unary_unary("/a.B/C").future(b"a", timeout=20) for _ in range(5)]
        return collections.Counter(str(call.code()) for call in calls)


async def with_grpclib(port):
    channel = Channel("127.0.0.1", port, codec=Bytes())
    call = UnaryUnaryMethod(channel, "/a.B/C", bytes, bytes)
    try:
        ends = await asyncio.gather(*(call(b"a", timeout=20) for _ in range(5)), return_exceptions=True)
    finally:
        channel.close()
    return collections.Counter(end if isinstance(end, bytes) else f"{type(end).__name__}: {end}" for end in ends)


handler = grpc.unary_unary_rpc_method_handler(answer)
options = [("grpc.max_connection_age_ms", 1000), ("grpc.max_connection_age_grace_ms", 20_000)]
server = grpc.server(concurrent.futures.ThreadPoolExecutor(10), options=options)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
plain, lost = with_grpcio(port), asyncio.run(with_grpclib(port))
server.stop(None).wait()
print(f"grpcio: {dict(plain)}; grpclib: {dict(lost)}")
right = plain == {"StatusCode.OK": 5} and lost == {"StreamTerminatedError: Connection lost": 5}
sys.exit(not (right and not issubclass(StreamTerminatedError, GRPCError)))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
