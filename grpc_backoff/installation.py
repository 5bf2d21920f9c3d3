"""Makes `grpc` and `grpc.aio` create this library's channels throughout the process.

This is for programs and client libraries that create their own channels. For client libraries that accept a channel,
see `docs/clients.md`.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

# grpc is imported only when it is used, so that a program that only configures policies does not load it.


def install() -> None:
    """Make `insecure_channel` and `secure_channel` in `grpc` and `grpc.aio` create this library's channels.

    The same functions in `grpc.experimental.aio` are replaced as well. The channels take their options from the caller
    and from the file named by the environment variable `GRPC_BACKOFF_CONFIG`. Calling this more than once is harmless.
    Tracing libraries may be set up before or after; either way they see each call once.

    Existing channels are not affected. Nor are names that a module has already imported, for example with
    `from grpc.aio import insecure_channel`; call `install` before importing such modules.
    """
    for face in _faces():
        face.substitute()


def uninstall() -> None:
    """Make the functions in `grpc` and `grpc.aio` create grpc's own channels again.

    If another library, such as a tracer, has wrapped these functions since, its wrapper stays and our function passes
    calls through to grpc. Channels that already exist are not affected.
    """
    for face in _faces():
        face.restore()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Install for the duration of a `with` block; if `install` was called before, it stays in effect afterwards."""
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
