"""Resolves names with the system's `getaddrinfo`, and fails the attempts that wait for that in vain (PO-7)."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from grpc_backoff.base.status import Failure, Stage
from grpc_backoff.config.target import Address
from grpc_backoff.engine.single_flight import SingleFlight

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import TimerHandle
    from grpc_backoff.engine import core_connector
    from grpc_backoff.engine.pool import AnyPool

Addresses = tuple[str, ...]
TellAddresses = Callable[[Addresses | Failure], object]
"""Receives the addresses of a name, or why there are none, in any thread."""
_WITHIN_LIMIT = 0.99
"""The part of an attempt's time limit after which a resolution counts as hanging, so that its stage is known."""
_HANGS = Failure(Stage.RESOLVE, "the name was not resolved within the attempt's time limit")


def look_up(host: str, port: int) -> Addresses | Failure:
    """Return the addresses of a name, each once and in the system's order, or why there are none. This blocks."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Failure(Stage.RESOLVE, f"the name {host} could not be resolved: {error}")
    places = [str(Address(info[0], info[4])) for info in found if info[0] in (socket.AF_INET, socket.AF_INET6)]
    return tuple(dict.fromkeys(places)) or Failure(Stage.RESOLVE, f"the name {host} has no addresses")


RESOLVER: SingleFlight[Addresses] = SingleFlight("grpc-backoff-resolver", Stage.RESOLVE)
"""The resolver of this process."""


def resolve(host: str, port: int, tell: TellAddresses) -> None:
    """Look up a name in another thread."""
    RESOLVER.ask((host, port), lambda: look_up(host, port), tell)


class ResolvingConnector:
    """The connector of the slot that stands for a target whose name is not resolved yet (PO-7).

    An attempt fails if the name cannot be resolved. If it can, the pool retires the slot, which abandons the attempt.
    """

    last_life: float | None = math.inf
    familiar = False

    def __init__(self, pool: AnyPool) -> None:
        self._pool = ref(pool)
        self._tell: core_connector.Tell[Any] | None = None
        self._timer: TimerHandle | None = None

    def connect(self, limit: float, tell: core_connector.Tell[Any]) -> ResolvingConnector:
        """Resolve the name; see `CallbackConnector.connect`."""
        pool = self._pool()
        if pool is not None:
            home, self._tell = pool.home, tell
            self._timer = home.call_at(home.now() + limit * _WITHIN_LIMIT, lambda: self._ended(tell, _HANGS))
            pool.setup.resolve(lambda outcome: home.post(lambda: self._ended(tell, outcome)))
        return self

    def _ended(self, tell: core_connector.Tell[Any], outcome: Addresses | Failure) -> None:
        pool = self._pool()
        if self._tell is not tell:
            return  # it came too late
        self.abandon()
        if isinstance(outcome, Failure):
            tell(outcome)
        elif pool is not None:
            pool.resolved(outcome)

    def decided(self) -> bool:
        """Return False, because an attempt ends before its limit."""
        return False

    def abandon(self) -> None:
        """Abandon the attempt; the resolution may go on."""
        self._tell = None
        if self._timer is not None:
            self._timer.cancel()
