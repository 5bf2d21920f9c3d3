"""The server half of the official reconnect test: the service on a control port, and the retry port (IO-1)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from grpc_judge.generated.grpc_testing.empty_pb2 import Empty
from grpc_judge.generated.grpc_testing.messages_pb2 import ReconnectInfo, ReconnectParams
from grpc_judge.generated.grpc_testing.test_pb2_grpc import (
    ReconnectServiceServicer,
    add_ReconnectServiceServicer_to_server,
)
from grpc_judge.official.turns import Turns
from grpc_judge.official.verdict import OfficialVerdict, judge, terms_for

Context = grpc.aio.ServicerContext[Any, Any]

TURN_LIMIT = 600.0
"""The turn limit in seconds. The test lasts 540 s; a client that has not called Stop a minute later has gone away."""

_BACKLOG = 1024
_NO_TEST = "Stop: no test of this client is running; it called no Start, or lost its turn to one that waited"


class ReconnectServer:
    """A server that judges how clients reconnect, one client at a time.

    Attributes:
        control_port: the port of the service.
        retry_port: the port that clients dial.
    """

    def __init__(
        self,
        judged: Callable[[OfficialVerdict], None],
        *,
        host: str = "127.0.0.1",
        control_port: int = 0,
        retry_port: int = 0,
        initial_backoff: float | None = None,
        turn_limit: float = TURN_LIMIT,
    ) -> None:
        """Prepare a server.

        Args:
            judged: called with the verdict on each client that finishes its test.
            host: the address of both ports.
            control_port: the port of the service; 0 for any free port.
            retry_port: the port that clients dial; 0 for any free port.
            initial_backoff: the clients' INITIAL_BACKOFF, in seconds, for tests in compressed time; None for the
                protocol's. Clients report their own MAX_BACKOFF.
            turn_limit: the seconds after which a client that has not called Stop loses its turn to a waiting client.

        Raises:
            ValueError: the INITIAL_BACKOFF is too short to be judged.
        """
        terms_for(initial=initial_backoff)
        self._host = host
        self._turns = Turns(turn_limit)
        self._service = _Service(self._turns, initial_backoff, judged)
        self.control_port = control_port
        self.retry_port = retry_port

    async def __aenter__(self) -> Self:
        """Open both ports. Raises OSError, or RuntimeError from grpc, if one of them is in use."""
        async with contextlib.AsyncExitStack() as opened:
            retry = await asyncio.start_server(self._dialled, self._host, self.retry_port, backlog=_BACKLOG)
            opened.callback(retry.close)
            self.retry_port = retry.sockets[0].getsockname()[1]
            control = grpc.aio.server(options=[("grpc.so_reuseport", 0)])  # other servers must not share the port
            opened.push_async_callback(control.stop, None)
            add_ReconnectServiceServicer_to_server(self._service, control)
            self.control_port = control.add_insecure_port(f"{self._host}:{self.control_port}")
            await control.start()
            self._opened = opened.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close both ports. grpc then fails the calls of clients that wait for their turn."""
        await self._opened.aclose()

    def _dialled(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Note when a connection to the retry port was accepted, and hang up."""
        if self._turns.current is not None:  # dials outside a test do not count
            self._turns.current.attempts.append(asyncio.get_running_loop().time())
        writer.close()


class _Service(ReconnectServiceServicer):
    """Implements `grpc.testing.ReconnectService`."""

    def __init__(self, turns: Turns, initial_backoff: float | None, judged: Callable[[OfficialVerdict], None]) -> None:
        self._turns = turns
        self._initial_backoff = initial_backoff
        self._judged = judged

    async def Start(self, request: ReconnectParams, context: Context) -> Empty:  # noqa: N802 - the method's name
        """Wait for this client's turn and start its test with the MAX_BACKOFF that the client sent."""
        milliseconds = request.max_reconnect_backoff_ms
        try:
            held_to = terms_for(maximum=milliseconds / 1000 or None, initial=self._initial_backoff)
        except ValueError as error:
            details = f"max_reconnect_backoff_ms is {milliseconds} (0 for the protocol's): {error}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, details)
        await self._turns.take(context.peer(), held_to)
        return Empty()

    async def Stop(self, _request: Empty, context: Context) -> ReconnectInfo:  # noqa: N802 - the method's name
        """End the test and return its verdict."""
        now = asyncio.get_running_loop().time()
        turn = self._turns.end(context.peer())
        if turn is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, _NO_TEST)
        gaps = [after - before for before, after in itertools.pairwise(turn.attempts)]
        verdict = judge(gaps, attempts=len(turn.attempts), seconds=now - turn.began, terms=turn.terms)
        self._judged(verdict)
        return ReconnectInfo(passed=verdict.passed, backoff_ms=[round(1000 * gap) for gap in gaps])
