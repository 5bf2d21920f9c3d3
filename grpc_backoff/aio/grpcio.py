"""What grpcio has only in private or as text: the status of a call at its end, and the core's messages.

Everything that depends on how grpcio keeps or phrases a thing stands here, for one place to look at with each release.
"""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

__all__ = [
    "CANCELLED_DETAILS",
    "is_cancelled_here",
    "is_ok",
    "is_stand_in",
    "status_of",
]

CANCELLED_DETAILS = "Locally cancelled by application!"
"""What grpcio says of a call that its own program has cancelled."""

_WRITE_FAILED = 'Failed "execute_batch"'
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def is_ok(call: Any) -> bool:
    """Return whether a call of grpcio's own that has ended ended with OK."""
    return bool(call._cython_call.is_ok())  # noqa: SLF001 - a coroutine is the public way, and this is no place for one


def is_cancelled_here(call: Any) -> bool:
    """Return whether this process cancelled a call of grpcio's own; a server may answer CANCELLED as well."""
    return bool(call._cython_call.is_locally_cancelled())  # noqa: SLF001


def status_of(call: Any) -> grpc.aio.AioRpcError:
    """Return the status of a call of grpcio's own that has ended as an error, OK included."""
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
    """Return whether it is grpcio's own status for a call whose write failed, which may hide the server's."""
    return (
        isinstance(error, grpc.aio.AioRpcError)
        and error.code() is grpc.StatusCode.INTERNAL
        and (error.debug_error_string() or "").startswith(_WRITE_FAILED)
    )
