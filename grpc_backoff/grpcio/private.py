"""What both APIs do with grpcio's private parts. Each API's own are in `aio_private.py` and `sync_private.py`.

Each was checked with grpcio 1.63 and 1.85.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import grpc

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.config.target import canonical_target

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


class CoreStandIn:
    """Stands in for the core's channel in one of grpcio's channels, whose target and state other libraries read."""

    def __init__(self, target: str, state: Callable[[bool], grpc.ChannelConnectivity]) -> None:
        """Take the target, and what returns the state and, given True, asks for a connection if there is none."""
        self._target, self._state = target, state

    def target(self) -> bytes:
        """Return the target, with its scheme."""
        return canonical_target(self._target).encode()

    def check_connectivity_state(self, try_to_connect: bool) -> int:
        """Return the channel's state as the core's integer; with `try_to_connect`, ask for a connection."""
        number: int = self._state(try_to_connect).value[0]
        return number


def inner_credentials(credentials: grpc.ChannelCredentials | None) -> object:
    """Return the core's credentials in grpcio's own object; None for none."""
    return None if credentials is None else getattr(credentials, "_credentials")  # noqa: B009 - private


_SINGLE_USE = cygrpc.ComputeEngineChannelCredentials
"""Credentials that the core can use for one channel only; see below."""


def _renewable(kind: Any) -> Any:
    class Renewable(kind):  # type: ignore[misc] # grpcio's own class is Any here
        def __init__(self, *parts: object) -> None:
            self.parts, self.unused = parts, kind is _SINGLE_USE

    return Renewable


# The core takes over the call credentials in those for Compute Engine, which Google's clients use by default, with the
# first channel, and frees them with it, so no other channel may have the same. These credentials, and those that may
# contain them, remember what they were made of.
cygrpc.channel_credentials_compute_engine = _renewable(_SINGLE_USE)
for _name in ("CompositeChannelCredentials", "XDSChannelCredentials"):
    setattr(cygrpc, _name, _renewable(getattr(cygrpc, _name)))


def refuse_single_use(credentials: object) -> None:
    """Raise OptionError for credentials that grpcio's core can use for one channel only."""
    if type(getattr(credentials, "_credentials", None)) is _SINGLE_USE:
        expected = "compute_engine_channel_credentials created after install() or the import of grpc_backoff's channels"
        raise OptionError("credentials", credentials, expected)


def for_one_channel(credentials: grpc.ChannelCredentials | None) -> Any:
    """Return these credentials, or new ones that are made of the same parts, because no channel may have used them."""
    inner: Any = inner_credentials(credentials)
    return grpc.ChannelCredentials(_renewed(inner)) if hasattr(inner, "parts") else credentials


def core_credentials(credentials: grpc.ChannelCredentials | None) -> object:
    """Return the core's credentials for a new channel; None for none. See `for_one_channel`."""
    return None if credentials is None else inner_credentials(for_one_channel(credentials))


def _renewed(inner: Any) -> object:
    # The core frees the call credentials of those that a channel uses, and only of those, so the first ones are used.
    if not hasattr(inner, "parts") or vars(inner).pop("unused", False):  # in one step, as threads may compete
        return inner
    made = type(inner)(*map(_renewed, inner.parts))
    del made.unused
    return made


def pems_of(inner: object) -> tuple[bytes | None, ...] | None:
    """Return the PEMs in the core's credentials; None if those hold more, such as a signer, or none that are known."""
    if type(inner).__name__ != "SSLChannelCredentials" or getattr(inner, "_private_key_signer", None) is not None:
        return None
    return tuple(getattr(inner, name) for name in _PEMS) if all(hasattr(inner, name) for name in _PEMS) else None


class Status(NamedTuple):
    """The status of a call that has ended, as far as it is known; initial metadata may arrive later."""

    code: grpc.StatusCode
    details: str
    initial_metadata: Any
    trailing_metadata: Any
    debug_error_string: str | None
    cancelled: bool = False
    response: object = None
