"""Installing: every channel of the process that `grpc` and `grpc.aio` make becomes one of this library's.

For programs and client libraries that make their own channels. What to hand over where a channel can be handed over is
in `docs/clients.md`.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["install", "installed", "uninstall"]

# grpc is imported when it is needed: a program that only configures policies does not load it.


def install() -> None:
    """Have `insecure_channel` and `secure_channel` of `grpc` and `grpc.aio` make this library's channels from now on.

    The same names of `grpc.experimental.aio` too. The channels take their options from the caller and from the file
    that the environment variable `GRPC_BACKOFF_CONFIG` names. Calling this again does no harm. Libraries that trace
    calls may be set up before or after: each call is traced once.

    Channels that were made before stay as they are. So does a name that a module took before by
    `from grpc.aio import insecure_channel`: call this before such modules are imported.
    """
    for face in _faces():
        face.substitute()


def uninstall() -> None:
    """Have `grpc`'s and `grpc.aio`'s names make grpc's own channels again.

    Where something else, a library that traces calls, has wrapped ours since, it stays, and ours passes its calls on.
    Channels that were made in between stay what they are.
    """
    for face in _faces():
        face.restore()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Install for as long as the `with` block lasts; within a process that has installed, change nothing."""
    before = all(face.is_substituted() for face in _faces())
    install()
    try:
        yield
    finally:
        if not before:
            uninstall()


def _faces() -> tuple[Any, Any]:
    from grpc_backoff.aio import substitute as asyncio_face  # noqa: PLC0415
    from grpc_backoff.sync import substitute as threaded_face  # noqa: PLC0415

    return asyncio_face, threaded_face
