"""Resilient gRPC channels for Python: connection backoff that can be set, seen, reset and proven.

For asyncio, import `aio` from this package and replace `grpc.aio.insecure_channel(target)` with
`aio.insecure_channel(target)`. For threads, replace `grpc.insecure_channel(target)` with
`grpc_backoff.insecure_channel(target)`. Or call `grpc_backoff.install()` once, so that every channel that the process
creates afterwards is one of this library's.

Modules marked "Internal", in their own docstring or in that of their package, may change in any version. The public
names are listed in `names.py`. They are imported on first use, so that the command line can handle Ctrl-C and report a
missing extra before it loads anything large.
"""

from __future__ import annotations

from grpc_backoff.base.version import __version__ as _version

__version__ = _version

TYPE_CHECKING = False  # `typing` alone takes as long to import as this whole module
if TYPE_CHECKING:  # to type checkers, a module with `__getattr__` would have every name
    from grpc_backoff import aio as aio
    from grpc_backoff.names import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        """Import the public names, and `aio`, on first use."""
        # An import of this module also asks for its name here first, and needs none of the others.
        if name == "__all__" or not (name.startswith("_") or name == "sync"):
            from importlib import import_module  # noqa: PLC0415

            if name == "aio":  # `grpc.aio` also comes with `import grpc`
                return import_module("grpc_backoff.aio")
            # `from grpc_backoff import names` would call this function again.
            names = import_module("grpc_backoff.names")
            if name == "__all__" or name in names.HOMES:
                value = sorted(names.HOMES) if name == "__all__" else names.load(name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)

    def __dir__() -> list[str]:
        """Return the names in this module, including public names that have not been imported yet."""
        return sorted({*globals(), *__getattr__("__all__")})
