"""Resilient gRPC channels for Python: connection backoff that can be set, seen, reset and proven.

For asyncio, replace `grpc.aio.insecure_channel(target)` with `aio.insecure_channel(target)` after `from grpc_backoff
import aio`; for threads, replace `grpc.insecure_channel(target)` with `grpc_backoff.insecure_channel(target)`; or call
`grpc_backoff.install()` once, for every channel that the process creates.

A module that says "Internal" in its docstring, or whose package does, may change in any version. The public names are
listed in `names.py` and are imported on first use, so that the command line can report Ctrl-C or a missing extra
before anything heavy is loaded.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` alone takes as long to import as this whole module
if TYPE_CHECKING:
    from grpc_backoff.names import *  # noqa: F403
    from grpc_backoff.names import __all__ as __all__

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """Import the public names on first use."""
    if name == "__all__" or not name.startswith("_"):
        from importlib import import_module  # noqa: PLC0415

        names = import_module("grpc_backoff.names")  # `from grpc_backoff import names` would call this function again
        if name == "__all__" or name in names.__all__:
            value: object = getattr(names, name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    """List the public names as well."""
    return sorted({*globals(), *__getattr__("__all__")})  # type: ignore[misc] # of strings
