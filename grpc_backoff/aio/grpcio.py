"""Access to grpcio's private parts: the status of a finished call, and the numbers and texts that identify states.

This module depends on grpcio's internals and wording, so it has to be checked with each release. So do `finished.py`,
and the code that runs for every call (`core_channel.py`, `multicallables.py` and `call.py`), which uses `_cython_call`
and `_channel` directly.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

_channel: Any = importlib.import_module("grpc.aio._channel")

CANCELLED_DETAILS = "Locally cancelled by application!"
"""The details that grpcio gives a call that was cancelled by its own program."""

GrpcioChannel: Any = _channel.Channel
"""grpcio's own class of channels, which `install` replaces in its module."""

READY_NUMBER: int = grpc.ChannelConnectivity.READY.value[0]
"""grpc's number for the state READY."""

_WRITE_FAILED = 'Failed "execute_batch"'
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def own_channel(
    target: str,
    credentials: grpc.ChannelCredentials | None,
    options: Sequence[tuple[str, Any]],
    compression: grpc.Compression | None = None,
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None,
) -> grpc.aio.Channel:
    """Return a channel of grpcio's own class; tracing libraries replace the public functions."""
    inner = None if credentials is None else getattr(credentials, "_credentials")  # noqa: B009 - private
    made: grpc.aio.Channel = GrpcioChannel(target, options, inner, compression, interceptors)
    return made


def is_ok(call: Any) -> bool:
    """Return whether one of grpcio's own finished calls ended with OK."""
    return bool(call._cython_call.is_ok())  # noqa: SLF001 - the public way is a coroutine, which cannot be awaited here


def is_cancelled_here(call: Any) -> bool:
    """Return whether this process cancelled one of grpcio's own calls; CANCELLED may also come from a server."""
    return bool(call._cython_call.is_locally_cancelled())  # noqa: SLF001


def status_of(call: Any) -> grpc.aio.AioRpcError:
    """Return the status of one of grpcio's own finished calls as an error, even if it is OK."""
    core = call._cython_call  # noqa: SLF001
    status = core._status  # noqa: SLF001
    initial = core._initial_metadata  # noqa: SLF001
    return grpc.aio.AioRpcError(
        _CODES[status.code()],
        grpc.aio.Metadata.from_tuple(initial or ()),
        grpc.aio.Metadata.from_tuple(status.trailing_metadata() or ()),
        status.details() or "",
        status.debug_error_string() or "",
    )


def is_stand_in(error: BaseException) -> bool:
    """Return whether this is grpcio's own status for a call whose write failed; it may hide the server's status."""
    return (
        isinstance(error, grpc.aio.AioRpcError)
        and error.code() is grpc.StatusCode.INTERNAL
        and (error.debug_error_string() or "").startswith(_WRITE_FAILED)
    )
