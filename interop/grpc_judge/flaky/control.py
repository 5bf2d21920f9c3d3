"""Controls a flaky server over gRPC, from other processes and other languages (IO-3).

The service is `interop.v1.FlakyServer`, and its stub is `FlakyServerStub` in
`grpc_judge.generated.interop_v1.flaky_pb2_grpc`. `grpc_judge.flaky.messages.from_message` converts the service's answer
to a `Timeline`. A timeline with many requests may exceed the 4 MiB that gRPC clients receive by default; in that case,
set `grpc.max_receive_message_length` to -1.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from grpc_judge.flaky.messages import to_message
from grpc_judge.flaky.script import read_script
from grpc_judge.flaky.server import FlakyServer
from grpc_judge.generated.interop_v1 import flaky_pb2 as pb
from grpc_judge.generated.interop_v1 import flaky_pb2_grpc as services

_Context = grpc.aio.ServicerContext[Any, Any]


@contextlib.asynccontextmanager
async def controlled(server: FlakyServer, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Run the control service of a running server, in plaintext on `port` (0 for any free port); yield its target.

    Raises:
        RuntimeError: the port is in use.
    """
    control = grpc.aio.server()
    services.add_FlakyServerServicer_to_server(_Control(server), control)
    number = control.add_insecure_port(f"{host}:{port}")
    await control.start()
    try:
        yield f"{host}:{number}"
    finally:
        await control.stop(None)


class _Control(services.FlakyServerServicer):
    """The service. Each method calls the method of `FlakyServer` that corresponds to it."""

    # ruff: noqa: N802, ARG002 - names and parameters are the service's

    def __init__(self, server: FlakyServer) -> None:
        self._server = server

    async def Play(self, request: pb.PlayRequest, context: _Context) -> pb.PlayResponse:
        try:
            self._server.play(read_script(request.script))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.PlayResponse()

    async def GetTimeline(self, request: pb.GetTimelineRequest, context: _Context) -> pb.GetTimelineResponse:
        return pb.GetTimelineResponse(timeline=to_message(self._server.timeline()))

    async def BreakAll(self, request: pb.BreakAllRequest, context: _Context) -> pb.BreakAllResponse:
        self._server.break_all()
        return pb.BreakAllResponse()

    async def Restart(self, request: pb.RestartRequest, context: _Context) -> pb.RestartResponse:
        await self._server.restart()
        return pb.RestartResponse()
