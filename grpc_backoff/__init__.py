"""Resilient gRPC channels for Python: connection backoff that can be set, seen, reset and proven.

`from grpc_backoff import aio` and `aio.insecure_channel(target)` in place of `grpc.aio.insecure_channel(target)`;
`grpc_backoff.insecure_channel(target)` in place of `grpc.insecure_channel(target)`; or `grpc_backoff.install()`, once,
for all that the process makes.

A module that says "Internal" in its docstring, or whose package does, may change with any version. The names at the
top are those of `names.py`. They are imported when the first of them is asked for: the command line
has to be able to say something sensible before (Ctrl-C, a missing extra).
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` alone would take as long to import as all of this
if TYPE_CHECKING:
    from grpc_backoff.names import *  # noqa: F403
    from grpc_backoff.names import __all__ as __all__

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import the names at the top when one of them is first asked for."""
    if name == "__all__" or not name.startswith("_"):
        from importlib import import_module  # noqa: PLC0415

        names = import_module("grpc_backoff.names")  # `from grpc_backoff import` would ask here for it first
        if name == "__all__" or name in names.__all__:
            value: object = getattr(names, name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    """List the names at the top too."""
    return sorted({*globals(), *__getattr__("__all__")})  # type: ignore[misc] # of strings
