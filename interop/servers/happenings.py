"""What can happen to a server while it is called: names, and how long each part takes. `case.py` makes it happen."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

__all__ = ["COURSES", "SHORT", "Course", "Happening"]


class Happening(enum.Enum):
    """What can happen to a server. The value is its name in manifests and on the command line."""

    KILLED = "killed"
    DRAINED = "drained"
    AGED = "aged"
    FROZEN = "frozen"
    PINGED = "frozen-pinged"
    RELOADED = "reloaded"
    UPSTREAM_DOWN = "upstream-down"

    @property
    def for_proxies(self) -> bool:
        """Whether it can only happen to a proxy."""
        return self in {Happening.RELOADED, Happening.UPSTREAM_DOWN}


SHORT: Final = frozenset({Happening.KILLED, Happening.DRAINED, Happening.RELOADED, Happening.UPSTREAM_DOWN})
"""The happenings of a short run; for proxies, only those that are specific to proxies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How something is made to happen. Times are in seconds.

    Attributes:
        says: what happens, in a sentence.
        lasts: how long the server is gone, frozen or aging, or the time between reloads.
        deadline: the deadline of fail-fast calls, and with `everybody` also of wait-for-ready calls.
        everybody: whether wait-for-ready calls have the same deadline instead of a longer one.
        settings: further settings of the server, in milliseconds.
        options: further options of the channel.
    """

    says: str
    lasts: float
    deadline: float = 3.0
    everybody: bool = False
    settings: tuple[tuple[str, int], ...] = ()
    options: tuple[tuple[str, int], ...] = ()


AGE: Final = 1.0
"""MAX_CONNECTION_AGE where connections age, in seconds; servers add jitter of up to a tenth either way (gRFC A9)."""
RELOADS: Final = 2
"""How often a proxy is reloaded."""
KEEPALIVE: Final = 1.0
"""After how much silence the channel sends a PING, and how long it waits for the answer, in seconds."""

_KEEPALIVE: Final = (
    ("grpc.keepalive_time_ms", round(1000 * KEEPALIVE)),
    ("grpc.keepalive_timeout_ms", round(1000 * KEEPALIVE)),
    ("grpc.keepalive_permit_without_calls", 1),
)

COURSES: Final = {
    Happening.KILLED: Course(says="It is killed (SIGKILL), and started again on the same port.", lasts=1.5),
    Happening.DRAINED: Course(
        says="It is told to end gracefully, and started again on the same port.",
        lasts=1.0,
    ),
    Happening.AGED: Course(
        says="It ends each connection when that is a second old, and lets calls run on for another.",
        lasts=5.0,
        settings=(("max-age-ms", round(1000 * AGE)), ("grace-ms", 1000)),
    ),
    Happening.FROZEN: Course(
        says="It is stopped (SIGSTOP), and goes on (SIGCONT); the channel has keepalive of 1 s, with a timeout of 1 s.",
        lasts=6.0,
        deadline=1.0,
        everybody=True,
        options=_KEEPALIVE,
    ),
    Happening.PINGED: Course(
        says="The same, and the channel has grpc.http2.ping_timeout_ms of 1 s on top.",
        lasts=6.0,
        deadline=1.0,
        everybody=True,
        options=(*_KEEPALIVE, ("grpc.http2.ping_timeout_ms", round(1000 * KEEPALIVE))),
    ),
    Happening.RELOADED: Course(says="It reads its configuration anew, twice.", lasts=2.0),
    Happening.UPSTREAM_DOWN: Course(
        says="The server behind it is killed, and started again; it stands all the while.",
        lasts=4.5,
        deadline=8.0,
    ),
}
"""The course of each happening."""
