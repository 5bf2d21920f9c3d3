"""What can happen to a server while it is being called, and how long each part takes. `case.py` makes it happen."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Happening(enum.Enum):
    """Something that can happen to a server. The value is its name in manifests and on the command line."""

    KILLED = "killed"
    """It is killed with SIGKILL and started again on the same port."""
    DRAINED = "drained"
    """It shuts down gracefully on SIGTERM and is started again on the same port."""
    AGED = "aged"
    """It ends each connection after one second, but lets running calls continue for another second."""
    FROZEN = "frozen"
    """It is stopped with SIGSTOP and resumed with SIGCONT. The channel's keepalive time and timeout are 1 s."""
    PINGED = "frozen-pinged"
    """The same as `frozen`, but the channel also sets grpc.http2.ping_timeout_ms to 1 s."""
    RELOADED = "reloaded"
    """The proxy reloads its configuration twice."""
    UPSTREAM_DOWN = "upstream-down"
    """The server behind the proxy is killed and started again while the proxy keeps running."""

    @property
    def for_proxies(self) -> bool:
        """Whether this can happen only to proxies."""
        return self in {Happening.RELOADED, Happening.UPSTREAM_DOWN}


SHORT: Final = frozenset({Happening.KILLED, Happening.DRAINED, Happening.RELOADED, Happening.UPSTREAM_DOWN})
"""The happenings of a short run. Proxies go through only those that are specific to proxies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a happening is carried out. Times are in seconds.

    Attributes:
        lasts: how long the server is gone, frozen or aging; or the time between reloads.
        deadline: the deadline of fail-fast calls; with `everybody`, also of wait-for-ready calls.
        everybody: whether wait-for-ready calls have the same deadline instead of a longer one.
        settings: additional settings of the server, in milliseconds.
        options: additional options of the channel.
    """

    lasts: float
    deadline: float = 3.0
    everybody: bool = False
    settings: tuple[tuple[str, int], ...] = ()
    options: tuple[tuple[str, int], ...] = ()


AGE: Final = 1.0
"""MAX_CONNECTION_AGE of servers whose connections age, in seconds. Servers vary it by up to a tenth (gRFC A9)."""
RELOADS: Final = 2
"""How many times a proxy is reloaded."""
KEEPALIVE: Final = 1.0
"""How long the connection may be silent before the channel sends a PING, and how long it waits for the answer, in
seconds."""

_KEEPALIVE: Final = (
    ("grpc.keepalive_time_ms", round(1000 * KEEPALIVE)),
    ("grpc.keepalive_timeout_ms", round(1000 * KEEPALIVE)),
    ("grpc.keepalive_permit_without_calls", 1),
)

COURSES: Final = {
    Happening.KILLED: Course(lasts=1.5),
    Happening.DRAINED: Course(lasts=1.0),
    Happening.AGED: Course(lasts=5.0, settings=(("max-age-ms", round(1000 * AGE)), ("grace-ms", 1000))),
    Happening.FROZEN: Course(lasts=6.0, deadline=1.0, everybody=True, options=_KEEPALIVE),
    Happening.PINGED: Course(
        lasts=6.0,
        deadline=1.0,
        everybody=True,
        options=(*_KEEPALIVE, ("grpc.http2.ping_timeout_ms", round(1000 * KEEPALIVE))),
    ),
    Happening.RELOADED: Course(lasts=2.0),
    Happening.UPSTREAM_DOWN: Course(lasts=4.5, deadline=8.0),
}
"""How each happening is carried out."""
