"""What both APIs do with grpcio's private parts. Each API's own are in `aio_private.py` and `sync_private.py`.

Each was checked with grpcio 1.63 and 1.85.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import grpc

from grpc_backoff.base.record import NamedTuple, record

CANCELLED_DETAILS = "Locally cancelled by application!"
"""The details that grpcio gives a call that was cancelled by its own program."""

NOWHERE, UNSEEN = "unix:nowhere", (("grpc.enable_channelz", 0),)
"""The target and the options of a channel that never connects, and that channelz should not show."""

cygrpc: Any = importlib.import_module("grpc._cython.cygrpc")
"""The module of grpcio's core."""

_PEMS = ("_pem_root_certificates", "_private_key", "_certificate_chain")

try:
    _observability: object = importlib.import_module("grpc._observability")
except ImportError:  # a release of grpcio that does not count calls
    _observability = None


def has_plugin() -> bool:
    """Return whether a plugin of grpcio counts the process's calls."""
    return getattr(_observability, "_OBSERVABILITY_PLUGIN", None) is not None


def register_method(name: str) -> None:
    """Let the plugin count calls to this method under its name, as generated stubs do on each of grpcio's channels."""
    register = getattr(getattr(_observability, "_OBSERVABILITY_PLUGIN", None), "save_registered_method", None)
    if register is not None:
        register(name.encode())


def exclude_service(name: str) -> None:
    """Keep grpcio's own metrics from counting the calls of a service."""
    excluded = getattr(_observability, "_SERVICES_TO_EXCLUDE", None)  # None: a release that does this differently
    if excluded is not None and name.encode() not in excluded:
        excluded.append(name.encode())


def substitute(original: Any, make: Callable[..., object]) -> type:
    """Return what `grpc_backoff.install` puts in the place of grpcio's class of channels (TH-7).

    It makes channels by `make`, which takes the arguments of grpcio's class. It is derived from grpcio's class, and
    grpcio's channels count as its instances, so that other libraries' derived classes and grpcio's own checks work as
    before.
    """

    class Substitute(original):  # type: ignore[misc] # grpcio's own class is Any here
        @classmethod
        def __subclasshook__(cls, other: type) -> bool:
            return original in other.__mro__ if cls is Substitute else NotImplemented

        def __new__(cls, *arguments: object, **named: object) -> Any:
            return make(*arguments, **named) if cls is Substitute else original.__new__(cls)

    return Substitute


def inner_credentials(credentials: grpc.ChannelCredentials | None) -> object:
    """Return the core's credentials in grpcio's own object; None for none."""
    return None if credentials is None else getattr(credentials, "_credentials")  # noqa: B009 - private


def pems_of(inner: object) -> tuple[bytes | None, ...] | None:
    """Return the PEMs in the core's credentials; None if those hold more, such as a signer, or none that are known."""
    if type(inner).__name__ != "SSLChannelCredentials" or getattr(inner, "_private_key_signer", None) is not None:
        return None
    return tuple(getattr(inner, name) for name in _PEMS) if all(hasattr(inner, name) for name in _PEMS) else None


@record
class Status(NamedTuple):
    """The status of a call that has ended, as far as it is known; initial metadata may arrive later."""

    code: grpc.StatusCode
    details: str
    initial_metadata: Any
    trailing_metadata: Any
    debug_error_string: str | None
    cancelled: bool = False
    response: object = None
