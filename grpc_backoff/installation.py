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
import importlib
from collections.abc import Iterator
from typing import Any

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
    for grpcs, substitute in _substitutes():
        grpcs.Channel = substitute


def uninstall() -> None:
    """Make the functions in `grpc` and `grpc.aio` create grpc's own channels again.

    Channels that already exist are not affected.
    """
    for grpcs, substitute in _substitutes():
        if grpcs.Channel is substitute:
            grpcs.Channel = substitute.__base__


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Install for the duration of a `with` block; if `install` was called before, it stays in effect afterwards."""
    before = all(grpcs.Channel is substitute for grpcs, substitute in _substitutes())
    install()
    try:
        yield
    finally:
        if not before:
            uninstall()


def _substitutes() -> list[tuple[Any, type]]:
    """Return grpcio's modules, each with the class that replaces its `Channel`."""
    from grpc_backoff.aio.channel import Substitute as AsyncioSubstitute  # noqa: PLC0415
    from grpc_backoff.sync.channel import Substitute as ThreadedSubstitute  # noqa: PLC0415

    modules = ("grpc.aio._channel", AsyncioSubstitute), ("grpc._channel", ThreadedSubstitute)
    return [(importlib.import_module(name), substitute) for name, substitute in modules]
