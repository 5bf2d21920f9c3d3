"""Resolves names with the system's `getaddrinfo` (PO-7)."""

from __future__ import annotations

import socket
from collections.abc import Callable

from grpc_backoff.base.status import Failure, Stage
from grpc_backoff.config.target import Address
from grpc_backoff.engine.finder import Finder

Addresses = tuple[str, ...]
Tell = Callable[[Addresses | Failure], object]
"""Receives the addresses of a name, or why there are none, in any thread."""
WITHIN_LIMIT = 0.99
"""The part of an attempt's time limit after which a resolution counts as hanging, so that its stage is known."""
HANGS = Failure(Stage.RESOLVE, "the name was not resolved within the attempt's time limit")


def look_up(host: str, port: int) -> Addresses | Failure:
    """Return the addresses of a name, each once and in the system's order, or why there are none. This blocks."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Failure(Stage.RESOLVE, f"the name {host} could not be resolved: {error}")
    places = [str(Address(info[0], info[4])) for info in found if info[0] in (socket.AF_INET, socket.AF_INET6)]
    return tuple(dict.fromkeys(places)) or Failure(Stage.RESOLVE, f"the name {host} has no addresses")


RESOLVER: Finder[Addresses] = Finder("grpc-backoff-resolver", Stage.RESOLVE)
"""The resolver of this process."""


def resolve(host: str, port: int, tell: Tell) -> None:
    """Look up a name in another thread."""
    RESOLVER.ask((host, port), lambda: look_up(host, port), tell)
