"""Installation: from here on, `grpc` and `grpc.aio` create this library's channels for the whole process.

For programs and client libraries that create their own channels. `docs/clients.md` covers those that accept a channel.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["install", "installed", "uninstall"]

# grpc is imported on use: a program that only configures policies does not load it.


def install() -> None:
    """Make `insecure_channel` and `secure_channel` of `grpc` and `grpc.aio` create this library's channels.

    The same applies to these names in `grpc.experimental.aio`. The channels take their options from the caller and from
    the file named by the environment variable `GRPC_BACKOFF_CONFIG`. Calling this more than once is harmless. Tracing
    libraries may be set up before or after: each call is traced once.

    Existing channels are not affected. Neither are names that a module has already imported with
    `from grpc.aio import insecure_channel`: call `install` before such modules are imported.
    """
    for face in _faces():
        face.substitute()


def uninstall() -> None:
    """Make the functions of `grpc` and `grpc.aio` create grpc's own channels again.

    If another library, such as a tracer, has wrapped these functions since, its wrapper stays and our function passes
    calls through to grpc. Channels created in the meantime are not affected.
    """
    for face in _faces():
        face.restore()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Install for the duration of the `with` block; does nothing if the process has already installed."""
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
