"""The client half of the official reconnect test (IO-1), with which any server of the test can judge grpc_backoff.

The server half is in `server.py`.
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
from grpc_judge.conformance.terms import Terms
from grpc_judge.generated.grpc_testing.empty_pb2 import Empty
from grpc_judge.generated.grpc_testing.messages_pb2 import ReconnectParams
from grpc_judge.generated.grpc_testing.test_pb2_grpc import ReconnectServiceStub
from grpc_judge.official.agreement import Agreement
from grpc_judge.official.verdict import judge, terms_for

SECONDS = 540.0
"""How long a client reconnects in the official test, in seconds."""

_STOP_WITHIN = 30.0


class NotJudgedError(Exception):
    """The test could not be completed. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The server that judges the client, and how to connect to it.

    Attributes:
        host: the host of both ports. If the name has several addresses, all are dialled; some clients then have a
            separate backoff for each.
        control_port: the port of the service, without TLS.
        retry_port: the port to dial, with TLS.
        maximum: MAX_BACKOFF in seconds, which is sent to the server; None for the protocol's.
        initial: INITIAL_BACKOFF in seconds, which must also be configured on the server; None for the protocol's.
        seconds: how long the test lasts.
    """

    host: str = "127.0.0.1"
    control_port: int
    retry_port: int
    maximum: float | None = None
    initial: float | None = None
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        """Raise ValueError if a backoff is too short to be judged."""
        _ = self.terms

    @property
    def terms(self) -> Terms:
        """The terms by which the client is judged."""
        return terms_for(maximum=self.maximum, initial=self.initial)

    @property
    def control(self) -> str:
        """The address of the control service."""
        return f"{self.host}:{self.control_port}"

    @property
    def retry(self) -> str:
        """The address of the retry port."""
        return f"{self.host}:{self.retry_port}"

    @property
    def options(self) -> list[tuple[str, Any]]:
        """The options of the channel under test; empty for the library's defaults."""
        if self.maximum is None and self.initial is None:
            return []
        return [
            ("grpc.initial_reconnect_backoff_ms", _milliseconds(self.terms.initial)),
            ("grpc.max_reconnect_backoff_ms", _milliseconds(self.terms.cap)),
        ]


async def reconnect(request: Assignment, begun: Callable[[], None] = lambda: None) -> Agreement:
    """Run the official test and return both verdicts.

    Ours is needed because the official server passes clients that never dial (IO-2).

    Args:
        request: the server, the backoff and the duration.
        begun: called when this client's turn at the server begins.

    Raises:
        NotJudgedError: the test could not be completed.
    """
    clock = asyncio.get_running_loop().time
    async with grpc.aio.insecure_channel(request.control) as channel:
        server = ReconnectServiceStub(channel)
        with _explained("Start", request.control):
            # There is no deadline, because other clients may have their turns first.
            await server.Start(ReconnectParams(max_reconnect_backoff_ms=_milliseconds(request.maximum or 0.0)))
        began = clock()
        try:
            begun()
            await _dial(request)
        finally:  # call Stop even if cancelled: others may be waiting
            seconds = clock() - began
            with _explained("Stop", request.control):
                info = await server.Stop(Empty(), timeout=_STOP_WITHIN)
    gaps = [milliseconds / 1000 for milliseconds in info.backoff_ms]
    # The server's answer does not distinguish between no attempt and one. Both are too few.
    verdict = judge(gaps, attempts=len(gaps) + 1, seconds=seconds, terms=request.terms)
    return Agreement(title=f"grpc_backoff, before {request.control}", ours=verdict, theirs=info.passed)


async def _dial(request: Assignment) -> None:
    """Keep a channel dialling the retry port by means of a wait-for-ready call that is never answered."""
    credentials = grpc.ssl_channel_credentials()  # the handshake ends before any certificate
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
