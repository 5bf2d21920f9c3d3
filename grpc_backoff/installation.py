"""Installing: every channel of the process that `grpc.aio` makes becomes one of this library's.

For programs and client libraries that make their own channels. What to hand over where a channel can be handed over is
in `docs/clients.md`.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["install", "installed", "uninstall"]

# grpc is imported when it is needed: a program that only configures policies does not load it.


def install() -> None:
    """Have `grpc.aio.insecure_channel` and `secure_channel` make this library's channels from now on.

    The same names of `grpc.experimental.aio` too. The channels take their options from the caller and from the file
    that the environment variable `GRPC_BACKOFF_CONFIG` names. Calling this again does no harm. Libraries that trace
    calls may be set up before or after: each call is traced once.

    Channels that were made before stay as they are. So does a name that a module took before by
    `from grpc.aio import insecure_channel`: call this before such modules are imported. The threaded
    `grpc.insecure_channel` is left alone.
    """
    from grpc_backoff.aio import substitute  # noqa: PLC0415

    substitute.substitute()


def uninstall() -> None:
    """Have `grpc.aio`'s names make grpc's own channels again.

    Where something else, a library that traces calls, has wrapped ours since, it stays, and ours passes its calls on.
    Channels that were made in between stay what they are.
    """
    from grpc_backoff.aio import substitute  # noqa: PLC0415

    substitute.restore()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Install for as long as the `with` block lasts; within a process that has installed, change nothing."""
    from grpc_backoff.aio import substitute  # noqa: PLC0415

    before = substitute.is_substituted()
    substitute.substitute()
    try:
        yield
    finally:
        if not before:
            substitute.restore()
