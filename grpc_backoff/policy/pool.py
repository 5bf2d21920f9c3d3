"""How many connections a channel has, as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """Which connections a channel has (PO-5 to PO-8). Times are in seconds."""

    max_connections: int = 1
    """The largest number of connections for each endpoint."""
    streams_per_connection: int = 100
    """How many calls a connection has before one more is opened."""
    resolve_every: float = 0.0
    """How often the target's name is resolved while there is a connection; 0 means never."""
    min_resolve_interval: float = 30.0
    """The shortest time between two resolutions that are due to lost connections or failed attempts."""
    round_robin: bool = False
    """Whether there is a slot for each address of the target."""
