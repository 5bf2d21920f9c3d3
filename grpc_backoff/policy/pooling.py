"""How many connections a channel has, and how it looks after them, as one value."""

from __future__ import annotations

import math

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.policy import checks
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.setting import Setting, own

_RESOLVE_INTERVAL = "grpc.dns_min_time_between_resolutions_ms"


def _never_or(least: float, never: str) -> checks.Check[float]:
    allowed = f"0 ({never}), or a finite number of seconds of at least {least:g}"
    return checks.time(allowed, lambda seconds: seconds == 0 or least <= seconds < math.inf)


def _from_to(least: float, most: float) -> checks.Check[float]:
    return checks.time(f"a number of seconds from {least:g} to {most:g}", lambda seconds: least <= seconds <= most)


POOLING = (
    own("max_connections", checks.whole(1, 1000)),
    own("streams_per_connection", checks.whole(1)),
    own("resolve_every", _never_or(1.0, "never")),
    Setting("min_resolve_interval", checks.pause, ..., _RESOLVE_INTERVAL, Unit.MILLISECONDS),
    own("quiet_after", _never_or(0.1, "off")),
    own("answer_within", _from_to(0.1, 3600.0)),
    own("watch_network", checks.flag),
)
"""All settings for a pool policy, in both options and files. The other fields are up to grpc's options (PO-6, RO-1)."""


class PoolPolicy(NamedTuple):
    """Which connections a channel has (PO-5 to PO-8), and when it asks if a peer is alive. Times are in seconds.

    Programs set its values by options and files, which are checked there.
    """

    max_connections: int = 1
    """The largest number of connections for each endpoint, from 1 to 1,000."""
    streams_per_connection: int = 100
    """How many calls a connection carries before another one is opened, or calls wait. Most servers allow 100."""
    resolve_every: float = 0.0
    """How often the target's name is resolved, with a connection or in backoff: at least 1 s; 0 means never."""
    min_resolve_interval: float = 30.0
    """The shortest time between two resolutions that lost connections or failed attempts cause."""
    round_robin: bool = False
    """Whether each address of the target has a connection of its own (PO-6)."""
    health_service: str | None = None
    """The service whose health is watched on each connection, empty for the whole server; None watches none (RO-1)."""
    quiet_after: float = 0.0
    """After how long in which nothing arrives the peer is asked whether it is alive: at least 0.1 s; 0 means never."""
    answer_within: float = 5.0
    """How long the peer may take to answer that, from 0.1 s to 1 h."""
    watch_network: bool = False
    """Whether a change of the machine's network is news for the channel (LV-4)."""


PLAIN = PoolPolicy()
"""The pool policy for a channel with no settings of its own."""
