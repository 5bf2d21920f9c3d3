"""The client half of gRPC's official reconnect interop test (IO-1): any server of that test can judge grpc_backoff.

The server half is `interop/official/`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from grpc_backoff import aio
from interop.conformance.terms import Terms
from interop.generated.grpc_testing.empty_pb2 import Empty
from interop.generated.grpc_testing.messages_pb2 import ReconnectParams
from interop.generated.grpc_testing.test_pb2_grpc import ReconnectServiceStub
from interop.official.verdict import OfficialVerdict, judge, terms_for

__all__ = ["SECONDS", "Assignment", "BothVerdicts", "NotJudgedError", "reconnect"]

SECONDS = 540.0
"""For how long the official test has a client reconnect."""

_STOP_WITHIN = 30.0


class NotJudgedError(Exception):
    """The test could not be carried out to its end; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Which server to be judged by, and how to connect.

    Attributes:
        host: where both ports are. A name with several addresses would have each of them dialled, with a backoff of
            its own in some clients.
        control_port: where the service is, without TLS.
        retry_port: what to dial, with TLS.
        maximum: MAX_BACKOFF, which the server is told; None for the protocol's.
        initial: INITIAL_BACKOFF, which the server has to know; None for the protocol's.
        seconds: for how long.
    """

    host: str = "127.0.0.1"
    control_port: int
    retry_port: int
    maximum: float | None = None
    initial: float | None = None
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        """Raise ValueError, with the reason, for what cannot be judged."""
        _ = self.terms

    @property
    def terms(self) -> Terms:
        """What the client is held to."""
        return terms_for(maximum=self.maximum, initial=self.initial)

    @property
    def control(self) -> str:
        """The address of the service."""
        return f"{self.host}:{self.control_port}"

    @property
    def retry(self) -> str:
        """The address that is dialled."""
        return f"{self.host}:{self.retry_port}"

    @property
    def options(self) -> list[tuple[str, Any]]:
        """The options of the channel that is judged; none where the library's own defaults are."""
        if self.maximum is None and self.initial is None:
            return []
        return [
            ("grpc.initial_reconnect_backoff_ms", _milliseconds(self.terms.initial)),
            ("grpc.max_reconnect_backoff_ms", _milliseconds(self.terms.cap)),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BothVerdicts:
    """What came of it.

    Attributes:
        passed_there: the server's verdict.
        verdict: ours on the gaps that the server saw; the official server passes a client that never dialled (IO-2).
    """

    passed_there: bool
    verdict: OfficialVerdict

    @property
    def passed(self) -> bool:
        """Whether both are content."""
        return self.passed_there and self.verdict.passed


async def reconnect(request: Assignment, begun: Callable[[], None] = lambda: None) -> BothVerdicts:
    """Carry out the official procedure and return what came of it.

    Args:
        request: what to do.
        begun: called when the server's turn has come to this client.

    Raises:
        NotJudgedError: it could not be carried out to its end.
    """
    clock = asyncio.get_running_loop().time
    async with grpc.aio.insecure_channel(request.control) as channel:
        server = ReconnectServiceStub(channel)
        with _explained("Start", request.control):
            # Without a deadline: another client's turn may come first.
            await server.Start(ReconnectParams(max_reconnect_backoff_ms=_milliseconds(request.maximum or 0.0)))
        began = clock()
        try:
            begun()
            await _dial(request)
        finally:  # also when told to stop: others may be waiting for their turn
            seconds = clock() - began
            with _explained("Stop", request.control):
                info = await server.Stop(Empty(), timeout=_STOP_WITHIN)
    gaps = [milliseconds / 1000 for milliseconds in info.backoff_ms]
    # Whether the server saw no attempt or a single one it does not tell, and both are too few.
    verdict = judge(gaps, attempts=len(gaps) + 1, seconds=seconds, terms=request.terms)
    return BothVerdicts(passed_there=info.passed, verdict=verdict)


async def _dial(request: Assignment) -> None:
    """Keep a channel wanting a connection to the retry port, by a wait-for-ready call that will never be answered."""
    credentials = grpc.ssl_channel_credentials()  # its handshake never gets as far as any certificate
    async with aio.secure_channel(request.retry, credentials, request.options) as channel:
        call = ReconnectServiceStub(channel).Start(ReconnectParams(), wait_for_ready=True, timeout=request.seconds)
        code = await call.code()
    if code is not grpc.StatusCode.DEADLINE_EXCEEDED:
        raise NotJudgedError(f"{request.retry}, the retry port, should hang up; a call to it ended with {code.name}")


@contextlib.contextmanager
def _explained(method: str, control: str) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise NotJudgedError(f"{method} on {control}: {error.code().name}: {error.details()}") from error


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
