"""What both APIs do with grpcio's private parts. Each API's own are in its `grpcio.py`.

Each was checked with grpcio 1.63 and 1.85.
"""

from __future__ import annotations

import importlib
from typing import Any

CANCELLED_DETAILS = "Locally cancelled by application!"
"""The details that grpcio gives a call that was cancelled by its own program."""

cygrpc: Any = importlib.import_module("grpc._cython.cygrpc")
"""The module of grpcio's core."""

try:
    _observability: object = importlib.import_module("grpc._observability")
except ImportError:  # a release of grpcio that does not count calls
    _observability = None


def has_plugin() -> bool:
    """Return whether a plugin of grpcio counts the process's calls."""
    return getattr(_observability, "_OBSERVABILITY_PLUGIN", None) is not None


def register_method(name: str) -> None:
    """Let the plugin count calls to this method under its name, as generated stubs do on each of grpcio's channels."""
    plugin: Any = getattr(_observability, "_OBSERVABILITY_PLUGIN", None)
    if hasattr(plugin, "save_registered_method"):
        plugin.save_registered_method(name.encode())


def exclude_service(name: str) -> None:
    """Keep grpcio's own metrics from counting the calls of a service."""
    excluded = getattr(_observability, "_SERVICES_TO_EXCLUDE", None)  # None: a release that does this differently
    if excluded is not None and name.encode() not in excluded:
        excluded.append(name.encode())
