"""What a connection asks its peer by itself: whether it is alive (LV-1), and whether it serves (RO-1)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import grpc.aio

from grpc_backoff.aio.finished import release_core
from grpc_backoff.aio.stream_attempt import StreamAttempt
from grpc_backoff.decide.calls.call_texts import LIVENESS_METHOD, LIVENESS_SERVICE, WATCH_METHOD, proxy_header
from grpc_backoff.engine.gate import LivenessReply
from grpc_backoff.grpcio.private import exclude_service


async def ask_peer(
    channel: grpc.aio.Channel, within: float, now: Callable[[], float], tell: Callable[[LivenessReply], object]
) -> None:
    """Ask whether the peer is alive; see `GatedConnection.ask` (LV-1). `now` returns the time in seconds."""
    exclude_service(LIVENESS_SERVICE)
    began = now()
    # Only a call with a stream of requests says when its headers have been sent.
    begin: Callable[..., Any] = channel.stream_unary(LIVENESS_METHOD)
    try:
        with _begun(begin([b""], timeout=within, wait_for_ready=False)) as call:
            with contextlib.suppress(grpc.aio.AioRpcError):  # it has ended
                await call.wait_for_connection()
            waited, attempt = now() - began, StreamAttempt(call)
            code = (await attempt.code()).name
            proxy = proxy_header([*await attempt.initial_metadata(), *await attempt.trailing_metadata()])
    except (grpc.aio.UsageError, asyncio.CancelledError):  # the channel has been closed
        tell(LivenessReply(grpc.StatusCode.CANCELLED.name))
    else:
        tell(LivenessReply(code, waited, proxy))


async def watch_health(channel: grpc.aio.Channel, request: bytes, hear: Callable[[Any], object]) -> None:
    """Pass on the messages of a health Watch, and its end; see `GatedConnection.listen` (RO-1)."""
    from grpc_backoff.decide.connections.health_machine import Ended  # noqa: PLC0415 - few channels watch health

    exclude_service(LIVENESS_SERVICE)
    begin: Callable[..., Any] = channel.unary_stream(WATCH_METHOD)
    try:
        made = begin(request, wait_for_ready=False)
    except grpc.aio.UsageError:  # the channel has been closed
        return
    with _begun(made) as call:
        try:
            async for message in call:
                hear(message)
        except grpc.aio.AioRpcError as error:
            hear(Ended(error.code().name, error.details() or ""))
        else:
            hear(Ended((await call.code()).name))


@contextlib.contextmanager
def _begun(call: Any) -> Iterator[Any]:
    """End a call after the block, and make it release the core.

    grpcio's tasks of a cancelled call, and this module's, keep an error whose traceback refers to the call. Until the
    garbage collector runs, that would keep the core's channel, whose last notice `close` waits for (CB-10).
    """
    try:
        yield call
    finally:
        call.cancel()
        release_core(call, stand_in=True)
