"""Makes `grpc` and `grpc.aio` create this library's channels throughout the process.

This is for programs and client libraries that create their own channels. For client libraries that accept a channel,
see `docs/clients.md`.

The functions `insecure_channel` and `secure_channel` stay as they are. The class that they instantiate is replaced, in
grpcio's private modules. So it does not matter which other libraries wrap these functions, and when: their wrappers
still call grpc's functions, and no wrapper is called twice.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpc_backoff.grpcio.channel_class import ChannelClass

# grpc is imported only when it is used, so that a program that only configures policies does not load it.


def install() -> None:
    """Make `insecure_channel` and `secure_channel` in `grpc` and `grpc.aio` create this library's channels.

    This includes the same functions in `grpc.experimental.aio`, the names under which other modules have imported these
    functions, and grpc's simple stubs. The channels take their options from the caller and from the file named by the
    environment variable `GRPC_BACKOFF_CONFIG`. Calling this more than once is harmless. Existing channels are not
    affected.

    Libraries such as tracers may wrap these functions, and unwrap them, before or after this call. Their wrappers see
    each call once, and the arguments that they change take effect.
    """
    for channel_class in _classes():
        channel_class.replace()


def uninstall() -> None:
    """Make the functions in `grpc` and `grpc.aio` create grpc's own channels again.

    Channels that already exist are not affected.
    """
    for channel_class in _classes():
        channel_class.restore()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Install for the duration of a `with` block; if `install` was called before, it stays in effect afterwards."""
    before = all(channel_class.makes_ours for channel_class in _classes())
    install()
    try:
        yield
    finally:
        if not before:
            uninstall()


def _classes() -> list[ChannelClass]:
    """Return grpcio's classes of channels, for asyncio and for threads."""
    from grpc_backoff.aio.constructors import CHANNEL_CLASS as ASYNCIO  # noqa: PLC0415
    from grpc_backoff.sync.constructors import CHANNEL_CLASS as THREADS  # noqa: PLC0415

    return [ASYNCIO, THREADS]
