"""Serves EmptyCall with grpclib. `servers/README.md` documents its arguments and output."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import threading
from importlib.metadata import version
from typing import Any

from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.server import Server, Stream


class Bytes(CodecBase):
    """A codec that passes messages through as bytes."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        """Return the message unchanged."""
        del message_type
        encoded: bytes = message
        return encoded

    def decode(self, data: bytes, message_type: Any) -> bytes:
        """Return the data unchanged."""
        del message_type
        return data


class TestService:
    """The service with the one method that is called."""

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handler of each path."""
        handler = Handler(_empty_call, Cardinality.UNARY_UNARY, bytes, bytes)
        return {"/grpc.testing.TestService/EmptyCall": handler}


async def _empty_call(stream: Stream[bytes, bytes]) -> None:
    await stream.recv_message()
    assert stream.metadata is not None  # once a message has come
    await asyncio.sleep(int(stream.metadata.get("answer-after-ms", 0)) / 1000)
    await stream.send_message(b"")


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


async def _serve(port: int) -> None:
    server, told = Server([TestService()], codec=Bytes()), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    await server.start("127.0.0.1", port)
    versions = {"grpclib": version("grpclib"), "python": platform.python_version()}
    print(json.dumps({"event": "listening", "port": port, "versions": versions}), flush=True)
    await told.wait()
    server.close()
    await server.wait_closed()


def main() -> None:
    """Serve until SIGTERM, or until the end of standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    threading.Thread(target=_end_with_input, daemon=True).start()
    asyncio.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
