"""What a connection is to its pool, for both APIs: a gate for calls, shut while the peer has to answer first (LV-1).

It also reports how its calls ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from grpc_backoff.base.record import NamedTuple

if TYPE_CHECKING:
    from grpc_backoff.base.status import Link, Loss
    from grpc_backoff.decide.connections.health_machine import Ended
    from grpc_backoff.engine.room import Room


class LivenessReply(NamedTuple):
    """How a liveness call has ended.

    Attributes:
        code: the name of its status code.
        waited: after how many seconds it was sent; infinity if it was not.
        proxy: the header that shows that a proxy has passed on the answer; empty if none does.
    """

    code: str
    waited: float = 0.0
    proxy: str = ""


class GatedConnection(ABC):
    """A connection that a pool may hand to calls.

    Attributes:
        check: returns the channel's state, as the integer that grpcio's core uses; given True, it makes the core dial.
            Calls use the channel only if it returns READY, so a gate that is not shut costs them nothing more.
        room: how many more calls may enter (PO-14); None if any number may.
        gated: what really checks the state while the gate is shut; None if calls may enter.
        served: whether the server has answered a call (CB-7).
    """

    check: Callable[[bool], int]
    served: bool
    room: Room | None = None
    gated: Callable[[bool], int] | None = None

    @abstractmethod
    def alive(self) -> bool:
        """Return whether the connection is up; this method and the next three are those of `LiveConnection`."""

    @abstractmethod
    def last_used(self) -> float:
        """Return when a call last used the connection, in seconds on the channel's clock."""

    @abstractmethod
    def loss(self) -> Loss | None:
        """Return how the connection ended; None while that is unknown."""

    @abstractmethod
    def retire(self) -> None:
        """Accept no new calls; close once the running ones have ended."""

    @abstractmethod
    def link(self) -> Link:
        """Return the connection's state. Call this at the moment when a call ends."""

    @property
    @abstractmethod
    def running(self) -> int:
        """How many calls are running."""

    @abstractmethod
    def quiet(self) -> float:
        """Return for how many seconds nothing has arrived from the peer; infinity if nothing has, or if unwatched."""

    def set_gate(self, *, shut: bool) -> None:
        """Keep new calls out, or let them in again."""
        if shut and self.gated is None:
            self.gated, self.check = self.check, is_shut
        elif not shut and self.gated is not None:
            self.check, self.gated = self.gated, None

    @abstractmethod
    def fail(self, details: str) -> None:
        """End every call with UNAVAILABLE, because the peer is dead (PO-2)."""

    @abstractmethod
    def ask(self, within: float, tell: Callable[[LivenessReply], object]) -> None:
        """Make a liveness call with this deadline, in seconds, and pass on how it has ended."""

    @abstractmethod
    def listen(self, request: bytes, hear: Callable[[bytes | Ended], object]) -> Callable[[], object]:
        """Begin a health Watch and pass on its messages and its end (RO-1); return a function that cancels it."""


class Reporting:
    """A connection that reports how its calls ended; one that a program supplies does not.

    Attributes:
        answered: called when the server has first answered a call (CB-7).
        unanswered: called when this side has ended a call, with the times when it began and when anything last arrived
            from the peer, in seconds on the channel's clock (LV-2).
    """

    answered: Callable[[], None]
    unanswered: Callable[[float, float], None]


def unheard(*_: object, **__: object) -> None:
    """Ignore a report, because nothing needs it."""


def is_shut(_try_to_connect: bool) -> int:
    """Return IDLE, as the integer that grpcio's core uses: the `check` of a gate that is shut."""
    return 0
