#!/usr/bin/env bash
# grpclib sends a deadline above 10 s in whole seconds, rounded down: with `timeout=10.9` a call of 10.4 s fails.
#
# Versions: grpclib 0.4.9 with h2 4.4.1 as client and server; Python 3.11 or newer, Linux.
# gRPC's protocol has units for this: "10900m" is 10.9 s (PROTOCOL-HTTP2.md, "Timeout"), which grpcio sends. A server
# answers after 10.4 s and notes how much time it is given; the client calls it with `timeout=10.9`.
#
# Seen: the server is given 10.0 s, and the call ends after 10.0 s with DEADLINE_EXCEEDED, which the server has sent:
# 0.9 s before the time that the caller had set, and 0.4 s before the answer. Up to 10 s grpclib sends milliseconds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpclib==0.4.9 h2==4.4.1
cat > "$folder/see.py" <<'PYTHON'
import asyncio, socket, sys, time
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError
from grpclib.server import Server


class Bytes(CodecBase):
    """Messages are bytes as they are."""

    __content_subtype__ = "proto"

    def encode(self, message, message_type):
        return message

    def decode(self, data, message_type):
        return data


class Service:
    """Answers after as many seconds as the request says, and keeps the time that it was given."""

    given = None

    def __mapping__(self):
        return {"/a.B/C": Handler(self.answer, Cardinality.UNARY_UNARY, bytes, bytes)}

    async def answer(self, stream):
        request = await stream.recv_message()
        self.given = stream.deadline.time_remaining()
        await asyncio.sleep(float(request))
        await stream.send_message(request)


async def call(timeout, seconds):
    """Return the time that the server was given, when the call ended, and how."""
    service = Service()
    server = Server([service], codec=Bytes())
    sock = socket.create_server(("127.0.0.1", 0))
    await server.start(sock=sock)
    channel = Channel("127.0.0.1", sock.getsockname()[1], codec=Bytes())
    began = time.monotonic()
    try:
        end = await UnaryUnaryMethod(channel, "/a.B/C", bytes, bytes)(str(seconds).encode(), timeout=timeout)
    except GRPCError as error:
        end = error.status.name
    ended = time.monotonic() - began
    channel.close()
    server.close()
    await server.wait_closed()
    return round(service.given, 1), round(ended, 1), end


async def main():
    return await asyncio.gather(call(10.9, 10.4), call(9.9, 9.4))


above, below = asyncio.run(main())
print(f"timeout 10.9 s: {above}; timeout 9.9 s: {below}")
right = 9.5 <= above[0] <= 10 and above[1] < 10.9 and above[2] == "DEADLINE_EXCEEDED"
sys.exit(not (right and 9.5 <= below[0] <= 9.9 and below[2] == b"9.4"))
PYTHON
"$folder/venv/bin/python" "$folder/see.py"
