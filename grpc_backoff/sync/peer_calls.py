"""What a connection asks its peer by itself: whether it is alive (LV-1), and whether it serves (RO-1)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from grpc_backoff.base import threads
from grpc_backoff.decide.calls.call_texts import LIVENESS_METHOD, LIVENESS_SERVICE, WATCH_METHOD, proxy_header
from grpc_backoff.engine.gate import LivenessReply
from grpc_backoff.grpcio.private import exclude_service
from grpc_backoff.grpcio.sync_private import noticing_headers

if TYPE_CHECKING:
    from grpc_backoff.decide.connections.health_machine import Ended


def ask_peer(
    channel: grpc.Channel, within: float, now: Callable[[], float], tell: Callable[[LivenessReply], object]
) -> None:
    """Ask whether the peer is alive; see `GatedConnection.ask` (LV-1). `now` returns the time in seconds."""
    exclude_service(LIVENESS_SERVICE)
    began, sent = now(), list[float]()

    def ended(call: Any) -> None:
        waited = sent[0] - began if sent else math.inf
        metadata = [*(call.initial_metadata() or ()), *(call.trailing_metadata() or ())]
        tell(LivenessReply(call.code().name, waited, proxy_header(metadata)))

    try:
        ask = noticing_headers(channel.unary_unary(LIVENESS_METHOD), lambda: sent.append(now()))
        call = ask.future(b"", timeout=within, wait_for_ready=False)
    except (ValueError, RuntimeError):  # the channel is closed, or there are too many threads
        tell(LivenessReply(grpc.StatusCode.CANCELLED.name))
    else:
        call.add_done_callback(ended)


def watch_health(
    channel: grpc.Channel, request: bytes, hear: Callable[[bytes | Ended], object]
) -> Callable[[], object]:
    """Pass on the messages of a health Watch, and its end; see `GatedConnection.listen` (RO-1)."""
    exclude_service(LIVENESS_SERVICE)
    begin: Callable[..., Any] = channel.unary_stream(WATCH_METHOD)
    call = begin(request, wait_for_ready=False)
    with contextlib.suppress(RuntimeError):  # the interpreter is about to exit
        threads.start(partial(_read, call, hear), "grpc-backoff-health")
    cancel: Callable[[], object] = call.cancel
    return cancel


def _read(call: Any, hear: Callable[[bytes | Ended], object]) -> None:
    """Read a Watch, in a thread of its own."""
    from grpc_backoff.decide.connections.health_machine import Ended  # noqa: PLC0415 - few channels watch health

    try:
        for message in call:
            hear(message)
    except grpc.RpcError as error:
        error.__traceback__ = None  # it is the call, which would keep this frame, and so the pool (CB-10)
    hear(Ended(call.code().name, call.details() or ""))
