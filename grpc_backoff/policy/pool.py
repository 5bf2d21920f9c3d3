"""How many connections a channel has, and how it looks after them, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass

from grpc_backoff.policy import checks
from grpc_backoff.record import by_fields


@by_fields
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PoolPolicy:
    """Which connections a channel has (PO-5 to PO-8), and when it asks whether they live. Times are in seconds."""

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

    def __post_init__(self) -> None:
        """Apply the same checks as to channel options and files; OptionError if a value is invalid."""
        checks.hold(self, "max_connections", "streams_per_connection", "resolve_every", "min_resolve_interval")
        checks.hold(self, "round_robin", "quiet_after", "answer_within", "watch_network")
